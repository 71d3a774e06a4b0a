"""A sample of rows and the queries over it, in the numbers that trees are built with.

Only the places between two cuts matter: each is a code, and all columns share one range of codes,
so that one count of a node's codes tells how many rows each of its cuts leaves on either side, and
one count of the live queries' codes how many queries (counting instead of a matrix of rows by
cuts).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from reconciler.advisor.qdtree.conjuncts import Boxes, cut_at, thresholds
from reconciler.table.cut_tree import Cut
from reconciler.table.filetable import Bool, Float64, Int64

ROOT = np.zeros(1, dtype=np.int64)
"""Where the only part of rows begins."""

MOST_CUTS = 4_096
"""Cuts among which a tree is looked for, the heaviest of each column if there are more."""


@dataclass(frozen=True)
class Problem:
    """Rows and queries by codes. `row < cut j` is `code <= j`."""

    boxes: Boxes
    """The queries, by places."""
    weight: Float64
    """float64[rows], rows of the table that each sampled one represents."""
    places: tuple[Int64, ...]
    """Per column, the places at which it can be cut, ascending."""
    code: Int64
    """[rows, columns], the code of each row, in as few bytes as hold it: growing a tree reads
    little else."""
    least: Int64
    """[rows, columns], likewise, beyond every code for NULL and NaN: bounds leave them out."""
    most: Int64
    """[rows, columns], likewise, below every code for NULL and NaN; the same array as `least` where
    no row is either."""
    null: Bool
    """bool[rows, columns], which rows are NULL; without columns that have none."""
    nan: Bool
    """bool[rows, columns], which are NaN, likewise."""
    low: Int64
    """int64[boxes, columns], the code of each interval's first place."""
    high: Int64
    """int64[boxes, columns], the code of its last place."""
    wants_value: Bool
    """bool[boxes, columns], whether any value meets the box."""
    wants_null: Bool
    """bool[boxes, columns], whether NULL meets the box."""
    wants_nan: Bool
    """bool[boxes, columns], whether NaN does."""

    @property
    def query(self) -> Int64:
        """Return the query of each box, int64[boxes], ascending."""
        return self.boxes.query

    @property
    def cost(self) -> Float64:
        """Return what reading all rows once costs each query, float64[queries]."""
        return self.boxes.weight

    @cached_property
    def first(self) -> Int64:
        """Return the first code of each code's column, int64[codes]."""
        sizes = [len(one) + 1 for one in self.places]
        return np.repeat(np.cumsum([0, *sizes[:-1]]), sizes).astype(np.int64)

    @cached_property
    def column(self) -> Int64:
        """Return the column of each code, int64[codes]."""
        sizes = [len(one) + 1 for one in self.places]
        return np.repeat(np.arange(len(sizes)), sizes)

    @cached_property
    def last(self) -> Bool:
        """Return which codes are the last of their column, and no cut, bool[codes]."""
        return np.append(np.diff(self.column) != 0, True)

    @cached_property
    def disjunctive(self) -> bool:
        """Whether some query has several boxes."""
        return len(np.unique(self.query)) < len(self.query)

    @cached_property
    def boxes_of(self) -> Int64:
        """Return how many boxes each query has, int64[queries]."""
        return np.bincount(self.query, minlength=len(self.cost))

    @cached_property
    def valued(self) -> bool:
        """Return whether no row is NULL or NaN."""
        return not (self.null.any() or self.nan.any())

    @cached_property
    def wants_values(self) -> Bool:
        """Return which boxes ask for values of the sample's range in all columns, bool[boxes]: no
        others meet rows without NULL and NaN."""
        found: Bool = np.logical_and.reduce(self.wants_value, axis=1)
        return found

    @cached_property
    def alike(self) -> float:
        """Return the weight of every row, 0 if they differ."""
        least, most = self.weight.min(initial=0.0), self.weight.max(initial=0.0)
        return float(least) if least == most else 0.0

    def held(self, rows: Int64) -> Float64:
        """Return the rows of the table with each code, among these sampled rows, float64[codes]."""
        codes, count = self.columns[0].take(rows, axis=1).ravel(), len(self.first)
        if self.alike:
            return (np.bincount(codes, minlength=count) * self.alike).astype(np.float64)
        weight = np.concatenate([self.weight.take(rows)] * self.code.shape[1])
        return np.bincount(codes, weight, count).astype(np.float64)

    @cached_property
    def columns(self) -> tuple[Any, Any, Any]:
        """Return `code`, `least` and `most` column by column, [columns, rows]: what many rows of
        one column are reduced to is found several times as fast so."""
        code = np.ascontiguousarray(self.code.T)
        if self.least is self.code and self.most is self.code:
            return code, code, code
        return code, np.ascontiguousarray(self.least.T), np.ascontiguousarray(self.most.T)

    @cached_property
    def ends(self) -> tuple[Any, Any]:
        """Return `low` and `high` column by column, [columns, boxes], in as few bytes as hold
        every code."""
        narrow = np.int16 if len(self.first) < np.iinfo(np.int16).max else np.int32
        low, high = self.low.astype(narrow), self.high.astype(narrow)
        return np.ascontiguousarray(low.T), np.ascontiguousarray(high.T)

    @property
    def total(self) -> float:
        """Return what reading all rows by all queries costs."""
        return float(self.weight.sum() * self.cost.sum())

    def cut(self, code: int) -> Cut:
        """Return the cut of a code."""
        number = int(self.column[code])
        place = int(self.places[number][code - self.first[code]])
        return cut_at(self.boxes, number, place)

    def live(self, rows: Int64, boxes: Int64) -> Int64:
        """Return which of the boxes meet the bounds of these rows (section 3.2: a node is frozen to
        its own minimum and maximum)."""
        return boxes[self.meets(rows, ROOT, boxes)[0]]

    def meets(self, rows: Int64, begins: Int64, boxes: Int64) -> Bool:
        """Return the same of each part of the rows, bool[parts, boxes]. begins: int64[parts]."""
        _, least_of, most_of = self.columns
        least = least_of.take(rows, axis=1)
        most = least if most_of is least_of else most_of.take(rows, axis=1)
        low, high = (end.take(boxes, axis=1) for end in self.ends)
        met = low <= np.maximum.reduceat(most, begins, axis=1).T[:, :, None]
        met &= high >= np.minimum.reduceat(least, begins, axis=1).T[:, :, None]
        if self.valued:
            return met.all(axis=1) & self.wants_values.take(boxes)
        null, nan = (np.logical_or.reduceat(of[rows], begins) for of in (self.null, self.nan))
        met &= self.wants_value[boxes].T
        met |= self.wants_null[boxes].T & null[:, :, None]
        met |= self.wants_nan[boxes].T & nan[:, :, None]
        found: Bool = met.all(axis=1)
        return found

    def cost_of(self, boxes: Int64) -> float:
        """Return what a row costs the queries of these boxes."""
        queries = self.query.take(boxes)
        if self.disjunctive:
            queries = np.unique(queries)
        return float(self.cost.take(queries).sum())


