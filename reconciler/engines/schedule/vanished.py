"""A file that is missing when it is read: damage, or a conflict with the writer that removed it.

Another writer may replace files and expire the snapshots that held them while a rewrite reads. The
table is healthy then: its head, loaded again, needs none of the files that are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from reconciler.engines.engine_errors import Errors
from reconciler.engines.table import Table
from reconciler.engines.task_file import TaskFile
from reconciler.errors import FileMissingError, ReconcilerError, TableDamagedError

LEFT_ALONE = "Nothing of this step was committed; what was committed before stays."
RESTORE = "restore the file, or roll the table back to a snapshot that does not need it"

Result = TypeVar("Result")


def again(errors: Errors, read: Callable[[], Result]) -> Result:
    """The result of reading the current metadata. What was removed while it was read, because
    another writer moved the head on, is read once more from the new head."""
    try:
        return read()
    except Exception as error:
        if not may_have_vanished(errors, error):
            raise
        return read()


def may_have_vanished(errors: Errors, error: BaseException) -> bool:
    """Whether the error says that a file was not found."""
    if isinstance(error, ReconcilerError):
        return isinstance(error, FileMissingError)
    return not errors.lost(error) and errors.is_missing_file(error)


def require_files(
    table: Table, needed_on: Callable[[int], Iterable[str]], error: BaseException, shown: str
) -> None:
    """Raises TableDamagedError if the current head needs a file that does not exist.

    needed_on: returns the files that a snapshot, by its id, needs. error: what reading them ended
    in. Of the files that it names only those are looked for; of all where it names none. A head
    whose own manifests are missing raises what the engine does.
    """
    table.refresh()
    head = table.head()
    if head is None:
        return
    needed = dict.fromkeys(needed_on(head))
    text = table.errors.text(error)
    named = [path for path in needed if path in text]
    for path in named or needed:
        if not table.has_file(path):
            raise TableDamagedError(
                f"could not rewrite {shown}: a file that the table refers to is missing: {path}",
                details=("The table's current snapshot needs it.", LEFT_ALONE),
                do=RESTORE,
            ) from error


def files_of(file: TaskFile) -> Iterable[str]:
    """The data file, and the delete files that its readers apply."""
    yield file.path
    yield from (path for path, _ in file.deletes.positions)
    yield from file.deletes.equality
