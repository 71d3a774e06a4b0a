"""The live delete files of a snapshot, as arrays: which data files a reader applies each of them
to, and which of them no reader needs any more.

The rule is the reader's own (Apache Iceberg table specification, "Scan planning"): a vector or a
file-scoped position delete applies to the data file that it names; a position delete file of a
partition to every data file of its spec and partition; an equality delete likewise, or to all data
files if its spec is unpartitioned. Position deletes apply to files of the same or a lower data
sequence number, equality deletes only to files of a lower one. The bounds of `file_path` do not
narrow the scope: a reader opens the file all the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from reconciler.table.filetable import Array, Bool, FileTable, Float64, Int64, Partition

PATH_ID, POSITION_ID = 2147483546, 2147483545
"""Reserved field ids of `file_path` and `pos` in position delete files."""


class PartitionKey(NamedTuple):
    """A partition: equal for equal tuples of values of one spec, and only for them."""

    spec_id: int
    """Id of the partition spec."""
    values: str
    """The partition's values as text."""


class Scope(IntEnum):
    """What a delete file applies to. FILE: position deletes of one data file. PARTITION: position
    deletes of a partition. VECTOR: a deletion vector. EQUALITY: of a partition; GLOBAL: equality
    deletes of an unpartitioned spec."""

    FILE = 0
    PARTITION = 1
    VECTOR = 2
    EQUALITY = 3
    GLOBAL = 4


NOT_LIVE = -1
"""The named data file, or every data file of the partition, is gone."""
NO_FILE = -2
"""The delete file does not name one data file, or has no partition of its own."""


def _none() -> Int64:
    return np.zeros(0, dtype=np.int64)


Positions = Mapping[str, Int64]
"""The distinct positions that a delete file names, by the path of the data file."""


@dataclass(frozen=True)
class DeletedRows:
    """How many rows of each data file are deleted. The bounds hold whatever the writers did."""

    least: Int64
    """Lower bound: int64[files]. It equals `most` where the positions were read, and for a file
    with one vector."""
    most: Int64
    """Upper bound: int64[files]."""
    total_most: int
    """Upper bound for all files together. It can be less than the sum of `most`, because a position
    names one row."""
    unread: int = 0
    """Number of position delete files that apply and were not read."""


@dataclass(frozen=True)
class DeleteTable:
    """The live deletes of a table. Arrays have shape [delete files], in which each deletion vector
    counts as a file."""

    path: Array = field(default_factory=lambda: np.zeros(0, dtype=object))
    """object[delete files]: path as the manifest has it; several vectors may share one file."""
    offset: Int64 = field(default_factory=_none)
    """int64[delete files]: offset of a vector within its file, -1 for other files. (path, offset)
    identifies a delete."""
    scope: Int64 = field(default_factory=_none)
    """int64[delete files]: which data files it applies to, as a `Scope`."""
    spec_id: Int64 = field(default_factory=_none)
    """int64[delete files]: id of its partition spec."""
    sequence: Int64 = field(default_factory=_none)
    """int64[delete files]: data sequence number."""
    records: Int64 = field(default_factory=_none)
    """int64[delete files]: number of deleted rows: positions, or keys of an equality delete."""
    bytes: Int64 = field(default_factory=_none)
    """int64[delete files]: bytes that a reader fetches; of a vector its own blob."""
    snapshot_id: Int64 = field(default_factory=_none)
    """int64[delete files]: the snapshot that added it."""
    partition: tuple[Partition, ...] = ()
    """Values of its spec's fields, one tuple per delete file."""
    data_row: Int64 = field(default_factory=_none)
    """int64[delete files]: row in the file table of the data file that it names, NOT_LIVE if that
    is gone, NO_FILE if it names none."""
    group: Int64 = field(default_factory=_none)
    """int64[delete files]: index into FileTable.partitions of the partition that it applies to,
    NOT_LIVE without a live data file there, NO_FILE for other scopes."""
    equality_ids: tuple[tuple[int, ...], ...] = ()
    """Field ids of the key of an equality delete, one tuple per delete file."""
    other_format: Bool = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """bool[delete files]: whether it is neither a Parquet file nor a vector."""
    dangling: Bool = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """bool[delete files]: whether no live data file matches it."""
    counted: Float64 = field(default_factory=lambda: np.zeros(0, dtype=np.float64))
    """float64[delete files]: for position deletes of a partition the rows that live data files can
    have lost to it, else 0."""
    rows: DeletedRows | None = None
    """Bounds of the deleted rows; None if the table has no delete file."""

    def __len__(self) -> int:
        return len(self.path)

    def of(self, *scopes: Scope) -> Bool:
        """Return bool[delete files]: those of one of the scopes."""
        return np.isin(self.scope, [int(one) for one in scopes])

    @property
    def equality(self) -> Bool:
        return self.of(Scope.EQUALITY, Scope.GLOBAL)

    @property
    def applying(self) -> frozenset[str]:
        """Paths of the files of which any delete applies to a live data file."""
        return frozenset(str(path) for path in self.path[~self.dangling])

    @property
    def repeated(self) -> Bool:
        """bool[delete files]: those that are in two manifest entries."""
        identities = list(zip(self.path.tolist(), self.offset.tolist(), strict=True))
        times = Counter(identities)
        return np.array([times[one] > 1 for one in identities], dtype=np.bool_)

    @property
    def spent(self) -> Bool:
        """bool[delete files]: readers open it, but it can name no live data file."""
        return self.of(Scope.PARTITION) & (self.counted == 0.0) & ~self.dangling

    def reaches(self, row: int, files: FileTable) -> Int64:
        """Return the rows of the data files to which a reader applies the delete file `row`."""
        scope, sequence = Scope(int(self.scope[row])), int(self.sequence[row])
        if scope in (Scope.FILE, Scope.VECTOR):
            named = self.data_row[row : row + 1]
            return named[(named >= 0) & (files.sequence[named] <= sequence)]
        if scope is Scope.GLOBAL:
            return np.flatnonzero(files.sequence < sequence).astype(np.int64)
        members = members_of(files).get(int(self.group[row]), _none())
        if scope is Scope.EQUALITY:
            return members[files.sequence[members] < sequence]
        return members[files.sequence[members] <= sequence]

    def under(self, chosen: Bool, files: FileTable) -> Bool:
        """Return bool[files]: those to which a reader applies any of the chosen delete files."""
        found = np.zeros(len(files), dtype=np.bool_)
        for row in np.flatnonzero(chosen).tolist():
            found[self.reaches(row, files)] = True
        return found

    @cached_property
    def derived(self) -> dict[str, Any]:
        """Cache of values derived from this table; a table never changes."""
        return {}


