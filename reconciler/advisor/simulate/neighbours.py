"""Measures what an order of rows does to the size of the columns that it does not sort by.

Rows that arrive together are alike: the items of one order share its customer, its store and its
day, and their values are stored as runs. A sort by another column scatters such rows; a sort that
keeps them together does not. Blocks of neighbouring rows, which were read from the table, are
arranged in the new order and encoded, which shows the bytes of each column.

The table has more rows of one key than the blocks have. Columns of the key after the first come in
longer runs there, so rows of the blocks are repeated until their runs are as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from reconciler.advisor.simulate.keys import rows_of_keys
from reconciler.advisor.simulate.pool import Pool, PooledBlocks, Present
from reconciler.advisor.simulate.target import target_partitions
from reconciler.plan.grouping import arrivals
from reconciler.plan.ordering import Ordering, order_rows
from reconciler.table.column_bytes import (
    Neighbours,
    domain_of,
    drops_dictionary,
    extrapolated,
    index_bits,
)
from reconciler.table.filetable import Int64
from reconciler.table.row_group_bytes import PAGE_ROWS
from reconciler.table.runs import runs_of
from reconciler.table.schema import PartitionSpec
from reconciler.table.spans import Spans

LEAST_SLICE = 64
"""Rows of a slice of the blocks that show how many values a slice of the table has."""

MOST_VALUES = 4_096
"""Values in the blocks, of columns that repeat them: with more, few are seen twice in a slice."""

LEAST_RUN = 1.2
"""Mean rows of a run from which runs of a key's column are counted."""


def block_order(
    pool: Pool, ordering: Ordering, spec: PartitionSpec | None = None
) -> BlockOrder | None:
    """Return what is known of an order by the pool's blocks, kept with them; None without
    blocks."""
    if pool.blocks is None:
        return None
    found = pool.blocks.orders.setdefault(
        (ordering, spec), BlockOrder(pool, pool.blocks, ordering, spec)
    )
    assert isinstance(found, BlockOrder)
    return found


