"""The adaptive window of Liu, Zhou, Yan and Zhang ("Workload-Aware Incremental Reclustering in
Cloud Data Warehouses", section 4.2) as a forecast: the last W queries come again.

After each W queries the paper compares the savings that the W queries before them promised with
what these brought: more, and the window doubles; otherwise it halves. Here a layout is taken to
serve each kind of query in proportion to its share p in the window. Then p . p was promised, and
p . q came, for the shares q of the next window. The paper names no least or greatest window.
"""

from __future__ import annotations

import numpy as np

from reconciler.queries.rates import Forecast, Outlook, RateHistory, last_at, recent_executions
from reconciler.table.filetable import Float64, Int64

LEAST_QUERIES, MOST_QUERIES = 16, 512
"""Executions of the smallest and of the largest window; a log begins with the smallest."""

REMEMBERED = 4 * MOST_QUERIES
"""Executions at the end of the log from which the size follows: enough for any size."""


def next_window(window: int, promised: float, came: float) -> int:
    """Return the size of the next window (section 4.2). A window that brought what was promised to
    the last bit, as where all queries are alike, was stable too."""
    if came >= promised:
        return min(2 * window, MOST_QUERIES)
    return max(window // 2, LEAST_QUERIES)


def window_size(group: Int64, weight: Float64, event_ms: Int64) -> int:
    """Return the window after these queries, in executions.

    group: int64[queries], the kind of each, from 0, in the order of time. weight: float64[queries].
    event_ms: int64[queries], ascending. Queries of one instant have no order: no window ends
    among them.
    """
    passed = np.cumsum(weight)
    last = last_at(event_ms)
    first = int(np.searchsorted(passed[last], passed[-1] - REMEMBERED)) if len(group) else 0
    size, start, before = LEAST_QUERIES, first, float(passed[first - 1]) if first else 0.0
    promised: Float64 | None = None
    groups = int(group.max()) + 1 if len(group) else 0
    while len(group) and passed[-1] - before >= size:
        end = int(last[passed.searchsorted(before + size)]) + 1
        counts = np.bincount(group[start:end], weight[start:end], groups)
        mix = counts / counts.sum()
        if promised is not None:
            size = next_window(size, float(promised @ promised), float(promised @ mix))
        start, before, promised = end, float(passed[end - 1]), mix
    return size


def in_window(history: RateHistory) -> Float64:
    """Return the executions of each query that are in the window at the end, float64[queries].

    The window holds whole instants: of the earliest one all queries, or none.
    """
    order = np.lexsort((history.group, history.event_ms))
    weight, event_ms = history.weight[order], history.event_ms[order]
    size = window_size(history.group[order], weight, event_ms)
    passed = np.cumsum(weight)
    behind = passed[-1] - passed[last_at(event_ms)]
    inside = np.zeros(len(weight))
    inside[order] = np.where(behind < size, weight, 0.0)
    return inside


def window_forecast(history: RateHistory, horizon_ms: int) -> Forecast:
    """Return the mix of the last W executions, at the present rate of all queries together."""
    inside = in_window(history)
    mixture = inside / max(float(inside.sum()), 1e-300)
    return Forecast(recent_executions(history, horizon_ms) * mixture, _outlook(history, inside))


def window_once(history: RateHistory, horizon_ms: int) -> Forecast:
    """Return the last W executions once more, as the paper counts savings; there is no horizon."""
    inside = in_window(history)
    return Forecast(inside, _outlook(history, inside))


def _outlook(history: RateHistory, inside: Float64) -> Outlook:
    since = int(history.event_ms[inside > 0.0].min())
    return Outlook("window", since, history.until_ms, float(history.length_ms.mean()))
