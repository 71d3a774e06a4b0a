"""What the leaves of a tree of cuts say of the bounds of files and row groups.

A sample's range is widened, because all rows reach further than a few of them. No row of a leaf is
beyond the cuts above it, however (Yang et al., "Qd-tree", section 3.2: a leaf's description), and
in a leaf that is sorted by a column no gap is wider than to the next sampled value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from reconciler.advisor.simulate.arrangement import Arrangement, Slices, reduced
from reconciler.table.cut_tree import thresholds_of
from reconciler.table.filetable import Bool, Int64

FAR = np.iinfo(np.int64).max // 4
"""Beyond every rank."""


@dataclass(frozen=True)
class LeafLimits:
    """The ranks of one column that a tree allows in pieces: between two edges at which slices begin
    or end, or in a slice."""

    low: Int64
    """int64[pieces], the least rank that a leaf of the piece may hold."""
    high: Int64
    """int64[pieces], the greatest, likewise."""
    null: Bool
    """bool[pieces], whether one of them may hold NULL."""
    nan: Bool
    """bool[pieces], whether one of them may hold NaN."""
    before: Int64
    """int64[rows], the rank of the row before, of a leaf that is sorted by the column and has one;
    else -FAR."""
    after: Int64
    """int64[rows], the rank of the row after, likewise; else FAR."""
    leaf: Int64
    """int64[rows], the leaf of each row."""

    def over(self, ends: Int64) -> LeafLimits:
        """Return the same for slices. ends: among the edges, as `Pieces.ends` has them."""
        return replace(
            self,
            low=reduced(np.minimum, self.low, FAR, ends),
            high=reduced(np.maximum, self.high, -FAR, ends),
            null=reduced(np.logical_or, self.null, False, ends),
            nan=reduced(np.logical_or, self.nan, False, ends),
        )

    def within(self, slices: Slices, low: Int64, high: Int64) -> tuple[Int64, Int64]:
        """Return ranges of the slices without what their leaves rule out. low, high: int64[slices],
        which all sampled rows are within."""
        first, last = slices.starts, slices.ends - 1
        alone = self.leaf[first] == self.leaf[last]
        least = np.where(alone, np.maximum(self.low, self.before[first]), self.low)
        most = np.where(alone, np.minimum(self.high, self.after[last]), self.high)
        return np.maximum(low, least), np.minimum(high, most)

    def barred(self) -> Bool:
        """Return the classes (NULL, value, NaN) that no leaf of a slice may hold,
        bool[3, slices]."""
        return np.stack([~self.null, np.zeros_like(self.null), ~self.nan])


def leaf_limits(rows: Arrangement, field: int, edges: Int64) -> LeafLimits | None:
    """Return what a tree says of a column between these edges; None where it neither cuts nor sorts
    by it."""
    tree = rows.ordering.tree
    if rows.leaf is None or tree is None or field not in tree.columns:
        return None
    low, high, null, nan = (
        np.zeros(tree.leaves, dtype=np.int64), np.full(tree.leaves, FAR),
        np.ones(tree.leaves, dtype=bool), np.ones(tree.leaves, dtype=bool),
    )  # fmt: skip
    if field in tree.boxes:
        column = rows.pool.columns[field]
        ends = thresholds_of(tree.of_column[field], column.distinct)
        least, most = tree.boxes[field]
        low = np.concatenate(([0], ends))[least]
        high = np.concatenate((ends, [FAR]))[most] - 1
        null, nan = least == 0, most == len(ends)
    ranks = rows.ranks[field].astype(np.int64)
    mine = np.asarray(tree.inner, dtype=np.int64)[rows.leaf] == field
    return LeafLimits(
        np.minimum.reduceat(low[rows.leaf], edges), np.maximum.reduceat(high[rows.leaf], edges),
        np.logical_or.reduceat(null[rows.leaf], edges),
        np.logical_or.reduceat(nan[rows.leaf], edges),
        *_neighbours(ranks, rows.leaf, rows.part, mine), rows.leaf,
    )  # fmt: skip


def _neighbours(ranks: Int64, leaf: Int64, part: Int64, mine: Bool) -> tuple[Int64, Int64]:
    """Return the ranks of the rows before and after each in a sorted leaf."""
    same = (leaf[1:] == leaf[:-1]) & (part[1:] == part[:-1]) & mine[1:]
    before, after = np.full(len(ranks), -FAR), np.full(len(ranks), FAR)
    before[1:][same] = ranks[:-1][same]
    valued = same & (ranks[1:] >= 0)
    after[:-1][valued] = ranks[1:][valued]
    return before, after
