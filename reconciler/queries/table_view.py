"""A table as scans see it: files, row groups, sampled rows, and the bytes that a projection reads.

The same view holds of the real table and of simulated layouts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from reconciler.table.filetable import UNKNOWN, FileTable, Float64, Int64
from reconciler.table.footer_bounds import with_footer_bounds
from reconciler.table.sample import RowBlocks, RowGroups, RowSample
from reconciler.table.schema import Schema

OPEN_BYTES = 1 << 20
"""The cost of opening one file in bytes read, where it was not measured (`open_price`)."""

ROW_GROUP_OPENS, CHUNK_OPENS = 1.0 / 128.0, 1.0 / 512.0
"""The cost of reading one row group, and each of its column chunks, in openings of a file, beside
the bytes.

Measured with Spark on local files of 600,572 rows of lineitem: 0.22 ms for a row group of 4
columns and 0.44 ms for one of 16, which is the time of 15 and 37 KiB of their stored bytes. To skip
a row group of an opened file costs little more than its part of the footer, which is counted.
"""

OPENING_REQUESTS = 2
"""Requests of an opening: for the size and for the footer. Where a storage answers late, they make
openings dearer than OPEN_BYTES, and a row group waits for one."""

CHUNK_FOOTER_BYTES = 100.0
"""Bytes of a footer for one column chunk, where footers do not show it: 1.7 KB for 16 columns."""

PROBE_ROWS = 16_384
"""Maximum sampled rows for measuring utilization, which only orders candidates."""


@dataclass(frozen=True)
class TableView:
    """A table as scans see it: files, row groups of files with a known footer, and a sample of
    rows."""

    files: FileTable
    """The live data files."""
    row_groups: FileTable | None = None
    """A FileTable whose rows are row groups, with their bytes, bounds and column sizes; None if no
    footer is known."""
    group_file: Int64 | None = None
    """int64[row groups]: the row of each row group's file in `files`, ascending."""
    footer_bytes: Int64 | None = None
    """int64[files]: bytes of the footer; None if no footer is known."""
    sample: RowSample | None = None
    """Sampled rows, sorted by file; None without a sample."""
    probe: RowSample | None = None
    """A thinner sample by which utilization is measured, sorted by file."""
    row_group_bytes: int = 128 << 20
    """Bytes of a row group in files whose footer is not known."""
    open_bytes: int = OPEN_BYTES
    """Cost of opening a file in bytes of reading."""
    dictionary_bytes: Mapping[int, Int64] | None = None
    """By field id, bytes of the dictionary page, int64[row groups]."""
    blocks: RowBlocks | None = None
    """Rows that are stored next to each other; only the view of a whole table has them."""

    def take(self, index: Int64) -> TableView:
        """Return the files at `index` (ascending, unique) with their row groups and sampled
        rows."""
        every = np.arange(len(index))
        position = np.full(len(self.files), -1, dtype=np.int64)
        position[index] = every
        whole = len(index) == len(self.files) and np.array_equal(index, every)
        groups, owner, dictionaries = None, None, None
        if self.row_groups is not None and self.group_file is not None:
            kept = position[self.group_file] >= 0
            groups, owner = self.row_groups.take(kept), position[self.group_file[kept]]
            if self.dictionary_bytes is not None:
                dictionaries = {key: known[kept] for key, known in self.dictionary_bytes.items()}
        return replace(
            self,
            files=self.files if whole else self.files.take(index),
            row_groups=groups,
            group_file=owner,
            dictionary_bytes=dictionaries,
            footer_bytes=None if self.footer_bytes is None else self.footer_bytes[index],
            sample=_sample_of(self.sample, position),
            probe=_sample_of(self.probe, position),
            blocks=None,
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

    @cached_property
    def derived(self) -> dict[str, Any]:
        """What others computed from the view, by its name: a view does not change."""
        return {}

    @cached_property
    def known(self) -> FileTable:
        """The files, with bounds from footers where manifests have none: they show what rows hold,
        but no engine skips a file by them."""
        if self.row_groups is None or self.group_file is None:
            return self.files
        return with_footer_bounds(self.files, self.row_groups, self.group_file)

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
    blocks: RowBlocks | None = None,
) -> TableView:
    """Return the view of the observed table, with row groups and sample."""
    view = TableView(table, row_group_bytes=row_group_bytes, open_bytes=open_bytes, blocks=blocks)
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


