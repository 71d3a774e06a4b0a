"""A table's recorded queries as a document: its shapes, how often they run, what they explain."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from reconciler.table.times import DAY_MS

if TYPE_CHECKING:
    from reconciler.loop.ports import RecordedQueries, Target
    from reconciler.loop.reader import Reader
    from reconciler.queries.shape import Shape, Workload
    from reconciler.table.observation import Observation


def table_document(
    reader: Reader, target: Target, show_literals: bool, tolerant: bool
) -> dict[str, Any]:
    """Return a table's document. tolerant: a table that is gone is an entry, not an error."""
    from reconciler.errors import UserError
    from reconciler.table.observation import quoted_name

    try:
        seen = reader.observe(target)
    except UserError as error:
        if not tolerant:
            raise
        name = quoted_name((target.catalog.name, *target.identifier))
        return {"table": name, "error": error.what, "shapes": []}
    return {"table": seen.name, **_recorded(reader.recorded_queries(seen), seen, show_literals)}


def _recorded(found: RecordedQueries, seen: Observation, show_literals: bool) -> dict[str, Any]:
    """Return what is known of the queries of a table that the catalog has."""
    from reconciler.format import utc

    workload = found.workload
    shapes = zip(workload.shapes, _rates_per_day(workload), strict=True)
    heaviest = sorted(shapes, key=lambda one: (-float(one[0].weight.sum()), one[0].shape_id))
    return {
        "queries": workload.queries,
        "recorded": sum(len(shape) for shape in workload.shapes),
        "since": None if workload.empty else utc(workload.since_ms),
        "until": None if workload.empty else utc(workload.until_ms),
        "stale": workload.stale(int(time.time() * 1000)),
        "coveragePercent": int(found.coverage.share * 100),
        "coverageBasis": found.coverage.basis,
        "skipped": dict(workload.skipped),
        "shapes": [_shape(shape, rate, workload, seen, show_literals) for shape, rate in heaviest],
    }


def _rates_per_day(workload: Workload) -> list[float]:
    """Return the forecast executions a day of each shape."""
    import numpy as np

    from reconciler.advisor.advice import HORIZON_MS
    from reconciler.queries.forecasts.chosen import chosen_forecast
    from reconciler.queries.rates import forecast_rates

    expected = forecast_rates(workload, HORIZON_MS, chosen_forecast).executions
    ends = np.cumsum([len(shape) for shape in workload.shapes], dtype=np.int64)
    parts = np.split(expected, ends)[: len(workload.shapes)]
    return [float(part.sum()) * DAY_MS / HORIZON_MS for part in parts]


def _shape(
    shape: Shape,
    rate_per_day: float,
    workload: Workload,
    seen: Observation,
    show_literals: bool,
) -> dict[str, Any]:
    import numpy as np

    from reconciler.format import utc
    from reconciler.queries.shape_text import condition_text

    recorded = shape.recorded_bytes[np.isfinite(shape.recorded_bytes)]
    return {
        "shape": shape.shape_id,
        "condition": condition_text(shape, seen.schema, show_literals=show_literals),
        "moving": shape.moving,
        "valuesUnknown": shape.unbound is not None,
        "fullScan": shape.full_scan,
        "columns": [seen.schema.name_of(field_id) for field_id in shape.projection],
        "columnSets": len(shape.column_sets),
        "columnsMean": round(sum(shape.projection.values()), 2),
        "weight": float(shape.weight.sum()),
        "recorded": len(shape),
        "sharePercent": round(100 * float(shape.weight.sum()) / max(workload.queries, 1e-9), 1),
        "ratePerDay": round(rate_per_day, 3),
        "lastSeen": utc(int(shape.event_ms.max())),
        "recordedBytesMean": int(recorded.mean()) if len(recorded) else None,
    }
