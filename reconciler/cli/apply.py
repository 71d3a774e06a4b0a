"""`layoutctl apply`: carries out an approved plan and says what came of it.

Takes a saved plan, a table, or every table that the policies under -f select. Rows never change;
every commit is verified; what is interrupted can be started again with the same command.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reconciler.cli.options import (
    CatalogName,
    Exclude,
    Files,
    Format,
    Output,
    Quiet,
    Select,
    Timeout,
)

if TYPE_CHECKING:
    from reconciler.api.documents import TableLayoutPolicy
    from reconciler.core.execution import Event
    from reconciler.core.plan import Plan
    from reconciler.loop.local import LocalActor
    from reconciler.loop.propose import Proposal
    from reconciler.loop.step import Approvals, Step, StepResult


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
            bool, typer.Option("--auto-approve", help="Approve whatever is planned.")
        ] = False,
        catalog: CatalogName = None,
        output: Format = Output.TABLE,
        select: Select = None,
        exclude: Exclude = None,
        timeout: Timeout = 30.0,
        quiet: Quiet = False,
    ) -> None:
        """Carry out a plan: rewrite, verify, commit; then observe again."""
        from reconciler.cli.plan import local_actor
        from reconciler.cli.stopping import stop_at_boundary

        actor = local_actor(timeout)
        jobs = _jobs(what, file or [], catalog, select or [], exclude or [], timeout, actor)
        codes = []
        try:
            with stop_at_boundary() as should_stop:
                for step, plan in jobs:
                    run = _Run(step, plan, actor, until_converged, yes, auto_approve, quiet)
                    codes.append(_guarded(run, output, should_stop, many=len(jobs) > 1))
                    if should_stop():
                        break
        finally:
            actor.close()
        raise typer.Exit(worst(codes))


def worst(codes: Sequence[int]) -> int:
    """One exit code for many tables: what a person must see first, first."""
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
    actor: LocalActor,
) -> list[tuple[Step, Plan | None]]:
    from reconciler.cli.targets import select

    if what is not None and (what.endswith(".json") or Path(what).is_file()):
        return [_from_plan_file(Path(what), files, catalog, actor)]
    chosen = select(what, files, catalog, include=include, exclude=exclude, timeout=timeout)
    return [(step, None) for step in chosen.steps]


def _from_plan_file(
    path: Path, files: Sequence[str], catalog: str | None, actor: LocalActor
) -> tuple[Step, Plan]:
    """The saved plan becomes the standing one. Raises UserError when it no longer stands."""
    from dataclasses import replace

    from reconciler.api.load import Documents, load
    from reconciler.catalog.discover import resolve_catalog
    from reconciler.cli.targets import step_for, step_under
    from reconciler.core.plan import plan_from_document
    from reconciler.errors import UserError
    from reconciler.loop.propose import Target

    body = _read(path)
    plan = plan_from_document(body)
    if body.get("digest") != plan.digest():
        raise UserError(
            f"{path} was changed after it was saved: its digest does not match",
            do=f"layoutctl plan {'.'.join((plan.catalog, *plan.table))} --out {path}",
        )
    documents = load(files) if files else Documents()
    target = Target(resolve_catalog(catalog or plan.catalog, documents.catalogs), plan.table)
    if files:
        step = step_for(target, documents)
    else:
        step = step_under(target, _policy_of(plan, path), plan.policy)
    if step.policy_digest != plan.policy_hash:
        raise UserError(
            f"{path}: plan {plan.id} was made under another policy than {step.policy_name}",
            do=f"layoutctl plan {'.'.join((plan.catalog, *plan.table))} --out {path}",
        )
    step = replace(step, policy_digest=plan.policy_hash, policy_name=plan.policy)
    check_stands(plan, actor.observe(step.target), step, path)
    actor.put_plan(plan)
    return step, plan


def _policy_of(plan: Plan, path: Path) -> TableLayoutPolicy:
    """The policy that the plan was made under, with its budgets, windows and checks."""
    from reconciler.api.documents import TableLayoutPolicy, from_document
    from reconciler.errors import UserError

    try:
        policy = from_document(plan.evidence["policyDocument"])
    except (KeyError, TypeError, ValueError):
        policy = None
    if not isinstance(policy, TableLayoutPolicy):
        raise UserError(
            f"{path} holds no valid policy",
            details=("A saved plan is carried out within the budgets it was made under.",),
            do=f"layoutctl apply {path} -f PATH-OF-THE-POLICY",
        )
    return policy


def check_stands(plan: Plan, observation: Any, step: Step, path: Path) -> None:
    """A plan that expired or lost an action is not run in part: it is planned again."""
    from reconciler.core.plan import Validity, judge
    from reconciler.errors import UserError
    from reconciler.loop.propose import head_of

    again = f"layoutctl plan {'.'.join((plan.catalog, *plan.table))} --out {path}"
    if observation.uuid != plan.table_uuid:
        raise UserError(
            f"plan {plan.id} is for another table: {observation.name} was dropped and made again",
            do=again,
        )
    if step.clock() >= plan.expires:
        raise UserError(
            f"plan {plan.id} expired at {plan.expires:%Y-%m-%dT%H:%M:%SZ}",
            details=("What it was made from is too old to act on.",),
            do=again,
        )
    states = judge(plan, head_of(observation))
    lost = [(key, state) for key, state in states.items() if state.validity is Validity.LOST]
    if lost:
        raise UserError(
            f"plan {plan.id} no longer stands: {len(lost)} of {len(states)} actions are lost",
            details=tuple(f"{key}: {state.why}" for key, state in lost[:5]),
            do=again,
        )


def _read(path: Path) -> Any:
    from reconciler.errors import UserError

    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(
            f"{path} is not a saved plan: it is no JSON",
            do="layoutctl plan TABLE --out FILE",
        ) from error


class _Run:
    """One table's apply: what was asked, and how it is told."""

    def __init__(
        self,
        step: Step,
        plan: Plan | None,
        actor: LocalActor,
        until_converged: bool,
        yes: bool,
        auto_approve: bool,
        quiet: bool,
    ):
        self.step, self.plan, self.actor = step, plan, actor
        self.until_converged, self.yes, self.auto_approve = until_converged, yes, auto_approve
        self.quiet = quiet
        self.started = time.monotonic()
        self.steps: list[StepResult] = []

    def say(self, text: str) -> None:
        if not self.quiet:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def on_event(self, event: Event) -> None:
        self.say(event.text)

    def go(self, should_stop: Callable[[], bool]) -> StepResult:
        """Shows the plan, asks if it must, runs."""
        from reconciler.loop.step import run_step, run_until_converged

        proposal = self.step.propose(self.actor)
        if self.actor.resume(self.step.target, proposal.observation, self.on_event):
            proposal = self.step.propose(self.actor)
        self._show(proposal)
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

    def _show(self, proposal: Proposal) -> None:
        """What is about to be approved: a saved plan in one line, any other in full."""
        from reconciler.cli.plan_text import render_plan

        asks = sys.stdin.isatty() and not (self.yes or self.auto_approve)
        if proposal.pending and (asks or (self.plan is None and not proposal.frozen)):
            self.say(render_plan(proposal.plan.document(), preview=False, ending=False) + "\n")
        self.say(_opening(proposal, self.plan))

    def _approvals(self, proposal: Proposal) -> Approvals:
        from reconciler.loop.step import Approvals, judge_gate

        if self.auto_approve:
            return Approvals(everything=True)
        given = Approvals(proposal.plan.id if self.yes else "")
        if not proposal.pending:
            return given
        decision = judge_gate(self.step, proposal, self.actor, given)
        asks = decision.reason == "AwaitingApproval" and not self.yes and sys.stdin.isatty()
        if asks and _confirmed(proposal):
            given = Approvals(proposal.plan.id)
        if given.plan_id:
            self.actor.put_plan(proposal.plan)
            self.actor.store.approve(proposal.plan.id)
        return given


