"""What the readers know of tables, passed in so that they need no catalog."""

from __future__ import annotations

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


class SchemaMap:
    """Schemas in memory, found by the longest given suffix of their full name, never guessed.

    Names compare without case, as engines do. A shorter name than the full one matches only
    if exactly one table ends in it.
    """

    def __init__(self, tables: dict[tuple[str, ...], KnownTable]):
        self._by_suffix: dict[tuple[str, ...], KnownTable | None] = {}
        for parts, table in tables.items():
            self._by_suffix[_fold(parts)] = table
        for parts, table in tables.items():
            for start in range(1, len(parts)):
                suffix = _fold(parts[start:])
                known = self._by_suffix.get(suffix, table)
                self._by_suffix[suffix] = table if known is table else None

    def resolve(self, parts: tuple[str, ...]) -> KnownTable | None:
        return self._by_suffix.get(_fold(parts))


def _fold(parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.lower() for part in parts)
