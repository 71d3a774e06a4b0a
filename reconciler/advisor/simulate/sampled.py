"""Simulates a rewrite on a sample of its rows (docs/design/definitions.md#what-if).

The group's sampled rows are sorted by the key and cut at the target size into files and again into
row groups; bounds per slice are widened by one rank. Utilization alone is optimistic (WAIR section
4.1): a file that overlaps nothing gains nothing from being sorted, and one key undoes the
clustering by others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reconciler.advisor.simulate.layout import (
    Layout,
    Outcome,
    Written,
    as_in_manifest,
    simulated_files,
)
from reconciler.advisor.simulate.missing import NAN, NULL, Held, held
from reconciler.advisor.simulate.neighbours import (
    domain_of_slices,
    neighbours_after,
    rows_of_value,
)
from reconciler.advisor.simulate.pool import FREQUENT, Pool, PoolColumn, row_order
from reconciler.advisor.simulate.sampled_domain import sampled_domain
from reconciler.advisor.simulate.sort_keys import rows_of_keys, unseen
from reconciler.advisor.simulate.stored import (
    slice_domain,
    sorted_value_bytes,
    written_share,
)
from reconciler.advisor.simulate.target import groups_of, placed, target_partitions
from reconciler.plan.ordering import Ordering
from reconciler.queries.demand import Demand
from reconciler.queries.read_cost import read_layout
from reconciler.queries.table_view import TableView, type_width
from reconciler.table.column_bytes import (
    FURTHER_PAGE,
    RUN_BYTES,
    StoredColumn,
    bytes_per_row,
    distinct_in,
    distinct_of_runs,
    drops_dictionary,
)
from reconciler.table.filetable import UNKNOWN, ColumnBounds, FileTable, Float64, Int64
from reconciler.table.row_group_bytes import PAGE_ROWS
from reconciler.table.values import Kind

MIN_SLICE_ROWS = 8
REPLICATES = 16
MOST_CUTS = 3
"""Times that rows are cut: what files repeat, such as dictionaries, decides how many files there
are, and these how often it is repeated."""

UNSEEN_RUN = 8.0
"""Rows of one key in order of arrival, up to which a compressor finds them as far apart as in no
order: times of 36 to 40 bits in runs of 8 rows took as much as in none, in longer ones as much as
in a 6th to a 17th of their length."""


def sampled(pool: Pool, layout: Layout) -> Written:
    """Return the files that the pool's rows become."""
    order = row_order(pool, layout.ordering, groups_of(pool, layout))
    view, cut = _simulated(pool, layout, order, pool.weight)
    return Written((view,), cut.files, "sampled", cut.share)


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """What rows take in a layout. per_row: stored bytes of a row; widths: of each column in it.
    rows: of all files. share: bytes written per live byte."""

    rows: float
    per_row: float
    widths: Mapping[int, float]
    share: float


def stored_bytes(pool: Pool, layout: Layout) -> StoredBytes:
    """Return what the pool's rows take: the sizes of `sampled`, without anybody's bounds."""
    order = row_order(pool, layout.ordering, groups_of(pool, layout))
    rows = pool.weight[order]
    cut, sizes = _settled(pool, layout, order, rows, None)
    each = np.add.reduceat(rows, cut.of_file)
    records = max(float(_whole(each).sum()), 1.0)
    columns = _of_files(sizes, cut.owner)
    widths = {field: float(np.rint(known).sum()) / records for field, known in columns.items()}
    per_row = float(_whole(each * cut.per_row).sum()) / records
    return StoredBytes(records, per_row, widths, cut.share)


def with_replicates(
    outcome: Outcome, pool: Pool, layout: Layout, demands: Sequence[Demand], seed: int
) -> Outcome:
    """Return the same outcome with a seeded bootstrap of the sampled rows, which shows the sample's
    error."""
    order = row_order(pool, layout.ordering, groups_of(pool, layout))
    random = np.random.default_rng(seed)
    written = outcome.written.views[0].files
    records = max(float(written.records.sum()), 1.0)
    widths = {field: float(known.sum()) / records for field, known in written.column_sizes.items()}
    earlier = _Earlier(widths, outcome.written.share)
    replicates = []
    for _ in range(REPLICATES):
        weight = pool.weight * random.poisson(1.0, len(pool))
        total = float(weight.sum())
        if total <= 0.0:
            continue
        kept = order[weight[order] > 0.0]
        view, _ = _simulated(pool, layout, kept, weight * (pool.weight.sum() / total), earlier)
        replicates.append(tuple(read_layout(view, d) for d in demands))
    return replace(outcome, replicates=tuple(replicates))


