"""The SQLite part of the state: leases, attempts, runs, plans, cursors, skip counts, small values.

Short transactions on one file in the state directory, each on a connection of its own, so that
threads and processes may share the file and a process may die at any moment.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.errors import StateError, UserError, first_line

log = logging.getLogger(__name__)

LOCK_WAIT_SECONDS = 30.0
MOST_SET_ASIDE = 20
"""Plans that could not be read and are kept for diagnosis; older ones are deleted."""
MOST_BODY = 1 << 20
"""Bytes that are kept of each."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS leases (
  table_uuid TEXT PRIMARY KEY, token TEXT NOT NULL, attempt_id TEXT NOT NULL, host TEXT NOT NULL,
  boot_id TEXT NOT NULL, pid INTEGER NOT NULL, started TEXT NOT NULL, expires REAL NOT NULL);
CREATE TABLE IF NOT EXISTS attempts (
  table_uuid TEXT NOT NULL, attempt_id TEXT NOT NULL, host TEXT NOT NULL, boot_id TEXT NOT NULL,
  pid INTEGER NOT NULL, started TEXT NOT NULL, at REAL NOT NULL,
  PRIMARY KEY (table_uuid, attempt_id));
CREATE TABLE IF NOT EXISTS runs (
  table_uuid TEXT NOT NULL, reservation TEXT NOT NULL, host TEXT NOT NULL, boot_id TEXT NOT NULL,
  pid INTEGER NOT NULL, started TEXT NOT NULL, begun INTEGER NOT NULL,
  PRIMARY KEY (table_uuid, reservation));
