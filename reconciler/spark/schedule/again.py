"""Spark tasks whose process died: they are done again only once the budgets cover what they read
once more.

Spark begins such a task again by itself, and so does its speculation. That attempt reads nothing,
and the driver reserves the bytes before it runs the task in a job of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from reconciler.rewrite.failures import ENDED, MEMORY, Failure

if TYPE_CHECKING:
    from reconciler.engines.schedule.attempt import Attempt

TRIES = 4
"""Most times that a task is begun, as many as Spark allows one."""
DIED = "a process that ran it ended, for want of memory or with its machine"
Input = TypeVar("Input")
Result = TypeVar("Result")


def repeated(
    attempt: Attempt,
    name: str,
    sizes: Sequence[int],
    run: Callable[[Sequence[int]], Sequence[Result | Failure | None]],
) -> list[Result | Failure]:
    """Return what each task made, in their order. Those that died are done again while the budgets
    cover that their inputs are read once more.

    name: of the Spark job. sizes: bytes that each task reads. run: runs the tasks of these numbers,
    and returns None for each that died.
    """
    found: list[Result | Failure | None] = [None] * len(sizes)
    left, kind, why = list(range(len(sizes))), MEMORY, f"{DIED} {TRIES} times"
    for number in range(TRIES):
        size = sum(sizes[at] for at in left)
        if number and not attempt.repeats(name.rpartition("/")[0], size):
            kind, why = ENDED, f"{DIED}, and the budget does not cover reading its files once more"
            break
        for at, one in zip(left, run(left), strict=True):
            found[at] = one
        left = [at for at in left if found[at] is None]
        if not left:
            break
    return [Failure("", "", why, kind) if one is None else one for one in found]


def first_only(work: Callable[[Input], Result]) -> Callable[[Input], Result | None]:
    """Return the function of a Spark task that does the work in the task's first attempt, and
    returns None in any other without reading: that reading is not reserved."""

    def once(given: Input) -> Result | None:
        return None if begun_before() else work(given)

    return once


def begun_before() -> bool:
    """Whether an earlier attempt at the Spark task that runs this has begun."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


def task_attempt() -> str:
    """Return the name of the attempt of a Spark task that runs this."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return "0" if context is None else str(context.taskAttemptId())
