"""Adds up what the queries of a shape read where each asks for a range of one column.

Such a query reads all files but those below its range and those above it, and covers the same share
of the files between. So sums over places among the ends of all ranges are enough, without a cell
per query and file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from reconciler.queries.literal_ranges import Band, Intervals, band_of
from reconciler.queries.predicate import And, Comparison, Predicate, push_not
from reconciler.queries.predicate_batch import Leaf, SlotLiterals, leaf_of
from reconciler.queries.pruning import intervals_of, partitions_of
from reconciler.queries.shape import Shape
from reconciler.table.filetable import Array, Bool, ColumnBounds, FileTable, Float64, Int64
from reconciler.table.scales import Scale, known_scale, scale_of
from reconciler.table.values import Kind

BELOW, ABOVE = ("<", "<="), (">", ">=")
"""Operations that a file can only fail by its lower bound, and by its upper bound."""

NARROW = 2.0**-24
"""A file of less than this share of the range of all files is read by cells: shares are differences
of sums, which digits of 53 bits do not hold for it."""


class _Range(NamedTuple):
    """The conditions of a shape that asks for a range of one column."""

    column: ColumnBounds
    """The bounds of that column."""
    below: Leaf | None
    """The condition that a file fails by its lower bound."""
    above: Leaf | None
    """The condition that a file fails by its upper bound; the same one for an equality."""


@dataclass(frozen=True)
class RangeReads:
    """Which files the queries read, as two ends of each query's range."""

    below: Band | None
    """Which files begin before each range ends; None where ranges have no end."""
    above: Band | None
    """Which files end after each range begins; None where ranges have no begin."""
    valued: Bool
    """bool[files], whether the file has a row with a value."""
    asked: _Range
    """The conditions."""
    literals: Sequence[SlotLiterals]
    """The literals of the queries, by slot."""

    @cached_property
    def covered(self) -> Covered | None:
        """Return what share of each file the ranges cover; None where it cannot be added up."""
        return _covered(self.asked, self.literals, self.valued)

    def of_files(self, own: Float64) -> Float64:
        """Return the sum of a value per file over the files that each query reads,
        float64[queries]."""
        own = np.where(self.valued, own, 0.0)
        reached = own.sum()
        if self.below is not None:
            reached = _upto(self.below.first, own, self.below.size)[self.below.rank]
        if self.above is not None:
            reached = reached - _upto(self.above.last, own, self.above.size)[self.above.rank]
        return np.maximum(reached, 0.0)

    def of_queries(self, own: Float64) -> Float64:
        """Return the sum of a value per query over the queries that read each file,
        float64[files]."""
        reached = np.full(len(self.valued), own.sum())
        if self.below is not None:
            reached = _from(self.below.rank, own, self.below.size)[self.below.first]
        if self.above is not None:
            reached = reached - _from(self.above.rank, own, self.above.size)[self.above.last]
        return np.where(self.valued, np.maximum(reached, 0.0), 0.0)


def _upto(place: Array | None, own: Float64, size: int) -> Float64:
    """Return the sum of what has a place of at most 0, 1, and so on."""
    assert place is not None
    found: Float64 = np.cumsum(np.bincount(place, own, size + 2))
    return found


def _from(place: Array, own: Float64, size: int) -> Float64:
    """Return the sum of what has a place of at least 0, 1, and so on."""
    found: Float64 = np.cumsum(np.bincount(place, own, size + 2)[::-1], dtype=np.float64)[::-1]
    return found


@dataclass(frozen=True)
class Covered:
    """The share of each file that ranges cover, if its values are spread evenly between whole
    numbers."""

    low: Float64
    """float64[files], the lower bound."""
    end: Float64
    """float64[files], one more than the upper bound."""
    begins: _Ends | None
    """Where ranges begin."""
    stops: _Ends | None
    """The values after those where ranges end."""
    even: Bool
    """bool[files], whether bounds are known, not too close, and there is no NULL: shares of others
    are no sums."""

    def of_files(self, own: Float64) -> Float64:
        """Return the sum of a value per file, times the share that a query covers,
        float64[queries]."""
        own = np.where(self.even, own, 0.0)
        covered = own.sum() if self.stops is None else self.stops.of_files(own, self)
        if self.begins is not None:
            covered = covered - self.begins.of_files(own, self)
        return np.maximum(covered, 0.0)

    def of_queries(self, own: Float64) -> Float64:
        """Return the sum of a value per query, times the share of a file that it covers,
        float64[files]."""
        covered = np.full(len(self.low), own.sum())
        if self.stops is not None:
            covered = self.stops.of_queries(own, self)
        if self.begins is not None:
            covered = covered - self.begins.of_queries(own, self)
        return np.where(self.even, np.maximum(covered, 0.0), 0.0)

    @cached_property
    def slope(self) -> Float64:
        """Return the share of a file that one value is, float64[files]."""
        return 1.0 / (self.end - self.low)


