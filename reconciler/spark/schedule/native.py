"""Has a group rewritten by `reconciler.rewrite`, from file to file: no row enters the JVM.

With a local master a thread of the driver does it, otherwise a Python process of an executor. What
the engine cannot write as the table asks goes through Spark (`write`), with the reason.
"""

from __future__ import annotations

import json
import logging
import math
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from reconciler.api.task_memory import Limits
from reconciler.catalog.listing import changed_ms
from reconciler.engines.commit.metadata import UNSORTED
from reconciler.engines.schedule import input_forms, witnessing
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.group import Group
from reconciler.engines.schedule.refused import DamagedInputError, EngineError
from reconciler.engines.schedule.vanished import LEFT_ALONE, RESTORE
from reconciler.engines.task_file import NO_DELETES
from reconciler.errors import (
    MemoryExhaustedError,
    UnavailableError,
    first_line,
)
from reconciler.format import iec
from reconciler.rewrite import rewriting
from reconciler.rewrite.block_ids import Blocks
from reconciler.rewrite.columns import Column, leaves
from reconciler.rewrite.deletes import Delete
from reconciler.rewrite.failures import BROKEN, MEMORY, MISSING, STORAGE, UNFIT, Failure
from reconciler.rewrite.read import Damaged
from reconciler.rewrite.storage import PARQUET, Opening, local_path
from reconciler.rewrite.task import (
    ATTEMPT,
    NUMBER,
    Field,
    Key,
    Made,
    Order,
    Output,
    Resources,
    Task,
    Unfit,
    Writer,
)
from reconciler.rewrite.witness import Check, DataFile, Table, Work
from reconciler.spark.commit.table import spark_of
from reconciler.spark.fallback import stage
from reconciler.spark.schedule import witness_work
from reconciler.spark.schedule.scan import ScanTasks
from reconciler.spark.session import iceberg, resources
from reconciler.spark.session.translate import translate
from reconciler.table.left_to_spark import (
    BLOOM,
    CODEC,
    DEFAULT_CODEC,
    DICTIONARY,
    LEVEL,
    PAGE_BYTES,
    PAGE_LIMIT,
    ROW_GROUP,
    why_left_to_spark,
)
from reconciler.table.refusals import DAMAGED, Refusal
from reconciler.table.row_group_bytes import PAGE_ROWS, row_group_rows

log = logging.getLogger(__name__)
BLOOM_BYTES, BLOOM_FPP = 1 << 20, 0.01
"""Most bytes of a Bloom filter, and its share of false positives, by default."""
CODECS = {"zstd": ("zstd", 3), "gzip": ("gzip", 6), "snappy": ("snappy", None),
          "uncompressed": ("none", None)}  # fmt: skip
"""Arrow's name of a codec, and the level that Iceberg's writer takes by default."""
T = TypeVar("T")
SMALLER = 4
"""The row groups of a task of little memory may be this many times smaller than asked for."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How the engine would write a group."""

    task: Task
    """What the engine gets."""
    opening: Opening | None
    """Of files of another store, None if all are local."""
    resources: Resources
    """Memory and threads that it may use."""
    memory: int
    """That it takes at most, as predicted."""
    check: Check | None
    """How the task compares its files before it stores them; None for local ones, which it writes
    in place."""


def planned(
    attempt: Attempt,
    number: int,
    group: Group,
    tasks: ScanTasks,
    table: Any,
    inputs: Work,
    threads: int = 1,
    blocks: Blocks | None = None,
) -> Plan | str:
    """Return the engine's task for the group, or why it has none.

    table: as `stage.overridden` returns it. inputs: as the witness sees them. threads: of the
    driver that no other group uses. blocks: the block ids that rows get.
    """
    properties = _properties(table)
    shape, deletes = witnessing.table_of(attempt), _applied(attempt, tasks)
    formats = {delete.format for own in deletes.values() for delete in own}
    reason = why_left_to_spark(leaves(shape.columns), properties, formats)
    if reason:
        return reason
    files = _files(attempt, group, tasks, deletes)
    files_of = [file.path for file in files] + [d.path for f in files for d in f.deletes]
    paths = tuple(_paths(attempt, number, group, tasks, table))
    local = all(local_path(path) is not None for path in (*files_of, *paths))
    opening = None if local else attempt.opening()
    given = _resources(spark_of(attempt), opening, threads)
    decoded = input_forms.decoded(attempt, [(file.path, file.size) for file in files])
    rows = fitting_rows(group, _group_rows(properties, group), given.memory_bytes, decoded)
    needed = _needed(group, rows, decoded)
    if needed > given.memory_bytes and not _by_driver(spark_of(attempt), opening):
        given = _in_slots(spark_of(attempt), given, needed)
    if needed > given.memory_bytes:
        return (
            f"a row group of it needs {iec(needed)} of memory, and a task has "
            f"{iec(given.memory_bytes)}"
        )
    file_rows = group.target_bytes / _stored_row(group) if _counts_files(group) else 0.0
    task = Task(
        shape, files, _order(group), paths, rows, _writer(properties, rows), _moves(table, group),
        file_rows, blocks, decoded,
    )  # fmt: skip
    check = None
    if opening is not None:
        limits = Limits.within(given.memory_bytes)
        check = Check(inputs, witnessing.form_of(attempt), limits, blocks)
    memory = rewriting.peak(task, needed, given.memory_bytes)
    return Plan(task, opening, given, memory, check)


