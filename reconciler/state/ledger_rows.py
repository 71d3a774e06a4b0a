"""The rows of the ledger: written from typed values, and read as such or not at all.

A row is read back before it is stored. One that cannot be read, of another release or forged, is
named in a warning and left out. What it may have spent is unknown, so that it counts as everything
against the budgets of its table, and of no other.
"""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from reconciler.errors import InternalError, StateError, first_line
from reconciler.plan.execution import Intent, Outcome
from reconciler.plan.ledger import ReadCheck, Reservation
from reconciler.plan.prediction import Prediction
from reconciler.state.table_columns import Columns
from reconciler.state.typed_body import typed
from reconciler.table.filetable import FileTable
from reconciler.table.times import DAY_MS, HOUR_MS

log = logging.getLogger(__name__)

INTENT, OUTCOME, PREDICTION, READ_CHECK, INPUTS, WRITTEN, RESERVED, SETTLED, ENDED = (
    "intent", "outcome", "prediction", "read-check", "inputs", "written", "reserved", "settled",
    "ended",
)  # fmt: skip
USED_CPU = "used_cpu_seconds"
"""Field of a reservation that only its settlement records."""
ENDED_MS = "ended_ms"
"""Field of a reservation that only a later row records, by its own time."""

EVERYTHING = 2**62
"""Bytes and CPU seconds that an unreadable row counts as: more than any budget allows."""

WRITER_MS = DAY_MS
"""For so long a writer of an unreadable intent may still send its commit: it renews its lease every
20 s, and no request of it lives as long."""

_LAST_MS = 250_000_000_000_000
"""In the year 9892: later times have no date."""

Row = Mapping[str, Any]


def row_of_intent(kind: str, intent: Intent, action_id: str, value: Any) -> dict[str, Any]:
    """Return the row of one value of an attempt."""
    body = value if isinstance(value, dict) else asdict(value)
    row = plain_row(kind, intent.plan_id, action_id, body, intent.table_uuid)
    return checked({**row, "attempt_id": intent.attempt_id, "batch": intent.batch})


def plain_row(
    kind: str,
    plan_id: str,
    action_id: str,
    body: Any,
    table_uuid: str = "",
    attempt_id: str = "",
) -> dict[str, Any]:
    """Return the row of a value that belongs to no commit batch."""
    return checked(
        {
            "kind": kind,
            "table_uuid": table_uuid,
            "plan_id": plan_id,
            "attempt_id": attempt_id,
            "batch": 0,
            "action_id": action_id,
            "at_ms": int(time.time() * 1000),
            "body": json.dumps(body, separators=(",", ":")),
            "blob": None,
        }
    )


