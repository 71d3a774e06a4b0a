"""Overlap depth: how many files hold a given value of a column, from bounds alone.

`observe` ranks columns by it when no queries are known, and Declared drift is measured in it. A
value range is cut at every distinct bound; between two cuts the depth is constant. Ends that touch
do not overlap: sorted files whose neighbours share a boundary value have depth 1. Everything is a
sort and prefix sums, O(n log n).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reconciler.format import plural
from reconciler.table.filetable import Array, Bool, ColumnBounds, FileTable, Float64, Int64
from reconciler.table.scales import scale_of
from reconciler.table.schema import Field
from reconciler.table.stable_order import distinct_ranks
from reconciler.table.values import Kind

BLUNT_SHARE = 0.5
"""No verdict if more than this share of rows is in files whose truncated bounds are one same
prefix."""


@dataclass(frozen=True, slots=True)
class Depth:
    """How many files overlap; 0 without files."""

    mean: float
    """Mean over the rows."""
    maximum: int
    """Number of files at the deepest point."""


@dataclass(frozen=True, slots=True)
class ColumnDepth:
    """How well the files are clustered by one column: a line of `observe`."""

    field_id: int
    """Id of the column."""
    name: str
    """Name of the column."""
    mean: float
    """Number of files whose ranges overlap at one value, on average over the rows."""
    maximum: int
    """Largest number of files whose ranges overlap at one value."""
    share: float
    """`mean` divided by the number of files."""
    bounded: int
    """Number of files with known bounds; those that hold only NULL need none."""
    files: int
    """Number of all files."""
    truncated: int = 0
    """Number of files with a truncated bound."""
    truncated_to: int = 0
    """Bytes that truncated bounds have."""
    reason: str = ""
    """Why the column is not judged, "" if it is."""

    @property
    def judged(self) -> bool:
        return not self.reason

    @property
    def bounds(self) -> str:
        """The last column of the output: how many files the numbers are based on."""
        if self.reason:
            return f"not judged: {self.reason}"
        known = (
            "all files"
            if self.bounded == self.files
            else f"{self.bounded:,} of {plural(self.files, 'file')} with bounds"
        )
        return f"{known}, truncated to {self.truncated_to} bytes" if self.truncated else known


@dataclass(frozen=True, slots=True)
class Ranges:
    """Value ranges of n files as ranks among the m distinct bounds. Arrays have shape [n] unless
    said otherwise."""

    first: Int64
    """int64[n]: rank of the lower bound."""
    last: Int64
    """int64[n]: rank of the upper bound."""
    known: Bool
    """bool[n]: whether both bounds exist."""
    single: Bool
    """bool[n]: whether both bounds are equal."""
    constant: Bool
    """bool[n]: whether the file is proven to hold one value and nothing else: no NULL, no NaN, no
    truncated bound."""
    place: Float64
    """float64[m]: position of the distinct bounds on a line, from which the width between two of
    them follows."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Ranges as runs of elementary intervals: numbers start to end, both included, [n].

    Elementary intervals are the gaps between consecutive distinct bounds, and each value that is
    a whole range by itself. A range covers the gaps between its ends and the single values
    strictly between them, so ends that touch share nothing. width: float64[intervals].
    """

    start: Int64
    end: Int64
    width: Float64


def rank_columns(table: FileTable) -> list[ColumnDepth]:
    """Return all columns: judged ones by mean depth, best clustered first, then the others by
    name."""
    rows = np.maximum(table.records, 0)
    lines = [_column_depth(table, field, rows) for field in table.schema.fields]
    return sorted(lines, key=lambda line: (not line.judged, line.mean, line.name))


def depth_of(ranges: Ranges, chosen: Bool | Int64, rows: Int64) -> Depth:
    """Return the depth among the chosen files (a mask or row indexes)."""
    return sweep(elementary(ranges.first[chosen], ranges.last[chosen], ranges.place), rows[chosen])


def ranges_of(table: FileTable, field_id: int) -> Ranges:
    """Return the ranks of a column's bounds, computed once per table."""
    known: dict[int, Ranges] = table.derived.setdefault("ranges", {})
    if field_id not in known:
        known[field_id] = value_ranges(table.columns[field_id])
    return known[field_id]


