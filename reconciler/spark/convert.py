"""Converts equality deletes into the positions of the rows that they delete.

Iceberg's own reader says which rows these are (`_deleted`), so that null, NaN, zeros of either
sign, renamed, widened and dropped key columns are compared as every reader compares them. What is
marked includes rows deleted by position; the new delete file of a data file takes those in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.errors import UnsupportedError
from reconciler.format import count
from reconciler.spark import (
    iceberg,
    metrics,
    position_sets,
    positions,
    replacement,
    scan,
    stage,
    streams,
    verify,
    write,
    write_deletes,
)
from reconciler.spark.attempt import Attempt
from reconciler.spark.delete_files import DeleteFile
from reconciler.spark.metrics import TaskMetrics
from reconciler.spark.position_sets import PositionSets
from reconciler.spark.positions import FILE, IS_DELETED, POSITION
from reconciler.spark.replacement import Replacement
from reconciler.spark.scan import ScanTasks
from reconciler.spark.verify import Fingerprint

WHAT = "ConvertDeletes"


@dataclass(frozen=True, slots=True)
class _Work:
    """What the steps of one conversion share. table: with the attempt's directory. tasks: the data
    files to which the inputs apply. files: all delete files of the snapshot. keys: identity columns
    inside structs, which a reader must read. unsure: some identity column is not a column of the
    schema by itself, so that the number of rows hit is compared with that of a full read."""

    attempt: Attempt
    table: Any
    base: str
    tasks: ScanTasks
    inputs: Sequence[DeleteFile]
    files: Sequence[DeleteFile]
    keys: tuple[str, ...]
    unsure: bool


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
    """sets: the rows that a reader marks, None if they are too many for the driver; live: then the
    rows that readers see. number: of rows hit."""

    sets: PositionSets | None
    live: Fingerprint
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
    """Write and verify what takes the place of the inputs. files: all of the snapshot. seen: is
    kept up to date."""
    spark, table = attempt.spark, replacement.output_table(attempt)
    paths = [file.path for file in inputs]
    tasks = scan.tasks_under(spark, attempt.table, attempt.snapshot_id, paths)
    if not tasks:
        return Replacement(tasks, (), list(inputs), "they apply to no data file")
    ids = {field_id for file in files for field_id in file.keys}
    keys, unsure = _keys(attempt.table, ids)
    work = _Work(attempt, table, base, tasks, inputs, files, keys, unsure)
    replacement.job_group(attempt, f"{base}/write", WHAT)
    hits = _hits(work, seen)
    if unsure:
        _compare_with_a_full_read(work, hits.number)
    return _of_many(work, hits) if hits.sets is None else _of_few(work, hits.sets)


def _of_few(work: _Work, hits: PositionSets) -> Replacement:
    """Write from the driver, and verify data file by data file: what is hidden afterwards is what
    was hidden before."""
    attempt, table = work.attempt, work.table
    begun = metrics.driver_cpu_seconds(attempt.spark)
    changed = _changed(work, hits)
    kept_apart = hits.keep(changed)
    made = write_deletes.on_driver(attempt.spark, table, work.tasks, kept_apart)
    with replacement.uncommitted(attempt, made) as added:
        found = replacement.described(attempt, added)
        removed = [*work.inputs, *_folded(work, changed)]
        written = metrics.driver_cpu_seconds(attempt.spark)
        after, repeated = _hidden_after(work, found, removed)
        apart = position_sets.difference(attempt.spark, hits, after)
        if apart or repeated:
            raise replacement.mismatch(
                attempt,
                f"of {count(apart.every)} deleted rows {count(apart.missing)} would be back, "
                f"{count(apart.foreign)} others would be hidden, {count(repeated)} are written "
                "twice",
            )
    return Replacement(
        work.tasks,
        found,
        removed,
        replacement.compared("deleted rows", apart.every),
        TaskMetrics(written - begun),
        TaskMetrics(metrics.driver_cpu_seconds(attempt.spark) - written),
    )


def _hidden_after(
    work: _Work, added: Sequence[DeleteFile], removed: Sequence[DeleteFile]
) -> tuple[PositionSets, int]:
    """Return what position deletes hide of each data file once the delete files are replaced, and
    how many positions the new files hold twice. A vector hides the other position deletes of its
    file; the equality deletes that stay hide nothing that was not hidden before."""
    spark = work.attempt.spark
    held = position_sets.stored(spark, work.table, [file.java for file in added])
    new = position_sets.merged(spark, held)
    rows = position_sets.stored_rows(spark, work.table, added)
    twice = rows - sum(new.cardinalities().values())
    gone = {file.identity for file in removed}
    vectors = {file.data_file for file in added if file.vector}
    stay = [file for file in _positions_of(work) if file.identity not in gone]
    old = position_sets.applied(spark, work.table, work.tasks, stay).without(vectors)
    both = iceberg.java_list(spark, [new.java, old.java])
    return position_sets.merged(spark, both), twice


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
    """Write by Spark's tasks, and verify by reading the data files once more."""
    attempt = work.attempt
    changed = frozenset(work.tasks)
    made = _written(work, hits)
    with replacement.uncommitted(attempt, made) as added:
        found = replacement.described(attempt, added)
        removed = [*work.inputs, *_folded(work, changed)]
        replacement.job_group(attempt, f"{work.base}/verify", WHAT)
        live = _live_after(work, found, removed)
    if live != hits.live:
        raise replacement.mismatch(attempt, _difference(hits.live, live))
    proof = f"{replacement.compared('rows', live.rows)}, hash equal"
    return Replacement(work.tasks, found, removed, proof)