@dataclass(frozen=True, slots=True)
class _Earlier:
    """Results of an earlier simulation of the same layout. widths: column bytes per row, by field.
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
    pool: Pool, layout: Layout, order: Int64, weight: Float64, earlier: _Earlier | None = None
) -> tuple[TableView, _Slices]:
    """Return the output's files and row groups as a view, and how the rows were cut."""
    rows = weight[order]
    cut, sizes = _settled(pool, layout, order, rows, earlier)
    files = _slices(
        pool, layout, order, rows, cut.per_row, cut.of_file, _of_files(sizes, cut.owner)
    )
    groups = _slices(pool, layout, order, rows, cut.per_row, cut.of_group, sizes)
    view = TableView(
        as_in_manifest(files, layout.unbounded),
        _without_nans(groups, files, cut.owner),
        cut.owner,
        footer_bytes=pool.stored.footer.of(_row_groups(layout, files, cut.owner)),
        row_group_bytes=layout.row_group_bytes,
        open_bytes=layout.open_bytes,
    )
    return view, cut


def _settled(
    pool: Pool, layout: Layout, order: Int64, rows: Float64, earlier: _Earlier | None
) -> tuple[_Slices, dict[int, Float64]]:
    """Return how the rows are cut, and the column bytes per row group: sizes decide on cuts, and
    cuts on sizes."""
    cut = _sliced(pool, layout, order, rows, 1.0 if earlier is None else earlier.share)
    sizes = _group_sizes(pool, layout, order, rows, cut, earlier)
    for _ in range(MOST_CUTS if earlier is None else 0):
        share = written_share(pool.files, pool.stored, sizes, cut.files)
        settled, before = _sliced(pool, layout, order, rows, share), cut
        if not np.array_equal(settled.of_group, cut.of_group):
            sizes = _group_sizes(pool, layout, order, rows, settled, earlier)
        cut = settled
        if cut.files == before.files:
            break
    return cut, sizes


def _of_files(sizes: Mapping[int, Float64], owner: Int64) -> dict[int, Float64]:
    """Return the column bytes per file. owner: the file of each row group."""
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    return {field: np.add.reduceat(known, starts) for field, known in sizes.items()}


def _whole(values: Float64) -> Int64:
    return np.maximum(1, np.rint(values)).astype(np.int64)


def _row_groups(layout: Layout, files: FileTable, owner: Int64) -> Float64:
    """Return the row groups of each file; a thin sample may show fewer than there will be."""
    shown = np.bincount(owner, minlength=len(files))
    return np.maximum(shown, layout.row_groups_of(files.bytes)).astype(np.float64)


def _sliced(pool: Pool, layout: Layout, order: Int64, rows: Float64, share: float) -> _Slices:
    """Cut the rows where the execution would, if `share` of their bytes were written."""
    chunk = groups_of(pool, layout)[order]
    per_row = share * float(pool.files.live_bytes.sum()) / max(float(rows.sum()), 1e-9)
    file, real_files = _cut(chunk, rows * per_row, layout.files_of)
    group, _ = _cut(file, rows * per_row, layout.row_groups_of, layout.row_group_bytes)
    of_group = np.flatnonzero(np.diff(group, prepend=-1))
    of_file = np.flatnonzero(np.diff(file, prepend=-1))
    return _Slices(share, per_row, of_file, of_group, file[of_group].astype(np.int64), real_files)


