"""Converts equality deletes into the positions of the rows that they delete.

Iceberg's own reader says which rows these are (`_deleted`), so that null, NaN, zeros of either
sign, renamed, widened and dropped key columns are compared as every reader compares them. What is
marked includes rows deleted by position; the new delete file of a data file takes those in.
Nothing is checked here: the witness (`witnessing.same_deletes`) applies the deletes by rules and a
reader of its own, so that it sees a row that was not read, not marked or not written, and a marking
that is not what the specification says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.errors import UnsupportedError
from reconciler.spark.deletes import position_sets, positions, replacement, write_deletes
from reconciler.spark.deletes.delete_files import DeleteFile
from reconciler.spark.deletes.position_sets import PositionSets
from reconciler.spark.deletes.positions import FILE, IS_DELETED, POSITION
from reconciler.spark.deletes.replacement import Replacement
from reconciler.spark.schedule import scan, write
from reconciler.spark.schedule.attempt import Attempt
from reconciler.spark.schedule.scan import ScanTasks
from reconciler.spark.session import iceberg, metrics, streams

WHAT = "ConvertDeletes"


@dataclass(frozen=True, slots=True)
class _Work:
    """What the steps of one conversion share. table: with the attempt's directory. tasks: the data
    files to which the inputs apply. files: all delete files of the snapshot. keys: identity columns
    inside structs, which a reader must read."""

    attempt: Attempt
    table: Any
    base: str
    tasks: ScanTasks
    inputs: Sequence[DeleteFile]
    files: Sequence[DeleteFile]
    keys: tuple[str, ...]


@dataclass
class Seen:
    """What earlier attempts of a run read. marks: a java.util.Map from each data file to the
    deletes that applied to it; sets: the rows that these hide. A data file and its deletes never
    change, so that only those are read again that got other deletes since."""

    marks: Any = None
    sets: PositionSets | None = None

    def unread(self, spark: Any, tasks: ScanTasks) -> ScanTasks:
        """Return the tasks that must be read."""
        if self.marks is None:
            return tasks
        left = spark._jvm.java.util.HashMap(scan.delete_marks(spark, tasks))
        left.entrySet().removeAll(self.marks.entrySet())
        keys = spark._jvm.java.util.ArrayList(left.keySet())
        return tasks.subset(streams.lines(spark, keys, streams.text(spark)))


@dataclass(frozen=True, slots=True)
class _Hits:
    """sets: the rows that a reader marks, None if they are too many for the driver. number: of
    these rows."""

    sets: PositionSets | None
    number: int


def refuse(spark: Any, table: Any, name: str, inputs: Iterable[DeleteFile]) -> None:
    """Raise UnsupportedError for identity columns that a reader may not compare."""
    schema = table.schema()
    parents = spark._jvm.org.apache.iceberg.types.TypeUtil.indexParents(schema.asStruct())
    for field_id in sorted({field_id for file in inputs for field_id in file.keys}):
        holder = parents.get(field_id)
        while holder is not None:
            if not schema.findField(holder).type().isStructType():
                raise UnsupportedError(
                    f"{name} has equality deletes on {schema.findColumnName(field_id)}, a member "
                    "of a list or a map",
                    details=("Converting them is not supported. The table was left as it was.",),
                    do="let the engine that writes them compact them, or set "
                    "spec.deletes.compaction: Major",
                )
            holder = parents.get(holder)


def key_bytes(
    spark: Any, table: Any, snapshot_id: int, inputs: Sequence[DeleteFile], seen: Seen
) -> int:
    """Return the stored bytes of the identity columns of the data files under the inputs that must
    be read; of the whole file where the manifest does not hold them."""
    ids = {field_id for file in inputs for field_id in file.keys}
    paths = [file.path for file in inputs]
    tasks = scan.tasks_under(spark, table, snapshot_id, paths, ids)
    known = (
        sum(file.sizes[i] for i in ids & file.sizes.keys()) if file.sizes else file.size
        for file in seen.unread(spark, tasks).values()
    )
    return sum(known)


def replacement_for(
    attempt: Attempt,
    base: str,
    inputs: Sequence[DeleteFile],
    files: Sequence[DeleteFile],
    seen: Seen,
) -> Replacement:
    """Write what takes the place of the inputs. files: all of the snapshot. seen: is kept up to
    date."""
    spark, table = attempt.spark, replacement.output_table(attempt)
    paths = [file.path for file in inputs]
    tasks = scan.tasks_under(spark, attempt.table, attempt.snapshot_id, paths)
    if not tasks:
        return Replacement(tasks, (), list(inputs), "they apply to no data file")
    ids = {field_id for file in files for field_id in file.keys}
    work = _Work(attempt, table, base, tasks, inputs, files, _keys(attempt.table, ids))
    replacement.job_group(attempt, f"{base}/write", WHAT)
    hits = _hits(work, seen)
    return _of_many(work, hits) if hits.sets is None else _of_few(work, hits.sets)


def _of_few(work: _Work, hits: PositionSets) -> Replacement:
    """Write from the driver."""
    attempt, table = work.attempt, work.table
    begun = metrics.driver_cpu_seconds(attempt.spark)
    changed = _changed(work, hits)
    kept_apart = hits.keep(changed)
    made = write_deletes.on_driver(attempt.spark, table, work.tasks, kept_apart)
    with replacement.uncommitted(attempt, made) as added:
        found = replacement.described(attempt, added)
    removed = [*work.inputs, *_folded(work, changed)]
    return replacement.of_driver(attempt, work.tasks, found, removed, begun)


def _positions_of(work: _Work) -> list[DeleteFile]:
    """Return the position delete files that may apply to one of the data files, without those that
    a vector hides."""
    vectors = {file.data_file for file in work.files if file.vector}
    places = set(scan.places(work.attempt.spark, work.table, work.tasks).values())
    return [
        file
        for file in work.files
        if not file.keys
        and (
            (file.data_file in work.tasks and (file.vector or file.data_file not in vectors))
            if file.data_file
            else file.place in places
        )
    ]


def _of_many(work: _Work, hits: _Hits) -> Replacement:
    """Write by Spark's tasks."""
    made = _written(work, hits)
    with replacement.uncommitted(work.attempt, made) as added:
        found = replacement.described(work.attempt, added)
    removed = [*work.inputs, *_folded(work, frozenset(work.tasks))]
    return Replacement(work.tasks, found, removed)