def value_ranges(column: ColumnBounds) -> Ranges:
    """Return the ranks of the bounds. A truncated upper bound is reverted to the prefix it was made
    from.

    Iceberg shortens an upper bound and increments its last character. Sorted files that meet inside
    one shortened prefix would seem to overlap; with the prefix, their ends touch.
    """
    known = column.bounded
    lower, upper = column.lower, column.upper
    if column.kind is Kind.BYTES and column.truncated.any():
        prefix = _predecessor(upper)
        upper = np.where(column.truncated, np.where(prefix > lower, prefix, lower), upper)
    elif column.kind is Kind.FLOAT:
        known = known & ~np.isnan(lower) & ~np.isnan(upper)
    if known.all() and upper is column.upper:
        scale = scale_of(column)
        distinct, first, last = scale.distinct, scale.low, scale.high
    else:
        filler = lower[np.flatnonzero(known)[:1]]
        filler = filler[0] if len(filler) else np.zeros(1, dtype=lower.dtype)[0]
        ends = np.concatenate((np.where(known, lower, filler), np.where(known, upper, filler)))
        distinct, rank = distinct_ranks(ends)
        first, last = np.split(rank, 2)
    single = known & (first == last)
    other = (column.nulls > 0) | (column.nans > 0) | column.truncated
    return Ranges(first, np.maximum(first, last), known, single, single & ~other, _place(distinct))


def elementary(first: Int64, last: Int64, place: Float64) -> Pieces:
    """Return the elementary intervals of ranges given by ranks, and the place of each range in
    them."""
    size = len(place)
    single = first == last
    has_point = np.zeros(size, dtype=np.bool_)
    has_point[first[single]] = True
    # In order of value: the point r if there is one, then the gap from r to r + 1.
    gap = np.arange(size) + np.cumsum(has_point)
    start = np.where(single, gap[first] - 1, gap[first])
    end = np.where(single, start, gap[np.maximum(last - 1, 0)])
    width = np.zeros(int(gap[-1]) + 1 if size else 0)
    width[gap[:-1]] = np.diff(place)
    return Pieces(start, end, width)


def sweep(pieces: Pieces, rows: Int64) -> Depth:
    """Return the depth per elementary interval, and its mean by rows: sum_k w_k d_k / sum_k w_k.

    w_k is the number of rows in interval k, with every file's rows spread evenly over its range: a
    file's part of the numerator is its rows times the mean depth along its range, by width.
    """
    start, end = pieces.start, pieces.end
    if not len(start):
        return Depth(0.0, 0)
    size = len(pieces.width)
    change = np.bincount(start, minlength=size + 1) - np.bincount(end + 1, minlength=size + 1)
    depth = np.cumsum(change[:size])
    area, length = _sums(depth * pieces.width), _sums(pieces.width)
    total, span = area[end + 1] - area[start], length[end + 1] - length[start]
    # If widths vanish beside others in floating point, count the intervals instead.
    count = _sums(depth.astype(np.float64))
    evenly = (count[end + 1] - count[start]) / (end - start + 1)
    along = np.where(span > 0, total / np.where(span > 0, span, 1.0), evenly)
    along = np.clip(along, 1.0, float(depth.max()))
    weight = rows.astype(np.float64)
    if not weight.sum():
        weight = np.ones(len(rows))
    return Depth(float((along * weight).sum() / weight.sum()), int(depth.max()))


