"""The file table: all that manifests say about a table's live data files, as arrays.

Observation, pruning, drift and what-if are fast because of this structure: a row is a data file,
columns are numpy arrays, and no Python loop runs over files times queries.
`reconciler.catalog.observe` fills it; `queries`, `plan` and `advisor` read it.
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


@dataclass(frozen=True)
class ColumnBounds:
    """Zone map of one column over n files or row groups. Arrays have shape [n]."""

    field_id: int
    """Id of the column."""
    kind: Kind
    """The column's domain, which decides the type of the bounds."""
    lower: Array
    """int64, float64 or S<w>[n]: lower bound in the domain (`values`), meaningless where
    `has_lower` is False. A truncated string is below the least value."""
    upper: Array
    """int64, float64 or S<w>[n]: upper bound in the domain, meaningless where `has_upper` is False.
    A truncated string is above the greatest value. One that ends in NUL has a further byte 1,
    because numpy strips a trailing NUL and would lower it."""
    has_lower: Bool
    """bool[n]: whether the lower bound is known."""
    has_upper: Bool
    """bool[n]: whether the upper bound is known."""
    nulls: Int64
    """int64[n]: number of NULL values, UNKNOWN if missing."""
    nans: Int64
    """int64[n]: number of NaN values, UNKNOWN if missing."""
    values: Int64
    """int64[n]: number of values, UNKNOWN if missing."""
    sizes: Int64
    """int64[n]: compressed bytes of the column, UNKNOWN if missing."""
    truncated: Bool
    """bool[n]: whether a bound may be truncated, so that it bounds the values but need not
    occur."""

    @property
    def bounded(self) -> Bool:
        return self.has_lower & self.has_upper

    @cached_property
    def derived(self) -> dict[str, Any]:
        """Cache of values derived from these bounds; they never change."""
        return {}

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
    """Live data files of one snapshot. Arrays have shape [files]; the index is the row of the
    table."""

    schema: Schema
    """The table's current schema."""
    specs: Mapping[int, PartitionSpec]
    """The partition specs by id."""
    default_spec_id: int
    """Id of the spec that writers use."""
    path: Array
    """object[files]: path exactly as the manifest has it, because commits need it so."""
    spec_id: Array
    """int32[files]: id of the file's partition spec."""
    partition: Array
    """int32[files]: index into `partitions`."""
    partitions: tuple[tuple[int, Partition], ...]
    """The distinct (spec id, partition values)."""
    records: Int64
    """int64[files]: rows by the manifest, deleted ones included."""
    bytes: Int64
    """int64[files]: size of the file by the manifest."""
    sequence: Int64
    """int64[files]: data sequence number."""
    added_ms: Int64
    """int64[files]: commit time of the snapshot that added the file, in epoch milliseconds; UNKNOWN
    if that snapshot has expired."""
    layout_written: Bool
    """bool[files]: whether a snapshot of ours (one with `layout.attempt-id`) added the file."""
    sort_order_id: Array
    """int64[files]: id of the sort order that the file was written by, UNKNOWN if missing."""
    parquet: Bool
    """bool[files]: whether the file format is Parquet."""
    encrypted: Bool
    """bool[files]: whether the file has key metadata."""
    position_deleted: Int64
    """int64[files]: rows deleted by position deletes or vectors that name the file; an estimate for
    delete files of a whole partition."""
    delete_files: Int64
    """int64[files]: number of delete files that apply to it."""
    delete_bytes: Int64
    """int64[files]: bytes of the delete files that apply to it."""
    equality_deletes: Int64
    """int64[files]: number of equality delete files that apply to it."""
    newest_delete: Int64
    """int64[files]: largest data sequence number of the delete files that apply to it, UNKNOWN
    without any."""
    columns: Mapping[int, ColumnBounds] = field(default_factory=dict)
    """Zone maps by field id; only columns with an ordered domain have one."""
    column_sizes: Mapping[int, Int64] = field(default_factory=dict)
    """int64[files] by field id: compressed bytes of every leaf column that has a size in some
    file."""
    snapshot_id: Int64 | None = None
    """int64[files]: id of the snapshot that added the file, also once it has expired; None if it
    was not read."""
    file_sequence: Int64 | None = None
    """int64[files]: sequence number of the commit that added the file, which a rewrite does not
    keep as it keeps `sequence`; None if it was not read."""

    def __len__(self) -> int:
        return len(self.path)

    @property
    def per_file(self) -> dict[str, Array | None]:
        """Return every array with a value for each file, by the name of its field; None where it
        was not read."""
        return {name: getattr(self, name) for name in PER_FILE}

    @cached_property
    def derived(self) -> dict[str, Any]:
        """Cache of values derived from this table; a table never changes."""
        return {}

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Return the row of each file by its path."""
        return dict(zip(self.path.tolist(), range(len(self)), strict=True))

    def sorted_paths(self, rows: Int64) -> tuple[str, ...]:
        """Return the sorted paths of these files, kept while the same files are asked for."""
        key = rows.tobytes()
        known: tuple[bytes, tuple[str, ...]] | None = self.derived.get("paths")
        if known is None or known[0] != key:
            known = key, tuple(sorted(self.path[rows].tolist()))
            self.derived["paths"] = known
        return known[1]

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
        taken: dict[str, Any] = {
            name: None if own is None else own[index] for name, own in self.per_file.items()
        }
        return replace(
            self,
            **taken,
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


PER_FILE = (
    "path", "spec_id", "partition", "records", "bytes", "sequence", "added_ms",
    "layout_written", "sort_order_id", "parquet", "encrypted", "position_deleted",
    "delete_files", "delete_bytes", "equality_deletes", "newest_delete", "snapshot_id",
    "file_sequence",
)  # fmt: skip
"""The fields of a file table that have a value for each file."""


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
