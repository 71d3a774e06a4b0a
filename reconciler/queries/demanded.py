"""The queries that decisions are judged by: recorded ones, and moving windows at future times.

A fixed query counts as recorded, both in the window and over the horizon. A moving one (`now() - 7
days`) counts as recorded in the window. Over the horizon it is replayed at future times where files
are judged that exist, so that data which it will no longer read saves nothing
(docs/design/decisions.md#judgement-by-future-queries). A layout to declare applies to rows to come
as well: it is judged as if rows kept arriving, so that later windows find as many rows as the last
ones did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from reconciler.queries.demand import Demand
from reconciler.queries.fragments import ShapeBatch, Workload
from reconciler.queries.predicate import Predicate, fields_of
from reconciler.queries.predicate_batch import SlotLiterals
from reconciler.queries.pruning import resolve_moving, simplify
from reconciler.queries.rates import forecast_rates, regime_forecast
from reconciler.table.filetable import Float64, Int64
from reconciler.table.schema import Schema
from reconciler.table.times import DAY_MS

REPLAY_TIMES = 7
"""Most future instants per horizon at which one query of a moving window is evaluated."""

REPLAY_PHASES = 64
"""Places within its share of the horizon at which an instant of a query may lie. They differ from
query to query: a window of one day leaves the files of today within the first of seven days, and
that day must not count as a whole."""

_GOLDEN = 0.6180339887498949
"""Multiples of it, modulo one, cover the unit interval evenly, however many there are."""

MAX_QUERIES = 2_000
"""Maximum distinct queries per table that decisions evaluate; similar ones are merged beyond
that."""


def demands(
    workload: Workload,
    schema: Schema,
    horizon_ms: int,
    expected: Float64 | None = None,
    *,
    keeps_up: bool = False,
) -> tuple[Demand, ...]:
    """Return one Demand per shape, in the workload's order, with equal literals merged.

    expected: float64[queries], executions over the horizon in the order of the shapes; None for the
    regime forecast. keeps_up: the table receives rows as time goes on, so that moving windows count
    at the end of the log, at their own time of day, and not in the future.
    """
    if workload.empty:
        return ()
    lengths = [len(batch) for batch in workload.shapes]
    total = sum(lengths)
    if expected is None:
        expected = forecast_rates(workload, horizon_ms, regime_forecast).executions
    parts = np.split(expected, np.cumsum(lengths)[:-1])
    return tuple(
        _demand(batch, part, workload.until_ms, schema, horizon_ms,
                MAX_QUERIES * len(batch) // total, keeps_up)
        for batch, part in zip(workload.shapes, parts, strict=True)
    )  # fmt: skip


def _demand(
    batch: ShapeBatch,
    executions: Float64,
    until_ms: int,
    schema: Schema,
    horizon_ms: int,
    limit: int,
    keeps_up: bool,
) -> Demand:
    """Return the demand of one shape, with at most `limit` queries, or the few that are needed."""
    moving = _moving_rows(batch)
    recorded = _like(batch, schema, batch.literals, batch.weight, np.where(moving, 0.0, executions))
    if not moving.any():
        return _thin(_merge(recorded), max(8, limit))
    half = max(8, limit // 2)
    rows = np.flatnonzero(moving)
    times = 1 if keeps_up else min(REPLAY_TIMES, max(1, half // len(rows)))
    instants = (
        [until_ms - (until_ms - batch.event_ms) % DAY_MS]
        if keeps_up
        else _instants(batch, rows, times, until_ms, horizon_ms)
    )
    literals = _replayed(batch, rows, instants, schema)
    expected = np.tile(executions[rows] / times, times)
    replayed = _like(batch, schema, literals, np.zeros(len(expected)), expected)
    # Apart: a merged query would take over the executions of one at another time.
    return _joined(_thin(_merge(recorded), half), _thin(_merge(replayed), half))


def _instants(
    batch: ShapeBatch, rows: Int64, times: int, until_ms: int, horizon_ms: int
) -> list[Int64]:
    """Return `times` future instants for each of these queries."""
    phase = np.floor((rows + 0.5) * _GOLDEN % 1.0 * REPLAY_PHASES) + 0.5
    found = []
    for number in range(times):
        at = np.full(len(batch), until_ms, dtype=np.int64)
        place = (number + phase / REPLAY_PHASES) / times
        at[rows] += (place * horizon_ms).astype(np.int64)
        found.append(at)
    return found


def _replayed(
    batch: ShapeBatch, rows: Int64, instants: Sequence[Int64], schema: Schema
) -> tuple[SlotLiterals, ...]:
    """Return the literals of these queries at each instant, one after the other."""
    parts = [
        [_rows(values, rows) for values in resolve_moving(batch, schema, at)] for at in instants
    ]
    return tuple(_join(pieces) for pieces in zip(*parts, strict=True))


def _like(
    batch: ShapeBatch,
    schema: Schema,
    literals: tuple[SlotLiterals, ...],
    weight: Float64,
    executions: Float64,
) -> Demand:
    return Demand(
        shape_id=batch.shape_id,
        predicate=simplify(batch.predicate, schema),
        projection=batch.projection,
        literals=literals,
        weight=weight,
        executions=executions,
        moving=bool(_moving_rows(batch).any()),
        full_scan=batch.full_scan,
    )


def _joined(first: Demand, second: Demand) -> Demand:
    return replace(
        first,
        literals=tuple(
            _join(pieces) for pieces in zip(first.literals, second.literals, strict=True)
        ),
        weight=np.concatenate((first.weight, second.weight)),
        executions=np.concatenate((first.executions, second.executions)),
    )


def _moving_rows(batch: ShapeBatch) -> npt.NDArray[np.bool_]:
    moving = np.zeros(len(batch), dtype=bool)
    for offsets in batch.moving:
        moving |= ~np.isnan(offsets)
    return moving


def _rows(values: SlotLiterals, rows: npt.NDArray[np.int64]) -> SlotLiterals:
    if isinstance(values, np.ndarray):
        return values[rows]
    return tuple(values[int(i)] for i in rows)


def _join(pieces: Sequence[SlotLiterals]) -> SlotLiterals:
    arrays = [p for p in pieces if isinstance(p, np.ndarray)]
    if len(arrays) == len(pieces):
        return np.concatenate(arrays)
    return tuple(row for piece in pieces for row in piece)


def _merge(demand: Demand) -> Demand:
    """Merge queries with equal literals, in the order of their literals."""
    if not demand.literals:
        return Demand(
            demand.shape_id, demand.predicate, demand.projection, (),
            demand.weight.sum(keepdims=True), demand.executions.sum(keepdims=True),
            demand.moving, demand.full_scan,
        )  # fmt: skip
    codes = np.stack([_codes(values) for values in demand.literals])
    _, first, inverse = np.unique(codes, axis=1, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    merged = demand.take(first)
    return Demand(
        merged.shape_id, merged.predicate, merged.projection, merged.literals,
        np.bincount(inverse, demand.weight, len(first)).astype(np.float64),
        np.bincount(inverse, demand.executions, len(first)).astype(np.float64),
        merged.moving, merged.full_scan,
    )  # fmt: skip


def _codes(values: SlotLiterals) -> npt.NDArray[np.int64]:
    if isinstance(values, np.ndarray):
        return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
    distinct = {row: code for code, row in enumerate(sorted(set(values), key=repr))}
    return np.array([distinct[row] for row in values], dtype=np.int64)


def _thin(demand: Demand, limit: int) -> Demand:
    """Keep at most `limit` queries: of each run of neighbours in literal order the heaviest one (of
    equals the middle one), which represents them all."""
    count = len(demand)
    if count <= limit:
        return demand
    run = np.arange(count) * limit // count
    heavy = demand.weight + demand.executions
    middle = (np.bincount(run, np.arange(count), limit) / np.bincount(run, minlength=limit))[run]
    order = np.lexsort((np.abs(np.arange(count) - middle), -heavy, run))
    chosen = order[np.searchsorted(run[order], np.arange(limit))]
    return replace(
        demand.take(chosen),
        weight=np.bincount(run, demand.weight, limit).astype(np.float64),
        executions=np.bincount(run, demand.executions, limit).astype(np.float64),
    )


def predicate_columns(predicate: Predicate, schema: Schema) -> tuple[int, ...]:
    """Return the columns of the predicate that could be a clustering key: those with an ordered
    domain."""
    return tuple(
        field_id
        for field_id in fields_of(predicate)
        if field_id in schema.by_id and schema.by_id[field_id].kind is not None
    )
