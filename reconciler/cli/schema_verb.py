"""`layoutctl schema`: JSON Schema of the documents, for editors and other tools."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    @app.command(rich_help_panel="Run")
    def schema(
        kind: Annotated[
            str | None,
            typer.Argument(
                metavar="KIND",
                help="TableLayoutPolicy, TableLayout or IcebergCatalog, or their short names; "
                "without it, one schema for all.",
                show_default=False,
            ),
        ] = None,
    ) -> None:
        """Print the JSON Schema of the documents; save it for editors to complete and check."""
        import json

        from reconciler.api.schema import editor_schema, editor_schema_of_all

        body = editor_schema_of_all() if kind is None else editor_schema(resolve_kind(kind))
        typer.echo(json.dumps(body, indent=2, ensure_ascii=False))


def resolve_kind(text: str) -> str:
    """Return a kind by its name, plural or short name, in any case."""
    from reconciler.api.schema import KINDS, crd
    from reconciler.errors import UserError

    names = {}
    for kind in KINDS:
        spec = crd(kind)["spec"]["names"]
        for name in (kind, spec["plural"], *spec["shortNames"]):
            names[name.lower()] = kind
    if text.lower() in names:
        return names[text.lower()]
    raise UserError(
        f'"{text}" is not a kind of document',
        do=f"name one of {', '.join(KINDS)}, or none for all",
    )
