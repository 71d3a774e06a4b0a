"""Delete load: which delete files a reader of each data file must apply, and their size.

Computed for every snapshot, since it depends on data files and delete files. Rules: Apache Iceberg
table specification, "Scan planning" (sequence numbers, partition scope, deletion vectors).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reconciler.catalog.assemble import DeleteFiles
from reconciler.catalog.manifest import NULL
from reconciler.table.filetable import UNKNOWN, FileTable
from reconciler.table.observation import DeleteLoad
from reconciler.table.schema import PartitionSpec
from reconciler.table.values import partition_identity

Array = npt.NDArray[Any]

FILE_PATH_FIELD = 2147483546
"""Reserved field id of `file_path` in position delete files."""

POSITION, EQUALITY = 1, 2


def apply_deletes(
    files: FileTable, deletes: DeleteFiles, specs: Mapping[int, PartitionSpec]
) -> tuple[FileTable, DeleteLoad]:
    """Return the file table with its delete load filled in, and the totals of the live delete
    files."""
    entries = deletes.entries
    if not len(entries):
        return files, DeleteLoad()
    rows, vector = _referenced_rows(files, deletes)
    load = _Load(len(files))
    _apply_named(files, deletes, rows, vector, load)
    _apply_scoped(files, deletes, specs, rows, load)
    filled = replace(
        files,
        position_deleted=np.minimum(np.rint(load.rows).astype(np.int64), files.records),
        delete_files=load.files,
        delete_bytes=load.bytes,
        equality_deletes=load.equality,
        newest_delete=load.newest,
    )
    return filled, _totals(deletes, vector)


class _Load:
    """Accumulators, one value per data file. With has_vector, older position deletes do not
    apply."""

    def __init__(self, count: int):
        self.rows = np.zeros(count, dtype=np.float64)
        self.files = np.zeros(count, dtype=np.int64)
        self.bytes = np.zeros(count, dtype=np.int64)
        self.equality = np.zeros(count, dtype=np.int64)
        self.newest = np.full(count, UNKNOWN, dtype=np.int64)
        self.has_vector = np.zeros(count, dtype=bool)


def _delete_bytes(deletes: DeleteFiles) -> Array:
    """Return the bytes that a reader fetches: of a deletion vector only its own blob of the puffin
    file."""
    entries = deletes.entries
    return np.where(entries.content_bytes == NULL, entries.bytes, entries.content_bytes)


def _path_bound(deletes: DeleteFiles, side: str, row: int) -> bytes | None:
    stats = deletes.entries.stats.get(FILE_PATH_FIELD)
    bounds = getattr(stats, side) if stats is not None else None
    if bounds is None or bounds.length[row] < 0:
        return None
    return bytes(bounds.data[row, : bounds.length[row]])


def _referenced_rows(files: FileTable, deletes: DeleteFiles) -> tuple[Array, Array]:
    """Return, per delete file, the row of the one data file it names, and whether it is a deletion
    vector.

    -1: the named file is not live; -2: not file-scoped. A position delete file is file-scoped if it
    names a data file, or if its path bounds are equal.
    """
    entries = deletes.entries
    vector = (entries.content == POSITION) & (entries.content_bytes != NULL)
    rows = np.full(len(entries), -2, dtype=np.int64)
    names: dict[int, str] = {}
    for row in np.flatnonzero(entries.content == POSITION).tolist():
        named = entries.referenced[row]
        if not named:
            lower, upper = (_path_bound(deletes, side, row) for side in ("lower", "upper"))
            named = lower.decode() if lower is not None and lower == upper else ""
        if named:
            names[row] = named
    if names:
        index = {path: number for number, path in enumerate(files.path.tolist())}
        for row, path in names.items():
            rows[row] = index.get(path, -1)
    return rows, vector


def _apply_named(
    files: FileTable, deletes: DeleteFiles, rows: Array, vector: Array, load: _Load
) -> None:
    """Apply deletes that name one data file each. A vector replaces all position deletes of its
    file."""
    entries, size = deletes.entries, _delete_bytes(deletes)
    applies = rows >= 0
    applies[applies] = files.sequence[rows[applies]] <= deletes.sequence[applies]
    load.has_vector[rows[applies & vector]] = True
    for number in (np.flatnonzero(applies & vector), np.flatnonzero(applies & ~vector)):
        number = number[vector[number] | ~load.has_vector[rows[number]]]
        np.add.at(load.rows, rows[number], entries.records[number])
        np.add.at(load.files, rows[number], 1)
        np.add.at(load.bytes, rows[number], size[number])
        np.maximum.at(load.newest, rows[number], deletes.sequence[number])


def _apply_scoped(
    files: FileTable,
    deletes: DeleteFiles,
    specs: Mapping[int, PartitionSpec],
    rows: Array,
    load: _Load,
) -> None:
    """Apply position deletes of a partition and equality deletes.

    Position: same spec and partition, data sequence number at most the delete's, path within the
    delete file's path bounds; its rows are divided by record count (an estimate). Equality: data
    sequence number below the delete's; same spec and partition, or every partition if the delete's
    spec is unpartitioned.
    """
    entries, size = deletes.entries, _delete_bytes(deletes)
    groups = {(spec, partition_identity(v)): piece for spec, v, piece in files.groups()}
    everything = np.arange(len(files), dtype=np.int64)
    for number in np.flatnonzero(rows == -2):
        spec = int(deletes.spec_id[number])
        global_scope = entries.content[number] == EQUALITY and specs[spec].unpartitioned
        scope = groups.get((spec, partition_identity(deletes.partition[number])), everything[:0])
        scope = everything if global_scope else scope
        if entries.content[number] == EQUALITY:
            scope = scope[files.sequence[scope] < deletes.sequence[number]]
            load.equality[scope] += 1
        else:
            scope = scope[files.sequence[scope] <= deletes.sequence[number]]
            scope = _within_paths(files, deletes, int(number), scope)
            scope = scope[~load.has_vector[scope]]
            total = files.records[scope].sum()
            if total:
                share = files.records[scope] / total
                load.rows[scope] += share * entries.records[number]
        load.files[scope] += 1
        load.bytes[scope] += size[number]
        load.newest[scope] = np.maximum(load.newest[scope], deletes.sequence[number])


def _within_paths(files: FileTable, deletes: DeleteFiles, number: int, scope: Array) -> Array:
    lower, upper = (_path_bound(deletes, side, number) for side in ("lower", "upper"))
    if lower is None or upper is None or not len(scope):
        return scope
    inside = [lower <= path.encode() <= upper for path in files.path[scope]]
    return np.asarray(scope[np.array(inside, dtype=bool)])


def _totals(deletes: DeleteFiles, vector: Array) -> DeleteLoad:
    entries = deletes.entries
    position = (entries.content == POSITION) & ~vector
    equality = entries.content == EQUALITY
    return DeleteLoad(
        position_files=int(position.sum()),
        position_rows=int(entries.records[position].sum()),
        vectors=int(vector.sum()),
        vector_rows=int(entries.records[vector].sum()),
        equality_files=int(equality.sum()),
        bytes=int(_delete_bytes(deletes).sum()),
        paths=frozenset(entries.path),
    )
