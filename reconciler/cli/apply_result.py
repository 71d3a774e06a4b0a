"""How one table's apply ended: its exit code, its document, and the values of its closing table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reconciler.api.version import API_VERSION

if TYPE_CHECKING:
    from reconciler.cli.apply_run import ApplyRun
    from reconciler.cli.following import Given
    from reconciler.loop.propose import Proposal
    from reconciler.loop.step import StepResult
    from reconciler.plan.execution import ExecutionResult
    from reconciler.plan.prediction import Total
    from reconciler.render.apply_text import ApplySummary, WindowRead


def last_execution(run: ApplyRun) -> ExecutionResult | None:
    return next((s.result for s in reversed(run.steps) if s.result is not None), None)


def report_list(
    reports: Sequence[dict[str, Any]], errors: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """Return the document of `apply -f layouts -o json`: one report per table, by name."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ApplyReportList",
        "items": list(reports),
        "errors": list(errors),
    }


def exit_code(run: ApplyRun, result: StepResult) -> int:
    from reconciler import errors
    from reconciler.api.conditions import Reason
    from reconciler.loop.step import BLOCKED, CONVERGED, PENDING

    last = last_execution(run)
    if run.done_before:
        return errors.EXIT_OK
    if last is not None and last.waiting:
        return errors.EXIT_BLOCKED
    if last is not None and not last.done:
        unreachable = result.state.reason == Reason.OBJECTIVE_UNREACHABLE
        left = result.state.state != CONVERGED and not unreachable
        if left or _waiting(result.after) > _waiting(result.before):
            return errors.EXIT_UNAVAILABLE
    cut_short = result.state.state == BLOCKED and (
        last is None or run.until_converged or result.gate.count < len(result.before.pending)
    )
    if cut_short:
        return errors.EXIT_BLOCKED
    if run.until_converged and result.state.state == PENDING:
        return errors.EXIT_UNAVAILABLE
    return errors.EXIT_OK


def _waiting(proposal: Proposal) -> int:
    """Return the number of rewrites held back only by the quiet period.

    For example the period begun by another writer's commit that was in conflict with ours.
    """
    from reconciler.loop.waiting import waiting

    held = waiting(proposal.advice, proposal.observation, proposal.settings)
    return held.rewrites if held else 0


