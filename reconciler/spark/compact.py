"""Compacts position deletes: one delete file per data file, no data file opened.

Section 5 of the paper on row-level operations calls it a minor compaction. On format 3 the outcome
are vectors, which also take in what else applies to their data file, because a vector hides it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reconciler.format import count
from reconciler.spark import (
    delete_files,
    iceberg,
    metrics,
    position_files,
    position_sets,
    positions,
    replacement,
    scan,
    write_deletes,
)
from reconciler.spark.attempt import Attempt
from reconciler.spark.delete_files import DeleteFile
from reconciler.spark.metrics import TaskMetrics
from reconciler.spark.partitions import Place
from reconciler.spark.position_files import Positions
from reconciler.spark.position_sets import PositionSets
from reconciler.spark.replacement import Replacement
from reconciler.spark.scan import ScanTasks

WHAT = "CompactDeletes"
SAMPLE = 16
"""Positions that are asked for in the file that Iceberg reads back."""


def replacement_for(
    attempt: Attempt, base: str, inputs: Sequence[DeleteFile], files: Sequence[DeleteFile]
) -> Replacement:
    """Write and verify what takes the place of the inputs. files: all of the snapshot."""
    spark, table = attempt.spark, replacement.output_table(attempt)
    paths = [file.path for file in inputs]
    tasks = scan.tasks_under(spark, attempt.table, attempt.snapshot_id, paths)
    sources = _sources(table, inputs, files, tasks)
    folded = [f for f in sources if f.data_file and f.path not in set(paths)]
    removed = [*inputs, *folded]
    if not tasks:
        return Replacement(tasks, (), removed, "they apply to no data file")
    if sum(file.rows for file in sources) <= write_deletes.DRIVER_POSITIONS:
        return _in_columns(attempt, table, tasks, sources, removed) or _on_driver(
            attempt, table, tasks, sources, removed
        )
    replacement.job_group(attempt, f"{base}/write", WHAT)
    made = _written(attempt, table, base, tasks, sources)
    with replacement.uncommitted(attempt, made) as added:
        replacement.job_group(attempt, f"{base}/verify", WHAT)
        number = _verified(attempt, table, base, tasks, sources, added)
        found = replacement.described(attempt, added)
    return Replacement(tasks, found, removed, replacement.compared("positions", number))


def _in_columns(
    attempt: Attempt,
    table: Any,
    tasks: ScanTasks,
    sources: Sequence[DeleteFile],
    removed: Sequence[DeleteFile],
) -> Replacement | None:
    """Read, write and verify as columns, on format 2; None if Arrow does not take the files."""
    spark, begun = attempt.spark, metrics.driver_cpu_seconds(attempt.spark)
    if iceberg.format_version(table) >= 3:
        return None
    codec = position_files.codec_of(spark, table)
    held = position_files.read(spark, table, sources) if codec else None
    if codec is None or held is None:
        return None
    places = scan.places(spark, table, tasks)
    wanted = position_files.merged(
        {p: rows for p, rows in own.items() if position_sets.applies(file, p, tasks, places)}
        for file, own in zip(sources, held, strict=True)
    )
    made = position_files.write(spark, table, codec, tasks, wanted)
    return _of_driver(
        attempt,
        tasks,
        removed,
        made,
        begun,
        lambda found: _verified_columns(attempt, table, wanted, found),
    )


def _on_driver(
    attempt: Attempt,
    table: Any,
    tasks: ScanTasks,
    sources: Sequence[DeleteFile],
    removed: Sequence[DeleteFile],
) -> Replacement:
    """Read, write and verify in the driver's JVM, without a Spark job."""
    spark = attempt.spark
    begun = metrics.driver_cpu_seconds(spark)
    wanted = position_sets.applied(spark, table, tasks, sources)
    made = write_deletes.on_driver(spark, table, tasks, wanted)
    return _of_driver(
        attempt,
        tasks,
        removed,
        made,
        begun,
        lambda found: _verified_sets(attempt, table, wanted, found),
    )


def _of_driver(
    attempt: Attempt,
    tasks: ScanTasks,
    removed: Sequence[DeleteFile],
    made: list[Any],
    begun: float,
    verified: Callable[[Sequence[DeleteFile]], int],
) -> Replacement:
    """Describe and verify what the driver has written, and time both. begun: the driver's CPU
    seconds before it read. verified: returns the positions in the files, or raises."""
    with replacement.uncommitted(attempt, made) as added:
        found = replacement.described(attempt, added)
        written = metrics.driver_cpu_seconds(attempt.spark)
        number = verified(found)
    return Replacement(
        tasks,
        found,
        removed,
        replacement.compared("positions", number),
        TaskMetrics(written - begun),
        TaskMetrics(metrics.driver_cpu_seconds(attempt.spark) - written),
    )


