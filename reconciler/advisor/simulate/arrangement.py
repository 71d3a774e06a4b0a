"""Arranges sampled rows as a layout writes them, and cuts them into files and row groups.

The rows are arranged once per partition spec and ordering; each size only cuts them elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from reconciler.advisor.simulate.layout import Layout
from reconciler.advisor.simulate.pool import Pool, WrittenBytes
from reconciler.advisor.simulate.sampled import MIN_SLICE_ROWS, stored_bytes
from reconciler.advisor.simulate.target import TargetPartitions, target_partitions
from reconciler.plan.grouping import arrivals, output_files
from reconciler.plan.ordering import Ordering, order_rows
from reconciler.table.column_bytes import further_pages
from reconciler.table.filetable import Float64, Int64
from reconciler.table.row_group_bytes import PAGE_ROWS
from reconciler.table.schema import PartitionSpec

Int32 = npt.NDArray[np.int32]

LEAST_REST = 0.02
"""Share of a row group's rows below which a file has no further row group for the rest: bytes per
row are not known better than that."""


@dataclass(frozen=True, slots=True, order=True)
class Sizes:
    """target_bytes: of a file. row_group_bytes: stored bytes of a row group. Both compressed.
    page_rows: limit of the rows of a page."""

    target_bytes: int
    row_group_bytes: int
    page_rows: int = PAGE_ROWS


@dataclass(frozen=True)
class Arrangement:
    """The rows of a pool in the order in which a layout writes them.

    order: int64[rows], rows of the pool. starts: first ordered row of each target partition.
    known: bytes at some sizes of row groups, the smallest first: a dictionary is shared by the rows
    of its row group.
    """

    pool: Pool
    ordering: Ordering
    target: TargetPartitions
    order: Int64
    starts: Int64
    known: tuple[WrittenBytes, ...]

    @cached_property
    def stored(self) -> list[float]:
        """Return the stored bytes per row at the known sizes."""
        live = float(self.pool.files.live_bytes.sum()) / max(float(self.pool.weight.sum()), 1.0)
        return [max(known.share * live, 1e-9) for known in self.known]

    def bytes_per_row(self, row_group_bytes: float, page_rows: int = PAGE_ROWS) -> float:
        """Return the stored bytes per row, in row groups of this size and pages of so many rows."""
        stored = self.stored
        columns = float(len(self.known[0].widths))
        found = stored[-1]
        for _ in range(2):  # rows of a row group depend on the bytes per row
            each = np.array([row_group_bytes / found])
            found = max(float(self.between(each, page_rows, stored, columns)[0]), 1e-9)
        return found

    def between(
        self, rows: Float64, page_rows: npt.ArrayLike, totals: Sequence[float], columns: float
    ) -> Float64:
        """Return bytes per row of so many columns in row groups of `rows` rows, from those at the
        known sizes: linear in the logarithm of rows, but for pages, whose number grows in steps.
        """
        own = [
            total - columns * known.further_pages
            for known, total in zip(self.known, totals, strict=True)
        ]
        found: Float64 = np.interp(
            np.log(np.maximum(rows, 1.0)), np.log([known.rows for known in self.known]), own
        )
        return found + columns * further_pages(rows, page_rows)

    @cached_property
    def cumulative(self) -> Float64:
        """Return the table rows before each ordered row, and after the last, float64[rows + 1]."""
        return np.concatenate(([0.0], np.cumsum(self.pool.weight[self.order])))

    @cached_property
    def middle(self) -> Float64:
        """Return the table rows before the middle of each ordered row, float64[rows]."""
        return (self.cumulative[:-1] + self.cumulative[1:]) / 2.0

    @cached_property
    def ranks(self) -> dict[int, Int32]:
        """Return the ranks of every column in this order."""
        return {
            field: column.ranks.astype(np.int32)[self.order]
            for field, column in self.pool.columns.items()
        }


def place_of(pool: Pool, ordering: Ordering) -> Int64:
    """Return the rows of the pool in the order of `ordering`, whatever their partition."""
    ranks = [pool.columns[column.field_id].places for column in ordering.key]
    return order_rows(ordering, ranks, arrivals(pool.files)[pool.file])


def arranged(
    pool: Pool,
    spec: PartitionSpec,
    ordering: Ordering,
    *,
    thin: Pool,
    extremes: Sequence[Sizes],
    place: Int64 | None = None,
    target: TargetPartitions | None = None,
) -> Arrangement:
    """Return the rows by target partition, then in the ordering.

    thin: a thinner pool of the same files, which is enough to estimate bytes per row. extremes: the
    sizes with the smallest and the largest row groups, and some between. place, target: `place_of`
    and `target_partitions` of the pool, if they are known.
    """
    place = place_of(pool, ordering) if place is None else place
    target = target_partitions(pool, spec) if target is None else target
    narrow = np.uint16 if len(target.values) < 1 << 16 else np.int64  # sorted in linear time
    number = target.number[place].astype(narrow)
    order = place[np.argsort(number, kind="stable")] if len(target.values) > 1 else place
    starts = np.flatnonzero(np.diff(target.number[order], prepend=-1))
    found = [_written(thin, spec, ordering, each) for each in extremes]
    known = {each.rows: each for each in found}  # a small table has one size
    return Arrangement(
        pool, ordering, target, order, starts, tuple(known[rows] for rows in sorted(known))
    )


def _written(thin: Pool, spec: PartitionSpec, ordering: Ordering, sizes: Sizes) -> WrittenBytes:
    """Return what the rows take, simulated once: other queries, ranges and pools ask again."""
    key = (ordering, spec, sizes.target_bytes, sizes.row_group_bytes, sizes.page_rows)
    if key not in thin.written:
        thin.written[key] = _simulated(thin, spec, ordering, sizes)
    return thin.written[key]


def _simulated(thin: Pool, spec: PartitionSpec, ordering: Ordering, sizes: Sizes) -> WrittenBytes:
    layout = Layout(
        ordering, sizes.target_bytes, sizes.row_group_bytes,
        np.zeros(len(thin.files), dtype=np.int64),
        spec=None if spec.unpartitioned else spec, page_rows=sizes.page_rows,
    )  # fmt: skip
    taken = stored_bytes(thin, layout)
    rows = min(sizes.row_group_bytes / max(taken.per_row, 1e-9), taken.rows)
    return WrittenBytes(rows, sizes.page_rows, taken.widths, taken.share)


@dataclass(frozen=True)
class Slices:
    """The row groups (or files) of every size, one size after the other.

    size: which of the sizes; starts: first ordered row; rows: sampled rows; records: table rows;
    part: target partition; stands_for: how many real ones it represents. All [slices].
    """

    size: Int64
    starts: Int64
    rows: Int64
    records: Float64
    part: Int64
    stands_for: Float64


@dataclass(frozen=True)
class Pieces:
    """owner: int64[row groups], the file of each. smallest: sampled rows of the smallest row group
    per size, if the sample were cut into as many as there will be; float64[sizes]."""

    files: Slices
    groups: Slices
    owner: Int64
    smallest: Float64


def cut(rows: Arrangement, sizes: Sequence[Sizes]) -> Pieces:
    """Return where each size cuts the rows into files, and those into row groups."""
    files, groups, owners, smallest, before = [], [], [], [], 0
    for number, size in enumerate(sizes):
        one, parts, owner, least = _cut_one(rows, size, number)
        files.append(one)
        groups.append(parts)
        owners.append(owner + before)
        smallest.append(least)
        before += len(one.starts)
    return Pieces(_joined(files), _joined(groups), np.concatenate(owners), np.array(smallest))


def _joined(parts: Sequence[Slices]) -> Slices:
    names = ("size", "starts", "rows", "records", "part", "stands_for")
    return Slices(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _cut_one(rows: Arrangement, size: Sizes, number: int) -> tuple[Slices, Slices, Int64, float]:
    ends = np.append(rows.starts[1:], len(rows.order))
    weight = rows.cumulative[ends] - rows.cumulative[rows.starts]
    per_row = rows.bytes_per_row(size.row_group_bytes, size.page_rows)
    real = output_files(weight * per_row, size.target_bytes)
    files, part = _sliced(rows, rows.starts, ends, weight, real)
    file_ends = np.append(files[1:], len(rows.order))
    records = rows.cumulative[file_ends] - rows.cumulative[files]
    stands = (real / np.bincount(part, minlength=len(real)))[part]
    full = max(size.row_group_bytes / per_row, 1.0)
    inner = np.maximum(np.ceil(records / stands / full - LEAST_REST), 1.0)
    groups, owner = _sliced(rows, files, file_ends, records, inner * stands, full)
    group_ends = np.append(groups[1:], len(rows.order))
    group_records = rows.cumulative[group_ends] - rows.cumulative[groups]
    group_stands = (inner * stands / np.bincount(owner, minlength=len(files)))[owner]
    group_rows = group_ends - groups
    rest = (np.diff(owner, append=-1) != 0) & (np.diff(owner, prepend=-1) == 0)
    kind = np.full(len(files), number, dtype=np.int64)
    return (
        Slices(kind, files, file_ends - files, records, part, stands),
        Slices(
            np.full(len(groups), number, dtype=np.int64), groups, group_rows, group_records,
            part[owner], group_stands,
        ),
        owner,
        float(np.percentile((group_rows / group_stands)[~rest], 10)),
    )  # fmt: skip


def _sliced(
    rows: Arrangement,
    starts: Int64,
    ends: Int64,
    weight: Float64,
    wanted: npt.ArrayLike,
    full: float | None = None,
) -> tuple[Int64, Int64]:
    """Return the first row and the parent of each slice; parents are cut into equal weights.

    full: table rows of a slice; a parent then has full ones and a rest, as a file has row groups.
    A parent with few sampled rows is cut into fewer slices than wanted, which are equal.
    """
    lengths = ends - starts
    most = np.maximum(1, lengths // MIN_SLICE_ROWS)
    asked = np.ceil(np.asarray(wanted, dtype=np.float64))
    used = np.minimum(asked, most).astype(np.int64)
    each = weight / used
    if full is not None:
        exact = (asked <= most) & (weight <= (used + LEAST_REST) * full)
        each = np.where(exact, np.minimum(full, weight), each)
    parent = np.repeat(np.arange(len(starts)), used)
    inside = np.arange(len(parent)) - np.repeat(np.cumsum(used) - used, used)
    edge = rows.cumulative[starts[parent]] + inside * each[parent]
    first = np.searchsorted(rows.middle, edge, side="left")
    first = np.maximum(first, starts[parent])
    first[inside == 0] = starts
    filled = np.diff(np.append(first, len(rows.order))) > 0
    return first[filled].astype(np.int64), parent[filled].astype(np.int64)
