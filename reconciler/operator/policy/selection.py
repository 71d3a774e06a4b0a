"""Finds which policy selects which table of a catalog, kept up to date as policies change.

Ten thousand policies over ten thousand tables are compared by the literal prefix of their patterns,
never all pairs; only the few that remain are really matched. A change of one policy costs only that
policy's patterns, however many others there are.
"""

from __future__ import annotations

import bisect
import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.documents import TableLayoutPolicy
from reconciler.api.table_patterns import literal_beginning, selects
from reconciler.operator.index import Index, ObjectName
from reconciler.operator.ports import Identifier
from reconciler.operator.stored import StoredDocuments

SEPARATOR = "\x00"


@dataclass
class _Catalog:
    """The patterns of a catalog's policies, and its tables."""

    beginnings: dict[str, set[ObjectName]] = field(default_factory=dict)
    """Names of the policies that have a pattern, by the pattern's literal prefix."""
    beginnings_of: dict[ObjectName, frozenset[str]] = field(default_factory=dict)
    listed: frozenset[Identifier] | None = None
    names: list[tuple[str, Identifier]] = field(default_factory=list)


@dataclass
class Selections:
    """Finds the tables of a policy and the policies of a table. Thread-safe. Follows the index by
    what changed since the last call."""

    index: Index
    """The objects as the watches know them."""
    documents: StoredDocuments
    """Parses stored objects."""
    _catalogs: dict[ObjectName, _Catalog] = field(default_factory=dict)
    """The patterns and the tables of each catalog, by its (namespace, name)."""
    _catalog_of: dict[ObjectName, ObjectName] = field(default_factory=dict)
    """The catalog of each policy, both as (namespace, name)."""
    _mark: int = 0
    """Number of the last change of the index that was read."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Guards the other fields."""

    def tables(self, policy: TableLayoutPolicy, listed: frozenset[Identifier]) -> list[Identifier]:
        """Return the listed tables that the policy selects, in order."""
        with self._lock:
            catalog = self._catalogs.setdefault(_catalog_name(policy), _Catalog())
            if catalog.listed is not listed:
                catalog.names = sorted((SEPARATOR.join(table), table) for table in listed)
                catalog.listed = listed
            found = {
                table
                for pattern in policy.spec.tables.include
                for table in _beginning_with(catalog.names, literal_beginning(pattern)[0])
            }
        return sorted(table for table in found if selects(policy.spec.tables, table))

    def rivals(self, policy: TableLayoutPolicy, table: Identifier) -> list[TableLayoutPolicy]:
        """Return other valid policies of the catalog that select the table."""
        name, found = SEPARATOR.join(table), set()
        with self._lock:
            self._follow()
            catalog = self._catalogs.get(_catalog_name(policy), _Catalog())
            for end in range(len(name) + 1):
                found |= catalog.beginnings.get(name[:end], set())
        found.discard((policy.namespace, policy.name))
        read = (self._read(other) for other in sorted(found))
        return [other for other in read if other and selects(other.spec.tables, table)]

    def _read(self, name: ObjectName) -> TableLayoutPolicy | None:
        body = self.index.policy(*name)
        policy = None if body is None else self.documents.read(body, TableLayoutPolicy)
        return policy if isinstance(policy, TableLayoutPolicy) else None

    def _follow(self) -> None:
        """Apply changed policies without validating them: for ten thousand that would take
        seconds."""
        self._mark, names = self.index.changed_policies(self._mark)
        for name in names:
            self._forget(name)
            body = self.index.policy(*name)
            if body is not None:
                self._learn(name, body["spec"])

    def _learn(self, name: ObjectName, spec: Mapping[str, Any]) -> None:
        reference, tables = spec.get("catalogRef"), spec.get("tables")
        if not isinstance(reference, Mapping) or not isinstance(tables, Mapping):
            return
        where = self._catalog_of[name] = (name[0], str(reference.get("name")))
        catalog = self._catalogs.setdefault(where, _Catalog())
        catalog.beginnings_of[name] = _beginnings(tables.get("include"))
        for beginning in catalog.beginnings_of[name]:
            catalog.beginnings.setdefault(beginning, set()).add(name)

    def _forget(self, name: ObjectName) -> None:
        where = self._catalog_of.pop(name, None)
        if where is None:
            return
        catalog = self._catalogs[where]
        for beginning in catalog.beginnings_of.pop(name):
            known = catalog.beginnings[beginning]
            known.discard(name)
            if not known:
                del catalog.beginnings[beginning]
        if not catalog.beginnings_of:
            del self._catalogs[where]


def _catalog_name(policy: TableLayoutPolicy) -> ObjectName:
    return policy.namespace, policy.spec.catalog.name


def _beginnings(include: Any) -> frozenset[str]:
    """Return the literal prefixes of readable patterns; a policy with another one is not valid."""
    found = set()
    for pattern in include if isinstance(include, list) else ():
        with contextlib.suppress(ValueError, TypeError):
            found.add(literal_beginning(pattern)[0])
    return frozenset(found)


def _beginning_with(names: list[tuple[str, Identifier]], beginning: str) -> Iterator[Identifier]:
    at = bisect.bisect_left(names, (beginning,))
    while at < len(names) and names[at][0].startswith(beginning):
        yield names[at][1]
        at += 1
