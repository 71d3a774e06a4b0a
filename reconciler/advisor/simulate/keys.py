"""Estimates how many rows of the table have the same sort key; sorted, they follow each other.

A sample has fewer rows of each key than the table. Sorted by the key, it therefore shows shorter
runs than the table has, in all columns of the key but the first. The length of the table's runs
follows from the number of keys, which is estimated from how often keys were sampled.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reconciler.advisor.simulate.pool import Pool
from reconciler.advisor.simulate.target import target_partitions
from reconciler.table.column_bytes import unseen_values
from reconciler.table.filetable import Float64, Int64
from reconciler.table.schema import PartitionSpec, SortColumn
from reconciler.table.stable_order import ranks

EVERY_ROW = np.zeros(1, dtype=np.int64)
"""Where the only slice begins, if all rows are one."""


def unseen(seen: Int64) -> float:
    """Return how many values were not sampled; seen: how often each value was, int64[values]."""
    once, twice = (np.array([(seen == times).sum()], dtype=np.float64) for times in (1, 2))
    return float(unseen_values(once, twice)[0])


def rows_of_keys(
    pool: Pool,
    key: Sequence[SortColumn],
    order: Int64 | None = None,
    starts: Int64 = EVERY_ROW,
    spec: PartitionSpec | None = None,
    parts: Int64 | None = None,
) -> Float64:
    """Return how many rows of the table have one key, in one partition of `spec` and one of the
    parts: float64[slices], the geometric mean over the rows of each slice; 1 if a column of the key
    was not sampled.

    Rows with one key stay in the order of arrival. starts: first rows of the slices in `order`; all
    rows are one slice if it is not given. parts: int64[rows], the part in which each sampled row is
    sorted. Slices differ where a key is far more frequent than others, as NULL may be. A slice
    whose keys were mostly seen once only shows that they have few rows.
    """
    if any(column.field_id not in pool.columns for column in key):
        return np.ones(len(starts))
    ranks = [pool.columns[column.field_id].sort_ranks for column in key]
    if spec is not None:
        ranks.append(target_partitions(pool, spec).number)
    if parts is not None:
        ranks.append(parts)
    code, own = _codes(ranks), pool.native
    if not own.any():
        return np.ones(len(starts))
    ordered, first = native_rows(pool, np.arange(len(pool)) if order is None else order, starts)
    filled = np.diff(np.append(first, len(ordered))) > 0
    seen = np.bincount(code[own])[code[ordered]]
    each = float(pool.files.records.sum()) / len(ordered)
    whole = _rows_of_keys(seen, EVERY_ROW, each)
    found = np.repeat(whole, len(starts))
    found[filled] = _of_slices(seen, first[filled], each, whole)
    return found


def native_rows(pool: Pool, order: Int64, starts: Int64) -> tuple[Int64, Int64]:
    """Return the ordered rows without those that a file borrows from another, and where the slices
    begin among them. Borrowed rows are twice in the sample, and not in the table."""
    own = pool.native[order]
    first: Int64 = (np.cumsum(own) - own)[starts]
    return order[own], first


def _of_slices(seen: Int64, starts: Int64, each: float, whole: Float64) -> Float64:
    """Return the rows with one key per slice; of slices whose keys were mostly seen once, no more
    than over all of them."""
    found = _rows_of_keys(seen, starts, each)
    once = 2 * np.add.reduceat(seen == 1, starts) > np.diff(np.append(starts, len(seen)))
    return np.where(once, np.minimum(found, whole), found)


def _rows_of_keys(seen: Int64, starts: Int64, each: float) -> Float64:
    """Return the rows of the table with one key per slice. seen: how often the key of each row was
    sampled; each: rows of the table for a sampled one."""
    rows = np.diff(np.append(starts, len(seen)))
    bits = np.add.reduceat(np.log2(seen), starts) / rows
    distinct = np.add.reduceat(1.0 / seen, starts)
    once = np.add.reduceat(seen == 1, starts, dtype=np.float64)
    twice = np.add.reduceat(seen == 2, starts, dtype=np.float64) / 2.0
    share = distinct / (distinct + unseen_values(once, twice))
    found: Float64 = np.maximum(np.exp2(bits) * each * share, 1.0)
    return found


def _codes(columns: Sequence[Int64]) -> Int64:
    """Return a number for each row that is the same for rows alike in all columns."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for each in columns:
        low = int(each.min(initial=0))
        code = code * (int(each.max(initial=0)) - low + 1) + each - low
        code = ranks(code)
    return code