def _difference(before: Fingerprint, after: Fingerprint) -> str:
    if before.rows != after.rows:
        return f"{count(before.rows)} rows before, {count(after.rows)} with the new deletes"
    return f"{count(before.rows)} rows before and with the new deletes, but not the same ones"


def _keys(table: Any, ids: Collection[int]) -> tuple[tuple[str, ...], bool]:
    """Return the identity columns inside structs by name, and whether one is not a column of the
    table by itself."""
    schema = table.schema()
    top = {int(field.fieldId()) for field in iceberg.each(schema.columns())}
    names = [schema.findColumnName(field_id) for field_id in sorted(set(ids) - top)]
    return tuple(str(name) for name in names if name is not None), bool(names)


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
        return _Hits(seen.sets, Fingerprint(0), sum(seen.sets.cardinalities().values()))
    tasks = work.tasks.java_tasks(list(work.tasks))
    with _stored(work, f"{work.base}/hits", tasks) as frame:
        found = frame.agg(*_aggregates(frame)).first().asDict()
        return _Hits(None, verify.fingerprint(found), int(found["hit"]))


def _collected(work: _Work, unread: ScanTasks) -> PositionSets:
    """Return the rows of these data files that a reader marks."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    with _stored(work, f"{work.base}/hits", unread.java_tasks(list(unread))) as frame:
        read = Observation(f"{work.base}/hits")
        every = frame.observe(read, f.count(f.lit(1)).alias("rows"))
        marked = every.where(IS_DELETED).groupBy(FILE).agg(f.collect_list(POSITION))
        rows = marked._jdf.collectAsList()
        if rows.isEmpty():  # Spark then drops the plan together with what it observed
            found = frame.agg(f.count(f.lit(1)), f.count_if(IS_DELETED)).first()
            _require_every_row(work, unread, found[0] - found[1])
        else:
            _require_every_row(work, unread, int(read.get["rows"]))
    return position_sets.of_rows(work.attempt.spark, rows)


def _require_every_row(work: _Work, tasks: ScanTasks, read: int) -> None:
    """Raise VerificationError unless the reading saw each stored row: a deleted one that it did not
    see would come back. Spark counts rows again that it reads again after the loss of an
    executor."""
    stored = sum(file.rows for file in tasks.values())
    if read < stored:
        raise replacement.mismatch(work.attempt, f"{count(read)} of {count(stored)} rows were read")


def _most(work: _Work) -> int:
    """Return about how many rows are hit: the keys of an equality delete are mostly unique."""
    inputs = {file.identity for file in work.inputs}
    named = (file for file in work.files if file.identity in inputs or file.data_file in work.tasks)
    return sum(file.rows for file in named)


def _stored(work: _Work, set_id: str, tasks: Any) -> Any:
    split = write.even_split(work.attempt.spark, [file.size for file in work.tasks.values()])
    return positions.in_data_files(work.attempt.spark, work.table, set_id, tasks, work.keys, split)


def _aggregates(frame: Any) -> list[Any]:
    """Return the columns that sum up the rows that readers see, and the number of the others."""
    from pyspark.sql import functions as f

    row = verify.row_hash(frame.select(FILE, POSITION).schema)
    live = ~f.col(IS_DELETED)
    return [
        f.count_if(live).alias("rows"),
        *verify.sums(f.when(live, row)),
        f.count_if(IS_DELETED).alias("hit"),
    ]


def _compare_with_a_full_read(work: _Work, hit: int) -> None:
    """Raise unless a plain query of every column finds the rows that are not marked, and no others.

    Iceberg's reader may leave out an equality delete whose column it does not read, and mark other
    rows than it hides, where one delete is on a member of a struct and another on a dropped column.
    """
    from pyspark.sql import functions as f

    spark, set_id = work.attempt.spark, f"{work.base}/full"
    view = positions.showing_positions(spark, work.table)
    tasks = work.tasks.java_tasks(list(work.tasks))
    with stage.staged(spark, view, set_id, tasks):
        plain = stage.read(spark, set_id)
        marked = plain.select("*", IS_DELETED).where(~f.col(IS_DELETED)).drop(IS_DELETED)
        rows = [
            verify.fingerprint(frame.agg(*verify.aggregates(plain.schema, True)).first().asDict())
            for frame in (plain, marked)
        ]
    stored = sum(file.rows for file in work.tasks.values())
    if rows[0] != rows[1] or rows[0].rows != stored - hit:
        raise UnsupportedError(
            f"{work.attempt.name} has equality deletes that cannot be converted: of "
            f"{count(stored)} rows {count(hit)} are marked as deleted, but a query of all columns "
            f"finds {count(rows[0].rows)}",
            details=("Readers disagree about them. The table was left as it was.",),
            do="set spec.deletes.compaction: Major, which rewrites the data files",
        )


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


def _live_after(
    work: _Work, added: Sequence[DeleteFile], removed: Sequence[DeleteFile]
) -> Fingerprint:
    """Return what readers see of the data files once the delete files are replaced."""
    spark = work.attempt.spark
    gone = {file.identity for file in removed}
    new: dict[str, list[DeleteFile]] = {}
    for file in added:
        new.setdefault(file.data_file, []).append(file)
    tasks = iceberg.java_list(
        spark,
        (
            _with_deletes(spark, work.table, task, gone, new.get(path, []))
            for path, task in zip(
                work.tasks, iceberg.each(work.tasks.java_tasks(list(work.tasks))), strict=True
            )
        ),
    )
    with _stored(work, f"{work.base}/after", tasks) as frame:
        return verify.fingerprint(frame.agg(*_aggregates(frame)).first().asDict())


def _with_deletes(
    spark: Any, table: Any, task: Any, gone: Collection[tuple[str, int]], new: Sequence[DeleteFile]
) -> Any:
    """Return a scan task of the same data file with other deletes."""
    core = spark._jvm.org.apache.iceberg
    vectors = any(file.vector for file in new)
    kept = [
        file
        for file in iceberg.each(task.deletes())
        if (str(file.location()), int(file.contentOffset() or 0)) not in gone
        and not (vectors and str(file.content().name()) == "POSITION_DELETES")
    ]
    return core.BaseFileScanTask(
        task.file(),
        iceberg.java_array(
            spark, "org.apache.iceberg.DeleteFile", [*kept, *(file.java for file in new)]
        ),
        core.SchemaParser.toJson(table.schema()),
        core.PartitionSpecParser.toJson(task.spec()),
        core.expressions.ResidualEvaluator.unpartitioned(core.expressions.Expressions.alwaysTrue()),
    )
