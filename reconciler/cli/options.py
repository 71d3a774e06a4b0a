"""Options that several verbs share, each with one spelling and one help text."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from reconciler.api.choices import EngineType


class Output(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    MARKDOWN = "markdown"
    NAME = "name"


def _engine(text: str) -> EngineType:
    for one in (EngineType.AUTO, EngineType.LOCAL, EngineType.SPARK):
        if text.lower() == one.value.lower():
            return one
    raise typer.BadParameter(f"{text} is not Auto, Local or Spark")


Table = Annotated[str, typer.Argument(metavar="TABLE", help="catalog.namespace.table")]
Files = Annotated[
    list[str] | None,
    typer.Option("-f", "--file", metavar="PATH", help="Documents: files or directories."),
]
CatalogName = Annotated[
    str | None, typer.Option("--catalog", metavar="NAME", help="Name of the configured catalog.")
]
Format = Annotated[Output, typer.Option("-o", "--output", help="Output format.")]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="SECONDS", min=0.1, help="Time limit for the catalog's answer."
    ),
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Show everything; shorten no list.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress on stderr.")]
Engine = Annotated[
    EngineType | None,
    typer.Option(
        "--engine",
        metavar="Auto|Local|Spark",
        help="Who carries the plan out: this machine without a JVM, or Spark.",
        show_default=False,
        parser=_engine,
    ),
]
PlanFile = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Save the frozen plan for `apply FILE`."),
]
Publish = Annotated[
    bool,
    typer.Option("--publish", help="Store the frozen plan in the catalog's plan store."),
]
Shared = Annotated[
    bool,
    typer.Option("--shared", help="Use the shared state in the catalog's own namespace."),
]
ShowLiterals = Annotated[
    bool, typer.Option("--show-literals", help="Show the values in queries, not only `?`.")
]
Select = Annotated[
    list[str] | None,
    typer.Option(
        "--select", metavar="PATTERN", help="Only tables that match; * within a level, ** across."
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="PATTERN", help="Leave out tables that match."),
]