def _group_sizes(
    pool: Pool,
    layout: Layout,
    order: Int64,
    rows: Float64,
    cut: _Slices,
    earlier: _Earlier | None,
) -> dict[int, Float64]:
    """Return the column bytes per written row group."""
    starts = cut.of_group
    records = np.add.reduceat(rows, starts)
    if earlier is not None:
        return {field: width * records for field, width in earlier.widths.items()}
    first = layout.ordering.lead
    lead = None if first is None else first.field_id
    total = max(float(pool.files.records.sum()), 1.0)
    # A slice of a thin sample may stand for several row groups.
    each = records / layout.row_groups_of(cut.per_row * records)
    alike_in_key = _key_runs(pool, layout.ordering, order, starts)
    # In the order of a column that grows with time, rows stay where they are.
    scattered = bool(layout.ordering.key) and not pool.stored.grows(lead)
    neighbours = neighbours_after(pool, layout.ordering, layout.spec, layout.page_rows)
    share = float(np.median(each)) / total
    alike = rows_of_value(pool, layout.ordering, layout.spec, share)
    fewer = domain_of_slices(pool, layout.ordering, layout.spec, share) if scattered else {}
    sizes = {}
    for field, known in pool.files.column_sizes.items():
        if (known == UNKNOWN).any():
            continue
        width = np.full(len(starts), float(np.maximum(known, 0).sum()) / total)
        stored = pool.stored.columns.get(field)
        if stored is not None and field == lead and stored.ordered:
            # In order already: a dictionary that lists each value once is not written again.
            if _unrepeated(stored, stored.distinct, stored.rows):
                width = stored.per_value + stored.overhead / each
        elif stored is not None:
            domain = _slice_domain(
                pool, field, order, starts, each, mixed=scattered and field in neighbours
            )
            if field in fewer:
                domain = np.minimum(domain, fewer[field])
            distinct = None
            if field in alike:
                runs = _runs_of_value(pool, field, order)
                distinct = distinct_of_runs(domain, each / alike[field], runs)
            width = bytes_per_row(
                stored,
                each,
                domain,
                reordered=scattered and field != lead,
                reach=_reach(pool, field, order, starts),
                wider=_wider(
                    pool, field, order, starts, _grows_for(alike_in_key, field, layout.ordering)
                ),
                then=neighbours.get(field) if field != lead else None,
                distinct=distinct,
                page_rows=layout.page_rows,
                together=alike_in_key.get(field, 1.0) if field != lead else 1.0,
            )
        elif stored is None and field != lead and field in pool.loses_runs and layout.ordering.key:
            width = np.maximum(width, type_width(pool.files.schema.by_id[field].type))
        sizes[field] = width * records
    if lead in sizes and lead in pool.columns:
        whole = float(sizes[lead].sum())
        pages = total / layout.page_rows - total / PAGE_ROWS  # more than usual
        least = _sorted_bytes(pool, lead) + FURTHER_PAGE * max(pages, 0.0)
        sizes[lead] *= min(1.0, least / max(whole, 1.0))
    return sizes


def _key_runs(pool: Pool, ordering: Ordering, order: Int64, starts: Int64) -> dict[int, Float64]:
    """Return, by column of the key, how many rows of each slice follow each other with the same
    value at least: those alike in it and the columns before it; along a curve, those alike in all
    of them."""
    key = ordering.key
    alike = [key[: number + 1] if ordering.lead else key for number in range(len(key))]
    return {
        column.field_id: rows_of_keys(pool, columns, order, starts)
        for column, columns in zip(key, alike, strict=True)
    }


def _runs_of_value(pool: Pool, field: int, order: Int64) -> float:
    """Return in how many runs of the whole a value is, at least one."""
    total, whole = float(pool.files.records.sum()), np.zeros(1, dtype=np.int64)
    domain = _slice_domain(pool, field, order, whole, np.array([total]), mixed=True)
    return max(total / pool.stored.columns[field].run / float(domain[0]), 1.0)


def _slice_domain(
    pool: Pool, field: int, order: Int64, starts: Int64, rows: Float64, *, mixed: bool
) -> Float64:
    """Return the number of values from which each slice draws: from its sampled rows, else from
    bounds. mixed: a slice has rows of any time, so that those sampled show its values even if rows
    are in the column's order now."""
    column = pool.columns.get(field)
    ordered = pool.stored.columns[field].ordered and not mixed
    if column is None or not pool.native.any() or ordered:
        return slice_domain(pool.stored, field, pool.file[order], starts)
    domain = sampled_domain(column.ranks[order], pool.native[order], starts, rows)
    spans = pool.stored.spans.get(field)
    return domain if spans is None else np.minimum(domain, spans.most(pool.file[order], starts))


