"""How much history counts as evidence: WAIR's adaptive window (section 4.2).

The savings that the W queries before an event promised are compared with what the W queries after
it really saved: more, and the window doubles; less, and it halves. It is clamped so that neither a
burst nor a long calm makes decisions deaf.
"""

from __future__ import annotations

import numpy as np

from reconciler.core.workload import ShapeBatch, Workload

MIN_WINDOW = 16
MAX_WINDOW = 512


def next_window(window: int, predicted: float, actual: float) -> int:
    """The window after W more queries; predicted and actual savings over equal numbers of them."""
    wanted = window * 2 if actual > predicted else window // 2
    return max(MIN_WINDOW, min(MAX_WINDOW, wanted))


def recent(workload: Workload, window: int) -> Workload:
    """The workload of the last `window` queries by event time, their rates unchanged."""
    if workload.empty:
        return workload
    times = np.concatenate([batch.event_ms for batch in workload.shapes])
    if len(times) <= window:
        return workload
    since = int(np.sort(times)[-window])
    shapes = tuple(_since(batch, since) for batch in workload.shapes)
    return Workload(
        tuple(batch for batch in shapes if len(batch)), since, workload.until_ms, workload.skipped
    )


def _since(batch: ShapeBatch, since: int) -> ShapeBatch:
    rows = np.flatnonzero(batch.event_ms >= since)
    return ShapeBatch(
        shape_id=batch.shape_id,
        predicate=batch.predicate,
        projection=batch.projection,
        literals=tuple(
            values[rows] if isinstance(values, np.ndarray) else tuple(values[i] for i in rows)
            for values in batch.literals
        ),
        moving=tuple(offsets[rows] for offsets in batch.moving),
        weight=batch.weight[rows],
        rate=batch.rate[rows],
        event_ms=batch.event_ms[rows],
        recorded_bytes=batch.recorded_bytes[rows],
        duration_ms=batch.duration_ms[rows],
        full_scan=batch.full_scan,
    )
