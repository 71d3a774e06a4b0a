"""The reconciler's own state: recorded queries, sketches, ledger, plans, leases.

`Store` is the interface of every state store; `StateStore` is in the user's state directory: SQLite
for what needs compare-and-set (leases, plans, cursors), Iceberg tables for what grows (queries,
sketches, ledger). `state.shared_state` has the one in a catalog. Several processes may share a
store, and one may be killed at any moment.
"""

from __future__ import annotations

import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from reconciler.errors import UserError, first_line
from reconciler.plan.execution import UNKNOWN_OUTCOME, Intent, Lease, Outcome
from reconciler.plan.ledger import LedgerEntry, ReadCheck, Reservation
from reconciler.plan.plan import Plan, stored_form
from reconciler.plan.prediction import Prediction
from reconciler.queries.fragments import Fragment
from reconciler.queries.shape import Shape
from reconciler.state.blobs import files_to_blob, readable_files
from reconciler.state.lease import SqliteLease
from reconciler.state.ledger_rows import (
    INPUTS,
    INTENT,
    OUTCOME,
    PREDICTION,
    READ_CHECK,
    RESERVED,
    SETTLED,
    USED_CPU,
    WRITTEN,
    at_of,
    intent_of,
    plain_row,
    reservations_of,
    row_of_intent,
    value_of,
)
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
from reconciler.state.records import Records, StoredText
from reconciler.state.refusals import refusals_from, with_refusals
from reconciler.state.set_aside import parse_stored, warn_set_aside
from reconciler.state.state_tables import (
    Columns,
    LocalBackend,
    StateTables,
    matching,
    shard_of,
    version_of,
)
from reconciler.table.filetable import FileTable
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
LEDGER: Columns = (
    ("kind", "string"),
    ("table_uuid", "string"),
    ("plan_id", "string"),
    ("attempt_id", "string"),
    ("batch", "int"),
    ("action_id", "string"),
    ("at_ms", "long"),
    ("body", "string"),
    ("blob", "binary?"),
)
LEDGER_FIELDS = tuple(name for name, _ in LEDGER if name != "blob")
HEAVY_KINDS = (INTENT, INPUTS, WRITTEN)
MOST_BOUNDS = 400_000
"""Maximum number of bounds (files times columns) that the ledger keeps of one action's files and of
those of one commit: 2 to 5 MB."""


def state_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return $LAYOUTCTL_STATE, else layoutctl below $XDG_STATE_HOME or ~/.local/state."""
    env = os.environ if environ is None else environ
    if env.get("LAYOUTCTL_STATE"):
        return Path(env["LAYOUTCTL_STATE"]).expanduser().absolute()
    home = env.get("XDG_STATE_HOME") or str(
        Path(env.get("HOME", "~")).expanduser() / ".local/state"
    )
    return Path(home) / "layoutctl"


def cache_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory of decoded manifests, which can be removed at any time.

    $LAYOUTCTL_CACHE, else layoutctl below $XDG_CACHE_HOME or ~/.cache.
    """
    env = os.environ if environ is None else environ
    if env.get("LAYOUTCTL_CACHE"):
        return Path(env["LAYOUTCTL_CACHE"]).expanduser().absolute()
    home = env.get("XDG_CACHE_HOME") or str(Path(env.get("HOME", "~")).expanduser() / ".cache")
    return Path(home) / "layoutctl"