def _properties(table: Any) -> dict[str, str]:
    given = table.properties()
    return {str(name): str(given.get(name)) for name in iceberg.each(given.keySet())}


def _writer(given: Mapping[str, str], group_rows: int) -> Writer:
    """given: the table's properties."""

    def number(name: str, default: int) -> int:
        return int(given.get(name) or default)

    codec, level = CODECS[given.get(CODEC, DEFAULT_CODEC).lower()]
    if level is not None:
        level = number(LEVEL, level)
    return Writer(
        codec, level, number(PAGE_BYTES, 1 << 20), number(PAGE_LIMIT, PAGE_ROWS),
        number(DICTIONARY, 2 << 20), blooms_of(given, group_rows),
    )  # fmt: skip


def blooms_of(properties: Mapping[str, str], group_rows: int) -> dict[str, tuple[int, float]]:
    """Return `Writer.blooms` by a table's properties: for the distinct values that are given, else
    for all rows of a row group, within the bytes that a filter may take."""
    most = int(properties.get(f"{BLOOM}max-bytes") or BLOOM_BYTES)
    found = {}
    for name, value in properties.items():
        enabled, _, column = name.partition(".column.")
        if enabled == f"{BLOOM}enabled" and value.lower() == "true":
            fpp = float(properties.get(f"{BLOOM}fpp.column.{column}") or BLOOM_FPP)
            ndv = int(properties.get(f"{BLOOM}ndv.column.{column}") or group_rows)
            fits = int(most * 8 * math.log(2) ** 2 / -math.log(fpp))
            found[column] = (max(1, min(ndv, fits)), fpp)
    return found


def _order(group: Group) -> Order:
    ordering = group.action.ordering
    keys = tuple(Key(c.field_id, c.direction == "desc") for c in ordering.key)
    return Order(keys, ordering.curve, ordering.tree)


def _counts_files(group: Group) -> bool:
    """Return whether the rows decide how many files there are, per partition or leaf."""
    return bool(group.action.moves_by) or group.action.ordering.tree is not None


def _applied(attempt: Attempt, tasks: ScanTasks) -> dict[str, tuple[Delete, ...]]:
    """Return the deletes of each file as Iceberg's own scan found them: the witness applies them by
    rules of its own."""
    if all(file.deletes == NO_DELETES for file in tasks.values()):
        return {}
    known = {file.identity: witnessing.delete_of(file) for file in witnessing.live_files(attempt)}
    keyed = {path: one for (path, _), one in known.items() if one.keys}
    return {
        path: (
            *(known[identity] for identity in sorted(file.deletes.positions)),
            *(keyed[of] for of in sorted(file.deletes.equality)),
        )
        for path, file in tasks.items()
    }


def _files(
    attempt: Attempt, group: Group, tasks: ScanTasks, deletes: dict[str, tuple[Delete, ...]]
) -> tuple[DataFile, ...]:
    """Return the group's inputs in order of arrival, which rows with equal keys keep."""
    by_path = {file.path: file for file in witnessing.inputs_of(attempt, tasks, None)}
    return tuple(
        replace(by_path[file.path], deletes=deletes.get(file.path, ())) for file in group.inputs
    )


def _group_rows(properties: Mapping[str, str], group: Group) -> int:
    """Return the most rows of a row group of the table's size."""
    configured = int(properties.get(ROW_GROUP) or stage.DEFAULT_ROW_GROUP)
    return row_group_rows(configured, _stored_row(group))


