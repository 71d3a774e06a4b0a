"""Arranges sampled rows as a layout writes them, and cuts them into files and row groups.

The rows are arranged once per partition spec and ordering; each size only cuts them elsewhere. The
engine writes files of equal rows, and row groups of equal rows in each: so are these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from reconciler.advisor.simulate.layout import Sizes
from reconciler.advisor.simulate.pool import Pool
from reconciler.advisor.simulate.target import TargetPartitions
from reconciler.plan.grouping import arrivals
from reconciler.plan.ordering import Ordering, order_rows
from reconciler.table.filetable import Bool, Float64, Int64
from reconciler.table.leaf_files import row_group_units, unit_table
from reconciler.table.row_group_bytes import output_files, row_groups_of

Int32 = npt.NDArray[np.int32]

InLeaves = tuple[Int64, Int64, Bool, Bool]
"""Per leaf of a tree the least and the greatest rank of a column that it may hold, and whether it
may hold NULL, and NaN."""

PARTS = 4
"""Parts of the sample that show how ranges grow with the number of rows: halves and quarters. Each
PARTS-th row is of one part."""

MIN_SLICE_ROWS = 8
"""Sampled rows that a simulated file or row group has at least."""


@dataclass(frozen=True)
class Arrangement:
    """The rows of a pool in the order in which a layout writes them."""

    pool: Pool
    """The sampled rows."""
    ordering: Ordering
    """The order of the rows within each part."""
    order: Int64
    """int64[rows], the rows of the pool, part by part."""
    part: Int64
    """int64[rows], ascending: rows of one part are written together and with no others."""
    weight: Float64
    """float64[rows], the rows of the table that each ordered row represents."""
    target: TargetPartitions | None = None
    """The partitions that parts are, if rows are moved to a spec; else parts are groups of files,
    which follow each other in key order."""
    leaf: Int64 | None = None
    """int64[rows], the leaf of each ordered row in a tree of cuts, at which files and row groups
    end; None in other orders."""
    in_leaves: dict[int, InLeaves] = field(default_factory=dict)
    """What each leaf may hold of a column, by field id, once that is asked for: other weights of
    the rows have the same."""

    @cached_property
    def starts(self) -> Int64:
        """Return the first ordered row of each part."""
        return np.flatnonzero(np.diff(self.part, prepend=-1))

    @cached_property
    def cumulative(self) -> Float64:
        """Return the table rows before each ordered row, and after the last, float64[rows + 1]."""
        return np.concatenate(([0.0], np.cumsum(self.weight)))

    @cached_property
    def middle(self) -> Float64:
        """Return the table rows before the middle of each ordered row, float64[rows]."""
        return (self.cumulative[:-1] + self.cumulative[1:]) / 2.0

    @cached_property
    def leaf_begins(self) -> Bool:
        """Return whether a leaf of the tree begins at each ordered row, bool[rows]."""
        assert self.leaf is not None
        found: Bool = np.diff(self.leaf, prepend=-1) != 0
        return found

    @cached_property
    def ranks(self) -> dict[int, Int32]:
        """Return the ranks of every column in this order."""
        return {
            number: column.ranks.astype(np.int32)[self.order]
            for number, column in self.pool.columns.items()
        }

    def weighted(self, weight: Float64) -> Arrangement:
        """Return the rows of a positive weight, with it. weight: float64[rows of the pool]."""
        own = weight[self.order]
        kept = np.flatnonzero(own > 0.0)
        leaf = None if self.leaf is None else self.leaf[kept]
        return replace(
            self, order=self.order[kept], part=self.part[kept], weight=own[kept], leaf=leaf
        )


def row_order_of(pool: Pool, ordering: Ordering) -> Int64:
    """Return the rows of the pool in the order of `ordering`, whatever their part."""
    return _ordered(pool, ordering)[0]


def _ordered(pool: Pool, ordering: Ordering) -> tuple[Int64, Int64 | None]:
    """Return the rows of the pool in an order, and the leaf of each row of the pool in its tree,
    found once: other sizes, and replicates, arrange them again."""
    if ordering not in pool.ordered:
        key = pool.key_of(ordering)
        leaf, arrival = ordering.leaf_of(*key), arrivals(pool.files)[pool.file]
        pool.ordered[ordering] = order_rows(ordering, key[0], arrival, None, key[1], leaf), leaf
    return pool.ordered[ordering]


def arranged(
    pool: Pool,
    ordering: Ordering,
    part: Int64,
    target: TargetPartitions | None = None,
    row_order: Int64 | None = None,
) -> Arrangement:
    """Return the rows by part, then in the ordering.

    part: int64[rows of the pool]. row_order: `row_order_of` the pool, if it is known.
    """
    if row_order is None:
        order, leaf = _ordered(pool, ordering)
    else:
        order, leaf = row_order, ordering.leaf_of(*pool.key_of(ordering))
    most = int(part.max(initial=0))
    if most:
        narrow = np.uint16 if most < 1 << 16 else np.int64  # sorted in linear time
        order = order[np.argsort(part[order].astype(narrow), kind="stable")]
    return Arrangement(
        pool, ordering, order, part[order], pool.weight[order], target,
        None if leaf is None else leaf[order],
    )  # fmt: skip


@dataclass(frozen=True)
class Slices:
    """The row groups (or files) of every size, one size after the other. All [slices]."""

    size: Int64
    """Number of the size that each slice is of."""
    starts: Int64
    """The first row of each slice, counted in order."""
    rows: Int64
    """Sampled rows in each slice."""
    records: Float64
    """Rows of the table in each slice, of all files that it represents."""
    represents: Float64
    """Real files or row groups that each slice represents: more than one in a thin sample."""

    @property
    def ends(self) -> Int64:
        return self.starts + self.rows

    @cached_property
    def first(self) -> Int64:
        """Return the first slice of each size."""
        return np.flatnonzero(np.diff(self.size, prepend=-1))

    @cached_property
    def doublings(self) -> Float64:
        """Return how often the sampled rows of each slice double until they are all of its rows."""
        return np.log2(np.maximum(self.records / np.maximum(self.rows, 1), 1.0))

    @property
    def each(self) -> Float64:
        """Return the table's rows of one real file or row group."""
        return self.records / self.represents


