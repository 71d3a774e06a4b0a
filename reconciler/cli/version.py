"""`layoutctl version`: versions of layoutctl and its libraries, without starting a JVM."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    @app.command(rich_help_panel="Run")
    def version() -> None:
        """Print the versions of layoutctl and of the libraries it works with."""
        from importlib.metadata import PackageNotFoundError
        from importlib.metadata import version as installed

        from reconciler import __version__

        typer.echo(f"layoutctl {__version__}")
        for name in ("pyiceberg", "pyarrow", "duckdb", "pyspark", "sqlglot"):
            try:
                typer.echo(f"{name} {installed(name)}")
            except PackageNotFoundError:
                typer.echo(f"{name} - (not installed)")