def problem_of(boxes: Boxes, weight: Float64) -> Problem:
    """Return rows and queries by codes. weight: float64[rows]."""
    columns = len(boxes.columns)
    each = max(2, MOST_CUTS // max(columns, 1))
    places = tuple(thresholds(boxes, number, each) for number in range(columns))
    offset = np.cumsum([0, *(len(one) + 1 for one in places)])[:-1]
    found = [
        _coded(axis.places, places[n], boxes.low[:, n], boxes.high[:, n], axis.end)
        for n, axis in enumerate(boxes.axes)
    ]
    rows = [axis.places for axis in boxes.axes]
    code = _stacked([one.rows + offset[n] for n, one in enumerate(found)], len(weight))
    null = _stacked([own == 0 for own in rows], len(weight))
    nan = _stacked(
        [own == axis.end for own, axis in zip(rows, boxes.axes, strict=True)], len(weight)
    )
    beyond, absent = int(code.max(initial=0)) + 2, null | nan
    code = code.astype(np.int16 if beyond <= np.iinfo(np.int16).max else np.int32)
    least, most = code, code
    if absent.any():
        least = np.where(absent, code.dtype.type(beyond), code)
        most = np.where(absent, code.dtype.type(-1), code)
    ends = np.array([axis.end for axis in boxes.axes], dtype=np.int64)
    count = len(boxes.query)
    return Problem(
        boxes, weight, places, code,
        least, most, null, nan,
        _stacked([one.low + offset[n] for n, one in enumerate(found)], count),
        _stacked([one.high + offset[n] for n, one in enumerate(found)], count),
        _stacked([one.valued for one in found], count), boxes.low == 0, boxes.high > ends,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Coded:
    """One column of rows and boxes by codes, counted from 0."""

    rows: Int64
    """int64[rows]."""
    low: Int64
    """int64[boxes], the code of the first sampled row at or above an interval's first place."""
    high: Int64
    """int64[boxes], the code of the last sampled row below the place after its last. An interval
    between two sampled rows with a cut between them begins one code after it ends."""
    valued: Bool
    """bool[boxes], whether a value of the sample's range may meet the box."""


def _coded(rows: Int64, cuts: Int64, low: Int64, high: Int64, end: int) -> _Coded:
    """cuts: places at which the column can be cut. end: the place of NaN."""
    ordered = np.sort(rows)
    below_cuts = np.searchsorted(ordered, cuts, side="left")
    nulls, valued = np.searchsorted(ordered, [1, end], side="left")
    first = np.searchsorted(ordered, np.maximum(low, 1), side="left")
    last = np.searchsorted(ordered, np.minimum(high, end), side="left") - 1
    last_code = np.searchsorted(below_cuts, last, side="right")
    first_code = np.searchsorted(below_cuts, first, side="right")
    asks = np.maximum(low, 1) < np.minimum(high, end)
    return _Coded(
        np.searchsorted(cuts, rows, side="right"), first_code, last_code,
        asks & (first < valued) & (last >= nulls),
    )  # fmt: skip


def _stacked(columns: list[Any], rows: int) -> Any:
    if not columns:
        return np.zeros((rows, 0), dtype=np.int64)
    return np.stack(columns, axis=1)
