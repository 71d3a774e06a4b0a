"""What two other engines open: Spark by its scans' own metrics, DuckDB by its profile.

A few queries of every shape run on both before and after a plan was carried out. Each must open as
many data files as pruning by the table's metadata says, and both must return the same rows.
DuckDB opens files of which it knows that a condition's column holds only NULLs: they are counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.tables.drawn import Drawn
from bench.tables.play import Place, look, workload
from reconciler.advisor.advice import HORIZON_MS
from reconciler.demo import witness
from reconciler.queries.demanded import demands
from reconciler.queries.pruning import prune
from reconciler.queries.shape import Shape
from reconciler.table.filetable import FileTable
from tests.demo.duckdb_pruning import as_duckdb_prunes

QUERIES = 6
"""Queries of a table that the engines run, twice each."""


@dataclass(frozen=True, slots=True)
class Watched:
    """One query. planned: data files that pruning leaves, by_duckdb by what DuckDB prunes by;
    rows: digest of what it returned."""

    planned: int
    by_duckdb: int
    spark: int
    duckdb: int
    spark_rows: str
    duckdb_rows: str


def watch(place: Place, drawn: Drawn, duckdb: Any, name: str) -> list[Watched]:
    """Run some of the recorded queries, evenly spread over their time."""
    step = max(1, len(drawn.recorded) // QUERIES)
    asked = drawn.recorded[::step][:QUERIES]
    seen = look(place, name)
    table = place.catalog.load_table(seen.observation.identifier)
    found = []
    for one in asked:
        (demand,) = demands(workload(place, name, [one]), seen.view.files.schema, HORIZON_MS)
        files = seen.view.files
        planned, by_duckdb = (_left(each, demand) for each in (files, as_duckdb_prunes(files)))
        sql = one.sql.format(t=place.full(name))
        by_spark, rows = _spark(place.spark, sql, name)
        if "JOIN" in sql:
            continue  # the other table is not DuckDB's
        own = witness.opened(duckdb, sql, "spark", {name: table.metadata_location})
        found.append(Watched(planned, by_duckdb, by_spark, own.files[name], rows, own.checksum))
    return found


def _left(files: FileTable, demand: Shape) -> int:
    mask = prune(demand, files) if demand.prunable else np.ones((1, len(files)), bool)
    return int(np.count_nonzero(mask))


def _spark(spark: Any, sql: str, name: str) -> tuple[int, str]:
    """Return the data files that the scan of the table reports, and a digest of the rows."""
    frame = spark.sql(sql)
    rows = frame.collect()
    plan = frame._jdf.queryExecution().executedPlan()
    if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
        plan = plan.executedPlan()
    return _files_of(plan, name), digest([tuple(row) for row in rows])


def _files_of(plan: Any, name: str) -> int:
    """Return the data files of the table's scans, those before an exchange included."""
    leaves, files = plan.collectLeaves(), 0
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.getClass().getSimpleName().endswith("QueryStageExec"):
            files += _files_of(leaf.plan(), name)
            continue
        metric = leaf.metrics().get("resultDataFiles")
        if metric.isDefined() and name in leaf.toString():
            files += int(metric.get().value())
    return files


def digest(rows: Sequence[tuple[Any, ...]]) -> str:
    """As `witness.opened` digests what DuckDB returns."""
    lines = sorted(repr(row) for row in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
