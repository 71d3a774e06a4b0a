"""`layoutctl apply`: carries out an approved plan and reports the result.

Takes a saved plan, a table, or every table that the policies under -f select. Rows never change;
every commit is verified; after an interruption the same command continues.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reconciler.api.version import API_VERSION
from reconciler.cli.options import (
    CatalogName,
    Exclude,
    Files,
    Format,
    Output,
    Quiet,
    Select,
    Shared,
    Timeout,
)
from reconciler.cli.saved_plan import from_plan_file

if TYPE_CHECKING:
    from reconciler.cli.following import Given
    from reconciler.loop.gating import Approvals
    from reconciler.loop.local_actor import LocalActor
    from reconciler.loop.propose import Proposal
    from reconciler.loop.step import Step, StepResult
    from reconciler.plan.execution import Event, ExecutionResult
    from reconciler.plan.plan import Plan
    from reconciler.render.apply_text import Told


def register(app: typer.Typer) -> None:
    @app.command(rich_help_panel="Act")
    def apply(
        what: Annotated[
            str | None,
            typer.Argument(
                metavar="[PLANFILE|TABLE]",
                help="A plan saved by `plan --out`, or catalog.namespace.table.",
                show_default=False,
            ),
        ] = None,
        file: Files = None,
        until_converged: Annotated[
            bool, typer.Option("--until-converged", help="Plan again until nothing is left.")
        ] = False,
        yes: Annotated[bool, typer.Option("--yes", help="Approve the one plan shown.")] = False,
        auto_approve: Annotated[
            bool, typer.Option("--auto-approve", help="Approve every plan of this run.")
        ] = False,
        catalog: CatalogName = None,
        output: Format = Output.TABLE,
        select: Select = None,
        exclude: Exclude = None,
        shared: Shared = False,
        timeout: Timeout = 30.0,
        quiet: Quiet = False,
    ) -> None:
        """Carry out a plan: rewrite, verify, commit; then observe again."""
        from reconciler.cli.following import given
        from reconciler.errors import EXIT_INTERRUPTED
        from reconciler.spark.stop import stop_signals

        jobs, actor = _jobs(what, file or [], catalog, select or [], exclude or [], timeout, shared)
        ended: list[_Ended] = []
        try:
            with stop_signals(_say_that_it_stops) as should_stop:
                options = given(file, catalog, shared)
                for step, plan in jobs:
                    run = _Run(
                        step, plan, actor, until_converged, yes, auto_approve, quiet, options
                    )
                    ended.append(_guarded(run, output, should_stop, many=len(jobs) > 1))
                    if should_stop():
                        break
            codes = [one.code for one in ended]
            if len(ended) < len(jobs):
                codes.append(EXIT_INTERRUPTED)
        finally:
            actor.close()
            if output in (Output.JSON, Output.YAML) and ended:
                _print_documents(ended, output, many=len(jobs) > 1)
        raise typer.Exit(worst(codes))


def _say_that_it_stops() -> None:
    sys.stderr.write("\nstopping at the next commit boundary; Ctrl-C again to stop at once\n")


def worst(codes: Sequence[int]) -> int:
    """Return one exit code for many tables: the one that a person must see first."""
    from reconciler import errors

    order = (
        errors.EXIT_INTERRUPTED, errors.EXIT_INTERNAL, errors.EXIT_USER, errors.EXIT_UNAVAILABLE,
        errors.EXIT_BLOCKED,
    )  # fmt: skip
    return next((code for code in order if code in codes), errors.EXIT_OK)


def _jobs(
    what: str | None,
    files: Sequence[str],
    catalog: str | None,
    include: Sequence[str],
    exclude: Sequence[str],
    timeout: float,
    shared: bool,
) -> tuple[list[tuple[Step, Plan | None]], LocalActor]:
    from reconciler.cli.shared import actor_of
    from reconciler.cli.targets import select

    if what is not None and (what.endswith(".json") or Path(what).is_file()):
        step, plan, actor = from_plan_file(Path(what), files, catalog, timeout, shared)
        return [(step, plan)], actor
    chosen = select(what, files, catalog, include=include, exclude=exclude, timeout=timeout)
    return [(step, None) for step in chosen.steps], actor_of(chosen, timeout, shared)


@dataclass(frozen=True, slots=True)
class _Ended:
    """The end of one table's apply: its exit code, and its report or its error as a document."""

    code: int
    report: dict[str, Any] | None
    error: dict[str, Any] | None = None


