"""Writes a group by Spark's reader and writer, in their simplest form: what the engine cannot write
as the table asks (`native` says why). Each output file is one task.

Compared with the engine, files have about equal rows instead of exactly equal ones, and rows with
equal keys lose their order of arrival where a group becomes several files.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.engines.schedule.group import Group
from reconciler.errors import UserError
from reconciler.rewrite.curve import Curve, fit_curve
from reconciler.spark.fallback import stage
from reconciler.spark.schedule import witness_work
from reconciler.spark.schedule.scan import ScanTasks
from reconciler.spark.session.iceberg import quoted
from reconciler.table.schema import SortColumn

SAMPLE_ROWS = 100_000
PLACE, ALONG = "__layout_place_", "__layout_along"
FUNCTIONS = {"year": "years", "month": "months", "day": "days", "hour": "hours"}
"""Names of Iceberg's functions in Spark that differ from those of its transforms."""


class Source:
    """The inputs of one group as frames."""

    def __init__(self, spark: Any, table: Any, base: str, tasks: ScanTasks) -> None:
        self.spark, self.table = spark, table
        self._base, self._tasks = base, tasks
        self._staged = contextlib.ExitStack()
        self._sets = 0

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *error: object) -> None:
        self._staged.close()

    def read(self, paths: Sequence[str], *, in_order: bool = False) -> Any:
        """Return the rows of some inputs.

        in_order: by one task, file after file; else in as many splits as the table's properties
        give, in no order.
        """
        set_id = f"{self._base}/in-{self._sets}"
        self._sets += 1
        chosen = self._tasks.java_tasks(paths)
        self._staged.enter_context(stage.staged(self.spark, self.table, set_id, chosen))
        if in_order:
            return stage.read(self.spark, set_id, stage.WHOLE_FILE).coalesce(1)
        return stage.read(self.spark, set_id)


def arranged(source: Source, group: Group, catalog: str) -> Any:
    """Return the frame to write, one partition per file. catalog: in which Spark finds Iceberg's
    functions."""
    if not group.action.ordering.key and not group.action.moves_by:
        return _packed(source, group)
    paths = [file.path for file in group.inputs]
    rows = source.read(paths, in_order=group.files == 1)
    places = _places(source, catalog, group)
    rows, order, extra = _ordered(source, group, rows.withColumns(places))
    order = [*places, *order]
    if group.files > 1:
        rows = rows.repartitionByRange(group.files, *order)
    return rows.sortWithinPartitions(*order).drop(*places, *extra)


def _packed(source: Source, group: Group) -> Any:
    """Return rows in their files' order, one partition per run of files."""
    size, seen = max(group.bytes, 1), 0
    ends = [size * number / group.files for number in range(1, group.files)]
    runs: list[list[str]] = [[] for _ in range(group.files)]
    for file in group.inputs:
        runs[bisect.bisect_right(ends, seen + file.bytes / 2)].append(file.path)
        seen += file.bytes
    return stage.union([source.read(run, in_order=True) for run in runs if run])


def _places(source: Source, catalog: str, group: Group) -> dict[str, Any]:
    """Return the columns of the partition that rows move to, by their temporary names."""
    from pyspark.sql import functions as f

    schema = source.table.schema()
    found = {}
    for number, field in enumerate(group.action.moves_by or ()):
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


def _ordered(source: Source, group: Group, rows: Any) -> tuple[Any, list[Any], tuple[str, ...]]:
    """Return the rows, the sort expressions of the action's ordering, and what to drop after the
    sort. NULLs come first when ascending and last when descending, as in Iceberg."""
    ordering = group.action.ordering
    columns = [_column(source.table.schema(), part) for part in ordering.key]
    if ordering.curve:
        witness_work.use_this_python(source.spark.sparkContext)
        return rows.withColumn(ALONG, _along(rows, columns)), [ALONG], (ALONG,)
    return rows, [
        column.desc_nulls_last() if part.direction == "desc" else column.asc_nulls_first()
        for part, column in zip(ordering.key, columns, strict=True)
    ], ()  # fmt: skip


def _column(schema: Any, part: SortColumn) -> Any:
    from pyspark.sql import functions as f

    names = path_of(schema, part)
    return f.col(".".join(quoted(name) for name in names))


def path_of(schema: Any, part: SortColumn) -> tuple[str, ...]:
    """Return the names from the top to a key column. Raises UserError if the table has it no
    more."""
    names = _path(schema.asStruct(), part.field_id)
    if names is None:
        raise UserError(
            f"the clustering key's column with field id {part.field_id} is not in the table",
            details=("It was dropped after the plan was made.",),
            do="plan again",
        )
    return names


def _path(struct: Any, field_id: int) -> tuple[str, ...] | None:
    for field in struct.fields():
        if field.fieldId() == field_id:
            return (field.name(),)
        if field.type().isStructType():
            below = _path(field.type().asStructType(), field_id)
            if below is not None:
                return (field.name(), *below)
    return None


def _along(rows: Any, columns: Sequence[Any]) -> Any:
    """Return the place along the Hilbert curve, fitted to a sample of the rows, as a column."""
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]

    named = [column.alias(str(number)) for number, column in enumerate(columns)]
    sample = rows.select(*named).limit(SAMPLE_ROWS).toArrow()
    values = [column.combine_chunks() for column in sample.columns]
    return arrow_udf(_placing(values), "bigint")(*columns)


def _placing(sample: Sequence[Any]) -> Callable[..., Any]:
    """Return the function of a batch. sample: values of each key column."""
    ordered = [
        pc.drop_null(values).take(pc.sort_indices(pc.drop_null(values))) for values in sample
    ]
    scores = np.stack([_scores(v, o) for v, o in zip(sample, ordered, strict=True)])
    curve: Curve = fit_curve(scores)

    def place(*batch: pa.Array) -> pa.Array:
        found = np.stack([_scores(v, o) for v, o in zip(batch, ordered, strict=True)])
        return pa.array(curve.position(found))

    return place


def _scores(values: Any, ordered: Any) -> Any:
    """Return the rank of each value among sorted ones; NULL is below all of them."""
    ranks = pc.search_sorted(ordered, pc.drop_null(values)).to_numpy().astype(np.float64)
    found = np.full(len(values), -np.inf)
    found[values.is_valid().to_numpy(zero_copy_only=False)] = ranks
    return found
