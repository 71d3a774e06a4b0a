"""Which leaves of a tree of cuts share a file, and which share a row group.

The engine writes by these rules and the what-if simulates them. Leaves that share a file are those
below one node, as far as they can be: their rows are then a range of every column too, and the
file's bounds rule out what the node rules out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reconciler.table.cut_tree import Tree
from reconciler.table.filetable import Bool, Int64
from reconciler.table.row_group_bytes import output_files

ALONE = 0.5
"""Share of a file from which on a leaf has files of its own."""
TOGETHER = 1.4
"""Files that the small leaves below one node may be to become one: about twice the least, so that
such files are of the target size on average."""
MOST = 1.5
"""The same where a file would be smaller than ALONE otherwise."""


ROOT = np.zeros(1, dtype=np.int64)
"""Where the only part of leaves begins."""


class Unit(NamedTuple):
    """Leaves that files are written for, and for no others."""

    first: int
    """The first leaf, counted among those given."""
    end: int
    """The leaf after the last."""
    files: int
    """Number of files, of equal rows; 1 for several leaves."""

    @property
    def shared(self) -> bool:
        return self.end - self.first > 1


def file_units(tree: Tree, leaf: Int64, rows: Int64, file_rows: float) -> list[Unit]:
    """Return the files that leaves become, whose numbers ascend: `unit_table` as values."""
    return [Unit(*unit) for unit in unit_table(tree, leaf, rows, file_rows, ROOT).tolist()]


def unit_table(tree: Tree, leaf: Int64, rows: Int64, file_rows: float, parts: Int64) -> Int64:
    """Return the files that leaves become, int64[units, 3]: the fields of a `Unit`.

    leaf: numbers of the leaves that have rows, int64[leaves]. rows: of each. file_rows: of a file
    of the target size. parts: where parts of the leaves begin, in each of which their numbers
    ascend, and no two of which share a file. A leaf of at least half a file has files of its own.
    Smaller leaves share one with those below the same node. What is smaller than half a file even
    then goes to a neighbour of small leaves, where both are not too large for one file.
    """
    if not len(leaf):
        return np.zeros((0, 3), dtype=np.int64)
    apart = _partings(tree, leaf)
    apart[parts] = -1
    small = rows < ALONE * file_rows
    before = np.concatenate(([0], np.cumsum(rows)))
    first = _below_nodes(apart, before, np.concatenate(([0], np.cumsum(~small))), file_rows)
    own = np.diff(before[np.append(first, len(leaf))])
    first = first[_kept_apart(own, small[first] & (apart[first] >= 0), small[first], file_rows)]
    files = np.where(small[first], 1, output_files(rows[first], file_rows))
    return np.stack((first, np.append(first[1:], len(leaf)), files), axis=1)


def _partings(tree: Tree, leaf: Int64) -> Int64:
    """Return how deep each of these leaves parts from the one before, which has a lower number."""
    padded = np.append(tree.partings, tree.leaves)
    found: Int64 = np.minimum.reduceat(padded, leaf)
    return np.roll(found, 1)


def _below_nodes(apart: Int64, before: Int64, large: Int64, file_rows: float) -> Int64:
    """Return where the runs begin of small leaves below one node that fit a file together, and
    each other leaf alone, ascending.

    apart: how deep each leaf parts from the one before, -1 at the first of a part. before, large:
    rows, and large leaves, before each leaf, and in all. The nodes of one depth are looked at
    together, and then those inside the ones that do not fit.
    """
    found, left, depth = list[Int64](), np.arange(len(apart)), 0
    while len(left):
        starts = np.flatnonzero(apart[left] < depth)
        first, end = left[starts], left[np.append(starts[1:], len(left)) - 1] + 1
        fits = (large[end] == large[first]) & (before[end] - before[first] <= TOGETHER * file_rows)
        fits |= end - first == 1
        found.append(first[fits])
        left = left[np.repeat(~fits, end - first)]
        inside = apart[left]
        depth = int(inside[inside >= depth].min(initial=np.iinfo(np.int64).max - 1)) + 1
    return np.sort(np.concatenate(found))


def _kept_apart(own: Int64, joins: Bool, small: Bool, file_rows: float) -> Bool:
    """Return which runs are not added to the run before them, bool[runs].

    own: rows of each run. joins: runs of small leaves that do not begin a part. small: runs of
    small leaves. A run grows by what is added, so only runs that could be added at their own size
    are looked at one by one.
    """
    least, most, kept = ALONE * file_rows, MOST * file_rows, np.ones(len(own), dtype=np.bool_)
    may = joins[1:] & small[:-1] & (np.minimum(own[1:], own[:-1]) < least)
    may &= own[1:] + own[:-1] < most
    held, until = 0, -1
    for at in (np.flatnonzero(may) + 1).tolist():
        mine = int(own[at])
        held = held if until == at - 1 else int(own[at - 1])
        if min(mine, held) < least and mine + held < most:
            kept[at], held, until = False, held + mine, at
    return kept


def row_group_units(rows: Int64, group_rows: float) -> list[tuple[int, int]]:
    """Return the runs (first, end) of the leaves of one file that row groups are not shared beyond:
    single leaves, or neighbours of which one is smaller than half a row group and that fit one.
    rows: of each leaf."""
    found: list[tuple[int, int]] = []
    sizes: list[int] = []
    for leaf, own in enumerate(rows.tolist()):
        if sizes and sizes[-1] + own <= group_rows and min(sizes[-1], own) < group_rows / 2:
            found[-1], sizes[-1] = (found[-1][0], leaf + 1), sizes[-1] + own
        else:
            found.append((leaf, leaf + 1))
            sizes.append(own)
    return found
