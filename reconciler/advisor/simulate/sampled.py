"""Simulates a rewrite on a sample of its rows (docs/design/definitions.md#what-if).

The group's sampled rows are sorted by the key and cut at the target size into files and again into
row groups, whose ranges are widened. Utilization alone is optimistic (WAIR section 4.1): a file
that overlaps nothing gains nothing from being sorted, and one key undoes the clustering by others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reconciler.advisor.simulate.arrangement import Arrangement, Pieces, Slices, arranged, cut
from reconciler.advisor.simulate.column_sizes import ColumnSizes, column_sizes
from reconciler.advisor.simulate.layout import (
    Layout,
    Outcome,
    Written,
    WrittenRows,
    as_in_manifest,
    simulated_files,
)
from reconciler.advisor.simulate.pool import Pool, StoredBytes
from reconciler.advisor.simulate.slices import written_share
from reconciler.advisor.simulate.target import placed, target_partitions
from reconciler.advisor.simulate.zones import zone_maps
from reconciler.queries.read_cost import read_layout
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import TableView
from reconciler.table.filetable import ColumnBounds, FileTable, Float64, Int64

REPLICATES = 16
MOST_CUTS = 3
"""Times that rows are cut: what files repeat, such as dictionaries, decides how many files there
are, and these how often it is repeated."""


def sampled(pool: Pool, layout: Layout) -> Written:
    """Return the files that the pool's rows become."""
    rows = _arranged(pool, layout)
    settled = _settled(rows, layout)
    return Written((_view(rows, layout, settled),), settled.files, "sampled", settled.share)


def sampled_rows(pool: Pool, layout: Layout) -> WrittenRows:
    """Return the files that the pool's rows become, and which rows are in each."""
    rows = _arranged(pool, layout)
    settled = _settled(rows, layout)
    files = settled.made.files
    owner = np.repeat(np.arange(len(files.starts), dtype=np.int64), files.rows)
    sample = replace(pool.as_sample(), file=np.zeros(len(pool), dtype=np.int64)).take(rows.order)
    return WrittenRows(_view(rows, layout, settled), replace(sample, file=owner), files.represents)


def stored_bytes(pool: Pool, layout: Layout) -> StoredBytes:
    """Return what the pool's rows take: the sizes of `sampled`, without anybody's bounds."""
    rows = _arranged(pool, layout)
    settled = _settled(rows, layout)
    records = max(float(_whole(settled.made.files.records).sum()), 1.0)
    widths = {field: float(known.sum()) / records for field, known in settled.sizes.bytes.items()}
    held = min(layout.row_group_bytes / max(settled.per_row, 1e-9), records)
    return StoredBytes(held, settled.per_row, widths)


def with_replicates(
    outcome: Outcome, pool: Pool, layout: Layout, demands: Sequence[Shape], seed: int
) -> Outcome:
    """Return the same outcome with a seeded bootstrap of the sampled rows, which shows the sample's
    error."""
    rows, random = _arranged(pool, layout), np.random.default_rng(seed)
    written, share = outcome.written.views[0].files, outcome.written.share
    records = max(float(written.records.sum()), 1.0)
    widths = {field: float(known.sum()) / records for field, known in written.column_sizes.items()}
    replicates = []
    for _ in range(REPLICATES):
        weight = pool.weight * random.poisson(1.0, len(pool))
        total = float(weight.sum())
        if total <= 0.0:
            continue
        drawn = rows.weighted(weight * (pool.weight.sum() / total))
        per_row, made = _cut(drawn, layout, share)
        sizes = {field: width * made.groups.records for field, width in widths.items()}
        view = _view(drawn, layout, _Settled(share, per_row, made, ColumnSizes(sizes, {})))
        replicates.append(tuple(read_layout(view, d) for d in demands))
    return replace(outcome, replicates=tuple(replicates))


def _arranged(pool: Pool, layout: Layout) -> Arrangement:
    if layout.spec is None:
        return arranged(pool, layout.ordering, layout.groups[pool.file])
    target = target_partitions(pool, layout.spec)
    return arranged(pool, layout.ordering, target.number, target)


