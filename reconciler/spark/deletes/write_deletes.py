"""Writes positions as delete files, one per data file: position delete files on format 2, deletion
vectors on format 3. Nothing is committed here.

Few positions are written by the driver's JVM, for all partitions together; many by Spark's tasks, a
partition at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reconciler.spark.deletes import positions
from reconciler.spark.deletes.position_sets import PositionSets
from reconciler.spark.fallback import stage
from reconciler.spark.schedule import scan
from reconciler.spark.schedule.partitions import Place
from reconciler.spark.schedule.scan import ScanTasks
from reconciler.spark.session import iceberg, streams

DRIVER_POSITIONS = 4_000_000
"""Maximum positions that the driver holds: about 2 bytes each as sets in its JVM, 24 while they are
collected there or are columns in this process."""
TASK_POSITIONS = 5_000_000
"""Positions that one task sorts."""
DEFAULT_DELETE_TARGET = 64 << 20

_STRUCT = "org.apache.iceberg.StructLike"
_SPEC = "org.apache.iceberg.PartitionSpec"
_FANOUT = "org.apache.iceberg.io.FanoutPositionOnlyDeleteWriter"
_SORTING = "org.apache.iceberg.deletes.SortingPositionOnlyDeleteWriter"


def on_driver(spark: Any, table: Any, tasks: ScanTasks, wanted: PositionSets) -> list[Any]:
    """Write the positions; return the new org.apache.iceberg.DeleteFile objects, uncommitted.

    table: as `stage.overridden` returns it. tasks: the data files that the sets are of.
    """
    paths = sorted(wanted.cardinalities())
    if not paths:
        return []
    own = dict(zip(paths, iceberg.each(tasks.java_tasks(paths)), strict=True))
    if iceberg.format_version(table) >= 3:
        return _vectors(spark, table, own, wanted)
    return _files(spark, table, own, scan.places(spark, table, tasks), wanted)


def _vectors(spark: Any, table: Any, own: Mapping[str, Any], wanted: PositionSets) -> list[Any]:
    """Write one puffin file. own: FileScanTask by path."""
    core = spark._jvm.org.apache.iceberg
    index = iceberg.java_class(spark, "org.apache.iceberg.deletes.PositionDeleteIndex")
    handles = spark._jvm.java.lang.invoke.MethodHandles
    none = handles.dropArguments(
        handles.constant(index, None),
        0,
        iceberg.java_list(spark, [iceberg.java_class(spark, streams.OBJECT)]),
    )
    files = _output_files(spark, table, core.FileFormat.PUFFIN)
    previous = iceberg.as_lambda(spark, streams.FUNCTION, none)
    writer = core.deletes.BaseDVFileWriter(files, previous)
    try:
        for path, task in own.items():
            writer.delete(path, wanted.of(path), task.spec(), task.file().partition())
    finally:
        writer.close()
    return list(iceberg.each(writer.result().deleteFiles()))


def _files(
    spark: Any,
    table: Any,
    own: Mapping[str, Any],
    places: Mapping[str, Place],
    wanted: PositionSets,
) -> list[Any]:
    """Write a Parquet file per data file, a partition at a time. own: FileScanTask by path.

    Iceberg's writer of a partition takes positions one by one, into such sets as are given here;
    it gets these themselves, without a call for each position.
    """
    core, formats = spark._jvm.org.apache.iceberg, spark._jvm.org.apache.iceberg.FileFormat
    factory = core.data.GenericFileWriterFactory.Builder(table).deleteFileFormat(formats.PARQUET)
    fanout = core.io.FanoutPositionOnlyDeleteWriter(
        factory.build(),
        _output_files(spark, table, formats.PARQUET),
        table.io(),
        _target_bytes(table),
        core.deletes.DeleteGranularity.FILE,
    )
    begin = iceberg.private_method(spark, _FANOUT, "newWriter", _SPEC, _STRUCT).bindTo(fanout)
    made: list[Any] = []
    for place in sorted({places[path] for path in own}):
        members = [path for path in own if places[path] == place]
        task = own[members[0]]
        where = iceberg.java_list(spark, [task.spec(), task.file().partition()])
        writer = begin.invokeWithArguments(where)
        try:
            held = iceberg.private_value(spark, _SORTING, "positionsByPath", writer)
            for path in members:
                held.put(path, wanted.of(path))
        finally:
            writer.close()
        made += iceberg.each(writer.result().deleteFiles())
    return made


def _output_files(spark: Any, table: Any, kind: Any) -> Any:
    builder = spark._jvm.org.apache.iceberg.io.OutputFileFactory.builderFor(table, 0, 0)
    return builder.format(kind).suffix("deletes").build()


def _target_bytes(table: Any) -> int:
    named = table.properties().get("write.delete.target-file-size-bytes")
    return int(named or DEFAULT_DELETE_TARGET)


def on_executors(
    spark: Any, table: Any, set_id: str, like: Any, frame: Any, expected: int
) -> list[Any]:
    """Write a frame (file, pos) of one partition by Spark's tasks; return the new
    org.apache.iceberg.DeleteFile objects, uncommitted.

    like: a data file (org.apache.iceberg.DataFile) of that partition. expected: positions, about.
    """
    listed = positions.metadata_table(spark, table)
    coordinator = spark._jvm.org.apache.iceberg.spark.PositionDeletesRewriteCoordinator.get()
    tasks = iceberg.java_list(spark, [_nothing_of(spark, table, like)])
    parts = max(1, -(-expected // TASK_POSITIONS))
    # A data file's positions must meet in one task, or it gets two vectors.
    ordered = frame.repartition(parts, positions.FILE).sortWithinPartitions(
        positions.FILE, positions.POSITION
    )
    with stage.staged(spark, listed, set_id, positions.delete_tasks(spark, listed, tasks)):
        try:
            rows = ordered.select(*_columns(spark, listed, like))
            writer = rows.write.format("iceberg").option("delete-granularity", "file")
            writer.mode("append").save(set_id)
            return list(iceberg.each(coordinator.fetchNewFiles(listed, set_id)))
        finally:
            coordinator.clearRewrite(listed, set_id)


def _nothing_of(spark: Any, table: Any, like: Any) -> Any:
    """Return a delete file of the partition that does not exist: it says where to write."""
    builder = spark._jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(
        table.specs().get(like.specId())
    )
    made = builder.ofPositionDeletes().withPath("none").withFormat("PARQUET")
    made = made.withFileSizeInBytes(1).withRecordCount(1)
    if table.specs().get(like.specId()).isPartitioned():
        made = made.withPartition(like.partition())
    return made.build()


def _columns(spark: Any, listed: Any, like: Any) -> Iterable[Any]:
    """Return the columns of the metadata table, of which a writer uses path and position."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    schema = spark._jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(listed.schema())
    for field in StructType.fromJson(json.loads(str(schema.json()))).fields:
        kind: Any = field.dataType
        if field.name == "file_path":
            yield f.col(positions.FILE).alias(field.name)
        elif field.name == "pos":
            yield f.col(positions.POSITION).alias(field.name)
        elif field.name == "spec_id":
            yield f.lit(int(like.specId())).alias(field.name)
        elif field.name == "delete_file_path":
            yield f.lit("none").alias(field.name)
        elif field.name == "partition":
            empty = [f.lit(None).cast(x.dataType).alias(x.name) for x in kind.fields]
            yield f.struct(*empty).alias(field.name)
        else:
            yield f.lit(None).cast(kind).alias(field.name)


def paths(files: Sequence[Any]) -> tuple[str, ...]:
    """Return where the files are, each path once: vectors share a file."""
    return tuple(dict.fromkeys(str(file.location()) for file in files))
