"""Observations made of numbers alone, for golden files of what `observe` prints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from reconciler.table.filetable import ColumnBounds, FileTable
from reconciler.table.metadata import TableMetadata
from reconciler.table.observation import DeleteLoad, Observation, SnapshotInfo
from reconciler.table.schema import Field, PartitionField, PartitionSpec, Schema
from reconciler.table.values import Kind

NOW_MS = 1_795_250_000_000
MIB = 1 << 20


def bounds(field_id: int, lower: Any, upper: Any, kind: Kind = Kind.INT) -> ColumnBounds:
    count = len(lower)
    known, longs = np.ones(count, dtype=bool), np.zeros(count, dtype=np.int64)
    return ColumnBounds(
        field_id, kind, lower, upper, known, known, longs, longs, longs + 1000, longs + 10,
        np.full(count, kind is Kind.BYTES),
    )  # fmt: skip


def lineitem(files: int = 1184, partitions: int = 36) -> Observation:
    """A table in arrival order: keys nearly sorted, dates spread, parts everywhere."""
    number = np.arange(files, dtype=np.int64)
    span = 1000
    spread = (number * 37) % 97 * 20
    prefix = np.full(files, b"the quick brown ", dtype="S16")
    above = np.full(files, b"the quick brown!", dtype="S16")
    sizes = np.array([9, 75, 256, 430], dtype=np.int64)[(number * 7) % 4] * MIB
    zeros = np.zeros(files, dtype=np.int64)
    path = np.empty(files, dtype=object)
    path[:] = [f"s3://lake/t/data/{n}.parquet" for n in range(files)]
    spec = PartitionSpec(0, (PartitionField(5, 1000, "month", "ingested_at_month"),))
    table = FileTable(
        schema=Schema(
            0,
            (
                Field(1, "l_orderkey", "long", True),
                Field(2, "l_shipdate", "date"),
                Field(3, "l_partkey", "long"),
                Field(4, "l_comment", "string"),
                Field(5, "ingested_at", "timestamptz"),
                Field(7, "l_tags.element", "string", repeated=True),
            ),
        ),
        specs={0: spec},
        default_spec_id=0,
        path=path,
        spec_id=zeros.astype(np.int32),
        partition=(number * partitions // max(files, 1)).astype(np.int32),
        partitions=tuple((0, (600 + n,)) for n in range(partitions)),
        records=zeros + 3_049_000,
        bytes=sizes,
        sequence=number,
        added_ms=zeros + NOW_MS - 1000,
        layout_written=zeros.astype(bool),
        sort_order_id=zeros.astype(np.int32),
        parquet=~zeros.astype(bool),
        encrypted=zeros.astype(bool),
        position_deleted=zeros,
        delete_files=(number % 29 == 0).astype(np.int64),
        delete_bytes=zeros,
        equality_deletes=zeros,
        newest_delete=zeros - 1,
        columns={
            1: bounds(1, number * span, number * span + span + span // 2),
            2: bounds(2, number + spread - 200, number + spread + 100),
            3: bounds(3, zeros + number % 7, zeros + 20_000_000 - number % 11),
            4: bounds(4, prefix, above, Kind.BYTES),
            5: bounds(5, number * 10**9, number * 10**9 + 10**9),
        },
        column_sizes={1: zeros + 100, 4: zeros + 900},
    )
    snapshot = SnapshotInfo(7312000000000000984, 9, NOW_MS - 360_000, "append", {})
    return Observation(
        catalog="warehouse",
        identifier=("sales", "lineitem"),
        uuid="3f9a1c0b-77de-4c21-a0be-000000000001",
        format_version=2,
        location="s3://lake/t",
        metadata_location="s3://lake/t/metadata/00042.metadata.json",
        metadata=TableMetadata(),
        snapshot_id=snapshot.snapshot_id,
        snapshot_ms=snapshot.timestamp_ms,
        sequence_number=9,
        sort_order_id=0,
        sort_order_text="",
        refs=(),
        ancestry=(snapshot,),
        other_snapshots=(),
        files=table,
        deletes=DeleteLoad(position_files=41, position_rows=2_166_000, bytes=4 * MIB),
        recent_writes=(),
        manifests=37,
        manifests_read=37,
        bytes_read=4_300_000,
        seconds=0.9,
    )


def many_columns(count: int = 40) -> Observation:
    """A wide table: long nested names, some columns without bounds."""
    seen = lineitem(200, 1)
    number = np.arange(200, dtype=np.int64)
    fields = tuple(
        Field(n, f"payload.section_{n:02d}.measurement_with_a_long_name", "long")
        for n in range(1, count + 1)
    )
    columns = {n: bounds(n, number * 10, number * 10 + n * n) for n in range(1, count - 4)}
    files = replace(
        seen.files, schema=Schema(0, fields), columns=columns, column_sizes={},
        specs={0: PartitionSpec(0)}, partitions=((0, ()),),
    )  # fmt: skip
    return replace(
        seen,
        files=files,
        identifier=("web", "events"),
        sort_order_text="payload.section_01.measurement_with_a_long_name, bucket(16, id) desc",
        metadata=TableMetadata({"write.target-file-size-bytes": str(256 * MIB)}),
        deletes=DeleteLoad(vectors=3, vector_rows=90, equality_files=2),
        manifests_read=0,
        bytes_read=0,
        seconds=0.04,
    )


def empty() -> Observation:
    """A table that nothing was ever written to."""
    seen = lineitem(0, 1)
    return replace(
        seen, snapshot_id=None, ancestry=(), deletes=DeleteLoad(), manifests=0, manifests_read=0
    )
