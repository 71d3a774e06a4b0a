"""Finds all problems of one document: of its structure, its rules and its offline checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from reconciler.api import rules
from reconciler.api.offline_checks import offline_findings
from reconciler.api.schema import structural_schema, with_defaults
from reconciler.api.source import Path, RawDocument, Unclear, document_of
from reconciler.api.structure import Finding, structural_findings
from reconciler.errors import Problem


def check(document: RawDocument, kind: str) -> list[Problem]:
    """Return every problem of one document of a known kind, in the order of the file."""
    found = list(findings(document, kind))
    placed = [
        document.problem(
            item.path, item.message, item.hint, at_key=item.at_key, severity=item.severity
        )
        for item in found
    ]
    return sorted(document.problems + placed, key=lambda p: (p.line, p.column))


def errors_of(body: Any, kind: str) -> list[Problem]:
    """Return what `check` refuses in a document that is a value, such as an object of the API
    server: by the rules that `validate` applies to files."""
    document, failure = document_of(body, kind)
    problems = [failure] if failure else check(document, kind)
    return [problem for problem in problems if problem.severity == "error"]


def findings(document: RawDocument, kind: str) -> Iterator[Finding]:
    """Yield findings of structure, rules and offline checks at once, of the parts that each can
    read."""
    body = document.value
    structure = list(structural_findings(document, kind))
    yield from structure
    if not isinstance(body, dict):
        return
    broken = _broken(structure, body)
    whole = with_defaults(body, structural_schema(kind))
    unsettled = [path for path in document.repeated if _is_scalar(document, path)]
    meant = {item.meant for item in structure if item.meant and not _given(body, item.meant)}
    for violation in rules.violations(kind, whole, [*broken, *unsettled], meant):
        yield Finding(violation.field, violation.rule.message, violation.rule.hint, at_key=True)

    def usable(path: Path) -> bool:
        return not any(path[: len(fault)] == fault for fault in broken)

    yield from offline_findings(kind, whole, usable)


def broken_paths(document: RawDocument, kind: str) -> list[Path]:
    """Return the paths of values that do not match the schema."""
    return _broken(structural_findings(document, kind), document.value)


def _broken(structure: Iterable[Finding], body: Any) -> list[Path]:
    return [*(item.path for item in structure if item.blocks), *_unclear(body)]


def _is_scalar(document: RawDocument, path: Path) -> bool:
    place = document.positions.get(path)
    return place is not None and place.text is not None


def _given(body: Any, path: Path) -> bool:
    for part in path[:-1]:
        body = body[part]  # the parents of a misspelt field do exist
    return body.get(path[-1]) is not None


def _unclear(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, Unclear):
        yield path
    elif isinstance(value, (dict, list)):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in pairs:
            yield from _unclear(item, (*path, key))
