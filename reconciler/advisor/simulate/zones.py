"""Finds the zone maps of simulated files and row groups: their bounds, and whether they may hold
NULL or NaN."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from reconciler.advisor.simulate.arrangement import (
    PARTS,
    Arrangement,
    Pieces,
    Slices,
    further,
    reduced,
)
from reconciler.advisor.simulate.leaves import LeafLimits, leaf_limits
from reconciler.advisor.simulate.missing import NAN, NULL, between, counts, held
from reconciler.advisor.simulate.pool import PoolColumn
from reconciler.table.filetable import UNKNOWN, Bool, ColumnBounds, Float64, Int64
from reconciler.table.scales import Scale, keep_scale

EVEN = 0.5
"""What a doubling of the rows adds to a range of even values, of what the last doubling added."""


def zone_maps(
    rows: Arrangement, made: Pieces, field: int, widening: float = 1.0
) -> tuple[ColumnBounds, ColumnBounds]:
    """Return the bounds of a column in the files, and in the row groups.

    A range of few sampled rows is narrower than that of all rows, most of all in the best layouts.
    So each is widened at both ends (`_widened`). widening: multiple of that; 0 takes ranges as they
    are. In key order no gap is wider than to the next sampled value, and no rows of a tree's leaf
    are beyond its cuts. Parquet has no NaN counts, so row groups have only those of files without
    NaN.
    """
    column, ranks = rows.pool.columns[field], rows.ranks[field]
    lowest, classes = ranks, None
    if not column.missing.only_values:
        lowest = np.where(ranks < 0, np.int32(len(column.distinct)), ranks)
        classes = counts(column.missing, rows.order, rows.weight, made.edges)
    between = _Extremes(
        _in_parts(np.minimum, lowest, np.iinfo(np.int32).max, made),
        _in_parts(np.maximum, ranks, -1, made),
        classes,
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
    groups = replace(groups, nans=nans)
    keep_scale(groups, found[-1].derived["scale"])
    return files, groups


@dataclass(frozen=True)
class _Extremes:
    """What the rows of pieces have: between two edges at which slices of all sizes begin or end, or
    in a slice. Each PARTS-th row is of one part of the sample."""

    low: npt.NDArray[np.int32]
    """int32[parts, pieces], the least rank; the number of ranks, or more, where there is no
    value."""
    high: npt.NDArray[np.int32]
    """int32[parts, pieces], the greatest rank, -1 where there is no value."""
    classes: Float64 | None
    """What `missing.counts` returns for a piece; None for a column of values alone."""

    def over(self, ends: Int64 | None) -> _Extremes:
        """Return the same for slices. ends: among the edges, as `Pieces.ends` has them."""
        classes = self.classes
        return _Extremes(
            reduced(np.minimum, self.low, np.iinfo(np.int32).max, ends),
            reduced(np.maximum, self.high, -1, ends),
            None if classes is None else reduced(np.add, classes, 0.0, ends),
        )


def _in_parts(
    reduce: np.ufunc, values: npt.NDArray[np.int32], none: int, made: Pieces
) -> npt.NDArray[np.int32]:
    """Reduce the values of each part of the sample between edges, int32[parts, edges]. none: where
    a part has no row."""
    found = np.full((PARTS, len(made.edges)), none, dtype=np.int32)
    for part, (first, filled) in enumerate(made.parts):
        found[part, filled] = reduce.reduceat(values[part::PARTS], first)
    return found


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
    low, high = found.low.min(axis=0).astype(np.int64), found.high.max(axis=0).astype(np.int64)
    present = high >= 0
    low, high = np.minimum(low, top), np.maximum(high, 0)
    if widening and direction:
        low, high = _to_neighbours(rows, field, slices, low, high, descending=direction == "desc")
    elif widening:
        low, high = _widened(column, slices, found, widening)
        if leaves is not None:
            low, high = leaves.within(slices, low, high)
    least, most = (low.min(), high.max()) if direction else (0, top)
    records = np.maximum(np.rint(slices.records), 1).astype(np.int64)
    barred = None if leaves is None else leaves.barred()
    nulls, nans = _missing(rows, column, slices, found.classes, records, direction, barred)
    values, last = column.framed, len(column.framed) - 1
    scale = Scale(
        values, np.where(low == least, 0, low + 1), np.where(high == most, last, high + 1)
    )
    made = ColumnBounds(
        field, column.kind, values[scale.low], values[scale.high],
        present, present.copy(), nulls, nans, records,
        np.full(len(low), UNKNOWN, dtype=np.int64), np.zeros(len(low), dtype=bool),
    )  # fmt: skip
    keep_scale(made, scale)
    return made


def _widened(
    column: PoolColumn, slices: Slices, found: _Extremes, widening: float
) -> tuple[Int64, Int64]:
    """Return ranges as far as all rows of the slices reach.

    The sample shows it: half of a slice's rows reach less far than all of them, and a quarter less
    far than half. Each doubling of the rows, from those sampled to all, moves the end by a step.
    Each step is the same share of the step before. The share is a half where values are even, as
    the estimator of the German tank problem has it, and nearly 1 where they scatter about those of
    the key as errors do. It is a mean over the slices of one size, because a single slice has few
    rows. Steps are counted in sampled rows, because values are rare at the ends of most columns.
    """
    top, more, ends = len(column.distinct) - 1, slices.doublings, list[Float64]()
    for parts, seen, all_seen, reach in (
        (found.low, found.low <= top, found.low.min(axis=0), column.reach[0]),
        (found.high, found.high >= 0, found.high.max(axis=0), column.reach[1]),
    ):
        at = reach[np.where(seen, parts, np.clip(all_seen, 0, top))]
        halves = np.maximum(at[: PARTS // 2], at[PARTS // 2 :])
        whole, half = halves.max(axis=0), halves.sum(axis=0) / len(halves)
        step, before = whole - half, half - at.sum(axis=0) / PARTS
        sizes = [np.add.reduceat(each, slices.first) for each in (step, before)]
        share = np.clip(sizes[0] / np.maximum(sizes[1], 1.0), EVEN, 1.0 - 1e-9)[slices.size]
        ends.append(whole + further(widening * step, share, more))
    middles, most = column.middles, len(column.middles) - 1
    first, last = np.ceil(-2.0 * ends[0]), np.floor(2.0 * ends[1]) + 1.0
    low = np.minimum(middles[np.clip(first, 0, most).astype(np.int64)], top)
    return low, np.maximum(middles[np.clip(last, 0, most).astype(np.int64)] - 1, low)


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
