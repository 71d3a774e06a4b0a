"""Arranges a group's rows by the partitions of another spec: the frame that a migration writes.

A partition is written by one task, so that it gets no more files than its rows need. Rows are
sorted by the partition, with Iceberg's own functions, and within it by the action's ordering.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from reconciler.plan.ordering import ARRIVAL
from reconciler.spark import arrange, keys, stage
from reconciler.spark.arrange import SLICE, Source
from reconciler.spark.group import Group
from reconciler.spark.iceberg import quoted
from reconciler.table.schema import SpecField

PLACE = "__layout_place_"
HASH = "__layout_hash"
FUNCTIONS = {"year": "years", "month": "months", "day": "days", "hour": "hours"}
"""Names of Iceberg's functions in Spark that differ from those of its transforms."""
BELOW_NEXT = 1.0 - 2.0**-20
"""Highest share of the way from one partition's number to the next."""


def arranged(source: Source, group: Group, catalog: str) -> Any:
    """Return the rows, one partition per task, clustered by the partitions of the target spec.

    The target has at least one field. catalog: in which Spark finds Iceberg's functions. Up to
    `arrange.MAX_REREAD` tasks read all inputs each and keep their own rows, which costs less than
    to move rows between tasks.
    """
    paths = [file.path for file in group.inputs]
    places = _places(source, catalog, group.action.moves_by or ())
    if group.tasks == 1:
        rows = source.read(paths, in_order=True)
        ordered = _order(source, group, rows, places)
        return _sorted(rows, places, ordered)
    whole = source.read(paths)
    ordered = _order(source, group, whole, places)
    edges = cuts(_rows_by_hash(source.read(paths), places), group.tasks)
    if group.tasks > arrange.MAX_REREAD:
        return _sorted(_shuffled(whole, places, edges), places, ordered)
    parts = []
    for number in range(len(edges) + 1):
        rows = source.read(paths, in_order=True)
        parts.append(_sorted(rows.where(_holds(places, edges, number)), places, ordered))
    return stage.union(parts)


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


def _sorted(rows: Any, places: dict[str, Any], ordered: Sequence[Any]) -> Any:
    return rows.withColumns(places).sortWithinPartitions(*ordered).drop(*places)


def _order(source: Source, group: Group, rows: Any, places: dict[str, Any]) -> list[Any]:
    """Return the sort expressions: of the partition, then of the action's ordering.

    Spark keeps a number of the first expression beside each row and compares whole rows only if
    these are equal, as the rows of a partition would be. So a number of both comes first where
    there is one: it never reverses the order, and the others decide between equal numbers.
    """
    order, share = _along(source, group, rows)
    number = _number(rows.select(*(c.alias(name) for name, c in places.items())).schema)
    first = [] if number is None or share is None else [number + _within(share)]
    return [*first, *places, *order]


def _along(source: Source, group: Group, rows: Any) -> tuple[list[Any], Any]:
    """Return the sort expressions of the action's ordering, and a column from 0 to 1 that never
    reverses it; None if there is none."""
    if group.action.ordering == ARRIVAL:
        return [], None
    key = arrange.resolved(source, group, rows)
    if group.action.ordering.lead is not None:
        return arrange.key_order(source, group, key), _share(group, key[0])
    division = arrange.fit(source, group, rows, key)
    return division.along_order, division.share


def _share(group: Group, first: keys.KeyColumn) -> Any:
    """Return where a row is between the ends of the first key column; None if the manifests do not
    tell them. Wrong ends only make more numbers equal."""
    from pyspark.sql import functions as f

    low = min(file.span[0] for file in group.inputs)
    high = max(file.span[1] for file in group.inputs)
    if not math.isfinite(high - low) or high <= low:
        return None
    return (keys.score(first) - f.lit(low)) / f.lit(high - low)


def _within(share: Any) -> Any:
    from pyspark.sql import functions as f

    return f.least(f.greatest(share, f.lit(0.0)), f.lit(BELOW_NEXT))


def _number(schema: Any) -> Any:
    """Return the partition as a double, if it is one whole number; else None.

    schema: of the partition's columns.
    """
    from pyspark.sql import types as t

    kinds = [field.dataType for field in schema]
    if len(kinds) > 1 or not isinstance(kinds[0], (t.IntegralType, t.DateType)):
        return None
    return keys.score(keys.KeyColumn((f"{PLACE}0",), kinds[0], descending=False))


def _rows_by_hash(rows: Any, places: dict[str, Any]) -> list[tuple[int, int]]:
    """Return the partitions' hashes in ascending order, with the number of rows of each."""
    from pyspark.sql import functions as f

    hashed = rows.select(f.xxhash64(*places.values()).alias(HASH))
    return [tuple(row) for row in hashed.groupBy(HASH).count().orderBy(HASH).collect()]


def _holds(places: dict[str, Any], edges: Sequence[int], number: int) -> Any:
    """Return the condition that a row belongs to the task; exactly one task holds it."""
    from pyspark.sql import functions as f

    hashed, condition = f.xxhash64(*places.values()), f.lit(True)
    if number > 0:
        condition = condition & (hashed >= f.lit(edges[number - 1]))
    if number < len(edges):
        condition = condition & (hashed < f.lit(edges[number]))
    return condition


def _shuffled(rows: Any, places: dict[str, Any], edges: Sequence[int]) -> Any:
    """Return the rows moved to their tasks: ranges of the partitions' hashes."""
    from pyspark.sql import functions as f

    hashed, number = f.xxhash64(*places.values()), f.lit(0)
    for edge in edges:
        number = number + f.when(hashed >= f.lit(edge), 1).otherwise(0)
    return rows.withColumn(SLICE, number).repartitionById(len(edges) + 1, SLICE).drop(SLICE)


def cuts(counts: Sequence[tuple[int, int]], tasks: int) -> list[int]:
    """Return the values at which a new task begins. counts: (value, rows) in ascending order."""
    total, seen, found = sum(rows for _, rows in counts), 0, list[int]()
    for value, rows in counts:
        if seen * tasks >= total * (len(found) + 1) and len(found) + 1 < tasks:
            found.append(value)
        seen += rows
    return found
