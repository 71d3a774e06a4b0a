"""Why a file could not be compared or rewritten, in words that quote no value of the table.

Engine, witness and what ships their work use them: what concerns one file is noted beside others,
what may concern all of them ends the run.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from reconciler.errors import first_line
from reconciler.rewrite.columns import Unreadable
from reconciler.rewrite.storage import local_path

log = logging.getLogger(__name__)
LZ4 = "LZ4"
"""What DuckDB's errors say of Hadoop's frames, which it does not know."""
HOLDS, MISSING, MEMORY, STORAGE = "holds", "missing", "memory", "storage"
UNFIT, BROKEN, ENDED, LOST = "unfit", "broken", "ended", "lost"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a file could not be compared, or rewritten."""

    path: str
    """"" where it concerns no file of its own."""
    column: str
    """Dotted name, "" if it concerns the file as a whole."""
    detail: str
    """A clause without values of the table."""
    kind: str = HOLDS
    """HOLDS: it holds what cannot be compared. MISSING: it does not exist. MEMORY: there was too
    little of it. STORAGE: its storage, or that of scratch, gave an error. UNFIT: nothing is wrong
    with it, but the engine cannot rewrite it. BROKEN: the engine failed by an error of its own.
    ENDED: a process ended with its machine or for want of memory, and was not begun again. LOST:
    processes ended with their machines, and none for want of memory."""
    said: str = ""
    """What a decoder said, which may hold values of the table."""
    number: int = 0
    """The system's number of an error of a storage (`errno`), 0 if it has none."""


class Stopped(Exception):
    """The work was asked to stop before it was done: nobody needs it any more."""


class Refused(Exception):
    """Raised for files that could not be compared."""

    def __init__(self, *failures: Failure) -> None:
        super().__init__(*failures)
        self.failures = failures


@contextlib.contextmanager
def collected(failures: list[Failure]) -> Iterator[None]:
    """Note files that hold what cannot be compared, so that others are looked at too. What may
    concern all of them is raised."""
    try:
        yield
    except Refused as refused:
        if any(one.kind != HOLDS for one in refused.failures):
            raise
        failures += refused.failures


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Whatever fails is this delete file's failure."""
    try:
        yield
    except Exception as error:
        if LZ4 in str(error):
            raise  # its files are recoded, and read once more
        raise Refused(failure_of(path, error)) from error


def failure_of(path: str, error: Exception) -> Failure:
    """Return what an error says of a file, which it need not name. Raises it if it is no error of
    a file, of memory or of a storage."""
    import duckdb

    if isinstance(error, FileNotFoundError):
        return Failure(str(error.filename or path), "", "the file does not exist", MISSING)
    if isinstance(error, Unreadable):
        return Failure(path, error.column, error.detail)
    if isinstance(error, (duckdb.OutOfMemoryException, MemoryError)):
        return Failure(path, "", first_line(error), MEMORY)
    if isinstance(error, (duckdb.IOException, OSError)):
        local = local_path(path)
        if local is not None and not local.exists():
            return Failure(path, "", "the file does not exist", MISSING)
        return Failure(path, "", first_line(error), STORAGE)
    if isinstance(error, (duckdb.Error, ValueError)):
        log.warning("%s: %s", path, error)
        return Failure(path, "", _why(error))
    raise error


def _why(error: Exception) -> str:
    """Return why a file cannot be read. The message of another library is for the log alone: it
    quotes values of the table, and this goes to ledgers, plans and conditions."""
    if "not valid UTF8" in str(error):
        return "text that is not UTF-8"
    if type(error) is ValueError:
        return first_line(error)
    return f"its values cannot be read ({type(error).__name__}); the log of the run has the reason"
