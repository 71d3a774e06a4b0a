"""`layoutctl demo`: the whole loop on generated data, in one directory, in a few minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    @app.command(rich_help_panel="Run")
    def demo(
        directory: Annotated[
            Path, typer.Option("--dir", metavar="DIR", help="Directory for all output.")
        ] = Path("layoutctl-demo"),
        quick: Annotated[
            bool, typer.Option("--quick", help="A twentieth of the data and no JVM: half a minute.")
        ] = False,
    ) -> None:
        """Run the whole loop on TPC-H data: observe, plan, apply, compare, again."""
        from reconciler.demo import choose, data, script

        data.generator()  # it is missing without the extra: said before anything is written
        place = data.prepare(directory)
        scale = data.QUICK if quick else data.FULL
        script.run(script.Demo(place, scale, typer.echo, *choose.team_of(place, quick)))
