"""Observations made of numbers alone, for golden files of what `observe` prints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from reconciler.catalog.assemble import DeleteFiles
from reconciler.catalog.deletes import apply_deletes
from reconciler.table.filetable import ColumnBounds, FileTable
from reconciler.table.metadata import TableMetadata
from reconciler.table.observation import DeleteLoad, Observation, SnapshotInfo
from reconciler.table.operations import Encoding, Operations, RowOperation
from reconciler.table.operations import Kind as Operation
from reconciler.table.schema import Field, PartitionField, PartitionSpec, Schema
from reconciler.table.times import DAY_MS
from reconciler.table.values import Kind
from tests.catalog.test_deletes import delete_files

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


OLD_SPEC, NEW_SPEC = (
    PartitionSpec(0),
    PartitionSpec(1, (PartitionField(5, 1000, "day", "ingested_at_day"),)),
)
FILES_UNPARTITIONED, FILES_A_DAY, DAYS = 8, 8, 4
ROWS_A_FILE = 10_000


def with_deletes(format_version: int = 2) -> Observation:
    """Orders whose partition spec changed: 8 unpartitioned files from before, 8 for each of 4 days.

    Deletes of every scope that `format_version` has, each with a dangling one, and row-level
    operations of three engines.
    """
    count = FILES_UNPARTITIONED + FILES_A_DAY * DAYS
    seen, old = lineitem(count, 1), np.arange(count) < FILES_UNPARTITIONED
    day = np.where(old, 0, 1 + (np.arange(count) - FILES_UNPARTITIONED) // FILES_A_DAY)
    specs = {0: OLD_SPEC, 1: NEW_SPEC}
    files = replace(
        seen.files,
        specs=specs,
        default_spec_id=1,
        spec_id=(~old).astype(np.int32),
        partition=day.astype(np.int32),
        partitions=((0, ()), *((1, (20_000 + n,)) for n in range(DAYS))),
        records=np.full(count, ROWS_A_FILE, dtype=np.int64),
        bytes=np.full(count, 24 * MIB, dtype=np.int64),
        sequence=np.arange(1, count + 1, dtype=np.int64),
    )
    found = apply_deletes(files, _deletes(files, format_version), specs)
    return replace(
        seen,
        identifier=("sales", "orders"),
        format_version=format_version,
        files=found.files,
        deletes=found.load,
        delete_files=found.deletes,
        doubled_vectors=found.doubled,
        operations=OPERATIONS,
    )


def _deletes(files: FileTable, format_version: int) -> DeleteFiles:
    last, path = len(files), files.path.tolist()
    equality = [
        {"content": 2, "spec": 1, "value": 20_001, "sequence": last + 1, "records": 700,
         "bytes": 30_000},
        {"content": 2, "spec": 1, "value": 20_009, "sequence": last + 1, "records": 40},
        {"content": 2, "sequence": 4, "records": 25},
    ]  # fmt: skip
    if format_version == 3:
        vectors = [
            {"referenced": path[n], "vector": 600, "offset": 4 + 600 * k, "sequence": last + 1,
             "records": 1_250}
            for k, n in enumerate((9, 10, 11))
        ]  # fmt: skip
        return delete_files(*equality, *vectors)
    named = [
        {"referenced": name, "sequence": last + 1, "records": 1_200, "bytes": 9_000}
        for name in (path[10], path[11], "s3://lake/t/data/gone.parquet")
    ]
    of_partition = [
        {"spec": 1, "value": 20_000 + n, "sequence": last, "records": 3_000, "bytes": 20_000}
        for n in (1, 2, 7)
    ]
    return delete_files(*equality, *named, *of_partition)


def _operation(days: float, kind: Operation, encoding: Encoding, **known: Any) -> RowOperation:
    nothing = dict.fromkeys(("rows", "files", "partitions", "replaced_bytes"))
    counts = {"at_most": False, "added_rows": 0, "added_files": 1, "delete_files": 1, "engine": ""}
    return RowOperation(
        snapshot_id=int(days * 100), timestamp_ms=NOW_MS - int(days * DAY_MS), kind=kind,
        encoding=encoding, **{**nothing, **counts, **known},
    )  # fmt: skip


OPERATIONS = Operations(
    (
        *(
            _operation(day, Operation.UPSERT, Encoding.EQUALITY, engine="flink", rows=90 + day,
                       at_most=True)
            for day in range(12)
        ),
        *(
            _operation(day, Operation.MERGE, Encoding.COPY_ON_WRITE, engine="spark", rows=2_000,
                       files=3, partitions=2, replaced_bytes=72 * MIB)
            for day in range(3)
        ),
        _operation(5, Operation.DELETE, Encoding.MERGE_ON_READ),
        _operation(6, Operation.DELETE, Encoding.COPY_ON_WRITE, rows=10, files=1),
    ),
    span_ms=12 * DAY_MS,
)  # fmt: skip


def with_two_vectors() -> Observation:
    """A table that no reader can read: a compaction beside a DELETE wrote a second vector."""
    seen = with_deletes(3)
    row = 10
    twice = [
        {"referenced": seen.files.path[row], "vector": 600, "offset": 4, "records": 1_250,
         "sequence": sequence}
        for sequence in (50, 51)
    ]  # fmt: skip
    found = apply_deletes(seen.files, delete_files(*twice), seen.files.specs)
    return replace(
        seen, files=found.files, deletes=found.load, delete_files=found.deletes,
        doubled_vectors=found.doubled,
        ancestry=(
            SnapshotInfo(7312000000000000984, 51, NOW_MS - 360_000, "delete", {}),
            SnapshotInfo(7312000000000000983, 50, NOW_MS - 420_000, "delete", {}),
        ),
    )  # fmt: skip
