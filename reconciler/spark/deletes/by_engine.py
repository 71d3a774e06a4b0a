"""Has hidden rows of data files found and written by `reconciler.rewrite.hidden`: no row enters the
JVM, but for delete files in ORC and Avro.

The driver does small work and that of a local master, Python processes of executors the rest.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from reconciler.engines.commit.cleanup import discard
from reconciler.engines.commit.locations import DATA_PATH
from reconciler.engines.delete_file import DeleteFile
from reconciler.engines.deletes import replacement
from reconciler.engines.deletes.wanted import VECTORS_VERSION, Hidden, Wanted
from reconciler.engines.schedule import native, witnessing
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.vanished import LEFT_ALONE, RESTORE
from reconciler.engines.schedule.written import TaskMetrics
from reconciler.errors import TableDamagedError, UnsupportedError
from reconciler.rewrite import hidden
from reconciler.rewrite.deletes import Delete
from reconciler.rewrite.failures import Failure
from reconciler.rewrite.hidden import Found, Group, Target, Task, Written
from reconciler.rewrite.storage import PARQUET, Opening, local_path
from reconciler.rewrite.task import ATTEMPT, NUMBER
from reconciler.spark.commit.table import java_of, spark_of
from reconciler.spark.deletes import delete_files
from reconciler.spark.deletes.delete_files import DELETE
from reconciler.spark.fallback import stage
from reconciler.spark.schedule import damage, witness_work
from reconciler.spark.schedule.scan import ScanTasks
from reconciler.spark.schedule.tasks import task_attempt
from reconciler.spark.session import iceberg, resources, streams
from reconciler.spark.session.translate import is_missing_file, translate
from reconciler.table.left_to_spark import CODEC, DEFAULT_CODEC, LEVEL

CODECS = {
    "zstd": "zstd", "gzip": "gzip", "snappy": "snappy", "brotli": "brotli", "lz4_raw": "lz4",
    "lz4": "lz4", "uncompressed": "none",
}  # fmt: skip
"""Arrow's name of a codec. Parquet has replaced LZ4 in Hadoop's frames by LZ4_RAW, which is
written for both."""
LEAST_PIECE = 16 << 20
"""Bytes of their own for which data files that share deletes are worth another task, which reads
the shared ones again."""
ROW_BYTES = 16
"""Memory of a position: in bitmaps, and while it is written."""
KEPT_BYTES = 128 << 20
"""Most bytes of bitmaps of hidden rows that the driver keeps in case of a conflict."""
LOADER = "org.apache.iceberg.data.BaseDeleteLoader"


def written(
    attempt: Attempt, base: str, tasks: ScanTasks, wanted: Mapping[str, Wanted], keep: bool = False
) -> Hidden:
    """Write the hidden rows of data files, one delete file for each that has some; the delete files
    are not committed. base: names the jobs. keep: whether the rows are handed back too."""
    table = stage.overridden(spark_of(attempt), java_of(attempt.table), {DATA_PATH: attempt.prefix})
    with _in_parquet(attempt, table, wanted) as deletes:
        work = _tasks(attempt, table, tasks, wanted, deletes, keep)
        opening, found = _carried_out(attempt, f"{base}/write", work, wanted)
    made = [one for one in found if not isinstance(one, Failure)]
    new = [file for one in made for file in one.files]
    failures = [one for one in found if isinstance(one, Failure)]
    if failures:
        with contextlib.suppress(Exception):
            discard(attempt.table, sorted({file.path for file in new}))
        raise native.raised(attempt, failures[0], opening)
    added = _entries(attempt, table, tasks, new)
    with replacement.uncommitted(attempt, [str(file.location()) for file in added]):
        files = delete_files.written(spark_of(attempt), java_of(attempt.table), added)
        if files:
            _require_readable(attempt, table, files, new)
    rows = {path: body for one in made for path, body in one.rows.items()}
    read = sum(file.size for file in _distinct(wanted.values()))
    spent = TaskMetrics(sum(one.cpu_seconds for one in made), read)
    return Hidden(files, rows, spent)


# Tasks


def _tasks(
    attempt: Attempt,
    table: Any,
    tasks: ScanTasks,
    wanted: Mapping[str, Wanted],
    deletes: Mapping[tuple[str, int], Delete],
    keep: bool,
) -> list[Task]:
    """deletes: as the engine reads them, by identity."""
    files = witnessing.inputs_of(attempt, tasks.subset(wanted), None)
    places = attempt.table.places(tasks)
    by_place: dict[Any, list[Target]] = {}
    for file in files:
        one = wanted[file.path]
        own = {f.identity for f in one.applied if f.data_file and not f.keys and one.stays}
        target = Target(
            replace(file, deletes=tuple(deletes[f.identity] for f in one.applied)),
            frozenset((deletes[f].path, deletes[f].offset) for f in own),
            one.known,
        )
        by_place.setdefault(places[file.path], []).append(target)
    memory, slots = _resources(spark_of(attempt))
    pieces: list[Sequence[Target]] = []
    costs: list[int] = []
    for place in sorted(by_place):
        parts = _pieces(by_place[place], wanted, memory, slots)
        pieces += parts
        costs += [_cost(part, wanted) for part in parts]
    vectors = iceberg.format_version(table) >= VECTORS_VERSION
    codec, level = ("", None) if vectors else _codec(attempt, table)
    bins = witnessing.balanced(costs, slots)
    made = []
    for number, members in enumerate(bins):
        name = f"{number:05d}-{NUMBER}-{uuid.uuid4()}-{ATTEMPT}-deletes"
        groups = tuple(
            Group(tuple(pieces[at]), "" if vectors else _path(table, tasks, pieces[at], name))
            for at in members
        )
        provider = table.locationProvider()
        puffin = str(provider.newDataLocation(f"{name}.puffin")) if vectors else ""
        kept = KEPT_BYTES // len(bins) if keep else 0
        shape = witnessing.table_of(attempt)
        made.append(Task(shape, groups, puffin, codec, level, kept))
    return made


def _pieces(
    targets: Sequence[Target], wanted: Mapping[str, Wanted], memory: int, slots: int
) -> list[Sequence[Target]]:
    """Return data files of one partition in pieces that each fit the memory of a task, and of which
    each has as much of its own as it reads again of what they share."""
    files = _distinct(wanted[one.file.path] for one in targets)
    rows = sum(file.rows for file in files if not file.keys)
    shared = sum(file.size for file in files if not file.data_file)
    own = _cost(targets, wanted) - shared
    number = max(
        -(-rows * ROW_BYTES // memory), min(slots, own // max(shared, LEAST_PIECE))
    )  # fmt: skip
    number = max(1, min(number, len(targets)))
    return [targets[at::number] for at in range(number)]


def _cost(targets: Sequence[Target], wanted: Mapping[str, Wanted]) -> int:
    """Return the bytes that are read."""
    some = [wanted[one.file.path] for one in targets]
    keys = sum(one.key_bytes for one in some if one.known is None)
    return keys + sum(file.size for file in _distinct(some))


def _distinct(wanted: Iterable[Wanted]) -> list[DeleteFile]:
    """Return the delete files that apply, each once: each of a thousand data files may have the
    same thousand of them, as the same objects."""
    return list({id(file): file for one in wanted for file in one.applied}.values())


def _resources(spark: Any) -> tuple[int, int]:
    """Return the memory of a task, and how many run at the same time."""
    of_driver = resources.of_driver(spark).memory_bytes
    if spark.local:
        return of_driver, resources.driver_cores(spark)
    return min(of_driver, resources.of_executor(spark).memory_bytes), spark.cores


def _path(table: Any, tasks: ScanTasks, targets: Sequence[Target], name: str) -> str:
    """Return the path of delete files in the partition of the data files."""
    task = tasks.java_tasks([targets[0].file.path]).get(0)
    provider, name = table.locationProvider(), f"{name}.parquet"
    if task.spec().isUnpartitioned():
        return str(provider.newDataLocation(name))
    return str(provider.newDataLocation(task.spec(), task.file().partition(), name))


def _codec(attempt: Attempt, table: Any) -> tuple[str, int | None]:
    """Return the codec of the table's position delete files, and its level."""

    def named(name: str, default: str) -> str:
        given = table.properties()
        own = given.get(name.replace("write.", "write.delete.", 1))
        return str(own or given.get(name) or default)

    codec, level = named(CODEC, DEFAULT_CODEC).lower(), named(LEVEL, "")
    if codec not in CODECS:
        raise UnsupportedError(
            f"{attempt.name} asks for delete files with the codec {codec}",
            details=(f"They are written with {', '.join(CODECS)}. Nothing was written.",),
            do=f"set the table's property {CODEC.replace('write.', 'write.delete.')} to one of "
            "these",
        )
    return CODECS[codec], int(level) if level else None


