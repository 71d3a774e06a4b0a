"""Delete load: which delete files a reader of each data file must apply, and their size.

Computed for every snapshot, since it depends on data files and delete files. The rules are those of
`table.deletes`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from reconciler.catalog.assemble import DeleteFiles
from reconciler.catalog.entries import NULL
from reconciler.catalog.position_rows import position_rows
from reconciler.table.deletes import (
    NO_FILE,
    NOT_LIVE,
    PATH_ID,
    DeleteTable,
    Positions,
    Scope,
    members_of,
)
from reconciler.table.filetable import UNKNOWN, Array, FileTable, Float64, Int64
from reconciler.table.observation import DeleteLoad
from reconciler.table.schema import PartitionSpec
from reconciler.table.values import partition_identity

POSITION, EQUALITY = 1, 2

Side = Literal["left", "right"]


@dataclass(frozen=True)
class AppliedDeletes:
    """The deletes of a snapshot, applied to its data files."""

    files: FileTable
    """Data files with their delete load."""
    deletes: DeleteTable
    """Live delete files."""
    load: DeleteLoad
    """Totals over the delete files."""
    doubled: tuple[str, ...]
    """Paths of data files with two vectors, which no reader accepts."""


def apply_deletes(
    files: FileTable,
    found: DeleteFiles,
    specs: Mapping[int, PartitionSpec],
    read: Callable[[DeleteTable], Mapping[int, Positions]] | None = None,
) -> AppliedDeletes:
    """Return the data files with what readers apply to them. read: the positions of delete files,
    by their row; None to go by metadata alone."""
    if not len(found.entries):
        return AppliedDeletes(files, DeleteTable(), DeleteLoad(), ())
    deletes = _table(files, found, specs)
    load = _Load(len(files))
    _apply_named(deletes, load)
    reach = _apply_partition(files, deletes, found, load)
    _apply_equality(files, deletes, load)
    deletes = replace(deletes, counted=_counted(files, deletes, reach))
    known = read(deletes) if read is not None else {}
    estimated, rows = position_rows(files, deletes, reach, load.has_vector, load.equality, known)
    deletes = replace(deletes, rows=rows)
    filled = replace(
        files,
        position_deleted=estimated,
        delete_files=load.files,
        delete_bytes=load.bytes,
        equality_deletes=load.equality,
        newest_delete=load.newest,
    )
    return AppliedDeletes(filled, deletes, _totals(deletes), _doubled(files, deletes))


class _Load:
    """Accumulators, one value per data file. With has_vector, older position deletes do not
    apply."""

    def __init__(self, count: int):
        self.files = np.zeros(count, dtype=np.int64)
        self.bytes = np.zeros(count, dtype=np.int64)
        self.equality = np.zeros(count, dtype=np.int64)
        self.newest = np.full(count, UNKNOWN, dtype=np.int64)
        self.has_vector = np.zeros(count, dtype=bool)


def _table(files: FileTable, found: DeleteFiles, specs: Mapping[int, PartitionSpec]) -> DeleteTable:
    entries = found.entries
    vector = (entries.content == POSITION) & (entries.content_bytes != NULL)
    data_row = _named_rows(files, found)
    numbers = {(spec, partition_identity(v)): n for n, (spec, v) in enumerate(files.partitions)}
    group = np.array(
        [
            numbers.get((int(spec), partition_identity(values)), NOT_LIVE)
            for spec, values in zip(found.spec_id, found.partition, strict=True)
        ],
        dtype=np.int64,
    )
    unpartitioned = np.array([specs[int(spec)].unpartitioned for spec in found.spec_id], dtype=bool)
    equality = entries.content == EQUALITY
    scope = np.select(
        [equality & unpartitioned, equality, vector, data_row != NO_FILE],
        [Scope.GLOBAL, Scope.EQUALITY, Scope.VECTOR, Scope.FILE],
        Scope.PARTITION,
    ).astype(np.int64)
    deletes = DeleteTable(
        path=entries.path,
        offset=np.where(vector, np.maximum(entries.content_offset, 0), UNKNOWN),
        scope=scope,
        spec_id=found.spec_id.astype(np.int64),
        sequence=found.sequence,
        records=entries.records,
        bytes=np.where(vector, entries.content_bytes, entries.bytes),
        snapshot_id=found.snapshot,
        partition=found.partition,
        data_row=data_row,
        group=np.where(np.isin(scope, (Scope.PARTITION, Scope.EQUALITY)), group, NO_FILE),
        other_format=~(entries.parquet | vector),
        equality_ids=tuple(entries.equality_ids.get(row, ()) for row in range(len(entries))),
    )
    return replace(deletes, dangling=_dangling(files, deletes))


def _path_bound(found: DeleteFiles, side: str, row: int) -> bytes | None:
    stats = found.entries.stats.get(PATH_ID)
    bounds = getattr(stats, side) if stats is not None else None
    if bounds is None or bounds.length[row] < 0:
        return None
    return bytes(bounds.data[row, : bounds.length[row]])


def named_file(found: DeleteFiles, row: int) -> str:
    """Return the one data file that a position delete file names, "" if it has a wider scope."""
    if found.entries.referenced[row]:
        return str(found.entries.referenced[row])
    lower, upper = (_path_bound(found, side, row) for side in ("lower", "upper"))
    return lower.decode() if lower is not None and lower == upper else ""


def _named_rows(files: FileTable, found: DeleteFiles) -> Int64:
    """Return, per delete file, the row of the one data file that it names.

    A position delete file is file-scoped if it names a data file, or if its path bounds are equal.
    """
    entries = found.entries
    rows = np.full(len(entries), NO_FILE, dtype=np.int64)
    for row in np.flatnonzero(entries.content == POSITION).tolist():
        named = named_file(found, row)
        if named:
            rows[row] = files.row_of.get(named, NOT_LIVE)
    return rows


def _dangling(files: FileTable, deletes: DeleteTable) -> Array:
    """Return bool[delete files]: no live data file matches.

    The oldest file of a scope decides: a delete reaches it, or none.
    """
    newest = np.iinfo(np.int64).max
    oldest = np.full(len(files.partitions) + 1, newest, dtype=np.int64)
    np.minimum.at(oldest, files.partition, files.sequence)
    least = oldest[np.where(deletes.group >= 0, deletes.group, -1)]  # the last one stays empty
    least[deletes.of(Scope.GLOBAL)] = oldest.min()
    named = np.flatnonzero(deletes.data_row >= 0)
    least[named] = files.sequence[deletes.data_row[named]]
    reached = np.where(deletes.equality, least < deletes.sequence, least <= deletes.sequence)
    return ~reached


def _apply_named(deletes: DeleteTable, load: _Load) -> None:
    """Apply deletes that name one data file each. A vector replaces all position deletes of its
    file."""
    vector = deletes.of(Scope.VECTOR)
    applies = deletes.of(Scope.FILE, Scope.VECTOR) & ~deletes.dangling
    load.has_vector[deletes.data_row[applies & vector]] = True
    for number in (np.flatnonzero(applies & vector), np.flatnonzero(applies & ~vector)):
        rows = deletes.data_row[number]
        number = number[vector[number] | ~load.has_vector[rows]]
        rows = deletes.data_row[number]
        np.add.at(load.files, rows, 1)
        np.add.at(load.bytes, rows, deletes.bytes[number])
        np.maximum.at(load.newest, rows, deletes.sequence[number])


def _apply_partition(
    files: FileTable, deletes: DeleteTable, found: DeleteFiles, load: _Load
) -> dict[int, Int64]:
    """Apply position deletes of partitions; return which data files each of them can name: those
    within its path bounds. It cannot name a file that we wrote from a snapshot with its sequence
    number: it was applied then.
    """
    members = members_of(files)
    reach: dict[int, Int64] = {}
    scoped = np.flatnonzero(deletes.of(Scope.PARTITION) & ~deletes.dangling)
    for group in np.unique(deletes.group[scoped]).tolist():
        rows = members[group][~load.has_vector[members[group]]]
        rows = rows[np.argsort(files.path[rows], kind="stable")]
        numbers = scoped[deletes.group[scoped] == group]
        _count(files, deletes, numbers, rows, load, "left")
        paths = files.path[rows].tolist()
        for number in numbers.tolist():
            inside = rows[_between(found, number, paths)]
            age = files.sequence[inside]
            applied = files.layout_written[inside] & (age == deletes.sequence[number])
            reach[number] = inside[(age <= deletes.sequence[number]) & ~applied]
    return reach


def _counted(files: FileTable, deletes: DeleteTable, reach: Mapping[int, Int64]) -> Float64:
    """Return the rows that live data files can have lost to position deletes of partitions:
    float64[delete files]."""
    counted = np.zeros(len(deletes), dtype=np.float64)
    for number, inside in reach.items():
        counted[number] = min(int(deletes.records[number]), int(files.records[inside].sum()))
    return counted


def _between(found: DeleteFiles, number: int, paths: list[str]) -> slice:
    """Return which of the sorted paths the delete file can name. UTF-8 sorts as its characters."""
    lower, upper = (_path_bound(found, side, number) for side in ("lower", "upper"))
    if lower is None or upper is None:
        return slice(None)
    return slice(
        bisect_left(paths, lower.decode(errors="replace")),
        bisect_right(paths, upper.decode(errors="replace")),
    )


def _apply_equality(files: FileTable, deletes: DeleteTable, load: _Load) -> None:
    members = members_of(files)
    kept = deletes.equality & ~deletes.dangling
    scoped = np.flatnonzero(kept & deletes.of(Scope.EQUALITY))
    for group in np.unique(deletes.group[scoped]).tolist():
        numbers = scoped[deletes.group[scoped] == group]
        reached = _count(files, deletes, numbers, members[group], load, "right")
        load.equality[members[group]] += reached
    everywhere = np.flatnonzero(kept & deletes.of(Scope.GLOBAL))
    if len(everywhere):
        rows = np.arange(len(files), dtype=np.int64)
        load.equality += _count(files, deletes, everywhere, rows, load, "right")


def _count(
    files: FileTable, deletes: DeleteTable, numbers: Int64, rows: Int64, load: _Load, side: Side
) -> Int64:
    """Add the delete files `numbers`, of one scope, to the load of the data files `rows`; return
    how many apply to each.

    A delete applies from its sequence number down: side "left" includes an equal one, "right" does
    not.
    """
    numbers = numbers[np.argsort(deletes.sequence[numbers], kind="stable")]
    sequence = deletes.sequence[numbers]
    first = np.searchsorted(sequence, files.sequence[rows], side)
    bytes_from = np.append(np.cumsum(deletes.bytes[numbers][::-1])[::-1], 0)
    reached: Int64 = (len(numbers) - first).astype(np.int64)
    load.files[rows] += reached
    load.bytes[rows] += bytes_from[first]
    hit = rows[reached > 0]
    load.newest[hit] = np.maximum(load.newest[hit], sequence[-1] if len(sequence) else UNKNOWN)
    return reached


def _doubled(files: FileTable, deletes: DeleteTable) -> tuple[str, ...]:
    rows = deletes.data_row[deletes.of(Scope.VECTOR) & (deletes.data_row >= 0)]
    numbers, counts = np.unique(rows, return_counts=True)
    return tuple(sorted(str(path) for path in files.path[numbers[counts > 1]]))


def _totals(deletes: DeleteTable) -> DeleteLoad:
    position = deletes.of(Scope.FILE, Scope.PARTITION)
    vector = deletes.of(Scope.VECTOR)
    live = ~deletes.spent & ~deletes.dangling
    return DeleteLoad(
        position_files=int(position.sum()),
        partition_files=int(deletes.of(Scope.PARTITION).sum()),
        position_rows=int(deletes.records[position & live].sum()),
        vectors=int(vector.sum()),
        vector_rows=int(deletes.records[vector & live].sum()),
        equality_files=int(deletes.equality.sum()),
        equality_rows=int(deletes.records[deletes.equality].sum()),
        dangling=int(deletes.dangling.sum()),
        bytes=int(deletes.bytes.sum()),
        paths=frozenset(deletes.path),
    )