def report_document(steps: Sequence[StepResult], result: StepResult) -> dict[str, Any]:
    """Return the document of `apply -o json`: raw bytes and seconds, one step per plan that was
    executed or held back. Without work there is no step. Snapshot ids are strings: some readers
    of JSON round numbers of that size."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ApplyReport",
        "table": result.after.observation.name,
        "state": result.state.state,
        "reason": result.state.reason,
        "message": result.state.message,
        "snapshotId": _id(result.after.observation.snapshot_id),
        "steps": [_step_document(step) for step in steps if step.result or step.before.pending],
    }


def _checked(step: StepResult) -> dict[str, Any]:
    """Return what the recorded queries read before and after, None where that is unknown."""
    check = step.check
    if check is None:
        return {"read": None, "files": None}
    read = {
        "before": check.before,
        "predicted": check.predicted,
        "actual": check.actual,
        "complete": check.complete,
        "saved": check.saving,
        "harm": check.harm,
        "costBefore": check.cost_before,
        "costPredicted": check.cost_predicted,
        "costActual": check.cost_actual,
        "openBytes": step.before.open_bytes,
    }
    files = {
        "before": check.files_before,
        "predicted": check.files_predicted,
        "actual": check.files_actual,
    }
    return {"read": read, "files": files}


def _step_document(step: StepResult) -> dict[str, Any]:
    from reconciler.plan.execution import figures
    from reconciler.plan.prediction import total

    done = step.result
    admitted = total(item.predicted for item in step.before.pending[: step.gate.count])
    money = _money(step.before, admitted, [] if done is None else [done])
    return {
        "planId": step.before.plan.id,
        "baseSnapshotId": _id(step.before.plan.base_snapshot_id),
        "committedSnapshotIds": _committed(done),
        "admitted": step.gate.count,
        "pending": len(step.before.pending),
        "reason": step.gate.reason,
        **figures(done),
        "startSeconds": None
        if done is None or done.start_seconds is None
        else round(done.start_seconds, 3),
        "predictedBytes": admitted.bytes_in,
        "predictedCpuSeconds": admitted.cpu_seconds,
        "predictedSeconds": round(admitted.seconds(step.before.settings.throughput), 3),
        **({} if money is None else {"money": money}),
        **_checked(step),
        "actions": [
            {"id": a.action_id, "state": a.state.value, "detail": a.detail}
            for a in (done.actions if done else ())
        ],
    }


def _id(snapshot: int | None) -> str | None:
    return None if snapshot is None else str(snapshot)


def _committed(done: ExecutionResult | None) -> list[str]:
    """Return the snapshots that the execution committed, in order, each once."""
    from reconciler.plan.execution import COMMITTED

    outcomes = done.outcomes if done else ()
    ids = [str(o.snapshot_id) for o in outcomes if o.state == COMMITTED and o.snapshot_id]
    return list(dict.fromkeys(ids))


def _files_predicted(before: Proposal) -> int | None:
    """Return the data files that its plan leaves, also one that was saved, or that takes another
    back; None if the plan does not say. Files appended since are not in it."""
    from reconciler.plan.totals import Quantity, total_of

    line = total_of(before.plan.evidence, Quantity.FILES)
    return None if line is None else line.after


def summary_of(run: ApplyRun, result: StepResult, interrupted: bool) -> ApplySummary:
    """Return the result of the run, as the values that `apply_text` prints."""
    from reconciler.plan.prediction import total
    from reconciler.render.apply_text import ApplySummary, FileCount

    done = [(s, s.result) for s in run.steps if s.result is not None]
    admitted = total(a.predicted for s, _ in done for a in s.before.pending[: s.gate.count])
    read = _window_read(done)
    files = None
    if done:
        (first, _), (step, ended) = done[0], done[-1]
        whole = ended.done and step.gate.count == len(step.before.pending)
        files = FileCount(
            before=len(first.before.observation.files),
            predicted=_files_predicted(step.before) if whole else None,
            actual=len(result.after.observation.files),
        )
    return ApplySummary(
        ran=bool(done),
        stopped=interrupted,
        declined=run.declined and not done,
        seconds=time.monotonic() - run.started,
        executed_seconds=sum(r.seconds + (r.start_seconds or 0.0) for _, r in done),
        started=any(r.start_seconds is not None for _, r in done),
        commits=sum(r.commits for _, r in done),
        conflicts=sum(r.conflicts for _, r in done),
        predicted_bytes=admitted.bytes_in,
        actual_bytes=sum(r.read_bytes for _, r in done),
        predicted_cpu_seconds=admitted.cpu_seconds,
        predicted_seconds=admitted.seconds(done[0][0].before.settings.throughput) if done else 0.0,
        actual_cpu_seconds=sum(r.cpu_seconds for _, r in done),
        read=read,
        files=files,
        state=result.state.state + (f", {result.state.reason}" if result.state.reason else ""),
        message=result.state.message,
        following=_following(result, run.options),
        money=_money(result.before, admitted, [r for _, r in done]),
    )


def _window_read(done: Sequence[tuple[StepResult, ExecutionResult]]) -> WindowRead | None:
    """Return what the recorded queries read before and after; None if nothing was measured."""
    from reconciler.render.apply_text import WindowRead

    checks = [step.check for step, _ in done if step.check is not None]
    if not checks:
        return None
    last = checks[-1]
    return WindowRead(
        checks[0].before, last.predicted, last.actual, last.complete,
        sum(check.saving for check in checks), checks[0].cost_before, last.cost_predicted,
        last.cost_actual, done[-1][0].before.open_bytes,
    )  # fmt: skip


def _money(
    before: Proposal, admitted: Total, done: Sequence[ExecutionResult]
) -> dict[str, str | float] | None:
    """Return what the executions were predicted to cost and have cost; None without prices."""
    from reconciler.plan.money import run_money

    prices = before.target.catalog.prices
    if prices is None or not done:
        return None
    read, seconds = sum(one.read_bytes for one in done), sum(one.cpu_seconds for one in done)
    return run_money(prices, admitted, read, seconds)


def _following(result: StepResult, options: Given) -> tuple[str, ...]:
    from reconciler.cli.following import apply_command, plan_command

    name = result.after.observation.name
    if result.state.reason == "AwaitingApproval" and result.after.by_person:
        saved = f"{result.after.plan.id}.json"
        return (plan_command(name, options, saved), apply_command(saved, options, "--yes"))
    if result.state.reason == "AwaitingApproval":
        return (plan_command(name, options), apply_command(name, options, "--yes"))
    return (plan_command(name, options),) if result.after.pending else ()
