"""A table's recorded queries as a document: its shapes, how often they run, what they explain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconciler.render.workload_text import STALE_DAYS
from reconciler.table.times import DAY_MS

if TYPE_CHECKING:
    from reconciler.api.catalog_config import CatalogConfig
    from reconciler.queries.coverage import Coverage
    from reconciler.queries.shape import Shape, Workload
    from reconciler.state.store import Store
    from reconciler.table.observation import Observation


def table_document(
    store: Store,
    config: CatalogConfig,
    identifier: tuple[str, ...],
    show_literals: bool,
    timeout: float,
    tolerant: bool,
) -> dict[str, Any]:
    """Return a table's document. tolerant: a table that is gone is an entry, not an error."""
    from reconciler.cli.shared import local_actor
    from reconciler.errors import UserError
    from reconciler.loop.ports import Target
    from reconciler.queries.moving_windows import with_movement
    from reconciler.queries.shape import workload_of
    from reconciler.state.movements import movements
    from reconciler.table.observation import quoted_name

    name = quoted_name((config.name, *identifier))
    try:
        seen: Observation = local_actor(timeout).observe(Target(config, identifier))
    except UserError as error:
        if not tolerant:
            raise
        return {"table": name, "error": error.what, "shapes": []}
    workload = with_movement(
        workload_of(store.shapes(seen.uuid), tuple(sorted(store.skips(seen.uuid).items()))),
        seen.schema,
        movements(store, seen.uuid),
    )
    return {"table": name, **_recorded(workload, seen, show_literals)}


def _recorded(workload: Workload, seen: Observation, show_literals: bool) -> dict[str, Any]:
    """Return what is known of the queries of a table that the catalog has."""
    from reconciler.format import utc
    from reconciler.queries.coverage import coverage

    found: Coverage = coverage(workload, seen.files)
    rates = _rates_per_day(workload)
    shapes = sorted(workload.shapes, key=lambda b: (-float(b.weight.sum()), b.shape_id))
    return {
        "queries": workload.queries,
        "recorded": sum(len(batch) for batch in workload.shapes),
        "since": None if workload.empty else utc(workload.since_ms),
        "until": None if workload.empty else utc(workload.until_ms),
        "stale": _stale(workload),
        "coveragePercent": int(found.share * 100),
        "coverageBasis": found.basis,
        "skipped": dict(workload.skipped),
        "shapes": [
            _shape(batch, rates[batch.shape_id, batch.full_scan], workload, seen, show_literals)
            for batch in shapes
        ],
    }


def _rates_per_day(workload: Workload) -> dict[tuple[str, bool], float]:
    """Return the forecast executions a day, by shape id and whether it is a full scan."""
    import numpy as np

    from reconciler.advisor.advice import HORIZON_MS
    from reconciler.queries.forecasts.chosen import chosen_forecast
    from reconciler.queries.rates import forecast_rates

    expected = forecast_rates(workload, HORIZON_MS, chosen_forecast).executions
    parts = np.split(expected, np.cumsum([len(batch) for batch in workload.shapes])[:-1])
    return {
        (batch.shape_id, batch.full_scan): float(part.sum()) * DAY_MS / HORIZON_MS
        for batch, part in zip(workload.shapes, parts, strict=False)
    }


def _stale(workload: Workload) -> bool:
    """Whether Automatic approval waits for newer queries."""
    import time

    return not workload.empty and time.time() * 1000 - workload.until_ms > STALE_DAYS * DAY_MS


def _shape(
    batch: Shape,
    rate_per_day: float,
    workload: Workload,
    seen: Observation,
    show_literals: bool,
) -> dict[str, Any]:
    import numpy as np

    from reconciler.format import utc
    from reconciler.queries.predicate import TRUE, render

    recorded = batch.recorded_bytes[np.isfinite(batch.recorded_bytes)]
    values = _latest_literals(batch) if show_literals and batch.unbound is None else None
    predicate = batch.predicate if batch.unbound is None else batch.unbound
    text = "no filter" if predicate == TRUE else render(predicate, seen.schema, values)
    if batch.full_scan:
        text = "not understood: counts as a full scan"
    return {
        "shape": batch.shape_id,
        "condition": text,
        "moving": batch.moving,
        "valuesUnknown": batch.unbound is not None,
        "fullScan": batch.full_scan,
        "columns": [seen.schema.name_of(field_id) for field_id in batch.projection],
        "columnSets": len(batch.column_sets),
        "columnsMean": round(sum(batch.projection.values()), 2),
        "weight": float(batch.weight.sum()),
        "recorded": len(batch),
        "sharePercent": round(100 * float(batch.weight.sum()) / max(workload.queries, 1e-9), 1),
        "ratePerDay": round(rate_per_day, 3),
        "lastSeen": utc(int(batch.event_ms.max())),
        "recordedBytesMean": int(recorded.mean()) if len(recorded) else None,
    }


def _latest_literals(batch: Shape) -> list[Any]:
    last = int(batch.event_ms.argmax())
    return [
        values[last] if isinstance(values, tuple) else values[last].item()
        for values in batch.literals
    ]