def further(last: Float64, share: Float64, doublings: Float64) -> Float64:
    """Return what more doublings of the rows add, if each adds the same share of what the one
    before it added. last: what the last doubling among the sampled rows added; share: below 1."""
    found: Float64 = last * share * (1.0 - share**doublings) / (1.0 - share)
    return found


def reduced(
    reduce: np.ufunc, values: npt.NDArray[Any], beyond: float, ends: Int64 | None
) -> npt.NDArray[Any]:
    """Reduce values over slices, which may overlap, along the last axis.

    values: of what is between two edges, at which all slices begin and end. beyond: changes no
    result. ends: as `Pieces.ends` has them.
    """
    if ends is None:
        return values
    padding = np.full((*values.shape[:-1], 1), beyond, dtype=values.dtype)
    padded = np.concatenate((values, padding), axis=-1)  # an end may be behind the last edge
    found: npt.NDArray[Any] = reduce.reduceat(padded, ends, axis=-1)
    return found[..., ::2]


@dataclass(frozen=True)
class Pieces:
    """The files and row groups into which sizes cut the rows."""

    files: Slices
    """They are in the order of their rows, size by size."""
    groups: Slices
    """They are likewise, file by file."""
    owner: Int64
    """int64[row groups], the file of each."""

    @cached_property
    def smallest(self) -> Float64:
        """Return, for each size, the sampled rows of its smallest row groups (their 10th
        percentile) if the sample were cut into as many as there will be, float64[sizes]."""
        held = np.split(self.groups.rows / self.groups.represents, self.groups.first[1:])
        return np.array([float(np.percentile(own, 10)) for own in held])

    @cached_property
    def edges(self) -> Int64:
        """Return the first rows of all row groups, ascending, each once."""
        return np.flatnonzero(np.bincount(self.groups.starts))

    @cached_property
    def alike(self) -> bool:
        """Whether every file is one row group, and represents as many as that."""
        files, groups = self.files, self.groups
        return np.array_equal(files.starts, groups.starts) and np.array_equal(
            files.represents, groups.represents
        )

    @cached_property
    def ends(self) -> tuple[Int64 | None, Int64 | None]:
        """Return the edges at which files begin, and row groups, each followed by where it ends;
        None where each is what is between two edges."""
        return self._ends_of(self.files), self._ends_of(self.groups)

    def _ends_of(self, slices: Slices) -> Int64 | None:
        if np.array_equal(slices.starts, self.edges):
            return None
        return np.searchsorted(
            self.edges, np.stack((slices.starts, slices.ends), axis=1).reshape(-1)
        )

    @cached_property
    def parts(self) -> list[tuple[Int64, Int64]]:
        """Return, for each part of the sample, where the pieces between two edges begin among its
        rows, and which pieces those are; without pieces that have no row of the part."""
        found, ends = list[tuple[Int64, Int64]](), np.append(self.edges[1:], self.groups.ends.max())
        for part in range(PARTS):
            first, last = ((PARTS - 1 - part + each) // PARTS for each in (self.edges, ends))
            filled = np.flatnonzero(last > first)
            found.append((first[filled], filled))
        return found


def cut(rows: Arrangement, sizes: Sequence[Sizes], per_row: Sequence[float]) -> Pieces:
    """Return where each size cuts the rows into files, and those into row groups. per_row: stored
    bytes of a row in each size."""
    files, groups, owners, before = [], [], [], 0
    for number, (size, stored) in enumerate(zip(sizes, per_row, strict=True)):
        one, inner, owner = _cut_one(rows, size, stored, number)
        files.append(one)
        groups.append(inner)
        owners.append(owner + before)
        before += len(one.starts)
    return Pieces(_joined(files), _joined(groups), np.concatenate(owners))


def _joined(parts: Sequence[Slices]) -> Slices:
    if len(parts) == 1:
        return parts[0]
    names = ("size", "starts", "rows", "records", "represents")
    return Slices(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _cut_one(
    rows: Arrangement, size: Sizes, per_row: float, number: int
) -> tuple[Slices, Slices, Int64]:
    if rows.leaf is not None:
        return _cut_at_leaves(rows, rows.leaf, size, per_row, number)
    ends = np.append(rows.starts[1:], len(rows.order))
    weight = rows.cumulative[ends] - rows.cumulative[rows.starts]
    real = output_files(weight * per_row, size.target_bytes).astype(np.float64)
    files, _ = _sliced(rows, rows.starts, ends, real, number)
    inner = row_groups_of(files.each * per_row, size.row_group_bytes)
    groups, owner = _sliced(rows, files.starts, files.ends, inner * files.represents, number)
    return files, groups, owner


def _cut_at_leaves(
    rows: Arrangement, leaf: Int64, size: Sizes, per_row: float, number: int
) -> tuple[Slices, Slices, Int64]:
    """Return files and row groups that end at leaves, as `leaf_files.unit_table` has them."""
    starts = np.flatnonzero(rows.leaf_begins | (np.diff(rows.part, prepend=-1) != 0))
    ends = np.append(starts[1:], len(leaf))
    held = np.maximum(np.rint(rows.cumulative[ends] - rows.cumulative[starts]), 1).astype(np.int64)
    tree, parts = rows.ordering.tree, np.searchsorted(starts, rows.starts)
    assert tree is not None
    units = unit_table(tree, leaf[starts], held, size.target_bytes / per_row, parts)
    first, end, wanted = units.T
    files, unit_of = _sliced(rows, starts[first], ends[end - 1], wanted.astype(float), number)
    span, owner = _row_group_spans(
        files, first[unit_of], end[unit_of], (starts, ends, held), size.row_group_bytes / per_row
    )
    each = (rows.cumulative[span[:, 1]] - rows.cumulative[span[:, 0]]) / files.represents[owner]
    inner = row_groups_of(each * per_row, size.row_group_bytes) * files.represents[owner]
    groups, of = _sliced(rows, span[:, 0], span[:, 1], inner, number)
    return files, groups, owner[of]


def _row_group_spans(
    files: Slices,
    first: Int64,
    end: Int64,
    leaves: tuple[Int64, Int64, Int64],
    group_rows: float,
) -> tuple[Int64, Int64]:
    """Return the rows that row groups must not cross the ends of, int64[spans, 2], and the file of
    each: a file of one leaf is one span. first, end: leaves of each file; leaves: start, end and
    rows of each."""
    starts, ends, held = leaves
    alone = np.flatnonzero(end - first == 1)
    spans = [np.stack((files.starts[alone], files.ends[alone]), axis=1)]
    owners, until = [alone], files.ends
    for file in np.flatnonzero(end - first > 1).tolist():
        one, stop = int(first[file]), int(end[file])
        runs = np.asarray(row_group_units(held[one:stop], group_rows), dtype=np.int64)
        own = np.array([[files.starts[file], until[file]]])
        if len(runs):
            own = np.stack((starts[one + runs[:, 0]], ends[one + runs[:, 1] - 1]), axis=1)
        spans.append(own)
        owners.append(np.full(len(own), file, dtype=np.int64))
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    return np.concatenate(spans)[order], owner[order]


def _sliced(
    rows: Arrangement, starts: Int64, ends: Int64, wanted: Float64, number: int
) -> tuple[Slices, Int64]:
    """Return the slices of parents, which are cut into equal rows of the table, and the parent of
    each. wanted: how many of each parent; of one with few sampled rows there are fewer."""
    used = np.minimum(np.ceil(wanted), np.maximum(1, (ends - starts) // MIN_SLICE_ROWS))
    used = used.astype(np.int64)
    each = (rows.cumulative[ends] - rows.cumulative[starts]) / used
    parent = np.repeat(np.arange(len(starts)), used)
    inside = np.arange(len(parent)) - np.repeat(np.cumsum(used) - used, used)
    edge = rows.cumulative[starts[parent]] + inside * each[parent]
    first = np.maximum(np.searchsorted(rows.middle, edge, side="left"), starts[parent])
    first[inside == 0] = starts
    filled = np.diff(np.append(first, len(rows.order))) > 0
    first, parent = first[filled].astype(np.int64), parent[filled].astype(np.int64)
    last = np.append(first[1:], len(rows.order))
    slices = Slices(
        np.full(len(first), number, dtype=np.int64), first, last - first,
        rows.cumulative[last] - rows.cumulative[first],
        (wanted / np.bincount(parent, minlength=len(starts)))[parent],
    )  # fmt: skip
    return slices, parent
