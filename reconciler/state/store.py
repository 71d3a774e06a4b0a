"""What every state store keeps: queries, sketches and the ledger, in Iceberg tables of any backend.

A subclass says where plans, approvals, cursors and notes are (`state.state` in the state directory,
`state.shared_state` in a catalog).
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from reconciler.errors import first_line
from reconciler.plan.execution import Lease
from reconciler.plan.plan import Plan
from reconciler.queries.fragments import Fragment
from reconciler.queries.shape import Shape
from reconciler.state.ledger_tables import LedgerTables
from reconciler.state.old_queries import OLD_TABLE, TAKEN_OVER, OldRows
from reconciler.state.query_rows import (
    NAMES,
    QUERIES,
    TABLE,
    concatenated,
    distinct,
    joined,
    positions,
    rows_of,
)
from reconciler.state.query_shapes import CODED, READ, shapes_of
from reconciler.state.refusals import refusals_from, with_refusals
from reconciler.state.state_tables import StateTables, matching, shard_of, version_of
from reconciler.state.table_columns import Columns
from reconciler.table.refusals import Refusal

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

log = logging.getLogger(__name__)

T = TypeVar("T")


RETENTION_SECONDS = 90 * 86_400
"""Default time for which queries and sketches are kept: they hold customers' values."""


SKETCHES: Columns = (
    ("shard", "int"),
    ("table_uuid", "string"),
    ("path", "string"),
    ("stored_ms", "long"),
    ("body", "binary"),
)