class Store(ABC):
    """A state store. Implements plan.execution.Ledger; `lease` creates a Lease.

    Plans, approvals, cursors, counts and notes are kept by the subclass; queries, sketches and
    ledger are Iceberg tables of any backend, and are here.
    """

    heavy_table = "ledger"
    """Table of intents and zone maps: large rows that are read only by table."""

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
    def drop_plan(self, plan_id: str) -> None: ...

    @abstractmethod
    def approve(self, plan_id: str, policy: str) -> None:
        """Record that a person approved the plan while that policy (loop.step.policy_key) governed
        the table.

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
        where = matching(
            {"shard": shard_of(table_uuid), "table_uuid": table_uuid},
            {"imported_ms": self._oldest_ms()},
        )
        old = self._old_rows()
        if old is None:  # no name for the rows here: their memory goes as the shapes come
            return shapes_of(self._tables.scan(TABLE, QUERIES, where, READ, CODED))
        found = self._tables.scan(TABLE, QUERIES, where, NAMES)
        rows = old.of_table(table_uuid, self._oldest_ms())
        return shapes_of(rows if found is None else concatenated(found, rows))

    def recorded(self) -> npt.NDArray[np.int64]:
        """Return the positions of all queries within the retention, ascending.

        The readers of logs ask whether a query is already there, by its identity. They write, so
        that the rows of an earlier version are taken over first.
        """
        import numpy as np

        self.take_over_old_rows()
        where = matching({}, {"imported_ms": self._oldest_ms()})
        found = self._tables.scan(TABLE, QUERIES, where, ["position"])
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
        known = self._tables.scan(TABLE, QUERIES, where, ["source", "position"])
        for rows in old.missing(known, self._oldest_ms()):
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
        return self._tables.scan("sketches", SKETCHES, where, columns)

    # Ledger

    def record_intent(self, intent: Intent) -> None:
        self._record([row_of_intent(INTENT, intent, "", intent)])

    def record_outcomes(self, intent: Intent, outcomes: tuple[Outcome, ...]) -> None:
        self._record([row_of_intent(OUTCOME, intent, o.action_id, o) for o in outcomes])

    def open_intents(self, table_uuid: str) -> tuple[Intent, ...]:
        """Return the intents whose last outcome is missing, unknown or unreadable, oldest first.

        Raises StateError for one that cannot be read while its writer may live.
        """
        rows = self._ledger(table_uuid, (INTENT, OUTCOME))
        last = {
            (row["attempt_id"], row["batch"], row["action_id"]): value_of(row)
            for row in rows
            if row["kind"] == OUTCOME
        }
        unknown = {
            key[:2] for key, done in last.items() if done is None or done.state == UNKNOWN_OUTCOME
        }
        known = {key[:2] for key in last} - unknown
        found = (
            intent_of(row)
            for row in rows
            if row["kind"] == INTENT and (row["attempt_id"], row["batch"]) not in known
        )
        return tuple(intent for intent in found if intent is not None)

    def intents(self, table_uuid: str) -> tuple[Intent, ...]:
        """Return every intent recorded for the table that can be read, oldest first."""
        found = map(value_of, self._ledger(table_uuid, (INTENT,)))
        return tuple(intent for intent in found if intent is not None)

    def outputs_of(self, table_uuid: str) -> frozenset[str]:
        """Return the content files that the recorded batches of the table were to add."""
        return frozenset(path for one in self.intents(table_uuid) for path in one.outputs)

    def outcomes(self, table_uuid: str) -> tuple[Outcome, ...]:
        """Return every outcome recorded for the table, in order of time.

        A later one of the same action and batch replaces an earlier one.
        """
        return tuple(entry.outcome for entry in self.ledger(table_uuid))

    def ledger(self, table_uuid: str | None = None) -> tuple[LedgerEntry, ...]:
        """Return outcomes with the predictions that they are compared with, of one table or of
        all. An outcome that cannot be read is among `reservations`."""
        rows = self._ledger(table_uuid, (OUTCOME,))
        plans = None if table_uuid is None else tuple({row["plan_id"] for row in rows})
        predictions = {
            (row["plan_id"], row["action_id"]): value_of(row)
            for row in (self._ledger(None, (PREDICTION,), plans) if rows else ())
        }
        latest = {(row["attempt_id"], row["batch"], row["action_id"]): row for row in rows}
        return tuple(
            LedgerEntry(
                row["table_uuid"],
                row["plan_id"],
                at_of(row),
                outcome,
                predictions.get((row["plan_id"], row["action_id"])) or Prediction(),
            )
            for row in latest.values()
            if (outcome := value_of(row)) is not None
        )

    def reserve(self, reservation: Reservation) -> None:
        """Record a reservation before the work: it counts against budgets in full until it is
        settled."""
        body = {k: v for k, v in asdict(reservation).items() if k != USED_CPU}
        self._record([_row_of(RESERVED, reservation, body)])

    def settle(self, reservation: Reservation) -> None:
        """Settle a reservation: from now on only the recorded outcomes count, and what it used
        beside them."""
        used = {USED_CPU: reservation.used_cpu_seconds} if reservation.used_cpu_seconds else {}
        self._record([_row_of(SETTLED, reservation, used)])

    def reservations(self, table_uuid: str | None = None) -> tuple[Reservation, ...]:
        """Return every reservation of one table or of all, oldest first, and what unreadable rows
        count as."""
        return reservations_of(self._ledger(table_uuid, (RESERVED, SETTLED, OUTCOME)))

    def refusals(self, table_uuid: str) -> dict[str, Refusal]:
        """Return the refused files of the table by path, also those that are no longer in it."""
        return self.note_as(_refusals_key(table_uuid), refusals_from) or {}

    def record_refusals(self, table_uuid: str, found: Iterable[Refusal]) -> None:
        """Add refused files to those of the table, whose lease the caller holds."""
        self.set_note(_refusals_key(table_uuid), with_refusals(self.refusals(table_uuid), found))

    def record_prediction(self, plan_id: str, action_id: str, predicted: Prediction) -> None:
        self._record([plain_row(PREDICTION, plan_id, action_id, predicted.document())])

    def record_read_check(self, table_uuid: str, check: ReadCheck) -> None:
        self._record([plain_row(READ_CHECK, check.plan_id, "", asdict(check), table_uuid)])

    def read_checks(self, table_uuid: str) -> tuple[ReadCheck, ...]:
        found = map(value_of, self._ledger(table_uuid, (READ_CHECK,)))
        return tuple(check for check in found if check is not None)

    def record_old_zone_maps(self, plan_id: str, action_id: str, files: FileTable) -> None:
        """Store the inputs of an action as they were, to measure its savings later.

        Nothing is stored if they have more than MOST_BOUNDS bounds.
        """
        if _bounds_of(files) <= MOST_BOUNDS:
            row = plain_row(INPUTS, plan_id, action_id, {"files": len(files)})
            self._record([{**row, "blob": files_to_blob(files)}])

    def old_zone_maps(self, plan_id: str, action_id: str) -> FileTable | None:
        """Return the inputs of an action before it ran, without delete load."""
        where = matching({"kind": INPUTS, "plan_id": plan_id, "action_id": action_id})
        found = self._tables.scan(self.heavy_table, LEDGER, where, ("at_ms", "blob"))
        if found is None or not found.num_rows:
            return None
        return readable_files(found.sort_by("at_ms").column("blob")[-1].as_py())

    def old_zone_maps_of(self, plan_ids: Collection[str]) -> dict[tuple[str, str], FileTable]:
        """Return the inputs of the plans' actions before they ran, by plan and action id."""
        where = matching({"kind": INPUTS, "plan_id": tuple(sorted(plan_ids))})
        columns = ("plan_id", "action_id", "at_ms", "blob")
        found = self._tables.scan(self.heavy_table, LEDGER, where, columns) if plan_ids else None
        rows = [] if found is None else found.sort_by("at_ms").to_pylist()
        latest = {(row["plan_id"], row["action_id"]): row["blob"] for row in rows}
        readable = ((key, readable_files(blob)) for key, blob in latest.items())
        return {key: files for key, files in readable if files is not None}

    def record_written(self, intent: Intent, files: FileTable) -> None:
        """Store the data files that a commit batch added, to measure its savings later; nothing if
        they have more than MOST_BOUNDS bounds."""
        if _bounds_of(files) <= MOST_BOUNDS:
            row = row_of_intent(WRITTEN, intent, "", {"files": len(files)})
            self._record([{**row, "blob": files_to_blob(files)}])

    def written_zone_maps(self, table_uuid: str) -> dict[tuple[str, int], tuple[int, FileTable]]:
        """Return the data files that commit batches added, by attempt and batch, each with the
        time at which they were recorded first."""
        where = matching({"kind": WRITTEN, "table_uuid": table_uuid})
        columns = ("attempt_id", "batch", "at_ms", "blob")
        found = self._tables.scan(self.heavy_table, LEDGER, where, columns)
        rows = [] if found is None else found.sort_by("at_ms").to_pylist()
        first = {(row["attempt_id"], row["batch"]): row for row in reversed(rows)}
        readable = ((key, row["at_ms"], readable_files(row["blob"])) for key, row in first.items())
        return {key: (at_ms, files) for key, at_ms, files in readable if files is not None}

    def _record(self, rows: Sequence[dict[str, Any]]) -> None:
        """Write one kind of rows in one commit."""
        heavy = bool(rows) and rows[0]["kind"] in HEAVY_KINDS
        self._tables.append(self.heavy_table if heavy else "ledger", LEDGER, rows)

    def _ledger(
        self,
        table_uuid: str | None,
        kinds: Sequence[str],
        plan_ids: tuple[str, ...] | None = None,
    ) -> list[dict[str, Any]]:
        """Return rows of these kinds in order of time; None: of any table, of any plan."""
        equal: dict[str, Any] = {"kind": tuple(kinds)}
        if table_uuid is not None:
            equal["table_uuid"] = table_uuid
        if plan_ids is not None:
            equal["plan_id"] = plan_ids
        found = self._tables.scan("ledger", LEDGER, matching(equal), LEDGER_FIELDS)
        return [] if found is None else found.sort_by("at_ms").to_pylist()


