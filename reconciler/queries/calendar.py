"""Times cut to the hour, day, week or month. All times are epoch milliseconds, UTC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from reconciler.table.filetable import Int64
from reconciler.table.times import DAY_MS, HOUR_MS

Period = Literal["hour", "day", "week", "month"]
PERIODS: tuple[Period, ...] = ("hour", "day", "week", "month")

_FIRST_MONDAY_MS = 4 * DAY_MS
"""The epoch was a Thursday: weeks are counted from the Monday after it."""
_FIXED: dict[Period, tuple[int, int]] = {
    "hour": (HOUR_MS, 0),
    "day": (DAY_MS, 0),
    "week": (7 * DAY_MS, _FIRST_MONDAY_MS),
}
"""Length and origin."""


@dataclass(frozen=True, slots=True)
class PeriodClock:
    """A clock that stands at the start of a period."""

    period: Period
    """The period."""
    shift_ms: int = 0
    """Milliseconds by which the period starts later than in UTC (local midnight, Sunday as the
    first day of the week); 0 for months."""

    def number(self, at_ms: Int64) -> Int64:
        """Return the number of the period that holds each time; consecutive ones differ by 1."""
        if self.period == "month":
            return at_ms.astype("datetime64[ms]").astype("datetime64[M]").astype(np.int64)
        length, origin = _FIXED[self.period]
        return (at_ms - self.shift_ms - origin) // length

    def start(self, number: Int64) -> Int64:
        """Return the first millisecond of each numbered period."""
        if self.period == "month":
            return number.astype("datetime64[M]").astype("datetime64[ms]").astype(np.int64)
        length, origin = _FIXED[self.period]
        return number * length + origin + self.shift_ms


def clock_of(period: Period, times_ms: Int64) -> PeriodClock:
    """Return the clock at whose starts most of the times lie. times_ms must not be empty."""
    if period == "month":
        return PeriodClock(period)
    length, origin = _FIXED[period]
    shifts, counts = np.unique((times_ms - origin) % length, return_counts=True)
    return PeriodClock(period, int(shifts[np.argmax(counts)]))