def _reach(pool: Pool, field: int, order: Int64, starts: Int64) -> Float64 | None:
    """Return the width of the range of whole numbers that each slice may hold, from the bounds of
    its files, and of sampled columns from its rows if these are fewer."""
    spans = pool.stored.spans.get(field)
    if spans is None or not spans.discrete:
        return None
    reach, column = spans.reach(pool.file[order], starts), pool.columns.get(field)
    if column is None or column.kind is not Kind.INT:
        return reach
    ranks = column.ranks[order]
    high = np.maximum.reduceat(ranks, starts)
    low = np.minimum.reduceat(np.where(ranks < 0, len(column.distinct), ranks), starts)
    rows = np.add.reduceat((ranks >= 0).astype(np.float64), starts)
    filled = rows > 1.0
    values = column.distinct.astype(np.float64)
    seen = values[np.maximum(high, 0)] - values[np.minimum(low, len(values) - 1)]
    own = seen * (rows + 1.0) / np.maximum(rows - 1.0, 1.0) + 1.0
    return np.where(filled, np.minimum(reach, own), reach)


def _wider(
    pool: Pool, field: int, order: Int64, starts: Int64, run: Float64 | float
) -> Float64 | None:
    """Return by how many bits neighbouring rows are further apart in each slice than now; None of a
    column that does not grow from row to row. run: rows in which it does so in the new order."""
    step = pool.stored.steps.get(field)
    if step is None:
        return None
    reach = _reach(pool, field, order, starts)
    assert reach is not None  # only whole numbers have a step
    return np.log2(np.maximum(reach / np.maximum(run / UNSEEN_RUN, 1.0) / step, 1.0))


def _grows_for(
    alike_in_key: Mapping[int, Float64], field: int, ordering: Ordering
) -> Float64 | float:
    """Return for how many rows in a row of each slice a column that grows with time does so in this
    order.

    Rows of one key stay in order of arrival, and a further column of the key is in order in rows of
    those before. alike_in_key: `_key_runs`."""
    if ordering.lead is None:
        return 1.0
    key = [column.field_id for column in ordering.key]
    before = key.index(field) if field in key[1:] else len(key)
    return alike_in_key[key[before - 1]]


def _sorted_bytes(pool: Pool, field_id: int) -> float:
    """Return the stored bytes of a column when rows are sorted by it: one value per run of any
    length. Values that hardly repeat have no dictionary, and no runs."""
    rows = max(float(pool.files.records.sum()), 1.0)
    domain = _distinct(pool, field_id)
    distinct = float(distinct_in(np.array([domain]), np.array([rows]))[0])
    width = float(type_width(pool.files.schema.by_id[field_id].type))
    spans, stored = pool.stored.spans.get(field_id), pool.stored.columns.get(field_id)
    run = float(RUN_BYTES)
    if stored is not None and stored.ordered:
        pass  # in order already: how many values repeat is not known well enough
    elif spans is not None and spans.discrete:  # sorted numbers: a compressor stores their distance
        whole = float(spans.last.max() - spans.first.min() + 1.0)
        width = sorted_value_bytes(whole / max(distinct, 1.0), int(width))
        if stored is not None and _unrepeated(stored, distinct, rows):
            run = 0.0
    elif stored is not None:
        width = min(width, stored.per_value)
    return distinct * (width + run)


def _unrepeated(stored: StoredColumn, distinct: float, rows: float) -> bool:
    """Return whether so few values repeat among sorted rows that Java's writer lists none."""
    return drops_dictionary(round(PAGE_ROWS * distinct / rows), PAGE_ROWS, stored.width)


def _distinct(pool: Pool, field_id: int) -> float:
    """Return the distinct values of the whole, at least those of a row group."""
    ranks = pool.columns[field_id].ranks
    seen = np.bincount(ranks[ranks >= 0])
    distinct = int((seen > 0).sum()) + unseen(seen)
    stored = pool.stored.columns.get(field_id)
    return max(distinct, 1.0 if stored is None else stored.distinct)


