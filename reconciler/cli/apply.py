"""`layoutctl apply`: carries out an approved plan and reports the result.

Takes a saved plan, a table, or every table that the policies under -f select. Rows never change;
every commit is verified; after an interruption the same command continues.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reconciler.cli.apply_result import (
    exit_code,
    last_execution,
    report_document,
    report_list,
    summary_of,
)
from reconciler.cli.apply_run import ApplyRun
from reconciler.cli.options import (
    CatalogName,
    Engine,
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
from reconciler.format import printable

if TYPE_CHECKING:
    from reconciler.loop.local_actor import LocalActor
    from reconciler.loop.step import Step, StepResult
    from reconciler.plan.plan import Plan

What = Annotated[
    str | None,
    typer.Argument(
        metavar="[PLANFILE|TABLE]",
        help="A plan saved by `plan --out`, or catalog.namespace.table.",
        show_default=False,
    ),
]
UntilConverged = Annotated[
    bool, typer.Option("--until-converged", help="Plan again until nothing is left.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Approve the one plan shown.")]
AutoApprove = Annotated[
    bool, typer.Option("--auto-approve", help="Approve every plan of this run.")
]
MachineGone = Annotated[
    bool,
    typer.Option(
        "--machine-gone",
        help="The machine of an earlier run on TABLE is gone: its budget counts as of now.",
    ),
]


def apply(
    what: What = None,
    file: Files = None,
    until_converged: UntilConverged = False,
    yes: Yes = False,
    auto_approve: AutoApprove = False,
    catalog: CatalogName = None,
    output: Format = Output.TABLE,
    select: Select = None,
    exclude: Exclude = None,
    shared: Shared = False,
    engine: Engine = None,
    timeout: Timeout = 30.0,
    quiet: Quiet = False,
    machine_gone: MachineGone = False,
) -> None:
    """Carry out a plan: rewrite, verify, commit; then observe again."""
    from reconciler.cli.following import given
    from reconciler.errors import EXIT_INTERRUPTED
    from reconciler.spark.session.stop import stop_signals

    jobs, actor = _jobs(what, file or [], catalog, select or [], exclude or [], timeout, shared)
    actor.engine, actor.machine_gone = engine, machine_gone and _of_one_table(what)
    ended: list[_Ended] = []
    try:
        with stop_signals(_say_that_it_stops) as should_stop:
            options = given(file, catalog, shared)
            for step, plan in jobs:
                run = ApplyRun(
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


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel="Act")(apply)


def _of_one_table(what: str | None) -> bool:
    from reconciler.errors import UserError

    if what is None:
        raise UserError(
            "--machine-gone needs a table: runs on others may go on",
            do="name the table whose run was lost with its machine",
        )
    return True


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


def _guarded(
    run: ApplyRun, output: Output, should_stop: Callable[[], bool], *, many: bool
) -> _Ended:
    """Return how one table ended; among many, one table's error does not stop the others."""
    from reconciler.errors import EXIT_INTERRUPTED, ReconcilerError
    from reconciler.render.apply_text import render_summary
    from reconciler.render.terminal import width

    try:
        result = run.go(should_stop)
    except ReconcilerError as error:
        if not many:
            raise
        name = ".".join(run.step.target.identifier)
        typer.echo(f"{printable(name)}: {error.render()}", err=True)
        failure = {"table": list(run.step.target.identifier), "error": error.what}
        return _Ended(error.exit_code, None, failure)
    interrupted = should_stop() and _cut_short(run, result)
    if output not in (Output.JSON, Output.YAML):
        lines = render_summary(summary_of(run, result, interrupted), width())
        typer.echo(f"{printable(result.after.observation.name)}\n{lines}" if many else lines)
    code = EXIT_INTERRUPTED if interrupted else exit_code(run, result)
    return _Ended(code, report_document(run.steps, result))


def _cut_short(run: ApplyRun, result: StepResult) -> bool:
    """Whether requested and permitted work is left undone."""
    from reconciler.loop.step import PENDING

    last = last_execution(run)
    if last is not None and last.stopped:
        return True
    met = last is not None and last.done and not run.until_converged
    return result.state.state == PENDING and not met


def _print_documents(ended: Sequence[_Ended], output: Output, *, many: bool) -> None:
    """Print one document: the table's report, or the list of several."""
    from reconciler.cli.serialise import serialise

    reports = [one.report for one in ended if one.report is not None]
    if many:
        errors = [one.error for one in ended if one.error is not None]
        typer.echo(serialise(report_list(reports, errors), output), nl=False)
    elif reports:
        typer.echo(serialise(reports[0], output), nl=False)
