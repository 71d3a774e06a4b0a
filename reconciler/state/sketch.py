"""Sketches: a small joint sample of rows of a data file over the predicate columns.

1,024 systematic rows, so that correlations of two columns can be judged. Only some of a file's row
groups are read, down to one if they are large. A row group that was not read borrows rows of the
most similar one that was, adjusted to its own bounds and counts. Sketches are kept in the state
store by file path, because a data file never changes. They may include rows that were deleted
since.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.footers import MISSING_DATA_FILE, GroupStats, footer_of, zone_map
from reconciler.catalog.load import data_file_io, translate_io
from reconciler.catalog.network import carried
from reconciler.catalog.parquet import column_at, domain_array, leaves_by_id, open_parquet
from reconciler.state.blobs import pack, unpack
from reconciler.table.borrowed_rows import borrowed_nulls, moved, nearest
from reconciler.table.filetable import Array, ColumnBounds, FileTable, Int64
from reconciler.table.sample import RowSample
from reconciler.table.schema import Field, Schema
from reconciler.table.values import Kind

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from reconciler.state.state import Store

SAMPLE_ROWS = 1024
LIGHT_ROWS = 2048
"""A stored sketch of so many rows costs no time, whatever it was made for."""
READERS = 4
VERSION = 2
"""Version of how rows are chosen: sketches of another version are taken again."""
GROUP_BYTES = 16 << 20
"""Maximum stored bytes of the wanted columns that a sketch reads, if it reads several row
groups."""


@dataclass(frozen=True)
class Sketch:
    """Sampled rows of one file. values, null: by field id, arrays [sampled rows].

    types: the Iceberg type that each column was sampled as; a promoted column is sampled again.
    taken_ms: when, 0 if that was not recorded. read: bytes of column chunks that were read.
    """

    types: dict[int, str]
    values: dict[int, Array]
    null: dict[int, Array]
    taken_ms: int = 0
    read: int = 0

    def __len__(self) -> int:
        return len(next(iter(self.null.values()), ()))


def sample_rows(
    config: CatalogConfig,
    files: FileTable,
    rows: Int64,
    columns: Sequence[int],
    *,
    store: Store | None = None,
    table_uuid: str = "",
    identifier: tuple[str, ...] | None = None,
    timeout: float = 30.0,
) -> RowSample:
    """Return a pooled sample of the Parquet files at `rows`, over those `columns` with an ordered
    domain.

    A sampled row represents its file's rows divided by the rows sampled from it. store: where
    sketches are kept; without one every file is read.
    """
    fields = [files.schema.by_id[i] for i in columns if i in files.schema.by_id]
    fields = [field for field in fields if field.kind is not None]
    chosen = np.unique(np.asarray(rows, dtype=np.int64))
    chosen = chosen[files.parquet[chosen] & (files.records[chosen] > 0)]
    paths = [str(path) for path in files.path[chosen]]
    sketches = _stored(store, table_uuid, paths, fields, _wanted(files, chosen, SAMPLE_ROWS))
    missing = [path for path in paths if path not in sketches]
    if missing and fields:
        io = data_file_io(config, identifier, timeout)
        with ThreadPoolExecutor(min(READERS, len(missing))) as pool:
            taken = pool.map(
                carried(lambda path: sketch_file(io, path, files.schema, fields)), missing
            )
            fresh = dict(zip(missing, taken, strict=True))
        sketches |= fresh
        if store is not None:
            store.put_sketches(table_uuid, {path: _encode(item) for path, item in fresh.items()})
    return _pool(files, chosen, [sketches[path] for path in paths] if fields else [], fields)


@dataclass(frozen=True)
class TableSample:
    """Rows of every file, or of files spread over the table. bytes_read: column chunks read now, by
    their footers; taken_ms: when the oldest part was sampled; files: how many have rows of their
    own; reused: how many of them had been sampled before."""

    rows: RowSample
    bytes_read: int
    taken_ms: int
    files: int
    reused: int


MOST_FILES = 512
"""Data files that a sample of the whole table reads; others borrow their rows."""


def sample_table(
    config: CatalogConfig,
    files: FileTable,
    columns: Sequence[int],
    *,
    rows: int,
    budget: int,
    now_ms: int,
    store: Store,
    table_uuid: str,
    identifier: tuple[str, ...] | None = None,
    timeout: float = 30.0,
) -> TableSample:
    """Return about `rows` rows of the table over those columns, spread over its files.

    budget: most bytes of column chunks to read, counted from footers before they are read; each
    file has a share by its rows, and one row group is read where that is less.
    Files that have been sampled with as many rows are not read again.
    """
    fields = [files.schema.by_id[i] for i in columns if i in files.schema.by_id]
    fields = [field for field in fields if field.kind is not None]
    usable = np.flatnonzero(files.parquet & ~files.encrypted & (files.records > 0))
    chosen = usable
    if len(usable) > MOST_FILES:
        order = usable[np.argsort(files.partition[usable], kind="stable")]
        chosen = np.sort(order[np.arange(MOST_FILES) * len(order) // MOST_FILES])
    wanted = _wanted(files, chosen, rows)
    paths = [str(path) for path in files.path[chosen]]
    sketches = _stored(store, table_uuid, paths, fields, wanted)
    missing = [number for number, path in enumerate(paths) if path not in sketches]
    share = files.records[chosen] / max(int(files.records[chosen].sum()), 1)
    io = data_file_io(config, identifier, timeout)

    def take(number: int) -> Sketch:
        return sketch_file(
            io, paths[number], files.schema, fields,
            rows=int(wanted[number]), group_bytes=int(budget * share[number]), now_ms=now_ms,
        )  # fmt: skip

    if missing and fields:
        with ThreadPoolExecutor(min(READERS, len(missing))) as pool:
            fresh = {
                paths[number]: sketch
                for number, sketch in zip(missing, pool.map(carried(take), missing), strict=True)
            }
        store.put_sketches(table_uuid, {path: _encode(item) for path, item in fresh.items()})
        read = sum(sketch.read for sketch in fresh.values())
        sketches |= fresh
    else:
        read = 0
    found = [sketches[path] for path in paths] if fields else []
    return TableSample(
        _pool(files, chosen, found, fields),
        read,
        min((sketch.taken_ms for sketch in found), default=now_ms),
        len(chosen),
        len(chosen) - len(missing),
    )


def _wanted(files: FileTable, chosen: Int64, rows: int) -> Int64:
    """Return the rows to sample per file: SAMPLE_ROWS, or a share of `rows` in proportion to the
    file's rows if that is more."""
    records = files.records[chosen]
    share = np.ceil(rows * records / max(int(records.sum()), 1)).astype(np.int64)
    return np.minimum(records, np.maximum(SAMPLE_ROWS, share if rows > SAMPLE_ROWS else 0))


