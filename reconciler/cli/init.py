"""`layoutctl init TABLE`: a commented policy to start from, on standard output."""

from __future__ import annotations

import typer

from reconciler.cli.options import CatalogName, Table, Timeout


def register(app: typer.Typer) -> None:
    @app.command(rich_help_panel="Decide")
    def init(
        table: Table,
        catalog: CatalogName = None,
        timeout: Timeout = 30.0,
    ) -> None:
        """Print a commented policy for a table, with a schema line for editors."""
        from reconciler.api.template import policy_template
        from reconciler.catalog.discover import resolve_table
        from reconciler.catalog.load import connect, load_table

        config, identifier = resolve_table(table, catalog)
        load_table(connect(config, timeout), config, identifier, timeout)
        typer.echo(policy_template(identifier, config.name), nl=False)
