"""Divides an action's files into groups, and a group's rows into output files.

The what-if simulates these groups and the execution runs them. Both call these functions; otherwise
a plan would predict a different layout from the one written. The only input is what manifests say,
not the memory or cores of a machine, so that the same plan writes the same groups everywhere.
Memory only decides how many tasks share a group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from reconciler.table.filetable import Array, Bool, ColumnBounds, FileTable, Float64, Int64
from reconciler.table.permutations import inverse_permutation
from reconciler.table.row_group_bytes import output_files
from reconciler.table.scales import scale_of
from reconciler.table.schema import SortColumn
from reconciler.table.stable_order import order_of, ranks

MAX_GROUP_BYTES = 16 << 30
"""A larger set of overlapping files is cut in order of key midpoints, so that a conflict loses one
part."""
PACK_TARGETS = 4
"""Output files of one group of files that need not be together, so that a conflict loses little."""
SMALL_SHARE = 0.75
"""A file below this share of the target size is small, a candidate for bin-packing."""


def arrival_order(path: npt.NDArray[Any], sequence: Int64) -> Int64:
    """Return the indexes of the files in order of arrival, int64[files].

    By data sequence number; files of one commit by path, which writers number in order. Rows with
    equal keys keep this order, so that recent rows, which queries ask for, stay together.
    """
    return np.lexsort((path.astype(np.str_), sequence)).astype(np.int64)


@dataclass(frozen=True)
class Extents:
    """The facts that grouping uses, one entry per file."""

    arrival: Int64
    """int64[files]: position of the file in `arrival_order`."""
    bytes: Int64
    """int64[files]: stored bytes."""
    low: Int64
    """int64[files]: rank of the lower bound of the key's first column among all known bounds of
    these files."""
    high: Int64
    """int64[files]: rank of the upper bound of that column among all known bounds of these
    files."""
    bounded: Bool
    """bool[files]: whether the bounds are known; a file without them may hold any key."""
    nulls: Bool | None = None
    """bool[files]: whether the file may hold a NULL in that column; None where that does not
    matter."""

    def __len__(self) -> int:
        return len(self.arrival)

    @cached_property
    def overlapping(self) -> Grouping:
        """Return the files that have to be together in an order by the column (`overlapping`)."""
        return overlapping(self)

    @cached_property
    def by_middle(self) -> Int64:
        """Return the position of each file in order of the middles of their keys, those without
        bounds last, int64[files]."""
        last = int(self.low.max(initial=0) + self.high.max(initial=0)) + 1
        middle = np.where(self.bounded, self.low + self.high, last)
        return inverse_permutation(order_of(middle, last=self.arrival))


def extents(table: FileTable, key: tuple[SortColumn, ...]) -> Extents:
    """Return the files of a table by the first column of the key; without a key all are equal."""
    column = table.columns.get(key[0].field_id) if key else None
    if column is None:
        return unbounded(arrivals(table), table.bytes)
    known: dict[int, Extents] = table.derived.setdefault("extents", {})
    if column.field_id not in known:
        known[column.field_id] = _of_column(table, column)
    return known[column.field_id]


def _of_column(table: FileTable, column: ColumnBounds) -> Extents:
    bounded, arrival = column.bounded, arrivals(table)
    if not bounded.all():
        return by_bounds(arrival, table.bytes, column.lower, column.upper, bounded)
    scale = scale_of(column)  # the same ranks
    return Extents(arrival, table.bytes, scale.low, scale.high, bounded)


def by_bounds(
    arrival: Int64,
    size: Int64,
    lower: Array,
    upper: Array,
    bounded: Bool,
    nulls: Bool | None = None,
) -> Extents:
    """Return files by their bounds, one entry per file, as `Extents` has them.

    lower, upper: of one type, and without meaning where `bounded` is False. The plan and the
    execution rank them here, or they would cut files elsewhere: how far the middles of two files
    are apart depends on which bounds have a rank.
    """
    known = np.flatnonzero(bounded)
    ends = np.concatenate((lower[known], upper[known]))
    low, high = np.zeros((2, len(arrival)), dtype=np.int64)
    low[known], high[known] = np.split(ranks(ends), 2)
    return Extents(arrival, size, low, high, bounded, nulls)


def arrivals(table: FileTable) -> Int64:
    """Return the position of each file in order of arrival, computed once per table."""
    if "arrivals" not in table.derived:
        table.derived["arrivals"] = inverse_permutation(arrival_order(table.path, table.sequence))
    found: Int64 = table.derived["arrivals"]
    return found


def unbounded(arrival: Int64, size: Int64) -> Extents:
    """Return files whose keys are unknown or do not matter."""
    zeros = np.zeros(len(arrival), dtype=np.int64)
    return Extents(arrival, size, zeros, zeros, np.zeros(len(arrival), dtype=np.bool_))


@dataclass(frozen=True, slots=True)
class Grouping:
    """Files in groups."""

    order: Int64
    """Indexes of the files, group after group, within a group in order of arrival: int64[files]."""
    starts: Int64
    """Where in `order` each group begins: int64[groups]."""

    @property
    def members(self) -> list[Int64]:
        """Return the indexes of the files per group."""
        return np.split(self.order, self.starts[1:]) if len(self.order) else []

    @property
    def number(self) -> Int64:
        """Return the group of each file, int64[files]."""
        numbers = np.zeros(len(self.order), dtype=np.int64)
        numbers[self.order] = self.spread(np.arange(len(self.starts)))
        return numbers

    def totals(self, size: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the sums per group of values per file."""
        if not len(self.order):
            return np.zeros(0, dtype=size.dtype)
        return np.asarray(np.add.reduceat(size[self.order], self.starts))

    def spread(self, per_group: npt.NDArray[np.generic]) -> npt.NDArray[Any]:
        """Return values per group, repeated for each of its files, in `order`."""
        return np.repeat(per_group, np.diff(np.append(self.starts, len(self.order))))


