"""The rows of a group of files, represented by a joint sample that can be sorted by any key.

The what-if uses it (docs/design/definitions.md#what-if). A file that was not sketched borrows the
rows of the most similar sketched file, moved into its own bounds. Values are kept as dense ranks,
so that sorting, cutting and bounding work on integers for every type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from reconciler.advisor.simulate.missing import NAN, NULL, Missing, missing
from reconciler.plan.ordering import Ordering
from reconciler.queries.stored_columns import StoredColumns, in_order, stored_columns
from reconciler.queries.table_view import TableView
from reconciler.table.borrowed_rows import moved, nearest
from reconciler.table.filetable import Array, Bool, FileTable, Float64, Int64
from reconciler.table.sample import DataBytes, RowSample
from reconciler.table.scales import greatest_of, least_of
from reconciler.table.schema import PartitionSpec
from reconciler.table.stable_order import distinct_ranks
from reconciler.table.values import Kind

MAX_POOL = 32_768
"""Maximum rows of one pool: more rows cost time and make no decision more precise."""


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """What rows take in one order and in one size of row groups."""

    rows: float
    """Rows of a full row group."""
    per_row: float
    """Stored bytes of a row."""
    widths: Mapping[int, float]
    """By field id, stored bytes of the column in a row."""


@dataclass(frozen=True)
class PoolColumn:
    """The sampled values of one column, as ranks."""

    kind: Kind
    """How the values are represented."""
    ranks: Int64
    """int64[rows], rank of each row's value; -1 for NULL and NaN."""
    distinct: Array
    """The values by rank, ascending; one value that no row has if all rows are NULL or NaN."""
    least: object | None
    """The exact lower bound over the files; None if a file has no bounds."""
    greatest: object | None
    """The exact upper bound over the files; None if a file has no bounds."""
    missing: Missing
    """Which rows are NULL or NaN, and which files may hold either."""

    @property
    def sort_ranks(self) -> Int64:
        """Return the ranks in sort order: NULL before all values, NaN after them."""
        return np.where(self.missing.of == NAN, len(self.distinct), self.ranks)

    @cached_property
    def below(self) -> Int64:
        """Return the sampled rows of a lower rank than each, and those of any rank last:
        int64[ranks + 1]."""
        rows = np.bincount(self.ranks[self.ranks >= 0], minlength=len(self.distinct))
        return np.concatenate(([0], np.cumsum(rows)))

    @cached_property
    def framed(self) -> Array:
        """Return the values by rank between the bounds of the files, or between the least and the
        greatest value where these are not known. The first and the last are for the slices that
        reach them."""
        least, greatest = (
            own if exact is None else np.asarray(exact).reshape(1)
            for own, exact in (
                (self.distinct[:1], self.least), (self.distinct[-1:], self.greatest),
            )
        )  # fmt: skip
        return np.concatenate((least, self.distinct, greatest))

    @cached_property
    def reach(self) -> tuple[Float64, Float64]:
        """Return how far down and how far up each rank is, in sampled rows, float64[ranks] each."""
        return -self.below[:-1].astype(np.float64), self.below[1:].astype(np.float64)

    @cached_property
    def middles(self) -> Int64:
        """Return how many ranks have their middle below each number of half rows, as `below` counts
        rows, int64[2 x rows + 2]: a search of every end of many slices takes much longer."""
        twice = self.below[:-1] + self.below[1:]
        return np.searchsorted(twice, np.arange(2 * int(self.below[-1]) + 2), side="left")


@dataclass(frozen=True)
class Pool:
    """Sampled rows of a group of files."""

    columns: dict[int, PoolColumn]
    """The sampled columns by field id."""
    file: Int64
    """int64[rows], row of `files` that each sampled row belongs to."""
    weight: npt.NDArray[np.float64]
    """float64[rows], number of rows that each sampled row represents."""
    files: FileTable
    """The files of the group."""
    native: Bool
    """bool[rows], whether the row was sampled from its own file."""
    stored: StoredColumns
    """Present sizes of the group's columns."""
    loses_runs: frozenset[int]
    """Field ids of columns of unknown encoding that are small because rows are in their order."""
    blocks: PooledBlocks | None = None
    """Rows that are stored next to each other; None if none were read."""
    taken: dict[tuple[Ordering, PartitionSpec, int, int], StoredBytes] = field(default_factory=dict)
    """What these rows take by ordering, spec, file size and row-group size, once that is asked for
    (`grid`)."""
    ordered: dict[Ordering, tuple[Int64, Int64 | None]] = field(default_factory=dict)
    """The rows in an order, and the leaf of each in its tree, once that is asked for
    (`arrangement`)."""

    def __len__(self) -> int:
        return len(self.file)

    def key_of(self, ordering: Ordering) -> tuple[list[Int64], list[Array]]:
        """Return, per column of an ordering's key, the sort rank of each row and the values by
        rank. Raises KeyError if a column was not sampled."""
        key = [self.columns[column.field_id] for column in ordering.key]
        return [one.sort_ranks for one in key], [one.distinct for one in key]

    def as_sample(self) -> RowSample:
        """Return the rows as a sample of the pool's files."""
        values, null = {}, {}
        for field_id, column in self.columns.items():
            values[field_id] = column.distinct[np.maximum(column.ranks, 0)]
            null[field_id] = column.missing.of == NULL
            if (column.missing.of == NAN).any():
                values[field_id] = np.where(column.missing.of == NAN, np.nan, values[field_id])
        return RowSample(values, null, self.weight, self.file)


