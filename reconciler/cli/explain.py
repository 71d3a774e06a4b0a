"""`layoutctl explain`: why a file is or is not rewritten, and what a query has to read and why.

Everything is gathered once, as the document that `-o json` prints (kind TableExplanation); the
text of `explain_text` is made from it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reconciler.api.version import API_VERSION
from reconciler.cli.options import (
    CatalogName,
    Files,
    Format,
    Output,
    ShowLiterals,
    Table,
    Timeout,
    Verbose,
)
from reconciler.format import printable

if TYPE_CHECKING:
    from reconciler.advisor.advice import Advice
    from reconciler.api.prices import Prices
    from reconciler.loop.local_actor import LocalActor
    from reconciler.loop.ports import Target
    from reconciler.loop.propose import Proposal
    from reconciler.table.filetable import FileTable

DataFile = Annotated[
    str | None,
    typer.Option("--data-file", metavar="PATH", help="A data file's path, or the end of it."),
]
Query = Annotated[
    str | None,
    typer.Option(
        "--query",
        metavar="SQL|SHAPE",
        help="A SELECT with its values, or a recorded shape: its id or a part of its text.",
    ),
]
Tree = Annotated[
    bool,
    typer.Option(
        "--tree",
        help="The trees of cuts that the plan would write, else those of the table.",
    ),
]
Dialect = Annotated[
    str,
    typer.Option("--dialect", help="SQL dialect of the SELECT: spark, trino, duckdb, ..."),
]


def explain(
    table: Table,
    data_file: DataFile = None,
    query: Query = None,
    tree: Tree = False,
    dialect: Dialect = "spark",
    file: Files = None,
    catalog: CatalogName = None,
    output: Format = Output.TABLE,
    show_literals: ShowLiterals = False,
    timeout: Timeout = 30.0,
    verbose: Verbose = False,
) -> None:
    """Say why a file is or is not rewritten, or what a query has to read and why."""
    from reconciler.cli.explain_query import is_sql
    from reconciler.cli.shared import actor_of
    from reconciler.cli.targets import select

    chosen = select(table, file or [], catalog, timeout=timeout)
    step, actor = chosen.steps[0], actor_of(chosen, timeout, False)
    proposal = step.propose(actor, refresh=True, show_literals=show_literals)
    seen = proposal.observation
    body = table_document(proposal)
    if data_file is not None:
        body["file"] = file_document(seen.files, proposal.advice, data_file)
    if query is not None and is_sql(query):
        body |= query_document(
            proposal, step.target, actor, query, dialect, show_literals=show_literals
        )
    elif query is not None:
        body["shapes"] = recorded_shapes(proposal, query, show_literals=show_literals)
    if tree:
        from reconciler.cli.explain_tree import not_cut, trees_document

        body["trees"] = trees_document(proposal, actor, show_literals=show_literals)
        body["notCut"] = not_cut(proposal)
    _print(body, output, show_literals=show_literals, verbose=verbose)


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel="Look")(explain)


def query_document(
    proposal: Proposal,
    target: Target,
    actor: LocalActor,
    sql: str,
    dialect: str,
    *,
    show_literals: bool = False,
) -> dict[str, Any]:
    """Return what a query reads and skips, per scan of the table, and the recorded shapes of it."""
    from reconciler.cli.explain_query import explain_sql

    seen = proposal.observation
    scans = explain_sql(target, seen, actor, sql, dialect, show_literals=show_literals)
    prices = target.catalog.prices
    known = {scan["shapeId"] for scan in scans}
    priced = [scan | _money(prices, scan["readBytes"], scan["filesRead"]) for scan in scans]
    return {"query": priced, "shapes": shapes_of(proposal, known)}


def _money(
    prices: Prices | None, size: float, openings: float, after: tuple[float, float] | None = None
) -> dict[str, Any]:
    """Return what a reading costs in money, and with `after` (bytes, openings) also that after the
    plan; {} without prices."""
    from reconciler.plan.money import cost_of, reading

    if prices is None:
        return {}
    used = {"reading": reading(size, openings)}
    used |= {} if after is None else {"readingAfter": reading(*after)}
    amounts = {name: round(cost_of(prices, one), 9) for name, one in used.items()}
    return {"money": {"currency": prices.currency, **amounts}}


def _print(body: dict[str, Any], output: Output, *, show_literals: bool, verbose: bool) -> None:
    if output in (Output.JSON, Output.YAML):
        from reconciler.cli.serialise import serialise

        typer.echo(serialise(body, output), nl=False)
    elif output is Output.NAME:
        typer.echo(printable(body["table"]))
    else:
        from reconciler.render.explain_text import render
        from reconciler.render.terminal import UNLIMITED, width

        columns = UNLIMITED if output is Output.WIDE else width()
        typer.echo(render(body, columns, show_literals=show_literals, verbose=verbose))


def table_document(proposal: Proposal) -> dict[str, Any]:
    """Return the head of every explanation: each candidate with its numbers, chosen or rejected."""
    from reconciler.advisor.deletes.mode_document import modes_document
    from reconciler.cli.plan_lines import money_of

    seen = proposal.observation
    return {
        "apiVersion": API_VERSION,
        "kind": "TableExplanation",
        "table": seen.name,
        "planId": proposal.plan.id,
        "dataFiles": len(seen.files),
        "openBytes": proposal.settings.open_bytes,
        "openings": proposal.settings.openings,
        "openedMs": proposal.settings.opened_ms,
        "rates": (proposal.plan.evidence.get("workload") or {}).get("rates") or {},
        "writeModes": modes_document(proposal.advice.modes, proposal.advice.notes) or None,
        **candidates(seen.files, proposal.advice),
        **money_of(proposal),
    }


def candidates(files: FileTable, advice: Advice) -> dict[str, Any]:
    """Return the candidates. Costs and savings are bytes of reading over the horizon, None if
    unknown."""
    from reconciler.loop.evidence import rejected_documents

    return {
        "chosen": [
            {
                "label": item.predicted.label,
                "type": item.action.kind,
                "files": item.predicted.files_in or 0,
                "costBytes": _bytes(item.predicted.cost),
                "savingBytes": _bytes(item.predicted.saving),
                "savingLowBytes": _bytes(item.predicted.saving_low),
                "estimate": item.predicted.estimate or "none",
                "message": item.predicted.reason,
            }
            for item in advice.actions
        ],
        "considered": [
            {
                "title": item["what"],
                "partition": item["partition"] or None,
                "reason": item["reason"],
                "message": item["why"],
                "files": item["files"],
                "bytes": item["bytes"],
                **({"parts": item["parts"]} if "parts" in item else {}),
            }
            for item in rejected_documents(advice, files)
        ],
    }


def _bytes(value: int | None) -> int | None:
    """Return 0 for a change of metadata, and None for what could not be estimated."""
    from reconciler.plan.prediction import UNKNOWN

    return None if value == UNKNOWN else value or 0


def file_document(files: FileTable, advice: Advice, wanted: str) -> dict[str, Any]:
    """Return one data file: its size and deletes, and the decision about it."""
    from reconciler.errors import UserError
    from reconciler.format import plural

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
    return {
        "path": path,
        "bytes": int(files.bytes[row]),
        "rows": int(files.records[row]),
        "sequenceNumber": int(files.sequence[row]),
        "deleteFiles": int(files.delete_files[row]),
        "decision": _decision(advice, path),
    }


def _decision(advice: Advice, path: str) -> dict[str, Any]:
    """Return the decision about a file; without reasons, nothing proposes to rewrite it."""

    for item in advice.actions:
        if path in item.action.inputs:
            return {
                "rewritten": True,
                "action": item.predicted.label,
                "type": item.action.kind,
                "files": item.predicted.files_in or 0,
                "message": item.predicted.reason,
            }
    return {
        "rewritten": False,
        "reasons": [
            {"title": str(item.what), "reason": item.reason, "message": str(item.why)}
            for item in advice.rejected
            if path in item.inputs
        ],
    }


def shapes_of(proposal: Proposal, known: Collection[str]) -> list[dict[str, Any]]:
    """Return the recorded shapes among those, by their ids."""
    shapes = proposal.plan.evidence.get("shapes", [])
    prices = proposal.target.catalog.prices
    return [shape_document(shape, prices) for shape in shapes if shape["shapeId"] in known]


def recorded_shapes(
    proposal: Proposal, wanted: str, *, show_literals: bool
) -> list[dict[str, Any]]:
    """Return shapes by id or by a part of their text, each with what its median query opens, and
    why."""
    from reconciler.cli.explain_query import median_query

    seen = proposal.observation
    batches = {batch.shape_id: batch for batch in proposal.queries.workload.shapes}
    found = matching_shapes(proposal.plan.evidence.get("shapes", []), wanted, seen.name)
    return [
        shape_document(shape, proposal.target.catalog.prices)
        | {"medianQuery": median_query(seen, batches[shape["shapeId"]], show_literals)}
        for shape in found
    ]


def matching_shapes(
    shapes: Sequence[Mapping[str, Any]], wanted: str, name: str
) -> list[Mapping[str, Any]]:
    """Return the matching shapes of a plan's evidence. Raises UserError if none matches."""
    from reconciler.errors import UserError
    from reconciler.render.terminal import clip, width

    found = [s for s in shapes if s["shapeId"].startswith(wanted) or wanted in s["text"]]
    if found:
        return found
    from reconciler.render.explain_text import MOST

    listed = tuple(f"{s['shapeId'][:8]}  {clip(s['text'], width() - 12)}" for s in shapes[:MOST])
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


def shape_document(shape: Mapping[str, Any], prices: Prices | None = None) -> dict[str, Any]:
    """Return what one query of the shape reads on average, now and after the plan; with prices also
    what all of its recorded queries cost."""
    queries = max(1, shape["queries"])
    now, after = (
        (shape[f"bytes{when}"], shape[f"files{when}Milli"] / 1000 * shape["queries"])
        for when in ("Now", "After")
    )
    return {
        "shapeId": shape["shapeId"],
        "text": shape["text"],
        "queries": shape["queries"],
        "bytesPerQuery": round(shape["bytesNow"] / queries),
        "bytesPerQueryAfter": round(shape["bytesAfter"] / queries),
        "filesPerQuery": shape["filesNowMilli"] / 1000,
        "filesPerQueryAfter": shape["filesAfterMilli"] / 1000,
        "worse": shape["worse"],
        **_money(prices, *now, after),
    }