class Store(LedgerTables, ABC):
    """A state store. Implements plan.execution.Ledger; `lease` creates a Lease.

    Plans, approvals, cursors, counts and notes are kept by the subclass; queries, sketches and
    ledger are Iceberg tables of any backend.
    """

    def __init__(self, tables: StateTables, retention_seconds: int | None = RETENTION_SECONDS):
        """retention_seconds: of queries and sketches; None: another client, which knows it,
        removes them."""
        self._tables = tables
        self._retention_seconds = retention_seconds

    @abstractmethod
    def lease(self) -> Lease: ...

    @abstractmethod
    def put_plan(self, plan: Plan) -> None:
        """Store a frozen plan as the standing one of (table, policy)."""

    @abstractmethod
    def get_plan(self, plan_id: str) -> Plan | None: ...

    @abstractmethod
    def standing_plan(self, table_uuid: str, policy_hash: str) -> Plan | None:
        """Return the plan proposed last for the table under the policy, if one is stored."""

    @abstractmethod
    def standing_plans(self, table_uuid: str) -> tuple[Plan, ...]:
        """Return the plan proposed last for the table under each policy that it had."""

    @abstractmethod
    def approve(self, plan_id: str, policy: str) -> None:
        """Record that a person approved the plan while that policy (loop.gating.policy_key)
        governed the table.

        A plan's id does not include budgets, windows and suspension: another policy with the same
        layout gives the same plan, and needs its own approval. Raises UserError for a plan that is
        unknown here.
        """

    @abstractmethod
    def approved(self, plan_id: str, policy: str | None = None) -> bool:
        """Return whether it was approved under that policy; None: under any."""

    @abstractmethod
    def cursor(self, source: str) -> str | None:
        """Return how far a source has been imported, in the reader's own terms."""

    @abstractmethod
    def set_cursor(self, source: str, value: str) -> None: ...

    @abstractmethod
    def record_skips(self, table_uuid: str | None, counts: Mapping[str, int]) -> None: ...

    @abstractmethod
    def skips(self, table_uuid: str | None) -> dict[str, int]: ...

    @abstractmethod
    def note(self, key: str) -> Any:
        """Return a small JSON value, such as a measured rho; None if there is none."""

    def note_as(self, key: str, read: Callable[[Any], T]) -> T | None:
        """Return what a note says, None without one or with one that cannot be read: notes are
        measurements, which are made again."""
        body = self.note(key)
        if body is None:
            return None
        try:
            return read(body)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            log.warning('the note "%s" of the state is not used: %s', key, first_line(error))
            return None

    @abstractmethod
    def set_note(self, key: str, value: Any) -> None: ...

    # Recorded queries

    def append_fragments(self, fragments: Iterable[Fragment]) -> None:
        """Store fragments in one commit.

        Storing the same ones again does not change what `shapes` returns: an import that died
        before its cursor was set may be repeated, and two may store the same queries at once. Which
        are the same is decided by table, source and position alone: what a query reads may be
        derived differently once the table's schema has changed.
        """
        now = _now_ms()
        rows = rows_of((now, item) for item in fragments)
        self._tables.append_table(TABLE, QUERIES, rows, self._merged)

    def _oldest_ms(self) -> int:
        """Return the time before which queries and sketches are no longer kept."""
        kept = self._retention_seconds
        return 0 if kept is None else _now_ms() - kept * 1000

    def _merged(self, rows: pa.Table) -> pa.Table:
        """Return what a merge of small files keeps: each query once, few rows.

        Rows of imports within a hundredth of the retention become one, which is removed with its
        oldest query. A client that does not know the retention leaves them apart.
        """
        recent = _since(rows, "imported_ms", self._oldest_ms())
        return joined(distinct(recent), (self._retention_seconds or 0) * 10)

    def _recent_sketches(self, rows: pa.Table) -> pa.Table:
        return _since(rows, "stored_ms", self._oldest_ms())

    def remove_expired(self) -> None:
        """Remove queries and sketches that are older than the retention."""
        if self._retention_seconds is not None:
            self._tables.remove(OLD_TABLE, "imported_ms", self._oldest_ms())
            self._tables.remove(TABLE, "imported_ms", self._oldest_ms())
            self._tables.remove("sketches", "stored_ms", self._oldest_ms())
            self.take_over_old_rows()  # their table has a new version

    def shapes(self, table_uuid: str) -> tuple[Shape, ...]:
        """Return the queries of the table within the retention, by shape and by time."""
        return self.shapes_of_tables((table_uuid,)).get(table_uuid, ())

    def shapes_of_tables(self, table_uuids: Collection[str]) -> dict[str, tuple[Shape, ...]]:
        """Return the queries of each table that has some within the retention, by its uuid.

        One scan: who looks at many tables asks for those of dozens at once.
        """
        wanted = tuple(sorted(table_uuids))
        shards = tuple(sorted({shard_of(one) for one in wanted}))
        where = matching(
            {"shard": shards, "table_uuid": wanted}, {"imported_ms": self._oldest_ms()}
        )
        old = self._old_rows()
        if old is None:  # no name for the rows here: their memory goes as the shapes come
            return shapes_of(self._tables.scan(TABLE, where, READ, CODED))
        found = self._tables.scan(TABLE, where, NAMES)
        rows = old.selected(where)
        return shapes_of(rows if found is None else concatenated(found, rows))

    def queried(self) -> frozenset[str] | None:
        """Return the uuids of the tables that have queries within the retention; None where rows of
        an earlier version may have others.

        One scan: who looks at thousands of tables need not ask for the queries of each.
        """
        if self._old_rows() is not None:
            return None
        where = matching({}, {"imported_ms": self._oldest_ms()})
        found = self._tables.scan(TABLE, where, ["table_uuid"], ["table_uuid"])
        if found is None:
            return frozenset()
        return frozenset(found.column("table_uuid").unique().to_pylist())

    def recorded_positions(self) -> npt.NDArray[np.int64]:
        """Return the positions of all queries within the retention, ascending.

        The readers of logs ask whether a query is already there, by its identity. They write, so
        that the rows of an earlier version are taken over first.
        """
        import numpy as np

        self.take_over_old_rows()
        where = matching({}, {"imported_ms": self._oldest_ms()})
        found = self._tables.scan(TABLE, where, ["position"])
        return np.empty(0, dtype=np.int64) if found is None else positions(found)

    def take_over_old_rows(self) -> None:
        """Store the queries of an earlier version, which wrote a row for each, as rows of this one.

        They stay where they are, for a program of that version. If it stores more, those are taken
        over the next time. A process that dies in between repeats this without effect.
        """
        old = self._old_rows()
        if old is None:
            return
        where = matching({}, {"imported_ms": self._oldest_ms()})
        names = ["table_uuid", "source", "position", "imported_ms"]
        known = self._tables.scan(TABLE, where, names)
        for rows in old.missing(known, where):
            self._tables.append_table(TABLE, QUERIES, rows, self._merged)
        self.set_note(TAKEN_OVER, old.version)

    def _old_rows(self) -> OldRows | None:
        """Return the rows of an earlier version that this one has not taken over; None without."""
        table = self._tables.snapshot(OLD_TABLE)
        if table is None or self.note(TAKEN_OVER) == version_of(table):
            return None
        return OldRows(self._tables, table)

    # Sketches

    def put_sketches(self, table_uuid: str, sketches: Mapping[str, bytes]) -> None:
        """Store encoded sketches by data file path, in one commit."""
        now, shard = _now_ms(), shard_of(table_uuid)
        rows = [
            {"shard": shard, "table_uuid": table_uuid, "path": path, "stored_ms": now, "body": body}
            for path, body in sketches.items()
        ]
        self._tables.append("sketches", SKETCHES, rows, self._recent_sketches)

    def sketches(self, table_uuid: str, paths: Sequence[str]) -> dict[str, list[bytes]]:
        """Return the encoded sketches of the data files that have some, oldest first."""
        found = self._sketches(table_uuid, ("path", "stored_ms", "body"))
        if found is None:
            return {}
        wanted = set(paths)
        out: dict[str, list[bytes]] = {}
        for row in found.sort_by("stored_ms").to_pylist():
            if row["path"] in wanted:
                out.setdefault(row["path"], []).append(row["body"])
        return out

    def sketched(self, table_uuid: str, paths: Sequence[str]) -> frozenset[str]:
        """Return those of the data files that have a sketch, without reading any."""
        found = self._sketches(table_uuid, ("path",))
        stored = set() if found is None else set(found["path"].to_pylist())
        return frozenset(stored & set(paths))

    def _sketches(self, table_uuid: str, columns: tuple[str, ...]) -> pa.Table | None:
        where = matching(
            {"shard": shard_of(table_uuid), "table_uuid": table_uuid},
            {"stored_ms": self._oldest_ms()},
        )
        return self._tables.scan("sketches", where, columns)

    # Refused files

    def refusals(self, table_uuid: str) -> dict[str, Refusal]:
        """Return the refused files of the table by path, also those that are no longer in it."""
        return self.note_as(_refusals_key(table_uuid), refusals_from) or {}

    def record_refusals(self, table_uuid: str, found: Iterable[Refusal]) -> None:
        """Add refused files to those of the table, whose lease the caller holds."""
        self.set_note(_refusals_key(table_uuid), with_refusals(self.refusals(table_uuid), found))


def _now_ms() -> int:
    return int(time.time() * 1000)


def _refusals_key(table_uuid: str) -> str:
    """Return the key of the note with a table's refused files."""
    return f"refused:{table_uuid}"


def _since(rows: pa.Table, column: str, oldest_ms: int) -> pa.Table:
    import pyarrow.compute as pc

    return rows.filter(pc.greater_equal(rows.column(column), oldest_ms))
