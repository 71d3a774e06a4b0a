"""Finds the unreadable input of a group: errors of Spark and Parquet seldom name the file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial

from reconciler.catalog.listing import changed_ms
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.refused import DamagedInputError
from reconciler.engines.schedule.vanished import LEFT_ALONE, RESTORE
from reconciler.engines.task_file import Deletes
from reconciler.errors import InternalError, ReconcilerError, TableDamagedError
from reconciler.rewrite.storage import local_path
from reconciler.spark.commit.table import java_of, spark_of
from reconciler.spark.fallback import stage
from reconciler.spark.schedule.scan import ScanTasks
from reconciler.spark.session.translate import is_missing_file, translate
from reconciler.table.refusals import DAMAGED, Refusal

MOST_NAMED = 3
"""Delete files that a message names: any of them may be the unreadable one."""


def pinpointed(
    attempt: Attempt, number: int, tasks: ScanTasks, error: Exception
) -> DamagedInputError | None:
    """Return the error of group `number` with the file that caused it, found by reading its inputs
    again.

    They are read about once more. None if no file causes it, or if the error names the file. A
    missing file is not handled here: another writer may have removed it, which is a conflict.
    """
    doing = f"rewrite {attempt.name}"
    if isinstance(error, ReconcilerError):
        return None
    mapped, paths = translate(error, doing), sorted(tasks)
    if not may_be_damage(error, mapped) or is_missing_file(error):
        return None
    if any(path in mapped.render() for path in paths):
        return None
    path = None
    readable = partial(_is_readable, attempt, f"{attempt.id}/{number}/damage", tasks)
    with contextlib.suppress(Exception):  # of a run that is being stopped, for one
        path = first_unreadable(paths, readable, surely=isinstance(mapped, TableDamagedError))
    if path is None:
        return None
    deletes = _files_of(tasks[path].deletes)
    or_deletes = ", or a delete file on it," if deletes else ""
    details = (
        mapped.details if isinstance(mapped, TableDamagedError) else (*mapped.details, LEFT_ALONE)
    )
    changed = _changed_ms(attempt, path)
    return DamagedInputError(
        f"could not {doing}: {path}{or_deletes} cannot be read",
        said=mapped.said,
        details=(*_listed(deletes), *details),
        do=RESTORE,
        refusals=(Refusal(path, DAMAGED, "", f"it{or_deletes} cannot be decoded", changed),),
    )


def _is_readable(attempt: Attempt, set_id: str, tasks: ScanTasks, some: Sequence[str]) -> bool:
    """Return whether Spark reads these inputs, with their deletes. set_id: of their tasks."""
    spark = spark_of(attempt)
    with stage.staged(spark, java_of(attempt.table), set_id, tasks.java_tasks(some)):
        try:
            stage.read(spark, set_id).write.format("noop").mode("overwrite").save()
        except Exception as again:
            if not may_be_damage(again, translate(again, f"rewrite {attempt.name}")):
                raise
            return False
    return True


def _changed_ms(attempt: Attempt, path: str) -> int:
    """Return when the file had changed last, 0 if its storage does not say."""
    with contextlib.suppress(Exception):
        return changed_ms(None if local_path(path) else attempt.opening().open(path), path)
    return 0


def _files_of(deletes: Deletes) -> list[str]:
    return sorted({path for path, _ in deletes.positions} | deletes.equality)


def _listed(deletes: Sequence[str]) -> tuple[str, ...]:
    if not deletes:
        return ()
    shown, rest = ", ".join(deletes[:MOST_NAMED]), len(deletes) - MOST_NAMED
    more = f" and {rest} more" if rest > 0 else ""
    return (f"Its {'delete file is' if len(deletes) == 1 else 'delete files are'} {shown}{more}.",)


def may_be_damage(error: Exception, mapped: ReconcilerError) -> bool:
    """Whether damage may be the cause: decoders raise almost any error for invalid data.

    Errors that Spark raises before it reads, and the end of a cancelled job, are excluded.
    """
    from pyspark.errors import AnalysisException

    if isinstance(error, AnalysisException):
        return False
    if isinstance(mapped, InternalError):
        return not any("cancelled" in detail.lower() for detail in mapped.details)
    return type(mapped) is TableDamagedError


def first_unreadable(
    paths: Sequence[str], readable: Callable[[Sequence[str]], bool], *, surely: bool
) -> str | None:
    """Return the first path that cannot be read, by halves; None if all of them can.

    surely: the error indicates damage. Any other error may come from the storage: then a file is
    blamed only if another one can be read.
    """
    if readable(paths):
        return None
    left = paths
    while len(left) > 1:
        half = left[: len(left) // 2]
        left = left[len(half) :] if readable(half) else half
    if len(paths) > 1 and readable(left):
        return None
    others = [path for path in paths if path != left[0]][:1]
    if surely or (others and readable(others) and not readable(left)):
        return left[0]
    return None
