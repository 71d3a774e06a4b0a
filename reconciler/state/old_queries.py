"""Recorded queries as earlier versions stored them: the table `fragments`, with a row for each.

This version writes `queries` (query_rows), and takes over what is in the old table. It never
changes a row of it except to remove expired ones, so that programs of both versions may share a
state: each reads what it wrote itself, and this one also what the other wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from reconciler.queries.fragment_codec import ROW_TYPES, fragment_from_row
from reconciler.state.query_rows import imports_of, numbers, rows_of
from reconciler.state.state_tables import StateTables, version_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

OLD_TABLE = "fragments"
TAKEN_OVER = "fragments-taken-over"
"""Key of the note with the version of the old table up to which its rows were taken over."""

BATCH = 50_000
"""Old rows that are read into memory at a time as Python objects."""


class OldRows:
    """The old table as it is now."""

    def __init__(self, tables: StateTables, table: Table):
        self._tables, self._table = tables, table
        self.version = version_of(table)

    def selected(self, where: Any) -> pa.Table:
        """Return the queries that the filter selects, as rows of this version."""
        import pyarrow as pa

        parts = [_as_rows(part) for part in _batches(self._rows(where))]
        return pa.concat_tables(parts) if parts else rows_of(())

    def missing(self, known: pa.Table | None, where: Any) -> Iterator[pa.Table]:
        """Yield the queries that the filter selects and that the known rows do not have, or have of
        a later import: the first one counts."""
        import numpy as np

        stored = {} if known is None else imports_of(known)
        for part in _batches(self._rows(where)):
            wanted = np.ones(len(part), dtype=np.bool_)
            names = (part.column(name).to_pylist() for name in ("table_uuid", "source"))
            owned: dict[tuple[str, str], list[int]] = {}
            for row, name in enumerate(zip(*names, strict=True)):
                owned.setdefault(name, []).append(row)
            own, imported = (numbers(part.column(name)) for name in ("position", "imported_ms"))
            for name in owned.keys() & stored.keys():
                rows, (held, at) = np.array(owned[name]), stored[name]
                place = np.minimum(np.searchsorted(held, own[rows]), len(held) - 1)
                there = (held[place] == own[rows]) & (at[place] <= imported[rows])
                wanted[rows[there]] = False
            yield _as_rows(part.filter(wanted))

    def _rows(self, where: Any) -> pa.Table:
        known = self._table.schema().column_names  # an older version lacks some columns
        names = [name for name, _ in ROW_TYPES if name in known]
        return self._tables.rows_of(self._table, [*names, "imported_ms"], where)


def _batches(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield runs of rows, the oldest first."""
    ordered = rows.sort_by("imported_ms")
    for start in range(0, len(ordered), BATCH):
        yield ordered.slice(start, BATCH)


def _as_rows(part: pa.Table) -> pa.Table:
    return rows_of((row["imported_ms"], fragment_from_row(row)) for row in part.to_pylist())
