"""Sketches: a small joint sample of rows of each data file, kept and pooled over a table.

`catalog.sketch_reader` samples one file. Sketches are kept in the state store by file path, because
a data file never changes. They may include rows that were deleted since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.load import data_file_io
from reconciler.catalog.network import carried
from reconciler.catalog.sketch_reader import (
    READERS,
    SAMPLE_ROWS,
    VERSION,
    ReadSketches,
    Sketch,
    SketchRequest,
    sketch_file,
)
from reconciler.state.blobs import pack, unpack
from reconciler.state.openings import record_openings
from reconciler.table.filetable import FileTable, Int64
from reconciler.table.sample import RowGroups, RowSample
from reconciler.table.schema import Field

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from reconciler.state.store import Store

LIGHT_ROWS = 2048
"""A stored sketch of so many rows costs no time, whatever it was made for."""


@dataclass(frozen=True)
class SketchedFiles:
    """The data files of a table, how they are read, and where their sketches are kept."""

    config: CatalogConfig
    """The catalog, whose properties open the storage."""
    files: FileTable
    """The data files."""
    store: Store | None = None
    """The store that keeps sketches; None to read every file again."""
    table_uuid: str = ""
    """UUID of the table, under which they are kept."""
    identifier: tuple[str, ...] | None = None
    """Levels of the table's name, for credentials that the catalog gives out; None without."""
    timeout: float = 30.0
    """Seconds that the catalog has to answer."""

    @property
    def io(self) -> FileIO:
        """Opens the data files."""
        return data_file_io(self.config, self.identifier, self.timeout)

    def keep(self, sketches: Mapping[str, Sketch]) -> None:
        """Keep them by path, if there is a store."""
        if self.store is not None:
            _keep(self.store, self.table_uuid, sketches)


def sample_rows(table: SketchedFiles, rows: Int64, columns: Sequence[int]) -> RowSample:
    """Return a pooled sample of the Parquet files at `rows`, over those `columns` with an ordered
    domain. Files without a stored sketch are read now, and their sketches are stored.

    A sampled row represents its file's rows divided by the rows sampled from it.
    """
    files, fields = table.files, _ordered(table.files, columns)
    chosen = np.unique(np.asarray(rows, dtype=np.int64))
    chosen = chosen[files.parquet[chosen] & (files.records[chosen] > 0)]
    paths = [str(path) for path in files.path[chosen]]
    wanted = _wanted(files, chosen, SAMPLE_ROWS)
    sketches = _stored(table.store, table.table_uuid, paths, fields, wanted)
    missing = [path for path in paths if path not in sketches]
    if missing and fields:
        io = table.io
        with ThreadPoolExecutor(min(READERS, len(missing))) as pool:
            taken = pool.map(
                carried(lambda path: sketch_file(io, path, files.schema, fields)), missing
            )
            fresh = dict(zip(missing, taken, strict=True))
        sketches |= fresh
        table.keep(fresh)
    return pooled(files, chosen, [sketches[path] for path in paths] if fields else [], fields)


def stored_rows(table: SketchedFiles, columns: Sequence[int]) -> RowSample:
    """Return a pooled sample of the files whose stored sketch has all these `columns` with an
    ordered domain. No data file is opened."""
    files, fields = table.files, _ordered(table.files, columns)
    chosen = np.flatnonzero(files.parquet & (files.records > 0))
    paths = [str(path) for path in files.path[chosen]]
    wanted = _wanted(files, chosen, SAMPLE_ROWS)
    found = _stored(table.store, table.table_uuid, paths, fields, wanted)
    known = np.array([path in found for path in paths], dtype=np.bool_)
    return pooled(files, chosen[known], [found[path] for path in paths if path in found], fields)


def _ordered(files: FileTable, columns: Sequence[int]) -> list[Field]:
    """Return the fields of those columns that the table has, and that have an ordered domain."""
    fields = (files.schema.by_id[i] for i in columns if i in files.schema.by_id)
    return [field for field in fields if field.kind is not None]


def _keep(store: Store, table_uuid: str, fresh: Mapping[str, Sketch]) -> None:
    """Keep new sketches by path, and how long their files took to open."""
    store.put_sketches(table_uuid, {path: encode_sketch(item) for path, item in fresh.items()})
    record_openings(store, table_uuid, [s.opening for s in fresh.values() if s.opening])


@dataclass(frozen=True)
class TableSample:
    """Sampled rows of every file, or of files spread over the table."""

    rows: RowSample
    """The sampled rows."""
    bytes_read: int
    """Bytes of footers and column chunks that were read now."""
    taken_ms: int
    """When the oldest part was sampled, in epoch milliseconds."""
    files: int
    """Number of files with sampled rows of their own."""
    reused: int
    """Number of these files that had been sampled before."""


MOST_FILES = 512
"""Data files that a sample of the whole table reads; others borrow their rows."""


