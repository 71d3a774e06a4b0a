"""Estimates what queries would read after a rewrite; every action is judged by it (definitions:
What-if).

The group's sampled rows are sorted by the key and cut at the target size into files and again into
row groups; bounds per slice are widened by one rank; then all queries are evaluated on the
simulated files exactly as on real ones. Utilization alone is optimistic (WAIR section 4.1): a file
that overlaps nothing gains nothing from being sorted, and one key undoes the clustering by others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reconciler.advisor.simulate.missing import NAN, NULL, Held, held
from reconciler.advisor.simulate.pool import FREQUENT, Pool, PoolColumn, row_order
from reconciler.advisor.simulate.stored import (
    Stored,
    sampled_domain,
    slice_domain,
    stored_columns,
    written_share,
)
from reconciler.plan.grouping import output_files
from reconciler.plan.ordering import Ordering
from reconciler.queries.read_cost import (
    OPEN_BYTES,
    Demand,
    ShapeReading,
    TableView,
    read_layout,
    read_shape,
    type_width,
)
from reconciler.table.column_bytes import RUN_BYTES, bytes_per_row
from reconciler.table.filetable import UNKNOWN, Array, Bool, ColumnBounds, FileTable, Float64, Int64
from reconciler.table.row_group_bytes import row_groups_of
from reconciler.table.sample import RowSample
from reconciler.table.values import Kind

MAX_BOUNDED_GROUPS = 64
"""Rewrites with more groups than this are not judged by bounds: they are worth a sketch first."""

MIN_SLICE_ROWS = 8
REPLICATES = 16


@dataclass(frozen=True, slots=True)
class Rewrite:
    """How a group's rows would be written. chunk_of_file: execution group per file, int64."""

    ordering: Ordering
    target_bytes: int
    row_group_bytes: int
    chunk_of_file: Int64
    open_bytes: int = OPEN_BYTES


@dataclass(frozen=True)
class Outcome:
    """The simulated table of a rewrite's output and what each shape reads from it.

    files: data files written. replicates: per bootstrap replicate, per shape, the readings. label:
    "sampled", "bound" (proved from zone maps alone) or "exact". view: the output; only its first
    group if `others` has the rest. written_share: bytes written per live byte read.
    """

    readings: tuple[ShapeReading, ...]
    files: int
    label: str
    view: TableView
    replicates: tuple[tuple[ShapeReading, ...], ...] = ()
    others: tuple[TableView, ...] = ()
    written_share: float = 1.0


def what_if(pool: Pool, rewrite: Rewrite, demands: Sequence[Demand]) -> Outcome:
    """Return the readings of every shape after the rewrite, from the sample."""
    chunk = rewrite.chunk_of_file[pool.file]
    order = row_order(pool, rewrite.ordering, chunk)
    view, cut = _simulated(pool, rewrite, order, pool.weight)
    readings = tuple(read_layout(view, d) for d in demands)
    return Outcome(readings, cut.files, "sampled", view, written_share=cut.share)


def with_replicates(
    outcome: Outcome, pool: Pool, rewrite: Rewrite, demands: Sequence[Demand], seed: int
) -> Outcome:
    """Return the same outcome with a seeded bootstrap of the sampled rows, which shows the sample's
    error."""
    chunk = rewrite.chunk_of_file[pool.file]
    order = row_order(pool, rewrite.ordering, chunk)
    random = np.random.default_rng(seed)
    written = outcome.view.files
    records = max(float(written.records.sum()), 1.0)
    widths = {field: float(known.sum()) / records for field, known in written.column_sizes.items()}
    told = _Told(widths, outcome.written_share)
    replicates = []
    for _ in range(REPLICATES):
        weight = pool.weight * random.poisson(1.0, len(pool))
        total = float(weight.sum())
        if total <= 0.0:
            continue
        kept = order[weight[order] > 0.0]
        view, _ = _simulated(pool, rewrite, kept, weight * (pool.weight.sum() / total), told)
        replicates.append(tuple(read_layout(view, d) for d in demands))
    return replace(outcome, replicates=tuple(replicates))


@dataclass(frozen=True, slots=True)
class _Told:
    """Results of an earlier simulation of the same rewrite. widths: column bytes per row, by field.
    share: bytes written per live byte read."""

    widths: Mapping[int, float]
    share: float


