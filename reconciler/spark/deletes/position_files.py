"""Position delete files of Parquet, decoded and encoded by Arrow: columns instead of rows.

Iceberg's reader and writer make an object of every row and hash its data file's path several times,
although a file holds a handful of paths: 1.7 CPU seconds for a million positions that are read,
written and read back. As columns they take 0.3. Storage is reached through the table's FileIO. What
Arrow does not take (ORC, Avro, encrypted files, rare codecs) is left to Iceberg.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from reconciler.spark.deletes import position_sets
from reconciler.spark.deletes.delete_files import DeleteFile
from reconciler.spark.schedule.scan import ScanTasks
from reconciler.spark.session import iceberg
from reconciler.table.filetable import Int64

Positions = Mapping[str, Int64]
"""Rows of data files by path: ascending, each once."""

PATH_ID, POSITION_ID = 2147483546, 2147483545
"""Reserved field ids of `file_path` and `pos` (Apache Iceberg table specification)."""
MAGIC = b"PAR1"
PLAIN = "org.apache.iceberg.encryption.PlaintextEncryptionManager"
CODECS = {"zstd": "zstd", "gzip": "gzip", "snappy": "snappy", "uncompressed": "none"}
CODEC = ("write.delete.parquet.compression-codec", "write.parquet.compression-codec")
LEVEL = ("write.delete.parquet.compression-level", "write.parquet.compression-level")
READERS = 8
"""Files fetched at the same time."""
FIELD_ID = b"PARQUET:field_id"


def codec_of(spark: Any, table: Any) -> str | None:
    """Return Arrow's name of the codec that the table's position delete files are written with;
    None if Arrow writes no such files."""
    if not iceberg.is_a(spark, table.encryption(), PLAIN):
        return None
    return CODECS.get(_property(table, CODEC, "zstd").lower())


def _property(table: Any, names: Sequence[str], default: str) -> str:
    found = (table.properties().get(name) for name in names)
    return str(next((value for value in found if value is not None), default))


def read(spark: Any, table: Any, files: Sequence[DeleteFile]) -> list[dict[str, Int64]] | None:
    """Return what each file holds as it is stored: by path, every row of it.

    None if Arrow cannot read one of them, or finds other rows than the manifest says.
    """
    with ThreadPoolExecutor(READERS, thread_name_prefix="position-deletes") as pool:
        bodies = pool.map(partial(_body, spark, position_sets.opened(spark, table)), files)
        found = [_decoded(body, file.rows) for body, file in zip(bodies, files, strict=True)]
    known = [each for each in found if each is not None]
    return known if len(known) == len(found) else None


def _body(spark: Any, opened: Any, file: DeleteFile) -> bytes:
    stream = opened.invokeWithArguments(iceberg.java_list(spark, [file.java])).newStream()
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def _decoded(body: bytes, rows: int) -> dict[str, Int64] | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not body.startswith(MAGIC) or not body.endswith(MAGIC):
        return None
    try:
        names = _names(pq.read_schema(pa.BufferReader(body)))
        if names is None:
            return None
        path, position = names
        read = pq.read_table(
            pa.BufferReader(body), columns=[path, position], read_dictionary=[path],
            page_checksum_verification=True,
        )  # fmt: skip
        read.validate(full=True)
    except (pa.ArrowException, OSError):
        return None  # Iceberg's reader has the last word, and names the damage
    if read.num_rows != rows or read[path].null_count or read[position].null_count:
        return None
    if not rows:
        return {}
    whole = read.unify_dictionaries().combine_chunks()
    paths = whole[path].combine_chunks()
    codes = paths.indices.to_numpy()
    return _by_path(codes, paths.dictionary.to_pylist(), whole[position].to_numpy())


def _names(schema: Any) -> tuple[str, str] | None:
    """Return the names of the columns of path and position, which are found by their ids."""
    by_id = {(field.metadata or {}).get(FIELD_ID): field.name for field in schema}
    names = by_id.get(str(PATH_ID).encode()), by_id.get(str(POSITION_ID).encode())
    return None if None in names else names  # type: ignore[return-value]


def _by_path(codes: Any, paths: Sequence[str], positions: Int64) -> dict[str, Int64]:
    """codes: index of its path for each position; not every path needs to have one."""
    starts = np.append(0, np.flatnonzero(np.diff(codes)) + 1)
    if len(np.unique(codes[starts])) < len(starts):  # not in order of their paths
        order = np.argsort(codes, kind="stable")
        codes, positions = codes[order], positions[order]
        starts = np.append(0, np.flatnonzero(np.diff(codes)) + 1)
    parts = np.split(positions.astype(np.int64, copy=False), starts[1:])
    return {paths[codes[start]]: part for start, part in zip(starts, parts, strict=True)}


def merged(held: Iterable[Mapping[str, Int64]]) -> dict[str, Int64]:
    """Return the union, path by path."""
    found: dict[str, list[Int64]] = {}
    for each in held:
        for path, positions in each.items():
            found.setdefault(path, []).append(positions)
    return {path: np.unique(np.concatenate(parts)) for path, parts in found.items()}


def write(spark: Any, table: Any, codec: str, tasks: ScanTasks, wanted: Positions) -> list[Any]:
    """Write a file for each path; return the org.apache.iceberg.DeleteFile objects, uncommitted.

    codec: as `codec_of` returns it. tasks: the data files of the paths.
    """
    paths = sorted(wanted)
    if not paths:
        return []
    core = spark._jvm.org.apache.iceberg
    factory = core.io.OutputFileFactory.builderFor(table, 0, 0)
    factory = factory.format(core.FileFormat.PARQUET).suffix("deletes").build()
    noted = {
        "delete-type": "position",
        "iceberg.schema": str(core.SchemaParser.toJson(core.io.DeleteSchemaUtil.pathPosSchema())),
    }
    level = _property(table, LEVEL, "")
    made: list[Any] = []
    try:
        for path, task in zip(paths, iceberg.each(tasks.java_tasks(paths)), strict=True):
            body = encoded(noted, path, wanted[path], codec, int(level) if level else None)
            made.append(_written(core, factory, task, path, body))
    except BaseException:
        for file in made:
            with contextlib.suppress(Exception):
                table.io().deleteFile(str(file.location()))
        raise
    return made


def encoded(
    noted: Mapping[str, str], path: str, positions: Int64, codec: str, level: int | None = None
) -> bytes:
    """Return a Parquet file with what readers of any age know: version 1 pages, plain positions.

    noted: its metadata, as writers of Iceberg have it.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    def field(name: str, kind: Any, number: int) -> Any:
        return pa.field(name, kind, nullable=False, metadata={FIELD_ID: str(number)})

    same = pa.array(np.zeros(len(positions), dtype=np.int32))
    paths = pa.DictionaryArray.from_arrays(same, pa.array([path]))
    fields = [field("file_path", paths.type, PATH_ID), field("pos", pa.int64(), POSITION_ID)]
    rows = pa.Table.from_arrays([paths, pa.array(positions)], schema=pa.schema(fields))
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink, rows.schema, use_dictionary=["file_path"], compression=codec,
        compression_level=level, store_schema=False, write_page_checksum=True,
    ) as writer:  # fmt: skip
        writer.write_table(rows, row_group_size=len(positions))
        writer.add_key_value_metadata(dict(noted))
    return bytes(sink.getvalue())


def _written(core: Any, factory: Any, task: Any, path: str, body: bytes) -> Any:
    spec, partition = task.spec(), task.file().partition()
    whole = bool(spec.isUnpartitioned())
    output = factory.newOutputFile() if whole else factory.newOutputFile(spec, partition)
    output = output.encryptingOutputFile()
    stream = output.create()
    try:
        stream.write(body)
    finally:
        stream.close()
    metrics = core.MetricsConfig.forPositionDelete()
    found = core.parquet.ParquetUtil.fileMetrics(output.toInputFile(), metrics)
    builder = core.FileMetadata.deleteFileBuilder(spec).ofPositionDeletes()
    builder = builder.withPath(output.location()).withFormat(core.FileFormat.PARQUET)
    builder = builder.withFileSizeInBytes(len(body)).withMetrics(found)
    builder = builder.withReferencedDataFile(path)
    return (builder if whole else builder.withPartition(partition)).build()