def sample_table(
    table: SketchedFiles,
    columns: Sequence[int],
    *,
    rows: int,
    budget: int,
    footers: RowGroups,
    now_ms: int,
    read: ReadSketches,
) -> TableSample:
    """Return about `rows` rows of the table over those columns, spread over its files.

    Files whose stored sketch has as many rows are not read again; new sketches are stored. budget:
    most bytes of footers and column chunks to read, at least `least_bytes`. footers: of the files
    of `sampled_files`.
    """
    files = table.files
    fields = [files.schema.by_id[i] for i in columns if i in files.schema.by_id]
    fields = [field for field in fields if field.kind is not None]
    chosen = sampled_files(files)
    wanted = _wanted(files, chosen, rows)
    paths = [str(path) for path in files.path[chosen]]
    sketches = _stored(table.store, table.table_uuid, paths, fields, wanted)
    missing = np.flatnonzero([path not in sketches for path in paths])
    bytes_read = 0
    if len(missing) and fields:
        requests = _requests(files, chosen[missing], wanted[missing], fields, footers, budget)
        taken = read(table.io, files.schema, fields, requests, now_ms)
        fresh = {request.path: item for request, item in zip(requests, taken, strict=True)}
        table.keep(fresh)
        bytes_read = sum(sketch.read for sketch in fresh.values())
        sketches |= fresh
    found = [sketches[path] for path in paths] if fields else []
    return TableSample(
        pooled(files, chosen, found, fields),
        bytes_read,
        min((sketch.taken_ms for sketch in found), default=now_ms),
        len(chosen),
        len(chosen) - len(missing),
    )


def sampled_files(files: FileTable) -> Int64:
    """Return the rows of the files that a sample of the table reads: all, or MOST_FILES spread over
    its partitions."""
    usable = np.flatnonzero(files.parquet & ~files.encrypted & (files.records > 0))
    if len(usable) <= MOST_FILES:
        return usable
    order = usable[np.argsort(files.partition[usable], kind="stable")]
    return np.sort(order[np.arange(MOST_FILES) * len(order) // MOST_FILES])


def least_bytes(chosen: Int64, footers: RowGroups, columns: Sequence[int]) -> Int64:
    """Return per chosen file the bytes of its footer and of the columns' chunks in its smallest row
    group, int64[chosen]."""
    return _footer_bytes(chosen, footers) + _chunks(chosen, footers, columns)[0]


def _footer_bytes(chosen: Int64, footers: RowGroups) -> Int64:
    return np.maximum(footers.footer_bytes[chosen], 0)


def _chunks(chosen: Int64, footers: RowGroups, columns: Sequence[int]) -> tuple[Int64, Int64]:
    """Return the bytes of the columns' chunks per chosen file, in its smallest row group that has
    rows and in all, int64[chosen] each."""
    chunk = np.zeros(len(footers.file), dtype=np.int64)
    for column in columns:
        if column in footers.column_sizes:
            chunk += np.maximum(footers.column_sizes[column], 0)
    filled = footers.records > 0
    none = np.iinfo(np.int64).max
    least = np.full(len(footers.footer_bytes), none, dtype=np.int64)
    total = np.zeros(len(footers.footer_bytes), dtype=np.int64)
    np.minimum.at(least, footers.file[filled], chunk[filled])
    np.add.at(total, footers.file[filled], chunk[filled])
    return np.where(least == none, 0, least)[chosen], total[chosen]


def _requests(
    files: FileTable,
    chosen: Int64,
    wanted: Int64,
    fields: Sequence[Field],
    footers: RowGroups,
    budget: int,
) -> list[SketchRequest]:
    """Return what to read. Each file may read its least; the rest of the budget is divided in
    proportion to rows, so that together they keep the budget."""
    ids = [field.field_id for field in fields]
    least, total = least_bytes(chosen, footers, ids), _chunks(chosen, footers, ids)[1]
    rest = max(0, budget - int(least.sum()))
    share = files.records[chosen] / max(int(files.records[chosen].sum()), 1)
    most = least + (rest * share).astype(np.int64)
    size = np.minimum(most, _footer_bytes(chosen, footers) + total)
    return [
        SketchRequest(str(files.path[row]), int(wanted[i]), int(most[i]), int(size[i]))
        for i, row in enumerate(chosen)
    ]


def _wanted(files: FileTable, chosen: Int64, rows: int) -> Int64:
    """Return the rows to sample per file: SAMPLE_ROWS, or a share of `rows` in proportion to the
    file's rows if that is more."""
    records = files.records[chosen]
    share = np.ceil(rows * records / max(int(records.sum()), 1)).astype(np.int64)
    return np.minimum(records, np.maximum(SAMPLE_ROWS, share if rows > SAMPLE_ROWS else 0))


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
            sketch = decode_sketch(blob)
            if sketch is None or not least[path] <= len(sketch) <= max(2 * least[path], LIGHT_ROWS):
                continue
            if all(sketch.types.get(field.field_id) == field.type for field in fields):
                found[path] = sketch
    return found


def encode_sketch(sketch: Sketch) -> bytes:
    """Return the sketch as it is kept in the state store."""
    arrays = {f"v{key}": value for key, value in sketch.values.items()}
    arrays |= {f"n{key}": value for key, value in sketch.null.items()}
    types = {str(key): kind for key, kind in sketch.types.items()}
    return pack({"version": VERSION, "types": types, "takenMs": sketch.taken_ms}, arrays)


def decode_sketch(blob: bytes) -> Sketch | None:
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


def pooled(
    files: FileTable, chosen: Int64, sketches: Sequence[Sketch], fields: Sequence[Field]
) -> RowSample:
    """Return the sketches of the files `chosen` as one sample."""
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