NO_DELETE_FILES = DeleteTable()


def members_of(files: FileTable) -> dict[int, Int64]:
    """Return the rows of the data files of each partition, by index into FileTable.partitions."""
    known: dict[int, Int64] | None = files.derived.get("members")
    if known is None:
        order = np.argsort(files.partition, kind="stable").astype(np.int64)
        numbers, starts = np.unique(files.partition[order], return_index=True)
        pieces = np.split(order, starts[1:]) if len(order) else []
        known = {int(n): piece for n, piece in zip(numbers, pieces, strict=True)}
        files.derived["members"] = known
    return known


def equality_deleted(files: FileTable, deletes: DeleteTable) -> Float64:
    """Return the rows of each data file that equality deletes hide, if each key is that of one row:
    float64[files].

    A delete of k keys hides at most k such rows, spread over the files in its scope by their rows.
    Keys that never existed, as an upsert deletes, hide fewer; keys of several rows hide more.
    """
    hidden = np.zeros(len(files), dtype=np.float64)
    for row in np.flatnonzero(deletes.equality & ~deletes.dangling).tolist():
        scope = deletes.reaches(row, files)
        rows = files.records[scope].astype(np.float64)
        total = float(rows.sum())
        if total:
            hidden[scope] += rows * min(1.0, float(deletes.records[row]) / total)
    live = np.maximum(files.records - files.position_deleted, 0)
    return np.minimum(hidden, live)


@dataclass(frozen=True, slots=True)
class LiveRows:
    """Number of rows that readers see."""

    least: int
    """Lower bound, whatever the data files contain."""
    estimate: int
    """The number if each key of an equality delete is that of one row (`equality_deleted`), and if
    the positions of an unread delete file are spread over the files that it may name."""
    most: int
    """Upper bound, whatever the data files contain."""

    @property
    def exact(self) -> bool:
        return self.least == self.most


def deleted_rows(files: FileTable, deletes: DeleteTable) -> DeletedRows:
    """Return the bounds of the deleted rows of each data file."""
    if deletes.rows is not None:
        return deletes.rows
    known = files.position_deleted
    most = np.where(files.equality_deletes > 0, files.records, known)
    return DeletedRows(known, most, int(most.sum()))


def live_rows(files: FileTable, deletes: DeleteTable) -> LiveRows:
    """Return the rows that readers see.

    They are exact where the positions were read, and no equality delete applies: a key may be that
    of any number of rows, so every row of a data file in its scope may be hidden.
    """
    rows, stored = deleted_rows(files, deletes), int(files.records.sum())
    least, most = stored - rows.total_most, stored - int(rows.least.sum())
    hidden = math.ceil(float(equality_deleted(files, deletes).sum()) - 1e-6)
    estimate = stored - int(files.position_deleted.sum()) - hidden
    return LiveRows(least, min(max(estimate, least), most), most)
