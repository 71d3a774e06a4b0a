"""`layoutctl explain`: why a file is or is not rewritten, and what a query has to read and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reconciler.cli.options import CatalogName, ShowLiterals, Timeout, Verbose

if TYPE_CHECKING:
    from reconciler.advisor.advice import Advice
    from reconciler.core.filetable import FileTable

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
            typer.Option(
                "--query",
                metavar="SQL|SHAPE",
                help="A SELECT with its values, or a recorded shape: its id or a part of its text.",
            ),
        ] = None,
        dialect: Annotated[
            str, typer.Option("--dialect", help="Of the SELECT: spark, trino, duckdb, ...")
        ] = "spark",
        documents: Annotated[
            list[str] | None,
            typer.Option("-f", "--documents", metavar="PATH", help="Documents with the policy."),
        ] = None,
        catalog: CatalogName = None,
        show_literals: ShowLiterals = False,
        timeout: Timeout = 30.0,
        verbose: Verbose = False,
    ) -> None:
        """Say why a file is or is not rewritten, or what a query has to read and why."""
        from reconciler.cli.explain_query import explain_sql, is_sql
        from reconciler.cli.plan import local_actor
        from reconciler.cli.targets import select
        from reconciler.cli.terminal import width

        step = select(table, documents or [], catalog, timeout=timeout).steps[0]
        actor = local_actor(timeout)
        proposal = step.propose(actor, refresh=True, show_literals=show_literals)
        files, shapes = proposal.observation.files, proposal.plan.evidence.get("shapes", [])
        if data_file is not None:
            typer.echo(explain_file(files, proposal.advice, data_file, width()))
        if query is not None and is_sql(query):
            text, known = explain_sql(
                step.target, proposal.observation, actor, query, dialect,
                show_literals=show_literals, verbose=verbose, width=width(),
            )  # fmt: skip
            typer.echo(text)
            recorded = [shape for shape in shapes if shape["shapeId"] in known]
            if recorded:
                typer.echo("\nRECORDED, OF THIS SHAPE")
                typer.echo(render_shapes(recorded, len(files), width()))
        elif query is not None:
            typer.echo(explain_shape(shapes, len(files), query, proposal.observation.name, width()))
        if data_file is None and query is None:
            typer.echo(explain_table(proposal.observation.name, files, proposal.advice, width()))


def explain_table(name: str, files: FileTable, advice: Advice, width: int) -> str:
    """Every candidate with its numbers: what was chosen and what was turned down."""
    from reconciler.cli.terminal import tabulate, wrapped
    from reconciler.core.considered import told_together
    from reconciler.core.format import count, iec
    from reconciler.loop.evidence import action_label, rejected_documents

    lines = [*wrapped(name, width), ""]
    if advice.actions:
        rows = [["CHOSEN", "FILES", "COST", "SAVES", "AT LEAST", "ESTIMATE"]]
        for item in advice.actions:
            rows.append([
                action_label(item, files), count(item.files_in), iec(item.cost), iec(item.saving),
                iec(item.saving_low), item.label,
            ])  # fmt: skip
        lines += [*tabulate(rows, "lrrrrl", width, indent="  "), ""]
    else:
        lines += ["Nothing is planned.", ""]
    if advice.rejected:
        entries = rejected_documents(advice, files)
        for entry in entries:
            entry["why"] = f"{entry['reason']}: {entry['why']}"
        refused = [list(line) for line in told_together(entries)]
        lines += [
            "CONSIDERED, NOT DONE",
            *tabulate(refused, "ll", width, indent="  ", least=36),
            "",
        ]
    unit = (
        "Cost and savings are over 7 days at the workload's own end, in bytes of reading; opening "
        "a file counts as reading 1 MiB."
    )
    return "\n".join([*lines, *wrapped(unit, width)])


def explain_file(files: FileTable, advice: Advice, wanted: str, width: int) -> str:
    """One data file: its size and deletes, and the decision about it."""
    from reconciler.cli.terminal import plural, wrapped
    from reconciler.core.format import iec
    from reconciler.errors import UserError

    found = [row for row, path in enumerate(files.path) if path.endswith(wanted)]
    if len(found) != 1:
        live = found or list(range(min(len(files), 3)))
        raise UserError(
            f"{plural(len(found), 'live data file')} {'ends' if len(found) == 1 else 'end'} "
            f'in "{wanted}"',
            details=tuple(str(files.path[row]) for row in live[:5]),
            do="give the end of one path, or all of it; `plan TABLE -o json` lists inputs",
        )
    row = found[0]
    path = str(files.path[row])
    facts = ", ".join([
        iec(int(files.bytes[row])),
        plural(int(files.records[row]), "row"),
        f"sequence number {int(files.sequence[row])}",
        f"{plural(int(files.delete_files[row]), 'delete file')} on it",
    ])  # fmt: skip
    texts = [facts, *_decision(files, advice, path)]
    told = [line for text in texts for line in wrapped(text, width, first="  ", indent="    ")]
    return "\n".join([*wrapped(path, width), *told])


def _decision(files: FileTable, advice: Advice, path: str) -> list[str]:
    from reconciler.cli.terminal import plural
    from reconciler.loop.evidence import action_label

    for item in advice.actions:
        if path in item.action.inputs:
            others = plural(item.files_in - 1, "other")
            return [f"rewritten: {action_label(item, files)} with {others}; {item.reason}"]
    why = [item for item in advice.rejected if path in item.inputs]
    if why:
        return [f"not rewritten: {item.title}: {item.message}" for item in why]
    return [
        "not rewritten: no decision proposes it; it is not small, not out of its key's order, "
        "and no recorded query reads it only in part"
    ]


def explain_shape(
    shapes: Sequence[Mapping[str, Any]], files: int, wanted: str, name: str, width: int
) -> str:
    """Recorded shapes by id or by a part of their text. Raises UserError when none matches."""
    from reconciler.cli.terminal import clip
    from reconciler.errors import UserError

    found = [s for s in shapes if s["shapeId"].startswith(wanted) or wanted in s["text"]]
    if found:
        return render_shapes(found, files, width)
    listed = tuple(f"{s['shapeId'][:8]}  {clip(s['text'], width - 12)}" for s in shapes[:MOST])
    raise UserError(
        f'no recorded shape matches "{wanted}"',
        details=listed or ("No queries are known for this table.",),
        do=(
            "name one of these, or write the query: "
            if listed
            else "import a log with `layoutctl workload import`, or write the query: "
        )
        + f'--query "SELECT ... FROM {name} WHERE ..."',
    )


def render_shapes(shapes: Sequence[Mapping[str, Any]], files: int, width: int) -> str:
    """What each shape reads now, and what the plan changes."""
    from reconciler.cli.terminal import plural, wrapped
    from reconciler.core.format import iec

    lines: list[str] = []
    for shape in shapes[:MOST]:
        queries = max(1, shape["queries"])
        texts = [
            f"{plural(shape['queries'], 'query', 'queries')}, {iec(shape['bytesNow'] / queries)} "
            f"each now, {iec(shape['bytesAfter'] / queries)} after the plan",
            f"{shape['filesNowMilli'] / 1000:,.1f} of {plural(files, 'file')} each now, "
            f"{shape['filesAfterMilli'] / 1000:,.1f} after",
            "the plan makes it slower" if shape["worse"] else "",
        ]
        lines += wrapped(shape["text"], width, indent="    ")
        for text in texts:
            lines += wrapped(text, width, first="  ", indent="    ") if text else []
    if len(shapes) > MOST:
        lines.append(f"{plural(len(shapes) - MOST, 'more shape')}: name it by more of its text")
    return "\n".join(lines)
