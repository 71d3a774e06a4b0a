"""`layoutctl undo TABLE [PLAN]`: a plan that takes another plan back, to be approved as any plan.

It is a rollback if nothing else was committed since and the older files are there; otherwise the
plan's files are laid out again as they were before, where that order is known. Like `plan`, it
writes nothing; `--out` and `--publish` freeze the plan.
"""

from __future__ import annotations

from typing import Annotated

import typer

from reconciler.cli.approve import PLAN_ID
from reconciler.cli.options import (
    CatalogName,
    Engine,
    Files,
    Format,
    Output,
    PlanFile,
    Publish,
    Shared,
    Table,
    Timeout,
    Verbose,
)

Plan = Annotated[
    str | None,
    typer.Argument(
        metavar="[PLAN]", help="The plan's id; the last one without.", show_default=False
    ),
]


def undo(
    table: Table,
    plan: Plan = None,
    file: Files = None,
    out: PlanFile = None,
    publish: Publish = False,
    shared: Shared = False,
    catalog: CatalogName = None,
    output: Format = Output.TABLE,
    engine: Engine = None,
    timeout: Timeout = 30.0,
    verbose: Verbose = False,
) -> None:
    """Make the plan that takes a plan back: by a rollback, or by a rewrite."""
    from reconciler.cli import plan as plans
    from reconciler.cli.following import given
    from reconciler.cli.shared import actor_of
    from reconciler.cli.targets import select
    from reconciler.errors import UserError
    from reconciler.loop.undo import propose_undo

    if plan is not None and not PLAN_ID.fullmatch(plan):
        raise UserError(f'"{plan}" is not the id of a plan', do=f"layoutctl history {table}")
    chosen = select(table, file or [], catalog, timeout=timeout)
    (step,) = chosen.steps
    actor = actor_of(chosen, timeout, shared)
    actor.engine = engine
    planned = [plans.governed(step, actor, propose_undo(step.wanted(), actor, step.clock(), plan))]
    if out is not None:
        plans.save(out, actor, planned[0][1].plan)
    uris = plans.published(chosen, actor, planned, timeout) if publish else {}
    shown = plans.Shown(
        output, True, verbose, out, uris, given(file, catalog, shared), None,
        plans.engines_of(planned, actor),
    )  # fmt: skip
    plans.show(planned, [], shown)


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel="Act")(undo)
