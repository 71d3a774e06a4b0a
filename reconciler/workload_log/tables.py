"""What the readers know of tables, passed in so that they need no catalog."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from reconciler.core.schema import Schema


@dataclass(frozen=True)
class KnownTable:
    """A table of the catalog that fragments are wanted for. name: as people write it."""

    uuid: str
    name: str
    schema: Schema


class TableSchemas(Protocol):
    def resolve(self, parts: tuple[str, ...]) -> KnownTable | None:
        """The table that a name in a query means, None if it is not (or not clearly) one.

        parts: catalog, schema levels and name as far as the query and its session give them.
        """
        ...


class NameIndex:
    """Full names, found by any suffix that only one of them ends in; never guessed.

    Names compare without case, as engines do.
    """

    def __init__(self, names: Iterable[tuple[str, ...]]):
        full = list(names)
        self._by_suffix: dict[tuple[str, ...], tuple[str, ...] | None] = {}
        for name in full:
            for start in range(len(name)):
                suffix = _fold(name[start:])
                self._by_suffix[suffix] = None if suffix in self._by_suffix else name
        for name in full:  # a whole name is meant even where a longer one ends in it
            self._by_suffix[_fold(name)] = name

    def find(self, parts: tuple[str, ...]) -> tuple[str, ...] | None:
        return self._by_suffix.get(_fold(parts))


class SchemaMap:
    """Tables in memory by their full names."""

    def __init__(self, tables: dict[tuple[str, ...], KnownTable]):
        self._tables = dict(tables)
        self._index = NameIndex(tables)

    def resolve(self, parts: tuple[str, ...]) -> KnownTable | None:
        name = self._index.find(parts)
        return None if name is None else self._tables[name]


def _fold(parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.lower() for part in parts)
