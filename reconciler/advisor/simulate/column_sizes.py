"""Estimates what each column takes in the row groups of a layout: what is left to predict where
files and row groups end exactly as planned.

`table.column_bytes` predicts a column from the number of values that a row group draws from, and
from what the order does to neighbouring rows; here both are found for every column of a pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from reconciler.advisor.simulate.arrangement import Arrangement, Slices
from reconciler.advisor.simulate.curve_runs import alike_along_curve
from reconciler.advisor.simulate.keys import rows_of_keys, unseen
from reconciler.advisor.simulate.layout import Layout
from reconciler.advisor.simulate.neighbours import BlockOrder, block_order
from reconciler.advisor.simulate.slices import slice_domain
from reconciler.queries.stored_columns import sorted_value_bytes
from reconciler.queries.table_view import type_width
from reconciler.table.column_bytes import (
    RUN_BYTES,
    NewOrder,
    PerRow,
    StoredColumn,
    distinct_in,
    distinct_of_runs,
    drops_dictionary,
    stored_per_row,
)
from reconciler.table.filetable import UNKNOWN, Bool, Float64, Int64
from reconciler.table.row_group_bytes import PAGE_ROWS
from reconciler.table.sampled_domain import sampled_domain
from reconciler.table.schema import SortColumn
from reconciler.table.values import Kind

UNSEEN_RUN = 8.0
"""Rows of one key in order of arrival, up to which a compressor finds them as far apart as in no
order: times of 36 to 40 bits in runs of 8 rows took as much as in none, in longer ones as much as
in a 6th to a 17th of their length."""


@dataclass(frozen=True, slots=True)
class ColumnSizes:
    """What columns take, by field id. Arrays are float64[row groups]."""

    bytes: Mapping[int, Float64]
    """Stored bytes, without columns whose size is not known."""
    dictionary: Mapping[int, Float64]
    """Bytes of the dictionary, 0 without one; without columns of which it is not known."""


def column_sizes(rows: Arrangement, layout: Layout, groups: Slices) -> ColumnSizes:
    """Return the bytes of each column per row group."""
    found, listed, order = {}, {}, _Order(rows, layout, groups)
    total = max(float(rows.pool.files.records.sum()), 1.0)
    for field, known in rows.pool.files.column_sizes.items():
        if not (known == UNKNOWN).any():
            now = float(np.maximum(known, 0).sum()) / total
            made = order.width(field, now)
            found[field] = made.bytes * groups.records
            if field in rows.pool.stored.columns:
                listed[field] = made.dictionary * groups.records
    if order.lead in found and order.lead in rows.pool.columns:
        whole = float(found[order.lead].sum())
        share = min(1.0, _sorted_bytes(rows, order.lead) / max(whole, 1.0))
        for sizes in (found, listed):
            if order.lead in sizes:
                sizes[order.lead] = sizes[order.lead] * share
    return ColumnSizes(found, listed)


@dataclass(frozen=True)
class _Order:
    """What an order of rows does to the columns in its row groups."""

    rows: Arrangement
    """The arranged rows."""
    layout: Layout
    """The layout that they are arranged for."""
    groups: Slices
    """The row groups into which they are cut."""

    @cached_property
    def lead(self) -> int:
        """Return the field by which all rows are in order, -1 if there is none."""
        first = self.rows.ordering.lead
        return -1 if first is None else first.field_id

    @cached_property
    def scatters(self) -> bool:
        """Whether rows get new neighbours. In the order of a column that grows with time they stay
        where they are."""
        return bool(self.rows.ordering.key) and not self.rows.pool.stored.grows(self.lead)

    @cached_property
    def share(self) -> float:
        """Return the rows of a row group, of the table's."""
        total = max(float(self.rows.pool.files.records.sum()), 1.0)
        return float(np.median(self.groups.each)) / total

    @cached_property
    def blocks(self) -> BlockOrder | None:
        """Return what blocks of rows show of the order, None without blocks."""
        return block_order(self.rows.pool, self.rows.ordering, self.layout.spec)

    @cached_property
    def alike_in_key(self) -> dict[int, Float64]:
        """Return, by column of the key, how many rows of each row group follow each other with the
        same value: those alike in it and the columns before it; along a curve, as its cells follow
        each other; in leaves, those alike in it where they are sorted by it."""
        key = self.rows.ordering.key
        if self.rows.ordering.curve:
            return alike_along_curve(self.rows, self.groups.starts)
        if self.rows.ordering.tree is not None:
            return {column.field_id: self._alike_in_leaves(column) for column in key}
        return {
            column.field_id: rows_of_keys(
                self.rows.pool, key[: number + 1], self.rows.order, self.groups.starts
            )
            for number, column in enumerate(key)
        }  # fmt: skip

    def _alike_in_leaves(self, column: SortColumn) -> Float64:
        """Return the same for a column of a tree: the rows with one value in a leaf that is sorted
        by it, and all rows of a row group that has one value."""
        rows, starts, each = self.rows, self.groups.starts, self.groups.each
        ranks = rows.ranks[column.field_id]
        least, most = np.minimum.reduceat(ranks, starts), np.maximum.reduceat(ranks, starts)
        ordered = self._in_leaves_by(column.field_id)
        together = np.ones(len(starts))
        if ordered is not None and rows.leaf is not None:
            leaf = np.empty_like(rows.leaf)
            leaf[rows.order] = rows.leaf
            together = rows_of_keys(rows.pool, (column,), rows.order, starts, parts=leaf)
        found = together if ordered is None else np.where(ordered, together, 1.0)
        return np.where(least == most, each, found)

    def _in_leaves_by(self, field: int) -> Bool | None:
        """Return which row groups are of a leaf that is sorted by the column, bool[row groups];
        None if no leaf is."""
        tree, leaf = self.rows.ordering.tree, self.rows.leaf
        if tree is None or leaf is None or field not in tree.inner:
            return None
        inner: Bool = np.asarray(tree.inner, dtype=np.int64)[leaf[self.groups.starts]] == field
        return inner

    def width(self, field: int, now: float) -> PerRow:
        """Return the bytes per row of a column in each row group. now: in the present files."""
        pool, each = self.rows.pool, self.groups.each
        width, stored = np.full(len(each), now), pool.stored.columns.get(field)
        if stored is None:
            if field != self.lead and field in pool.loses_runs and self.rows.ordering.key:
                width = np.maximum(width, type_width(pool.files.schema.by_id[field].type))
            if self.rows.ordering.tree is not None and field in self.alike_in_key:
                width = width / self.alike_in_key[field]  # one value for each run of a leaf
            return PerRow(width, np.zeros(len(each)))
        if field == self.lead and stored.ordered:
            # In order already: a dictionary that lists each value once is not written again.
            repeated = not _unrepeated(stored, stored.distinct, stored.rows)
            if repeated:
                return PerRow(width, width * stored.dictionary / stored.bytes)
            return PerRow(stored.per_value + stored.overhead / each, np.zeros(len(each)))
        further = field != self.lead
        then = self.blocks.neighbours.get(field) if self.blocks is not None else None
        mixed = self.scatters and then is not None
        domain, distinct = self._domain(field, self.groups.starts, each, mixed=mixed), None
        if self.blocks is not None:
            fewer = self.blocks.domain(field, self.share) if self.scatters else None
            domain = domain if fewer is None else np.minimum(domain, fewer)
            alike = self.blocks.alike(field, self.share)
            if alike is not None:
                distinct = distinct_of_runs(domain, each / alike, self._runs_of(field))
        order = NewOrder(
            reordered=self.scatters and further,
            reach=self._reach(field),
            wider=self._wider(field),
            then=then if further else None,
            distinct=distinct,
            together=self.alike_in_key.get(field, 1.0) if further else 1.0,
            sorted=self._in_leaves_by(field),
        )
        return stored_per_row(stored, each, domain, order)

    def _domain(self, field: int, starts: Int64, each: Float64, *, mixed: bool) -> Float64:
        """Return the number of values from which each slice draws: from its sampled rows, else from
        bounds. mixed: a slice has rows of any time, so that those sampled show its values even if
        rows are in the column's order now."""
        pool, order = self.rows.pool, self.rows.order
        column = pool.columns.get(field)
        ordered = pool.stored.columns[field].ordered and not mixed
        if column is None or not pool.native.any() or ordered:
            return slice_domain(pool.stored, field, pool.file[order], starts)
        domain = sampled_domain(column.ranks[order], pool.native[order], starts, each)
        spans = pool.stored.spans.get(field)
        return domain if spans is None else np.minimum(domain, spans.most(pool.file[order], starts))

    def _runs_of(self, field: int) -> float:
        """Return in how many runs of the whole a value is, at least one."""
        total = float(self.rows.pool.files.records.sum())
        whole = np.zeros(1, dtype=np.int64)
        domain = self._domain(field, whole, np.array([total]), mixed=True)
        return max(total / self.rows.pool.stored.columns[field].run / float(domain[0]), 1.0)

    def _reach(self, field: int) -> Float64 | None:
        """Return how many whole numbers the range of each row group has, float64[row groups]; None
        for a column of other values. The range is that of the bounds of its files, or for a sampled
        column that of its rows if it is smaller."""
        pool, starts = self.rows.pool, self.groups.starts
        spans = pool.stored.spans.get(field)
        if spans is None or not spans.discrete:
            return None
        reach, column = spans.reach(pool.file[self.rows.order], starts), pool.columns.get(field)
        if column is None or column.kind is not Kind.INT:
            return reach
        ranks = self.rows.ranks[field]
        high = np.maximum.reduceat(ranks, starts)
        low = np.minimum.reduceat(np.where(ranks < 0, len(column.distinct), ranks), starts)
        valued = np.add.reduceat((ranks >= 0).astype(np.float64), starts)
        values = column.distinct.astype(np.float64)
        seen = values[np.maximum(high, 0)] - values[np.minimum(low, len(values) - 1)]
        own = seen * (valued + 1.0) / np.maximum(valued - 1.0, 1.0) + 1.0
        return np.where(valued > 1.0, np.minimum(reach, own), reach)

    def _wider(self, field: int) -> Float64 | None:
        """Return by how many bits neighbouring rows are further apart in each row group than now;
        None of a column that does not grow from row to row."""
        step = self.rows.pool.stored.steps.get(field)
        if step is None:
            return None
        reach = self._reach(field)
        assert reach is not None  # only whole numbers have a step
        run = np.maximum(self._grows_for(field) / UNSEEN_RUN, 1.0)
        return np.log2(np.maximum(reach / run / step, 1.0))

    def _grows_for(self, field: int) -> Float64 | float:
        """Return for how many rows in a row of each row group a column that grows with time does so
        in this order.

        Rows of one key stay in order of arrival, and a further column of the key is in order in
        rows of those before."""
        if self.lead < 0:
            return 1.0
        key = [column.field_id for column in self.rows.ordering.key]
        before = key.index(field) if field in key[1:] else len(key)
        return self.alike_in_key[key[before - 1]]


