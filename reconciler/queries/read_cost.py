"""Costs of queries and of rewriting files, in comparable bytes.

One unit for both: the projected byte read. An opened file counts as OPEN_BYTES, a byte rewritten as
rho bytes read (definitions: Read cost, rho). The advisor's decisions, the plan's totals and the
ledger's realised savings all go through `read_shape`, on the real table and on simulated layouts
(WAIR sections 4.1 and 5.2: row groups and projection adjust utilization).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from reconciler.queries.predicate import TRUE, Predicate
from reconciler.queries.predicate_batch import SlotLiterals
from reconciler.queries.pruning import may_match, partitions_of
from reconciler.queries.range_overlap import Index, Shares, covered_shares
from reconciler.queries.row_filter import matches
from reconciler.table.filetable import UNKNOWN, Array, Bool, FileTable, Float64, Int64
from reconciler.table.sample import RowGroups, RowSample
from reconciler.table.schema import Schema

Float32 = npt.NDArray[np.float32]

OPEN_BYTES = 1 << 20
"""The cost of opening one file in bytes read, until calibrated (definitions: Read cost)."""

PROBE_ROWS = 16_384
"""Maximum sampled rows for measuring utilization, which only orders candidates."""

BLOCK_CELLS = 2_000_000
"""Queries x files evaluated at once: bounds the memory, does not change the result."""

MATCH_CELLS = 16 * BLOCK_CELLS
"""Queries x files pruned at once, one byte each."""

TILE_CELLS = 1 << 16
"""Queries x files whose shares are computed at once: temporaries of this size stay in the cache."""

SPARSE = 0.5
"""If fewer files of a tile than this share are read by any query, only those are computed."""


@dataclass(frozen=True, slots=True)
class Rho:
    """CPU of rewriting one input byte / CPU of reading one projected byte. label: its source."""

    value: float = 4.0
    label: str = "model"


PRIOR_RHO = Rho()


def rho_from(measured: Sequence[float]) -> Rho:
    """Return the geometric mean of the measured ratios and the prior of 4, which counts once."""
    usable = [m for m in measured if np.isfinite(m) and m > 0.0]
    if not usable:
        return PRIOR_RHO
    logs = np.log(np.array([PRIOR_RHO.value, *usable]))
    return Rho(float(np.exp(logs.mean())), "measured")


@dataclass(frozen=True, slots=True)
class ThroughputSample:
    """One executed rewrite. kind: "pack" (rows keep their order) | "sort" (by a key or curve).

    files: number of files read. first: of its kind in its plan, so that it paid for the JVM's
    warm-up.
    """

    kind: str
    bytes: int
    cpu_seconds: float
    seconds: float
    files: int = 0
    first: bool = True


CPU_PER_BYTE: Mapping[str, float] = {"pack": 1.9e-7, "sort": 2.6e-7}
CPU_PER_FILE = 0.005
CPU_PER_ACTION: Mapping[str, float] = {"pack": 0.1, "sort": 0.25}
CPU_OF_FIRST: Mapping[str, float] = {"pack": 0.1, "sort": 1.75}
"""CPU seconds of reading, sorting, writing and verifying, by kind: measured on TPC-H tables of 0.2
to 173 MB in 3 to 60 files, each the first work of a fresh JVM, and on 21 partitions of one table in
one JVM. The first rewrite of a kind also pays for compiling its code."""

WALL_PER_CPU = 1.0
"""Seconds of a group per CPU second: a group is one task."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """The time model of a rewrite, scaled by the measured times of executed ones.

    cpu_scale, seconds_scale: by kind, 1 until the ledger has outcomes (label "model").
    """

    cpu_scale: Mapping[str, float] = field(default_factory=lambda: {"pack": 1.0, "sort": 1.0})
    seconds_scale: Mapping[str, float] = field(default_factory=lambda: {"pack": 1.0, "sort": 1.0})
    label: str = "model"

    def cpu_seconds(self, kind: str, size: int, files: int = 0, first: bool = True) -> float:
        return self.cpu_scale[kind] * modelled_cpu(kind, size, files, first)

    def seconds(self, kind: str, size: int, files: int = 0, first: bool = True) -> float:
        return self.seconds_scale[kind] * WALL_PER_CPU * modelled_cpu(kind, size, files, first)


def modelled_cpu(kind: str, size: int, files: int, first: bool) -> float:
    """Return the CPU seconds of rewriting `size` bytes of `files` files, verification included."""
    fixed = CPU_PER_ACTION[kind] + (CPU_OF_FIRST[kind] if first else 0.0)
    return fixed + CPU_PER_FILE * files + CPU_PER_BYTE[kind] * size


PRIOR_THROUGHPUT = Throughput()


def throughput_from(samples: Sequence[ThroughputSample]) -> Throughput:
    """Return the median of actual / modelled over the executed rewrites per kind.

    A kind without executed rewrites takes the other kind's value.
    """
    cpu: dict[str, float] = {}
    wall: dict[str, float] = {}
    for kind in CPU_PER_BYTE:
        mine = [s for s in samples if s.kind == kind and s.bytes > 0]
        if mine:
            model = [modelled_cpu(kind, s.bytes, s.files, s.first) for s in mine]
            pairs = list(zip(mine, model, strict=True))
            cpu[kind] = float(np.median([s.cpu_seconds / m for s, m in pairs]))
            wall[kind] = float(np.median([s.seconds / (WALL_PER_CPU * m) for s, m in pairs]))
    if not cpu:
        return PRIOR_THROUGHPUT
    for kind in CPU_PER_BYTE:
        cpu.setdefault(kind, next(iter(cpu.values())))
        wall.setdefault(kind, next(iter(wall.values())))
    return Throughput(cpu, wall, "measured")


@dataclass(frozen=True)
class Demand:
    """The queries of one shape with resolved literals. Arrays have shape [queries].

    weight: executions in the recorded window. executions: expected within the payback horizon from
    the workload's end. For a moving query, the recorded instance has executions 0 and the replayed
    future instances have weight 0.
    """

    shape_id: str
    predicate: Predicate
    projection: tuple[int, ...]
    literals: tuple[SlotLiterals, ...]
    weight: Float64
    executions: Float64
    moving: bool
    full_scan: bool

    def __len__(self) -> int:
        return len(self.weight)

    @property
    def prunable(self) -> bool:
        return not self.full_scan and self.predicate != TRUE

    def take(self, index: Array | slice) -> Demand:
        return replace(
            self,
            literals=tuple(_take_literals(values, index) for values in self.literals),
            weight=self.weight[index],
            executions=self.executions[index],
        )


def _take_literals(values: SlotLiterals, index: Array | slice) -> SlotLiterals:
    if isinstance(values, np.ndarray):
        return values[index]
    if isinstance(index, slice):
        return values[index]
    return tuple(values[int(i)] for i in np.arange(len(values))[index])


@dataclass(frozen=True)
class TableView:
    """A table as scans see it: files, row groups of files with a known footer, a row sample.

    row_groups: a FileTable whose rows are row groups (bytes, bounds, column sizes of the group),
    and group_file: row of `files` per row group, ascending; dictionary_bytes: of their dictionary
    pages by field id (RowGroups.dictionary). sample and probe are sorted by file; probe is a
    thinner sample for measuring utilization.
    """

    files: FileTable
    row_groups: FileTable | None = None
    group_file: Int64 | None = None
    footer_bytes: Int64 | None = None
    sample: RowSample | None = None
    probe: RowSample | None = None
    row_group_bytes: int = 128 << 20
    open_bytes: int = OPEN_BYTES
    dictionary_bytes: Mapping[int, Int64] | None = None

    def take(self, index: Int64) -> TableView:
        """Return the files at `index` (ascending, unique) with their row groups and sampled
        rows."""
        position = np.full(len(self.files), -1, dtype=np.int64)
        position[index] = np.arange(len(index))
        groups, owner, dictionaries = None, None, None
        if self.row_groups is not None and self.group_file is not None:
            kept = position[self.group_file] >= 0
            groups, owner = self.row_groups.take(kept), position[self.group_file[kept]]
            if self.dictionary_bytes is not None:
                dictionaries = {key: known[kept] for key, known in self.dictionary_bytes.items()}
        return replace(
            self,
            files=self.files.take(index),
            row_groups=groups,
            group_file=owner,
            dictionary_bytes=dictionaries,
            footer_bytes=None if self.footer_bytes is None else self.footer_bytes[index],
            sample=_sample_of(self.sample, position),
            probe=_sample_of(self.probe, position),
        )

    def part(self, index: Int64) -> TableView:
        """Return `take(index)`, which is kept while the same files are asked for."""
        key = index.tobytes()
        if self._part.get("key") != key:
            self._part.update(key=key, view=self.take(index))
        found: TableView = self._part["view"]
        return found

    @cached_property
    def _part(self) -> dict[str, Any]:
        return {}

    @property
    def label(self) -> str:
        """Source of read costs: "exact" from footers, "bound" if a footer was not read."""
        if self.group_file is None or not len(self.files):
            return "bound"
        return "exact" if len(np.unique(self.group_file)) == len(self.files) else "bound"


def table_view(
    table: FileTable,
    row_groups: RowGroups | None,
    sample: RowSample | None,
    row_group_bytes: int,
    open_bytes: int = OPEN_BYTES,
) -> TableView:
    """Return the view of the observed table, with row groups and sample."""
    view = TableView(table, row_group_bytes=row_group_bytes, open_bytes=open_bytes)
    if sample is not None and len(sample):
        ordered = sample.take(np.argsort(sample.file, kind="stable"))
        view = replace(view, sample=ordered, probe=_thinned(ordered))
    if row_groups is not None and len(row_groups.file):
        view = replace(
            view,
            row_groups=row_groups_as_files(table, row_groups),
            group_file=row_groups.file,
            dictionary_bytes=row_groups.dictionary,
            footer_bytes=row_groups.footer_bytes,
        )
    return view


def _sample_of(sample: RowSample | None, position: Int64) -> RowSample | None:
    """Return the sampled rows of files with a position >= 0, numbered by it."""
    if sample is None:
        return None
    taken = sample.take(np.flatnonzero(position[sample.file] >= 0))
    return replace(taken, file=position[taken.file])


def _thinned(sample: RowSample) -> RowSample:
    """Return at most PROBE_ROWS rows, sorted by file: every n-th, so that files keep their
    share."""
    step = -(-len(sample) // PROBE_ROWS)
    return sample.take(np.arange(0, len(sample), step)) if step > 1 else sample


def row_groups_as_files(table: FileTable, row_groups: RowGroups) -> FileTable:
    """Return row groups as a file table, so that the same pruning code serves both.

    A column without bounds in the footer keeps none: it then never prunes within its file, and the
    file's own bounds have been tested before.
    """
    base = table.take(row_groups.file)
    total = sum(
        (np.maximum(sizes, 0) for sizes in row_groups.column_sizes.values()),
        start=np.zeros(len(row_groups.file), dtype=np.int64),
    )
    return replace(
        base,
        records=row_groups.records,
        bytes=total,
        columns={**base.columns, **row_groups.columns},
        column_sizes=row_groups.column_sizes,
    )


def projected_bytes(table: FileTable, projection: Sequence[int]) -> Float64:
    """Return the bytes of the projected column chunks per file, float64[files].

    A missing column size is estimated as the file's size times the column's share elsewhere in the
    table, or its share by type width if no file has it.
    """
    size = table.bytes.astype(np.float64)
    total = np.zeros(len(table), dtype=np.float64)
    for field_id in projection:
        known = table.column_sizes.get(field_id)
        if known is None:
            total += size * _width_share(table.schema, field_id)
            continue
        have = known != UNKNOWN
        if have.all():
            total += known
            continue
        share = float(known[have].sum() / max(size[have].sum(), 1.0)) if have.any() else 0.0
        share = share or _width_share(table.schema, field_id)
        total += np.where(have, known, size * share)
    return np.minimum(total, size)


def type_width(iceberg_type: str) -> int:
    """Return the typical bytes of one value: for decoded sizes, and if metrics are missing."""
    if iceberg_type == "boolean":
        return 1
    if iceberg_type in ("int", "float", "date"):
        return 4
    if iceberg_type in ("string", "binary"):
        return 24
    if iceberg_type == "uuid" or iceberg_type.startswith(("fixed", "decimal")):
        return 16
    return 8


def _width_share(schema: Schema, field_id: int) -> float:
    widths = {f.field_id: type_width(f.type) for f in schema.fields}
    return widths.get(field_id, 0) / max(sum(widths.values()), 1)


@dataclass(frozen=True)
class ShapeReading:
    """What the queries of one shape read from a view.

    bytes, files, matching, cost: float64[queries]; matching is the projected bytes of matching
    rows; cost adds the cost of opening data and delete files, in bytes. saving, read:
    float64[files] over the horizon, in bytes: what an ideal layout would not read (Eq. 3: (1 - u) *
    size_read), and what is read now.
    """

    bytes: Float64
    files: Float64
    matching: Float64
    cost: Float64
    saving: Float64
    read: Float64


def read_shape(view: TableView, demand: Demand) -> ShapeReading:
    """Return the read cost of every query of a shape, and per file the savings over the horizon."""
    files, queries = len(view.files), len(demand)
    size = projected_bytes(view.files, demand.projection)
    overhead = _overhead(view)
    deletes = view.files.delete_files.astype(np.float32)
    width, extra = size.astype(np.float32), overhead.astype(np.float32)
    laden = bool(overhead.any() or deletes.any())
    out = [np.zeros(queries) for _ in range(4)]
    saving, read = np.zeros(files), np.zeros(files)
    buffer = np.empty((2, 0, files), dtype=np.float32)
    for block, tiles in exposures(view, demand):
        weights = demand.executions[block].astype(np.float32)
        if buffer.shape[1] != len(weights):
            buffer = np.empty((2, len(weights), files), dtype=np.float32)
        share, used = buffer
        buffer.fill(0.0)
        for tile in tiles:
            mine = tile.files
            share[:, mine], used[:, mine] = tile.share, tile.used
            out[1][block] += [np.count_nonzero(row) for row in tile.share > 0]
            shared = _columns_dot(weights, tile.share)
            saving[mine] += (shared - _columns_dot(weights, tile.used)) * size[mine]
            read[mine] += shared * size[mine]
        out[0][block] = _rows_dot(share, width)
        out[2][block] = _rows_dot(used, width)
        out[3][block] = view.open_bytes * out[1][block]
        if laden:
            opened = (share > 0).astype(np.float32)
            out[0][block] += _rows_dot(opened, extra)
            out[3][block] += view.open_bytes * _rows_dot(opened, deletes)
            read += _columns_dot(weights, opened) * overhead
        out[3][block] += out[0][block]
    return ShapeReading(out[0], out[1], out[2], out[3], np.maximum(saving, 0.0), read)


def _rows_dot(matrix: Float32, vector: Float32) -> Float32:
    """Return matrix @ vector, without BLAS: on a busy machine its threads spin for many times the
    work of matrices this small."""
    return np.einsum("qf,f->q", matrix, vector)


def _columns_dot(vector: Float32, matrix: Float32) -> Float32:
    """Return vector @ matrix, likewise without BLAS."""
    return np.einsum("q,qf->f", vector, matrix)


def read_layout(view: TableView, demand: Demand) -> ShapeReading:
    """Return the read cost of every query on a layout whose row groups are all known; no savings.

    A faster `read_shape` for simulated layouts: `matching` does not depend on the layout.
    """
    groups, owner = view.row_groups, view.group_file
    if groups is None or owner is None:
        return read_shape(view, demand)
    chunk = projected_bytes(groups, demand.projection).astype(np.float32)
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    bytes_read, files = np.zeros(len(demand)), np.zeros(len(demand))
    step = max(1, BLOCK_CELLS // max(len(groups), 1))
    for start in range(0, len(demand), step):
        block = slice(start, min(start + step, len(demand)))
        part = demand.take(block)
        if not part.prunable:
            bytes_read[block], files[block] = chunk.sum(), len(view.files)
            continue
        alive = files_to_read(groups, part)
        bytes_read[block] = _rows_dot(alive.astype(np.float32), chunk)
        opened = alive if len(starts) == len(groups) else np.logical_or.reduceat(alive, starts, 1)
        files[block] = [np.count_nonzero(row) for row in opened]
    none = np.zeros(0)
    cost = bytes_read + view.open_bytes * files
    return ShapeReading(bytes_read, files, np.zeros(len(demand)), cost, none, none)


def _overhead(view: TableView) -> Float64:
    """Return the footer and delete file bytes that a scan of the file adds, float64[files]."""
    footer = np.zeros(len(view.files))
    if view.footer_bytes is not None:
        footer = np.maximum(view.footer_bytes, 0).astype(np.float64)
    return footer + np.maximum(view.files.delete_bytes, 0)


@dataclass(frozen=True, slots=True)
class Tile:
    """Some files under the queries of a block. share, used: float32[queries, files]; the share of
    projected bytes read, and of rows needed, which is never more."""

    files: Index
    share: Float32
    used: Float32


def exposures(view: TableView, demand: Demand) -> Iterator[tuple[slice, Iterator[Tile]]]:
    """Yield, per block of queries, the files that they read, as tiles without a common file.

    A file of several row groups without a known footer counts as read in proportion to the overlap
    with its bounds, and at least one row group (definitions: labelled bound). Rows needed come from
    the sample if there is one, else from the overlap with the bounds.
    """
    files = len(view.files)
    wide = max(files, 0 if view.row_groups is None else len(view.row_groups), 1)
    step = max(1, BLOCK_CELLS // wide)
    every = range(0, len(demand), step)
    blocks = [slice(start, min(start + step, len(demand))) for start in every]
    if not demand.prunable:
        for block in blocks:
            ones = np.ones((block.stop - block.start, files), dtype=np.float32)
            yield block, iter([Tile(slice(0, files), ones, ones)])
        return
    shares = covered_shares(view.files, demand.predicate, demand.literals)
    one_group = np.minimum(1.0, view.row_group_bytes / np.maximum(view.files.bytes, 1)).astype(
        np.float32
    )
    for block, match in zip(blocks, _matches(view.files, demand, blocks), strict=True):
        part = demand.take(block)
        known = _row_group_shares(view, part), _sampled_shares(view, part)
        yield block, _tiles(block, match, shares, one_group, *known)


def _matches(files: FileTable, demand: Demand, blocks: Sequence[slice]) -> Iterator[Bool]:
    """Yield `files_to_read` per block. Many blocks are evaluated together, because every bound is
    placed among all of the literals each time."""
    step = max(1, MATCH_CELLS // max(blocks[0].stop * len(files), 1)) if blocks else 1
    for first in range(0, len(blocks), step):
        some = blocks[first : first + step]
        start = some[0].start
        match = files_to_read(files, demand.take(slice(start, some[-1].stop)))
        for block in some:
            yield match[block.start - start : block.stop - start]


@dataclass(frozen=True, slots=True)
class _Known:
    """Shares that are known better than from bounds: of the files at `rows` (ascending),
    float32[queries, rows]."""

    rows: Int64
    share: Float32

    def replace(self, share: Float32, files: Index, first: int, last: int) -> None:
        """Set the shares of these files, all of them between the rows `first` and `last`."""
        start, stop = np.searchsorted(self.rows, (first, last))
        if start == stop:
            return
        rows = self.rows[start:stop]
        if isinstance(files, slice):
            share[:, rows - first] = self.share[:, start:stop]
            return
        place = np.minimum(np.searchsorted(files, rows), len(files) - 1)
        here = np.flatnonzero(files[place] == rows)
        share[:, place[here]] = self.share[:, start + here]


def _tiles(
    block: slice,
    match: Bool,
    shares: Shares,
    one_group: Float32,
    of_row_groups: _Known | None,
    of_sample: _Known | None,
) -> Iterator[Tile]:
    """Yield the files that some query of the block reads, as many at once as stay in the CPU's
    cache."""
    width = max(1, TILE_CELLS // max(len(match), 1))
    for first in range(0, match.shape[1], width):
        last = min(first + width, match.shape[1])
        mine, files = match[:, first:last], slice(first, last)
        near = np.flatnonzero(mine.any(axis=0))
        if not len(near):
            continue
        index: Index = files
        if len(near) < SPARSE * (last - first):
            index, mine = near + first, mine[:, near]
        used = shares(block, index)
        share = np.maximum(used, one_group[index])
        if of_row_groups is not None:
            of_row_groups.replace(share, index, first, last)
        if of_sample is not None:
            of_sample.replace(used, index, first, last)
        share *= mine
        np.minimum(used, share, out=used)
        yield Tile(index, share, used)


def files_to_read(files: FileTable, demand: Demand) -> Bool:
    """Return bool[queries, files]: an engine would open the file, by bounds and partition
    values."""
    return may_match(
        demand.predicate,
        demand.literals,
        files.columns,
        files.records,
        partitions=partitions_of(files),
        schema=files.schema,
        queries=len(demand),
    )


def _row_group_shares(view: TableView, part: Demand) -> _Known | None:
    """Return the share of projected bytes in surviving row groups, for files with a known
    footer."""
    groups, owner = view.row_groups, view.group_file
    if groups is None or owner is None or not len(owner):
        return None
    alive = may_match(
        part.predicate, part.literals, groups.columns, groups.records,
        schema=groups.schema, queries=len(part),
    )  # fmt: skip
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    chunk = projected_bytes(groups, part.projection).astype(np.float32) + np.float32(1e-3)
    whole = np.add.reduceat(chunk, starts)
    share = np.add.reduceat(alive * chunk, starts, axis=1) / whole
    return _Known(owner[starts], share.astype(np.float32, copy=False))


def _sampled_shares(view: TableView, part: Demand) -> _Known | None:
    """Return the matching share of the sampled rows, for files with a sample."""
    sample = view.probe
    if sample is None or not len(sample):
        return None
    starts = np.flatnonzero(np.diff(sample.file, prepend=-1))
    weight = sample.weight.astype(np.float32)
    whole = np.maximum(np.add.reduceat(weight, starts), np.float32(1e-9))
    hit = matches(
        part.predicate, part.literals, sample.values, sample.null,
        schema=view.files.schema, queries=len(part),
    )  # fmt: skip
    share = np.add.reduceat(hit * weight, starts, axis=1) / whole
    return _Known(sample.file[starts], share.astype(np.float32, copy=False))


def scan_amplification(
    demands: Sequence[Demand],
    read: Sequence[Float64],
    matching: Sequence[Float64],
    row_group: Sequence[float],
) -> float:
    """Return sum(w * read) / sum(w * max(matching bytes, one row group of the projection)).

    Over fragments with a prunable predicate; NaN without any. row_group: projected bytes of one row
    group per shape.
    """  # fmt: skip
    above = below = 0.0
    for demand, bytes_read, needed, floor in zip(demands, read, matching, row_group, strict=True):
        if demand.prunable:
            above += float(demand.weight @ bytes_read)
            below += float(demand.weight @ np.maximum(needed, floor))
    return above / below if below > 0.0 else float("nan")


def row_group_count(view: TableView) -> float:
    """Return the number of row groups of the view's files: from footers if known, else from the
    size.

    A full row group is assumed to be as large as the largest known one: writers stop short of the
    configured size.
    """
    groups, owner, size = view.row_groups, view.group_file, view.files.bytes
    counts, full = np.zeros(len(size)), float(view.row_group_bytes)
    if groups is not None and owner is not None and len(owner):
        counts = np.bincount(owner, minlength=len(size)).astype(np.float64)
        largest = float(groups.bytes.max())
        full = min(full, largest) if largest > 0.0 else full
    by_size = np.maximum(1.0, np.round(size / full))
    return float(np.where(counts > 0.0, counts, by_size).sum())


def realised_saving(before: TableView, after: TableView, demands: Sequence[Demand]) -> float:
    """Return the bytes-equivalent that the recorded queries read less from `after` than from
    `before`.

    Both views cover the same rows: an action's inputs by their old zone maps, and its outputs (Eq.
    5: savings are measured by comparing zone maps on later queries). Negative: queries read more.
    """
    total = 0.0
    for demand in demands:
        gain = read_shape(before, demand).cost - read_shape(after, demand).cost
        total += float(demand.weight @ gain)
    return total


def rewrite_cost(rho: Rho, input_bytes: int) -> float:
    """Return rho x input bytes, in bytes of reading (definitions: Gate)."""
    return rho.value * float(input_bytes)
