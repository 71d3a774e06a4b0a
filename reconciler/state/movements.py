"""Keeps how the literals of recorded queries move with time, for the plans after an import.

An import detects it (`queries.moving_windows`) for the shapes that have other queries than at the
last import. A plan reads what is kept. It detects the movement of a shape itself only if queries of
the shape have changed since, because some expired or an import died.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconciler.queries.calendar import PERIODS, PeriodClock
from reconciler.queries.moving_windows import (
    Movement,
    ShapeMovement,
    StoredMovements,
    detected_movements,
)
from reconciler.queries.shape import Workload
from reconciler.table.schema import Schema

if TYPE_CHECKING:
    from reconciler.state.store import Store


def stored_movements(store: Store, table_uuid: str) -> StoredMovements:
    """Return what the last import found of the table's queries."""
    return store.note_as(_key(table_uuid), _parsed) or {}


def record_movements(store: Store, table_uuid: str, schema: Schema, workload: Workload) -> None:
    """Detect and keep how the shapes of a table move. workload: its recorded queries."""
    before = stored_movements(store, table_uuid)
    found = detected_movements(workload, schema, before)
    if found != before:
        store.set_note(_key(table_uuid), {key: _document(one) for key, one in found.items()})


def _document(one: ShapeMovement) -> list[Any]:
    slots = {}
    for slot, movement in one.movements.items():
        clock = movement.clock
        named = None if clock is None else [clock.period, clock.shift_ms]
        slots[str(slot)] = [named, [list(span) for span in movement.spans]]
    return [one.fingerprint, slots]


def _parsed(note: Any) -> dict[str, ShapeMovement]:
    """Return the value of a note. Raises ValueError, KeyError or TypeError if it holds none."""
    return {
        str(key): ShapeMovement(
            str(fingerprint), {int(slot): _movement(*body) for slot, body in slots.items()}
        )
        for key, (fingerprint, slots) in note.items()
    }


def _movement(clock: Any, spans: Any) -> Movement:
    known = None if clock is None else PeriodClock(_PERIODS[clock[0]], int(clock[1]))
    return Movement(tuple((float(low), float(high)) for low, high in spans), known)


_PERIODS = {str(period): period for period in PERIODS}


def _key(table_uuid: str) -> str:
    """Return the key of the note with the movements of a table's queries."""
    return f"movements:{table_uuid}"
