"""Deleted positions: read from delete files, or from the rows that a reader hides.

Positions are frames of (file, pos): the data file's path verbatim, and the row's number in it. A
reader of Iceberg's own finds them, so that what is replaced is what readers applied.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reconciler.spark.deletes.delete_files import DeleteFile
from reconciler.spark.fallback import stage
from reconciler.spark.schedule.scan import ScanTasks
from reconciler.spark.session import iceberg, streams

FILE, POSITION, IS_DELETED = "_file", "_pos", "_deleted"


def metadata_table(spark: Any, table: Any) -> Any:
    """Return the table of its position deletes (`position_deletes`), vectors included."""
    core = spark._jvm.org.apache.iceberg
    kind = core.MetadataTableType.POSITION_DELETES
    return core.MetadataTableUtils.createMetadataTableInstance(table, kind)


@contextlib.contextmanager
def in_delete_files(spark: Any, table: Any, set_id: str, files: Sequence[Any]) -> Iterator[Any]:
    """Provide the positions in delete files (org.apache.iceberg.DeleteFile), committed or not: a
    frame of (file, pos, source), source the delete file's path."""
    from pyspark.sql import functions as f

    if not files:
        yield spark.createDataFrame([], f"{FILE} string, {POSITION} bigint, source string")
        return
    listed = metadata_table(spark, table)
    tasks = iceberg.java_list(spark, files)
    with stage.staged(spark, listed, set_id, delete_tasks(spark, listed, tasks)):
        frame = stage.read(spark, set_id)
        yield frame.select(
            f.col("file_path").alias(FILE),
            f.col("pos").alias(POSITION),
            f.col("delete_file_path").alias("source"),
        )


def delete_tasks(spark: Any, listed: Any, files: Any) -> Any:
    """Return a java.util.List of scan tasks over delete files. Iceberg's class is not public."""
    core, made = spark._jvm.org.apache.iceberg, spark._jvm.java.util.ArrayList()
    kind = iceberg.java_class(spark, "org.apache.iceberg.BasePositionDeletesScanTask")
    constructor = kind.getDeclaredConstructors()[0]
    constructor.setAccessible(True)
    lookup = spark._jvm.java.lang.invoke.MethodHandles.publicLookup()
    task_of = lookup.unreflectConstructor(constructor)
    everything = core.expressions.Expressions.alwaysTrue()
    residual = core.expressions.ResidualEvaluator.unpartitioned(everything)
    schema = core.SchemaParser.toJson(listed.schema())
    spec_of = iceberg.method(spark, "org.apache.iceberg.ContentFile", "specId", "int")
    for spec_id in streams.lines(spark, files, spec_of, distinct=True):
        wanted = streams.contained(spark, [spec_id])
        own = streams.kept(spark, files, streams.chain(spark, spec_of, streams.text(spark), wanted))
        spec = core.PartitionSpecParser.toJson(listed.specs().get(int(spec_id)))
        made.addAll(
            streams.mapped(spark, own, streams.given(spark, task_of, 1, schema, spec, residual))
        )
    return made


def that_apply(spark: Any, frame: Any, tasks: ScanTasks, sources: Sequence[DeleteFile]) -> Any:
    """Return the positions of a frame of `in_delete_files` that a reader applies.

    What names a file that is not live, or is older than the file of that path, deletes nothing.
    tasks: the data files to which position delete files apply.
    """
    from pyspark.sql import functions as f

    ages = {path: file.sequence for path, file in tasks.items()}
    written = {file.path: file.sequence for file in sources}
    return (
        frame.join(f.broadcast(_numbered(spark, ages, FILE, "age")), FILE)
        .join(f.broadcast(_numbered(spark, written, "source", "sequence")), "source")
        .where(f.col("age") <= f.col("sequence"))
        .select(FILE, POSITION)
    )


def _numbered(spark: Any, numbers: Mapping[str, int], name: str, number: str) -> Any:
    """Return a frame of texts with a number each, made in a few calls."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as f

    lines = iceberg.java_lines(spark, (f"{value} {text}" for text, value in numbers.items()))
    collectors, encoders = spark._jvm.java.util.stream.Collectors, spark._jvm.org.apache.spark.sql
    listed = lines.collect(collectors.toList())
    texts = spark._jsparkSession.createDataset(listed, encoders.Encoders.STRING()).toDF()
    parts = f.split("value", " ", 2)
    return DataFrame(texts, spark).select(parts[1].alias(name), parts[0].cast("long").alias(number))


@contextlib.contextmanager
def in_data_files(
    spark: Any, table: Any, set_id: str, tasks: Any, keys: Sequence[str], split_bytes: int
) -> Iterator[Any]:
    """Provide every stored row of the tasks, a java.util.List of FileScanTask: a frame of (file,
    pos, deleted).

    keys: identity columns that are members of structs, with dots in their names. Iceberg's reader
    ignores an equality delete on a member that no query reads, so the position is made to depend
    on them.
    """
    from pyspark.sql import functions as f

    view = showing_positions(spark, table)
    with stage.staged(spark, view, set_id, tasks):
        frame = stage.read(spark, set_id, split_bytes)
        if keys:
            nothing = f.xxhash64(*(f.col(_quoted(name)) for name in keys)).bitwiseAND(f.lit(0))
            yield frame.select(FILE, (f.col(POSITION) + nothing).alias(POSITION), IS_DELETED)
        else:
            yield frame.select(FILE, POSITION, IS_DELETED)


def _quoted(name: str) -> str:
    return ".".join(iceberg.quoted(part) for part in name.split("."))


def showing_positions(spark: Any, table: Any) -> Any:
    """Return the table such that staged reads have the columns of positions.

    From format 3 on staged reads have columns of row lineage instead. For reading alone the table
    is shown as one of format 2, without its snapshots.
    """
    core = spark._jvm.org.apache.iceberg
    current = table.operations().current()
    if int(current.formatVersion()) < 3:
        return stage.overridden(spark, table, {})
    body = json.loads(str(core.TableMetadataParser.toJson(current)))
    for name in ("next-row-id", "snapshots", "snapshot-log", "refs", "statistics"):
        body.pop(name, None)
    body |= {"format-version": 2, "current-snapshot-id": -1}
    location = str(current.metadataFileLocation())
    shown = core.TableMetadataParser.fromJson(location, json.dumps(body))
    operations = core.StaticTableOperations(shown, table.io(), table.locationProvider())
    return stage.overridden(spark, core.BaseTable(operations, table.name()), {})
