"""File tables and Iceberg tables that several catalog tests use."""

from __future__ import annotations

import numpy as np

from reconciler.table.filetable import ColumnBounds, FileTable
from reconciler.table.schema import Field, PartitionField, PartitionSpec, Schema
from reconciler.table.values import Kind


def small_file_table() -> FileTable:
    """Two files of two partitions with an integer and a string column."""
    longs = np.array([10, 20], dtype=np.int64)
    flags = np.array([True, False])
    path = np.empty(2, dtype=object)
    path[:] = ["file:/t/a.parquet", "file:///t/b.parquet"]

    def column(field_id: int, kind: Kind, lower: np.ndarray, upper: np.ndarray) -> ColumnBounds:
        return ColumnBounds(
            field_id, kind, lower, upper, flags | True, flags, longs, longs, longs, longs, flags
        )

    return FileTable(
        schema=Schema(3, (Field(1, "id", "long", True), Field(2, "tag", "string"))),
        specs={1: PartitionSpec(1, (PartitionField(1, 1000, "bucket[4]", "id_bucket"),))},
        default_spec_id=1,
        path=path,
        spec_id=np.array([1, 1], dtype=np.int32),
        partition=np.array([2, 0], dtype=np.int32),
        partitions=((1, (3,)), (1, (9,)), (1, (None,))),
        records=longs,
        bytes=longs * 100,
        sequence=longs,
        added_ms=longs,
        layout_written=flags,
        sort_order_id=np.array([0, -1], dtype=np.int32),
        parquet=flags,
        encrypted=~flags,
        position_deleted=longs,
        delete_files=longs,
        delete_bytes=longs,
        equality_deletes=longs,
        newest_delete=longs,
        columns={
            1: column(1, Kind.INT, longs, longs + 5),
            2: column(2, Kind.BYTES, np.array([b"a", b"b"]), np.array([b"x", b"yy"])),
        },
        column_sizes={1: longs, 2: longs * 2},
    )
