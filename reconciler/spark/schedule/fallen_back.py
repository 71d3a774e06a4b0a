"""Has a group written by Spark, which the engine cannot write as the table asks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, cast

from reconciler.engines.commit.cleanup import check_prefix, discard
from reconciler.engines.manifests import WrittenFile
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.group import Group
from reconciler.engines.schedule.group_rewrite import GroupRewrite
from reconciler.engines.schedule.write import own_output
from reconciler.spark.commit.reading import written_files
from reconciler.spark.commit.table import catalog_of, java_of, spark_of
from reconciler.spark.fallback import fallback, stage, uuid_bounds
from reconciler.spark.schedule.scan import ScanTasks


def overridden(attempt: Attempt, changes: Mapping[str, str]) -> Any:
    """Return the attempt's table with changed properties, made once for the same changes."""
    return attempt.once(
        f"table with {sorted(changes.items())}",
        lambda: stage.overridden(spark_of(attempt), java_of(attempt.table), changes),
    )


@contextlib.contextmanager
def written_by_spark(rewrite: GroupRewrite) -> Iterator[tuple[WrittenFile, ...]]:
    """Provide files that Spark wrote; they are deleted if anything fails meanwhile."""
    attempt, group, base = rewrite.attempt, rewrite.group, rewrite.base
    table, tasks = overridden(attempt, rewrite.changes), cast(ScanTasks, rewrite.tasks)
    with stage.rewriting(spark_of(attempt), table, f"{base}/out") as new_files:
        try:
            _job_group(attempt, group, f"{base}/write")
            with fallback.Source(spark_of(attempt), table, base, tasks) as source:
                frame = fallback.arranged(source, group, catalog_of(attempt.table))
                into, order = group.action.into, rewrite.order_id
                stage.write(frame, f"{base}/out", into, stage.WHOLE_FILE, order)
            files = tuple(new_files())
            check_prefix(attempt, [str(file.location()) for file in files])
            with own_output(attempt):
                files = uuid_bounds.corrected(spark_of(attempt), table, files)
            yield written_files(spark_of(attempt), table, files)
        except BaseException:
            with contextlib.suppress(Exception):
                discard(attempt.table, [str(file.location()) for file in new_files()])
            raise


def _job_group(attempt: Attempt, group: Group, name: str) -> None:
    description = f"layoutctl {group.action.kind} {attempt.name}"
    spark_of(attempt).sparkContext.setJobGroup(name, description)
