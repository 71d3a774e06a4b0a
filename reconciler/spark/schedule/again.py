"""Spark tasks whose process died: they are done again only once the budgets cover what they read
once more.

Spark begins such a task again by itself, and so does its speculation. That attempt reads nothing,
and the driver reserves the bytes before it runs the task in a job of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from reconciler.rewrite.failures import ENDED, LOST, MEMORY, Failure

if TYPE_CHECKING:
    from reconciler.engines.schedule.attempt import Attempt

MOST_TASKS = 100_000
"""Most tasks of a stage that are asked about: Spark remembers no more."""
TRIES = 4
"""Most times that a task is begun, as many as Spark allows one."""
DIED = "a process that ran it ended, for want of memory or with its machine"
WITH_MACHINE = "a process that ran it ended with its machine"
Input = TypeVar("Input")
Result = TypeVar("Result")


def repeated(
    attempt: Attempt,
    context: Any,
    name: str,
    sizes: Sequence[int],
    run: Callable[[Sequence[int]], Sequence[Result | Failure | None]],
) -> list[Result | Failure]:
    """Return what each task made, in their order. Those that died are done again while the budgets
    cover that their inputs are read once more.

    name: of the group of Spark jobs. sizes: bytes that each task reads. run: runs the tasks of
    these numbers, and returns None for each that died.
    """
    found: list[Result | Failure | None] = [None] * len(sizes)
    left, kind, why = list(range(len(sizes))), MEMORY, f" {TRIES} times"
    for number in range(TRIES):
        size = sum(sizes[at] for at in left)
        if number and not attempt.repeats(name.rpartition("/")[0], size):
            kind, why = ENDED, ", and the budget does not cover reading its files once more"
            break
        for at, one in zip(left, run(left), strict=True):
            found[at] = one
        left = [at for at in left if found[at] is None]
        if not left:
            break
    died = DIED
    if left and _with_machines(context, name):
        kind, died = LOST, WITH_MACHINE
    return [Failure("", "", died + why, kind) if one is None else one for one in found]


def _with_machines(context: Any, name: str) -> bool:
    """Whether Spark says of every task that failed in the group's jobs that its executor's machine
    was lost. False if it says nothing."""
    from reconciler.spark.session.translate import lost_machine  # no task needs it

    messages: list[str] = []
    with contextlib.suppress(Exception):  # where Spark does not answer, nothing is known
        tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(name)]
        for stage in (stage for job in jobs for stage in job.stageIds):
            tasks = store.taskList(stage, 0, MOST_TASKS).iterator()
            while tasks.hasNext():
                error = tasks.next().errorMessage()
                messages += [str(error.get())] if error.isDefined() else []
    return bool(messages) and all(lost_machine(message) for message in messages)


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