@dataclass(frozen=True, slots=True)
class _Slices:
    """The rows, in their new order, cut into files and row groups, if `share` of their bytes is
    written.

    per_row: of each. of_file, of_group: first rows, int64[slices]. owner: the file of each row
    group. files: how many real files they represent.
    """

    share: float
    per_row: float
    of_file: Int64
    of_group: Int64
    owner: Int64
    files: int


def _simulated(
    pool: Pool, rewrite: Rewrite, order: Int64, weight: Float64, told: _Told | None = None
) -> tuple[TableView, _Slices]:
    """Return the output's files and row groups as a view, and how the rows were cut."""
    rows = weight[order]
    cut = _sliced(pool, rewrite, order, rows, 1.0 if told is None else told.share)
    sizes = _group_sizes(pool, rewrite, order, rows, cut, told)
    if told is None:
        share = written_share(pool.files, pool.stored, sizes, cut.files)
        settled = _sliced(pool, rewrite, order, rows, share)
        if not np.array_equal(settled.of_group, cut.of_group):
            sizes = _group_sizes(pool, rewrite, order, rows, settled, told)
        cut = settled
    starts = np.flatnonzero(np.diff(cut.owner, prepend=-1))
    whole = {field: np.add.reduceat(known, starts) for field, known in sizes.items()}
    files = _slices(pool, rewrite, order, rows, cut.per_row, cut.of_file, whole)
    groups = _slices(pool, rewrite, order, rows, cut.per_row, cut.of_group, sizes)
    view = TableView(
        files,
        _without_nans(groups, files, cut.owner),
        cut.owner,
        row_group_bytes=rewrite.row_group_bytes,
        open_bytes=rewrite.open_bytes,
    )
    return view, cut


def _sliced(pool: Pool, rewrite: Rewrite, order: Int64, rows: Float64, share: float) -> _Slices:
    """Cut the rows where the execution would, if `share` of their bytes were written."""
    chunk = rewrite.chunk_of_file[pool.file[order]]
    per_row = share * float(pool.files.live_bytes.sum()) / max(float(rows.sum()), 1e-9)
    file, real_files = _cut(chunk, rows * per_row, output_files, rewrite.target_bytes)
    group, _ = _cut(file, rows * per_row, row_groups_of, rewrite.row_group_bytes)
    of_group = np.flatnonzero(np.diff(group, prepend=-1))
    of_file = np.flatnonzero(np.diff(file, prepend=-1))
    return _Slices(share, per_row, of_file, of_group, file[of_group].astype(np.int64), real_files)


def _group_sizes(
    pool: Pool,
    rewrite: Rewrite,
    order: Int64,
    rows: Float64,
    cut: _Slices,
    told: _Told | None,
) -> dict[int, Float64]:
    """Return the column bytes per written row group."""
    starts = cut.of_group
    records = np.add.reduceat(rows, starts)
    if told is not None:
        return {field: width * records for field, width in told.widths.items()}
    first = rewrite.ordering.lead
    lead = None if first is None else first.field_id
    total = max(float(pool.files.records.sum()), 1.0)
    # A slice of a thin sample may stand for several row groups.
    each = records / row_groups_of(cut.per_row * records, rewrite.row_group_bytes)
    sizes = {}
    for field, known in pool.files.column_sizes.items():
        if (known == UNKNOWN).any():
            continue
        width = np.full(len(starts), float(np.maximum(known, 0).sum()) / total)
        if field in pool.stored.columns:
            domain = _slice_domain(pool, field, order, starts, each)
            width = bytes_per_row(
                pool.stored.columns[field],
                each,
                domain,
                reordered=bool(rewrite.ordering.key) and field != lead,
                reach=_reach(pool, field, order, starts),
            )
        sizes[field] = width * records
    if lead in sizes and lead in pool.columns:
        whole = float(sizes[lead].sum())
        sizes[lead] *= min(1.0, _sorted_bytes(pool, lead) / max(whole, 1.0))
    return sizes


def _slice_domain(pool: Pool, field: int, order: Int64, starts: Int64, rows: Float64) -> Float64:
    """Return the number of values from which each slice draws: from its sampled rows, else from
    bounds."""
    column = pool.columns.get(field)
    if column is None or not pool.native.any() or pool.stored.columns[field].ordered:
        return slice_domain(pool.stored, field, pool.file[order], starts)
    domain = sampled_domain(column.ranks[order], pool.native[order], starts, rows)
    spans = pool.stored.spans.get(field)
    return domain if spans is None else np.minimum(domain, spans.most(pool.file[order], starts))


