"""What an order of rows does to the columns that it does not sort by.

Rows that arrive together are alike: the items of one order share its customer, its store and its
day, and their values are stored as runs. A sort by another column scatters them, a sort that keeps
them together does not. How much each column then takes is measured: blocks of neighbouring rows are
arranged and encoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from reconciler.advisor.simulate.pool import (
    ArrangedBlocks,
    Coded,
    Pool,
    PooledBlocks,
    Present,
)
from reconciler.advisor.simulate.sort_keys import drops, runs_of_keys
from reconciler.advisor.simulate.stored import Spans
from reconciler.advisor.simulate.target import target_partitions
from reconciler.plan.grouping import arrivals
from reconciler.plan.ordering import Ordering, order_rows
from reconciler.table.column_bytes import (
    FURTHER_PAGE,
    Neighbours,
    domain_of,
    extrapolated,
    index_bits,
)
from reconciler.table.filetable import Array, Bool, Int64
from reconciler.table.row_group_bytes import PAGE_ROWS
from reconciler.table.runs import runs_of
from reconciler.table.schema import PartitionSpec

LEAST_SLICE = 64
"""Rows of a slice of the blocks that show how many values a slice of the table has."""


MOST_VALUES = 4_096
"""Values in the blocks, of columns that repeat them: with more, few are seen twice in a slice."""


def neighbours_after(
    pool: Pool, ordering: Ordering, spec: PartitionSpec | None, page_rows: int = PAGE_ROWS
) -> Mapping[int, Neighbours]:
    """Return by column what the order does to it, in pages of so many rows; empty without
    blocks."""
    blocks = pool.blocks
    if blocks is None:
        return {}
    key = (ordering, spec, page_rows)
    if key not in blocks.in_pages:
        blocks.in_pages[key] = {
            **_in_pages(pool, blocks, _arranged(pool, blocks, ordering, spec), page_rows),
            **runs_of_keys(pool, blocks, ordering, spec, page_rows),
        }
    return blocks.in_pages[key]


def _in_pages(
    pool: Pool, blocks: PooledBlocks, arranged: ArrangedBlocks, page_rows: int
) -> Mapping[int, Neighbours]:
    """Return what the order does to columns in pages of so many rows, where some dictionaries that
    pay on usual pages do not."""
    if page_rows >= PAGE_ROWS:
        return arranged.columns
    order, without = arranged.order, _without_dictionary(blocks)
    dropped = {
        field
        for field in blocks.present
        if field not in without and drops(pool, blocks, field, order[:page_rows])
    }
    sizes = blocks.data_bytes(order, tuple(blocks.present), without | dropped, page_rows)
    rows, pages = len(order), -(-len(order) // page_rows)
    found = {}
    for field, known in arranged.columns.items():
        own = max(sizes[field] - pages * FURTHER_PAGE, 0.0) / rows
        if field in dropped:
            found[field] = replace(known, plain=own)
            continue
        more = own - max(known.data * blocks.present[field].bytes - FURTHER_PAGE, 0.0) / rows
        # Blocks are of few times, and small pages of them more alike than those of a row group.
        shrinks = field in without and field not in pool.stored.steps
        found[field] = replace(known, in_pages=more if shrinks else max(more, 0.0))
    return found


def _without_dictionary(blocks: PooledBlocks) -> frozenset[int]:
    return frozenset(field for field, known in blocks.present.items() if not known.bits)


def rows_of_value(
    pool: Pool, ordering: Ordering, spec: PartitionSpec | None, share: float
) -> Mapping[int, float]:
    """Return, by column that comes in runs now, for how many rows of a slice one value is drawn;
    empty without blocks. share: rows of a slice, of the table's.

    Rows that arrived together draw one value if the order leaves them in one slice, next to each
    other or not. Blocks hold such rows, and cut into as many slices as the table they show it.
    """
    blocks = pool.blocks
    if blocks is None:
        return {}
    order = _arranged(pool, blocks, ordering, spec).order
    number = _slice_of(order, share)
    key = (ordering, spec, int(number[-1]) + 1)
    if key not in blocks.alike:
        blocks.alike[key] = {
            field: len(order) / _cells(_coded(blocks, field), order, number)
            for field, stored in pool.stored.columns.items()
            if stored.run > 1.0 and field in blocks.sample.values
        }
    return blocks.alike[key]


def _cells(coded: Coded, order: Int64, number: Int64) -> int:
    """Return how many values the slices have, each counted once a slice."""
    return int(np.count_nonzero(np.bincount(number * coded.values + coded.number[order])))


def domain_of_slices(
    pool: Pool, ordering: Ordering, spec: PartitionSpec | None, share: float
) -> Mapping[int, float]:
    """Return the number of values from which a slice draws, of columns that were read in blocks
    alone and repeat there; empty without blocks. share: rows of a slice, of the table's.

    Values of such a column may go with the key, as the day of a delivery with that of its order: a
    slice then has few of them. Columns whose values differ from file to file are left out: blocks
    are of few files.
    """
    blocks = pool.blocks
    if blocks is None:
        return {}
    order = _arranged(pool, blocks, ordering, spec).order
    number = _slice_of(order, share)
    slices = int(number[-1]) + 1
    key = (ordering, spec, slices)
    if key not in blocks.domains:
        rows = float(pool.files.records.sum()) / slices
        blocks.domains[key] = {
            field: _domain(_coded(blocks, field), order, number, rows)
            for field, stored in pool.stored.columns.items()
            if field in blocks.sample.values
            and field not in pool.columns
            and stored.run <= 1.0
            and _everywhere(pool.stored.spans.get(field))
            and _coded(blocks, field).values <= MOST_VALUES
        }
    return blocks.domains[key]


def _everywhere(spans: Spans | None) -> bool:
    """Return whether every file has values from all over the column's range."""
    return spans is None or 2.0 * spans.mean >= float(spans.last.max() - spans.first.min())


