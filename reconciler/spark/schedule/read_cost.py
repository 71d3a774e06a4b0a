"""Measures the cost of reading: CPU seconds per projected byte, the denominator of rho.

A rewrite's own CPU per byte comes from its task metrics. This module reads at most 256 MiB of the
table with the most frequent projection and discards it, in the same warm JVM, so that both are
measured alike (docs/design/definitions.md#rho).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.api.catalog_config import CatalogConfig
from reconciler.engines.engine_errors import translated
from reconciler.plan.execution import ExecutionResult, MeasuredRho
from reconciler.spark.fallback import stage
from reconciler.spark.schedule.scan import scan_tasks
from reconciler.spark.session import iceberg, metrics, translate

MOST_BYTES = 256 << 20
LEAST_BYTES = 1 << 20
"""Below this only the fixed cost of a Spark job would be measured."""


def measure_rho(
    spark: Any,
    catalog: CatalogConfig,
    table: tuple[str, ...],
    result: ExecutionResult,
    projected: Mapping[str, float],
    columns: Sequence[tuple[str, ...]],
) -> MeasuredRho | None:
    """Return rho of one execution; None if too little was read or written to measure.

    projected: projected bytes of live data files by path; columns: paths of the projection.
    """
    rewritten = sum(o.read_bytes for o in result.outcomes if o.cpu_seconds > 0)
    cpu = sum(o.cpu_seconds for o in result.outcomes)
    chosen = _within(projected)
    size = sum(projected[path] for path in chosen)
    if rewritten < LEAST_BYTES or size < LEAST_BYTES:
        return None
    with translated(translate, f"read {'.'.join(table)}"):
        read = _read_cpu(spark, iceberg.qualified(catalog, table), chosen, columns)
    return MeasuredRho(cpu / rewritten, read / size) if read > 0 else None


def _within(projected: Mapping[str, float]) -> list[str]:
    """Return files of at most MOST_BYTES together, in order of path so that they are always the
    same."""
    chosen: list[str] = []
    total = 0.0
    for path in sorted(projected):
        if total + projected[path] <= MOST_BYTES or not chosen:
            chosen.append(path)
            total += projected[path]
    return chosen


def _read_cpu(
    spark: Any, name: str, paths: Sequence[str], columns: Sequence[tuple[str, ...]]
) -> float:
    """Return the CPU seconds of reading the columns of the files and discarding them."""
    table = iceberg.load(spark, name)
    head = int(table.currentSnapshot().snapshotId())
    tasks = scan_tasks(spark, table, head, paths)
    group = f"layout-read-{uuid.uuid4().hex}"
    with stage.staged(spark, table, group, tasks.java_tasks(list(tasks))):
        frame = stage.read(spark, group).select(*(_quoted(column) for column in columns))
        spark.sparkContext.setJobGroup(group, "layoutctl: what reading costs")
        try:
            frame.write.format("noop").mode("overwrite").save()
        finally:
            spark.sparkContext._jsc.clearJobGroup()
    return metrics.of_job_group(spark, group)


def _quoted(path: tuple[str, ...]) -> str:
    return ".".join(iceberg.quoted(level) for level in path)
