"""Simulates a merge of whole files without a sort: bounds are the exact unions of the inputs'."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from reconciler.advisor.simulate.layout import Layout, Written, WrittenRows, simulated_files
from reconciler.advisor.simulate.slices import slice_domain, written_share
from reconciler.plan.grouping import Grouping, arrivals, output_file_of
from reconciler.queries.stored_columns import StoredColumns, stored_columns
from reconciler.queries.table_view import TableView
from reconciler.table.column_bytes import bytes_per_row
from reconciler.table.filetable import UNKNOWN, Array, Bool, ColumnBounds, Float64, Int64
from reconciler.table.row_group_bytes import row_groups_of
from reconciler.table.values import Kind


def merged(now: TableView, layout: Layout) -> Written:
    """Return the files that these become if they are concatenated in order of arrival."""
    found = _merged(now, layout)
    return Written((found.view,), found.files, "bound", found.share)


def merged_rows(now: TableView, layout: Layout) -> WrittenRows:
    """Return the files that these become, and which of the sampled rows are in each."""
    found = _merged(now, layout)
    sample = now.sample
    if sample is not None:
        order = np.argsort(found.bins[sample.file], kind="stable")
        sample = sample.take(order)
        sample = replace(sample, file=found.bins[sample.file])
    return WrittenRows(found.view, sample, np.ones(len(found.view.files)))


@dataclass(frozen=True, slots=True)
class _Merged:
    """Whole files merged without a sort."""

    view: TableView
    """The output files."""
    bins: Int64
    """int64[files]: the output file of each input."""
    files: int
    """Number of data files written."""
    share: float
    """Bytes written per live byte read."""


def _merged(now: TableView, layout: Layout) -> _Merged:
    order = np.lexsort((arrivals(now.files), layout.groups))
    runs = Grouping(order, np.flatnonzero(np.diff(layout.groups[order], prepend=-1)))
    stored, live, limit = stored_columns(now), now.files.live_bytes, layout.row_group_bytes
    bins, count = output_file_of(runs, live, layout.target_bytes)
    view = merged_whole(now, bins, limit, stored)
    share = written_share(now.files, stored, view.files.column_sizes, count)
    settled, files = output_file_of(runs, live, layout.target_bytes / share)
    if files != count:
        return _Merged(merged_whole(now, settled, limit, stored), settled, files, share)
    return _Merged(view, bins, files, share)


def merged_whole(
    view: TableView, bins: Int64, row_group_bytes: int, stored: StoredColumns | None = None
) -> TableView:
    """Return the result of merging whole files without a sort: bounds are the exact unions.

    bins: output file per input file, ascending. stored: of the view, if known already. Row groups
    are as coarse as the files, except for the dictionaries that they write.
    """
    order = np.argsort(bins, kind="stable")
    starts = np.flatnonzero(np.diff(bins[order], prepend=-1))
    taken = view.files.take(order)
    records = np.add.reduceat(taken.records - taken.position_deleted, starts)
    columns = {
        field: ColumnBounds(
            field, column.kind,
            *_union(column, starts),
            _sum_known(column.nulls, starts), _sum_known(column.nans, starts),
            _sum_known(column.values, starts), _sum_known(column.sizes, starts),
            np.logical_or.reduceat(column.truncated, starts),
        )
        for field, column in taken.columns.items()
    }  # fmt: skip
    size = np.add.reduceat(taken.bytes, starts)
    sizes = {field: _sum_known(known, starts) for field, known in taken.column_sizes.items()}
    each = records / row_groups_of(size, row_group_bytes)
    stored = stored_columns(view) if stored is None else stored
    sizes |= _merged_sizes(stored, order, starts, records, each)
    table = simulated_files(view.files, records, size, columns, sizes, int(view.files.partition[0]))
    footers = stored.footer.of(row_groups_of(size, row_group_bytes).astype(np.float64))
    return TableView(
        table, footer_bytes=footers, row_group_bytes=1 << 62, open_bytes=view.open_bytes
    )


def _merged_sizes(
    stored: StoredColumns, order: Int64, starts: Int64, records: Int64, each: Float64
) -> dict[int, Int64]:
    """Return the column bytes per merged file, for columns whose footers show how they are stored.

    order: input files by output file; starts: first input per output; each: rows of a row group.
    """
    sizes = {}
    for field, column in stored.columns.items():
        domain = slice_domain(stored, field, order, starts)
        width = bytes_per_row(column, np.maximum(each, 1.0), domain)
        sizes[field] = np.rint(width * records).astype(np.int64)
    return sizes


def _union(column: ColumnBounds, starts: Int64) -> tuple[Array, Array, Bool, Bool]:
    """Return lower, upper, has_lower, has_upper of merged whole files.

    A file whose rows are all NULL or all NaN has no bounds and widens none. numpy has no minimum of
    byte strings, so their codes are compared.
    """
    nans = column.nans if column.kind is Kind.FLOAT else np.zeros_like(column.nans)
    known = (column.values > 0) & (column.nulls >= 0) & (nans >= 0)
    void = known & (column.nulls + nans == column.values)
    valued = ~np.logical_and.reduceat(void, starts)
    sides = []
    for values in (column.lower, column.upper):
        distinct, codes = np.unique(values, return_inverse=True)
        sides.append((distinct, codes.reshape(-1)))
    (low, low_codes), (high, high_codes) = sides
    least = np.minimum.reduceat(np.where(void, len(low) - 1, low_codes), starts)
    most = np.maximum.reduceat(np.where(void, 0, high_codes), starts)
    has_lower = np.logical_and.reduceat(column.has_lower | void, starts) & valued
    has_upper = np.logical_and.reduceat(column.has_upper | void, starts) & valued
    return low[least], high[most], has_lower, has_upper


def _sum_known(counts: Int64, starts: Int64) -> Int64:
    total = np.add.reduceat(np.maximum(counts, 0), starts)
    return np.where(np.logical_or.reduceat(counts < 0, starts), UNKNOWN, total).astype(np.int64)