class StateStore(Store):
    """State below a directory: everything outside the Iceberg tables is SQLite."""

    def __init__(self, directory: Path):
        self.directory = directory
        self._records = Records(directory / "state.db")
        super().__init__(StateTables(LocalBackend(directory, self._records)))

    def shapes(self, table_uuid: str) -> tuple[Shape, ...]:
        """As any store; it may be written, so that rows of an earlier version are taken over."""
        self.take_over_old_rows()
        return super().shapes(table_uuid)

    def lease(self) -> SqliteLease:
        return SqliteLease(self._records)

    def put_plan(self, plan: Plan) -> None:
        text = stored_form(plan).decode()
        self._records.put_plan(plan.id, plan.table_uuid, plan.policy_hash, text)

    def get_plan(self, plan_id: str) -> Plan | None:
        return self._readable(self._records.get_plan(plan_id))

    def standing_plan(self, table_uuid: str, policy_hash: str) -> Plan | None:
        return self._readable(self._records.standing_plan(table_uuid, policy_hash))

    def standing_plans(self, table_uuid: str) -> tuple[Plan, ...]:
        found = map(self._readable, self._records.standing_plans(table_uuid))
        return tuple(plan for plan in found if plan is not None)

    def _readable(self, stored: StoredText | None) -> Plan | None:
        """Return the plan; one that cannot be read is set aside, and the table is planned again."""
        if stored is None:
            return None
        try:
            plan = parse_stored(stored.body)
            if (plan.id, plan.table_uuid, plan.policy_hash) == (
                stored.plan_id, stored.table_uuid, stored.policy_hash,
            ):  # fmt: skip
                return plan
            why = f"it is plan {plan.id} of table {plan.table_uuid}"
        except UserError as error:
            why = "; ".join((error.what, *error.details))
        approved = self._records.set_aside(stored.plan_id, why)
        warn_set_aside(stored.plan_id, stored.table_uuid, why, approved)
        return None

    def drop_plan(self, plan_id: str) -> None:
        self._records.drop_plan(plan_id)

    def approve(self, plan_id: str, policy: str) -> None:
        self._records.approve(plan_id, policy)

    def approved(self, plan_id: str, policy: str | None = None) -> bool:
        return self._records.approved(plan_id, policy)

    def cursor(self, source: str) -> str | None:
        return self._records.cursor(source)

    def set_cursor(self, source: str, value: str) -> None:
        self._records.set_cursor(source, value)

    def record_skips(self, table_uuid: str | None, counts: Mapping[str, int]) -> None:
        self._records.record_skips(table_uuid, counts)

    def skips(self, table_uuid: str | None) -> dict[str, int]:
        return self._records.skips(table_uuid)

    def note(self, key: str) -> Any:
        return self._records.note(key)

    def set_note(self, key: str, value: Any) -> None:
        self._records.set_note(key, value)


def _bounds_of(files: FileTable) -> int:
    return len(files) * max(len(files.columns), 1)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _refusals_key(table_uuid: str) -> str:
    """Return the key of the note with a table's refused files."""
    return f"refused:{table_uuid}"


def _row_of(kind: str, reservation: Reservation, body: Any) -> dict[str, Any]:
    return plain_row(
        kind, reservation.plan_id, "", body, reservation.table_uuid, attempt_id=reservation.id
    )


def _since(rows: pa.Table, column: str, oldest_ms: int) -> pa.Table:
    import pyarrow.compute as pc

    return rows.filter(pc.greater_equal(rows.column(column), oldest_ms))
