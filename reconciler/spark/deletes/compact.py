"""Compacts position deletes: one delete file per data file, no data file opened.

Section 5 of the paper on row-level operations calls it a minor compaction. On format 3 the outcome
are vectors, which also take in what else applies to their data file, because a vector hides it.
The witness (`witnessing.same_deletes`) compares what is hidden before and after. One check stays
here, which it cannot do: of files that Arrow encoded, Iceberg's own library reads one, since all
readers of the table will, and neither Arrow nor the witness's DuckDB is that library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reconciler.spark.deletes import (
    delete_files,
    position_files,
    position_sets,
    positions,
    replacement,
    write_deletes,
)
from reconciler.spark.deletes.delete_files import DeleteFile
from reconciler.spark.deletes.position_files import Positions
from reconciler.spark.deletes.replacement import Replacement
from reconciler.spark.schedule import scan
from reconciler.spark.schedule.attempt import Attempt
from reconciler.spark.schedule.partitions import Place
from reconciler.spark.schedule.scan import ScanTasks
from reconciler.spark.session import iceberg, metrics

WHAT = "CompactDeletes"
SAMPLE = 16
"""Positions that are asked for in the file that Iceberg reads back."""


def replacement_for(
    attempt: Attempt, base: str, inputs: Sequence[DeleteFile], files: Sequence[DeleteFile]
) -> Replacement:
    """Write what takes the place of the inputs. files: all of the snapshot."""
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
        return Replacement(tasks, replacement.described(attempt, added), removed)


def _in_columns(
    attempt: Attempt,
    table: Any,
    tasks: ScanTasks,
    sources: Sequence[DeleteFile],
    removed: Sequence[DeleteFile],
) -> Replacement | None:
    """Read and write as columns, on format 2; None if Arrow does not take the files."""
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
    with replacement.uncommitted(attempt, made) as added:
        found = replacement.described(attempt, added)
        if found:
            _require_readable(attempt, table, min(found, key=lambda file: file.rows), wanted)
    return replacement.of_driver(attempt, tasks, found, removed, begun)


def _on_driver(
    attempt: Attempt,
    table: Any,
    tasks: ScanTasks,
    sources: Sequence[DeleteFile],
    removed: Sequence[DeleteFile],
) -> Replacement:
    """Read and write in the driver's JVM, without a Spark job."""
    spark = attempt.spark
    begun = metrics.driver_cpu_seconds(spark)
    wanted = position_sets.applied(spark, table, tasks, sources)
    made = write_deletes.on_driver(spark, table, tasks, wanted)
    with replacement.uncommitted(attempt, made) as added:
        found = replacement.described(attempt, added)
    return replacement.of_driver(attempt, tasks, found, removed, begun)


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