def _domain(coded: Coded, order: Int64, number: Int64, rows: float) -> float:
    """Return the values from which slices of `rows` rows draw; number: slice of each ordered
    row."""
    with_value = coded.number[order] < coded.values - 1
    cells = np.bincount((number * coded.values + coded.number[order])[with_value])
    slices = float(number[-1] + 1)
    seen, once, twice = (
        np.array([float(np.count_nonzero(known)) / slices])
        for known in (cells > 0, cells == 1, cells == 2)
    )
    sampled = np.array([max(float(with_value.sum()) / slices, 1.0)])
    whole = np.array([max(rows * float(with_value.mean()), 1.0)])
    distinct = np.maximum(extrapolated(seen, once, twice, sampled, whole), 1.0)
    return float(domain_of(distinct, whole)[0])


def _slice_of(order: Int64, share: float) -> Int64:
    """Return the slice of each ordered row of the blocks: of as many as the table has slices of
    this share, as far as the blocks have rows."""
    slices = max(1, min(round(1.0 / max(share, 1e-9)), len(order) // LEAST_SLICE))
    return np.arange(len(order)) * slices // len(order)


def _coded(blocks: PooledBlocks, field: int) -> Coded:
    if field not in blocks.coded:
        values, null = blocks.sample.values[field], blocks.sample.null[field]
        distinct, number = np.unique(values, return_inverse=True)
        coded = np.where(null, len(distinct), number.reshape(-1)).astype(np.int64)
        blocks.coded[field] = Coded(coded, len(distinct) + 1)
    return blocks.coded[field]


def _arranged(
    pool: Pool, blocks: PooledBlocks, ordering: Ordering, spec: PartitionSpec | None
) -> ArrangedBlocks:
    key = (ordering, spec)
    if key not in blocks.known:
        order = _order(blocks.rows, ordering, spec)
        blocks.known[key] = ArrangedBlocks(order, _measured(pool, blocks, order))
    return blocks.known[key]


def _measured(pool: Pool, blocks: PooledBlocks, order: Int64) -> dict[int, Neighbours]:
    values, null = blocks.sample.values, blocks.sample.null
    if not blocks.present:
        plain = frozenset(field for field in values if _plain(pool, blocks, field))
        sizes = blocks.data_bytes(np.arange(len(order)), tuple(values), plain, PAGE_ROWS)
        blocks.present.update(
            {
                field: Present(size, 0.0 if field in plain else _bits(values[field], null[field]))
                for field, size in sizes.items()
            }
        )
    start, rows = np.zeros(1, dtype=np.int64), len(order)
    found = {}
    plain = _without_dictionary(blocks)
    for field, size in blocks.data_bytes(order, tuple(values), plain, PAGE_ROWS).items():
        present = blocks.present[field]
        found[field] = Neighbours(
            size / max(present.bytes, 1),
            runs_of(values[field][order], null[field][order], start).mean_rows,
            8.0 * size / rows / present.bits if present.bits else 0.0,
            0.0 if present.bits else size / rows,
        )
    return found


def _bits(values: Array, null: Bool) -> float:
    return float(index_bits(np.array([float(len(np.unique(values[~null])))]))[0])


def _plain(pool: Pool, blocks: PooledBlocks, field: int) -> bool:
    """Return whether a column has no dictionary, or will have none where its values are mixed."""
    now = pool.stored.columns.get(field)
    if now is None or now.dictionary <= 0.0:
        return now is not None
    return drops(pool, blocks, field, np.arange(len(blocks.rows))[:PAGE_ROWS])


def _order(rows: Pool, ordering: Ordering, spec: PartitionSpec | None) -> Int64:
    ranks = [rows.columns[column.field_id].places for column in ordering.key]
    chunk = None if spec is None else target_partitions(rows, spec).number
    return order_rows(ordering, ranks, arrivals(rows.files)[rows.file], chunk)