def _carried_out(
    attempt: Attempt, name: str, work: Sequence[Task], wanted: Mapping[str, Wanted]
) -> tuple[Opening | None, list[Found | Failure]]:
    paths = [path for task in work for path in _paths(task)]
    opening = None if all(local_path(p) is not None for p in paths) else attempt.opening()
    size = sum(_cost(group.targets, wanted) for task in work for group in task.groups)
    if witness_work.by_driver(spark_of(attempt).local, size, opening):
        stopping = attempt.cancelled.is_set
        threads = max(1, min(len(work), resources.driver_cores(spark_of(attempt))))
        with ThreadPoolExecutor(threads, thread_name_prefix="hidden") as pool:
            return opening, list(pool.map(lambda task: _found(task, opening, stopping), work))
    context = spark_of(attempt).sparkContext
    witness_work.use_this_python(context)
    context.setJobGroup(name, f"layoutctl deletes {attempt.name}")
    tasks = context.parallelize(list(work), len(work))
    return opening, list(tasks.map(_finding(opening)).collect())


def _paths(task: Task) -> Iterator[str]:
    yield task.vectors or task.groups[0].path
    for group in task.groups:
        for one in group.targets:
            yield one.file.path
            yield from (delete.path for delete in one.file.deletes)


def _found(
    task: Task,
    opening: Opening | None,
    stopping: Callable[[], bool] = lambda: False,
    attempt: str = "0",
) -> Found | Failure:
    return native.guarded(lambda: hidden.found(task, opening, stopping, attempt))