@dataclass(frozen=True)
class _Ends:
    """One end of the range of each query, among the bounds of files.

    A file has the share min(1, max(0, (end of the query - low) x slope)) of its values before it.
    """

    points: Float64
    """float64[queries], the ends."""
    order: Int64
    """int64[queries], the queries by their end."""
    rank: Int64
    """int64[queries], the number of lower ends."""
    first: Int64
    """int64[files], the number of ends below a file's lower bound."""
    last: Int64
    """int64[files], the number of ends below the end of a file."""

    @classmethod
    def of(cls, points: Float64, scale: Scale, origin: float, even: Bool, most: float) -> _Ends:
        """scale: of the bounds, of which those of files that are not even have no meaning. origin:
        the value from which points are counted. most: the greatest end of a file."""
        points = np.clip(points, 0.0, most)  # sums keep no digits for ends far away
        order = np.argsort(points, kind="stable")
        ordered, values = points[order], scale.distinct.astype(np.float64) - origin
        first, last = (np.searchsorted(ordered, one) for one in (values, values + 1.0))
        return cls(
            points, order, np.searchsorted(ordered, points),
            np.where(even, first[scale.low], np.searchsorted(ordered, 0.0)),
            np.where(even, last[scale.high], np.searchsorted(ordered, 1.0)),
        )  # fmt: skip

    def of_files(self, own: Float64, files: Covered) -> Float64:
        size, each = len(self.points), own * files.slope
        slope, offset = (
            _upto(self.first, one, size) - _upto(self.last, one, size)
            for one in (each, each * files.low)
        )
        whole = _upto(self.last, own, size)[self.rank]
        return whole + self.points * slope[self.rank] - offset[self.rank]

    def of_queries(self, own: Float64, files: Covered) -> Float64:
        mine, points = own[self.order], self.points[self.order]
        count, place = (np.append(0.0, np.cumsum(one)) for one in (mine, mine * points))
        first, last = count[self.first], count[self.last]
        inside = place[self.last] - place[self.first] - files.low * (last - first)
        return count[-1] - last + inside * files.slope


def range_reads(demand: Shape, table: FileTable, *, real: bool = False) -> RangeReads | None:
    """Return which files each query reads, None where the shape asks for something else than a
    range, or a file could be beyond both ends of one at once. real: whether the files exist, so
    that other shapes are asked of the same bounds."""
    asked = _range_of(demand.predicate, table)
    if asked is None or (table.records < 0).any() or not _ordered(asked, demand.literals):
        return None
    bands, valued = dict[Leaf, Band](), table.records != 0
    for leaf in (asked.below, asked.above):
        if leaf is None or leaf in bands:
            continue
        over = intervals_of(leaf.op, asked.column)
        if not _sound(over):
            return None
        valued = valued & ~over.valueless
        scale = scale_of(asked.column) if real else known_scale(asked.column)
        bands[leaf] = band_of(leaf.op, np.asarray(demand.literals[leaf.slot]), over, scale)
    below, above = (None if one is None else bands[one] for one in (asked.below, asked.above))
    return RangeReads(below, above, valued, asked, demand.literals)


def _range_of(predicate: Predicate, table: FileTable) -> _Range | None:
    pushed = push_not(predicate)
    children = pushed.children if isinstance(pushed, And) else (pushed,)
    if not children or not all(isinstance(child, Comparison) for child in children):
        return None
    leaves = [leaf_of(child) for child in children]
    ref = leaves[0].ref
    column = table.columns.get(ref.field_id)
    if column is None or column.kind is Kind.BYTES or _partitioned(table, ref.field_id):
        return None
    if ref.transform != "identity" or any(leaf.ref != ref for leaf in leaves):
        return None
    if len(leaves) == 1 and leaves[0].op == "=":
        return _Range(column, leaves[0], leaves[0])
    below, above = ([leaf for leaf in leaves if leaf.op in ops] for ops in (BELOW, ABOVE))
    if len(below) > 1 or len(above) > 1 or len(below) + len(above) < len(leaves):
        return None
    return _Range(column, *(one[0] if one else None for one in (below, above)))


def _partitioned(table: FileTable, field: int) -> bool:
    """Whether files are skipped by a partition value of the column too."""
    partitions = partitions_of(table)
    return partitions is not None and any(
        one.source_id == field for part in partitions.by_spec for one in part.spec.fields
    )


def _ordered(asked: _Range, literals: Sequence[SlotLiterals]) -> bool:
    """Whether the literals are numbers, and no query's range is empty: a file around an empty range
    is beyond both of its ends."""
    ends: list[Array] = []
    for leaf in (asked.above, asked.below):
        if leaf is not None:
            values = np.asarray(literals[leaf.slot])
            if values.dtype.kind not in "if" or np.isnan(values).any():
                return False
            ends.append(values)
    if asked.below is asked.above or len(ends) < 2:
        return True
    assert asked.below is not None and asked.above is not None
    closed = asked.below.op == "<=" and asked.above.op == ">="
    return bool((ends[0] <= ends[1]).all() if closed else (ends[0] < ends[1]).all())


def _sound(over: Intervals) -> bool:
    """Whether no interval ends before it begins."""
    both = over.has_lower & over.has_upper
    return bool((over.lower <= over.upper)[both].all())


def _covered(asked: _Range, literals: Sequence[SlotLiterals], valued: Bool) -> Covered | None:
    """Return what the ranges cover of files; None for numbers that are not whole."""
    column, origin = asked.column, 0.0
    if column.kind is not Kind.INT:
        return None
    even = column.bounded & (column.nulls <= 0) & valued
    if even.any():
        origin = float(column.lower[even].min())
    low = np.where(even, column.lower.astype(np.float64) - origin, 0.0)
    end = np.where(even, column.upper.astype(np.float64) - origin, 0.0) + 1.0
    even &= (end - low) >= NARROW * end.max(initial=1.0)
    low, end = np.where(even, low, 0.0), np.where(even, end, 1.0)
    begins = stops = None
    among = scale_of(column), origin, even, float(end.max(initial=1.0))
    if asked.above is not None:
        values = np.asarray(literals[asked.above.slot]).astype(np.float64)
        begins = _Ends.of(values - origin + (asked.above.op == ">"), *among)
    if asked.below is not None:
        values = np.asarray(literals[asked.below.slot]).astype(np.float64)
        stops = _Ends.of(values - origin + (asked.below.op in ("<=", "=")), *among)
    if begins is not None and stops is not None and (begins.points > stops.points).any():
        return None
    return Covered(low, end, begins, stops, even)