@dataclass(frozen=True)
class BlockOrder:
    """Blocks in one order, and in one partition spec if rows move."""

    pool: Pool
    """The sampled rows."""
    blocks: PooledBlocks
    """The blocks of neighbouring rows."""
    ordering: Ordering
    """The order of the rows."""
    spec: PartitionSpec | None
    """The partition spec that rows move to; None if they stay."""

    @cached_property
    def order(self) -> Int64:
        """Return the blocks' rows in the order."""
        rows = self.blocks.rows
        ranks, distinct = rows.key_of(self.ordering)
        chunk = None if self.spec is None else target_partitions(rows, self.spec).number
        arrival = arrivals(rows.files)[rows.file]
        return order_rows(self.ordering, ranks, arrival, chunk, distinct)

    @cached_property
    def neighbours(self) -> Mapping[int, Neighbours]:
        """Return by column what the order does to it."""
        present = _present(self.pool, self.blocks)
        found = _encoded(self.blocks, present, self.order, tuple(present))
        start = np.zeros(1, dtype=np.int64)
        runs = {
            field: runs_of(values[self.order], self.blocks.sample.null[field][self.order], start)
            for field, values in self.blocks.sample.values.items()
        }
        return {
            **{field: _neighbours(present[field], size, runs[field].mean_rows, len(self.order))
               for field, size in found.items()},
            **self._further_keys(present),
        }  # fmt: skip

    def _further_keys(self, present: Mapping[int, Present]) -> dict[int, Neighbours]:
        """Return what columns of the key but the first take if they come in runs, or in order
        within rows of the keys before; nothing along a curve."""
        found = {}
        key = self.ordering.key if self.ordering.lead is not None else ()
        ranks = [self.blocks.rows.columns[column.field_id].sort_ranks for column in key]
        for number in range(1, len(key)):
            field = key[number].field_id
            together, run = (
                float(rows_of_keys(self.pool, key[:columns], spec=self.spec)[0])
                for columns in (number, number + 1)
            )
            if max(run, together) < LEAST_RUN or field not in present:
                continue
            order = _repeated(ranks[: number + 1], together, run)
            plain = _drops(self.pool, self.blocks, field, order)
            known = Present(present[field].bytes, 0.0 if plain else present[field].bits)
            size = _encoded(self.blocks, {field: known}, order, (field,))[field]
            found[field] = _neighbours(known, size, run, len(order))
        return found

    def alike(self, field: int, share: float) -> float | None:
        """Return, of a column that comes in runs now, for how many rows of a slice one value is
        drawn; None of others. share: rows of a slice, of the table's.

        Rows that arrived together draw one value if the order leaves them in one slice, next to
        each other or not. Blocks hold such rows, and cut into as many slices as the table they show
        it.
        """
        if field not in self.blocks.sample.values or self.pool.stored.columns[field].run <= 1.0:
            return None
        return len(self.order) / int(np.count_nonzero(self._cells(field, self._slices(share))))

    def domain(self, field: int, share: float) -> float | None:
        """Return the number of values from which a slice draws, of a column that was read in blocks
        alone and repeats there; None of others. share: rows of a slice, of the table's.

        Values of such a column may go with the key, as the day of a delivery with that of its
        order: a slice then has few of them. Columns whose values differ from file to file are left
        out: blocks are of few files.
        """
        stored = self.pool.stored
        if field in self.pool.columns or field not in self.blocks.sample.values:
            return None
        if stored.columns[field].run > 1.0 or not _everywhere(stored.spans.get(field)):
            return None
        slices = self._slices(share)
        cells = self._cells(field, slices)[:, :-1]
        if cells.shape[1] >= MOST_VALUES:
            return None
        seen, once, twice = (
            np.array([np.count_nonzero(known) / slices])
            for known in (cells > 0, cells == 1, cells == 2)
        )
        valued = float(cells.sum())
        rows = float(self.pool.files.records.sum()) * valued / len(self.order)
        sampled, whole = (np.array([max(each / slices, 1.0)]) for each in (valued, rows))
        distinct = np.maximum(extrapolated(seen, once, twice, sampled, whole), 1.0)
        return float(domain_of(distinct, whole)[0])

    def _slices(self, share: float) -> int:
        """Return how many slices the blocks are cut into: as many as the table has of this share,
        as far as the blocks have rows."""
        return max(1, min(round(1.0 / max(share, 1e-9)), len(self.order) // LEAST_SLICE))

    def _cells(self, field: int, slices: int) -> Int64:
        """Return how often each slice has each value, NULL last, int64[slices, values]."""
        number, values = self.blocks.coded(field)
        slice_of = np.arange(len(self.order)) * slices // len(self.order)
        code = slice_of * values + number[self.order]
        return np.bincount(code, minlength=slices * values).reshape(slices, values)


def _everywhere(spans: Spans | None) -> bool:
    """Return whether every file has values from all over the column's range."""
    return spans is None or 2.0 * spans.mean >= float(spans.last.max() - spans.first.min())


def _present(pool: Pool, blocks: PooledBlocks) -> Mapping[int, Present]:
    """Return what columns take in the present order of the blocks."""
    if not blocks.present:
        values, null = blocks.sample.values, blocks.sample.null
        order = np.arange(len(blocks.rows))
        bits = {
            field: 0.0 if _plain(pool, blocks, field, order)
            else index_bits(np.array([float(len(np.unique(known[~null[field]])))])).item()
            for field, known in values.items()
        }  # fmt: skip
        unknown = {field: Present(0, own) for field, own in bits.items()}
        for field, size in _encoded(blocks, unknown, order, tuple(values)).items():
            blocks.present[field] = Present(size, bits[field])
    return blocks.present


def _encoded(
    blocks: PooledBlocks, known: Mapping[int, Present], order: Int64, wanted: Sequence[int]
) -> Mapping[int, int]:
    """Return the bytes of the data pages of columns, with the dictionaries that `known` has."""
    plain = frozenset(field for field in wanted if not known[field].bits)
    return blocks.data_bytes(order, wanted, plain)


def _neighbours(present: Present, size: int, run: float, rows: int) -> Neighbours:
    """Return what an order does to a column that takes so many bytes then."""
    return Neighbours(
        size / max(present.bytes, 1),
        run,
        8.0 * size / rows / present.bits if present.bits else 0.0,
        0.0 if present.bits else size / rows,
    )


def _plain(pool: Pool, blocks: PooledBlocks, field: int, order: Int64) -> bool:
    """Return whether a column has no dictionary, or will have none where its values are mixed; no
    for a column of which neither manifests nor footers say the stored size."""
    now = pool.stored.columns.get(field)
    return now is not None and (now.dictionary <= 0.0 or _drops(pool, blocks, field, order))


def _drops(pool: Pool, blocks: PooledBlocks, field: int, order: Int64) -> bool:
    """Return whether a writer drops a column's dictionary after a first page of these rows."""
    page, stored = order[:PAGE_ROWS], pool.stored.columns.get(field)
    values = blocks.sample.values[field][page][~blocks.sample.null[field][page]]
    return stored is not None and drops_dictionary(
        len(np.unique(values)), len(values), stored.width
    )


def _repeated(keys: Sequence[Int64], together: float, run: float) -> Int64:
    """Return about as many rows as there are, in the order of the keys, some of them several times,
    so that runs of the last key are as long as in the table.

    together: rows of the table that agree in all keys but the last. run: rows that agree in all.
    """
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
