"""Compacts position deletes: one delete file per data file, no data file opened.

Section 5 of the paper on row-level operations calls it a minor compaction. On format 3 the outcome
are vectors, which also take in what else applies to their data file, because a vector hides it.
The witness (`witnessing.same_deletes`) compares what is hidden before and after.
"""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.engines.delete_file import VECTORS_VERSION, DeleteFile
from reconciler.engines.deletes import writing
from reconciler.engines.deletes.replacement import Replacement
from reconciler.engines.deletes.wanted import Wanted
from reconciler.engines.schedule.attempt import Attempt


def replacement_for(
    attempt: Attempt, base: str, inputs: Sequence[DeleteFile], files: Sequence[DeleteFile]
) -> Replacement:
    """Write what takes the place of the inputs. files: all of the snapshot."""
    named = {file.path for file in inputs}
    tasks = attempt.table.tasks_under(attempt.snapshot_id, named)
    if not tasks:
        return Replacement(tasks, (), inputs, "they apply to no data file")
    vectors = attempt.table.format_version() >= VECTORS_VERSION
    sources = [file for file in files if not file.keys] if vectors else list(inputs)
    applied = attempt.table.applied(tasks, sources)
    wanted = {path: Wanted(own) for path, own in applied.items()}
    made = writing.written(attempt, base, tasks, wanted)
    folded = [f for f in sources if f.data_file in tasks and f.path not in named]
    return Replacement(tasks, made.files, [*inputs, *folded], cpu_seconds=made.cpu_seconds)