@dataclass(frozen=True, slots=True)
class _Settled:
    """How the rows are cut, and what they take so."""

    share: float
    """Bytes written per live byte read."""
    per_row: float
    """Stored bytes of a row."""
    made: Pieces
    """The files and row groups."""
    sizes: ColumnSizes
    """What each column takes in each row group."""

    @property
    def files(self) -> int:
        return round(float(self.made.files.represents.sum()))


def _cut(rows: Arrangement, layout: Layout, share: float) -> tuple[float, Pieces]:
    """Return the bytes of a row, and where rows are cut, if `share` of their bytes is written."""
    live = float(rows.pool.files.live_bytes.sum())
    per_row = share * live / max(float(rows.cumulative[-1]), 1e-9)
    return per_row, cut(rows, [layout.sizes], [per_row])


def _settled(rows: Arrangement, layout: Layout) -> _Settled:
    """Return how the rows are cut: sizes decide on cuts, and cuts on sizes."""
    pool = rows.pool
    per_row, made = _cut(rows, layout, 1.0)
    now = _Settled(1.0, per_row, made, column_sizes(rows, layout, made.groups))
    for _ in range(MOST_CUTS):
        share = written_share(pool.files, pool.stored, now.sizes.bytes, now.files)
        per_row, made = _cut(rows, layout, share)
        sizes = now.sizes
        if not np.array_equal(made.groups.starts, now.made.groups.starts):
            sizes = column_sizes(rows, layout, made.groups)
        before, now = now, _Settled(share, per_row, made, sizes)
        if now.files == before.files:
            break
    return now


def _whole(values: Float64) -> Int64:
    return np.maximum(1, np.rint(values)).astype(np.int64)


def _view(rows: Arrangement, layout: Layout, settled: _Settled) -> TableView:
    """Return the output's files and row groups as a view."""
    made, per_row = settled.made, settled.per_row
    zones = {field: zone_maps(rows, made, field) for field in rows.pool.columns}
    first = np.flatnonzero(np.diff(made.owner, prepend=-1))
    sizes = settled.sizes.bytes
    of_files = {field: np.add.reduceat(known, first) for field, known in sizes.items()}
    files, groups = (
        _tabled(rows, layout, slices, per_row, sizes, {f: zone[at] for f, zone in zones.items()})
        for at, (slices, sizes) in enumerate(((made.files, of_files), (made.groups, sizes)))
    )
    shown = np.bincount(made.owner, weights=made.groups.represents, minlength=len(files))
    return TableView(
        as_in_manifest(files, layout.unbounded),
        groups,
        made.owner,
        footer_bytes=rows.pool.stored.footer.of(shown / made.files.represents),
        row_group_bytes=layout.row_group_bytes,
        open_bytes=layout.open_bytes,
        dictionary_bytes={
            field: np.rint(one).astype(np.int64)
            for field, one in settled.sizes.dictionary.items()
        },
    )  # fmt: skip


def _tabled(
    rows: Arrangement,
    layout: Layout,
    slices: Slices,
    per_row: float,
    sizes: Mapping[int, Float64],
    columns: dict[int, ColumnBounds],
) -> FileTable:
    """Return slices as a table of files. sizes: their column bytes, by field."""
    stored = np.add.reduce(list(sizes.values()), axis=0)
    # A slice whose columns take more than others' is as much larger, or they would not fit into it.
    mean = np.sum(stored) / slices.records.sum()
    size = _whole(slices.records * (per_row - mean) + stored)
    known = {field: np.rint(one).astype(np.int64) for field, one in sizes.items()}
    files = simulated_files(
        rows.pool.files, _whole(slices.records), size, columns, known, layout.partition
    )
    if rows.target is None:
        return files
    numbers = rows.part[slices.starts].tolist()
    return placed(files, rows.target.spec, [rows.target.values[number] for number in numbers])