def _stored_row(group: Group) -> float:
    """Return the expected bytes of a row when written."""
    live = max(1, round(group.rows * group.live_bytes / max(group.bytes, 1)))
    return max(group.output_bytes / live, 1e-9)


def _moves(table: Any, group: Group) -> tuple[Field, ...]:
    """Return the fields of the spec that rows move to; () if they stay in their partition."""
    if not group.action.moves_by:
        return ()
    schema = table.schema()
    return tuple(
        Field(
            int(field.sourceId()), str(field.name()), str(field.transform().toString()),
            str(schema.findType(field.sourceId())),
        )
        for field in iceberg.each(table.specs().get(group.action.into).fields())
    )  # fmt: skip


def _needed(group: Group, rows: int, decoded: int) -> int:
    """Return the memory that a task needs at least, with its rows on disk."""
    return int(min(rows, group.rows) * _row_memory(group, decoded)) + _keys_bytes(group)


def _row_memory(group: Group, decoded: int) -> float:
    """Return the memory of a row while it is gathered and written. decoded: bytes of all rows."""
    stored = round(_stored_row(group) * group.rows)
    return max(1, rewriting.gathered(decoded, stored)) / max(1, group.rows)


def _keys_bytes(group: Group) -> int:
    keys = len(group.action.ordering.key) + len(group.action.moves_by or ())
    return rewriting.KEY_BYTES * group.rows * keys