def _finding(opening: Opening | None) -> Callable[[Task], Found | Failure]:
    """Return the function of a Spark task; each attempt of it writes files of its own names."""

    def find(task: Task) -> Found | Failure:
        return _found(task, opening, attempt=task_attempt())

    return find


# Entries


def _entries(attempt: Attempt, table: Any, tasks: ScanTasks, files: Sequence[Written]) -> list[Any]:
    """Return the files as org.apache.iceberg.DeleteFile objects, with what readers prune by."""
    if not files:
        return []
    owners = tasks.java_tasks([file.data_file for file in files])
    core = spark_of(attempt)._jvm.org.apache.iceberg
    return [
        _entry(core, task, file) for task, file in zip(iceberg.each(owners), files, strict=True)
    ]


def _entry(core: Any, task: Any, file: Written) -> Any:
    """task: the FileScanTask of the data file, in whose partition the delete file is."""
    spec = task.spec()
    made = core.FileMetadata.deleteFileBuilder(spec).ofPositionDeletes().withPath(file.path)
    made = made.withFileSizeInBytes(file.size).withReferencedDataFile(file.data_file)
    if file.length:
        made = made.withFormat(core.FileFormat.PUFFIN).withRecordCount(file.rows)
        made = made.withContentOffset(file.offset).withContentSizeInBytes(file.length)
    else:
        whole = core.inmemory.InMemoryInputFile(file.path, PARQUET + file.footer)
        metrics = core.parquet.ParquetUtil.fileMetrics(
            whole, core.MetricsConfig.forPositionDelete()
        )
        made = made.withFormat(core.FileFormat.PARQUET).withMetrics(metrics)
    if spec.isPartitioned():
        made = made.withPartition(task.file().partition())
    return made.build()


def _require_readable(
    attempt: Attempt, table: Any, files: Sequence[DeleteFile], new: Sequence[Written]
) -> None:
    """Raise VerificationError unless Iceberg's own library reads the rows of one new file, the
    smallest: most readers of the table have it, and neither engine nor witness does."""
    one = min(new, key=lambda each: (each.rows, each.path, each.offset))
    (file,) = (f for f in files if f.identity == (one.path, one.offset))
    own = iceberg.java_list(spark_of(attempt), [file.entry])
    index = _loader(spark_of(attempt), table).loadPositionDeletes(own, one.data_file)
    if int(index.cardinality()) != one.rows or not all(map(index.isDeleted, one.sample)):
        raise replacement.mismatch(attempt, "Iceberg reads other positions than were written")


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
def _in_parquet(
    attempt: Attempt, table: Any, wanted: Mapping[str, Wanted]
) -> Iterator[dict[tuple[str, int], Delete]]:
    """Provide the delete files as the engine reads them, by identity: of those in ORC and Avro
    copies, which Iceberg's own library makes. The witness reads them by Arrow and pyiceberg, as the
    engine would otherwise, so that an error of these would not show."""
    files = {file.identity: file for file in _distinct(wanted.values())}
    found = {identity: witnessing.delete_of(file) for identity, file in files.items()}
    copies: list[str] = []
    try:
        for identity, one in found.items():
            if one.format not in ("PARQUET", "PUFFIN"):
                with _naming(attempt, one.path):
                    copies.append(_copied(spark_of(attempt), table, files[identity]))
                found[identity] = replace(one, path=copies[-1], format="PARQUET")
        yield found
    finally:
        with contextlib.suppress(Exception):
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
