"""`layoutctl validate`: reports every problem of a set of documents at once, before anything
runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reconciler.api.version import API_VERSION

if TYPE_CHECKING:
    from reconciler.api.load import Reading
    from reconciler.errors import Problem

DEFAULT_DIRECTORY = "layouts"


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def register(app: typer.Typer) -> None:
    @app.command(rich_help_panel="Decide")
    def validate(
        paths: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="PATH",
                help="Files or directories of documents, - for standard input. "
                f"Default: {DEFAULT_DIRECTORY}/ if it exists.",
                show_default=False,
            ),
        ] = None,
        file: Annotated[
            list[str] | None,
            typer.Option("-f", "--file", metavar="PATH", help="Same as PATH, as for other verbs."),
        ] = None,
        output: Annotated[
            Output, typer.Option("-o", "--output", help="Output format.")
        ] = Output.TABLE,
    ) -> None:
        """Check documents: every problem at once, with file, line and what is allowed."""
        from reconciler.api.load import invalid, read

        reading = read(_targets([*(paths or []), *(file or [])]))
        reading.problems.extend(_unknown_catalogs(reading))
        if output is Output.TABLE:
            _print_warnings(reading)
            if reading.errors:
                raise invalid(reading)
            typer.echo(summary(reading))
            return
        typer.echo(_serialised(result(reading), output), nl=False)
        if reading.errors:
            from reconciler.errors import EXIT_USER

            raise typer.Exit(EXIT_USER)


def _targets(given: list[str]) -> list[str]:
    from reconciler.errors import UserError

    if given:
        return given
    if Path(DEFAULT_DIRECTORY).is_dir():
        return [DEFAULT_DIRECTORY]
    raise UserError(
        f"no documents named, and there is no directory {DEFAULT_DIRECTORY}/ here",
        do="layoutctl validate PATH...",
    )


def _unknown_catalogs(reading: Reading) -> list[Problem]:
    """Return a warning for each policy whose catalog is not among those configured here.

    Nothing is said where documents define catalogs, which are checked against each other, nor where
    none is configured, as in many a CI job.
    """
    from reconciler.catalog.discover import names_for, unknown_catalogs
    from reconciler.errors import Problem

    configured = names_for(())
    if reading.documents.catalogs or not configured:
        return []
    return [
        Problem(
            policy.origin.file,
            policy.origin.line,
            0,
            "spec.catalogRef.name",
            f'catalog "{policy.spec.catalog.name}" is not known here: the policy governs no table',
            f"configured: {', '.join(configured)}",
            "warning",
        )
        for policy in unknown_catalogs(reading.documents.policies, ())
    ]


def _print_warnings(reading: Reading) -> None:
    from reconciler.api.excerpt import render_problems

    warnings = [problem for problem in reading.problems if problem.severity != "error"]
    if warnings:
        typer.echo(render_problems(warnings, reading.sources), err=True)


def summary(reading: Reading) -> str:
    """Return one line with counts."""
    documents = reading.documents
    counts = [
        _count(len(documents.policies), "policy", "policies"),
        _count(len(documents.catalogs), "catalog", "catalogs"),
        _count(len(documents.table_layouts), "table layout", "table layouts"),
    ]
    files = _count(reading.files, "file", "files")
    line = f"{', '.join(part for part in counts if part)} valid in {files}"
    notes = [
        _count(len(reading.problems) - len(reading.errors), "warning", "warnings"),
        f"{reading.skipped} of other kinds skipped" if reading.skipped else "",
    ]
    return "; ".join([line, *(note for note in notes if note)])


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}" if number else ""


def result(reading: Reading) -> dict[str, Any]:
    """Return the machine-readable result, kind ValidationResult."""
    documents = [
        {
            "kind": type(document).__name__,
            "namespace": document.namespace,
            "name": document.name,
            "file": document.origin.file,
            "line": document.origin.line,
        }
        for document in reading.documents.all
    ]
    problems = [
        {
            "severity": problem.severity,
            "file": problem.file,
            "line": problem.line or None,
            "column": problem.column or None,
            "field": problem.field,
            "message": problem.message,
            "hint": problem.hint,
        }
        for problem in reading.problems
    ]
    return {
        "apiVersion": API_VERSION,
        "kind": "ValidationResult",
        "valid": not reading.errors,
        "files": reading.files,
        "skipped": reading.skipped,
        "documents": documents,
        "problems": problems,
    }


def _serialised(body: dict[str, Any], output: Output) -> str:
    if output is Output.JSON:
        import json

        return json.dumps(body, indent=2, ensure_ascii=False) + "\n"
    import yaml

    return yaml.safe_dump(body, sort_keys=False, allow_unicode=True)
