"""What errors of Python's libraries mean where there is no JVM (`engines.engine_errors`)."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from reconciler.catalog import failures
from reconciler.engines.local.pool import Killed
from reconciler.engines.schedule.vanished import LEFT_ALONE, RESTORE
from reconciler.errors import (
    AccessDeniedError,
    InternalError,
    ReconcilerError,
    TableDamagedError,
    TableNotFoundError,
    UnavailableError,
)
from reconciler.rewrite.rewriting import OWN_ERRORS

FULL = (errno.ENOSPC, errno.EDQUOT)
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
MOST_CAUSES = 16


def lost(error: BaseException) -> bool:
    """Return False: commits are sent by this process itself."""
    return False


def message(error: BaseException) -> str:
    return error.what if isinstance(error, ReconcilerError) else failures.said(error)


def text(error: BaseException) -> str:
    return " | ".join(f"{type(one).__name__}: {one}" for one in _causes(error))


def error_class(error: BaseException) -> str:
    return type(error).__name__


def is_missing_file(error: BaseException) -> bool:
    return any(isinstance(one, FileNotFoundError) for one in _causes(error))


def is_missing_table(error: BaseException) -> bool:
    return any(
        isinstance(one, TableNotFoundError) or type(one).__name__ == "NoSuchTableError"
        for one in _causes(error)
    )


def is_unwritable(error: BaseException) -> bool:
    return _has(error, (*FULL, *REFUSED))


def translate(error: BaseException, doing: str) -> ReconcilerError:
    if isinstance(error, ReconcilerError):
        return error
    if is_missing_file(error):
        return TableDamagedError(
            f"could not {doing}: a file that the table refers to is missing",
            said=(failures.said(error),),
            details=(LEFT_ALONE,),
            do=RESTORE,
        )
    if isinstance(error, Killed):
        return UnavailableError(
            f"could not {doing}: a process that worked on it ended",
            said=(str(error),),
            details=("Nothing half-written is in the table.",),
            do="run the command again; see the system's log for who ended it",
        )
    if type(error).__module__.startswith("sqlalchemy."):
        return UnavailableError(
            f"could not {doing}: the catalog's database did not carry a statement out",
            said=(failures.said(error),),
            details=("Nothing of this step was committed.",),
            do="run the command again when the database answers",
        )
    if _has(error, FULL):
        return UnavailableError(
            f"could not {doing}: no space left on the device",
            details=("Rows need room in the temporary directory, and files where the table is.",),
            do="free space, or point TMPDIR to a larger disk, then run the command again",
        )
    if _has(error, REFUSED):
        return AccessDeniedError(
            f"could not {doing}: the storage does not allow it",
            said=(failures.said(error),),
            do="check that the place named above can be written to, then run the command again",
        )
    if isinstance(error, OWN_ERRORS) or not isinstance(error, Exception):
        raise error
    return InternalError(
        f"could not {doing}",
        said=(failures.said(error),),
        do="nothing of this step was committed; if it fails again, report it with the run's log",
    )


def _has(error: BaseException, numbers: tuple[int, ...]) -> bool:
    return any(isinstance(one, OSError) and one.errno in numbers for one in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen and len(seen) < MOST_CAUSES:
        seen.append(cause)
        yield cause
        cause = cause.__cause__ or cause.__context__
