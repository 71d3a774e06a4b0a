"""What a process of an engine calls: a task's work, whose failures come back as values.

The process imports this module and what it needs, and nothing of who planned the task: that took
half as long again as Arrow and DuckDB, in each process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from reconciler.api.task_memory import Limits
from reconciler.errors import first_line
from reconciler.rewrite import hidden, rewriting, witness
from reconciler.rewrite.comparison import Check, WitnessResult, WitnessWork
from reconciler.rewrite.failures import BROKEN, MEMORY, MISSING, STORAGE, UNFIT, Failure
from reconciler.rewrite.read import Damaged
from reconciler.rewrite.storage import Opening
from reconciler.rewrite.task import Made, Resources, Task, Unfit

log = logging.getLogger(__name__)
T = TypeVar("T")


def rewritten(
    task: Task,
    opening: Opening | None,
    resources: Resources,
    check: Check | None,
    stopping: Callable[[], bool] = lambda: False,
    attempt: str = "0",
) -> Made | Failure:
    """Return what a task made, or why it made nothing; arguments as of `rewriting.rewritten`."""
    return _guarded(lambda: rewriting.rewritten(task, opening, resources, stopping, attempt, check))


def found(
    task: hidden.Task,
    opening: Opening | None,
    stopping: Callable[[], bool] = lambda: False,
    attempt: str = "0",
) -> hidden.Found | Failure:
    """Return which rows are hidden, or why that was not found; arguments as of `hidden.found`."""
    return _guarded(lambda: hidden.found(task, opening, stopping, attempt))


def seen(work: WitnessWork, opening: Opening | None, limits: Limits) -> WitnessResult:
    """Return what the witness finds in all files of the work; whatever it fails by is in it."""
    numbers = range(len(work.files or work.exchanges))
    found = _guarded(lambda: witness.witnessed(work, numbers, opening, limits))
    return WitnessResult(failures=(found,)) if isinstance(found, Failure) else found


def _guarded(work: Callable[[], T]) -> T | Failure:
    """Return what the work does, or why it failed, as a value for another process."""
    try:
        return work()
    except FileNotFoundError as error:
        return Failure(str(error.filename), "", "the file does not exist", MISSING)
    except Damaged as error:
        return Failure(error.path, error.column, error.detail, said=error.said)
    except Unfit as error:
        return Failure("", "", str(error), UNFIT)
    except MemoryError as error:
        return Failure("", "", first_line(error) or type(error).__name__, MEMORY)
    except OSError as error:
        detail = first_line(error) or type(error).__name__
        return Failure("", "", detail, STORAGE, number=error.errno or 0)
    except rewriting.Failed as failed:
        return _broken(failed.path, failed.__cause__ or failed)
    except rewriting.OWN_ERRORS as error:
        return _broken("", error)


def _broken(path: str, error: BaseException) -> Failure:
    log.error("the engine failed", exc_info=error)
    return Failure(path, "", type(error).__name__, BROKEN, first_line(error))