def _opening(proposal: Proposal, asked: Plan | None) -> str:
    inputs = sum(len(a.action.inputs) for a in proposal.plan.actions)
    live = sum(len(a.action.inputs) for a in proposal.pending)
    name = proposal.observation.name
    if asked is not None and asked.id != proposal.plan.id:
        return f"{name}  plan {asked.id} is done: all of its inputs were rewritten by it"
    if not proposal.plan.actions:
        return f"{name}  nothing to do"
    return f"{name}  plan {proposal.plan.id}   {live:,} of {inputs:,} input files still live"


def _confirmed(proposal: Proposal) -> bool:
    from reconciler.core.format import iec

    size = sum(int(a.predicted.get("bytesIn", 0)) for a in proposal.pending)
    sys.stderr.write(
        f'Rewrite {iec(size)} on this machine? Rows do not change. Only "yes" continues: '
    )
    sys.stderr.flush()
    return sys.stdin.readline().strip() == "yes"


def _guarded(run: _Run, output: Output, should_stop: Callable[[], bool], *, many: bool) -> int:
    """The exit code of one table; among many, one table's error does not stop the others."""
    from reconciler.errors import ReconcilerError

    try:
        result = run.go(should_stop)
    except ReconcilerError as error:
        if not many:
            raise
        typer.echo(f"{'.'.join(run.step.target.identifier)}: {error.render()}", err=True)
        return error.exit_code
    _print(run, result, output)
    return _exit_code(run, result)


