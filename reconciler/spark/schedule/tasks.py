"""Where the engine's tasks run: by threads of the driver with a local master, else by Python
processes of executors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.native import GroupPlan
from reconciler.rewrite import task_calls
from reconciler.rewrite.failures import Failure
from reconciler.rewrite.storage import Opening
from reconciler.rewrite.task import Made, Resources
from reconciler.spark.commit.table import spark_of
from reconciler.spark.schedule import again, witness_work
from reconciler.spark.session import resources


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
    (made,) = again.repeated(
        attempt, context, name, [sum(file.size for file in plan.task.files)],
        lambda _: rdd.map(work).collect(),
    )  # fmt: skip
    return made


def _working(plan: GroupPlan) -> Callable[[int], Made | Failure | None]:
    """Return the function of a Spark task; each attempt of it writes files of its own names."""
    given = plan.work

    def work(_: int) -> Made | Failure:
        return task_calls.rewritten(*given, attempt=again.task_attempt())

    return again.first_only(work)
