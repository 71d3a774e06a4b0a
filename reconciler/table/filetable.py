"""The file table: all that manifests say about a table's live data files, as arrays.

Observation, pruning, drift and what-if are fast because of this structure: a row is a data file,
columns are numpy arrays, and no Python loop runs over files times queries.
`reconciler.catalog.observe` fills it; everything in core and advisor reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from reconciler.table.schema import PartitionSpec, Schema
from reconciler.table.values import Kind, Scalar

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]

UNKNOWN = -1
"""A count or size that the metadata does not hold. Never shown as 0."""


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Zone map of one column over n files or row groups. All arrays have shape [n].

    lower, upper: the column's domain (`values`): int64, float64 or S<w>; meaningless where
    has_lower / has_upper is False. Strings may be truncated: lower is then below, upper above the
    real extreme, so they bound values but need not occur (`truncated`). The upper bound of a string
    or binary that ends in NUL gets one byte \\x01 more, because numpy would strip the NUL and so
    lower it.
    nulls, nans, values: counts, UNKNOWN if missing. sizes: bytes of the column in the file
    (compressed), UNKNOWN if missing.
    """

    field_id: int
    kind: Kind
    lower: Array
    upper: Array
    has_lower: Bool
    has_upper: Bool
    nulls: Int64
    nans: Int64
    values: Int64
    sizes: Int64
    truncated: Bool

    @property
    def bounded(self) -> Bool:
        return self.has_lower & self.has_upper

    def take(self, index: Array) -> ColumnBounds:
        return ColumnBounds(
            self.field_id, self.kind, self.lower[index], self.upper[index],
            self.has_lower[index], self.has_upper[index], self.nulls[index], self.nans[index],
            self.values[index], self.sizes[index], self.truncated[index],
        )  # fmt: skip


Partition = tuple[Scalar | None, ...]
"""Partition values in the order of the spec's fields, each in its result type's domain."""


@dataclass(frozen=True)
class FileTable:
    """Live data files of one snapshot. Arrays have shape [files]; index = row of the table.

    path: object array of str, the manifest's string verbatim (commits need it so).
    spec_id: int32. partition: int32 index into `partitions`, where `partitions[i]` is (spec id,
    values) and unique.
    records, bytes: rows and file size as in the manifest (deleted rows still counted).
    sequence: data sequence number. added_ms: commit time of the snapshot that added the file, epoch
    milliseconds, UNKNOWN if that snapshot has expired.
    layout_written: the file was added by a snapshot that carries `layout.attempt-id`.
    sort_order_id: UNKNOWN if missing. parquet: file format is Parquet. encrypted: key metadata.
    position_deleted: rows deleted by position deletes or vectors that name the file (an estimate
    for partition-scoped delete files). delete_files, delete_bytes: delete files that apply to it
    and their bytes. equality_deletes: number of equality delete files that apply.
    newest_delete: largest data sequence number of the delete files that apply, UNKNOWN without any.
    columns: by field id, only columns with an ordered domain.
    column_sizes: by field id for every leaf column that has a size in some file, int64[files].
    """

    schema: Schema
    specs: Mapping[int, PartitionSpec]
    default_spec_id: int
    path: Array
    spec_id: Array
    partition: Array
    partitions: tuple[tuple[int, Partition], ...]
    records: Int64
    bytes: Int64
    sequence: Int64
    added_ms: Int64
    layout_written: Bool
    sort_order_id: Array
    parquet: Bool
    encrypted: Bool
    position_deleted: Int64
    delete_files: Int64
    delete_bytes: Int64
    equality_deletes: Int64
    newest_delete: Int64
    columns: Mapping[int, ColumnBounds] = field(default_factory=dict)
    column_sizes: Mapping[int, Int64] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.path)

    @cached_property
    def derived(self) -> dict[str, Any]:
        """Cache of values derived from this table; a table never changes."""
        return {}

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Return the row of each file by its path."""
        return {path: row for row, path in enumerate(self.path)}

    @property
    def total_bytes(self) -> int:
        return int(self.bytes.sum())

    @cached_property
    def live_bytes(self) -> Float64:
        """Return the bytes of the rows that are not deleted by position, float64[files]."""
        live = np.maximum(self.records - self.position_deleted, 0)
        return self.bytes * (live / np.maximum(self.records, 1))

    @property
    def total_records(self) -> int:
        return int(self.records.sum())

    def take(self, index: Array) -> FileTable:
        """Return the rows at `index` (int or bool array), with partitions unchanged."""
        per_file = (
            "path", "spec_id", "partition", "records", "bytes", "sequence", "added_ms",
            "layout_written", "sort_order_id", "parquet", "encrypted", "position_deleted",
            "delete_files", "delete_bytes", "equality_deletes", "newest_delete",
        )  # fmt: skip
        return replace(
            self,
            **{name: getattr(self, name)[index] for name in per_file},
            columns={key: column.take(index) for key, column in self.columns.items()},
            column_sizes={key: sizes[index] for key, sizes in self.column_sizes.items()},
        )

    def groups(self) -> list[tuple[int, Partition, Int64]]:
        """Return (spec id, partition values, row indexes) per partition with files, in a fixed
        order."""
        if not len(self):
            return []
        order = np.argsort(self.partition, kind="stable")
        ids, starts = np.unique(self.partition[order], return_index=True)
        pieces = np.split(order, starts[1:])
        return [
            (*self.partitions[int(number)], piece.astype(np.int64))
            for number, piece in zip(ids, pieces, strict=True)
        ]


def beyond_trailing_nul(upper: Array, length: Int64) -> Array:
    """Return upper bounds S<w> of the given true lengths, one byte \\x01 longer if they end in NUL.

    numpy strips trailing NULs, which would lower the bound below values that the file holds.
    """
    stripped = np.flatnonzero(length > np.char.str_len(upper))
    if not len(stripped):
        return upper
    width = max(upper.dtype.itemsize, int(length[stripped].max()) + 1)
    raised = upper.astype(f"S{width}")
    raw = raised.view(np.uint8).reshape(len(raised), width)
    raw[stripped, length[stripped]] = 1
    return raised
