"""Columns that rows are sorted by: how long their runs are, and what they take then.

The table has more rows of a key than a sample of it, so that a sample in the table's order shows
shorter runs of all columns of the key but the first. Their length follows from the number of keys;
what such runs take is measured on values of the sample, each repeated so often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from reconciler.advisor.simulate.pool import Pool, PooledBlocks
from reconciler.advisor.simulate.target import target_partitions
from reconciler.plan.ordering import Ordering
from reconciler.table.column_bytes import FURTHER_PAGE, Neighbours, drops_dictionary
from reconciler.table.filetable import Float64, Int64
from reconciler.table.schema import PartitionSpec, SortColumn

LEAST_RUN = 1.2
"""Mean rows of a run from which runs of a key's column are counted."""


def unseen(seen: Int64) -> float:
    """Return how many values were not sampled; seen: how often each value was, int64[values]."""
    once, twice = (np.array([(seen == times).sum()], dtype=np.float64) for times in (1, 2))
    return float(_unseen(once, twice)[0])


def _unseen(once: Float64, twice: Float64) -> Float64:
    """Return how many values were not sampled if so many were seen once, and twice.

    The bias-corrected form of Anne Chao's estimator ("Nonparametric Estimation of the Number of
    Classes in a Population").
    """
    found: Float64 = once * np.maximum(once - 1.0, 0.0) / (2.0 * (twice + 1.0))
    return found


def rows_of_key(pool: Pool, key: Sequence[SortColumn], spec: PartitionSpec | None = None) -> float:
    """Return `rows_of_keys` over all rows."""
    every = np.arange(len(pool), dtype=np.int64)
    return float(rows_of_keys(pool, key, every, np.zeros(1, dtype=np.int64), spec)[0])


def rows_of_keys(
    pool: Pool,
    key: Sequence[SortColumn],
    order: Int64,
    starts: Int64,
    spec: PartitionSpec | None = None,
) -> Float64:
    """Return how many rows of the table have the same key, in one partition of `spec`, averaged
    over the rows of each slice on the scale of bits; 1 if a column was not sampled. These rows stay
    in order of arrival. starts: first rows of the slices in `order`. float64[slices].

    Slices differ where a key is far more frequent than others, as NULL may be. A slice whose keys
    were mostly seen once only shows that they have few rows.
    """
    if any(column.field_id not in pool.columns for column in key):
        return np.ones(len(starts))
    places = [pool.columns[column.field_id].places for column in key]
    if spec is not None:
        places.append(target_partitions(pool, spec).number)
    code = _codes(places)
    seen = np.bincount(code)[code[order]]
    each = float(pool.files.records.sum()) / max(len(pool), 1)
    own = _rows_of_keys(seen, starts, each)
    once = 2 * np.add.reduceat(seen == 1, starts) > np.diff(np.append(starts, len(seen)))
    if not once.any():
        return own
    return np.where(once, np.minimum(own, _rows_of_keys(seen, starts[:1], each)), own)


def _rows_of_keys(seen: Int64, starts: Int64, each: float) -> Float64:
    """Return the rows of the table with one key per slice. seen: how often the key of each row was
    sampled; each: rows that a sampled one stands for."""
    rows = np.diff(np.append(starts, len(seen)))
    bits = np.add.reduceat(np.log2(seen), starts) / rows
    distinct = np.add.reduceat(1.0 / seen, starts)
    once = np.add.reduceat(seen == 1, starts, dtype=np.float64)
    twice = np.add.reduceat(seen == 2, starts, dtype=np.float64) / 2.0
    share = distinct / (distinct + _unseen(once, twice))
    found: Float64 = np.maximum(np.exp2(bits) * each * share, 1.0)
    return found


def _codes(places: Sequence[Int64]) -> Int64:
    """Return a number for each row that is the same for rows alike in all columns."""
    code = np.zeros(len(places[0]), dtype=np.int64)
    for each in places:
        low = int(each.min(initial=0))
        code = code * (int(each.max(initial=0)) - low + 1) + each - low
        code = np.unique(code, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return code


def runs_of_keys(
    pool: Pool,
    blocks: PooledBlocks,
    ordering: Ordering,
    spec: PartitionSpec | None,
    page_rows: int,
) -> Mapping[int, Neighbours]:
    """Return what columns of the key but the first take, in pages of so many rows, if they come in
    runs, or in order within rows of the keys before; empty along a curve."""
    if ordering.lead is None:
        return {}
    found = {}
    for number in range(1, len(ordering.key)):
        field = ordering.key[number].field_id
        together = rows_of_key(pool, ordering.key[:number], spec)
        run = rows_of_key(pool, ordering.key[: number + 1], spec)
        if max(run, together) < LEAST_RUN or field not in blocks.present:
            continue
        keys = [blocks.rows.columns[column.field_id].places for column in ordering.key]
        order = _repeated(keys[: number + 1], together, run)
        found[field] = _measured(pool, blocks, field, order, run, page_rows)
    return found


def drops(pool: Pool, blocks: PooledBlocks, field: int, page: Int64) -> bool:
    """Return whether the writer drops a column's dictionary after a first page of these rows of the
    blocks; no for a column of which neither manifests nor footers say the stored size."""
    if field not in pool.stored.columns:
        return False
    values = blocks.sample.values[field][page][~blocks.sample.null[field][page]]
    width = pool.stored.columns[field].width
    return drops_dictionary(len(np.unique(values)), len(values), width)


def _repeated(keys: Sequence[Int64], together: float, run: float) -> Int64:
    """Return rows in the order of the keys, about as many as there are, each repeated so that runs
    of the last key are as long as in the table. together: rows of the table with the same keys but
    the last."""
    rows = len(keys[0])
    by_others = np.lexsort(tuple(reversed(keys[:-1])))
    chunk = np.empty(rows, dtype=np.int64)
    chunk[by_others] = (np.arange(rows) / together).astype(np.int64)
    order = np.lexsort((keys[-1], chunk))
    last = keys[-1][order]
    first = (np.diff(last, prepend=last[0] - 1) != 0) | (np.diff(chunk[order], prepend=-1) != 0)
    heads = order[first]
    lengths = 1 + np.random.default_rng(rows).poisson(run - 1.0, len(heads))
    return np.repeat(heads, lengths)[:rows].astype(np.int64)


def _measured(
    pool: Pool, blocks: PooledBlocks, field: int, order: Int64, run: float, page_rows: int
) -> Neighbours:
    present, rows = blocks.present[field], len(order)
    coded = present.bits > 0.0 and not drops(pool, blocks, field, order[:page_rows])
    size = blocks.data_bytes(order, (field,), frozenset(() if coded else (field,)), page_rows)
    pages = -(-rows // page_rows)
    per_row = max(size[field] - pages * FURTHER_PAGE, 0.0) / rows
    return Neighbours(
        per_row * len(blocks.rows) / max(present.bytes, 1),
        run,
        8.0 * per_row / present.bits if present.bits else 0.0,
        0.0 if coded else per_row,
    )