CREATE TABLE IF NOT EXISTS plans (
  plan_id TEXT PRIMARY KEY, table_uuid TEXT NOT NULL, policy_hash TEXT NOT NULL,
  stored_at REAL NOT NULL, approved_at REAL, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS plans_by_table ON plans (table_uuid, policy_hash, stored_at);
CREATE TABLE IF NOT EXISTS approvals (
  plan_id TEXT NOT NULL, policy TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (plan_id, policy));
CREATE TABLE IF NOT EXISTS set_aside (
  at REAL NOT NULL, plan_id TEXT NOT NULL, table_uuid TEXT NOT NULL, why TEXT NOT NULL,
  body BLOB);
CREATE TABLE IF NOT EXISTS cursors (source TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS skips (
  table_uuid TEXT NOT NULL, reason TEXT NOT NULL, count INTEGER NOT NULL,
  PRIMARY KEY (table_uuid, reason));
CREATE TABLE IF NOT EXISTS notes (key TEXT PRIMARY KEY, body TEXT NOT NULL);
"""


_STORED = "plan_id, table_uuid, policy_hash, body"


@dataclass(frozen=True, slots=True)
class StoredText:
    """A stored plan as its row has it, before its text was read."""

    plan_id: str
    """Id of the plan."""
    table_uuid: str
    """UUID of its table."""
    policy_hash: str
    """Hash of the policy that it was made under."""
    body: str | bytes
    """The document of the plan."""


def note_value(text: str | bytes, key: str) -> Any:
    """Return the JSON value of a note, None with a warning if it is none: notes are measurements,
    which are made again."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        log.warning('the note "%s" of the state is not used: %s', key, first_line(error))
        return None


class Records:
    """The state directory's SQLite file, created on first use."""

    def __init__(self, path: Path):
        self.path = path
        self._ready = False

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One write transaction: all of it or nothing, one process at a time."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            connection = sqlite3.connect(self.path, timeout=LOCK_WAIT_SECONDS, isolation_level=None)
        except (OSError, sqlite3.OperationalError) as error:
            raise _unusable(self.path, error) from error
        try:
            if not self._ready:
                connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
                self._ready = True
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                if connection.in_transaction:  # a full disk may have ended it
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise _unusable(self.path, error) from error
        finally:
            connection.close()

    def put_plan(self, plan_id: str, table_uuid: str, policy_hash: str, text: str) -> None:
        """Store a frozen plan; an approval that it already has is kept."""
        with self.transaction() as db:
            db.execute(
                "INSERT INTO plans VALUES (?, ?, ?, ?, NULL, ?) ON CONFLICT (plan_id) "
                "DO UPDATE SET body = excluded.body, stored_at = excluded.stored_at",
                (plan_id, table_uuid, policy_hash, time.time(), text),
            )

    def get_plan(self, plan_id: str) -> StoredText | None:
        return self._plan("plan_id = ?", (plan_id,))

    def standing_plan(self, table_uuid: str, policy_hash: str) -> StoredText | None:
        """Return the plan proposed last for the table under the policy.

        Whether it is still valid is judged from the table (plan.standing.judge).
        """
        return self._plan("table_uuid = ? AND policy_hash = ?", (table_uuid, policy_hash))

    def standing_plans(self, table_uuid: str) -> list[StoredText]:
        """Return the plan proposed last for the table under each policy."""
        with self.transaction() as db:
            rows = db.execute(
                f"SELECT {_STORED} FROM plans WHERE table_uuid = ? ORDER BY stored_at, rowid",
                (table_uuid,),
            ).fetchall()
        return list({row[2]: StoredText(*row) for row in rows}.values())

    def _plan(self, where: str, values: tuple[str, ...]) -> StoredText | None:
        query = f"SELECT {_STORED} FROM plans WHERE {where}"
        with self.transaction() as db:
            row = db.execute(
                f"{query} ORDER BY stored_at DESC, rowid DESC LIMIT 1", values
            ).fetchone()
        return None if row is None else StoredText(*row)

    def set_aside(self, plan_id: str, why: str) -> bool:
        """Keep a plan that cannot be read for diagnosis only; return whether it was approved.

        Its approvals are deleted: nobody can say what they were given for.
        """
        with self.transaction() as db:
            approved = db.execute(
                "SELECT approved_at FROM plans WHERE plan_id = ?", (plan_id,)
            ).fetchone()
            db.execute(
                "INSERT INTO set_aside SELECT ?, plan_id, table_uuid, ?, "
                "substr(CAST(body AS BLOB), 1, ?) FROM plans WHERE plan_id = ?",
                (time.time(), why, MOST_BODY, plan_id),
            )
            db.execute(
                "DELETE FROM set_aside WHERE rowid NOT IN "
                "(SELECT rowid FROM set_aside ORDER BY at DESC, rowid DESC LIMIT ?)",
                (MOST_SET_ASIDE,),
            )
            db.execute("DELETE FROM plans WHERE plan_id = ?", (plan_id,))
            db.execute("DELETE FROM approvals WHERE plan_id = ?", (plan_id,))
        return approved is not None and approved[0] is not None

    def approve(self, plan_id: str, policy: str) -> None:
        with self.transaction() as db:
            changed = db.execute(
                "UPDATE plans SET approved_at = COALESCE(approved_at, ?) WHERE plan_id = ?",
                (time.time(), plan_id),
            ).rowcount
            if changed:
                db.execute(
                    "INSERT OR IGNORE INTO approvals VALUES (?, ?, ?)",
                    (plan_id, policy, time.time()),
                )
        if not changed:
            raise UserError(
                f"plan {plan_id} is not known here",
                details=("plans are kept where they were made",),
                do="make it with layoutctl plan, or apply the plan's file",
            )

    def approved(self, plan_id: str, policy: str | None = None) -> bool:
        """Return whether the plan is approved. policy: under which it was approved; None: under
        any."""
        query, values = "SELECT approved_at FROM plans WHERE plan_id = ?", [plan_id]
        if policy is not None:
            query = "SELECT at FROM approvals WHERE plan_id = ? AND policy = ?"
            values.append(policy)
        with self.transaction() as db:
            row = db.execute(query, values).fetchone()
        return row is not None and row[0] is not None

    def cursor(self, source: str) -> str | None:
        with self.transaction() as db:
            row = db.execute("SELECT value FROM cursors WHERE source = ?", (source,)).fetchone()
        return str(row[0]) if row else None

    def set_cursor(self, source: str, value: str) -> None:
        with self.transaction() as db:
            db.execute("INSERT OR REPLACE INTO cursors VALUES (?, ?)", (source, value))

    def record_skips(self, table_uuid: str | None, counts: Mapping[str, int]) -> None:
        """Add to the counts of a table; None counts lines that name no known table."""
        with self.transaction() as db:
            db.executemany(
                "INSERT INTO skips VALUES (?, ?, ?) ON CONFLICT (table_uuid, reason) "
                "DO UPDATE SET count = count + excluded.count",
                [(table_uuid or "", reason, count) for reason, count in counts.items()],
            )

    def skips(self, table_uuid: str | None) -> dict[str, int]:
        with self.transaction() as db:
            rows = db.execute(
                "SELECT reason, count FROM skips WHERE table_uuid = ? ORDER BY reason",
                (table_uuid or "",),
            ).fetchall()
        return dict(rows)

    def note(self, key: str) -> Any:
        """Return the small JSON value of a key, None if there is none."""
        with self.transaction() as db:
            row = db.execute("SELECT body FROM notes WHERE key = ?", (key,)).fetchone()
        return None if row is None else note_value(row[0], key)

    def set_note(self, key: str, value: Any) -> None:
        with self.transaction() as db:
            db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (key, json.dumps(value)))


def _unusable(path: Path, error: Exception) -> StateError:
    return StateError(
        f"the state in {path.parent} cannot be used",
        details=(f"{type(error).__name__}: {error}",),
        do="make the directory writable, or point LAYOUTCTL_STATE to another one",
    )