def _exit_code(run: _Run, result: StepResult) -> int:
    from reconciler import errors
    from reconciler.loop.step import BLOCKED, PENDING

    last = next((s.result for s in reversed(run.steps) if s.result is not None), None)
    if last is not None and last.stopped:
        return errors.EXIT_INTERRUPTED
    if last is not None and not last.done:
        return errors.EXIT_UNAVAILABLE
    cut_short = result.state.state == BLOCKED and (
        last is None or run.until_converged or result.gate.count < len(result.before.pending)
    )
    if cut_short:
        return errors.EXIT_BLOCKED
    if run.until_converged and result.state.state == PENDING:
        return errors.EXIT_UNAVAILABLE
    return errors.EXIT_OK


def _print(run: _Run, result: StepResult, output: Output) -> None:
    if output in (Output.JSON, Output.YAML):
        from reconciler.cli.serialise import serialise

        typer.echo(serialise(report_document(run.steps, result), output), nl=False)
        return
    typer.echo(_summary(run, result))


def report_document(steps: Sequence[StepResult], result: StepResult) -> dict[str, Any]:
    """`apply -o json`: raw bytes and seconds, one entry per executed plan."""
    return {
        "apiVersion": "layout.lakehouse.dev/v1alpha1",
        "kind": "ApplyReport",
        "table": result.after.observation.name,
        "state": result.state.state,
        "reason": result.state.reason,
        "message": result.state.message,
        "steps": [_step_document(step) for step in steps],
    }


def _step_document(step: StepResult) -> dict[str, Any]:
    done = step.result
    return {
        "planId": step.before.plan.id,
        "admitted": step.gate.count,
        "pending": len(step.before.pending),
        "reason": step.gate.reason,
        "commits": done.commits if done else 0,
        "conflicts": done.conflicts if done else 0,
        "rewrittenBytes": done.read_bytes if done else 0,
        "cpuSeconds": round(done.cpu_seconds, 3) if done else 0.0,
        "seconds": round(done.seconds, 3) if done else 0.0,
        "predictedBytes": sum(
            int(a.predicted.get("bytesIn", 0)) for a in step.before.pending[: step.gate.count]
        ),
        "read": None
        if step.check is None
        else {
            "before": step.check.before,
            "predicted": step.check.predicted,
            "actual": step.check.actual,
        },
        "actions": [
            {"id": a.action_id, "state": a.state.value, "detail": a.detail}
            for a in (done.actions if done else ())
        ],
    }


def _summary(run: _Run, result: StepResult) -> str:
    from reconciler.core.format import duration

    ran = [step for step in run.steps if step.result is not None]
    state = f"{result.state.state}" + (f", {result.state.reason}" if result.state.reason else "")
    if not ran:
        lines = [f"Nothing was done: {result.state.message}. {state}."]
    else:
        commits = sum(s.result.commits for s in ran if s.result)
        conflicts = sum(s.result.conflicts for s in ran if s.result)
        end = "Stopped after" if _stopped(ran) else "Done in"
        lines = [
            f"{end} {duration(time.monotonic() - run.started)}. "
            f"{commits} {'commit' if commits == 1 else 'commits'}, "
            f"{conflicts} {'conflict' if conflicts == 1 else 'conflicts'}. "
            f"Observed again: {result.state.message}, {state}.",
            *_comparison(ran),
        ]
    hint = _next_command(result)
    return "\n".join([*lines, *([f"  next: {hint}"] if hint else [])])


def _stopped(ran: Sequence[StepResult]) -> bool:
    return any(step.result is not None and step.result.stopped for step in ran)


def _comparison(ran: Sequence[StepResult]) -> list[str]:
    from reconciler.cli.plan_text import align
    from reconciler.core.format import cpu, iec

    done = [(s, s.result) for s in ran if s.result is not None]
    admitted = [a for s, _ in done for a in s.before.pending[: s.gate.count]]
    rows = [["", "PREDICTED", "ACTUAL", ""]]
    rows.append([
        "rewritten",
        iec(sum(int(a.predicted.get("bytesIn", 0)) for a in admitted)),
        iec(sum(r.read_bytes for _, r in done)),
        "lost to conflicts included" if any(r.conflicts for _, r in done) else "",
    ])  # fmt: skip
    rows.append([
        "CPU",
        cpu(sum(int(a.predicted.get("cpuMillis", 0)) for a in admitted) / 1000),
        cpu(sum(r.cpu_seconds for _, r in done)),
        "",
    ])  # fmt: skip
    checks = [s.check for s, _ in done if s.check is not None]
    if checks:
        rows.append([
            "read by the window",
            iec(checks[-1].predicted),
            iec(checks[-1].actual),
            f"was {iec(checks[0].before)}; same queries against the new zone maps",
        ])  # fmt: skip
    return align(rows, "lrrl", indent="  ", gap="  ")


def _next_command(result: StepResult) -> str:
    name = result.after.observation.name
    if result.state.reason == "AwaitingApproval":
        return f"layoutctl plan {name}      layoutctl apply {name} --yes"
    if result.after.pending:
        return f"layoutctl plan {name}"
    return ""
