"""Rows that come in tables of any size, taken in portions of exact sizes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa


class Portions:
    """Takes rows in their order. tables: what the rows come in, read as they are needed."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self._held: list[pa.Table] = []

    def take(self, rows: int) -> pa.Table:
        """Return the next rows. Raises ValueError if there are not so many."""
        found, left = [], rows
        while left:
            if not self._held:
                table = next(self._tables, None)
                if table is None:
                    raise ValueError("there are fewer live rows than were counted")
                self._held.append(table)
            table = self._held.pop()
            found.append(table.slice(0, left))
            if len(table) > left:
                self._held.append(table.slice(left))
            left -= len(found[-1])
        return pa.concat_tables(found).unify_dictionaries()