def sketch_file(
    io: FileIO,
    path: str,
    schema: Schema,
    fields: Sequence[Field],
    *,
    rows: int | None = None,
    group_bytes: int | None = None,
    now_ms: int = 0,
) -> Sketch:
    """Return systematic rows of the file, read from as many row groups as group_bytes allows
    (GROUP_BYTES by default).

    In a sorted file, one row group says nothing about the others' values, but their statistics do.
    """
    with translate_io(f'the data file "{path}"', MISSING_DATA_FILE), open_parquet(io, path) as file:
        leaves = leaves_by_id(file.schema_arrow, schema)
        present = [field for field in fields if field.field_id in leaves]
        wanted = {field.field_id: leaves[field.field_id] for field in present}
        groups = footer_of(file, wanted, present).groups
        filled = np.flatnonzero([group.records for group in groups])
        count = min(rows or SAMPLE_ROWS, sum(group.records for group in groups))
        sketch = _nulls(fields, count, now_ms)
        if not count or not present:
            return sketch
        read = _chosen_groups([groups[number] for number in filled], path, group_bytes)
        table = file.read_row_groups(
            filled[read].tolist(),
            columns=[".".join(leaf.path) for leaf in wanted.values()],
            use_threads=False,
        )
        drawn = _sampled([groups[number] for number in filled], present, read, count)
        for field in present:
            column = column_at(table, leaves[field.field_id]).take(drawn.place)
            sketch.values[field.field_id], sketch.null[field.field_id] = drawn.stand_in(
                field, *domain_array(field, column)
            )
        size = sum(sum(groups[number].sizes.values()) for number in filled[read])
        return replace(sketch, read=size)


