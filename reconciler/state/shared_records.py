"""The small records of the shared state, as one Iceberg table: (kind, key, at_ms, body).

It replaces the SQLite part of the local state. The latest row of (kind, key) wins, rows of a count
are added up, and a row without a body removes. Rows are only appended, so that writers never wait
for each other; a merge keeps the rows that still count.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reconciler.state.records import note_value
from reconciler.state.state_tables import CachedRows, StateTables
from reconciler.state.table_columns import Columns
from reconciler.table.times import DAY_MS

if TYPE_CHECKING:
    import pyarrow as pa

TABLE = "records"
RECORDS: Columns = (
    ("kind", "string"),
    ("key", "string"),
    ("at_ms", "long"),
    ("body", "string?"),
)
FIELDS = tuple(name for name, _ in RECORDS)
PLAN, STANDING, APPROVAL, CURSOR, NOTE, WORKLOAD, SKIP = (
    "plan", "standing", "approval", "cursor", "note", "workload", "skip",
)  # fmt: skip
EXPIRING = (PLAN, STANDING, APPROVAL)
"""Kinds that are useless when no plan of that age can be valid."""

RETENTION_MS = 90 * DAY_MS

JUST_NOW = 60.0
"""Seconds for which rows read at the start of a write are not read again."""

Entry = tuple[str, str, Any]
"""(kind, key, JSON-able value; None removes)."""


class TableRecords:
    """The records of one shared store. Holds all of them, and reloads them when the table
    changes."""

    def __init__(self, tables: StateTables):
        self._tables = tables
        self._cache = CachedRows(tables, TABLE, FIELDS)

    def get(self, kind: str, key: str, max_age: float = 0.0) -> Any:
        row = self._latest(kind, key, max_age)
        return None if row is None or row["body"] is None else note_value(row["body"], key)

    def of_kind(self, kind: str) -> dict[str, Any]:
        """Return the value of every key of that kind."""
        import pyarrow.compute as pc

        _, rows = self._cache.rows()
        if rows is None:
            return {}
        chosen = rows.filter(pc.equal(rows.column("kind"), kind)).to_pylist()
        latest = {row["key"]: row["body"] for row in sorted(chosen, key=_order)}
        return {key: note_value(body, key) for key, body in latest.items() if body is not None}

    def put(self, entries: Sequence[Entry]) -> None:
        """Write all of them in one commit; known values are not written again."""
        rows = []
        self._cache.rows()
        for kind, key, value in entries:
            last = self._latest(kind, key, JUST_NOW)
            body = None if value is None else json.dumps(value, separators=(",", ":"))
            if (last["body"] if last is not None else None) != body:
                rows.append(_row(kind, key, body, last))
        self._tables.append(TABLE, RECORDS, rows, merged)

    def touch(self, kind: str, keys: Sequence[str]) -> None:
        """Record a change of the keys: the value is the time."""
        rows = []
        self._cache.rows()
        for key in keys:
            last = self._latest(kind, key, JUST_NOW)
            row = _row(kind, key, None, last)
            rows.append({**row, "body": str(row["at_ms"])})
        self._tables.append(TABLE, RECORDS, rows, merged)

    def add(self, key: str, counts: Mapping[str, int]) -> None:
        """Add to the counts of the key."""
        rows = [
            _row(SKIP, json.dumps([key, reason]), str(count), None)
            for reason, count in counts.items()
        ]
        self._tables.append(TABLE, RECORDS, rows, merged)

    def counts(self, key: str) -> dict[str, int]:
        import pyarrow.compute as pc

        _, rows = self._cache.rows()
        if rows is None:
            return {}
        found: dict[str, int] = {}
        prefix = json.dumps([key])[:-1] + ","
        chosen = pc.and_(
            pc.equal(rows.column("kind"), SKIP), pc.starts_with(rows.column("key"), prefix)
        )
        for row in rows.filter(chosen).to_pylist():
            with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
                reason = str(json.loads(row["key"])[1])  # a count of somebody else is left out
                found[reason] = found.get(reason, 0) + int(row["body"])
        return dict(sorted(found.items()))

    def _latest(self, kind: str, key: str, max_age: float) -> dict[str, Any] | None:
        import pyarrow.compute as pc

        _, rows = self._cache.rows(max_age)
        if rows is None:
            return None
        chosen = pc.and_(pc.equal(rows.column("kind"), kind), pc.equal(rows.column("key"), key))
        found = rows.filter(chosen).to_pylist()
        return max(found, key=_order, default=None)


def _order(row: Mapping[str, Any]) -> tuple[int, str]:
    return row["at_ms"], row["body"] or ""


def _row(kind: str, key: str, body: str | None, last: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a row with a later time than the row it replaces, whatever this machine's clock
    says."""
    at_ms = int(time.time() * 1000)
    if last is not None:
        at_ms = max(at_ms, last["at_ms"] + 1)
    return {"kind": kind, "key": key, "at_ms": at_ms, "body": body}


def _count(text: str | None) -> int:
    """Return a count, 0 for what is none."""
    try:
        return int(text or 0)
    except ValueError:
        return 0


def merged(rows: pa.Table) -> pa.Table:
    """Return what a merge keeps: the latest of each key, counts added up, nothing removed or
    expired."""
    oldest = int(time.time() * 1000) - RETENTION_MS
    latest: dict[tuple[str, str], dict[str, Any]] = {}
    for row in sorted(rows.to_pylist(), key=_order):
        key = (row["kind"], row["key"])
        if row["kind"] == SKIP and key in latest:
            row["body"] = str(_count(row["body"]) + _count(latest[key]["body"]))
        latest[key] = row
    kept = [
        row
        for row in latest.values()
        if row["body"] is not None and not (row["kind"] in EXPIRING and row["at_ms"] < oldest)
    ]
    return rows.schema.empty_table() if not kept else type(rows).from_pylist(kept, rows.schema)
