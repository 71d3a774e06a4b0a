"""Simulates one arrangement of rows in many sizes of files and row groups at once.

PTO labels hundreds of candidates, most of which differ only in their sizes (section 3.2.5). The
rows are arranged once per partition spec and ordering (`in_any_size`); every size then only cuts
them elsewhere. `simulate` answers the same question for one layout of a decision, with replicates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from reconciler.advisor.simulate.arrangement import Arrangement, Slices, arranged, cut
from reconciler.advisor.simulate.layout import Layout, Sizes
from reconciler.advisor.simulate.pool import Pool, StoredBytes
from reconciler.advisor.simulate.sampled import stored_bytes
from reconciler.advisor.simulate.target import TargetPartitions, target_partitions
from reconciler.advisor.simulate.zones import zone_maps
from reconciler.plan.ordering import Ordering
from reconciler.queries.predicate import fields_of
from reconciler.queries.pruning import Partitions, may_match
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import type_width
from reconciler.table.filetable import ColumnBounds, Float64, Int64
from reconciler.table.schema import PartitionSpec

CELLS = 8_000_000
"""Queries x row groups pruned at once: bounds the memory, does not change the result."""


@dataclass(frozen=True)
class GridReadings:
    """What queries read, per size and demand. All arrays are float64[sizes, demands]."""

    window: Float64
    """Bytes read in the recorded window."""
    bytes: Float64
    """Bytes read over the horizon."""
    files: Float64
    """Number of files opened over the horizon."""
    groups: Float64
    """Number of row groups read over the horizon."""
    skipped: Float64
    """Number of row groups of opened files that are not read, over the horizon."""
    opened: Float64
    """Number of files opened in the recorded window."""


@dataclass(frozen=True)
class Grid:
    """What queries read in every size, and the files and row groups that it makes."""

    readings: GridReadings
    """What the queries read."""
    files: Float64
    """float64[sizes], number of files."""
    row_groups: Float64
    """float64[sizes], number of row groups."""
    sampled_rows: Float64
    """float64[sizes], sampled rows of the smallest row groups (their 10th percentile)."""
    bytes_written: Float64
    """float64[sizes], stored bytes of all rows."""
    rows: Float64
    """float64[sizes], rows of the row groups that are read over the horizon."""


@dataclass(frozen=True)
class SizedRows:
    """Arranged rows, and the bytes that a row takes in row groups of any size. Bytes depend on the
    size because the rows of a row group share a dictionary."""

    rows: Arrangement
    """The arranged rows."""
    known: tuple[StoredBytes, ...]
    """Bytes at the simulated sizes of row groups, the smallest first."""

    def bytes_per_row(self, row_group_bytes: float) -> float:
        """Return the stored bytes per row in row groups of this size."""
        stored = [known.per_row for known in self.known]
        found = stored[-1]
        for _ in range(2):  # rows of a row group depend on the bytes per row
            found = max(float(self.between(np.array([row_group_bytes / found]), stored)[0]), 1e-9)
        return found

    def between(self, rows: Float64, totals: Sequence[float]) -> Float64:
        """Return bytes per row in row groups of `rows` rows, from those at the known sizes: linear
        in the logarithm of rows."""
        known = np.log([known.rows for known in self.known])
        return np.interp(np.log(np.maximum(rows, 1.0)), known, totals)

    @cached_property
    def partitions(self) -> Partitions | None:
        """Return the partitions by which queries skip rows, without those of any row."""
        target = self.rows.target
        if target is None or target.spec.unpartitioned:
            return None
        spec, schema = target.spec, self.rows.pool.files.schema
        values = tuple((spec.spec_id, value) for value in target.values)
        return Partitions(schema, {spec.spec_id: spec}, values, np.zeros(0, dtype=np.int64))


def in_any_size(
    pool: Pool,
    spec: PartitionSpec,
    ordering: Ordering,
    *,
    thin: Pool,
    simulated: Sequence[Sizes],
    row_order: Int64 | None = None,
    target: TargetPartitions | None = None,
) -> SizedRows:
    """Return the rows by target partition, then in the ordering.

    thin: a thinner pool of the same files, which is enough to estimate bytes per row. simulated:
    the sizes at which bytes per row are simulated, from the smallest row groups to the largest.
    row_order, target: `row_order_of` and `target_partitions` of the pool, if they are known.
    """
    target = target_partitions(pool, spec) if target is None else target
    found = [_taken(thin, spec, ordering, each) for each in simulated]
    known = {each.rows: each for each in found}  # a small table has one size
    return SizedRows(
        arranged(pool, ordering, target.number, target, row_order),
        tuple(known[rows] for rows in sorted(known)),
    )


def _taken(thin: Pool, spec: PartitionSpec, ordering: Ordering, sizes: Sizes) -> StoredBytes:
    """Return what the rows take, simulated once: other queries, ranges and pools ask again."""
    key = (ordering, spec, sizes.target_bytes, sizes.row_group_bytes)
    if key not in thin.taken:
        together = np.zeros(len(thin.files), dtype=np.int64)
        own = None if spec.unpartitioned else spec
        layout = Layout(ordering, sizes.target_bytes, sizes.row_group_bytes, together, spec=own)
        thin.taken[key] = stored_bytes(thin, layout)
    return thin.taken[key]


def simulate_sizes(
    sized: SizedRows,
    sizes: Sequence[Sizes],
    demands: Sequence[Shape],
    *,
    widening: float = 1.0,
    unbounded: frozenset[int] = frozenset(),
) -> Grid:
    """Return what each size reads. widening: multiple of the correction for the sample's ranges; 0
    takes them as they are, which is too optimistic. unbounded: columns of which manifests have no
    bounds, so that no query skips a file by them."""
    rows = sized.rows
    per_row = [sized.bytes_per_row(size.row_group_bytes) for size in sizes]
    made = cut(rows, sizes, per_row)
    fields = sorted({f for d in demands for f in fields_of(d.predicate)} & set(rows.pool.columns))
    zones = {field: zone_maps(rows, made, field, widening) for field in fields}
    out = [np.zeros((len(sizes), len(demands))) for _ in range(6)]
    rows_read = np.zeros(len(sizes))
    groups_of = np.bincount(made.owner, made.groups.represents) / made.files.represents
    for column, demand in enumerate(demands):
        in_files = {field: zone[0] for field, zone in zones.items() if field not in unbounded}
        of_files = _expected(sized, demand, made.files, in_files)
        of_groups = _expected(sized, demand, made.groups, {f: z[1] for f, z in zones.items()})
        stored = _projected(sized, demand, made.groups) * made.groups.records
        rows_read += np.bincount(made.groups.size, of_groups[1] * made.groups.records, len(sizes))
        files, groups = of_files * made.files.represents, of_groups * made.groups.represents
        window, read, inner = (
            np.bincount(made.groups.size, weights, len(sizes))
            for weights in (of_groups[0] * stored, of_groups[1] * stored, groups[1])
        )
        opened, held, recorded = (
            np.bincount(made.files.size, weights, len(sizes))
            for weights in (files[1], files[1] * groups_of, files[0])
        )
        skipped = np.maximum(held - inner, 0.0)
        for into, found in zip(out, (window, read, opened, inner, skipped, recorded), strict=True):
            into[:, column] = found
    return Grid(
        GridReadings(*out),
        _counted(made.files, len(sizes)),
        _counted(made.groups, len(sizes)),
        made.smallest,
        np.array(per_row) * float(rows.cumulative[-1]),
        rows_read,
    )


def _counted(slices: Slices, sizes: int) -> Float64:
    return np.bincount(slices.size, slices.represents, sizes).astype(np.float64)


def _expected(
    sized: SizedRows, demand: Shape, slices: Slices, columns: Mapping[int, ColumnBounds]
) -> Float64:
    """Return how often each slice is read: in the window, and over the horizon, float64[2, n]."""
    weights = np.stack((demand.weight, demand.executions)).astype(np.float32)
    total = np.zeros((2, len(slices.starts)))
    if not demand.prunable:
        return total + weights.sum(axis=1, dtype=np.float64)[:, None]
    rows, placed = sized.rows, sized.partitions
    if placed is not None:
        numbers = rows.part[slices.starts]
        placed = Partitions(placed.schema, placed.specs, placed.values, numbers)
    records = np.maximum(np.rint(slices.records), 1).astype(np.int64)
    step = max(1, CELLS // max(len(records), 1))
    for start in range(0, len(demand), step):
        block = slice(start, min(start + step, len(demand)))
        part = demand.take(block)
        alive = may_match(
            part.predicate, part.literals, columns, records, partitions=placed,
            schema=rows.pool.files.schema, queries=len(part),
        )  # fmt: skip
        for kind in (0, 1):
            wanted = np.flatnonzero(weights[kind, block])
            if len(wanted):
                # Without BLAS, whose threads spin for many times the work of such matrices.
                total[kind] += np.einsum("q,qf->f", weights[kind, block][wanted], alive[wanted])
    return total


def _projected(sized: SizedRows, demand: Shape, slices: Slices) -> Float64:
    """Return the bytes per row of the projection, per slice."""
    schema, whole = sized.rows.pool.files.schema, max(known.per_row for known in sized.known)
    every = max(sum(type_width(field.type) for field in schema.fields), 1)

    def total(widths: Mapping[int, float]) -> float:
        known = (
            share * widths.get(f, whole * type_width(schema.by_id[f].type) / every)
            for f, share in demand.projection.items()
            if f in schema.by_id
        )
        return min(sum(known), whole) if demand.projection else 0.0

    return sized.between(slices.each, [total(known.widths) for known in sized.known])
