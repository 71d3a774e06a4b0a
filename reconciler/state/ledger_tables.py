"""The ledger in tables: what was intended, done, predicted and reserved."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from reconciler.plan.execution import UNKNOWN_OUTCOME, Intent, Outcome
from reconciler.plan.ledger import LedgerEntry, ReadCheck, Reservation
from reconciler.plan.prediction import Prediction
from reconciler.state.blobs import files_to_blob, readable_files
from reconciler.state.ledger_rows import (
    ENDED,
    ENDED_MS,
    HEAVY_KINDS,
    INPUTS,
    INTENT,
    LEDGER,
    LEDGER_FIELDS,
    MOST_BOUNDS,
    OUTCOME,
    PREDICTION,
    READ_CHECK,
    RESERVED,
    SETTLED,
    USED_CPU,
    WRITTEN,
    at_of,
    bounds_of,
    intent_of,
    plain_row,
    reservations_of,
    row_of,
    row_of_intent,
    value_of,
)
from reconciler.state.state_tables import StateTables, matching
from reconciler.table.filetable import FileTable


class LedgerTables:
    """Implements plan.execution.Ledger by Iceberg tables of any backend."""

    heavy_table = "ledger"
    """Table of intents and zone maps: large rows that are read only by table."""

    _tables: StateTables

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
        body = {k: v for k, v in asdict(reservation).items() if k not in (USED_CPU, ENDED_MS)}
        self._record([row_of(RESERVED, reservation, body)])

    def settle(self, reservation: Reservation) -> None:
        """Settle a reservation: from now on only the recorded outcomes count, and what it used
        beside them."""
        used = {USED_CPU: reservation.used_cpu_seconds} if reservation.used_cpu_seconds else {}
        self._record([row_of(SETTLED, reservation, used)])

    def end_run(self, reservation: Reservation) -> None:
        """Record that the run of an open reservation has ended: it counts as of now, and in full,
        because what it did without an outcome is not known."""
        self._record([row_of(ENDED, reservation, {})])

    def reservations(self, table_uuid: str | None = None) -> tuple[Reservation, ...]:
        """Return every reservation of one table or of all, oldest first, and what unreadable rows
        count as."""
        return reservations_of(self._ledger(table_uuid, (RESERVED, SETTLED, ENDED, OUTCOME)))

    def record_predictions(self, plan_id: str, predicted: Mapping[str, Prediction]) -> None:
        """Store what a plan predicts of its actions, by action id."""
        self._record(
            [plain_row(PREDICTION, plan_id, key, one.document()) for key, one in predicted.items()]
        )

    def record_read_check(self, table_uuid: str, check: ReadCheck) -> None:
        self._record([plain_row(READ_CHECK, check.plan_id, "", asdict(check), table_uuid)])

    def read_checks(self, table_uuid: str) -> tuple[ReadCheck, ...]:
        found = map(value_of, self._ledger(table_uuid, (READ_CHECK,)))
        return tuple(check for check in found if check is not None)

    def record_old_zone_maps(self, plan_id: str, inputs: Iterable[tuple[str, FileTable]]) -> None:
        """Store the inputs of a plan's actions as they were, to measure their savings later.

        inputs: by action id. Nothing is stored of those with no file, or with more than MOST_BOUNDS
        bounds, and no commit has more.
        """
        rows, held = list[dict[str, Any]](), 0
        for key, files in inputs:
            bounds = bounds_of(files)
            if not len(files) or bounds > MOST_BOUNDS:
                continue
            if held + bounds > MOST_BOUNDS:
                self._record(rows)
                rows, held = [], 0
            row = plain_row(INPUTS, plan_id, key, {"files": len(files)})
            rows.append({**row, "blob": files_to_blob(files)})
            held += bounds
        self._record(rows)

    def old_zone_maps(self, plan_id: str, action_id: str) -> FileTable | None:
        """Return the inputs of an action before it ran, without delete load."""
        where = matching({"kind": INPUTS, "plan_id": plan_id, "action_id": action_id})
        found = self._tables.scan(self.heavy_table, where, ("at_ms", "blob"))
        if found is None or not found.num_rows:
            return None
        return readable_files(found.sort_by("at_ms").column("blob")[-1].as_py())

    def old_zone_maps_of(self, plan_ids: Collection[str]) -> dict[tuple[str, str], FileTable]:
        """Return the inputs of the plans' actions before they ran, by plan and action id."""
        where = matching({"kind": INPUTS, "plan_id": tuple(sorted(plan_ids))})
        columns = ("plan_id", "action_id", "at_ms", "blob")
        found = self._tables.scan(self.heavy_table, where, columns) if plan_ids else None
        rows = [] if found is None else found.sort_by("at_ms").to_pylist()
        latest = {(row["plan_id"], row["action_id"]): row["blob"] for row in rows}
        readable = ((key, readable_files(blob)) for key, blob in latest.items())
        return {key: files for key, files in readable if files is not None}

    def record_written(self, intent: Intent, files: FileTable) -> None:
        """Store the data files that a commit batch added, to measure its savings later; nothing if
        they have more than MOST_BOUNDS bounds."""
        if bounds_of(files) <= MOST_BOUNDS:
            row = row_of_intent(WRITTEN, intent, "", {"files": len(files)})
            self._record([{**row, "blob": files_to_blob(files)}])

    def written_zone_maps(self, table_uuid: str) -> dict[tuple[str, int], tuple[int, FileTable]]:
        """Return the data files that commit batches added, by attempt and batch, each with the
        time at which they were recorded first."""
        where = matching({"kind": WRITTEN, "table_uuid": table_uuid})
        columns = ("attempt_id", "batch", "at_ms", "blob")
        found = self._tables.scan(self.heavy_table, where, columns)
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
        found = self._tables.scan("ledger", matching(equal), LEDGER_FIELDS)
        return [] if found is None else found.sort_by("at_ms").to_pylist()
