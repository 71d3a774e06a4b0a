"""Which leaves of a tree of cuts share a file, and which share a row group.

The engine writes by these rules and the what-if simulates them. Leaves that share a file are those
below one node, as far as they can be: their rows are then a range of every column too, and the
file's bounds rule out what the node rules out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from reconciler.table.cut_tree import Tree
from reconciler.table.filetable import Int64
from reconciler.table.row_group_bytes import output_files

ALONE = 0.5
"""Share of a file from which on a leaf has files of its own."""
TOGETHER = 1.4
"""Files that the small leaves below one node may be to become one: about twice the least, so that
such files are of the target size on average."""
MOST = 1.5
"""The same where a file would be smaller than ALONE otherwise."""


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


def file_units(
    tree: Tree, leaf: Int64, rows: Int64, file_rows: float, parts: Sequence[int] = (0,)
) -> list[Unit]:
    """Return the files that leaves become.

    leaf: numbers of the leaves that have rows, int64[leaves]. rows: of each. file_rows: of a file
    of the target size. parts: where parts of the leaves begin, in each of which their numbers
    ascend, and no two of which share a file. A leaf of at least half a file has files of its own.
    Smaller leaves share one with those below the same node. What is smaller than half a file even
    then goes to a neighbour of small leaves, where both are not too large for one file.
    """
    if not len(leaf):
        return []
    files = output_files(rows, file_rows).tolist()
    before = [0, *np.cumsum(rows).tolist()]
    small = (rows < ALONE * file_rows).tolist()
    large = [0, *accumulate(not one for one in small)]
    partings, found = _partings(tree, leaf), list[Unit]()
    for begin, stop in pairwise([*parts, len(leaf)]):
        last = -1
        for first, end in _below_nodes(partings, before, large, file_rows, (begin, stop)):
            own = before[end] - before[first]
            if last >= 0 and small[first] and small[last]:
                held = before[first] - before[last]
                if min(own, held) < ALONE * file_rows and own + held < MOST * file_rows:
                    found[-1] = Unit(last, end, 1)
                    continue
            last = first
            found.append(Unit(first, end, 1 if small[first] else files[first]))
    return found


def _partings(tree: Tree, leaf: Int64) -> list[int]:
    """Return how deep each of these leaves parts from the next, which has a greater number."""
    padded = np.append(tree.partings, tree.leaves)
    return np.minimum.reduceat(padded, leaf)[:-1].tolist()


def _below_nodes(
    partings: Sequence[int],
    before: Sequence[int],
    large: Sequence[int],
    file_rows: float,
    part: tuple[int, int],
) -> list[tuple[int, int]]:
    """Return the runs (first, end) of small leaves below one node that fit a file together, and
    each other leaf alone, from left to right. before, large: rows, and large leaves, before each
    leaf, and in all.

    Numbers are Python's: there are hundreds, and each is looked at alone.
    """
    found: list[tuple[int, int]] = []
    left, most = [part], TOGETHER * file_rows
    while left:
        first, end = left.pop()
        fits = large[end] == large[first] and before[end] - before[first] <= most
        if fits or end - first == 1:
            found.append((first, end))
        else:
            inside = partings[first : end - 1]
            middle = first + 1 + inside.index(min(inside))
            left += [(middle, end), (first, middle)]
    return found


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
