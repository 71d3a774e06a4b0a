"""Decides which files are not in the leaves of a tree of cuts, by their bounds.

A file that was written for a leaf meets that leaf alone. One that meets many, as new data does, is
read by the queries of all of them.
"""

from __future__ import annotations

import numpy as np

from reconciler.table.cut_tree import Tree, codes_of
from reconciler.table.filetable import Bool, ColumnBounds, FileTable, Int64

SLACK = 2.0
"""Leaves that a file may meet, in those that its share of the rows comes to: bounds of long texts
are cut off, and small leaves share files."""
OUTSIDE_SHARE = 0.25
"""Files outside leaves are rewritten with all others if they are at least this share of them."""

Found = tuple[Int64, bool, str]
"""files, rewrite, reason."""


def leaf_drift(table: FileTable, tree: Tree, files: Int64, min_input_files: int) -> list[Found]:
    """Return the files of one partition to write into leaves, or to leave alone, and why."""
    if not len(files):
        return []
    met = leaves_met(table, tree, files)
    rows = np.maximum(table.records[files], 1).astype(np.float64)
    due = np.maximum(tree.leaves * rows / rows.sum(), 1.0)
    outside = files[met > SLACK * due]
    if not len(outside):
        return []
    share = float(table.bytes[outside].sum()) / max(float(table.bytes[files].sum()), 1.0)
    why = f"{len(outside)} of {len(files)} files meet more leaves than they have rows for"
    if share >= OUTSIDE_SHARE:
        return [(files, True, why)]
    if len(outside) >= min_input_files:
        return [(outside, True, why)]
    less = f"{100 * OUTSIDE_SHARE:.0f} % of its bytes and minInputFiles {min_input_files}"
    return [(outside, False, f"outside the leaves of the tree, but less than {less}")]


def leaves_met(table: FileTable, tree: Tree, files: Int64) -> Int64:
    """Return how many leaves may have rows in each file's bounds, int64[files]."""
    return np.count_nonzero(meets(table, tree, files), axis=1).astype(np.int64)


def meets(table: FileTable, tree: Tree, files: Int64) -> Bool:
    """Return which leaves may have rows in each file's bounds, bool[files, leaves].

    A column without bounds in a file meets all leaves.
    """
    found = np.ones((len(files), tree.leaves), dtype=bool)
    for field, (least, most) in tree.boxes.items():
        column = table.columns.get(field)
        if column is None:
            continue
        low, high = _codes(column, tree, field, files)
        found &= (low[:, None] <= most) & (high[:, None] >= least)
    return found


def _codes(column: ColumnBounds, tree: Tree, field: int, files: Int64) -> tuple[Int64, Int64]:
    """Return the least and the greatest code of each file's values. NULL and NaN count only in
    files that have nothing else: a few of them in a leaf of values are no sign of drift."""
    cuts = tree.of_column[field]
    bounds = np.unique(np.concatenate((column.lower[files], column.upper[files])))
    low, high = (
        codes_of(cuts, np.searchsorted(bounds, ends[files]), bounds)
        for ends in (column.lower, column.upper)
    )
    known = column.has_lower[files] & column.has_upper[files]
    only_null = (column.values[files] > 0) & (column.nulls[files] == column.values[files])
    low = np.where(known, low, 0)
    high = np.where(known, high, np.where(only_null, 0, len(cuts)))
    return low, high
