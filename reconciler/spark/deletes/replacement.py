"""Delete files that take the place of others, before they are verified and committed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.engines.delete_file import DeleteFile
from reconciler.errors import VerificationError
from reconciler.format import count
from reconciler.spark.deletes import delete_files
from reconciler.spark.fallback import stage
from reconciler.spark.schedule import write
from reconciler.spark.schedule.attempt import Attempt
from reconciler.spark.schedule.scan import ScanTasks
from reconciler.spark.session.metrics import TaskMetrics


@dataclass(frozen=True, slots=True)
class Replacement:
    """Delete files that take the place of others, and what was compared and spent."""

    tasks: ScanTasks | None = None
    """Every data file to which an added or removed delete file applies; None if none was looked
    for."""
    added: Sequence[DeleteFile] = ()
    """The new delete files."""
    removed: Sequence[DeleteFile] = ()
    """The delete files that they replace, or that go without a replacement."""
    proof: str = ""
    """What was compared, for people; "" before it was."""
    metrics: TaskMetrics = field(default_factory=TaskMetrics)
    """What Spark's tasks spent on reading and writing."""
    verify_metrics: TaskMetrics = field(default_factory=TaskMetrics)
    """What Spark's tasks spent on verifying."""
    seconds: float = 0.0
    """Elapsed seconds of all of it; 0 before it was verified."""

    @property
    def rows(self) -> int:
        """Deleted positions in the added files."""
        return sum(file.rows for file in self.added)


def output_table(attempt: Attempt) -> Any:
    """Return the table as of the attempt, with the attempt's directory for what is written."""
    return stage.overridden(attempt.spark, attempt.table, {stage.DATA_PATH: attempt.prefix})


@contextlib.contextmanager
def uncommitted(attempt: Attempt, files: list[Any]) -> Iterator[list[Any]]:
    """Delete the new files (org.apache.iceberg.DeleteFile) if anything fails before the end."""
    try:
        write.check_prefix(attempt, files)
        yield files
    except BaseException:
        with contextlib.suppress(Exception):
            write.discard(attempt.table, sorted({str(file.location()) for file in files}))
        raise


def described(attempt: Attempt, files: Sequence[Any]) -> list[DeleteFile]:
    return delete_files.written(attempt.spark, attempt.table, files)


def mismatch(attempt: Attempt, what: str) -> VerificationError:
    return VerificationError(
        f"verification of {attempt.name} failed: {what}",
        details=("No delete file was replaced; what was written was removed.",),
        do="keep the plan and report it as a bug; no row of the table was changed",
    )


def compared(number: int) -> str:
    """`verify deleted rows 1,200 = 1,200`."""
    return f"verify deleted rows {count(number)} = {count(number)}"
