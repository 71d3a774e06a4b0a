"""Replaces `ORDER BY column LIMIT rows` by the range of the column that holds these rows.

An engine keeps the best rows that it has found so far, and skips every row group whose bounds hold
no better row (docs/design/first-rows.md). Such a query therefore reads as much as a query with the
condition `column >= value of its last row` (`<=` for ascending order). Shapes go in and come out;
each keeps its id.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from reconciler.queries.predicate import Comparison, First
from reconciler.queries.shape import Shape, Workload
from reconciler.table.filetable import FileTable, Float64, Int64
from reconciler.table.values import Kind

STEPS = 64
"""Halvings by which the last of the first rows is looked for: enough for every number."""


def with_first_rows(workload: Workload, files: FileTable) -> Workload:
    """Return the workload with every First as a comparison with the value of its last row."""
    if not any(isinstance(shape.predicate, First) for shape in workload.shapes):
        return workload
    return replace(workload, shapes=tuple(_bounded(shape, files) for shape in workload.shapes))


def _bounded(shape: Shape, files: FileTable) -> Shape:
    first = shape.predicate
    if not isinstance(first, First):
        return shape
    last = last_of(first, files)
    if last is None:
        return shape
    return replace(
        shape,
        predicate=Comparison(first.ref, ">=" if first.descending else "<=", 0),
        literals=(np.full(len(shape), last, dtype=np.int64),),
        offsets=(np.full(len(shape), np.nan),),
    )


def last_of(first: First, files: FileTable) -> int | None:
    """Return the column's value in the last row that the query wants, None if some file has no
    bounds. Rows of a file are assumed to be spread evenly between its bounds."""
    column = files.columns.get(first.ref.field_id)
    if column is None or column.kind is not Kind.INT or not len(files):
        return None
    if not column.bounded.all():
        return None
    lower, upper = column.lower, column.upper
    if first.descending:
        lower, upper = ~upper, ~lower  # reverses the order; -lower overflows
    least, most = int(lower.min()), int(upper.max())
    begin, end = _above(lower, least), _above(upper, least)
    rows = np.maximum(files.records, 0).astype(np.float64)
    low, high = 0.0, float(end.max())
    for _ in range(STEPS):
        middle = low + (high - low) / 2.0
        if _rows_until(middle, begin, end, rows) >= first.rows:
            high = middle
        else:
            low = middle
    found = min(least + int(np.ceil(high)), most)
    return ~found if first.descending else found


def _above(values: Int64, least: int) -> Float64:
    """Return how far the values are above the least of them. Large numbers themselves would be
    rounded as floats, and a comparison with a rounded number may rule out every file."""
    return (values.view(np.uint64) - np.uint64(least % 2**64)).astype(np.float64)


def _rows_until(value: float, lower: Float64, upper: Float64, rows: Float64) -> float:
    """Return the number of rows up to a value."""
    width = upper - lower
    share = np.clip((value - lower) / np.where(width > 0.0, width, 1.0), 0.0, 1.0)
    return float(rows @ np.where(width > 0.0, share, value >= lower))