def _cut(
    parent: Int64, size: Float64, count_of: Callable[[Float64], Int64], full: float = 0.0
) -> tuple[Int64, int]:
    """Return the slice per row, and the true count of slices.

    parent: ascending slice per row. count_of: number of slices of a parent. full: bytes at which a
    slice ends, so that the last one of a parent has the rest, as a writer's row groups; 0 for equal
    slices. If the sample is too thin for the true count, slices are equal and coarser, which
    overstates what is read.
    """
    starts = np.flatnonzero(np.diff(parent, prepend=-1))
    total = np.add.reduceat(size, starts)
    lengths = np.diff(np.append(starts, len(parent)))
    wanted = count_of(total)
    used = np.minimum(wanted, np.maximum(1, lengths // MIN_SLICE_ROWS))
    number = np.cumsum(np.diff(parent, prepend=parent[:1]) != 0)
    cumulative = np.cumsum(size)
    before = np.concatenate(([0.0], cumulative[starts[1:] - 1]))
    each = np.where(used < wanted, total / used, np.maximum(total / used, full))
    place = (cumulative - size / 2.0 - before[number]) / np.maximum(each[number], 1e-9)
    slot = np.minimum(place.astype(np.int64), used[number] - 1)
    offset = np.concatenate(([0], np.cumsum(used)[:-1]))
    code = offset[number] + np.maximum(slot, 0)
    return np.cumsum(np.diff(code, prepend=code[:1]) != 0).astype(np.int64), int(wanted.sum())


def _slices(
    pool: Pool,
    layout: Layout,
    order: Int64,
    rows: Float64,
    per_row: float,
    starts: Int64,
    column_sizes: Mapping[int, Float64],
) -> FileTable:
    """Simulated files (or row groups) with bounds, one per slice; starts: their first rows."""
    each = np.add.reduceat(rows, starts)
    stored = np.add.reduce(list(column_sizes.values()), axis=0)
    records = _whole(each)
    # A slice whose columns take more than others' is as much larger, or they would not fit into it.
    size = _whole(each * per_row + stored - each * np.sum(stored) / each.sum())
    chunk, lead = groups_of(pool, layout)[order], layout.ordering.lead
    # Groups of files follow each other in key order, target partitions do not.
    beside = np.zeros_like(chunk) if layout.spec is None else chunk
    columns = {}
    for field, column in pool.columns.items():
        direction = lead.direction if lead is not None and lead.field_id == field else ""
        holds = held(column.missing, order, rows, starts, records, chunk, direction)
        columns[field] = _slice_bounds(
            field, column, order, starts, records, holds, direction, beside
        )
    sizes = {field: np.rint(known).astype(np.int64) for field, known in column_sizes.items()}
    files = simulated_files(pool.files, records, size, columns, sizes, layout.partition)
    if layout.spec is None:
        return files
    target = target_partitions(pool, layout.spec)
    return placed(files, layout.spec, [target.values[n] for n in target.number[order[starts]]])


def _slice_bounds(
    field: int,
    column: PoolColumn,
    order: Int64,
    starts: Int64,
    records: Int64,
    holds: Held,
    direction: str,
    beside: Int64,
) -> ColumnBounds:
    """Return the bounds per slice. direction: of the sort if this column leads it, else empty.

    beside: equal for ordered rows whose slices follow each other in key order.
    """
    ranks = column.ranks[order]
    null = ranks < 0
    top = len(column.distinct)
    low = np.minimum.reduceat(np.where(null, top, ranks), starts)
    high = np.maximum.reduceat(ranks, starts)
    present = high >= 0
    low, high = np.minimum(low, max(top - 1, 0)), np.maximum(high, 0)
    if direction:
        # In key order the neighbour rows belong to the next slices: no gap is wider than that.
        previous, ends = np.maximum(starts - 1, 0), np.append(starts[1:], len(ranks))
        following = np.minimum(ends, len(ranks) - 1)
        before = np.where(beside[previous] == beside[starts], ranks[previous], -1)
        after = np.where(beside[following] == beside[starts], ranks[following], -1)
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