class _Run:
    """One table's apply: its options, and its output."""

    def __init__(
        self,
        step: Step,
        plan: Plan | None,
        actor: LocalActor,
        until_converged: bool,
        yes: bool,
        auto_approve: bool,
        quiet: bool,
        options: Given,
    ):
        self.step, self.plan, self.actor = step, plan, actor
        self.until_converged, self.yes, self.auto_approve = until_converged, yes, auto_approve
        self.quiet, self.options = quiet, options
        self.started = time.monotonic()
        self.steps: list[StepResult] = []
        self.done_before = False

    def say(self, text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def on_event(self, event: Event) -> None:
        from reconciler.render.apply_text import render_event
        from reconciler.render.terminal import width

        if not self.quiet:
            self.say(render_event(event.text, width(sys.stderr) if sys.stderr.isatty() else None))

    def go(self, should_stop: Callable[[], bool]) -> StepResult:
        """Show the plan, ask if needed, run."""
        from reconciler.loop.step import run_step, run_until_converged

        proposal = self.step.propose(self.actor)
        if self.actor.resume(self.step.target, proposal.observation, self.on_event):
            proposal = self.step.propose(self.actor)
        self._show(proposal)
        if self.plan is not None and not self._asked(proposal) and not self.until_converged:
            return self._done_before(proposal)
        approvals = self._approvals(proposal)
        if not self.until_converged:
            result = run_step(
                self.step, self.actor, approvals, self.on_event, should_stop, proposal
            )
            self.steps.append(result)
            return result
        return run_until_converged(
            self.step, self.actor, approvals, self.on_event, should_stop,
            self.steps.append, proposal,
        )  # fmt: skip

    def _asked(self, proposal: Proposal) -> bool:
        """Whether it is the saved plan; once that is done, another one is proposed."""
        return self.plan is not None and proposal.plan.id == self.plan.id

    def _done_before(self, proposal: Proposal) -> StepResult:
        """Return the result of a plan that is already done: only what was reviewed runs, and a new
        plan waits."""
        from reconciler.loop.step import StepResult, state_of
        from reconciler.plan.gate import Gate

        self.done_before = True
        return StepResult(proposal, Gate(0, "", ""), None, proposal, state_of(proposal, None))

    def _show(self, proposal: Proposal) -> None:
        """Show what is about to be approved: a saved plan in one line, any other in full.

        A person who is asked sees the plan even with --quiet.
        """
        from reconciler.cli.plan import budgeted
        from reconciler.loop.gating import Approvals
        from reconciler.loop.step import judge_gate
        from reconciler.render.plan_text import render_plan
        from reconciler.render.terminal import width

        asks = sys.stdin.isatty() and not (self.yes or self.auto_approve)
        if self.quiet and not asks:
            return
        unseen = not self._asked(proposal) and not proposal.frozen
        if self.plan is not None and not self.until_converged:
            asks, unseen = asks and self._asked(proposal), False
        if proposal.pending and (asks or unseen):
            document = budgeted(
                proposal, judge_gate(self.step, proposal, self.actor, Approvals(everything=True))
            )
            columns = width(sys.stderr)
            self.say(render_plan(document, width=columns, preview=False, ending=False) + "\n")
        self.say(_opening(proposal, self.plan))
        other = _made_under_another(proposal, self.step)
        if other:
            self.say(other)

    def _approvals(self, proposal: Proposal) -> Approvals:
        from reconciler.loop.gating import Approvals, policy_key
        from reconciler.loop.step import judge_gate

        if self.auto_approve:
            return Approvals(everything=True)
        shown = proposal.plan if self.plan is None else self.plan
        given = Approvals(shown.id if self.yes else "")
        if not proposal.pending:
            return given
        decision = judge_gate(self.step, proposal, self.actor, given)
        asks = decision.reason == "AwaitingApproval" and not self.yes and sys.stdin.isatty()
        if asks and _confirmed(proposal):
            given = Approvals(proposal.plan.id)
        if given.plan_id == proposal.plan.id:
            self.actor.put_plan(proposal.plan)
            self.actor.store.approve(proposal.plan.id, policy_key(self.step.policy))
        return given


def _opening(proposal: Proposal, asked: Plan | None) -> str:
    from reconciler.loop.remaining import progress

    inputs = sum(len(a.action.inputs) for a in proposal.plan.actions)
    live = sum(len(a.action.inputs) for a in proposal.pending)
    name = proposal.observation.name
    if asked is not None and asked.id != proposal.plan.id:
        return f"{name}  plan {asked.id} is done: it has rewritten all of its inputs"
    if not proposal.plan.actions:
        return f"{name}  nothing to do"
    if begun := progress(proposal):
        done, total = len(begun["progress"]["done"]), len(proposal.plan.actions)
        return f"{name}  plan {proposal.plan.id}   {done:,} of {total:,} actions were done before"
    return f"{name}  plan {proposal.plan.id}   {live:,} of {inputs:,} input files still live"


def _made_under_another(proposal: Proposal, step: Step) -> str:
    """Return a note if the plan was made under other budgets: its id does not include them."""
    from reconciler.loop.gating import plan_policy_key, policy_key

    made = plan_policy_key(proposal.plan)
    if not proposal.pending or made in (None, policy_key(step.policy)):
        return ""
    return (
        f"this plan was made under the policy {proposal.plan.policy}: its approval, budgets, "
        f"windows and suspension do not apply under {step.policy_name} (give its file with -f)"
    )


def _confirmed(proposal: Proposal) -> bool:
    from reconciler.format import iec
    from reconciler.plan.prediction import total
    from reconciler.spark.stop import interruptible

    size = total(a.predicted for a in proposal.pending).bytes_in
    sys.stderr.write(
        f'Rewrite {iec(size)} on this machine? Rows do not change. Only "yes" continues: '
    )
    sys.stderr.flush()
    with interruptible():
        return sys.stdin.readline().strip() == "yes"


def _guarded(run: _Run, output: Output, should_stop: Callable[[], bool], *, many: bool) -> _Ended:
    """Return how one table ended; among many, one table's error does not stop the others."""
    from reconciler.errors import EXIT_INTERRUPTED, ReconcilerError
    from reconciler.render.apply_text import render_told
    from reconciler.render.terminal import width

    try:
        result = run.go(should_stop)
    except ReconcilerError as error:
        if not many:
            raise
        name = ".".join(run.step.target.identifier)
        typer.echo(f"{name}: {error.render()}", err=True)
        told_error = {"table": list(run.step.target.identifier), "error": error.what}
        return _Ended(error.exit_code, None, told_error)
    interrupted = should_stop() and _cut_short(run, result)
    if output not in (Output.JSON, Output.YAML):
        lines = render_told(told(run, result, interrupted), width())
        typer.echo(f"{result.after.observation.name}\n{lines}" if many else lines)
    code = EXIT_INTERRUPTED if interrupted else _exit_code(run, result)
    return _Ended(code, report_document(run.steps, result))


def _cut_short(run: _Run, result: StepResult) -> bool:
    """Whether requested and permitted work is left undone."""
    from reconciler.loop.step import PENDING

    last = _last_execution(run)
    if last is not None and last.stopped:
        return True
    met = last is not None and last.done and not run.until_converged
    return result.state.state == PENDING and not met


def _last_execution(run: _Run) -> ExecutionResult | None:
    return next((s.result for s in reversed(run.steps) if s.result is not None), None)


def _print_documents(ended: Sequence[_Ended], output: Output, *, many: bool) -> None:
    """Print one document: the table's report, or the list of several."""
    from reconciler.cli.serialise import serialise

    reports = [one.report for one in ended if one.report is not None]
    if many:
        errors = [one.error for one in ended if one.error is not None]
        typer.echo(serialise(report_list(reports, errors), output), nl=False)
    elif reports:
        typer.echo(serialise(reports[0], output), nl=False)


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


def _exit_code(run: _Run, result: StepResult) -> int:
    from reconciler import errors
    from reconciler.loop.step import BLOCKED, CONVERGED, PENDING

    last = _last_execution(run)
    if run.done_before:
        return errors.EXIT_OK
    if last is not None and not last.done:
        left = result.state.state != CONVERGED
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

    held = waiting(proposal.advice, proposal.observation, proposal.policy)
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


def _step_document(step: StepResult) -> dict[str, Any]:
    from reconciler.plan.prediction import total

    done = step.result
    admitted = total(item.predicted for item in step.before.pending[: step.gate.count])
    return {
        "planId": step.before.plan.id,
        "baseSnapshotId": _id(step.before.plan.base_snapshot_id),
        "committedSnapshotIds": _committed(done),
        "admitted": step.gate.count,
        "pending": len(step.before.pending),
        "reason": step.gate.reason,
        "commits": done.commits if done else 0,
        "conflicts": done.conflicts if done else 0,
        "rewrittenBytes": done.read_bytes if done else 0,
        "cpuSeconds": round(done.cpu_seconds, 3) if done else 0.0,
        "seconds": round(done.seconds, 3) if done else 0.0,
        "predictedBytes": admitted.bytes_in,
        "read": None
        if step.check is None
        else {
            "before": step.check.before,
            "predicted": step.check.predicted,
            "actual": step.check.actual,
            "complete": step.check.complete,
            "saved": step.check.saving,
        },
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


def told(run: _Run, result: StepResult, interrupted: bool) -> Told:
    """Return the result of the run, as the values that `apply_text` prints."""
    from reconciler.plan.prediction import total
    from reconciler.render.apply_text import FileCount, Told, WindowRead

    done = [(s, s.result) for s in run.steps if s.result is not None]
    admitted = total(a.predicted for s, _ in done for a in s.before.pending[: s.gate.count])
    checks = [s.check for s, _ in done if s.check is not None]
    read = None
    if checks:
        last = checks[-1]
        saved = sum(check.saving for check in checks)
        read = WindowRead(checks[0].before, last.predicted, last.actual, last.complete, saved)
    files = None
    if done:
        (first, _), (step, ended) = done[0], done[-1]
        whole = ended.done and step.gate.count == len(step.before.pending)
        files = FileCount(
            before=len(first.before.observation.files),
            predicted=round(step.before.advice.files_after.mid) if whole else None,
            actual=len(result.after.observation.files),
        )
    return Told(
        ran=bool(done),
        stopped=interrupted,
        seconds=time.monotonic() - run.started,
        commits=sum(r.commits for _, r in done),
        conflicts=sum(r.conflicts for _, r in done),
        predicted_bytes=admitted.bytes_in,
        actual_bytes=sum(r.read_bytes for _, r in done),
        predicted_cpu_seconds=admitted.cpu_seconds,
        actual_cpu_seconds=sum(r.cpu_seconds for _, r in done),
        read=read,
        files=files,
        state=result.state.state + (f", {result.state.reason}" if result.state.reason else ""),
        message=result.state.message,
        following=_following(result, run.options),
    )


def _following(result: StepResult, options: Given) -> tuple[str, ...]:
    from reconciler.cli.following import apply_command, plan_command

    name = result.after.observation.name
    if result.state.reason == "AwaitingApproval":
        return (plan_command(name, options), apply_command(name, options, "--yes"))
    return (plan_command(name, options),) if result.after.pending else ()