def _sorted_bytes(rows: Arrangement, field_id: int) -> float:
    """Return the stored bytes of a column when rows are sorted by it: one value per run of any
    length. Values that hardly repeat have no dictionary, and no runs."""
    pool = rows.pool
    total, stored = max(float(pool.files.records.sum()), 1.0), pool.stored.columns.get(field_id)
    ranks = pool.columns[field_id].ranks
    seen = np.bincount(ranks[ranks >= 0])
    domain = max(int((seen > 0).sum()) + unseen(seen), 1.0 if stored is None else stored.distinct)
    distinct = float(distinct_in(np.array([domain]), np.array([total]))[0])
    width, run = float(type_width(pool.files.schema.by_id[field_id].type)), float(RUN_BYTES)
    spans = pool.stored.spans.get(field_id)
    if stored is not None and stored.ordered:
        pass  # in order already: how many values repeat is not known well enough
    elif spans is not None and spans.discrete:  # sorted numbers: a compressor stores their distance
        whole = float(spans.last.max() - spans.first.min() + 1.0)
        width = sorted_value_bytes(whole / max(distinct, 1.0), int(width))
        if stored is not None and _unrepeated(stored, distinct, total):
            run = 0.0
    elif stored is not None:
        width = min(width, stored.per_value)
    return distinct * (width + run)


def _unrepeated(stored: StoredColumn, distinct: float, rows: float) -> bool:
    """Return whether so few values repeat among sorted rows that Java's writer lists none."""
    return drops_dictionary(round(PAGE_ROWS * distinct / rows), PAGE_ROWS, stored.width)