def checked(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row, if it can be read back. Raises InternalError before it is stored."""
    try:
        _parsed(row)
    except (ValueError, RecursionError) as error:
        raise InternalError(
            f"a row of the ledger ({row['kind']}) cannot be read back, so it was not stored",
            details=(first_line(error),),
            do="report this with the detail above",
        ) from error
    return row


def at_of(row: Row) -> int:
    """Return when a row was recorded, within the time that a calendar has."""
    return max(0, min(int(row["at_ms"]), _LAST_MS))


def value_of(row: Row) -> Any:
    """Return the value of a row, None with a warning if it cannot be read."""
    try:
        return _parsed(row)
    except (ValueError, RecursionError) as error:
        _warn_once(row["kind"], row["table_uuid"], row["at_ms"], first_line(error))
        return None


def _parsed(row: Row) -> Any:
    """Return the typed value of a row. Raises ValueError or RecursionError if it is not ours."""
    value = _READERS[row["kind"]](json.loads(row["body"]))
    for name in _CHARGED:
        if getattr(value, name, 0) < -1:  # UNKNOWN, in thousandths or whole
            raise ValueError(f"{name} is negative")
    return value


_CHARGED = ("read_bytes", "cpu_seconds", "rewrite_bytes", USED_CPU)
"""Fields that count against budgets. A negative one would give back what was spent."""


def _prediction(body: Any) -> Prediction:
    if not isinstance(body, dict):
        raise ValueError("it is not an object")
    return Prediction.from_document(body)


def _used(body: Any) -> float:
    """Return the CPU seconds of a settlement."""
    used = body.get(USED_CPU, 0.0) if isinstance(body, dict) else None
    if not isinstance(used, int | float) or not 0.0 <= used < EVERYTHING:
        raise ValueError(f"{USED_CPU} is {str(used)[:80]!r}")
    return float(used)


_READERS: Mapping[str, Callable[[Any], Any]] = {
    INTENT: functools.partial(typed, Intent),
    OUTCOME: functools.partial(typed, Outcome),
    PREDICTION: _prediction,
    READ_CHECK: functools.partial(typed, ReadCheck),
    INPUTS: lambda body: body,
    WRITTEN: lambda body: body,
    RESERVED: functools.partial(typed, Reservation),
    SETTLED: _used,
    ENDED: lambda body: body,
}


@functools.lru_cache(maxsize=4096)
def _warn_once(kind: str, table_uuid: str, at_ms: int, why: str) -> None:
    """An operator reads the same row at each look."""
    log.warning(
        "a row of the ledger (%s) of table %s cannot be read and counts as everything that its "
        "budgets allow: %s", kind, table_uuid or "-", why,
    )  # fmt: skip


def reservations_of(rows: Sequence[Row]) -> tuple[Reservation, ...]:
    """Return every reservation, in the order of the rows (RESERVED, SETTLED, ENDED, OUTCOME).

    One that was recorded again, for repeated work, counts with the most of both, as of its first
    row. One that cannot be read counts as EVERYTHING; so does an outcome, beside its reservation.
    """
    settled = {
        row["attempt_id"]: used
        for row in rows
        if row["kind"] == SETTLED and (used := value_of(row)) is not None
    }
    ended = {row["attempt_id"]: at_of(row) for row in rows if row["kind"] in (SETTLED, ENDED)}
    found: dict[tuple[str, str], Reservation] = {}
    for row in rows:
        if row["kind"] == RESERVED:
            held = replace(value_of(row) or _everything(row), at_ms=at_of(row))
            number = row["attempt_id"]
            key = row["table_uuid"], number
            first = found.get(key, held)
            found[key] = replace(
                first, id=number, table_uuid=row["table_uuid"], plan_id=row["plan_id"],
                rewrite_bytes=max(first.rewrite_bytes, held.rewrite_bytes),
                cpu_seconds=max(first.cpu_seconds, held.cpu_seconds),
                at_ms=min(first.at_ms, held.at_ms), settled=number in settled,
                used_cpu_seconds=settled.get(number, 0.0), ended_ms=ended.get(number),
            )  # fmt: skip
        elif row["kind"] == OUTCOME and value_of(row) is None:
            unreadable = _everything(row)
            found[row["table_uuid"], unreadable.id] = unreadable
    return tuple(found.values())


def _everything(row: Row) -> Reservation:
    """Return what an unreadable row counts as. It is of no plan: no outcome accounts for it."""
    return Reservation(
        id=f"unreadable {row['attempt_id']} {row['batch']} {row['action_id']}",
        table_uuid=row["table_uuid"], plan_id="", policy="", at_ms=at_of(row),
        rewrite_bytes=EVERYTHING, cpu_seconds=float(EVERYTHING),
    )  # fmt: skip


def intent_of(row: Row) -> Intent | None:
    """Return the intent of a row that has no outcome; None for an unreadable one that is so old
    that its writer is gone.

    Raises StateError for a younger one: what it writes is not known, so the table waits.
    """
    found: Intent | None = value_of(row)
    left = at_of(row) + WRITER_MS - int(time.time() * 1000)
    if found is None and left > 0:
        raise StateError(
            f"an attempt at plan {row['plan_id']} is recorded in a form that cannot be read",
            details=(
                f"It is attempt {row['attempt_id']} on table {row['table_uuid']}.",
                f"Its writer may still commit; in {left // HOUR_MS + 1} h that is over.",
            ),
            do="wait, or use the release of layoutctl that recorded it",
        )
    return found


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


def bounds_of(files: FileTable) -> int:
    return len(files) * max(len(files.columns), 1)


def row_of(kind: str, reservation: Reservation, body: Any) -> dict[str, Any]:
    return plain_row(
        kind, reservation.plan_id, "", body, reservation.table_uuid, attempt_id=reservation.id
    )
