"""The reader of row groups: sampled rows of a data file over the predicate columns.

1,024 systematic rows by default, so that correlations of two columns can be judged. Only some of a
file's row groups are read, down to one if they are large. A row group that was not read borrows
rows of the most similar one that was, adjusted to its own bounds and counts. The same code runs in
this process (`read_directly`) and on Spark's executors (`spark.schedule.sketches`).
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from reconciler.catalog.footers import MISSING_DATA_FILE, GroupStats, footer_of, zone_map
from reconciler.catalog.load import translate_io
from reconciler.catalog.network import carried
from reconciler.catalog.parquet import (
    column_at,
    domain_array,
    leaves_by_id,
    open_parquet,
    without_views,
)
from reconciler.queries.open_price import Opening
from reconciler.table.borrowed_rows import borrowed_nulls, moved, nearest
from reconciler.table.filetable import Array, ColumnBounds, Int64
from reconciler.table.schema import Field, Schema
from reconciler.table.values import Kind

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyiceberg.io import FileIO

SAMPLE_ROWS = 1024
READERS = 4
VERSION = 2
"""Version of how rows are chosen: sketches of another version are taken again."""
GROUP_BYTES = 16 << 20
"""Maximum stored bytes of the wanted columns that a sketch reads, if it reads several row
groups and no other limit is given."""


@dataclass(frozen=True)
class Sketch:
    """Sampled rows of one file."""

    types: dict[int, str]
    """The Iceberg type that each column was sampled as, by field id. A promoted column is sampled
    again."""
    values: dict[int, Array]
    """Sampled values in the column's domain, [sampled rows], by field id."""
    null: dict[int, Array]
    """Whether a sampled value is NULL, [sampled rows], by field id."""
    taken_ms: int = 0
    """When the sample was taken, in epoch milliseconds; 0 if that was not recorded."""
    read: int = 0
    """Bytes of the footer and of the column chunks that were read."""
    opening: Opening | None = None
    """How long it took to open the file now; None for a stored sketch, which does not keep it."""

    def __len__(self) -> int:
        return len(next(iter(self.null.values()), ()))


@dataclass(frozen=True, slots=True)
class SketchRequest:
    """A file to sample."""

    path: str
    """Location of the file."""
    rows: int
    """Number of rows to return."""
    most: int
    """Bytes of footer and column chunks that may be read; the footer and the smallest row group
    fit."""
    size: int
    """Bytes that will be read at most."""


Requests = Sequence[SketchRequest]
ReadSketches = Callable[["FileIO", Schema, Sequence[Field], Requests, int], Sequence[Sketch]]
"""(io, schema, fields, requests, now in ms) -> a sketch per request, in their order."""


def read_directly(
    io: FileIO, schema: Schema, fields: Sequence[Field], requests: Requests, now_ms: int
) -> Sequence[Sketch]:
    """Return the sketches, read by threads of this process."""

    def take(request: SketchRequest) -> Sketch:
        return requested(io, schema, fields, request, now_ms)

    with ThreadPoolExecutor(max(1, min(READERS, len(requests)))) as pool:
        return list(pool.map(carried(take), requests))


def requested(
    io: FileIO, schema: Schema, fields: Sequence[Field], request: SketchRequest, now_ms: int
) -> Sketch:
    """Return the sketch of one request."""
    return sketch_file(
        io, request.path, schema, fields, rows=request.rows, most=request.most, now_ms=now_ms
    )


def sketch_file(
    io: FileIO,
    path: str,
    schema: Schema,
    fields: Sequence[Field],
    *,
    rows: int | None = None,
    most: int | None = None,
    now_ms: int = 0,
) -> Sketch:
    """Return systematic rows of the file, read from as many row groups as `most` bytes allow,
    footer included; by default from as many as have about GROUP_BYTES.

    In a sorted file, one row group says nothing about the others' values, but their statistics do.
    """
    begun = time.monotonic()
    with translate_io(f'the data file "{path}"', MISSING_DATA_FILE), open_parquet(io, path) as file:
        opening = Opening(time.monotonic() - begun)
        leaves = leaves_by_id(file.schema_arrow, schema)
        present = [field for field in fields if field.field_id in leaves]
        wanted = {field.field_id: leaves[field.field_id] for field in present}
        footer = footer_of(file, wanted, present)
        filled = np.flatnonzero([group.records for group in footer.groups])
        groups = [footer.groups[number] for number in filled]
        count = min(rows or SAMPLE_ROWS, sum(group.records for group in groups))
        sketch = replace(_nulls(fields, count, now_ms), read=footer.size, opening=opening)
        if not count or not present:
            return sketch
        read = chosen_groups(groups, path, None if most is None else most - footer.size)
        drawn = _sampled(groups, present, read, count)
        names = [".".join(leaf.path) for leaf in wanted.values()]
        table, seconds = _rows_at(file, filled, names, drawn)
        for field in present:
            column = column_at(table, leaves[field.field_id])
            sketch.values[field.field_id], sketch.null[field.field_id] = drawn.stand_in(
                field, *domain_array(field, column)
            )
        size = sum(sum(groups[number].sizes.values()) for number in read)
        opening = Opening(opening.opened, seconds, size, len(names) * len(read))
        return replace(sketch, read=footer.size + size, opening=opening)


