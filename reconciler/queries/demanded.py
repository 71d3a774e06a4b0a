"""The queries that decisions are judged by: recorded ones, and moving windows at future times.

A fixed query counts as recorded, both in the window and over the horizon. A moving one (`now() - 7
days`) counts as recorded in the window. Over the horizon it is replayed at future times where files
are judged that exist, so that data which it will no longer read saves nothing
(docs/design/decisions.md#judgement-by-future-queries). A layout to declare applies to rows to come
as well: it is judged as if rows kept arriving, so that later windows find as many rows as the last
ones did.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from reconciler.queries.forecasts.chosen import chosen_forecast
from reconciler.queries.moving_literals import resolve_moving
from reconciler.queries.predicate import Predicate, bounded_fields_of
from reconciler.queries.predicate_batch import SlotLiterals
from reconciler.queries.pruning import simplify
from reconciler.queries.rates import forecast_rates
from reconciler.queries.shape import Shape, Workload, merge
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
) -> tuple[Shape, ...]:
    """Return each shape with its expected executions, queries of equal literals merged.

    expected: float64[queries], executions over the horizon in the order of the shapes; None for
    `chosen_forecast`. keeps_up: whether the table is judged as if it received rows as time goes on.
    Moving windows then count at the end of the log, at their own time of day, and not in the
    future.
    """
    if workload.empty:
        return ()
    lengths = [len(shape) for shape in workload.shapes]
    total = sum(lengths)
    if expected is None:
        expected = forecast_rates(workload, horizon_ms, chosen_forecast).executions
    parts = np.split(expected, np.cumsum(lengths)[:-1])
    return tuple(
        _demand(shape, part, workload.until_ms, schema, horizon_ms,
                MAX_QUERIES * len(shape) // total, keeps_up)
        for shape, part in zip(workload.shapes, parts, strict=True)
    )  # fmt: skip


def recorded(workload: Workload, schema: Schema) -> tuple[Shape, ...]:
    """Return the queries of each shape by which a reading of the window is measured: those that
    `demands` has with a weight. Nothing is expected of them, and nothing is forecast."""
    nothing = np.zeros(sum(map(len, workload.shapes)))
    return demands(workload, schema, 0, nothing)


def _demand(
    shape: Shape,
    executions: Float64,
    until_ms: int,
    schema: Schema,
    horizon_ms: int,
    limit: int,
    keeps_up: bool,
) -> Shape:
    """Return one shape with its expected executions, with about `limit` queries at most."""
    shape = replace(shape, predicate=simplify(shape.predicate, schema))
    moving = shape.moves
    past = replace(shape, executions=np.where(moving, 0.0, executions))
    if not moving.any():
        return _thin(_distinct(past), max(8, limit))
    half = max(8, limit // 2)
    if not executions[moving].any():
        return _thin(_distinct(past), half)
    rows = np.flatnonzero(moving)
    times = 1 if keeps_up else min(REPLAY_TIMES, max(1, half // len(rows)))
    instants = (
        [until_ms - (until_ms - shape.event_ms) % DAY_MS]
        if keeps_up
        else _instants(shape, rows, times, until_ms, horizon_ms)
    )
    replayed = merge([_replayed(shape, rows, at, schema) for at in instants])
    expected = np.tile(executions[rows] / times, times)
    replayed = replace(replayed, weight=np.zeros(len(expected)), executions=expected)
    # Apart: a merged query would take over the executions of one at another time.
    return merge([_thin(_distinct(past), half), _thin(_distinct(replayed), half)])


def _instants(shape: Shape, rows: Int64, times: int, until_ms: int, horizon_ms: int) -> list[Int64]:
    """Return `times` future instants for each of these queries."""
    phase = np.floor((rows + 0.5) * _GOLDEN % 1.0 * REPLAY_PHASES) + 0.5
    found = []
    for number in range(times):
        at = np.full(len(shape), until_ms, dtype=np.int64)
        place = (number + phase / REPLAY_PHASES) / times
        at[rows] += (place * horizon_ms).astype(np.int64)
        found.append(at)
    return found


def _replayed(shape: Shape, rows: Int64, at_ms: Int64, schema: Schema) -> Shape:
    """Return these queries as they would be at another time."""
    return replace(shape, literals=resolve_moving(shape, schema, at_ms), event_ms=at_ms).take(rows)


def _distinct(shape: Shape) -> Shape:
    """Return queries with equal literals as one, in the order of their literals."""
    if not shape.literals:
        return replace(
            shape.take(slice(0, 1)),
            weight=shape.weight.sum(keepdims=True),
            executions=shape.executions.sum(keepdims=True),
        )
    codes = np.stack([_codes(values) for values in shape.literals])
    _, first, inverse = np.unique(codes, axis=1, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    return replace(
        shape.take(first),
        weight=np.bincount(inverse, shape.weight, len(first)).astype(np.float64),
        executions=np.bincount(inverse, shape.executions, len(first)).astype(np.float64),
    )


def _codes(values: SlotLiterals) -> npt.NDArray[np.int64]:
    if isinstance(values, np.ndarray):
        return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
    distinct = {row: code for code, row in enumerate(sorted(set(values), key=repr))}
    return np.array([distinct[row] for row in values], dtype=np.int64)


def _thin(shape: Shape, limit: int) -> Shape:
    """Keep at most `limit` queries: of each run of neighbours in literal order the heaviest one (of
    equals the middle one), which represents them all.

    Of recorded queries it is the one with the most recorded executions: a reading that is measured
    later must pick the same one, whatever is expected then.
    """
    count = len(shape)
    if count <= limit:
        return shape
    run = np.arange(count) * limit // count
    heavy = shape.weight if shape.weight.any() else shape.executions
    middle = (np.bincount(run, np.arange(count), limit) / np.bincount(run, minlength=limit))[run]
    order = np.lexsort((np.abs(np.arange(count) - middle), -heavy, run))
    chosen = order[np.searchsorted(run[order], np.arange(limit))]
    return replace(
        shape.take(chosen),
        weight=np.bincount(run, shape.weight, limit).astype(np.float64),
        executions=np.bincount(run, shape.executions, limit).astype(np.float64),
    )


def predicate_columns(predicate: Predicate, schema: Schema) -> tuple[int, ...]:
    """Return the columns of the predicate that could be a clustering key: those with an ordered
    domain, and a condition that bounds may rule out."""
    return tuple(
        field_id
        for field_id in bounded_fields_of(predicate)
        if field_id in schema.by_id and schema.by_id[field_id].kind is not None
    )
