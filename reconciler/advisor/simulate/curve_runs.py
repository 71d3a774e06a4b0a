"""Estimates how many rows of the table follow each other with the same value along a curve.

The curve visits cells: a share of the rows of each column, in which frequent values are alone and
rare ones together. Rows of one cell stay in order of arrival. So a value changes with its cell, and
among the rows of a cell of several values. Neighbouring cells of the curve differ in one column
only: the other one stays.
"""

from __future__ import annotations

import numpy as np

from reconciler.advisor.simulate.arrangement import Arrangement, further
from reconciler.advisor.simulate.keys import native_rows
from reconciler.plan.ordering import even_ranks
from reconciler.table.filetable import Float64, Int64
from reconciler.table.hilbert import CURVE_BITS


def alike_along_curve(rows: Arrangement, starts: Int64) -> dict[int, Float64]:
    """Return, by sampled column of the key, the mean number of rows of the table that follow each
    other with the same value, float64[slices]. starts: first rows of the slices in the order."""
    pool, key = rows.pool, [one.field_id for one in rows.ordering.key]
    order, first = native_rows(pool, rows.order, starts)
    bits = max(1, CURVE_BITS // len(key))
    if len(order) < 2 or any(field not in pool.columns for field in key):
        return {}
    each = float(pool.files.records.sum()) / len(order)
    found = {}
    for field in key:
        ranks = pool.columns[field].sort_ranks[order]
        cell = even_ranks(ranks, bits)
        mixed = _in_slices(_others_in_cell(ranks, cell), first)
        moved = _in_slices(np.diff(cell, prepend=cell[0]) != 0, first) * _growth(cell, each) / each
        changes = np.minimum(moved, 1.0)
        found[field] = 1.0 / np.maximum(changes + (1.0 - changes) * mixed, 1.0 / len(order) / each)
    return found


def _others_in_cell(ranks: Int64, cell: Int64) -> Float64:
    """Return, for each row, the chance that another row of its cell has another value."""
    ranks = ranks - ranks.min()  # NULL may be below 0
    alike, together = np.bincount(ranks)[ranks] - 1, np.bincount(cell)[cell] - 1
    found: Float64 = 1.0 - np.where(together > 0, alike / np.maximum(together, 1), 1.0)
    return found


def _in_slices(of_rows: np.ndarray, first: Int64) -> Float64:
    """Return the mean of the rows of each slice; of a slice without rows, that of all."""
    filled = np.diff(np.append(first, len(of_rows))) > 0
    sums = np.add.reduceat(of_rows.astype(np.float64), first[filled])
    found = np.full(len(first), float(of_rows.mean()))
    found[filled] = sums / np.diff(np.append(first[filled], len(of_rows)))
    return found


def _growth(cell: Int64, each: float) -> float:
    """Return how many times as often cells change among all rows as among those sampled.

    Half of the sample shows fewer changes than all of it, and a quarter still fewer: the more rows
    there are, the fewer of a doubling's are in cells that were not seen. So each doubling adds the
    same share of the exponent that the one before it added. each: rows of the table for a sampled
    one.
    """
    changes = [
        np.mean([np.count_nonzero(np.diff(cell[part::parts])) for part in range(parts)])
        for parts in (1, 2, 4)
    ]
    if min(changes) <= 0.0:
        return 1.0
    last, before = np.log2(changes[0] / changes[1]), np.log2(changes[1] / changes[2])
    share = np.clip(last / max(before, 1e-9), 0.0, 1.0 - 1e-9)
    return float(2.0 ** further(np.maximum(last, 0.0), share, np.log2(max(each, 1.0))))
