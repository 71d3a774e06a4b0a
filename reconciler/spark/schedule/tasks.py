"""Where the engine's tasks run: by threads of the driver with a local master, else by Python
processes of executors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.native import GroupPlan
from reconciler.rewrite import task_calls
from reconciler.rewrite.failures import MEMORY, Failure
from reconciler.rewrite.storage import Opening
from reconciler.rewrite.task import Made, Resources
from reconciler.spark.commit.table import spark_of
from reconciler.spark.schedule import witness_work
from reconciler.spark.session import resources

TRIES = 4
"""Most times that a task is begun, as many as Spark allows one."""
DIED = "a process that ran it ended, for want of memory or with its machine"


def run(attempt: Attempt, name: str, plan: GroupPlan) -> Made | Failure:
    """Return what a task made, or why it made nothing. name: of the Spark job."""
    if by_driver(spark_of(attempt), plan.opening):
        return task_calls.rewritten(*plan.work, attempt.cancelled.is_set)
    return _on_executor(attempt, name, plan)


def resources_of(spark: Any, opening: Opening | None, threads: int) -> Resources:
    """Return what a task may use. threads: of the driver, if it runs there."""
    if by_driver(spark, opening):
        return resources.of_driver(spark, threads)
    return resources.of_executor(spark)


def more(spark: Any, opening: Opening | None, one: Resources, needed: int) -> Resources:
    """Return what a task may use that takes as many slots of an executor as have these bytes, all
    of them if they do not suffice; of the driver there is no more."""
    if by_driver(spark, opening):
        return one
    cpus = -(-needed // one.memory_bytes)
    return resources.of_executor(spark, min(cpus, resources.slots(spark)))


def by_driver(spark: Any, opening: Opening | None) -> bool:
    return bool(spark.local) or witness_work.is_signed(opening)


def _on_executor(attempt: Attempt, name: str, plan: GroupPlan) -> Made | Failure:
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    context = spark_of(attempt).sparkContext
    witness_work.use_this_python(context)
    context.setJobGroup(name, f"layoutctl rewrite {attempt.name}")
    work = _working(plan)
    rdd = context.parallelize([0], 1)
    if plan.resources.threads > 1:
        cpus = TaskResourceRequests().cpus(plan.resources.threads)
        rdd = rdd.withResources(ResourceProfileBuilder().require(cpus).build)
    return repeated(attempt, name, plan, lambda: rdd.map(work).collect()[0])


def repeated(
    attempt: Attempt, name: str, plan: GroupPlan, run: Callable[[], Made | Failure | None]
) -> Made | Failure:
    """Return what a task made. One that died is done again while the budgets cover that its inputs
    are read once more. run: runs it; None if it died."""
    for number in range(TRIES):
        if number and not attempt.repeats(name.rpartition("/")[0], _bytes(plan)):
            text = f"{DIED}, and the budget does not cover reading its files once more"
            return Failure("", "", text, MEMORY)
        found = run()
        if found is not None:
            return found
    return Failure("", "", f"{DIED} {TRIES} times", MEMORY)


def _bytes(plan: GroupPlan) -> int:
    return sum(file.size for file in plan.task.files)


def _working(plan: GroupPlan) -> Callable[[int], Made | Failure | None]:
    """Return the function of a Spark task; each attempt of it writes files of its own names. Spark
    begins a task again whose process died. That attempt reads nothing: its reading is not reserved
    yet."""

    given = plan.work

    def work(_: int) -> Made | Failure | None:
        if _begun_before():
            return None
        return task_calls.rewritten(*given, attempt=task_attempt())

    return work


def _begun_before() -> bool:
    """Whether an earlier attempt at the Spark task that runs this has begun."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


def task_attempt() -> str:
    """Return the name of the attempt of a Spark task that runs this."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return "0" if context is None else str(context.taskAttemptId())
