"""Equality deletes as Flink writes them: a Parquet file of keys, committed by a row delta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reconciler.spark.session import iceberg
from tests.spark.tables import Bench

FIELD_ID = b"PARQUET:field_id"
POSITION_IDS = {"file_path": 2147483546, "pos": 2147483545}
"""Reserved field ids of position delete files (Apache Iceberg table specification)."""


def add_equality_delete(
    bench: Bench,
    name: str,
    columns: Mapping[str, Any],
    *,
    spec_id: int | None = None,
    like: str = "",
    ids: Mapping[str, int] | None = None,
    bounds: Mapping[str, tuple[bytes, bytes]] | None = None,
) -> str:
    """Delete the rows with these keys, a value per row for each column; return the file's path.

    columns: pyarrow arrays by name, `s.a` for a member of a struct. like: a data file of the
    partition to delete in; "" for a spec without partitions. ids: field ids of columns that the
    schema does not have any more. bounds: lower and upper ones of columns, single-value serialised.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table, core = bench.table(name), bench.spark._jvm.org.apache.iceberg
    known = ids or {}
    fields, arrays, keys = [], [], []
    for column, values in columns.items():
        field_id = known.get(column) or int(table.schema().findField(column).fieldId())
        keys.append(field_id)
        fields.append(_field(table, column, values.type, field_id))
        arrays.append(_wrapped(column, values, fields[-1].type))
    schema = pa.schema(fields)
    number = len(list(bench.directory.glob("equality-*.parquet")))
    path = bench.directory / f"equality-{number}.parquet"
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path)
    file = java_file(table, like) if like else None
    spec = table.specs().get(file.specId() if file else (spec_id or 0))
    numbers = bench.spark.gateway.new_array(bench.spark._jvm.int, len(keys))
    for index, key in enumerate(keys):
        numbers[index] = key
    builder = (
        core.FileMetadata.deleteFileBuilder(spec)
        .ofEqualityDeletes(numbers)
        .withPath(f"file:{path}")
        .withFormat("PARQUET")
        .withFileSizeInBytes(path.stat().st_size)
        .withRecordCount(len(arrays[0]))
    )
    if bounds:
        by_id = {int(table.schema().findField(c).fieldId()): ends for c, ends in bounds.items()}
        builder = builder.withMetrics(_bounded(bench, len(arrays[0]), by_id))
    if file is not None:
        builder = builder.withPartition(file.partition())
    table.newRowDelta().addDeletes(builder.build()).commit()
    return f"file:{path}"


def add_avro_equality_delete(bench: Bench, name: str, column: str, values: Sequence[Any]) -> None:
    """Delete the rows with these values by an Avro file that Iceberg's own writer makes."""
    table, jvm = bench.table(name), bench.spark._jvm
    core, java = jvm.org.apache.iceberg, jvm.java
    keys = table.schema().select([column])
    field_id = int(table.schema().findField(column).fieldId())
    ids = bench.spark.gateway.new_array(jvm.int, 1)
    ids[0] = field_id
    path = bench.directory / f"equality-{len(list(bench.directory.glob('*.avro')))}.avro"
    factory = core.data.GenericFileWriterFactory.Builder(table).deleteFileFormat(
        core.FileFormat.AVRO
    )
    factory = factory.equalityDeleteRowSchema(keys).equalityFieldIds(ids).build()
    output = core.encryption.EncryptedFiles.plainAsEncryptedOutput(
        core.Files.localOutput(str(path))
    )
    writer = factory.newEqualityDeleteWriter(output, table.spec(), None)
    outer, _, inner = column.partition(".")
    for value in values:
        record = core.data.GenericRecord.create(keys)
        if inner:
            member = core.data.GenericRecord.create(keys.findType(outer).asStructType())
            member.setField(inner, value)
            record.setField(outer, member)
        else:
            record.setField(outer, _generic(java, value))
        writer.write(record)
    writer.close()
    table.newRowDelta().addDeletes(writer.toDeleteFile()).commit()


def _generic(java: Any, value: Any) -> Any:
    """Return a value as Iceberg's generic writers take it."""
    import datetime as dt
    from decimal import Decimal

    if isinstance(value, Decimal):
        return java.math.BigDecimal(str(value))
    if isinstance(value, dt.datetime):
        return java.time.OffsetDateTime.parse(value.isoformat())
    if isinstance(value, dt.date):
        return java.time.LocalDate.parse(value.isoformat())
    return value


def _bounded(bench: Bench, rows: int, bounds: Mapping[int, tuple[bytes, bytes]]) -> Any:
    """org.apache.iceberg.Metrics with bounds by field id."""
    java = bench.spark._jvm.java
    lower, upper = java.util.HashMap(), java.util.HashMap()
    for field_id, ends in bounds.items():
        for side, end in zip((lower, upper), ends, strict=True):
            side.put(field_id, java.nio.ByteBuffer.wrap(end))
    return bench.spark._jvm.org.apache.iceberg.Metrics(rows, None, None, None, None, lower, upper)


