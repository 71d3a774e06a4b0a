"""Arranges a group's rows by the partitions of another spec: the frame that a migration writes.

A partition is written by one task, so that it gets no more files than its rows need. Rows are
sorted by the partition, with Iceberg's own functions, and within it by the action's ordering.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reconciler.plan.ordering import ARRIVAL
from reconciler.spark import arrange
from reconciler.spark.arrange import SLICE, Source
from reconciler.spark.group import Group
from reconciler.spark.iceberg import quoted
from reconciler.table.schema import SpecField

PLACE = "__layout_place_"
HASH = "__layout_hash"
FUNCTIONS = {"year": "years", "month": "months", "day": "days", "hour": "hours"}
"""Names of Iceberg's functions in Spark that differ from those of its transforms."""


def arranged(source: Source, group: Group, catalog: str) -> Any:
    """Return the rows, one partition per task, clustered by the partitions of the target spec.

    The target has at least one field. catalog: in which Spark finds Iceberg's functions.
    """
    fields = group.action.moves_by or ()
    paths = [file.path for file in group.inputs]
    alone = group.tasks == 1
    rows = source.read(paths, in_order=alone)
    places = _places(source, catalog, fields)
    order = _ordered(source, group, rows)
    placed = source.observed(rows, rows.schema).withColumns(places)
    if not alone:
        only = source.read(paths).select(*(c.alias(name) for name, c in places.items()))
        placed = _shuffled(placed, list(places), group.tasks, only)
    return placed.sortWithinPartitions(*places, *order).drop(*places)


def _places(source: Source, catalog: str, fields: Sequence[SpecField]) -> dict[str, Any]:
    """Return the columns of the target partition by their temporary names."""
    from pyspark.sql import functions as f

    schema = source.table.schema()
    found = {}
    for number, field in enumerate(fields):
        names = str(schema.findColumnName(field.source_id)).split(".")
        column = ".".join(quoted(name) for name in names)
        found[f"{PLACE}{number}"] = f.expr(_call(catalog, field.transform, column))
    return found


def _call(catalog: str, transform: str, column: str) -> str:
    function, _, argument = transform.partition("[")
    if function == "identity":
        return column
    arguments = f"{argument.rstrip(']')}, {column}" if argument else column
    return f"{quoted(catalog)}.system.{FUNCTIONS.get(function, function)}({arguments})"


def _ordered(source: Source, group: Group, rows: Any) -> list[Any]:
    """Return the sort expressions of the action's ordering."""
    if group.action.ordering == ARRIVAL:
        return []
    key = arrange.resolved(source, group, rows)
    if group.action.ordering.lead is not None:
        return arrange.key_order(source, group, key)
    return arrange.fit(source, group, rows, key).along_order


def _shuffled(rows: Any, names: Sequence[str], tasks: int, places: Any) -> Any:
    """Return the rows moved to their tasks: ranges of the partitions' hashes, with equal shares of
    the rows.

    places: the partition columns alone, which are read once more to count the rows of each.
    """
    from pyspark.sql import functions as f

    hashed = f.xxhash64(*names)
    counts = places.select(hashed.alias(HASH)).groupBy(HASH).count().orderBy(HASH).collect()
    number = f.lit(0)
    for cut in cuts([(row[HASH], row["count"]) for row in counts], tasks):
        number = number + f.when(hashed >= f.lit(cut), 1).otherwise(0)
    return rows.withColumn(SLICE, number).repartitionById(tasks, SLICE).drop(SLICE)


def cuts(counts: Sequence[tuple[int, int]], tasks: int) -> list[int]:
    """Return the values at which a new task begins. counts: (value, rows) in ascending order."""
    total, seen, found = sum(rows for _, rows in counts), 0, list[int]()
    for value, rows in counts:
        if seen * tasks >= total * (len(found) + 1) and len(found) + 1 < tasks:
            found.append(value)
        seen += rows
    return found