def _chosen_groups(groups: Sequence[GroupStats], path: str, most: int | None = None) -> Int64:
    """Return evenly spaced row groups, as many as `most` bytes of the wanted columns allow
    (GROUP_BYTES by default), at least one.

    The choice depends on the path, so that it is always the same.
    """
    size = sum(sum(group.sizes.values()) for group in groups)
    limit = GROUP_BYTES if most is None else most
    count = max(1, min(len(groups), limit * len(groups) // max(size, 1)))
    first = zlib.crc32(path.encode()) % len(groups) if count < len(groups) else 0
    return np.sort((first + np.arange(count) * len(groups) // count) % len(groups))


@dataclass(frozen=True)
class _Sampled:
    """Sampled rows of a file with a row, in their order. Arrays [sampled rows].

    place: among the rows of the row groups that were read, one after the other. source: the row
    group that a row was read from; to: the one it represents. records: rows per row group.
    """

    place: Int64
    source: Int64
    to: Int64
    records: Int64
    bounds: dict[int, ColumnBounds]

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
    starts = np.cumsum(records[read]) - records[read]
    share = (place - (ends - records)[to]) / records[to]
    inside = np.zeros(count, dtype=np.int64)
    for group in read:
        mine = np.flatnonzero(source == group)
        mine = mine[np.lexsort((to[mine], share[mine]))]
        step = (np.arange(len(mine)) + 0.5) / max(len(mine), 1)
        inside[mine] = (step * records[group]).astype(np.int64)
    return _Sampled(starts[donor[to]] + inside, source, to, records, bounds)


_DTYPES = {Kind.INT: "int64", Kind.FLOAT: "float64", Kind.BYTES: "S1"}


def _nulls(fields: Sequence[Field], count: int, now_ms: int) -> Sketch:
    """Return a sketch of columns that the file does not have: they read as NULL."""
    return Sketch(
        {field.field_id: field.type for field in fields},
        {f.field_id: np.zeros(count, dtype=_DTYPES[f.kind]) for f in fields if f.kind is not None},
        {field.field_id: np.ones(count, dtype=bool) for field in fields},
        now_ms,
    )


def _stored(
    store: Store | None,
    table_uuid: str,
    paths: Sequence[str],
    fields: Sequence[Field],
    wanted: Int64,
) -> dict[str, Sketch]:
    """Return stored sketches that have all the columns, in their present types.

    wanted: rows per path; a sketch of up to twice as many serves too, a larger one was made for
    another purpose and would only cost time (LIGHT_ROWS).
    """
    if store is None or not paths:
        return {}
    found: dict[str, Sketch] = {}
    least = dict(zip(paths, wanted.tolist(), strict=True))
    for path, blobs in store.sketches(table_uuid, paths).items():
        for blob in blobs:
            sketch = _decode(blob)
            if sketch is None or not least[path] <= len(sketch) <= max(2 * least[path], LIGHT_ROWS):
                continue
            if all(sketch.types.get(field.field_id) == field.type for field in fields):
                found[path] = sketch
    return found


def _encode(sketch: Sketch) -> bytes:
    arrays = {f"v{key}": value for key, value in sketch.values.items()}
    arrays |= {f"n{key}": value for key, value in sketch.null.items()}
    types = {str(key): kind for key, kind in sketch.types.items()}
    return pack({"version": VERSION, "types": types, "takenMs": sketch.taken_ms}, arrays)


def _decode(blob: bytes) -> Sketch | None:
    """Return the sketch, None if it is of another VERSION."""
    header, arrays = unpack(blob)
    if header.get("version") != VERSION:
        return None
    return Sketch(
        {int(key): kind for key, kind in header["types"].items()},
        {int(name[1:]): array for name, array in arrays.items() if name[0] == "v"},
        {int(name[1:]): array for name, array in arrays.items() if name[0] == "n"},
        header.get("takenMs", 0),
    )


def _pool(
    files: FileTable, chosen: Int64, sketches: Sequence[Sketch], fields: Sequence[Field]
) -> RowSample:
    counts = np.array([len(sketch) for sketch in sketches], dtype=np.int64)
    owners = chosen[: len(sketches)]
    weights = files.records[owners] / np.maximum(counts, 1)
    return RowSample(
        values={
            field.field_id: np.concatenate([sketch.values[field.field_id] for sketch in sketches])
            for field in fields
            if sketches
        },
        null={
            field.field_id: np.concatenate([sketch.null[field.field_id] for sketch in sketches])
            for field in fields
            if sketches
        },
        weight=np.repeat(weights, counts).astype(np.float64),
        file=np.repeat(owners, counts),
    )
