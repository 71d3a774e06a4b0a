"""`layoutctl catalogs`: the configured catalogs, and where each was found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from reconciler.api.version import API_VERSION
from reconciler.cli.options import Files, Format, Output, Timeout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.catalog.discover import FoundCatalog


def register(app: typer.Typer) -> None:
    @app.command(rich_help_panel="Look")
    def catalogs(
        file: Files = None, output: Format = Output.TABLE, timeout: Timeout = 10.0
    ) -> None:
        """List the catalogs that can be used. With -o wide each is asked for its tables."""
        from reconciler.api.load import load
        from reconciler.catalog.discover import HOW_TO_CONFIGURE, SOURCES, find_catalogs
        from reconciler.cli.serialise import serialise
        from reconciler.errors import UserError

        found = find_catalogs(load(file).catalogs if file else ())
        if not found:
            raise UserError("no catalog is configured", details=(SOURCES,), do=HOW_TO_CONFIGURE)
        rows = [_row(item, timeout if output is Output.WIDE else None) for item in found]
        if output is Output.NAME:
            typer.echo("\n".join(item.config.name for item in found))
        elif output in (Output.JSON, Output.YAML):
            body = {"apiVersion": API_VERSION, "kind": "CatalogList", "items": rows}
            typer.echo(serialise(body, output), nl=False)
        else:
            typer.echo(_table(rows, markdown=output is Output.MARKDOWN))


def _row(item: FoundCatalog, timeout: float | None) -> dict[str, Any]:
    """Return one catalog without secrets. timeout: seconds for its list of tables, None = do not
    ask."""
    from reconciler.catalog.load import address

    row: dict[str, Any] = {
        "name": item.config.name,
        "type": item.config.type,
        "source": item.config.source,
        "address": address(item.config),
        "supported": item.supported,
    }
    if timeout is not None:
        row["tables"] = _tables(item, timeout)
    return row


def _tables(item: FoundCatalog, timeout: float) -> str:
    from reconciler.catalog.load import connect, list_namespaces, list_tables
    from reconciler.errors import ReconcilerError
    from reconciler.format import plural

    if not item.supported:
        return "type not supported"
    try:
        connection = connect(item.config, timeout)
        namespaces = list_namespaces(connection, item.config, timeout)
        number = sum(
            len(list_tables(connection, item.config, tuple(levels), timeout))
            for levels in namespaces
        )
    except ReconcilerError as error:
        return error.what
    return f"{number:,} in {plural(len(namespaces), 'namespace')}"


def _table(rows: Sequence[dict[str, Any]], *, markdown: bool) -> str:
    from reconciler.render import terminal

    head = ["NAME", "TYPE", "FROM", "ADDRESS"]
    cells = [
        [
            row["name"],
            row["type"] if row["supported"] else f"{row['type']} (not supported)",
            row["source"],
            row["address"] or "-",
        ]
        for row in rows
    ]
    if any("tables" in row for row in rows):
        head.append("TABLES")
        cells = [[*line, row["tables"]] for line, row in zip(cells, rows, strict=True)]
    if markdown:
        lines = [head, ["---"] * len(head), *cells]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join(terminal.align([head, *cells], "l" * len(head)))
