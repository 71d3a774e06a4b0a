"""Keeps how long openings of a table's data files took, and the price that follows from them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from reconciler.queries.open_price import (
    KEPT_OPENINGS,
    PRESET,
    Opening,
    OpenPrice,
    measured_price,
)

if TYPE_CHECKING:
    from reconciler.state.state import Store


def open_price(store: Store, table_uuid: str) -> OpenPrice:
    """Return the price of opening a file of the table: the one measured last, else the preset."""
    known = store.note(_key(table_uuid))
    return OpenPrice(**known["price"]) if known else PRESET


def record_openings(store: Store, table_uuid: str, openings: Iterable[Opening]) -> None:
    """Add openings to those known of the table, and measure its price again."""
    fresh = [[round(1e6 * o.opened), round(1e6 * o.read), o.bytes, o.chunks] for o in openings]
    if not fresh:
        return
    known = store.note(_key(table_uuid)) or {"openings": [], "price": PRESET.document()}
    kept = [*known["openings"], *fresh][-KEPT_OPENINGS:]
    seen = [Opening(opened / 1e6, read / 1e6, size, chunks) for opened, read, size, chunks in kept]
    price = measured_price(seen, OpenPrice(**known["price"]), int(time.time() * 1000))
    store.set_note(_key(table_uuid), {"openings": kept, "price": price.document()})


def _key(table_uuid: str) -> str:
    """Return the key of the note with a table's openings, in whole microseconds."""
    return f"openings:{table_uuid}"
