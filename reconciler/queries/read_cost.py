"""Cost of queries, in projected bytes read.

An opened file counts as OPEN_BYTES, and a row group as a part of it
(docs/design/definitions.md#read-cost). The advisor's decisions, the plan's totals and the ledger's
realised savings all go through `read_shape`, on the real table and on simulated layouts (WAIR
sections 4.1 and 5.2: row groups and projection adjust utilization).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reconciler.queries.range_reads import Covered, RangeReads, range_reads
from reconciler.queries.read_shares import Float32, read_shares
from reconciler.queries.read_sums import read_sums
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import (
    TableView,
    projected_bytes,
    row_group_cost,
    row_groups_per_file,
)
from reconciler.table.filetable import FileTable, Float64, Int64

MANY_CELLS = 1 << 20
"""Queries x files from which on ranges are added up by their ends: for fewer, cells are as fast."""

ROUNDED = 2.0**-23
"""Share of all executions below which a difference of their sums is rounding, as in float32."""


@dataclass(frozen=True)
class ShapeReading:
    """What the queries of one shape read from a view."""

    bytes: Float64
    """float64[queries]: projected bytes of the files and row groups that are read, with the footers
    and delete files that a scan of these files reads."""
    files: Float64
    """float64[queries]: number of data files opened."""
    matching: Float64
    """float64[queries]: projected bytes of the matching rows."""
    cost: Float64
    """float64[queries]: bytes read, plus the cost of opening data files, delete files and row
    groups in bytes."""
    saving: Float64
    """float64[files]: bytes over the horizon that an ideal layout would not read (WAIR, Eq. 3: (1 -
    u) * size_read)."""
    read: Float64
    """float64[files]: bytes over the horizon that are read now."""


def read_shape(view: TableView, demand: Shape) -> ShapeReading:
    """Return the read cost of every query of a shape, and per file the savings over the horizon."""
    if len(view.files) * len(demand) >= MANY_CELLS and demand.prunable:
        reads = range_reads(demand, view.files, real=True)
        if reads is not None and reads.covered is not None:
            return _read_by_range(view, demand, reads, reads.covered)
    return _read_by_cell(view, demand, projected_bytes(view.files, demand.projection))


def _read_by_range(
    view: TableView, demand: Shape, reads: RangeReads, covered: Covered
) -> ShapeReading:
    """Return the same for ranges of one column. Files of which more is known than their bounds, or
    that are larger than a row group, are read by cells."""
    files = view.files
    even = covered.even & (files.bytes <= view.row_group_bytes)
    for owner in (view.group_file, None if view.probe is None else view.probe.file):
        if owner is not None:
            even[owner] = False
    rest = np.flatnonzero(~even)
    size, overhead = projected_bytes(files, demand.projection), _overhead(view)
    groups = row_group_cost(view, demand.projection) * row_groups_per_file(view)
    whole = np.where(even, size + overhead, 0.0)
    opens = np.where(even, view.open_bytes * (1.0 + files.delete_files) + groups, 0.0)
    read = reads.of_queries(demand.executions)
    skipped = read - covered.of_queries(demand.executions)
    least = ROUNDED * float(demand.executions.sum())
    read, skipped = (np.where(even & (one > least), one, 0.0) for one in (read, skipped))
    bytes_read = reads.of_files(whole)
    found = ShapeReading(
        bytes=bytes_read,
        files=reads.of_files(even.astype(np.float64)),
        matching=covered.of_files(np.where(even, size, 0.0)),
        cost=bytes_read + reads.of_files(opens),
        saving=skipped * size,
        read=read * whole,
    )
    if not len(rest):
        return found
    return _with(found, rest, _read_by_cell(view.take(rest), demand, size[rest]))


def _with(found: ShapeReading, rows: Int64, other: ShapeReading) -> ShapeReading:
    """Return both readings, of different files. rows: the files of the other."""
    found.saving[rows], found.read[rows] = other.saving, other.read
    return ShapeReading(
        found.bytes + other.bytes, found.files + other.files, found.matching + other.matching,
        found.cost + other.cost, found.saving, found.read,
    )  # fmt: skip


def _read_by_cell(view: TableView, demand: Shape, size: Float64) -> ShapeReading:
    """Return the same by a cell per query and file. size: projected bytes of each file, float64
    [files]: those that no metrics tell are estimated from all files, not from these alone."""
    files, queries = len(view.files), len(demand)
    overhead = _overhead(view)
    deletes = view.files.delete_files.astype(np.float32)
    width, extra = size.astype(np.float32), overhead.astype(np.float32)
    groups = row_group_cost(view, demand.projection) * row_groups_per_file(view)
    with_groups = (size + groups).astype(np.float32)
    laden = bool(overhead.any() or deletes.any())
    bytes_read, opened, matching, cost = (np.zeros(queries) for _ in range(4))
    saving, read = np.zeros(files), np.zeros(files)
    for block, tiles in read_shares(view, demand):
        weights = demand.executions[block].astype(np.float32)
        for tile in tiles:
            mine, share = tile.files, tile.share
            opened[block] += tile.opened
            bytes_read[block] += _rows_dot(share, width[mine])
            cost[block] += _rows_dot(share, with_groups[mine])
            matching[block] += _rows_dot(tile.used, width[mine])
            shared = _columns_dot(weights, share)
            saving[mine] += (shared - _columns_dot(weights, tile.used)) * size[mine]
            read[mine] += shared * size[mine]
            if laden:
                some = (share > 0).astype(np.float32)
                beside = _rows_dot(some, extra[mine])
                bytes_read[block] += beside
                cost[block] += beside + view.open_bytes * _rows_dot(some, deletes[mine])
                read[mine] += _columns_dot(weights, some) * overhead[mine]
    cost += view.open_bytes * opened
    return ShapeReading(bytes_read, opened, matching, cost, np.maximum(saving, 0.0), read)


def _rows_dot(matrix: Float32, vector: Float32) -> Float32:
    """Return matrix @ vector, without BLAS: on a busy machine its threads spin for many times the
    work of matrices this small."""
    return np.einsum("qf,f->q", matrix, vector)


def _columns_dot(vector: Float32, matrix: Float32) -> Float32:
    """Return vector @ matrix, likewise without BLAS."""
    return np.einsum("q,qf->f", vector, matrix)


def read_layout(view: TableView, demand: Shape) -> ShapeReading:
    """Return the read cost of every query on a layout whose row groups are all known; no savings.

    A faster `read_shape` for simulated layouts: `matching` does not depend on the layout.
    """
    groups, owner = view.row_groups, view.group_file
    if groups is None or owner is None:
        return read_shape(view, demand)
    chunk = projected_bytes(groups, demand.projection).astype(np.float64)
    beside = _overhead(view)
    of_group, of_file = [chunk, np.ones(len(groups))], [beside, np.ones(len(view.files))]
    if _one_group_each(view, groups, owner):
        whole, groups_read = read_sums(demand, groups, [chunk + beside, of_group[1]])
        files = groups_read
    else:
        read, groups_read = read_sums(demand, groups, of_group)
        footers, files = read_sums(demand, view.files, of_file)
        whole = read + footers
    none = np.zeros(0)
    cost = whole + view.open_bytes * files + row_group_cost(view, demand.projection) * groups_read
    return ShapeReading(whole, files, np.zeros(len(demand)), cost, none, none)


def _one_group_each(view: TableView, groups: FileTable, owner: Int64) -> bool:
    """Whether each file has one row group, and is skipped by the same bounds as that."""
    if "one group each" not in view.derived:
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        alike = len(starts) == len(groups) and _same_bounds(view.files, groups)
        view.derived["one group each"] = alike
    found: bool = view.derived["one group each"]
    return found


def _same_bounds(files: FileTable, groups: FileTable) -> bool:
    return all(
        np.array_equal(column.bounded, groups.columns[field].bounded)
        for field, column in files.columns.items()
        if field in groups.columns
    )


def _overhead(view: TableView) -> Float64:
    """Return the footer and delete file bytes that a scan of the file adds, float64[files]."""
    footer = np.zeros(len(view.files))
    if view.footer_bytes is not None:
        footer = np.maximum(view.footer_bytes, 0).astype(np.float64)
    return footer + np.maximum(view.files.delete_bytes, 0)


def scan_amplification(
    demands: Sequence[Shape],
    read: Sequence[Float64],
    matching: Sequence[Float64],
    row_group: Sequence[float],
) -> float:
    """Return sum(w * read) / sum(w * max(matching bytes, one row group of the projection)).

    The sums are over the queries of prunable shapes, with their recorded executions w; NaN without
    any. read, matching: bytes, an array of each shape. row_group: for each shape the projected
    bytes of one row group.
    """
    above = below = 0.0
    for demand, bytes_read, needed, floor in zip(demands, read, matching, row_group, strict=True):
        if demand.prunable:
            above += float(demand.weight @ bytes_read)
            below += float(demand.weight @ np.maximum(needed, floor))
    return above / below if below > 0.0 else float("nan")
