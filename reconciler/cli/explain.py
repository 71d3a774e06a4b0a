"""`layoutctl explain`: why a file is or is not rewritten, and what a query has to read and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from reconciler.cli.options import CatalogName, ShowLiterals, Timeout

if TYPE_CHECKING:
    from reconciler.loop.propose import Proposal

MOST = 12


def register(app: typer.Typer) -> None:
    @app.command(rich_help_panel="Look")
    def explain(
        table: Annotated[str, typer.Argument(metavar="TABLE", help="catalog.namespace.table")],
        data_file: Annotated[
            str | None,
            typer.Option("--file", metavar="PATH", help="A data file's path, or the end of it."),
        ] = None,
        query: Annotated[
            str | None,
            typer.Option("--query", metavar="SHAPE", help="A shape's id, or a part of its text."),
        ] = None,
        documents: Annotated[
            list[str] | None,
            typer.Option("-f", "--documents", metavar="PATH", help="Documents with the policy."),
        ] = None,
        catalog: CatalogName = None,
        show_literals: ShowLiterals = False,
        timeout: Timeout = 30.0,
    ) -> None:
        """Say why a file is or is not rewritten, or what a query shape has to read and why."""
        from reconciler.cli.plan import local_actor
        from reconciler.cli.targets import select

        step = select(table, documents or [], catalog, timeout=timeout).steps[0]
        proposal = step.propose(local_actor(timeout), refresh=True, show_literals=show_literals)
        if data_file is not None:
            typer.echo(explain_file(proposal, data_file))
        if query is not None:
            typer.echo(explain_query(proposal, query))
        if data_file is None and query is None:
            typer.echo(explain_table(proposal))


def explain_table(proposal: Proposal) -> str:
    """Every candidate with its numbers: what was chosen and what was turned down."""
    from reconciler.cli.plan_text import align, wrap_last
    from reconciler.core.format import iec
    from reconciler.loop.evidence import action_label

    advice, files = proposal.advice, proposal.observation.files
    lines = [proposal.observation.name, ""]
    if advice.actions:
        rows = [["CHOSEN", "FILES", "COST", "SAVES", "AT LEAST", "ESTIMATE"]]
        for item in advice.actions:
            rows.append([
                action_label(item, files), str(item.files_in), iec(item.cost), iec(item.saving),
                iec(item.saving_low), item.label,
            ])  # fmt: skip
        lines += [*align(rows, "lrrrrl", indent="  "), ""]
    else:
        lines += ["Nothing is planned.", ""]
    if advice.rejected:
        lines.append("CONSIDERED, NOT DONE")
        lines += wrap_last([
            [f"  {item.title}", f"{item.reason}: {item.message}"] for item in advice.rejected
        ])  # fmt: skip
    lines.append("cost and savings over 7 days at the workload's own end, in bytes of reading;")
    lines.append("opening a file counts as reading 1 MiB")
    return "\n".join(lines)


def explain_file(proposal: Proposal, wanted: str) -> str:
    """One data file: its zone map, what the queries need of it, and the decision about it."""
    from reconciler.core.format import count, iec
    from reconciler.errors import UserError

    files = proposal.observation.files
    found = [row for row, path in enumerate(files.path) if path.endswith(wanted)]
    if len(found) != 1:
        raise UserError(
            f'{len(found)} live data files end in "{wanted}"',
            details=tuple(str(files.path[row]) for row in found[:5]),
            do="give the whole path; `layoutctl plan TABLE -o json` lists inputs",
        )
    row = found[0]
    path = str(files.path[row])
    lines = [
        path,
        f"  {iec(int(files.bytes[row]))}, {count(int(files.records[row]))} rows, "
        f"sequence number {int(files.sequence[row])}, "
        f"{int(files.delete_files[row])} delete files apply",
    ]
    lines += _decision(proposal, path)
    return "\n".join(lines)


def _decision(proposal: Proposal, path: str) -> list[str]:
    from reconciler.loop.evidence import action_label

    files = proposal.observation.files
    for item in proposal.advice.actions:
        if path in item.action.inputs:
            label = action_label(item, files)
            return [f"  rewritten: {label} with {item.files_in - 1} others; {item.reason}"]
    why = [item for item in proposal.advice.rejected if path in item.inputs]
    if why:
        return [f"  not rewritten: {item.title}: {item.message}" for item in why]
    return [
        "  not rewritten: no decision proposes it; it is not small, not out of its key's order,",
        "  and no recorded query reads it only in part",
    ]


def explain_query(proposal: Proposal, wanted: str) -> str:
    """One shape: what it reads now, what it needs, and what the plan changes."""
    from reconciler.core.format import count, iec
    from reconciler.errors import UserError

    shapes = proposal.plan.evidence.get("shapes", [])
    found = [s for s in shapes if s["shapeId"].startswith(wanted) or wanted in s["text"]]
    if not found:
        raise UserError(
            f'no recorded shape matches "{wanted}"',
            details=tuple(f"{s['shapeId'][:8]}  {s['text']}" for s in shapes[:MOST]),
            do="name one of these by id or by a part of its text",
        )
    blocks = []
    for shape in found[:MOST]:
        queries = max(1, shape["queries"])
        blocks.append(
            f"{shape['text']}\n"
            f"  {count(shape['queries'])} queries, {iec(shape['bytesNow'] / queries)} each now, "
            f"{iec(shape['bytesAfter'] / queries)} after the plan\n"
            f"  {shape['filesNowMilli'] / 1000:,.1f} of {len(proposal.observation.files):,} files "
            f"each now, {shape['filesAfterMilli'] / 1000:,.1f} after"
            + ("\n  the plan makes it slower" if shape["worse"] else "")
        )
    return "\n".join(blocks)
