"""Delete files that take the place of others, before they are verified and committed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reconciler.engines.commit.cleanup import check_prefix, discard
from reconciler.engines.delete_file import DeleteFile
from reconciler.engines.manifests import Tasks
from reconciler.engines.schedule.attempt import Attempt
from reconciler.errors import VerificationError
from reconciler.format import count


@dataclass(frozen=True, slots=True)
class Replacement:
    """Delete files that take the place of others, and what was compared and spent."""

    tasks: Tasks | None = None
    """Every data file to which an added or removed delete file applies; None if none was looked
    for."""
    added: Sequence[DeleteFile] = ()
    """The new delete files."""
    removed: Sequence[DeleteFile] = ()
    """The delete files that they replace, or that go without a replacement."""
    proof: str = ""
    """What was compared, for people; "" before it was."""
    cpu_seconds: float = 0.0
    """CPU seconds of the tasks that read and write."""
    verify_cpu_seconds: float = 0.0
    """CPU seconds of the tasks that verify."""
    seconds: float = 0.0
    """Elapsed seconds of all of it; 0 before it was verified."""


@contextlib.contextmanager
def uncommitted(attempt: Attempt, paths: Sequence[str]) -> Iterator[None]:
    """Delete the new files if anything fails before the end."""
    try:
        check_prefix(attempt, paths)
        yield
    except BaseException:
        discard(attempt.table, sorted(set(paths)))
        raise


def mismatch(attempt: Attempt, what: str) -> VerificationError:
    return VerificationError(
        f"verification of {attempt.name} failed: {what}",
        details=("No delete file was replaced; what was written was removed.",),
        do="keep the plan and report it as a bug; no row of the table was changed",
    )


def compared(number: int) -> str:
    """`verify deleted rows 1,200 = 1,200`."""
    return f"verify deleted rows {count(number)} = {count(number)}"
