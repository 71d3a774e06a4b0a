"""What an order of rows does to the columns that it does not sort by.

Rows that arrive together are alike: the items of one order share its customer, its store and its
day, and their values are stored as runs. A sort by another column scatters them, a sort that keeps
them together does not. How much each column then takes is measured: blocks of neighbouring rows are
arranged and encoded.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from reconciler.advisor.simulate.pool import (
    ArrangedBlocks,
    Coded,
    Pool,
    PooledBlocks,
    Present,
)
from reconciler.advisor.simulate.target import target_partitions
from reconciler.plan.grouping import arrivals
from reconciler.plan.ordering import Ordering, order_rows
from reconciler.table.column_bytes import Neighbours, drops_dictionary, index_bits
from reconciler.table.filetable import Array, Bool, Int64
from reconciler.table.row_group_bytes import PAGE_ROWS
from reconciler.table.runs import runs_of
from reconciler.table.schema import PartitionSpec

LEAST_SLICE = 64
"""Rows of a slice of the blocks that show how many values a slice of the table has."""


def neighbours_after(
    pool: Pool, ordering: Ordering, spec: PartitionSpec | None
) -> Mapping[int, Neighbours]:
    """Return by column what the order does to it; empty without blocks."""
    blocks = pool.blocks
    return {} if blocks is None else _arranged(pool, blocks, ordering, spec).columns


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
    slices = max(1, min(round(1.0 / max(share, 1e-9)), len(order) // LEAST_SLICE))
    number = np.arange(len(order)) * slices // len(order)
    found = {}
    for field, stored in pool.stored.columns.items():
        if stored.run > 1.0 and field in blocks.sample.values:
            coded = _coded(blocks, field)
            cells = np.bincount(number * coded.values + coded.number[order])
            found[field] = len(order) / int(np.count_nonzero(cells))
    return found


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
        sizes = blocks.data_bytes(np.arange(len(order)), plain)
        blocks.present.update(
            {
                field: Present(size, 0.0 if field in plain else _bits(values[field], null[field]))
                for field, size in sizes.items()
            }
        )
    plain = frozenset(field for field, known in blocks.present.items() if not known.bits)
    start, rows = np.zeros(1, dtype=np.int64), len(order)
    found = {}
    for field, size in blocks.data_bytes(order, plain).items():
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
    values = blocks.sample.values[field][~blocks.sample.null[field]][:PAGE_ROWS]
    return drops_dictionary(len(np.unique(values)), len(values), now.width)


def _order(rows: Pool, ordering: Ordering, spec: PartitionSpec | None) -> Int64:
    ranks = [rows.columns[column.field_id].places for column in ordering.key]
    chunk = None if spec is None else target_partitions(rows, spec).number
    return order_rows(ordering, ranks, arrivals(rows.files)[rows.file], chunk)
