"""Keeps since when the queries of a table have their present mix, so that an import can tell that a
new one has begun: such a table is decided on at once, not when its next look is due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconciler.queries.forecasts.regime import regime_forecast
from reconciler.queries.rates import WEEK_MS, forecast_rates
from reconciler.queries.shape import Workload

if TYPE_CHECKING:
    from reconciler.state.store import Store


def record_mix(store: Store, table_uuid: str, workload: Workload) -> bool:
    """Note since when the present mix holds; return whether it is another one than before.

    The first queries of a table are a new mix.
    """
    outlook = forecast_rates(workload, WEEK_MS, regime_forecast).outlook
    since = outlook.since_ms if outlook.changes else 0
    before = store.note_as(_key(table_uuid), _known)
    if before == since:
        return False
    store.set_note(_key(table_uuid), {"sinceMs": since})
    return True


def _key(table_uuid: str) -> str:
    return f"mix/{table_uuid}"


def _known(note: Any) -> int:
    """Return the value of a note. Raises if it holds none."""
    return int(note["sinceMs"])
