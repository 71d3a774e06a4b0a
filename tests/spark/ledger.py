"""A ledger and a lease in one SQLite file, for tests of the executor alone."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from reconciler.engines.schedule import processes
from reconciler.errors import BlockedError
from reconciler.plan.execution import ATTEMPT_CLOSED, UNKNOWN_OUTCOME, Intent, Outcome
from reconciler.table.refusals import Refusal


class FileLedger:
    """Intents and outcomes as JSON rows. refused: by table, as recorded."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.refused: dict[str, list[Refusal]] = {}
        with self._open() as db:
            db.execute("CREATE TABLE IF NOT EXISTS intent (attempt, batch, body)")
            db.execute("CREATE TABLE IF NOT EXISTS outcome (attempt, batch, state, body)")

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30)

    def record_intent(self, intent: Intent) -> None:
        with self._open() as db:
            row = (intent.attempt_id, intent.batch, json.dumps(asdict(intent)))
            db.execute("INSERT INTO intent VALUES (?, ?, ?)", row)

    def record_outcomes(self, intent: Intent, outcomes: tuple[Outcome, ...]) -> None:
        with self._open() as db:
            for o in outcomes:
                row = (o.attempt_id, o.batch, o.state, json.dumps(asdict(o)))
                db.execute("INSERT INTO outcome VALUES (?, ?, ?, ?)", row)

    def open_intents(self, table_uuid: str) -> tuple[Intent, ...]:
        with self._open() as db:
            rows = db.execute(
                "SELECT body FROM intent i WHERE NOT EXISTS (SELECT 1 FROM outcome o WHERE "
                "o.attempt = i.attempt AND o.batch = i.batch AND o.state <> ?)",
                (UNKNOWN_OUTCOME,),
            ).fetchall()
        intents = (Intent(**{k: _tuples(v) for k, v in json.loads(r[0]).items()}) for r in rows)
        return tuple(intent for intent in intents if intent.table_uuid == table_uuid)

    def outputs_of(self, table_uuid: str) -> frozenset[str]:
        with self._open() as db:
            rows = db.execute("SELECT body FROM intent").fetchall()
        intents = [json.loads(row[0]) for row in rows]
        return frozenset(
            path for one in intents if one["table_uuid"] == table_uuid for path in one["outputs"]
        )

    def record_refusals(self, table_uuid: str, found: Iterable[Refusal]) -> None:
        self.refused.setdefault(table_uuid, []).extend(found)

    def outcomes(self) -> list[Outcome]:
        """All but those that close an attempt, in order."""
        with self._open() as db:
            rows = db.execute("SELECT body FROM outcome ORDER BY rowid").fetchall()
        found = [Outcome(**json.loads(row[0])) for row in rows]
        return [outcome for outcome in found if outcome.state != ATTEMPT_CLOSED]


def _tuples(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


class FileLease:
    """Compare-and-set on one row per table; a holder that died is passed over."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mine: tuple[str, str] | None = None
        with self._open() as db:
            db.execute("CREATE TABLE IF NOT EXISTS lease (uuid PRIMARY KEY, attempt, writer)")

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30, isolation_level="IMMEDIATE")

    def acquire(self, table_uuid: str, attempt_id: str) -> None:
        with self._open() as db:
            row = db.execute("SELECT writer FROM lease WHERE uuid = ?", (table_uuid,)).fetchone()
            if row is not None and not processes.is_dead(row[0]):
                raise BlockedError("another attempt holds the lease")
            writer = processes.own_identity(None)
            db.execute("REPLACE INTO lease VALUES (?, ?, ?)", (table_uuid, attempt_id, writer))
        self._mine = (table_uuid, attempt_id)

    def renew(self) -> None:
        with self._open() as db:
            row = db.execute("SELECT 1 FROM lease WHERE (uuid, attempt) = (?, ?)", self._mine)
            if row.fetchone() is None:
                raise BlockedError("the lease was lost")

    def release(self) -> None:
        with self._open() as db:
            db.execute("DELETE FROM lease WHERE (uuid, attempt) = (?, ?)", self._mine)

    def writer_is_dead(self, table_uuid: str, attempt_id: str) -> bool:
        return False
