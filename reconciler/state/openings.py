"""Keeps how long openings of a table's data files took, and the price that follows from them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from reconciler.queries.open_price import (
    KEPT_OPENINGS,
    PRESET,
    Opening,
    OpenPrice,
    measured_price,
)
from reconciler.state.typed_body import typed

if TYPE_CHECKING:
    from reconciler.state.store import Store


def open_price(store: Store, table_uuid: str) -> OpenPrice:
    """Return the price of opening a file of the table: the one measured last, else the preset."""
    return store.note_as(_key(table_uuid), lambda note: typed(OpenPrice, note["price"])) or PRESET


def record_openings(store: Store, table_uuid: str, openings: Iterable[Opening]) -> None:
    """Add openings to those known of the table, and measure its price again."""
    fresh = [[round(1e6 * o.opened), round(1e6 * o.read), o.bytes, o.chunks] for o in openings]
    if not fresh:
        return
    known = store.note_as(_key(table_uuid), _openings) or []
    kept = [*known, *fresh][-KEPT_OPENINGS:]
    seen = [Opening(opened / 1e6, read / 1e6, size, chunks) for opened, read, size, chunks in kept]
    price = measured_price(seen, open_price(store, table_uuid), int(time.time() * 1000))
    store.set_note(_key(table_uuid), {"openings": kept, "price": price.document()})


def _openings(note: Any) -> list[list[int]]:
    """Return the openings of a note. Raises ValueError or TypeError if they are none."""
    return [[int(number) for number in (a, b, c, d)] for a, b, c, d in note["openings"]]


def _key(table_uuid: str) -> str:
    """Return the key of the note with a table's openings, in whole microseconds."""
    return f"openings:{table_uuid}"
