"""Decides which files are not in the leaves of a tree of cuts, by their bounds, and between which
leaves a file lies.

A file that was written for a leaf meets that leaf alone. One that meets many, as new data does, is
read by the queries of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from reconciler.table.cut_tree import LEAF, Cut, Tree, codes_of_values
from reconciler.table.filetable import Array, Bool, ColumnBounds, FileTable, Int64
from reconciler.table.scales import Scale, scale_of

SLACK = 2.0
"""Leaves that a file may meet, in those that its share of the rows comes to: bounds of long texts
are cut off, and small leaves share files."""
OUTSIDE_SHARE = 0.25
"""Files outside leaves are rewritten with all others if they are at least this share of them."""


class DriftedFiles(NamedTuple):
    """Files of one partition to rewrite together, or to leave alone."""

    files: Int64
    """int64: rows of the file table, ascending."""
    rewrite: bool
    """Whether to rewrite the files."""
    reason: str
    """Why they have drifted, or why they are left alone."""


def leaf_drift(
    table: FileTable, tree: Tree, files: Int64, min_input_files: int
) -> list[DriftedFiles]:
    """Return the files of one partition to write into leaves, or to leave alone, and why."""
    outside = outside_leaves(table, tree, files)
    if not len(outside):
        return []
    share = float(table.bytes[outside].sum()) / max(float(table.bytes[files].sum()), 1.0)
    why = f"{len(outside)} of {len(files)} files meet more leaves than they have rows for"
    if share >= OUTSIDE_SHARE:
        return [DriftedFiles(files, True, why)]
    if len(outside) >= min_input_files:
        return [DriftedFiles(outside, True, why)]
    less = f"{100 * OUTSIDE_SHARE:.0f} % of its bytes and minInputFiles {min_input_files}"
    return [DriftedFiles(outside, False, f"outside the leaves of the tree, but less than {less}")]


def outside_leaves(table: FileTable, tree: Tree, files: Int64) -> Int64:
    """Return which of these files of one partition meet more leaves than they have rows for."""
    met = leaves_met(table, tree, files)
    rows = np.maximum(table.records[files], 1).astype(np.float64)
    due = np.maximum(tree.leaves * rows / max(rows.sum(), 1.0), 1.0)
    found: Int64 = files[met > SLACK * due]
    return found


class Ends(NamedTuple):
    """The bounds of one column, one entry per file."""

    lower: Array
    """The least value in its domain, meaningless where `known` is False."""
    upper: Array
    """The greatest value, likewise."""
    known: Bool
    """Whether both are known."""
    only_null: Bool
    """Whether every value is NULL."""
    scale: Scale | None = None
    """The places of both, if all are known."""


def all_ends(column: ColumnBounds) -> Ends:
    """Return the bounds of all files of a table."""
    ends = ends_of(column, np.arange(len(column.lower)))
    return ends._replace(scale=scale_of(column)) if ends.known.all() else ends


def ends_of(column: ColumnBounds, files: Int64) -> Ends:
    """Return the bounds of these files."""
    only_null = (column.values[files] > 0) & (column.nulls[files] == column.values[files])
    known = column.has_lower[files] & column.has_upper[files]
    return Ends(column.lower[files], column.upper[files], known, only_null)


def leaves_between(tree: Tree, ends: Mapping[int, Ends], files: int) -> tuple[Int64, Int64]:
    """Return the first and the last leaf that may have values in each file's bounds, int64[files];
    NULL and NaN count only in files that have nothing else.

    ends: by column; a column that is not there may hold everything. Leaves are in the order of
    codes of every column, so that the leaves of the least and of the greatest codes enclose all
    others.
    """
    low, high = {}, {}
    for field, cuts in tree.of_column.items():
        known = ends.get(field)
        if known is None:
            low[field] = np.zeros(files, dtype=np.int64)
            high[field] = np.full(files, len(cuts), dtype=np.int64)
        else:
            low[field], high[field] = _codes(known, cuts)
    return tree.leaf_of(low, files), tree.leaf_of(high, files)


def leaves_met(table: FileTable, tree: Tree, files: Int64) -> Int64:
    """Return how many leaves may have rows in each file's bounds, int64[files].

    Bounds say nothing of a condition between columns: a file that was written for one side of it
    meets the leaves of both. Hence only the side with fewer of them is counted.
    """
    met = meets(table, tree, files)
    for first, middle, end in reversed(_pair_cuts(tree)):
        left, right = (
            np.count_nonzero(met[:, side], axis=1)
            for side in (slice(first, middle), slice(middle, end))
        )
        both = (left > 0) & (right > 0)
        met[both & (left <= right), middle:end] = False
        met[both & (left > right), first:middle] = False
    return np.count_nonzero(met, axis=1).astype(np.int64)


def _pair_cuts(tree: Tree) -> list[tuple[int, int, int]]:
    """Return the first leaf of each cut by a condition between columns, the first one right of it,
    and the end, outer cuts first."""
    found, seen = [], 0
    for at, (_, node, below) in enumerate(tree.walk()):
        if node == LEAF:
            seen += 1
        elif tree.pair_of(tree.cuts[node].field_id) is not None:
            found.append((seen, seen + tree.leaves_left_of(at), seen + below))
    return found


def meets(table: FileTable, tree: Tree, files: Int64) -> Bool:
    """Return which leaves may have rows in each file's bounds, bool[files, leaves].

    A column without bounds in a file meets all leaves.
    """
    found = np.ones((len(files), tree.leaves), dtype=bool)
    for field, (least, most) in tree.boxes.items():
        column = table.columns.get(field)
        if column is None:
            continue
        low, high = _codes(ends_of(column, files), tree.of_column[field])
        found &= (low[:, None] <= most) & (high[:, None] >= least)
    return found


def _codes(ends: Ends, cuts: Sequence[Cut]) -> tuple[Int64, Int64]:
    """Return the least and the greatest code of each file's values. NULL and NaN count only in
    files that have nothing else: a few of them in a leaf of values are no sign of drift."""
    low = np.zeros(len(ends.known), dtype=np.int64)
    high = np.where(ends.only_null, 0, len(cuts)).astype(np.int64)
    known = np.flatnonzero(ends.known)
    if ends.scale is not None and len(known):
        codes = codes_of_values(cuts, ends.scale.distinct)
        low, high = codes[ends.scale.low], codes[ends.scale.high]
    elif len(known):
        low[known] = codes_of_values(cuts, ends.lower[known])
        high[known] = codes_of_values(cuts, ends.upper[known])
    return low, high
