"""Keeps the mix of a table's queries as the last import found it.

The next import compares its queries with that mix. If decisions did not expect these queries, the
table is planned at once and not when its next look is due.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.queries.forecasts.regime import regime_forecast
from reconciler.queries.rates import WEEK_MS, forecast_rates
from reconciler.queries.shape import Workload

if TYPE_CHECKING:
    from reconciler.state.store import Store


@dataclass(frozen=True, slots=True)
class Mix:
    """What decisions expect to go on."""

    since_ms: int
    """When the present mix of queries began, in epoch milliseconds; 0 if it never changed."""
    busiest: float
    """Executions of the busiest bucket of the log: what unattended plans hold back is for as many
    (docs/design/no-harm.md, assumption A1)."""

    def surprises(self, before: Mix | None) -> bool:
        """Whether this is another mix, or of more executions. The first queries are."""
        return before is None or self.since_ms != before.since_ms or self.busiest > before.busiest


def mix_of(workload: Workload) -> Mix:
    """Return the present mix of these queries."""
    outlook = forecast_rates(workload, WEEK_MS, regime_forecast).outlook
    return Mix(outlook.since_ms if outlook.changes else 0, outlook.busiest)


def record_mix(store: Store, table_uuid: str, workload: Workload) -> bool:
    """Note the present mix; return whether decisions did not expect it."""
    found = mix_of(workload)
    before = store.note_as(_key(table_uuid), _known)
    if found != before:
        store.set_note(_key(table_uuid), {"sinceMs": found.since_ms, "busiest": found.busiest})
    return found.surprises(before)


def _key(table_uuid: str) -> str:
    return f"mix/{table_uuid}"


def _known(note: Any) -> Mix:
    """Return the value of a note; one of before counts no executions. Raises if it holds none."""
    return Mix(int(note["sinceMs"]), float(note.get("busiest", 0.0)))
