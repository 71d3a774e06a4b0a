"""`layoutctl`: parses, calls, renders. Each verb lives in a module of its own with `register(app)`.

Modules of verbs import nothing heavy at module level, so that `--help` stays quick; errors meant
for people end here, as one message and a documented exit code, never as a traceback.
"""

from __future__ import annotations

import importlib
import sys

import typer

from reconciler.errors import ReconcilerError

VERBS = ("observe", "workload", "validate")


def build() -> typer.Typer:
    app = typer.Typer(
        name="layoutctl",
        help="Plan and keep the physical layout of Apache Iceberg tables.",
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    for verb in VERBS:
        importlib.import_module(f"reconciler.cli.{verb}").register(app)
    return app


def main() -> None:
    try:
        sys.exit(build()(standalone_mode=False) or 0)
    except ReconcilerError as error:
        sys.stderr.write(error.render() + "\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
