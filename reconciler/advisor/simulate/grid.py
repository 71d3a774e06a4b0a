"""Simulates one arrangement of rows in many sizes of files and row groups at once.

PTO labels hundreds of candidates, most of which differ only in their sizes (section 3.2.5). The
rows are arranged once per partition spec and ordering (`arranged`); every size then only cuts them
elsewhere. `simulate` answers the same question for one layout of a decision, with replicates.

A range of few sampled rows is narrower than that of all rows, most of all in the best layouts, so
each range is widened, in ranks among the sample's distinct values, by span / (r - 1) at both ends,
where r is the number of sampled rows in it: the estimator of the German tank problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reconciler.advisor.simulate.arrangement import (
    Arrangement,
    Pieces,
    Sizes,
    Slices,
    cut,
)
from reconciler.advisor.simulate.missing import NAN, NULL, TELLING
from reconciler.advisor.simulate.pool import PoolColumn
from reconciler.queries.demand import Demand
from reconciler.queries.predicate import fields_of
from reconciler.queries.pruning import Partitions, may_match
from reconciler.queries.table_view import type_width
from reconciler.table.filetable import UNKNOWN, ColumnBounds, Float64, Int64

Int32 = npt.NDArray[np.int32]

CELLS = 8_000_000
"""Queries x row groups pruned at once: bounds the memory, does not change the result."""


@dataclass(frozen=True)
class Readings:
    """What queries read, per size and demand; all float64[sizes, demands].

    window: bytes in the recorded window. bytes: over the horizon. files: opened over the horizon.
    groups, skipped: row groups read, and not read in opened files, over the horizon. opened: files
    in the recorded window.
    """

    window: Float64
    bytes: Float64
    files: Float64
    groups: Float64
    skipped: Float64
    opened: Float64


@dataclass(frozen=True)
class Grid:
    """Readings of every size, and the files and row groups that it has, float64[sizes].

    sampled_rows: of the smallest row groups (their 10th percentile), float64[sizes].
    bytes_written: stored bytes, float64[sizes].
    """

    readings: Readings
    files: Float64
    row_groups: Float64
    sampled_rows: Float64
    bytes_written: Float64


def simulate_sizes(
    rows: Arrangement, sizes: Sequence[Sizes], demands: Sequence[Demand], *, widening: float = 1.0
) -> Grid:
    """Return what each size reads. widening: multiple of the correction for the sample's ranges; 0
    takes them as they are, which is too optimistic."""
    made = cut(rows, sizes)
    fields = sorted({f for d in demands for f in fields_of(d.predicate)} & set(rows.pool.columns))
    bounds = {field: _bounds(rows, made, field, widening) for field in fields}
    partitions = _partitions(rows)
    shape = (len(sizes), len(demands))
    out = [np.zeros(shape) for _ in range(6)]
    page_rows = np.array([size.page_rows for size in sizes])[made.groups.size]
    opened_groups = np.bincount(made.owner, weights=made.groups.stands_for)
    per_file = opened_groups / made.files.stands_for
    for column, demand in enumerate(demands):
        of_groups = _expected(rows, demand, made.groups, {f: b[0] for f, b in bounds.items()},
                              partitions)  # fmt: skip
        of_files = _expected(rows, demand, made.files, {f: b[1] for f, b in bounds.items()},
                             partitions)  # fmt: skip
        width = _projected(rows, demand, made.groups, page_rows)
        read = width * made.groups.records
        files = of_files * made.files.stands_for
        groups = of_groups * made.groups.stands_for
        per_size = [
            np.bincount(made.groups.size, weights, len(sizes))
            for weights in (of_groups[0] * read, of_groups[1] * read, groups[1])
        ]
        counted = [
            np.bincount(made.files.size, weights, len(sizes))
            for weights in (files[1], files[1] * per_file, files[0])
        ]
        out[0][:, column], out[1][:, column] = per_size[0], per_size[1]
        out[2][:, column], out[3][:, column] = counted[0], per_size[2]
        out[4][:, column] = np.maximum(counted[1] - per_size[2], 0.0)
        out[5][:, column] = counted[2]
    return Grid(
        Readings(*out),
        _counts(made.files, len(sizes)),
        _counts(made.groups, len(sizes)),
        made.smallest,
        np.array([rows.bytes_per_row(size.row_group_bytes, size.page_rows) for size in sizes])
        * float(rows.cumulative[-1]),
    )


def _counts(slices: Slices, sizes: int) -> Float64:
    return np.bincount(slices.size, slices.stands_for, sizes).astype(np.float64)


def _partitions(rows: Arrangement) -> Partitions | None:
    spec = rows.target.spec
    if spec.unpartitioned:
        return None
    values = tuple((spec.spec_id, value) for value in rows.target.values)
    schema = rows.pool.files.schema
    return Partitions(schema, {spec.spec_id: spec}, values, np.zeros(0, dtype=np.int64))


def _expected(
    rows: Arrangement,
    demand: Demand,
    slices: Slices,
    columns: Mapping[int, ColumnBounds],
    partitions: Partitions | None,
) -> Float64:
    """Return how often each slice is read: in the window, and over the horizon, float64[2, n]."""
    weights = np.stack((demand.weight, demand.executions)).astype(np.float32)
    total = np.zeros((2, len(slices.starts)))
    if not demand.prunable:
        return total + weights.sum(axis=1, dtype=np.float64)[:, None]
    numbers = rows.target.number[rows.order[slices.starts]]
    placed = (
        None
        if partitions is None
        else Partitions(partitions.schema, partitions.specs, partitions.values, numbers)
    )
    records = np.maximum(np.rint(slices.records), 1).astype(np.int64)
    step = max(1, CELLS // max(len(records), 1))
    for start in range(0, len(demand), step):
        block = slice(start, min(start + step, len(demand)))
        part = demand.take(block)
        alive = may_match(
            part.predicate, part.literals, columns, records, partitions=placed,
            schema=rows.pool.files.schema, queries=len(part),
        )  # fmt: skip
        for kind in (0, 1):
            wanted = np.flatnonzero(weights[kind, block])
            if len(wanted):
                # Without BLAS, whose threads spin for many times the work of such matrices.
                total[kind] += np.einsum("q,qf->f", weights[kind, block][wanted], alive[wanted])
    return total


def _bounds(
    rows: Arrangement, made: Pieces, field: int, widening: float
) -> tuple[ColumnBounds, ColumnBounds]:
    """Return the zone maps of the row groups and of the files of every size."""
    column, ranks = rows.pool.columns[field], rows.ranks[field]
    top = len(column.distinct)
    edges, at = np.unique(made.groups.starts, return_inverse=True)
    low = np.minimum.reduceat(np.where(ranks < 0, top, ranks), edges)
    high = np.maximum.reduceat(ranks, edges)
    counted = None
    if not column.missing.only_values:
        counted = np.stack([_counted(rows, column, kind, edges) for kind in (NULL, NAN)])
    # Edges are those of all sizes together: a row group of one size spans several of them.
    first = at.reshape(-1)
    last = np.searchsorted(edges, made.groups.starts + made.groups.rows)
    spans = np.stack((first, np.minimum(last, len(edges)))).T.reshape(-1)
    groups = _reduced(low, high, counted, spans)
    starts = np.flatnonzero(np.diff(made.owner, prepend=-1))
    files = (
        np.minimum.reduceat(groups[0], starts),
        np.maximum.reduceat(groups[1], starts),
        None if groups[2] is None else np.add.reduceat(groups[2], starts, axis=1),
    )
    return (
        _zone_map(rows, column, field, made.groups, groups, widening, in_files=False),
        _zone_map(rows, column, field, made.files, files, widening, in_files=True),
    )


_Reduced = tuple[Int32, Int32, Float64 | None]


def _reduced(low: Int32, high: Int32, counted: Float64 | None, spans: Int64) -> _Reduced:
    """Reduce over [first, last) pairs; reduceat needs every index inside, so one is appended."""
    low = np.append(low, np.iinfo(np.int32).max).astype(np.int32)
    high = np.append(high, -1).astype(np.int32)
    sums = None
    if counted is not None:
        padded = np.concatenate((counted, np.zeros((2, 1))), axis=1)
        sums = np.add.reduceat(padded, spans, axis=1)[:, ::2]
    return np.minimum.reduceat(low, spans)[::2], np.maximum.reduceat(high, spans)[::2], sums


def _counted(rows: Arrangement, column: PoolColumn, kind: int, edges: Int64) -> Float64:
    weight = rows.pool.weight * (column.missing.of == kind)
    return np.add.reduceat(weight[rows.order], edges)


def _zone_map(
    rows: Arrangement,
    column: PoolColumn,
    field: int,
    slices: Slices,
    reduced: _Reduced,
    widening: float,
    *,
    in_files: bool,
) -> ColumnBounds:
    counted, top = reduced[2], len(column.distinct)
    present = reduced[1] >= 0
    low = np.minimum(reduced[0].astype(np.int64), max(top - 1, 0))
    high = np.maximum(reduced[1].astype(np.int64), 0)
    lead = rows.ordering.lead
    if widening and lead is not None and lead.field_id == field:
        low, high = _to_neighbours(rows, field, slices, low, high)
    elif widening:
        each = np.maximum(slices.rows / slices.stands_for - 1.0, 1.0)
        span = np.maximum(high - low, 0)  # below 0 in a slice of NULLs alone
        wide = np.rint(widening * span / each).astype(np.int64)
        low, high = np.maximum(low - wide, 0), np.minimum(high + wide, max(top - 1, 0))
    lower, upper = column.distinct[low], column.distinct[high]
    if column.least is not None:
        lower = _at_end(lower, low == 0, column.least)
    if column.greatest is not None:
        upper = _at_end(upper, high >= top - 1, column.greatest)
    records = np.maximum(np.rint(slices.records), 1).astype(np.int64)
    nulls, nans = _missing(column, slices, counted, records, present, in_files=in_files)
    count = len(low)
    return ColumnBounds(
        field, column.kind, lower, upper, present, present.copy(), nulls, nans, records,
        np.full(count, UNKNOWN, dtype=np.int64), np.zeros(count, dtype=bool),
    )  # fmt: skip


def _at_end(values: npt.NDArray[np.generic], where: npt.NDArray[np.bool_], exact: object) -> (
    npt.NDArray[np.generic]
):  # fmt: skip
    bound = np.asarray(exact)
    return np.where(where, bound, values.astype(np.promote_types(values.dtype, bound.dtype)))


def _to_neighbours(
    rows: Arrangement, field: int, slices: Slices, low: Int64, high: Int64
) -> tuple[Int64, Int64]:
    """In key order no gap is wider than to the next sampled value of the same partition."""
    ranks, number = rows.ranks[field], rows.target.number[rows.order]
    ends = slices.starts + slices.rows
    before, after = np.maximum(slices.starts - 1, 0), np.minimum(ends, len(ranks) - 1)
    mine = number[slices.starts]
    lower, upper = ranks[before], ranks[after]
    use_low = (number[before] == mine) & (lower >= 0) & (lower < low)
    use_high = (number[after] == mine) & (upper > high)
    return np.where(use_low, lower, low), np.where(use_high, upper, high)


def _missing(
    column: PoolColumn,
    slices: Slices,
    counted: Float64 | None,
    records: Int64,
    present: npt.NDArray[np.bool_],
    *,
    in_files: bool,
) -> tuple[Int64, Int64]:
    """Return the NULL and NaN counts. A class of which too few rows are expected in a slice to see
    one may be there although none was sampled; Parquet footers have no NaN counts."""
    if counted is None:
        none = np.zeros(len(records), dtype=np.int64)
        return none, none
    found = []
    for kind, seen in zip((NULL, NAN), counted, strict=True):
        share = float((column.missing.of == kind).mean())
        possible = bool(column.missing.possible[kind].any())
        unseen = (seen == 0) & possible & (share * slices.rows < TELLING) & present
        number = np.where(unseen, 1, np.rint(seen)).astype(np.int64)
        number = np.minimum(np.maximum(number, (seen > 0).astype(np.int64)), records)
        found.append(np.where(present, np.minimum(number, np.maximum(records - 1, 1)), number))
    nulls, nans = found
    nulls = np.where(~present & (nans == 0), records, nulls)
    if not in_files:
        nans = np.where(nans == 0, 0, UNKNOWN)
    return nulls.astype(np.int64), nans.astype(np.int64)


def _projected(rows: Arrangement, demand: Demand, slices: Slices, page_rows: Int64) -> Float64:
    """Return the bytes per row of the projection, per slice. page_rows: of each slice."""
    schema, whole = rows.pool.files.schema, max(rows.stored)
    every = max(sum(type_width(field.type) for field in schema.fields), 1)

    def total(widths: Mapping[int, float]) -> float:
        known = (
            share * widths.get(f, whole * type_width(schema.by_id[f].type) / every)
            for f, share in demand.projection.items()
            if f in schema.by_id
        )
        return min(sum(known), whole) if demand.projection else 0.0

    each = slices.records / slices.stands_for
    columns = sum(share for f, share in demand.projection.items() if f in rows.known[0].widths)
    return rows.between(each, page_rows, [total(known.widths) for known in rows.known], columns)
