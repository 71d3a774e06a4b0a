"""`layoutctl report`: a table's layout, queries and rewrites, or a fleet's tables, as an HTML page.

Reads what `plan` reads (of a fleet, what `top` reads) and the ledger; writes one self-contained
file and nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reconciler.cli.options import CatalogName, Files, Quiet, Shared, ShowLiterals, Timeout

if TYPE_CHECKING:
    from reconciler.loop.local_actor import LocalActor
    from reconciler.loop.propose import Proposal
    from reconciler.loop.step import Step
    from reconciler.plan.ledger import LedgerEntry
    from reconciler.render.report_gather import Sources
    from reconciler.table.cut_tree import Tree
    from reconciler.table.filetable import FileTable
    from reconciler.table.sample import RowSample

Target = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAMESPACE|TABLE]",
        help="catalog.namespace.table, or a namespace.",
        show_default=False,
    ),
]
Every = Annotated[bool, typer.Option("--all", help="Report on every table of the catalog.")]
Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write the page.")]


def report(
    target: Target = None,
    every: Every = False,
    out: Out = Path("layout-report.html"),
    file: Files = None,
    catalog: CatalogName = None,
    shared: Shared = False,
    show_literals: ShowLiterals = False,
    timeout: Timeout = 30.0,
    quiet: Quiet = False,
) -> None:
    """Write an HTML page: a table's layout, queries and effect, or a fleet's worst tables."""
    from reconciler.catalog.discover import resolve_levels
    from reconciler.catalog.load import connect
    from reconciler.cli.fleet import Asked, look_at_fleet
    from reconciler.cli.many_tables import is_namespace, namespaces_of
    from reconciler.cli.shared import actor_of, catalogs_under
    from reconciler.cli.targets import select
    from reconciler.errors import ReconcilerError, UserError
    from reconciler.render.fleet_html import render_fleet

    if (target is None) is not every:
        raise UserError(
            "name a table or a namespace, or give --all for the whole catalog",
            do="layoutctl report --all",
        )
    documents = catalogs_under(file)
    config, levels = resolve_levels(target, catalog, documents)
    asked = Asked(config, levels, documents, timeout, shared)
    connection = connect(config, timeout)
    failed: list[ReconcilerError] = []
    spaces = namespaces_of(connection, config, timeout)
    if every or is_namespace(connection, config, levels, spaces, timeout):
        fleet, failed = look_at_fleet(asked, connection, spaces, deep=True, quiet=quiet)
        _write(out, render_fleet(fleet))
    else:
        chosen = select(target, file or [], catalog, timeout=timeout)
        actor = actor_of(chosen, timeout, shared)
        _write(out, _page_of_table(chosen.steps[0], actor, show_literals))
    typer.echo(str(out))
    if failed:
        raise typer.Exit(max(error.exit_code for error in failed))


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel="Look")(report)


def _page_of_table(step: Step, actor: LocalActor, show_literals: bool) -> str:
    from reconciler.render.html import render_html
    from reconciler.render.report_gather import gather

    proposal = step.propose(actor, show_literals=show_literals)
    now_ms = int(step.clock().timestamp() * 1000)
    return render_html(gather(_sources(proposal, actor, now_ms, show_literals)))


def _write(path: Path, page: str) -> None:
    from reconciler.errors import UserError

    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror}", do="name a file in a directory you can write"
        ) from error


def _sources(proposal: Proposal, actor: LocalActor, now_ms: int, show_literals: bool) -> Sources:
    from reconciler.cli.explain_tree import executed_plans, planned_or_written
    from reconciler.render.report_gather import Sources

    history = proposal.history
    plans = executed_plans(history.entries, actor)
    tree = planned_or_written(proposal, plans)
    return Sources(
        observation=proposal.observation,
        workload=proposal.queries.workload,
        advice=proposal.advice,
        settings=proposal.settings,
        plan=proposal.plan.document(),
        entries=history.entries,
        checks=history.checks,
        executed={plan.id: plan.document() for plan in plans},
        old_files=tuple(_old_files(history.entries, actor)),
        now_ms=now_ms,
        credits=history.credits,
        show_literals=show_literals,
        prices=proposal.target.catalog.prices,
        tree=tree,
        sample=None if tree is None else _sample(proposal, actor, tree),
    )


def _sample(proposal: Proposal, actor: LocalActor, tree: Tree) -> RowSample | None:
    """Return the rows of stored sketches; None if no file has a column that the tree cuts."""
    from reconciler.state.sketch import stored_rows

    seen = proposal.observation
    if any(field not in seen.files.columns for field in tree.cut_columns):
        return None
    return stored_rows(actor.sketched_files(proposal.target, seen), tree.cut_columns)


def _old_files(entries: tuple[LedgerEntry, ...], actor: LocalActor) -> list[FileTable]:
    """Return the inputs of committed actions as they were before."""
    done = dict.fromkeys((e.plan_id, e.outcome.action_id) for e in entries if e.committed)
    found = (actor.store.old_zone_maps(plan_id, action_id) for plan_id, action_id in done)
    return [files for files in found if files is not None]