def block_of(
    io: FileIO,
    path: str,
    schema: Schema,
    fields: Sequence[Field],
    group: int,
    rows: int,
    now_ms: int = 0,
) -> Sketch:
    """Return at most `rows` rows that follow each other, from the middle of a row group."""
    with translate_io(f'the data file "{path}"', MISSING_DATA_FILE), open_parquet(io, path) as file:
        leaves = leaves_by_id(file.schema_arrow, schema)
        present = [field for field in fields if field.field_id in leaves]
        names = [".".join(leaves[field.field_id].path) for field in present]
        stored = file.read_row_group(group, columns=names, use_threads=False)
        table = stored.slice(max(0, (len(stored) - rows) // 2), rows)
        sketch = _nulls(fields, len(table), now_ms)
        for field in present:
            column = column_at(table, leaves[field.field_id])
            sketch.values[field.field_id], sketch.null[field.field_id] = domain_array(field, column)
        return sketch


def _rows_at(
    file: pq.ParquetFile, filled: Int64, columns: Sequence[str], drawn: _Sampled
) -> tuple[pa.Table, float]:
    """Return the sampled rows, in their order, and the seconds of reading their row groups. One row
    group is in memory at a time."""
    parts, orders, seconds = [], [], 0.0
    for group in np.unique(drawn.source):
        mine = np.flatnonzero(drawn.source == group)
        begun = time.monotonic()
        stored = file.read_row_group(int(filled[group]), columns=columns, use_threads=False)
        seconds += time.monotonic() - begun
        parts.append(without_views(stored).take(pa.array(drawn.inside[mine])))
        orders.append(mine)
    order = np.argsort(np.concatenate(orders), kind="stable")
    return pa.concat_tables(parts).take(pa.array(order)), seconds


def chosen_groups(groups: Sequence[GroupStats], path: str, most: int | None = None) -> Int64:
    """Return evenly spaced row groups, at least one: as many as `most` bytes of the wanted columns
    allow, or as have about GROUP_BYTES by default.

    The choice depends on the path, so that it is always the same. If the row group of this choice
    is too large for `most`, the smallest one is taken.
    """
    sizes = np.array([sum(group.sizes.values()) for group in groups], dtype=np.int64)
    limit = GROUP_BYTES if most is None else most
    count = max(1, min(len(groups), limit * len(groups) // max(int(sizes.sum()), 1)))
    start = zlib.crc32(path.encode())
    chosen = _spaced(len(groups), count, start)
    if most is None:
        return chosen
    while sizes[chosen].sum() > most and count > 1:
        count -= 1
        chosen = _spaced(len(groups), count, start)
    return chosen if sizes[chosen].sum() <= most else np.array([np.argmin(sizes)])


def _spaced(number: int, count: int, start: int) -> Int64:
    """Return `count` of `number` row groups, evenly spaced from a first one."""
    first = start % number if count < number else 0
    return np.sort((first + np.arange(count) * number // count) % number)


@dataclass(frozen=True)
class _Sampled:
    """Which rows of a file are sampled, in the order of the file."""

    source: Int64
    """int64[sampled rows]: the row group that a row is read from."""
    inside: Int64
    """int64[sampled rows]: the row's place in that row group."""
    to: Int64
    """int64[sampled rows]: the row group that the row represents."""
    records: Int64
    """int64[row groups]: number of rows."""
    bounds: dict[int, ColumnBounds]
    """Zone maps of the row groups by field id."""

    def stand_in(self, field: Field, values: Array, null: Array) -> tuple[Array, Array]:
        """Return values and NULL flags, adjusted to the row groups that they represent."""
        bounds = self.bounds[field.field_id]
        here = moved(bounds, values, null, self.source, self.to)
        return here, borrowed_nulls(bounds, self.records, null, self.source, self.to)


def _sampled(
    groups: Sequence[GroupStats], fields: Sequence[Field], read: Int64, count: int
) -> _Sampled:
    """Return evenly spaced rows of all row groups.

    A row group that was not read borrows rows at the same relative positions from the most similar
    one, without repeats while rows last.
    """
    records = np.array([group.records for group in groups], dtype=np.int64)
    ends = np.cumsum(records)
    place = ((np.arange(count) + 0.5) * ends[-1] / count).astype(np.int64)
    to = np.searchsorted(ends, place, side="right")
    bounds = {field.field_id: zone_map(field, groups) for field in fields}
    donor = nearest(list(bounds.values()), np.arange(len(groups)), read)
    source = read[donor[to]]
    share = (place - (ends - records)[to]) / records[to]
    inside = np.zeros(count, dtype=np.int64)
    for group in read:
        mine = np.flatnonzero(source == group)
        mine = mine[np.lexsort((to[mine], share[mine]))]
        step = (np.arange(len(mine)) + 0.5) / max(len(mine), 1)
        inside[mine] = (step * records[group]).astype(np.int64)
    return _Sampled(source, inside, to, records, bounds)


_DTYPES = {Kind.INT: "int64", Kind.FLOAT: "float64", Kind.BYTES: "S1"}


def _nulls(fields: Sequence[Field], count: int, now_ms: int) -> Sketch:
    """Return a sketch of columns that the file does not have: they read as NULL."""
    return Sketch(
        {field.field_id: field.type for field in fields},
        {f.field_id: np.zeros(count, dtype=_DTYPES[f.kind]) for f in fields if f.kind is not None},
        {field.field_id: np.ones(count, dtype=bool) for field in fields},
        now_ms,
    )