@dataclass(frozen=True, slots=True)
class Present:
    """What a column takes in the present order of the blocks."""

    bytes: int
    """Bytes of its data pages."""
    bits: float
    """Bits of a row in its dictionary index; 0 without a dictionary."""


@dataclass(frozen=True)
class PooledBlocks:
    """Rows that are stored next to each other, with what is known of them in other orders."""

    rows: Pool
    """The blocks' rows over the pool's columns."""
    sample: RowSample
    """The same rows over all columns that were read."""
    data_bytes: DataBytes
    """Encodes the rows in an order and returns the bytes of their columns' data pages."""
    present: dict[int, Present] = field(default_factory=dict)
    """What columns take in the present order, by field id, once that is asked for."""
    orders: dict[tuple[Ordering, PartitionSpec | None], object] = field(default_factory=dict)
    """What is known of other orders (`neighbours.BlockOrder`), by ordering and spec, once that is
    asked for."""

    def coded(self, field_id: int) -> tuple[Int64, int]:
        """Return a column's values as numbers, NULL as the last of them, and how many there are."""
        values, null = self.sample.values[field_id], self.sample.null[field_id]
        distinct, number = np.unique(values, return_inverse=True)
        return np.where(null, len(distinct), number.reshape(-1)), len(distinct) + 1


def build_pool(view: TableView, columns: Sequence[int], max_rows: int = MAX_POOL) -> Pool | None:
    """Return the pool of a view's files over the given columns, None if no file was sketched."""
    sample, files = view.sample, view.known
    if sample is None or not len(sample) or not len(files):
        return None
    columns = [c for c in columns if c in sample.values and c in files.columns]
    starts = np.flatnonzero(np.diff(sample.file, prepend=-1))
    owners = sample.file[starts]
    lengths = np.diff(np.append(starts, len(sample)))
    chosen = _chosen_files(len(files), max_rows)
    donor = nearest([files.columns[column] for column in columns], chosen, owners)
    # No row is taken twice: its values would count as repeated.
    taken = np.minimum(max(1, max_rows // len(chosen)), lengths[donor])
    place = np.repeat(np.arange(len(chosen)), taken)
    number = np.arange(len(place)) - np.repeat(np.cumsum(taken) - taken, taken)
    steps = (number + 0.5) / taken[place]
    flat = starts[donor][place] + (lengths[donor][place] * steps).astype(np.int64)
    live = np.maximum(files.records - files.position_deleted, 0).astype(np.float64)
    weight = live[chosen] * (live.sum() / max(live[chosen].sum(), 1.0))
    file, native = chosen[place], (owners[donor] == chosen)[place]
    built = {column: _pool_column(files, sample, column, flat, file) for column in columns}
    stored = stored_columns(view)
    unknown = [column for column in columns if column not in stored.columns]
    return Pool(
        built, file, (weight / taken)[place], files, native, stored,
        frozenset(column for column in unknown if _in_order(view, sample, column)),
        _pooled_blocks(view, columns),
    )  # fmt: skip


def _in_order(view: TableView, sample: RowSample, column: int) -> bool:
    """Return whether the sampled rows of the view are in the order of a column of numbers, found
    once for pools of all sizes."""
    known: dict[int, bool] = view.derived.setdefault("columns in order", {})
    if column not in known:
        known[column] = sample.values[column].dtype.kind in "iuf" and in_order(sample, column)
    return known[column]


def _pooled_blocks(view: TableView, columns: Sequence[int]) -> PooledBlocks | None:
    blocks, files = view.blocks, view.known
    if blocks is None or any(column not in blocks.rows.values for column in columns):
        return None
    every = np.arange(len(blocks), dtype=np.int64)
    file, weight = blocks.rows.file, np.ones(len(blocks))
    built = {column: _pool_column(files, blocks.rows, column, every, file) for column in columns}
    rows = Pool(
        built, file, weight, files, weight > 0.0, StoredColumns({}, {}, {}, {}),
        frozenset(),
    )  # fmt: skip
    return PooledBlocks(rows, blocks.rows, blocks.data_bytes)


def _chosen_files(files: int, max_rows: int) -> Int64:
    """Return all files, or a systematic sample of them that leaves each at least 16 rows."""
    limit = max(1, max_rows // 16)
    if files <= limit:
        return np.arange(files, dtype=np.int64)
    return (np.arange(limit) * files // limit).astype(np.int64)


def _pool_column(
    files: FileTable, sample: RowSample, column: int, index: Int64, file: Int64
) -> PoolColumn:
    bounds = files.columns[column]
    values, null = sample.values[column][index], sample.null[column][index]
    nan = np.isnan(values) & ~null if bounds.kind is Kind.FLOAT else np.zeros_like(null)
    source = sample.file[index]
    absences = missing(bounds, files.records, null, nan, file, source == file)
    if bounds.kind is not Kind.BYTES:  # byte strings are moved one by one: too slow
        values = moved(bounds, values, null, source, file)
    null = null | nan
    distinct, ranks = distinct_ranks(values[~null])
    full = np.full(len(values), -1, dtype=np.int64)
    full[~null] = ranks
    if not len(distinct):  # every sampled row is NULL: no row has the rank of this value
        distinct = np.zeros(1, dtype=values.dtype)
    exact = bool(bounds.bounded.all())
    return PoolColumn(
        bounds.kind, full, distinct,
        least_of(bounds.lower) if exact else None,
        greatest_of(bounds.upper) if exact else None,
        absences,
    )  # fmt: skip
