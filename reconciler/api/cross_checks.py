"""Finds problems between documents: a name given twice, a table under two policies, a catalog that
no document defines.

It checks the readable parts, also of documents with other faults, so that one run reports
everything; a broken part is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from reconciler.api.documents import DEFAULT_NAMESPACE
from reconciler.api.schema import CATALOG, POLICY
from reconciler.api.source import Path, RawDocument, part_of
from reconciler.api.table_patterns import (
    covers,
    is_exact,
    matches,
    same_tables,
    split_identifier,
)
from reconciler.errors import Problem

TABLES: Path = ("spec", "tables")


@dataclass(frozen=True, slots=True)
class Sight:
    """The readable parts of one document that others may contradict."""

    document: RawDocument
    """The document as read, with the place of each value."""
    kind: str
    """The document's kind."""
    namespace: str
    """Its namespace."""
    name: str
    """Its name, "" if that cannot be read."""
    created: str = ""
    """RFC 3339 time at which the API server stored it, "" for a document from a file."""
    catalog: str = ""
    """Name of the catalog that it refers to, "" if that cannot be read."""
    include: tuple[tuple[int, str], ...] = ()
    """The table patterns that a policy includes, each with its place in the list."""
    exclude: tuple[str, ...] | None = ()
    """The table patterns that a policy excludes; None if it is not certain what it leaves out."""

    @property
    def place(self) -> str:
        return f"{self.document.file}:{self.document.line}"

    @property
    def precedence(self) -> tuple[object, ...]:
        """Order of policies that include a table alike: the older wins, then the first by name."""
        return (not self.created, self.created, self.name)


def sight(document: RawDocument, kind: str) -> Sight:
    """Return the readable parts; raises nothing, whatever the document holds."""
    body = document.value
    tables = part_of(body, TABLES)
    include, exclude = part_of(tables, ("include",)), part_of(tables, ("exclude",))
    numbered = enumerate(include if isinstance(include, list) else ())
    return Sight(
        document,
        kind,
        _text(part_of(body, ("metadata", "namespace"))) or DEFAULT_NAMESPACE,
        _text(part_of(body, ("metadata", "name"))),
        _text(part_of(body, ("metadata", "creationTimestamp"))),
        _text(part_of(body, ("spec", "catalogRef", "name"))),
        tuple((number, item) for number, item in numbered if _is_pattern(item)),
        _excluded(tables, exclude),
    )


def cross_checks(sights: Iterable[Sight]) -> list[Problem]:
    """Return the problems between documents, each at the document that must change."""
    seen = list(sights)
    policies = [item for item in seen if item.kind == POLICY and item.name and item.catalog]
    return [*_duplicates(seen), *_contested(policies), *_unresolved(seen)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _is_pattern(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(split_identifier(value))
    except ValueError:
        return False


def _excluded(tables: Any, exclude: Any) -> tuple[str, ...] | None:
    """Return the excludes, None if a field of an unknown name may be a misspelt exclude."""
    known = isinstance(tables, dict) and tables.keys() <= {"include", "exclude"}
    if not known or not isinstance(exclude, list | None):
        return None
    patterns = exclude or []
    return tuple(patterns) if all(map(_is_pattern, patterns)) else None


def _duplicates(seen: list[Sight]) -> Iterator[Problem]:
    """Yield two documents of one kind, namespace and name: the later would replace the first."""
    first: dict[tuple[str, ...], Sight] = {}
    for item in seen:
        other = first.setdefault((item.kind, item.namespace, item.name), item)
        if item.name and other is not item:
            what = f"{item.kind} {item.name} is defined twice"
            yield item.document.problem(("metadata", "name"), what, f"first at {other.place}")


def _contested(policies: list[Sight]) -> Iterator[Problem]:
    """Yield two policies that include the same thing.

    If both name it exactly, neither can win. For equal patterns one wins, and the other gets
    nothing that both select.
    """
    first: dict[tuple[object, ...], Sight] = {}
    for item in sorted(policies, key=lambda policy: policy.precedence):
        for number, pattern in item.include:
            if not _selects(item, pattern):
                continue
            key = (item.namespace, item.catalog, same_tables(pattern))
            other = first.setdefault(key, item)
            if other.name != item.name and _selects(other, pattern):
                yield _contest(other, item, number, pattern)


def _selects(policy: Sight, pattern: str) -> bool:
    """Whether a pattern of the policy's include certainly selects something after the excludes."""
    if policy.exclude is None:
        return False
    if is_exact(pattern):
        table = split_identifier(pattern)
        return not any(matches(excluded, table) for excluded in policy.exclude)
    return not any(covers(excluded, pattern) for excluded in policy.exclude)


def _contest(winner: Sight, loser: Sight, number: int, pattern: str) -> Problem:
    path = (*TABLES, "include", number)
    if is_exact(pattern) and not winner.created:
        what = f"{pattern} has two policies: {winner.name} and {loser.name}"
        hint = f"the other is at {winner.place}; keep it in one of them"
        return loser.document.problem(path, what, hint)
    what = f"policy {winner.name} includes {pattern} too and gets every table that both select"
    by = "is older" if winner.created else "comes first by name"
    hint = f"it is at {winner.place} and {by}; keep the pattern in one of them, or exclude tables"
    return loser.document.problem(path, what, hint, severity="warning")


def _unresolved(seen: list[Sight]) -> Iterator[Problem]:
    """Yield catalogRefs to no IcebergCatalog of the set, if the set has any."""
    known = {(item.namespace, item.name) for item in seen if item.kind == CATALOG and item.name}
    for item in seen:
        if item.kind == CATALOG or not known or not item.catalog:
            continue
        name = item.catalog
        if (item.namespace, name) not in known:
            near = [other for namespace, other in sorted(known) if namespace == item.namespace]
            elsewhere = [namespace for namespace, other in sorted(known) if other == name]
            hint = f"defined here: {', '.join(near)}" if near else ""
            if elsewhere:
                hint = f"it is in namespace {elsewhere[0]}; a policy and its catalog share one"
            what = f"no IcebergCatalog {name} in namespace {item.namespace}"
            path = ("spec", "catalogRef", "name")
            yield item.document.problem(path, what, hint, severity="warning")
