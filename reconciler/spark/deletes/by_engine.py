"""What the JVM does where hidden rows are written: it runs the tasks, makes the entries, and reads
delete files in ORC and Avro, which nobody else does as its readers do.

The driver does small work and that of a local master, Python processes of executors the rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from reconciler.engines.commit.cleanup import discard
from reconciler.engines.commit.locations import DATA_PATH
from reconciler.engines.delete_file import DeleteFile
from reconciler.engines.schedule import described
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.vanished import LEFT_ALONE, RESTORE
from reconciler.errors import TableDamagedError, UnsupportedError
from reconciler.rewrite import task_calls
from reconciler.rewrite.deletes import Delete
from reconciler.rewrite.failures import Failure
from reconciler.rewrite.hidden import Found, Task, Written
from reconciler.rewrite.storage import Opening
from reconciler.spark.commit.table import spark_of
from reconciler.spark.deletes import delete_files
from reconciler.spark.deletes.delete_files import DELETE
from reconciler.spark.schedule import again, damage, witness_work
from reconciler.spark.schedule.fallen_back import overridden
from reconciler.spark.schedule.scan import ScanTasks
from reconciler.spark.session import iceberg, resources, streams
from reconciler.spark.session.translate import is_missing_file, translate
from reconciler.table.parquet_schema import MAGIC

LOADER = "org.apache.iceberg.data.BaseDeleteLoader"


def task_room(spark: Any) -> tuple[int, int]:
    """Return the memory of a task, and how many run at the same time."""
    of_driver = resources.of_driver(spark).memory_bytes
    if spark.local:
        return of_driver, resources.driver_cores(spark)
    return min(of_driver, resources.of_executor(spark).memory_bytes), spark.cores


def find(
    attempt: Attempt, name: str, work: Sequence[Task], size: int, opening: Opening | None
) -> list[Found | Failure]:
    """Return what each task found and wrote, or why not (`backend.Backend.find_hidden`)."""
    if witness_work.by_driver(spark_of(attempt).local, size, opening):
        stopping = attempt.cancelled.is_set
        threads = max(1, min(len(work), resources.driver_cores(spark_of(attempt))))
        with ThreadPoolExecutor(threads, thread_name_prefix="hidden") as pool:
            return list(pool.map(lambda task: task_calls.found(task, opening, stopping), work))
    context = spark_of(attempt).sparkContext
    witness_work.use_this_python(context)
    context.setJobGroup(name, f"layoutctl deletes {attempt.name}")

    def run(numbers: Sequence[int]) -> list[Found | Failure | None]:
        tasks = context.parallelize([work[number] for number in numbers], len(numbers))
        return list(tasks.map(_finding(opening)).collect())

    return again.repeated(attempt, context, name, [_read_bytes(task) for task in work], run)


def _read_bytes(task: Task) -> int:
    """Return the most bytes that a task reads: delete files once for each group that shares them,
    and data files whose rows are looked up by key."""
    deletes = sum(
        one.length
        for group in task.groups
        for one in {(d.path, d.offset): d for t in group.targets for d in t.file.deletes}.values()
    )
    targets = [target for group in task.groups for target in group.targets]
    keyed = [t for t in targets if t.known is None and any(d.keys for d in t.file.deletes)]
    return deletes + sum(target.file.size for target in keyed)


def _finding(opening: Opening | None) -> Callable[[Task], Found | Failure | None]:
    """Return the function of a Spark task; each attempt of it writes files of its own names."""

    def one(task: Task) -> Found | Failure:
        return task_calls.found(task, opening, attempt=again.task_attempt())

    return again.first_only(one)


# Entries


def _placed(attempt: Attempt) -> Any:
    """Return the attempt's table, which places new files below the attempt's directory."""
    return overridden(attempt, {DATA_PATH: attempt.prefix})


def entries_of(attempt: Attempt, tasks: ScanTasks, files: Sequence[Written]) -> list[DeleteFile]:
    """Return the files with their entries, and with what readers prune by."""
    if not files:
        return []
    owners = tasks.java_tasks([file.data_file for file in files])
    core = spark_of(attempt)._jvm.org.apache.iceberg
    made = [
        _entry(core, task, file) for task, file in zip(iceberg.each(owners), files, strict=True)
    ]
    return delete_files.written(spark_of(attempt), _placed(attempt), made)


def _entry(core: Any, task: Any, file: Written) -> Any:
    """task: the FileScanTask of the data file, in whose partition the delete file is."""
    spec = task.spec()
    made = core.FileMetadata.deleteFileBuilder(spec).ofPositionDeletes().withPath(file.path)
    made = made.withFileSizeInBytes(file.size).withReferencedDataFile(file.data_file)
    if file.length:
        made = made.withFormat(core.FileFormat.PUFFIN).withRecordCount(file.rows)
        made = made.withContentOffset(file.offset).withContentSizeInBytes(file.length)
    else:
        whole = core.inmemory.InMemoryInputFile(file.path, MAGIC + file.footer)
        metrics = core.parquet.ParquetUtil.fileMetrics(
            whole, core.MetricsConfig.forPositionDelete()
        )
        made = made.withFormat(core.FileFormat.PARQUET).withMetrics(metrics)
    if spec.isPartitioned():
        made = made.withPartition(task.file().partition())
    return made.build()


def reads(attempt: Attempt, files: Sequence[DeleteFile], new: Sequence[Written]) -> bool:
    """Return whether Iceberg's own library reads the rows of one new file, the smallest: most
    readers of the table have it, and neither engine nor witness does."""
    one = min(new, key=lambda each: (each.rows, each.path, each.offset))
    (file,) = (f for f in files if f.identity == (one.path, one.offset))
    own = iceberg.java_list(spark_of(attempt), [file.entry])
    loader = _loader(spark_of(attempt), _placed(attempt))
    index = loader.loadPositionDeletes(own, one.data_file)
    return int(index.cardinality()) == one.rows and all(map(index.isDeleted, one.sample))


def _loader(spark: Any, table: Any) -> Any:
    """Return Iceberg's reader of delete files, which opens them by the table's FileIO."""
    opened = iceberg.method(
        spark, "org.apache.iceberg.io.FileIO", "newInputFile", "org.apache.iceberg.io.InputFile",
        DELETE,
    ).bindTo(table.io())  # fmt: skip
    loader = spark._jvm.org.apache.iceberg.data.BaseDeleteLoader
    return loader(iceberg.as_lambda(spark, streams.FUNCTION, opened))


# ORC and Avro


@contextlib.contextmanager
def in_parquet(
    attempt: Attempt, every: Sequence[DeleteFile]
) -> Iterator[dict[tuple[str, int], Delete]]:
    """Provide the delete files as the engine reads them, by identity: of those in ORC and Avro
    copies, which Iceberg's own library makes. The witness reads them by Arrow and pyiceberg, as the
    engine would otherwise, so that an error of these would not show."""
    table = _placed(attempt)
    files = {file.identity: file for file in every}
    found = {identity: described.delete_of(file) for identity, file in files.items()}
    copies: list[str] = []
    try:
        for identity, one in found.items():
            if one.format not in ("PARQUET", "PUFFIN"):
                with _naming(attempt, one.path):
                    copies.append(_copied(spark_of(attempt), table, files[identity]))
                found[identity] = replace(one, path=copies[-1], format="PARQUET")
        yield found
    finally:
        discard(attempt.table, copies)


@contextlib.contextmanager
def _naming(attempt: Attempt, path: str) -> Iterator[None]:
    """Whatever Iceberg's library cannot decode is this file's damage."""
    doing = f"rewrite {attempt.name}"
    try:
        yield
    except Exception as error:
        if is_missing_file(error) or not damage.may_be_damage(error, translate(error, doing)):
            raise
        raise TableDamagedError(
            f"could not {doing}: {path} cannot be read", details=(LEFT_ALONE,), do=RESTORE
        ) from error


def _copied(spark: Any, table: Any, file: DeleteFile) -> str:
    core = spark._jvm.org.apache.iceberg
    kinds = DELETE, "org.apache.iceberg.Schema"
    schema = (
        _key_schema(spark, table, file) if file.keys else core.io.DeleteSchemaUtil.pathPosSchema()
    )
    read = iceberg.private_method(spark, LOADER, "openDeletes", *kinds)
    bound = read.bindTo(_loader(spark, table))
    rows = bound.invokeWithArguments(iceberg.java_list(spark, [file.entry, schema]))
    parquet = core.FileFormat.PARQUET
    factory = core.data.GenericFileWriterFactory.Builder(table).dataFileFormat(parquet)
    to = core.io.OutputFileFactory.builderFor(table, 0, 0).format(parquet).suffix("copy").build()
    nowhere = core.PartitionSpec.unpartitioned()
    writer = factory.dataSchema(schema).build().newDataWriter(to.newOutputFile(), nowhere, None)
    every = iceberg.method(
        spark, "org.apache.iceberg.io.FileWriter", "write", "void", "java.lang.Iterable"
    )
    try:
        every.bindTo(writer).invokeWithArguments(iceberg.java_list(spark, [rows]))
    finally:
        writer.close()
        rows.close()
    return str(writer.toDataFile().location())


def _key_schema(spark: Any, table: Any, file: DeleteFile) -> Any:
    """Return the columns that the file deletes by, of the newest schema that has all of them."""
    keys = spark._jvm.java.util.HashSet(iceberg.java_list(spark, file.keys))
    older = sorted(iceberg.java_values(table.schemas()), key=lambda one: -int(one.schemaId()))
    for schema in [table.schema(), *older]:
        if all(schema.findField(key) is not None for key in file.keys):
            return spark._jvm.org.apache.iceberg.types.TypeUtil.select(schema, keys)
    raise UnsupportedError(
        f"{table.name()} has an equality delete by columns that no schema has: {file.path}",
        details=("Nothing was changed.",),
        do="let the engine that wrote it apply it",
    )
