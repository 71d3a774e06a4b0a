"""Spark's measurement of the CPU seconds of its jobs, by job group."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError


def of_job_group(spark: Any, group: str) -> float:
    """Return the CPU seconds of a finished job group's stages; skipped ones count as nothing."""
    if not spark.started:
        return 0.0
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    store = context.statusStore()
    total = 0.0
    for job_id in context.statusTracker().getJobIdsForGroup(group):
        stages = store.job(job_id).stageIds()
        ran = [stages.apply(i) for i in range(stages.size())]
        for stage_id in ran:
            stage = stage_of(store, stage_id)
            if stage is not None and stage.numCompleteTasks() > 0:
                total += stage.executorCpuTime() / 1e9
    return total


def stage_of(store: Any, stage_id: int) -> Any | None:
    """Return the last attempt of a stage; None if Spark dropped it.

    Above spark.ui.retainedStages, Spark first drops the stages that never ran.
    """
    try:
        return store.lastStageAttempt(stage_id)
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() == "java.util.NoSuchElementException":
            return None
        raise
