"""Finds the zone maps of simulated files and row groups: their bounds, and whether they may hold
NULL or NaN."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from reconciler.advisor.simulate.arrangement import Arrangement, Pieces, Slices, reduced
from reconciler.advisor.simulate.leaves import LeafLimits, leaf_limits
from reconciler.advisor.simulate.missing import NAN, NULL, between, counts, held
from reconciler.advisor.simulate.pool import PoolColumn
from reconciler.table.filetable import UNKNOWN, Array, Bool, ColumnBounds, Float64, Int64


def zone_maps(
    rows: Arrangement, made: Pieces, field: int, widening: float = 1.0
) -> tuple[ColumnBounds, ColumnBounds]:
    """Return the bounds of a column in the files, and in the row groups.

    A range of few sampled rows is narrower than that of all rows, most of all in the best layouts.
    So each is widened, in ranks among the sample's distinct values, by span / (r - 1) at both ends,
    where r is the number of sampled rows in it: the estimator of the German tank problem. widening:
    multiple of that; 0 takes ranges as they are. In key order no gap is wider than to the next
    sampled value, and no rows of a tree's leaf are beyond its cuts. Parquet has no NaN counts, so
    row groups have only those of files without NaN.
    """
    column, ranks = rows.pool.columns[field], rows.ranks[field]
    between = _Extremes(
        np.minimum.reduceat(np.where(ranks < 0, len(column.distinct), ranks), made.edges),
        np.maximum.reduceat(ranks, made.edges),
        None
        if column.missing.only_values
        else counts(column.missing, rows.order, rows.weight, made.edges),
    )
    lead = rows.ordering.lead
    direction = lead.direction if lead is not None and lead.field_id == field else ""
    leaves = leaf_limits(rows, field, made.edges)
    slices = [(made.files, made.ends[0]), (made.groups, made.ends[1])]
    found = [
        _bounds(
            rows, field, one, between.over(ends), direction, widening,
            None if leaves is None else leaves.over(ends),
        )
        for one, ends in slices[: 1 if made.alike else 2]
    ]  # fmt: skip
    files, groups = found[0], found[-1]
    nans = np.where(files.nans[made.owner] == 0, 0, UNKNOWN).astype(np.int64)
    return files, replace(groups, nans=nans)


@dataclass(frozen=True)
class _Extremes:
    """What the rows of pieces have: between two edges at which slices of all sizes begin or end, or
    in a slice."""

    low: npt.NDArray[np.int32]
    """The least rank; the number of ranks, or more, where there is no value."""
    high: npt.NDArray[np.int32]
    """The greatest rank, -1 where there is no value."""
    classes: Float64 | None
    """What `missing.counts` returns for a piece; None for a column of values alone."""

    def over(self, ends: Int64) -> _Extremes:
        """Return the same for slices. ends: among the edges, as `Pieces.ends` has them."""
        classes = self.classes
        return _Extremes(
            reduced(np.minimum, self.low, np.iinfo(np.int32).max, ends),
            reduced(np.maximum, self.high, -1, ends),
            None if classes is None else reduced(np.add, classes, 0.0, ends),
        )


def _bounds(
    rows: Arrangement,
    field: int,
    slices: Slices,
    found: _Extremes,
    direction: str,
    widening: float,
    leaves: LeafLimits | None,
) -> ColumnBounds:
    column = rows.pool.columns[field]
    top = len(column.distinct) - 1
    low, high = found.low.astype(np.int64), found.high.astype(np.int64)
    present = high >= 0
    low, high = np.minimum(low, top), np.maximum(high, 0)
    if widening and direction:
        low, high = _to_neighbours(rows, field, slices, low, high, descending=direction == "desc")
    elif widening:
        each = np.maximum(slices.rows / slices.represents - 1.0, 1.0)
        wide = np.rint(widening * np.maximum(high - low, 0) / each).astype(np.int64)
        low, high = np.maximum(low - wide, 0), np.minimum(high + wide, top)
        if leaves is not None:
            low, high = leaves.within(slices, low, high)
    least, most = (low.min(), high.max()) if direction else (0, top)
    records = np.maximum(np.rint(slices.records), 1).astype(np.int64)
    barred = None if leaves is None else leaves.barred()
    nulls, nans = _missing(rows, column, slices, found.classes, records, direction, barred)
    return ColumnBounds(
        field, column.kind, _at_end(column.distinct[low], low == least, column.least),
        _at_end(column.distinct[high], high == most, column.greatest),
        present, present.copy(), nulls, nans, records,
        np.full(len(low), UNKNOWN, dtype=np.int64), np.zeros(len(low), dtype=bool),
    )  # fmt: skip


def _at_end(values: Array, where: npt.NDArray[np.bool_], exact: object | None) -> Array:
    """Return the bounds, with the exact one of the files where a slice reaches it."""
    if exact is None:
        return values
    bound = np.asarray(exact)
    return np.where(where, bound, values.astype(np.promote_types(values.dtype, bound.dtype)))


def _to_neighbours(
    rows: Arrangement, field: int, slices: Slices, low: Int64, high: Int64, *, descending: bool
) -> tuple[Int64, Int64]:
    """Return ranges as far as the next sampled values. Groups of files follow each other in key
    order, target partitions do not."""
    ranks = rows.ranks[field]
    before, after = np.maximum(slices.starts - 1, 0), np.minimum(slices.ends, len(ranks) - 1)
    below, above = (after, before) if descending else (before, after)
    inside = rows.part if rows.target is not None else np.zeros_like(rows.part)
    mine, lower, upper = inside[slices.starts], ranks[below], ranks[above]
    use_low = (inside[below] == mine) & (lower >= 0) & (lower < low)
    use_high = (inside[above] == mine) & (upper > high)
    return np.where(use_low, lower, low), np.where(use_high, upper, high)


def _missing(
    rows: Arrangement,
    column: PoolColumn,
    slices: Slices,
    classes: Float64 | None,
    records: Int64,
    direction: str,
    barred: Bool | None,
) -> tuple[Int64, Int64]:
    """Return the NULL and NaN counts. barred: as `held` takes it."""
    if classes is None:
        none = np.zeros(len(records), dtype=np.int64)
        return none, none
    allowed = None
    if direction:
        allowed = between(
            column.missing, rows.order, rows.part, slices.starts, slices.ends,
            descending=direction == "desc",
        )  # fmt: skip
    number = held(classes, records, allowed, barred)
    return number[NULL], number[NAN]
