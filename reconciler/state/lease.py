"""The lease: one attempt per table at a time on this machine
(docs/design/definitions.md#lease).

A row in the state directory's SQLite file, changed by compare-and-set in one transaction. It is
taken over only if it has expired, or if its process is known to be dead: same boot, same process
namespace, and no process with that id and start time. Between hosts the ownership claim in the
table's properties is the guard.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reconciler.errors import BlockedError
from reconciler.plan.execution import DeadRun
from reconciler.state.records import Records

TTL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """What tells a process from every other one, now and later."""

    host: str
    """Name of the host and the process namespace."""
    boot_id: str
    """Id of this boot of the host; "" if unknown."""
    pid: int
    """Process id."""
    started: str
    """Start time of the process in the kernel's own unit; it differs when a process id is
    reused."""


def this_process() -> ProcessIdentity:
    pid = os.getpid()
    return ProcessIdentity(_host(), _boot_id(), pid, _start_time(pid) or "")


def is_dead(process: ProcessIdentity) -> bool:
    """Return True only if the process is known to be gone; False if that cannot be seen from
    here."""
    if not process.boot_id or (process.host, process.boot_id) != (_host(), _boot_id()):
        return False
    return _start_time(process.pid) != process.started


def _host() -> str:
    """Return host and namespace: process ids are meaningful only in one namespace (containers share
    a boot)."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return f"{socket.gethostname()} {namespace}".strip()


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return _command("sysctl", "-n", "kern.boottime")


def _start_time(pid: int) -> str | None:
    """Return the start time of a living process, None without one. A zombie counts as dead."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
        return _command("ps", "-o", "lstart=", "-p", str(pid)) or None
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()  # the command may contain blanks and brackets
    return None if state in "ZX" else rest[18]


def _command(*arguments: str) -> str:
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


class SqliteLease:
    """Implements plan.execution.Lease. One object holds at most one table's lease."""

    def __init__(self, records: Records, clock: Callable[[], float] = time.time):
        self._records = records
        self._clock = clock
        self._token = uuid.uuid4().hex
        self._table = ""

    def acquire(self, table_uuid: str, attempt_id: str) -> None:
        """Take the lease for an attempt; the holder itself may take it for its next attempt."""
        me, now = this_process(), self._clock()
        with self._records.transaction() as db:
            row = db.execute(
                "SELECT token, attempt_id, host, boot_id, pid, started, expires FROM leases "
                "WHERE table_uuid = ?",
                (table_uuid,),
            ).fetchone()
            if row is not None and row[0] != self._token:
                holder = ProcessIdentity(*row[2:6])
                if row[6] > now and not is_dead(holder):
                    raise _held(row[1], holder, row[6] - now)
            db.execute(
                "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (table_uuid, self._token, attempt_id, me.host, me.boot_id, me.pid, me.started,
                 now + TTL_SECONDS),
            )  # fmt: skip
            db.execute(
                "INSERT OR REPLACE INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?)",
                (table_uuid, attempt_id, me.host, me.boot_id, me.pid, me.started, now),
            )
            db.execute(
                "UPDATE runs SET begun = 1 WHERE table_uuid = ? AND host = ? AND boot_id = ? "
                "AND pid = ? AND started = ?",
                (table_uuid, me.host, me.boot_id, me.pid, me.started),
            )
        self._table = table_uuid

    def renew(self) -> None:
        with self._records.transaction() as db:
            changed = db.execute(
                "UPDATE leases SET expires = ? WHERE table_uuid = ? AND token = ?",
                (self._clock() + TTL_SECONDS, self._table, self._token),
            ).rowcount
        if not changed:
            raise BlockedError(
                "the lease on the table was lost: another apply took it over",
                details=("this process did not renew it for a minute (suspended or overloaded)",),
                do="run apply again; it continues with what is left",
            )

    def release(self) -> None:
        with self._records.transaction() as db:
            db.execute(
                "DELETE FROM leases WHERE table_uuid = ? AND token = ?", (self._table, self._token)
            )

    def writer_is_dead(self, table_uuid: str, attempt_id: str) -> bool:
        with self._records.transaction() as db:
            row = db.execute(
                "SELECT host, boot_id, pid, started FROM attempts "
                "WHERE table_uuid = ? AND attempt_id = ?",
                (table_uuid, attempt_id),
            ).fetchone()
        return row is not None and is_dead(ProcessIdentity(*row))

    def enter(self, table_uuid: str, reservation: str) -> None:
        me = this_process()
        with self._records.transaction() as db:
            db.execute(
                "INSERT OR IGNORE INTO runs VALUES (?, ?, ?, ?, ?, ?, 0)",
                (table_uuid, reservation, me.host, me.boot_id, me.pid, me.started),
            )

    def leave(self, table_uuid: str, reservation: str) -> None:
        with self._records.transaction() as db:
            db.execute(
                "DELETE FROM runs WHERE table_uuid = ? AND reservation = ?",
                (table_uuid, reservation),
            )

    def dead_runs(self, table_uuid: str) -> tuple[DeadRun, ...]:
        with self._records.transaction() as db:
            rows = db.execute(
                "SELECT reservation, begun, host, boot_id, pid, started FROM runs "
                "WHERE table_uuid = ?",
                (table_uuid,),
            ).fetchall()
        return tuple(
            DeadRun(row[0], bool(row[1])) for row in rows if is_dead(ProcessIdentity(*row[2:]))
        )


def _held(attempt_id: str, holder: ProcessIdentity, seconds: float) -> BlockedError:
    return BlockedError(
        "another apply is working on this table",
        details=(
            f"attempt {attempt_id}, process {holder.pid} on {holder.host.split(' ')[0]}",
            f"its lease ends in {seconds:.0f} s unless it is renewed",
        ),
        do="wait for it to end, then run apply again",
    )
