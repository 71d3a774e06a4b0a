"""The tables that readers know, passed in so that they need no catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from reconciler.table.schema import Schema


@dataclass(frozen=True)
class KnownTable:
    """A table of the catalog whose fragments are imported."""

    uuid: str
    """The table's UUID."""
    name: str
    """Its name as people write it."""
    schema: Schema
    """Its columns."""
    hidden: frozenset[str] = frozenset()
    """Columns, in lower case, whose conditions count as none: block ids, by which queries were
    routed, are others after the next rewrite."""


class TableSchemas(Protocol):
    def resolve(self, parts: tuple[str, ...]) -> KnownTable | None:
        """Return the table that a name in a query means, None if there is none or several.

        parts: catalog, schema levels and name as far as the query and its session give them.
        """
        ...


class NameIndex:
    """Full names, found by any suffix that only one of them ends in; never guessed.

    Names compare without case, as in engines, unless that leaves several.
    """

    def __init__(self, names: Iterable[tuple[str, ...]]):
        self._spellings: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
        for name in names:
            self._spellings.setdefault(_fold(name), []).append(name)
        self._by_suffix: dict[tuple[str, ...], tuple[str, ...] | None] = {}
        for folded in self._spellings:
            for start in range(len(folded)):
                suffix = folded[start:]
                self._by_suffix[suffix] = None if suffix in self._by_suffix else folded
        for folded in self._spellings:  # a full name wins over a longer one that ends in it
            self._by_suffix[folded] = folded

    def find(self, parts: tuple[str, ...]) -> tuple[str, ...] | None:
        folded = self._by_suffix.get(_fold(parts))
        spellings = [] if folded is None else self._spellings[folded]
        if len(spellings) > 1:
            spellings = [name for name in spellings if name[-len(parts) :] == parts]
        return spellings[0] if len(spellings) == 1 else None


class SchemaMap:
    """Tables in memory by their full names."""

    def __init__(self, tables: dict[tuple[str, ...], KnownTable]):
        self._tables = dict(tables)
        self._index = NameIndex(tables)

    def resolve(self, parts: tuple[str, ...]) -> KnownTable | None:
        name = self._index.find(parts)
        return None if name is None else self._tables[name]


class CatalogTables:
    """Tables of a catalog by the names in queries, each loaded when a query first names it."""

    def __init__(
        self,
        identifiers: Mapping[tuple[str, ...], tuple[str, ...]],
        load: Callable[[tuple[str, ...]], KnownTable | None],
    ):
        """identifiers: in the catalog, by the full names in the log. load: None for a table that
        is left out."""
        self._identifiers, self._load = identifiers, load
        self._index = NameIndex(identifiers)
        self._loaded: dict[tuple[str, ...], KnownTable | None] = {}

    def resolve(self, parts: tuple[str, ...]) -> KnownTable | None:
        full = self._index.find(parts)
        if full is None:
            return None
        identifier = self._identifiers[full]
        if identifier not in self._loaded:
            self._loaded[identifier] = self._load(identifier)
        return self._loaded[identifier]

    def loaded(self) -> Iterator[tuple[tuple[str, ...], KnownTable]]:
        """Yield the tables that were resolved, with their identifiers."""
        yield from ((name, table) for name, table in self._loaded.items() if table is not None)

    def schema(self, table_uuid: str) -> Schema:
        """Return the schema of a table that was resolved, as it was then."""
        return next(table.schema for _, table in self.loaded() if table.uuid == table_uuid)


def _fold(parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.lower() for part in parts)