def spanned(ranges: Ranges, chosen: Int64, rows: Int64) -> Float64:
    """Return the share of the chosen files' rows that is within each file's range,
    float64[chosen]."""
    pieces = elementary(ranges.first[chosen], ranges.last[chosen], ranges.place)
    start, end, size = pieces.start, pieces.end, len(pieces.width)
    weight = np.maximum(rows[chosen].astype(np.float64), 1e-9)
    length = _sums(pieces.width)
    span = length[end + 1] - length[start]

    def spread(each: Float64) -> Float64:
        change = np.bincount(start, each, size + 1) - np.bincount(end + 1, each, size + 1)
        return np.asarray(np.cumsum(change[:size]))

    wide = span > 0
    mass = spread(np.where(wide, weight / np.where(wide, span, 1.0), 0.0)) * pieces.width
    mass += spread(np.where(wide, 0.0, weight / (end - start + 1)))
    upto = _sums(np.maximum(mass, 0.0))
    return np.asarray((upto[end + 1] - upto[start]) / max(upto[-1], 1e-300))


def _sums(values: Float64) -> Float64:
    """Return prefix sums that begin with 0, so that [b] - [a] is the sum of a to b - 1."""
    return np.concatenate(([0.0], np.cumsum(values)))


def _place(distinct: Array) -> Float64:
    """Return positions: numbers at their value, byte strings at the 8 bytes after their common
    prefix."""
    if not len(distinct) or distinct.dtype.kind != "S":
        # Infinite bounds are taken as very far, so that sums of widths stay numbers.
        values = np.clip(distinct.astype(np.float64), -1e300, 1e300)
        return values - values[:1]
    width = distinct.dtype.itemsize
    raw = np.ascontiguousarray(distinct).view(np.uint8).reshape(len(distinct), width)
    differs = np.flatnonzero(raw[0] != raw[-1])
    common = int(differs[0]) if len(differs) else 0
    window = np.zeros((len(distinct), 8), dtype=np.uint8)
    part = raw[:, common : common + 8]
    window[:, : part.shape[1]] = part
    places = window.view(">u8").reshape(-1).astype(np.uint64)
    return (places - places[0]).astype(np.float64)


def _column_depth(table: FileTable, field: Field, rows: Int64) -> ColumnDepth:
    column = table.columns.get(field.field_id)
    files = len(table)
    if field.kind is None:
        reason = "inside a list or map" if field.repeated else f"{field.type} has no order"
        return _unjudged(field, files, 0, reason)
    if column is None:
        return _unjudged(field, files, 0, "no bounds in any file")
    ranges = ranges_of(table, field.field_id)
    without_value = ~ranges.known & (
        (table.records == 0) | ((column.values > 0) & (column.nulls == column.values))
    )
    bounded = int((ranges.known | without_value).sum())
    truncated_to = _longest(column.lower[ranges.known & column.truncated])
    if not ranges.known.any():
        only_null = files > 0 and bool(without_value.all())
        reason = "only NULL" if only_null else "no bounds in any file"
        return _unjudged(field, files, bounded, reason)
    blunt = ranges.single & column.truncated
    if _weighted_share(blunt, ranges.known, rows) > BLUNT_SHARE:
        return _unjudged(field, files, bounded, f"bounds truncated to {truncated_to} bytes")
    depth = depth_of(ranges, ranges.known, rows)
    return ColumnDepth(
        field.field_id, field.name, depth.mean, depth.maximum, depth.mean / files, bounded, files,
        int((ranges.known & column.truncated).sum()), truncated_to,
    )  # fmt: skip


def _unjudged(field: Field, files: int, bounded: int, reason: str) -> ColumnDepth:
    return ColumnDepth(field.field_id, field.name, 0.0, 0, 0.0, bounded, files, reason=reason)


def _weighted_share(part: Bool, whole: Bool, rows: Int64) -> float:
    weight: Float64 = rows.astype(np.float64) + 1e-9
    return float(weight[part].sum() / weight[whole].sum())


def _longest(values: Array) -> int:
    return int(np.char.str_len(values).max(initial=0)) if values.dtype.kind == "S" else 0


def _predecessor(values: Array) -> Array:
    """Return each byte string with its last byte lowered by one, '' unchanged."""
    width = values.dtype.itemsize
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), width).copy()
    length = np.char.str_len(values)
    rows = np.flatnonzero(length > 0)
    raw[rows, length[rows] - 1] -= 1
    return raw.reshape(-1).view(values.dtype)