def projected_bytes(table: FileTable, projection: Iterable[int] | Mapping[int, float]) -> Float64:
    """Return the bytes of the projected column chunks per file, float64[files].

    projection: field ids; or the share of the queries that read each, for the expected bytes of a
    query.

    A missing column size is estimated as the file's size times the column's share elsewhere in the
    table, or its share by type width if no file has it.
    """
    size = table.bytes.astype(np.float64)
    total = np.zeros(len(table), dtype=np.float64)
    shares = projection if isinstance(projection, Mapping) else dict.fromkeys(projection, 1.0)
    for field_id, reads in shares.items():
        known = table.column_sizes.get(field_id)
        if known is None:
            total += reads * size * _width_share(table.schema, field_id)
            continue
        have = known != UNKNOWN
        if have.all():
            total += reads * known
            continue
        share = float(known[have].sum() / max(size[have].sum(), 1.0)) if have.any() else 0.0
        share = share or _width_share(table.schema, field_id)
        total += reads * np.where(have, known, size * share)
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


class RowGroupPrices(NamedTuple):
    """What reading a row group costs beside the bytes that are read."""

    group: float
    """Bytes of reading for the row group."""
    chunk: float
    """Bytes of reading for each of its column chunks that is read."""


def row_group_prices(open_bytes: float) -> RowGroupPrices:
    """Return the prices of a row group. open_bytes: the cost of opening a file, in bytes."""
    near = min(open_bytes, OPEN_BYTES)
    group = (open_bytes - near) / OPENING_REQUESTS + near * ROW_GROUP_OPENS
    return RowGroupPrices(group, near * CHUNK_OPENS)


def row_group_cost(view: TableView, projection: Mapping[int, float]) -> float:
    """Return the cost of reading one row group beside its bytes, in bytes."""
    prices = row_group_prices(view.open_bytes)
    return prices.group + prices.chunk * sum(projection.values())


@dataclass(frozen=True, slots=True)
class FooterBytes:
    """Bytes of a Parquet footer."""

    fixed: float = 0.0
    """Bytes of the schema and of other key-value metadata."""
    per_group: float = 0.0
    """Bytes of each row group."""

    def of(self, row_groups: Float64) -> Int64:
        """Return the bytes of footers of files with these numbers of row groups."""
        return np.rint(self.fixed + self.per_group * row_groups).astype(np.int64)


NO_FOOTER = FooterBytes()


def footer_model(view: TableView) -> FooterBytes:
    """Return what footers of files written like these take; nothing if no footer was read."""
    if view.footer_bytes is None or view.group_file is None:
        return NO_FOOTER
    known = view.footer_bytes > 0
    if not known.any():
        return NO_FOOTER
    groups = np.bincount(view.group_file, minlength=len(view.files))[known].astype(np.float64)
    sizes = view.footer_bytes[known].astype(np.float64)
    columns = len(view.row_groups.column_sizes) if view.row_groups is not None else 0
    mean = float(groups.mean())
    per_group = min(CHUNK_FOOTER_BYTES * columns, float(sizes.mean()) / max(mean, 1.0))
    if groups.std() > 0.0:  # files of different numbers of row groups show both parts
        slope = float(np.cov(groups, sizes, bias=True)[0, 1] / groups.var())
        per_group = min(max(slope, 0.0), float(sizes.mean()) / max(mean, 1.0))
    return FooterBytes(max(float(sizes.mean()) - per_group * mean, 0.0), per_group)


def row_group_count(view: TableView) -> float:
    """Return the number of row groups of the view's files."""
    return float(row_groups_per_file(view).sum())


def row_groups_per_file(view: TableView) -> Float64:
    """Return the number of row groups of each file: from footers if known, else from the size.

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
    return np.where(counts > 0.0, counts, by_size)