def output_file_of(grouping: Grouping, size: Float64, target_bytes: float) -> tuple[Int64, int]:
    """Return the output file that gets most of each file's rows, and the number of output files.

    int64[files], numbered through all groups, for whole files that follow each other.
    """
    totals = grouping.totals(size)
    wanted = output_files(totals, target_bytes)
    rows = size[grouping.order]
    total = grouping.spread(np.maximum(totals, 1))
    upto = np.cumsum(rows)
    before = grouping.spread((upto - rows)[grouping.starts])
    own = grouping.spread(wanted)
    place = np.minimum(((upto - rows / 2.0 - before) / total * own).astype(np.int64), own - 1)
    found = np.zeros(len(size), dtype=np.int64)
    found[grouping.order] = grouping.spread(np.cumsum(wanted) - wanted) + np.maximum(place, 0)
    return found, int(wanted.sum())


def as_arrived(groups: Grouping, files: Extents) -> Grouping:
    """The same groups, the files of each in order of arrival."""
    number = groups.spread(np.arange(len(groups.starts)))
    order = groups.order[order_of(number, last=files.arrival[groups.order])]
    return Grouping(order, groups.starts)


def whole(files: Extents) -> Grouping:
    """One group of all files, in order of arrival."""
    order = order_of(last=files.arrival)
    return Grouping(order, np.zeros(min(len(order), 1), dtype=np.int64))


def overlapping(files: Extents) -> Grouping:
    """Return connected components of files whose key ranges overlap; touching ends do not
    connect."""
    if not len(files) or not files.bounded.all():
        return whole(files)
    order = order_of(files.low, files.high, last=files.arrival)
    low, high = files.low[order], files.high[order]
    reach = np.maximum.accumulate(high)
    # Equal constant files (low == high == reach) share their value with the component.
    constant = (low[1:] == high[1:]) & (low[1:] == reach[:-1])
    apart = (low[1:] >= reach[:-1]) & ~constant
    return Grouping(order, np.append(0, np.flatnonzero(apart) + 1))


def by_target_partition(files: Extents, limit: int) -> Grouping:
    """Return groups such that no partition of the target spec gets rows from two of them.

    files: their ranks are those of target partitions. Files that share a partition, or that both
    may feed the partition of NULLs, are together; neighbours are merged up to `limit` bytes. Where
    a file may hold any value, all files are one group. Files that overlap in a chain larger than
    MAX_GROUP_BYTES are cut: a partition at a cut gets rows from two groups.
    """
    if not len(files) or not files.bounded.all():
        return whole(files)
    apart = _connected(files)
    order, component = apart.order, apart.spread(np.arange(len(apart.starts)))
    if files.nulls is not None:
        with_null = np.unique(component[files.nulls[order]])
        component[np.isin(component, with_null)] = with_null[0] if len(with_null) else 0
    order = order[np.argsort(component, kind="stable")]
    starts = np.flatnonzero(np.diff(np.sort(component), prepend=-1))
    together = merged(Grouping(order, starts), files.bytes, limit, 0.0)
    return as_arrived(bounded(together, files, MAX_GROUP_BYTES), files)


