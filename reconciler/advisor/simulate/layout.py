"""A layout that rows may be given, and what is found out about it by simulation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from reconciler.plan.ordering import Ordering
from reconciler.queries.read_cost import ShapeReading
from reconciler.queries.table_view import OPEN_BYTES, TableView
from reconciler.table.filetable import (
    UNKNOWN,
    Array,
    Bool,
    ColumnBounds,
    FileTable,
    Float64,
    Int64,
)
from reconciler.table.row_group_bytes import output_files
from reconciler.table.sample import RowSample
from reconciler.table.schema import PartitionSpec
from reconciler.table.uuid_order import UUID, alike_in_all_orders


@dataclass(frozen=True, slots=True, order=True)
class Sizes:
    """Sizes of files and row groups, in stored bytes."""

    target_bytes: int
    """Bytes of a file."""
    row_group_bytes: int
    """Bytes of a row group; 0 for one row group per file."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows are to be stored."""

    ordering: Ordering
    """The order of the rows."""
    target_bytes: int
    """Stored bytes of a file."""
    row_group_bytes: int
    """Stored bytes of a row group; 0 for one per file."""
    groups: Int64
    """int64[files], number of the group of input files that each is rewritten with."""
    open_bytes: int = OPEN_BYTES
    """Cost of opening a file, in bytes read."""
    partition: int = 0
    """Where the rows are written: an index into `FileTable.partitions`."""
    spec: PartitionSpec | None = None
    """The partition spec that rows are moved to, by whose partitions they are then written; None if
    they stay in `partition`."""
    unbounded: frozenset[int] = frozenset()
    """Field ids of columns whose bounds are left out of the manifest: files are opened whatever
    queries ask of them."""

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.target_bytes, self.row_group_bytes)

    def files_of(self, size: npt.ArrayLike) -> Int64:
        """Return the number of files that groups of rows of these bytes become."""
        return output_files(size, self.target_bytes)


UNKNOWN_FILES = "none"
"""`Written.label` where neither a sample nor bounds show the files."""


@dataclass(frozen=True, slots=True)
class Written:
    """The files that a layout makes of rows."""

    views: tuple[TableView, ...]
    """The files with their row groups, in one part or in several without a common file."""
    files: int
    """Number of data files written."""
    label: str
    """How the files are known: "sampled", "bound" (proved from zone maps alone) or UNKNOWN_FILES:
    `views` then has the files that are replaced."""
    share: float = 1.0
    """Bytes written per live byte read."""


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """The output of a layout with the sampled rows of each file."""

    view: TableView
    """Its files and row groups."""
    sample: RowSample | None
    """The sampled rows, sorted by file; None if there are none."""
    represents: Float64
    """float64[files], real files that each one represents: more than one in a thin sample."""


@dataclass(frozen=True)
class Outcome:
    """The files of a layout and what each shape reads of them."""

    readings: tuple[ShapeReading, ...]
    """What each shape reads."""
    written: Written
    """The files."""
    replicates: tuple[tuple[ShapeReading, ...], ...] = ()
    """Per bootstrap replicate of the sample, what each shape reads."""


def simulated_files(
    base: FileTable,
    records: Int64,
    size: Int64,
    columns: dict[int, ColumnBounds],
    column_sizes: dict[int, Int64],
    partition: int,
) -> FileTable:
    """Return a file table of files that do not exist, in one partition of the table of `base`."""
    count = len(records)
    zeros, unknown = np.zeros(count, dtype=np.int64), np.full(count, UNKNOWN, dtype=np.int64)
    return replace(
        base,
        path=_paths(count),
        spec_id=np.full(count, base.partitions[partition][0], dtype=base.spec_id.dtype),
        partition=np.full(count, partition, dtype=base.partition.dtype),
        records=records,
        bytes=size,
        sequence=zeros,
        added_ms=unknown,
        layout_written=np.ones(count, dtype=bool),
        sort_order_id=unknown.astype(base.sort_order_id.dtype),
        parquet=np.ones(count, dtype=bool),
        encrypted=np.zeros(count, dtype=bool),
        position_deleted=zeros,
        delete_files=zeros,
        delete_bytes=zeros,
        equality_deletes=zeros,
        newest_delete=unknown,
        snapshot_id=None,
        file_sequence=None,
        columns=columns,
        column_sizes=column_sizes,
    )


def as_in_manifest(files: FileTable, unbounded: frozenset[int]) -> FileTable:
    """Return the files without the bounds that their manifest will not have."""
    kept = {field: _has_bounds(files, field, unbounded) for field in files.columns}
    if all(given.all() for given in kept.values()):
        return files
    columns = {
        field: replace(
            column,
            has_lower=column.has_lower & kept[field],
            has_upper=column.has_upper & kept[field],
        )
        for field, column in files.columns.items()
    }
    return replace(files, columns=columns)


def _has_bounds(files: FileTable, field_id: int, unbounded: frozenset[int]) -> Bool:
    """Return the files in which bounds of the column are kept: bool[files]."""
    if field_id in unbounded:
        return np.zeros(len(files), dtype=bool)
    field, column = files.schema.by_id.get(field_id), files.columns[field_id]
    if field is None or field.type != UUID:
        return np.ones(len(files), dtype=bool)
    return alike_in_all_orders(column.lower, column.upper) | ~column.bounded


def _paths(count: int) -> Array:
    return _many_paths(1 << max(count, 1_024).bit_length())[:count]


@lru_cache(maxsize=8)
def _many_paths(count: int) -> Array:
    return np.array([f"simulated-{i:06d}" for i in range(count)], dtype=object)