def add_position_delete(
    bench: Bench,
    name: str,
    rows: Sequence[tuple[str, int]],
    partition: str,
    bounds: tuple[bytes, bytes] | None = None,
) -> str:
    """Delete rows (path of a data file, position) by one file of the partition, written as they
    are; return its path. bounds: of the paths."""
    import pyarrow as pa

    where = {
        "file_path": pa.array([path for path, _ in rows]),
        "pos": pa.array([position for _, position in rows], pa.int64()),
    }
    path, table = _written(bench, where, POSITION_IDS), bench.table(name)
    builder = bench.spark._jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(table.spec())
    builder = builder.ofPositionDeletes()
    if bounds:
        of_path = {POSITION_IDS["file_path"]: bounds}
        builder = builder.withMetrics(_bounded(bench, len(rows), of_path))
    file = _built(builder, path, len(rows), partition)
    table.newRowDelta().addDeletes(file).commit()
    return f"file:{path}"


def upsert(
    bench: Bench,
    name: str,
    columns: Mapping[str, Any],
    keys: Sequence[str],
    spec_id: int,
    partition: str,
    *,
    positions: bool,
) -> None:
    """Write rows of one partition as one checkpoint of Flink does: a row delta with a data file,
    an equality delete file of its keys, and a position delete file of the rows that a later row of
    the checkpoint replaces.

    columns: all columns of the table. partition: as a path, "" where unpartitioned. positions:
    whether to replace rows of the checkpoint itself; a table of format 3 takes vectors only.
    """
    table, core = bench.table(name), bench.spark._jvm.org.apache.iceberg
    spec = table.specs().get(spec_id)
    rows = len(next(iter(columns.values())))
    data = _written(bench, columns, {c: _id_of(table, c) for c in columns})
    ids = {column: _id_of(table, column) for column in keys}
    deletes = _written(bench, {column: columns[column] for column in keys}, ids)
    numbers = bench.spark.gateway.new_array(bench.spark._jvm.int, len(keys))
    for index, column in enumerate(keys):
        numbers[index] = ids[column]
    delta = table.newRowDelta()
    delta.addRows(_built(core.DataFiles.builder(spec), data, rows, partition))
    delta.addDeletes(
        _built(core.FileMetadata.deleteFileBuilder(spec).ofEqualityDeletes(numbers), deletes, rows,
               partition)
    )  # fmt: skip
    last = {
        key: row
        for row, key in enumerate(zip(*(columns[c].to_pylist() for c in keys), strict=True))
    }
    replaced = sorted(set(range(rows)) - set(last.values()))
    if positions and replaced:
        import pyarrow as pa

        where = {
            "file_path": pa.array([f"file:{data}"] * len(replaced)),
            "pos": pa.array(replaced, pa.int64()),
        }
        path = _written(bench, where, POSITION_IDS)
        builder = core.FileMetadata.deleteFileBuilder(spec).ofPositionDeletes()
        delta.addDeletes(_built(builder, path, len(replaced), partition))
    delta.commit()


def _id_of(table: Any, column: str) -> int:
    return int(table.schema().findField(column).fieldId())


def _written(bench: Bench, columns: Mapping[str, Any], ids: Mapping[str, int]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = [
        pa.field(name, values.type, metadata={FIELD_ID: str(ids[name]).encode()})
        for name, values in columns.items()
    ]
    path = bench.directory / f"upsert-{len(list(bench.directory.glob('upsert-*.parquet')))}.parquet"
    pq.write_table(pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields)), path)
    return path


def _built(builder: Any, path: Path, rows: int, partition: str) -> Any:
    builder = builder.withPath(f"file:{path}").withFormat("PARQUET").withRecordCount(rows)
    builder = builder.withFileSizeInBytes(path.stat().st_size)
    return (builder.withPartitionPath(partition) if partition else builder).build()


def _field(table: Any, column: str, kind: Any, field_id: int) -> Any:
    """The Parquet field; of a struct's member the struct around it."""
    import pyarrow as pa

    outer, _, inner = column.partition(".")
    if not inner:
        return pa.field(column, kind, metadata={FIELD_ID: str(field_id).encode()})
    own = int(table.schema().findField(outer).fieldId())
    member = pa.field(inner, kind, metadata={FIELD_ID: str(field_id).encode()})
    return pa.field(outer, pa.struct([member]), metadata={FIELD_ID: str(own).encode()})


def _wrapped(column: str, values: Any, kind: Any) -> Any:
    import pyarrow as pa

    return pa.StructArray.from_arrays([values], fields=list(kind)) if "." in column else values


def java_file(table: Any, path: str) -> Any:
    """Return the live data file of this path, an org.apache.iceberg.DataFile."""
    tasks = iceberg.each(table.newScan().planFiles())
    return next(task.file() for task in tasks if str(task.file().location()) == path)


def data_files(bench: Bench, name: str) -> Sequence[str]:
    return bench.paths(name)


def delete_paths(bench: Bench, name: str, content: int | None = None) -> tuple[str, ...]:
    """Paths of the live delete files; content: 1 position, 2 equality."""
    table = bench.table(name)
    head = table.currentSnapshot()
    manifests = iceberg.each(head.deleteManifests(table.io())) if head is not None else ()
    files = bench.listed(name, manifests)
    return tuple(
        sorted({str(f.location()) for f in files if content in (None, int(f.content().id()))})
    )


def on_disk(location: str) -> Path:
    return Path("/" + location.removeprefix("file:").lstrip("/"))