def _connected(files: Extents) -> Grouping:
    """Return connected components of files whose ranks overlap or touch, in order of rank."""
    order = order_of(files.low, files.high, last=files.arrival)
    reach = np.maximum.accumulate(files.high[order])
    apart = np.flatnonzero(files.low[order][1:] > reach[:-1]) + 1
    return Grouping(order, np.append(np.zeros(min(len(order), 1), dtype=np.int64), apart))


def merged(components: Grouping, size: Int64, limit: int, small: float) -> Grouping:
    """Merge neighbouring components up to `limit` bytes; none is left alone below `small`."""
    upto = np.concatenate(([0], np.cumsum(components.totals(size))))
    first = _filled(upto, limit, small)
    if len(first) > 1 and upto[-1] - upto[first[-1]] < small:
        first.pop()
    return Grouping(components.order, components.starts[first])


def _filled(upto: Int64, limit: int, small: float) -> list[int]:
    """Return where runs of at most `limit` bytes begin, each filled before the next one; larger
    where less would be below `small`. upto: bytes before each component, and in all."""
    last, place, first = len(upto) - 1, 0, list[int]()
    fits = np.searchsorted(upto, upto[:-1] + min(limit, int(upto[-1])), side="right") - 1
    enough = np.searchsorted(upto, upto[:-1] + min(math.ceil(small), int(upto[-1])), side="left")
    after = np.maximum(np.maximum(fits, np.minimum(enough, last)), np.arange(1, last + 1)).tolist()
    while place < last:
        first.append(place)
        place = after[place]
    return first


def bounded(components: Grouping, files: Extents, limit: int) -> Grouping:
    """Split larger components into parts of about `limit` bytes, in order of key midpoints.

    Of all ways to cut them, this loses least compared with one sort of everything (WAIR section
    3.3).
    """
    order, starts = components.order.copy(), [components.starts]
    ends = np.append(components.starts[1:], len(order))
    for number in np.flatnonzero(components.totals(files.bytes) > limit):
        piece = slice(int(components.starts[number]), int(ends[number]))
        own = order[piece]
        own = own[order_of(last=files.by_middle[own])]
        order[piece] = own
        size = files.bytes[own].astype(np.float64)
        parts = int(-(-size.sum() // limit))
        part = np.floor((np.cumsum(size) - size) * parts / size.sum())
        starts.append(piece.start + np.flatnonzero(np.diff(part)) + 1)
    return Grouping(order, np.sort(np.concatenate(starts)))


def along_leaves(files: Extents, limit: int) -> Grouping:
    """Return runs of leaves of about equal bytes, of about `limit` each at most.

    files: their ranks are the first and the last leaf that may have values of them. Files that may
    have values of one leaf are in one run. Rows of NULL or NaN in files that also have values are
    not counted: several runs may write their leaf. Where files that belong together are larger than
    `limit`, they are cut in order of the middle of their leaves, and a run may then exceed `limit`
    by less than a file.
    """
    pieces = bounded(_connected(files), files, limit)
    run = filled(pieces.totals(files.bytes) / limit)
    return Grouping(pieces.order, pieces.starts[np.flatnonzero(np.diff(run, prepend=-1))])


def filled(share: Float64) -> Int64:
    """Return the slice of each file: as few slices as can be, of about equal size, none above 1.

    share: of what a slice may hold, float64[files]. A file above 1 has a slice of its own.
    """
    fewest = int(_cut_at(share, 1.0).max()) + 1
    return _cut_at(share, float(share.sum()) / fewest)


def _cut_at(share: Float64, wanted: float) -> Int64:
    """Return the slice of each file: each ends where all so far are nearest to `wanted` each."""
    number, held, upto = 0, 0.0, 0.0
    found = np.empty(len(share), dtype=np.int64)
    for place, own in enumerate(share.tolist()):
        if held and (held + own > 1.0 or upto + own / 2.0 > wanted * (number + 1)):
            number, held = number + 1, 0.0
        held, upto = held + own, upto + own
        found[place] = number
    return found


def runs(files: Extents, limit: int, target_bytes: int) -> Grouping:
    """Return runs of at most `limit` bytes in order of arrival; a small rest joins the last run."""
    order = whole(files).order
    upto = np.concatenate(([0], np.cumsum(files.bytes[order])))
    starts = _filled(upto, limit, 0.0)
    if len(starts) > 1:
        held = upto[-1] - upto[starts[-1]]
        if held < target_bytes or starts[-1] == len(order) - 1:
            starts.pop()
    return Grouping(order, np.array(starts, dtype=np.int64))