def _reach(pool: Pool, field: int, order: Int64, starts: Int64) -> Float64 | None:
    """Return the width of the range of whole numbers that each slice may hold, from bounds."""
    spans = pool.stored.spans.get(field)
    return spans.reach(pool.file[order], starts) if spans is not None and spans.discrete else None


def _sorted_bytes(pool: Pool, field_id: int) -> float:
    """Return the stored bytes of a column when rows are sorted by it: one value per run of any
    length.

    The distinct values of the whole are estimated from the sample by the bias-corrected form of
    Anne Chao's estimator ("Nonparametric Estimation of the Number of Classes in a Population").
    """
    ranks = pool.columns[field_id].ranks
    seen = np.bincount(ranks[ranks >= 0])
    once, twice = int((seen == 1).sum()), int((seen == 2).sum())
    distinct = int((seen > 0).sum()) + once * max(once - 1, 0) / (2.0 * (twice + 1))
    width = type_width(pool.files.schema.by_id[field_id].type)
    return distinct * (width + RUN_BYTES)


def _cut(
    parent: Int64, size: Float64, count_of: Callable[[Float64, float], Int64], wanted_bytes: int
) -> tuple[Int64, int]:
    """Return the slice per row, and the true count of slices: each parent is cut into equal slices.

    parent: ascending slice per row. count_of: number of slices of a parent. If the sample is too
    thin for the true count, slices are coarser, which overstates what is read.
    """
    starts = np.flatnonzero(np.diff(parent, prepend=-1))
    total = np.add.reduceat(size, starts)
    lengths = np.diff(np.append(starts, len(parent)))
    wanted = count_of(total, wanted_bytes)
    used = np.minimum(wanted, np.maximum(1, lengths // MIN_SLICE_ROWS))
    number = np.cumsum(np.diff(parent, prepend=parent[:1]) != 0)
    cumulative = np.cumsum(size)
    before = np.concatenate(([0.0], cumulative[starts[1:] - 1]))
    place = (cumulative - size / 2.0 - before[number]) / np.maximum(total[number], 1e-9)
    slot = np.minimum((place * used[number]).astype(np.int64), used[number] - 1)
    offset = np.concatenate(([0], np.cumsum(used)[:-1]))
    code = offset[number] + np.maximum(slot, 0)
    return np.cumsum(np.diff(code, prepend=code[:1]) != 0).astype(np.int64), int(wanted.sum())


def _slices(
    pool: Pool,
    rewrite: Rewrite,
    order: Int64,
    rows: Float64,
    per_row: float,
    starts: Int64,
    column_sizes: Mapping[int, Float64],
) -> FileTable:
    """Simulated files (or row groups) with bounds, one per slice; starts: their first rows."""
    records = np.maximum(1, np.rint(np.add.reduceat(rows, starts))).astype(np.int64)
    size = np.maximum(1, np.rint(np.add.reduceat(rows, starts) * per_row)).astype(np.int64)
    chunk, lead = rewrite.chunk_of_file[pool.file[order]], rewrite.ordering.lead
    columns = {}
    for field, column in pool.columns.items():
        direction = lead.direction if lead is not None and lead.field_id == field else ""
        holds = held(column.missing, order, rows, starts, records, chunk, direction)
        columns[field] = _slice_bounds(field, column, order, starts, records, holds, direction)
    sizes = {field: np.rint(known).astype(np.int64) for field, known in column_sizes.items()}
    return simulated_files(pool.files, records, size, columns, sizes)


def _slice_bounds(
    field: int,
    column: PoolColumn,
    order: Int64,
    starts: Int64,
    records: Int64,
    holds: Held,
    direction: str,
) -> ColumnBounds:
    """Return the bounds per slice. direction: of the sort if this column leads it, else empty."""
    ranks = column.ranks[order]
    null = ranks < 0
    top = len(column.distinct)
    low = np.minimum.reduceat(np.where(null, top, ranks), starts)
    high = np.maximum.reduceat(ranks, starts)
    present = high >= 0
    low, high = np.minimum(low, max(top - 1, 0)), np.maximum(high, 0)
    if direction:
        # In key order the neighbour rows belong to the next slices: no gap is wider than that.
        before = ranks[np.maximum(starts - 1, 0)]
        ends = np.append(starts[1:], len(ranks))
        after = ranks[np.minimum(ends, len(ranks) - 1)]
        low_wide = np.where((before >= 0) & (before < low), before, low)
        high_wide = np.where((after >= 0) & (after > high), after, high)
        at_start, at_end = low == low.min(), high == high.max()
    else:
        frequent = column.share >= FREQUENT
        below, above = np.maximum(low - 1, 0), np.minimum(high + 1, max(top - 1, 0))
        low_wide = np.where(frequent[below], low, below)
        high_wide = np.where(frequent[above], high, above)
        at_start, at_end = low == 0, high >= top - 1
    lower, upper = column.distinct[low_wide], column.distinct[high_wide]
    if column.least is not None:
        least = np.asarray(column.least)
        lower = np.where(at_start, least, lower.astype(np.promote_types(lower.dtype, least.dtype)))
    if column.greatest is not None:
        most = np.asarray(column.greatest)
        upper = np.where(at_end, most, upper.astype(np.promote_types(upper.dtype, most.dtype)))
    count = len(starts)
    return ColumnBounds(
        field, column.kind, lower, upper, present, present.copy(), holds.rows[NULL],
        holds.rows[NAN], records, np.full(count, UNKNOWN, dtype=np.int64),
        np.zeros(count, dtype=bool),
    )  # fmt: skip


def _without_nans(groups: FileTable, files: FileTable, owner: Int64) -> FileTable:
    """Return the row groups as footers describe them: Parquet has no NaN counts, only manifests
    have."""
    columns = {}
    for field, column in groups.columns.items():
        none = files.columns[field].nans[owner] == 0
        columns[field] = replace(column, nans=np.where(none, 0, UNKNOWN).astype(np.int64))
    return replace(groups, columns=columns)


def simulated_files(
    base: FileTable,
    records: Int64,
    size: Int64,
    columns: dict[int, ColumnBounds],
    column_sizes: dict[int, Int64],
) -> FileTable:
    """Return a file table of files that do not exist, in the partition of `base` (one
    partition)."""
    count = len(records)
    zeros, unknown = np.zeros(count, dtype=np.int64), np.full(count, UNKNOWN, dtype=np.int64)
    return replace(
        base,
        path=np.array([f"simulated-{i:06d}" for i in range(count)], dtype=object),
        spec_id=np.full(count, base.spec_id[0], dtype=base.spec_id.dtype),
        partition=np.full(count, base.partition[0], dtype=base.partition.dtype),
        records=records,
        bytes=size,
        sequence=zeros,
        added_ms=unknown,
        layout_written=np.ones(count, dtype=bool),
        sort_order_id=unknown.astype(base.sort_order_id.dtype),
        parquet=np.ones(count, dtype=bool),
        encrypted=np.zeros(count, dtype=bool),
        position_deleted=zeros,
        delete_files=zeros,
        delete_bytes=zeros,
        equality_deletes=zeros,
        newest_delete=unknown,
        columns=columns,
        column_sizes=column_sizes,
    )


def bound_what_if(files: FileTable, rewrite: Rewrite, demands: Sequence[Demand]) -> Outcome | None:
    """Return an upper bound of the reading after a sort by the key's first column, proved from
    bounds.

    A value of rank r is at least the r-th smallest if all rows are at their file's lower bound, and
    at most the r-th smallest if all are at the upper bound; NULLs are sorted before all values, NaN
    after them. Other columns keep the group's bounds. None if nothing can be proved: a Hilbert
    curve, a column without bounds or NULL counts, or rows of several groups that mix.
    """
    if rewrite.ordering.lead is None:
        return None
    lead = files.columns.get(rewrite.ordering.lead.field_id)
    if lead is None or not lead.bounded.all() or (lead.nulls < 0).any() or len(files) == 0:
        return None
    chunks = np.unique(rewrite.chunk_of_file)
    if len(chunks) > MAX_BOUNDED_GROUPS:
        return None
    parts = [
        _bounded_outputs(files.take(np.flatnonzero(rewrite.chunk_of_file == chunk)), rewrite)
        for chunk in chunks
    ]
    readings = []
    for demand in demands:
        readings.append(_added([read_shape(view, demand) for view in parts]))
    count = sum(len(view.files) for view in parts)
    return Outcome(tuple(readings), count, "bound", parts[0], others=tuple(parts[1:]))


def _bounded_outputs(files: FileTable, rewrite: Rewrite) -> TableView:
    live = np.maximum(files.records - files.position_deleted, 1)
    size = int(files.live_bytes.sum())
    count = int(output_files(size, rewrite.target_bytes))
    edges = np.linspace(0.0, float(live.sum()), count + 1)
    assert rewrite.ordering.lead is not None
    lead = rewrite.ordering.lead.field_id
    columns = {}
    for field, column in files.columns.items():
        whole = bool(column.bounded.all())
        if field == lead:
            gone = int(np.minimum(files.position_deleted, column.nulls).sum())
            nulls_first = int(column.nulls.sum())
            lower = _rank_values(column.lower, live, edges[:-1] - nulls_first)
            upper = _rank_values(
                column.upper, _values_at_least(files, column), edges[1:] - nulls_first + gone
            )
        else:
            # numpy sorts byte strings but has no minimum for them
            lower = np.repeat(np.sort(column.lower)[:1], count)
            upper = np.repeat(np.sort(column.upper)[-1:], count)
        nulls = -1 if (column.nulls < 0).any() else int(column.nulls.sum())
        columns[field] = ColumnBounds(
            field, column.kind, lower, upper, np.full(count, whole), np.full(count, whole),
            np.full(count, nulls, dtype=np.int64), np.full(count, UNKNOWN, dtype=np.int64),
            np.full(count, UNKNOWN, dtype=np.int64), np.full(count, UNKNOWN, dtype=np.int64),
            np.ones(count, dtype=bool),
        )  # fmt: skip
    sizes = {
        field: np.full(count, int(known.sum()) // count, dtype=np.int64)
        for field, known in files.column_sizes.items()
        if (known != UNKNOWN).all()
    }
    each = np.full(count, max(1, int(live.sum()) // count), dtype=np.int64)
    table = simulated_files(files, each, np.full(count, size // count), columns, sizes)
    return TableView(table, row_group_bytes=1 << 62, open_bytes=rewrite.open_bytes)


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


def _added(readings: Sequence[ShapeReading]) -> ShapeReading:
    return ShapeReading(
        bytes=np.sum([r.bytes for r in readings], axis=0),
        files=np.sum([r.files for r in readings], axis=0),
        matching=np.sum([r.matching for r in readings], axis=0),
        cost=np.sum([r.cost for r in readings], axis=0),
        saving=np.zeros(0),
        read=np.zeros(0),
    )


def merged_whole(
    view: TableView, bins: Int64, row_group_bytes: int, stored: Stored | None = None
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
    sizes |= _merged_sizes(view, stored, order, starts, records, each)
    table = simulated_files(view.files, records, size, columns, sizes)
    return TableView(table, row_group_bytes=1 << 62, open_bytes=view.open_bytes)


def _merged_sizes(
    view: TableView, stored: Stored, order: Int64, starts: Int64, records: Int64, each: Float64
) -> dict[int, Int64]:
    """Return the column bytes per merged file, for columns whose footers show how they are stored.

    order: input files by output file; starts: first input per output; each: rows of a row group.
    """
    sizes, sample = {}, view.sample
    for field, column in stored.columns.items():
        if sample is not None and field in sample.values and len(sample) and not column.ordered:
            place = np.argsort(order)[sample.file]
            output = np.searchsorted(starts, place, side="right") - 1
            domain = _merged_domain(sample, field, output, each)
        else:
            domain = slice_domain(stored, field, order, starts)
        width = bytes_per_row(column, np.maximum(each, 1.0), domain)
        sizes[field] = np.rint(width * records).astype(np.int64)
    return sizes


def _merged_domain(sample: RowSample, field: int, output: Int64, rows: Float64) -> Float64:
    """Like `sampled_domain`, for outputs some of which may have no sampled row."""
    ranks = np.unique(sample.values[field], return_inverse=True)[1].reshape(-1)
    ranks = np.where(sample.null[field], -1, ranks)
    by_output = np.argsort(output, kind="stable")
    present, starts = np.unique(output[by_output], return_index=True)
    native = np.ones(len(ranks), dtype=bool)
    found = sampled_domain(ranks[by_output], native, starts, rows[present])
    domain = np.full(len(rows), float(found.mean()))
    domain[present] = found
    return domain


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