def _keys(table: Any, ids: Collection[int]) -> tuple[str, ...]:
    """Return the identity columns inside structs by name."""
    schema = table.schema()
    top = {int(field.fieldId()) for field in iceberg.each(schema.columns())}
    names = [schema.findColumnName(field_id) for field_id in sorted(set(ids) - top)]
    return tuple(str(name) for name in names if name is not None)


def _hits(work: _Work, seen: Seen) -> _Hits:
    """Read the identity columns of the data files once, and collect what is deleted if it is not
    too much."""
    spark = work.attempt.spark
    if _most(work) <= write_deletes.DRIVER_POSITIONS:
        unread = seen.unread(spark, work.tasks)
        maps = [_collected(work, unread).java] if unread else []
        if seen.sets is not None:
            maps.append(seen.sets.keep(set(work.tasks) - set(unread)).java)
        seen.sets = position_sets.merged(spark, iceberg.java_list(spark, maps))
        seen.marks = scan.delete_marks(spark, work.tasks)
        return _Hits(seen.sets, sum(seen.sets.cardinalities().values()))
    tasks = work.tasks.java_tasks(list(work.tasks))
    with _stored(work, f"{work.base}/hits", tasks) as frame:
        return _Hits(None, int(frame.where(IS_DELETED).count()))


def _collected(work: _Work, unread: ScanTasks) -> PositionSets:
    """Return the rows of these data files that a reader marks."""
    from pyspark.sql import functions as f

    with _stored(work, f"{work.base}/hits", unread.java_tasks(list(unread))) as frame:
        marked = frame.where(IS_DELETED).groupBy(FILE).agg(f.collect_list(POSITION))
        return position_sets.of_rows(work.attempt.spark, marked._jdf.collectAsList())


def _most(work: _Work) -> int:
    """Return about how many rows are hit: the keys of an equality delete are mostly unique."""
    inputs = {file.identity for file in work.inputs}
    named = (file for file in work.files if file.identity in inputs or file.data_file in work.tasks)
    return sum(file.rows for file in named)


def _stored(work: _Work, set_id: str, tasks: Any) -> Any:
    split = write.even_split(work.attempt.spark, [file.size for file in work.tasks.values()])
    return positions.in_data_files(work.attempt.spark, work.table, set_id, tasks, work.keys, split)


def _changed(work: _Work, hits: PositionSets) -> frozenset[str]:
    """Return the data files that get a new delete file: those with other rows hit than the delete
    files of theirs alone hold, and all with hits where a delete file of several may hold some."""
    spark, attempt = work.attempt.spark, work.attempt
    every = _positions_of(work)
    own = [file for file in every if file.data_file]
    known = position_sets.applied(spark, attempt.table, work.tasks, own)
    wide = {file.place for file in every if not file.data_file}
    vectors = {file.data_file for file in own if file.vector}
    places = scan.places(spark, work.table, work.tasks) if wide else {}
    return hits.differing(known) | {
        path for path in hits.cardinalities() if places.get(path) in wide and path not in vectors
    }


def _written(work: _Work, hits: _Hits) -> list[Any]:
    spark = work.attempt.spark
    made: list[Any] = []
    places = scan.places(spark, work.table, work.tasks)
    for number, place in enumerate(sorted(set(places.values()))):
        own = [path for path, at in places.items() if at == place]
        tasks = work.tasks.java_tasks(own)
        with _stored(work, f"{work.base}/read{number}", tasks) as frame:
            rows = frame.where(IS_DELETED).select(FILE, POSITION)
            made += write_deletes.on_executors(
                spark, work.table, f"{work.base}/out{number}", tasks.get(0).file(), rows,
                max(1, hits.number * len(own) // len(places)),
            )  # fmt: skip
    return made


def _folded(work: _Work, changed: frozenset[str]) -> list[DeleteFile]:
    """Return the position deletes whose rows the new delete files hold too."""
    own = [f for f in work.files if not f.keys and f.data_file in changed]
    places = {file.place for file in work.inputs}
    wide = [
        file
        for file in work.files
        if not file.keys
        and not file.data_file
        and (file.place in places or any(f.everywhere for f in work.inputs))
    ]
    if not wide:
        return own
    attempt = work.attempt
    under = scan.tasks_under(
        attempt.spark, attempt.table, attempt.snapshot_id, [file.path for file in wide]
    )
    covered = not set(under) - set(work.tasks)
    return [*own, *(wide if covered else ())]
