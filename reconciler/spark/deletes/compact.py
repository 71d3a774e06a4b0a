"""Compacts position deletes: one delete file per data file, no data file opened.

Section 5 of the paper on row-level operations calls it a minor compaction. On format 3 the outcome
are vectors, which also take in what else applies to their data file, because a vector hides it.
The witness (`witnessing.same_deletes`) compares what is hidden before and after.
"""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.engines.delete_file import DeleteFile
from reconciler.spark.deletes import by_engine
from reconciler.spark.deletes.by_engine import VECTORS_VERSION, Wanted
from reconciler.spark.deletes.replacement import Replacement
from reconciler.spark.schedule import scan
from reconciler.spark.schedule.attempt import Attempt
from reconciler.spark.session import iceberg


def replacement_for(
    attempt: Attempt, base: str, inputs: Sequence[DeleteFile], files: Sequence[DeleteFile]
) -> Replacement:
    """Write what takes the place of the inputs. files: all of the snapshot."""
    named = {file.path for file in inputs}
    tasks = scan.tasks_under(attempt.spark, attempt.table, attempt.snapshot_id, named)
    if not tasks:
        return Replacement(tasks, (), inputs, "they apply to no data file")
    vectors = iceberg.format_version(attempt.table) >= VECTORS_VERSION
    sources = [file for file in files if not file.keys] if vectors else list(inputs)
    applied = by_engine.applied(attempt.spark, tasks, sources)
    made = by_engine.written(
        attempt, base, tasks, {path: Wanted(own) for path, own in applied.items()}
    )
    folded = [f for f in sources if f.data_file in tasks and f.path not in named]
    return Replacement(tasks, made.files, [*inputs, *folded], metrics=made.spent)
