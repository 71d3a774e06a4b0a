"""What a task may use: of the process tree and the machine that run it, as they are configured or
measured.

An executor's tasks share what its pod has beside the heap (`api.task_memory`); threads of the
driver share what is free, after the heap that the JVM has not taken yet.
"""

from __future__ import annotations

from typing import Any

from reconciler.api import task_memory
from reconciler.engines.local.machine import available_bytes
from reconciler.rewrite.task import Resources

FREE_SHARE = 0.5
"""Share of the free memory that all tasks of a driver may use together."""
DEFAULT_SHARE = 0.1
"""Spark's factor of the heap where a cluster's owner sets no overhead."""


def of_driver(spark: Any, threads: int = 1) -> Resources:
    """Return what a thread of the driver may use. threads: that it may start itself."""
    runtime = spark._jvm.java.lang.Runtime.getRuntime()
    reserved = int(runtime.maxMemory()) - int(runtime.totalMemory())
    free = int((available_bytes() - reserved) * FREE_SHARE) * threads // driver_cores(spark)
    return Resources(max(task_memory.LEAST_TASK, free), threads)


def of_executor(spark: Any, cpus: int = 1) -> Resources:
    """Return what a task of an executor may use. cpus: of the executor's slots that it takes, each
    with the memory of a task."""
    settings = spark.settings
    heap = _bytes(spark, settings.get("spark.executor.memory", "1g"))
    beside = settings.get("spark.executor.memoryOverhead")
    if beside is None:
        share = float(settings.get("spark.executor.memoryOverheadFactor", str(DEFAULT_SHARE)))
        overhead = max(task_memory.LEAST_OUTSIDE, int(heap * share))
    else:
        overhead = _bytes(spark, beside)
    one = task_memory.of_task(overhead, heap, slots(spark))
    return Resources(cpus * one, cpus)


def slots(spark: Any) -> int:
    """Return how many tasks an executor runs side by side."""
    settings = spark.settings
    cores = int(settings.get("spark.executor.cores", "1"))
    return max(1, cores // int(settings.get("spark.task.cpus", "1")))


def _bytes(spark: Any, size: str) -> int:
    return int(spark._jvm.org.apache.spark.network.util.JavaUtils.byteStringAsMb(size)) << 20


def driver_cores(spark: Any) -> int:
    """Return the cores that are the driver's own: in a cluster, its pod has memory for as many
    threads, and the machine below it has more cores."""
    return (
        spark.cores if spark.local else max(1, int(spark.settings.get("spark.driver.cores", "1")))
    )
