"""`layoutctl top`: the tables of a namespace or catalog, by how much they waste."""

from __future__ import annotations

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
from reconciler.format import printable

if TYPE_CHECKING:
    from reconciler.render.fleet_model import Fleet


def register(app: typer.Typer) -> None:
    @app.command(rich_help_panel="Look")
    def top(
        namespace: Annotated[
            str | None,
            typer.Argument(
                metavar="[NAMESPACE]",
                help="catalog.namespace. Default: every table.",
                show_default=False,
            ),
        ] = None,
        most: Annotated[
            int,
            typer.Option("-n", "--most", metavar="NUMBER", min=1, help="Tables to show at most."),
        ] = 20,
        file: Files = None,
        catalog: CatalogName = None,
        output: Format = Output.TABLE,
        select: Select = None,
        exclude: Exclude = None,
        shared: Shared = False,
        timeout: Timeout = 30.0,
        quiet: Quiet = False,
    ) -> None:
        """Rank tables by what they waste: bytes read and files opened for nothing, per day."""
        from reconciler.catalog.discover import resolve_levels
        from reconciler.catalog.load import connect
        from reconciler.cli.fleet import Asked, look_at_fleet
        from reconciler.cli.many_tables import namespaces_of
        from reconciler.cli.shared import catalogs_under

        documents = catalogs_under(file)
        config, levels = resolve_levels(namespace, catalog, documents)
        asked = Asked(
            config, levels, documents, timeout, shared, tuple(select or ()), tuple(exclude or ())
        )
        connection = connect(config, timeout)
        spaces = namespaces_of(connection, config, timeout)
        fleet, failed = look_at_fleet(asked, connection, spaces, deep=False, quiet=quiet)
        typer.echo(_text(fleet, most, output), nl=False)
        if failed:
            raise typer.Exit(max(error.exit_code for error in failed))


def _text(fleet: Fleet, most: int, output: Output) -> str:
    from reconciler.cli.serialise import serialise
    from reconciler.render import fleet_text
    from reconciler.render.terminal import UNLIMITED, width

    if output is Output.NAME:
        return "".join(f"{printable(table.name)}\n" for table in fleet.wasting[:most])
    if output in (Output.JSON, Output.YAML):
        body: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "FleetRanking"}
        return serialise({**body, **fleet_text.document(fleet, most)}, output)
    if output is Output.MARKDOWN:
        return fleet_text.markdown_top(fleet, most) + "\n"
    columns = UNLIMITED if output is Output.WIDE else width()
    return fleet_text.render_top(fleet, most, columns) + "\n"