def fitting_rows(group: Group, rows: int, memory: int, decoded: int = 0) -> int:
    """Return the most rows of a row group that is held in this memory, but no less than a quarter
    of `rows`: what a table asks for is a size, and smaller row groups are read as well. decoded:
    bytes of all rows in memory, 0 if that is not known."""
    fit = (memory - _keys_bytes(group)) / _row_memory(group, decoded)
    return max(min(rows, int(fit)), -(-rows // SMALLER))


def _paths(
    attempt: Attempt, number: int, group: Group, tasks: ScanTasks, table: Any
) -> Iterator[str]:
    """Yield the paths of the outputs, which the table's location provider chooses."""
    provider, name = table.locationProvider(), uuid.uuid4()
    spec = table.specs().get(group.action.into)
    in_place = spec.isPartitioned() and not group.action.moves_by
    partition = _partition(tasks) if in_place else None
    numbers = [NUMBER] if _counts_files(group) else [f"{at:05d}" for at in range(group.files)]
    for at in numbers:
        plain = f"{number:05d}-{at}-{name}-{ATTEMPT}.parquet"
        yield str(
            provider.newDataLocation(plain)
            if partition is None
            else provider.newDataLocation(spec, partition, plain)
        )


def _partition(tasks: ScanTasks) -> Any:
    """Return the partition of the group's files, all of which are in one."""
    first = next(iter(tasks))
    return tasks.java_tasks([first]).get(0).file().partition()


def _resources(spark: Any, opening: Opening | None, threads: int) -> Resources:
    """Return what a task may use. threads: of the driver, if it runs there."""
    if _by_driver(spark, opening):
        return resources.of_driver(spark, threads)
    return resources.of_executor(spark)


def _in_slots(spark: Any, one: Resources, needed: int) -> Resources:
    """Return what a task may use that takes as many slots of an executor as have these bytes, all
    of them if they do not suffice."""
    cpus = -(-needed // one.memory_bytes)
    return resources.of_executor(spark, min(cpus, resources.slots(spark)))


def _by_driver(spark: Any, opening: Opening | None) -> bool:
    return bool(spark.local) or witness_work.is_signed(opening)


# Running


def written(attempt: Attempt, name: str, plan: Plan) -> Made:
    """Write the group's files.

    name: of the Spark job. Raises Unfit, DamagedInputError, FileNotFoundError, UnavailableError.
    """
    if _by_driver(spark_of(attempt), plan.opening):
        found = carried_out(plan, attempt.cancelled.is_set)
    else:
        found = _on_executor(attempt, name, plan)
    if isinstance(found, Failure):
        raise raised(attempt, found, plan.opening)
    return found


def entries_of(attempt: Attempt, group: Group, tasks: ScanTasks, table: Any, plan: Plan,
               order_id: int, made: Made) -> tuple[Any, ...]:  # fmt: skip
    """Return the files as org.apache.iceberg.DataFile objects."""
    entries = _Entries(spark_of(attempt), table, group.action.into, order_id, tasks)
    return tuple(entries.of(file, plan.task.table) for file in made.files)


def carried_out(
    plan: Plan, stopping: Callable[[], bool] = lambda: False, attempt: str = "0"
) -> Made | Failure:
    """Return what a task made, or why it made nothing."""
    return guarded(
        lambda: rewriting.rewritten(
            plan.task, plan.opening, plan.resources, stopping, attempt, plan.check
        )
    )


def guarded(work: Callable[[], T]) -> T | Failure:
    """Return what the engine's work does, or why it failed, as a value for another process."""
    try:
        return work()
    except FileNotFoundError as error:
        return Failure(str(error.filename), "", "the file does not exist", MISSING)
    except Damaged as error:
        return Failure(error.path, error.column, error.detail, said=error.said)
    except Unfit as error:
        return Failure("", "", str(error), UNFIT)
    except MemoryError as error:
        return Failure("", "", first_line(error) or type(error).__name__, MEMORY)
    except OSError as error:
        return Failure("", "", first_line(error) or type(error).__name__, STORAGE)
    except rewriting.Failed as failed:
        return _broken(failed.path, failed.__cause__ or failed)
    except rewriting.OWN_ERRORS as error:
        return _broken("", error)


def _broken(path: str, error: BaseException) -> Failure:
    log.error("the engine failed", exc_info=error)
    return Failure(path, "", type(error).__name__, BROKEN, first_line(error))


def _on_executor(attempt: Attempt, name: str, plan: Plan) -> Made | Failure:
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    context = spark_of(attempt).sparkContext
    witness_work.use_this_python(context)
    context.setJobGroup(name, f"layoutctl rewrite {attempt.name}")
    work = _working(plan)
    rdd = context.parallelize([0], 1)
    if plan.resources.threads > 1:
        cpus = TaskResourceRequests().cpus(plan.resources.threads)
        rdd = rdd.withResources(ResourceProfileBuilder().require(cpus).build)
    (found,) = rdd.map(work).collect()
    return found  # type: ignore[no-any-return]


def _working(plan: Plan) -> Callable[[int], Made | Failure]:
    """Return the function of a Spark task; each attempt of it writes files of its own names."""

    def work(_: int) -> Made | Failure:
        return carried_out(plan, attempt=task_attempt())

    return work


def task_attempt() -> str:
    """Return the name of the attempt of a Spark task that runs this."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return "0" if context is None else str(context.taskAttemptId())


def raised(attempt: Attempt, failure: Failure, opening: Opening | None) -> Exception:
    """Return the error of a failure of the engine."""
    doing = f"rewrite {attempt.name}"
    if failure.kind == MISSING:
        return FileNotFoundError(2, "No such file or directory", failure.path)
    if failure.kind == UNFIT:
        return Unfit(failure.detail)
    if failure.kind == MEMORY:
        return MemoryExhaustedError(
            f"could not {doing}: there was too little memory for the rows of a row group",
            details=(failure.detail, LEFT_ALONE),
            do="free memory of the machine, or raise spec.engine.executors.memory in a cluster",
        )
    if failure.kind == STORAGE:
        return _of_storage(doing, failure.detail)
    if failure.kind == BROKEN:
        return EngineError(doing, failure.path, failure.detail, failure.said)
    io = None if opening is None else opening.open(failure.path)
    changed = changed_ms(io, failure.path)
    refusal = Refusal(failure.path, DAMAGED, failure.column, failure.detail, changed)
    return DamagedInputError(
        f"could not {doing}: {failure.path} cannot be read",
        said=(failure.said,) if failure.said else (),
        details=(refusal.sentence, LEFT_ALONE),
        do=RESTORE,
        refusals=(refusal,),
    )


def _of_storage(doing: str, detail: str) -> Exception:
    try:
        return translate(OSError(detail), doing)
    except OSError:  # one that is not known
        return UnavailableError(
            f"could not {doing}: a file could not be read or written",
            details=(detail, LEFT_ALONE),
            do="check the storage, and the space in the temporary directory, then run it again",
        )


# Entries


@dataclass(frozen=True, slots=True)
class _Entries:
    """Makes the manifest entries of files that were written: as Iceberg's own writer would."""

    spark: Any
    """The session."""
    table: Any
    """As `stage.overridden` returns it."""
    spec_id: int
    """Of the files."""
    order_id: int
    """Of the sort order that they record."""
    tasks: ScanTasks
    """Their inputs, in whose partition they are unless rows moved."""

    def of(self, file: Output, shape: Table) -> Any:
        core, table = self.spark._jvm.org.apache.iceberg, self.table
        config = core.MetricsConfig.forTable(table)
        whole = core.inmemory.InMemoryInputFile(file.path, PARQUET + file.footer)
        metrics = core.parquet.ParquetUtil.fileMetrics(whole, config)
        if file.nans or file.bounds:
            metrics = self._completed(metrics, file, config, shape)
        spec = table.specs().get(self.spec_id)
        builder = self._builder(spec, file).withMetrics(metrics)
        builder = builder.withSplitOffsets(self._longs(file.split_offsets))
        if spec.isPartitioned():
            partition = self._moved(file) if file.partition else _partition(self.tasks)
            builder = builder.withPartition(partition)
        if self.order_id != UNSORTED:
            builder = builder.withSortOrder(table.sortOrders().get(self.order_id))
        return builder.build()

    def _builder(self, spec: Any, file: Output) -> Any:
        made = self.spark._jvm.org.apache.iceberg.DataFiles.builder(spec)
        return made.withPath(file.path).withFormat("parquet").withFileSizeInBytes(file.size)

    def _longs(self, values: Sequence[int]) -> Any:
        """Return a java.util.List of Long: py4j makes an Integer of a small number."""
        text = ",".join(str(value) for value in values)
        parser = self.spark._jvm.org.apache.iceberg.util.JsonUtil
        node = parser.mapper().readTree(f'{{"values":[{text}]}}')
        return parser.getLongList("values", node)

    def _completed(self, metrics: Any, file: Output, config: Any, shape: Table) -> Any:
        """Return the metrics with what no footer says: NaN counts, and bounds of long values."""
        core = self.spark._jvm.org.apache.iceberg
        nowhere = core.PartitionSpec.unpartitioned()
        made = self._builder(nowhere, file).withMetrics(metrics).build()
        body = json.loads(str(core.ContentFileParser.toJson(made, nowhere)))
        counted = set(body.get("value-counts", {}).get("keys", ()))
        _put(body, "nan-value-counts", {i: n for i, n in file.nans.items() if i in counted})
        for field_id, ends in file.bounds.items():
            if field_id in counted:
                column = shape.ways[field_id][-1]
                bounds = _cut(column, ends, str(config.columnMode(column.name)))
                for name, end in zip(("lower-bounds", "upper-bounds"), bounds, strict=True):
                    _put(body, name, {} if end is None else {field_id: end.hex().upper()})
        specs = self.spark._jvm.java.util.Collections.singletonMap(nowhere.specId(), nowhere)
        found = self._parsed(body, specs)
        return core.Metrics(
            found.recordCount(), found.columnSizes(), found.valueCounts(), found.nullValueCounts(),
            found.nanValueCounts(), found.lowerBounds(), found.upperBounds(),
        )  # fmt: skip

    def _moved(self, file: Output) -> Any:
        """Return the partition that the file's rows moved to."""
        body = {
            "spec-id": self.spec_id, "content": "DATA", "file-path": file.path,
            "file-format": "PARQUET", "partition": list(file.partition),
            "file-size-in-bytes": file.size, "record-count": file.rows,
        }  # fmt: skip
        return self._parsed(body, self.table.specs()).partition()

    def _parsed(self, body: Mapping[str, Any], specs: Any) -> Any:
        core = self.spark._jvm.org.apache.iceberg
        node = core.util.JsonUtil.mapper().readTree(json.dumps(body))
        return core.ContentFileParser.fromJson(node, specs)


def _put(body: dict[str, Any], name: str, values: dict[int, Any]) -> None:
    if not values:
        return
    known = body.get(name) or {"keys": [], "values": []}
    merged = dict(zip(known["keys"], known["values"], strict=True)) | values
    body[name] = {"keys": list(merged), "values": list(merged.values())}


def _cut(column: Column, ends: tuple[bytes, bytes], mode: str) -> tuple[bytes | None, bytes | None]:
    """Return bounds as the table's metrics mode keeps them; mode: as Iceberg prints it."""
    from pyiceberg.utils import truncate

    if mode == "full":
        return ends
    if not mode.startswith("truncate("):
        return None, None
    length = int(mode[len("truncate(") : -1])
    low, high = ends
    if column.type == "string":
        if not _is_text(low, high):  # which the witness refuses, with the column
            return None, None
        upper = truncate.truncate_upper_bound_text_string(high.decode(), length)
        return low.decode()[:length].encode(), None if upper is None else upper.encode()
    return low[:length], truncate.truncate_upper_bound_binary_string(high, length)


def _is_text(*values: bytes) -> bool:
    try:
        for value in values:
            value.decode()
    except UnicodeDecodeError:
        return False
    return True
