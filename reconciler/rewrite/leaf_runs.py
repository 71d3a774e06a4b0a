"""The ranks of rows along a tree of cuts whose columns do not fit a task's memory (Yang et al.,
"Qd-tree", section 3.1).

Of every row, its leaf and its rank are in memory. What leaves are sorted by is read run of leaves
by run of leaves, and only from row groups that have rows of the run.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reconciler.rewrite.leaves import Counted, permutation
from reconciler.table.cut_tree import Tree

Numbers = npt.NDArray[np.unsignedinteger[Any]]
"""Numbers from 0 on, as narrow as they allow."""
Int64 = npt.NDArray[np.int64]

RANK_BYTES = 8
"""Memory per row of the number of its leaf and of its rank."""
RUN_BYTES = 112
"""Memory per row of the run that is ordered: the value, the leaf and the number, each with what a
sort of it takes."""
RUNS = 8
"""Runs at most: each reads the columns that its leaves are sorted by once more."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A row group of an input."""

    file: int
    """Number of the input."""
    number: int
    """Its number among the row groups of the input that have rows."""
    begin: int
    """Live rows of all row groups before it."""
    end: int
    """Live rows up to its end."""


@dataclass(frozen=True, slots=True)
class Run:
    """Rows that follow each other when they are written."""

    first: int
    """The first slot (`leaves.Counted`)."""
    last: int
    """The last slot."""
    begin: int
    """Rows that are written before."""
    rows: int
    """Rows of the run."""
    skip: int = 0
    """Rows of its leaf, in order of arrival, that earlier runs have: a leaf of more rows than a run
    takes is divided at the ends of its files."""


Read = Callable[[Sequence[tuple[Piece, Int64]], Sequence[int]], Mapping[int, pa.ChunkedArray]]
"""Reads these live rows of these row groups, in columns of these field ids, by field id."""


def runs_of(counted: Counted, ends: Sequence[int], most: int) -> list[Run]:
    """Return runs of leaves of about equal rows, at most `most` each, or one file of one leaf.

    ends: rows up to the end of each file, ascending.
    """
    most = max(most, -(-counted.total // RUNS), 1)
    found: list[Run] = []
    at = held = 0
    first = last = -1
    for slot, own in zip(counted.slots.tolist(), counted.rows.tolist(), strict=True):
        if held and held + own > most:
            found.append(Run(first, last, at - held, held))
            held = 0
        if own > most:
            found += _divided(slot, at, at + own, ends, most)
        else:
            first, last, held = slot if not held else first, slot, held + own
        at += own
    return [*found, Run(first, last, at - held, held)] if held else found


def _divided(slot: int, begin: int, end: int, ends: Sequence[int], most: int) -> Iterator[Run]:
    """Yield the runs of one leaf whose rows are written from `begin` to `end`."""
    low, high = bisect.bisect_right(ends, begin), bisect.bisect_left(ends, end)
    edges, at = [*ends[low:high], end], begin
    for edge, following in zip(edges, [*edges[1:], None], strict=True):
        if following is None or following - at > most:
            yield Run(slot, slot, at, edge - at, at - begin)
            at = edge


def ranks(
    tree: Tree, slot: Numbers, pieces: Sequence[Piece], runs: Sequence[Run], read: Read
) -> Numbers:
    """Return how many rows are written before each row.

    slot: of each row in order of arrival, as in `leaves.Counted`.
    """
    found = np.empty(len(slot), dtype=np.min_scalar_type(max(1, len(slot))))
    for run in runs:
        inside = list(_inside(run, slot, pieces))
        numbers = np.concatenate([piece.begin + rows for piece, rows in inside])
        own = slot[numbers].astype(np.int64)
        leaf = own % tree.leaves
        some = np.flatnonzero(np.bincount(leaf)).tolist()
        sorted_by = sorted({tree.inner[one] for one in some} - {0})
        values = read(inside, sorted_by) if sorted_by else {}
        order = permutation(tree, values, leaf, [own // tree.leaves])
        found[numbers[order]] = run.begin + np.arange(len(order))
    return found


def _inside(run: Run, slot: Numbers, pieces: Sequence[Piece]) -> Iterator[tuple[Piece, Int64]]:
    """Yield the row groups that have rows of a run, with the numbers of these among their own."""
    seen = 0
    for piece in pieces:
        own = slot[piece.begin : piece.end]
        rows = np.flatnonzero((own >= run.first) & (own <= run.last))
        mine = rows[max(0, run.skip - seen) : max(0, run.skip + run.rows - seen)]
        seen += len(rows)
        if len(mine):
            yield piece, mine.astype(np.int64)
