"""What the leaves of a tree of cuts say of the bounds of files and row groups.

A sample's range is widened, because all rows reach further than a few of them. No row of a leaf is
beyond the cuts above it, however (Yang et al., "Qd-tree", section 3.2: a leaf's description), and
in a leaf that is sorted by a column no gap is wider than to the next sampled value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from reconciler.advisor.simulate.arrangement import Arrangement, InLeaves, Slices, reduced
from reconciler.table.cut_tree import Tree, thresholds_of
from reconciler.table.filetable import Array, Bool, Int64

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
    rows: Arrangement
    """The rows, in the order of the tree."""
    field: int
    """Field id of the column."""

    def over(self, ends: Int64 | None) -> LeafLimits:
        """Return the same for slices. ends: among the edges, as `Pieces.ends` has them."""
        if ends is None:
            return self
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
        rows, first, last = self.rows, slices.starts, slices.ends - 1
        leaf, tree = rows.leaf, rows.ordering.tree
        assert leaf is not None and tree is not None
        mine = leaf[first]
        alone = np.flatnonzero(
            (mine == leaf[last]) & (np.asarray(tree.inner, dtype=np.int64)[mine] == self.field)
        )
        low, high = np.maximum(low, self.low), np.minimum(high, self.high)
        low[alone] = np.maximum(low[alone], self._beside(first[alone], -1))
        high[alone] = np.minimum(high[alone], self._beside(last[alone], 1))
        return low, high

    def _beside(self, at: Int64, step: int) -> Int64:
        """Return the rank of the row before (step -1) or after (1) each of these, beyond every rank
        where that is of another leaf or part, or has no value and comes after."""
        rows, none = self.rows, step * FAR
        assert rows.leaf is not None
        beside = np.clip(at + step, 0, len(rows.order) - 1)
        rank = rows.ranks[self.field][beside].astype(np.int64)
        same = (rows.leaf[beside] == rows.leaf[at]) & (rows.part[beside] == rows.part[at])
        same &= (beside != at) & ((rank >= 0) | (step < 0))
        return np.where(same, rank, none)

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
    if field not in rows.in_leaves:
        rows.in_leaves[field] = _in_leaves(tree, field, rows.pool.columns[field].distinct)
    low, high, null, nan = rows.in_leaves[field]
    begins = rows.leaf_begins.copy()
    begins[edges] = True
    starts = np.flatnonzero(begins)
    leaf, pieces = rows.leaf[starts], np.searchsorted(starts, edges)
    return LeafLimits(
        np.minimum.reduceat(low[leaf], pieces), np.maximum.reduceat(high[leaf], pieces),
        np.logical_or.reduceat(null[leaf], pieces), np.logical_or.reduceat(nan[leaf], pieces),
        rows, field,
    )  # fmt: skip


def _in_leaves(tree: Tree, field: int, distinct: Array) -> InLeaves:
    """Return what each leaf may hold of a column. distinct: its values by rank."""
    if field not in tree.boxes:
        every = np.ones(tree.leaves, dtype=bool)
        return np.zeros(tree.leaves, dtype=np.int64), np.full(tree.leaves, FAR), every, every
    ends = thresholds_of(tree.of_column[field], distinct)
    least, most = tree.boxes[field]
    low, high = np.concatenate(([0], ends))[least], np.concatenate((ends, [FAR]))[most] - 1
    return low, high, least == 0, most == len(ends)
