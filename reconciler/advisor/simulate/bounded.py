"""Simulates a rewrite from the bounds of its files alone, for files of which no row was sampled.

In come the bounds of the group's files, out come bounds of the files that they would become. The
r-th smallest value is at least what it would be if all rows were at their file's lower bound, and
at most what it would be if all were at the upper bound. NULL is sorted before all values, NaN after
them. Columns that are not sorted by keep the group's bounds. Real files are never wider, so the
reading that is found is an upper bound.
"""

from __future__ import annotations

import numpy as np

from reconciler.advisor.simulate.layout import Layout, Written, as_in_manifest, simulated_files
from reconciler.queries.table_view import TableView
from reconciler.table.filetable import UNKNOWN, Array, ColumnBounds, FileTable, Float64, Int64
from reconciler.table.scales import greatest_of, least_of
from reconciler.table.values import Kind

MAX_BOUNDED_GROUPS = 64
"""Rewrites with more groups than this are not judged by bounds: they are worth a sketch first."""


def bounded(files: FileTable, layout: Layout) -> Written | None:
    """Return the files that these become, None if nothing can be proved: a Hilbert curve, a column
    without bounds or NULL counts, or rows of several groups that mix.
    """
    if layout.ordering.lead is None:
        return None
    lead = files.columns.get(layout.ordering.lead.field_id)
    if lead is None or not lead.bounded.all() or (lead.nulls < 0).any() or len(files) == 0:
        return None
    groups = np.flatnonzero(np.bincount(layout.groups))
    if len(groups) > MAX_BOUNDED_GROUPS:
        return None
    views = tuple(
        _outputs(files.take(np.flatnonzero(layout.groups == group)), layout) for group in groups
    )
    return Written(views, sum(len(view.files) for view in views), "bound")


def _outputs(files: FileTable, layout: Layout) -> TableView:
    live = np.maximum(files.records - files.position_deleted, 1)
    size, rows = int(files.live_bytes.sum()), int(live.sum())
    count = int(layout.files_of(size))
    edges, unknown = np.linspace(0.0, float(rows), count + 1), np.full(count, UNKNOWN)
    columns = {}
    for field, column in files.columns.items():
        lower, upper = (
            np.full(count, bound, dtype=own.dtype)
            for bound, own in (
                (least_of(column.lower), column.lower), (greatest_of(column.upper), column.upper),
            )
        )  # fmt: skip
        if layout.ordering.lead is not None and field == layout.ordering.lead.field_id:
            gone = int(np.minimum(files.position_deleted, column.nulls).sum())
            first = int(column.nulls.sum())
            lower = _rank_values(column.lower, live, edges[:-1] - first)
            valued = _values_at_least(files, column)
            upper = _rank_values(column.upper, valued, edges[1:] - first + gone)
        whole = np.full(count, bool(column.bounded.all()))
        nulls = -1 if (column.nulls < 0).any() else int(column.nulls.sum())
        columns[field] = ColumnBounds(
            field, column.kind, lower, upper, whole, whole, np.full(count, nulls), unknown, unknown,
            unknown, np.ones(count, dtype=bool),
        )  # fmt: skip
    sizes = {
        field: np.full(count, int(known.sum()) // count)
        for field, known in files.column_sizes.items()
        if (known != UNKNOWN).all()
    }
    each, of_file = np.full(count, max(1, rows // count)), np.full(count, size // count)
    table = simulated_files(files, each, of_file, columns, sizes, layout.partition)
    table = as_in_manifest(table, layout.unbounded)
    return TableView(table, row_group_bytes=1 << 62, open_bytes=layout.open_bytes)


def _values_at_least(files: FileTable, column: ColumnBounds) -> Int64:
    """Return the rows per file that surely have a value: not deleted, not NULL, not possibly
    NaN."""
    nans = np.zeros_like(column.nans)
    if column.kind is Kind.FLOAT:
        nans = np.where(column.nans < 0, files.records, column.nans)
    return np.maximum(files.records - files.position_deleted - column.nulls - nans, 0)


def _rank_values(values: Array, rows: Int64, positions: Float64) -> Array:
    """Return values[rank] if every row of a file has the file's value; positions: row ranks."""
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(rows[order])
    place = np.searchsorted(upto, positions, side="left")
    return values[order[np.minimum(place, len(order) - 1)]]
