"""The queries that decisions are judged by: recorded ones, and moving windows at future times.

A fixed query counts as recorded, both in the window and over the horizon. A moving one (`now() - 7
days`) counts as recorded in the window, and over the horizon it is replayed at future times, so
that data which it will no longer read saves nothing (definitions: Moving literal, Gate; design:
Judgement).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reconciler.queries.fragments import ShapeBatch, Workload
from reconciler.queries.predicate import Predicate, fields_of
from reconciler.queries.predicate_batch import SlotLiterals
from reconciler.queries.pruning import resolve_moving, simplify
from reconciler.queries.read_cost import Demand
from reconciler.table.schema import Schema

REPLAY_TIMES = 7
"""Future instants per horizon at which a moving window is evaluated: one a day by default."""

MAX_QUERIES = 2_000
"""Maximum distinct queries per table that decisions evaluate; similar ones are merged beyond
that."""


def demands(workload: Workload, schema: Schema, horizon_ms: int) -> tuple[Demand, ...]:
    """Return one Demand per shape, in the workload's order, with equal literals merged."""
    if workload.empty:
        return ()
    total = sum(len(batch) for batch in workload.shapes)
    return tuple(
        _thin(
            _merge(_replayed(batch, workload.until_ms, schema, horizon_ms)),
            max(8, MAX_QUERIES * len(batch) // max(total, 1)),
        )
        for batch in workload.shapes
    )


def _replayed(batch: ShapeBatch, until_ms: int, schema: Schema, horizon_ms: int) -> Demand:
    moving = _moving_rows(batch)
    executions = batch.rate * float(horizon_ms)
    parts = [(batch.literals, batch.weight, np.where(moving, 0.0, executions))]
    if moving.any():
        rows = np.flatnonzero(moving)
        for number in range(REPLAY_TIMES):
            at = until_ms + int((number + 0.5) * horizon_ms / REPLAY_TIMES)
            resolved = resolve_moving(batch, schema, at)
            literals = tuple(_rows(values, rows) for values in resolved)
            parts.append((literals, np.zeros(len(rows)), executions[rows] / REPLAY_TIMES))
    return Demand(
        shape_id=batch.shape_id,
        predicate=simplify(batch.predicate, schema),
        projection=batch.projection,
        literals=tuple(
            _join([part[0][slot] for part in parts]) for slot in range(len(batch.literals))
        ),
        weight=np.concatenate([part[1] for part in parts]),
        executions=np.concatenate([part[2] for part in parts]),
        moving=bool(moving.any()),
        full_scan=batch.full_scan,
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
    """Keep at most `limit` queries: the heaviest of each run of neighbours in literal order."""
    count = len(demand)
    if count <= limit:
        return demand
    run = np.arange(count) * limit // count
    weight = np.bincount(run, demand.weight, limit).astype(np.float64)
    executions = np.bincount(run, demand.executions, limit).astype(np.float64)
    heavy = demand.weight + demand.executions
    order = np.lexsort((-heavy, run))
    chosen = order[np.searchsorted(run[order], np.arange(limit))]
    kept = demand.take(chosen)
    return Demand(
        kept.shape_id, kept.predicate, kept.projection, kept.literals, weight, executions,
        kept.moving, kept.full_scan,
    )  # fmt: skip


def predicate_columns(predicate: Predicate, schema: Schema) -> tuple[int, ...]:
    """Return the columns of the predicate that could be a clustering key: those with an ordered
    domain."""
    return tuple(
        field_id
        for field_id in fields_of(predicate)
        if field_id in schema.by_id and schema.by_id[field_id].kind is not None
    )