def _sources(
    table: Any, inputs: Sequence[DeleteFile], files: Sequence[DeleteFile], tasks: ScanTasks
) -> list[DeleteFile]:
    """Return the delete files whose positions are written."""
    if iceberg.format_version(table) < 3:
        return list(inputs)
    places = {file.place for file in inputs}
    return [
        file
        for file in files
        if not file.keys
        and not file.vector
        and (file.data_file in tasks if file.data_file else file.place in places)
    ]


def _written(
    attempt: Attempt, table: Any, base: str, tasks: ScanTasks, sources: Sequence[DeleteFile]
) -> list[Any]:
    spark = attempt.spark
    made: list[Any] = []
    for number, (place, own) in enumerate(_by_partition(sources).items()):
        data = delete_files.data_files_of(spark, table, tasks, place)
        if not data:
            continue
        javas, like = [file.java for file in own], data.java_tasks([next(iter(data))]).get(0).file()
        with positions.in_delete_files(spark, table, f"{base}/read{number}", javas) as stored:
            frame = positions.that_apply(spark, stored, data, own).distinct()
            rows_expected = sum(file.rows for file in own)
            made += write_deletes.on_executors(
                spark, table, f"{base}/out{number}", like, frame, rows_expected
            )
    return made


def _by_partition(
    sources: Sequence[DeleteFile],
) -> dict[Place, list[DeleteFile]]:
    found: dict[Place, list[DeleteFile]] = {}
    for file in sources:
        found.setdefault(file.place, []).append(file)
    return found


def _verified_columns(
    attempt: Attempt, table: Any, wanted: Positions, added: Sequence[DeleteFile]
) -> int:
    """Return the number of positions, as `_verified`. All files are read back by what wrote them,
    and the smallest by Iceberg too, as every reader will."""
    held = position_files.read(attempt.spark, table, added)
    if held is None:
        raise replacement.mismatch(attempt, "what was written cannot be read back")
    apart = position_files.difference(wanted, held)
    _require_same(attempt, apart.every, apart.missing, apart.foreign, apart.repeated)
    if added:
        _require_readable(attempt, table, min(added, key=lambda file: file.rows), wanted)
    return apart.every


def _require_readable(attempt: Attempt, table: Any, file: DeleteFile, wanted: Positions) -> None:
    spark, rows = attempt.spark, wanted[file.data_file]
    held = position_sets.merged(spark, position_sets.stored(spark, table, [file.java]))
    index, some = held.of(file.data_file), rows[:: -(-len(rows) // SAMPLE)].tolist()
    if (
        index is None
        or int(index.cardinality()) != len(rows)
        or not all(index.isDeleted(position) for position in some)
    ):
        raise replacement.mismatch(attempt, "Iceberg reads other positions than were written")


def _verified_sets(
    attempt: Attempt, table: Any, wanted: PositionSets, added: Sequence[DeleteFile]
) -> int:
    """Return the number of positions, as `_verified`: what the written files hold is compared with
    what readers applied, data file by data file."""
    spark = attempt.spark
    held = position_sets.stored(spark, table, [file.java for file in added])
    found = position_sets.merged(spark, held)
    rows = position_sets.stored_rows(spark, table, added)
    apart = position_sets.difference(spark, wanted, found, rows)
    _require_same(attempt, apart.every, apart.missing, apart.foreign, apart.repeated)
    return apart.every


def _verified(
    attempt: Attempt,
    table: Any,
    base: str,
    tasks: ScanTasks,
    sources: Sequence[DeleteFile],
    added: Sequence[Any],
) -> int:
    """Return the number of positions. Raises VerificationError unless the new delete files hold
    exactly the positions that a reader applied, each once."""
    from pyspark.sql import functions as f

    spark = attempt.spark
    javas = [file.java for file in sources]
    with (
        positions.in_delete_files(spark, table, f"{base}/before", javas) as stored,
        positions.in_delete_files(spark, table, f"{base}/after", added) as written,
    ):
        before = positions.that_apply(spark, stored, tasks, sources)
        both = before.select(positions.FILE, positions.POSITION, f.lit(0).alias("new")).union(
            written.select(positions.FILE, positions.POSITION, f.lit(1).alias("new"))
        )
        each = both.groupBy(positions.FILE, positions.POSITION).agg(
            f.min("new").alias("lowest"), f.sum("new").alias("times")
        )
        row = each.agg(
            f.count(f.lit(1)).alias("all"),
            f.count_if(f.col("times") == 0).alias("missing"),
            f.count_if(f.col("lowest") == 1).alias("foreign"),
            f.count_if(f.col("times") > 1).alias("repeated"),
        ).first()
    _require_same(attempt, row.all, row.missing, row.foreign, row.repeated)
    return int(row.all)


def _require_same(attempt: Attempt, every: int, missing: int, foreign: int, repeated: int) -> None:
    if missing or foreign or repeated:
        what = (
            f"of {count(every)} positions {count(missing)} were not written, "
            f"{count(foreign)} were not deleted before, {count(repeated)} were written twice"
        )
        raise replacement.mismatch(attempt, what)
