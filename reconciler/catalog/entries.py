"""Entries of manifests as arrays, how they are selected and put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from reconciler.table.values import Scalar, partition_identity

Array = npt.NDArray[Any]


NULL = -(2**63)
"""An optional long that the entry does not hold (it is inherited from the manifest)."""


PartitionTuple = tuple[tuple[int, ...], tuple[Scalar | None, ...]]
"""Partition field ids and, in the same order, the values in their domain."""


Item = TypeVar("Item")


class Distinct(Generic[Item]):
    """Numbers items by a given identity. items: the first of each, in the order of numbers.

    Partition values cannot be their own identity: NaN is one value, and -0.0 differs from 0.0.
    """

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._numbers: dict[tuple[object, ...], int] = {}

    def number(self, identity: tuple[object, ...], item: Item) -> int:
        found = self._numbers.setdefault(identity, len(self.items))
        if found == len(self.items):
            self.items.append(item)
        return found


@dataclass(frozen=True)
class RawBounds:
    """Bounds of a column as manifests store them."""

    data: Array
    """The bytes, padded with NUL: uint8[n, w]."""
    length: Array
    """Bytes of each bound as written, -1 for none: int32[n]. A length above BOUND_BYTES means that
    `data` holds only its beginning."""


@dataclass(frozen=True)
class FieldStats:
    """Statistics of one field id over all entries. Arrays have shape [entries]; one is None if no
    entry has that statistic."""

    lower: RawBounds | None = None
    """Lower bounds as raw bytes."""
    upper: RawBounds | None = None
    """Upper bounds as raw bytes."""
    nulls: Array | None = None
    """Number of NULL values; the constant NULL where an entry has none."""
    nans: Array | None = None
    """Number of NaN values; the constant NULL where an entry has none."""
    values: Array | None = None
    """Number of values; the constant NULL where an entry has none."""
    sizes: Array | None = None
    """Stored bytes of the column; the constant NULL where an entry has none."""


@dataclass(frozen=True)
class Entries:
    """All entries of some manifests. Arrays have shape [entries]."""

    manifests: tuple[tuple[str, int], ...]
    """Path and bytes of each manifest."""
    manifest: Array
    """int32[entries]: index into `manifests`, ascending."""
    status: Array
    """0 for an existing entry, 1 for an added one, 2 for a deleted one."""
    content: Array
    """0 for data, 1 for position deletes and deletion vectors, 2 for equality deletes."""
    snapshot_id: Array
    """Snapshot that added or deleted the file; the constant NULL where it is inherited."""
    sequence: Array
    """Data sequence number; the constant NULL where it is inherited."""
    file_sequence: Array
    """Sequence number of the commit that added the file; the constant NULL where it is
    inherited."""
    path: Array
    """object[entries]: the file's path as the manifest has it."""
    parquet: Array
    """Whether the file format is Parquet."""
    encrypted: Array
    """Whether the entry has key metadata."""
    records: Array
    """Number of rows, or of deletes."""
    bytes: Array
    """Size of the file."""
    sort_order_id: Array
    """Id of the sort order that the file was written by; the constant NULL if missing."""
    partition: Array
    """int32[entries]: index into `partitions`."""
    partitions: tuple[PartitionTuple, ...]
    """The distinct partition tuples."""
    referenced: Array
    """object[entries]: path of the data file that a delete file names, "" for none."""
    content_offset: Array
    """Offset of a deletion vector within its file; the constant NULL for other files."""
    content_bytes: Array
    """Bytes of a deletion vector within its file; the constant NULL for other files."""
    equality_ids: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Field ids of the key of an equality delete file, by the number of its entry."""
    stats: dict[int, FieldStats] = field(default_factory=dict)
    """Statistics of columns by field id."""

    def __len__(self) -> int:
        return len(self.path)


SCALARS = (
    "status", "content", "snapshot_id", "sequence", "file_sequence", "parquet", "encrypted",
    "records", "bytes", "sort_order_id", "content_offset", "content_bytes",
)  # fmt: skip


TEXTS = ("path", "referenced")


def select(entries: Entries, rows: Array) -> Entries:
    """Return the entries at `rows` (ascending indexes); manifests and partitions do not change."""
    position = {int(row): number for number, row in enumerate(rows)} if entries.equality_ids else {}
    return replace(
        entries,
        manifest=entries.manifest[rows],
        partition=entries.partition[rows],
        equality_ids={
            position[row]: ids for row, ids in entries.equality_ids.items() if row in position
        },
        stats={key: _select_stats(value, rows) for key, value in entries.stats.items()},
        **{name: getattr(entries, name)[rows] for name in (*SCALARS, *TEXTS)},
    )


def _select_stats(stats: FieldStats, rows: Array) -> FieldStats:
    taken: dict[str, Any] = {}
    for item in fields(FieldStats):
        value = getattr(stats, item.name)
        if isinstance(value, RawBounds):
            taken[item.name] = RawBounds(value.data[rows], value.length[rows])
        elif value is not None:
            taken[item.name] = value[rows]
    return FieldStats(**taken)


def concatenate(parts: Sequence[Entries]) -> Entries:
    """Return the entries of several blocks as one; manifests and partitions are renumbered."""
    if len(parts) == 1:
        return parts[0]
    manifests: list[tuple[str, int]] = []
    seen: Distinct[PartitionTuple] = Distinct()
    manifest, partition, equality = [], [], {}
    at = 0
    for part in parts:
        manifest.append(part.manifest + np.int32(len(manifests)))
        manifests += part.manifests
        renumbered = [
            seen.number((ids, partition_identity(values)), (ids, values))
            for ids, values in part.partitions
        ]
        partition.append(np.array(renumbered, dtype=np.int32)[part.partition])
        equality.update({row + at: ids for row, ids in part.equality_ids.items()})
        at += len(part)
    keys = sorted({key for part in parts for key in part.stats})
    scalars = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in (*SCALARS, *TEXTS)
    }
    return Entries(
        manifests=tuple(manifests),
        manifest=np.concatenate(manifest),
        partition=np.concatenate(partition),
        partitions=tuple(seen.items),
        equality_ids=equality,
        stats={key: _concatenate_stats(parts, key) for key in keys},
        **scalars,
    )


def _concatenate_stats(parts: Sequence[Entries], key: int) -> FieldStats:
    found = [(part.stats.get(key, FieldStats()), len(part)) for part in parts]
    joined: dict[str, Any] = {}
    for item in fields(FieldStats):
        pieces = [(getattr(stats, item.name), count) for stats, count in found]
        if all(piece is None for piece, _ in pieces):
            continue
        if item.name in ("lower", "upper"):
            joined[item.name] = _concatenate_bounds(pieces)
        else:
            joined[item.name] = np.concatenate(
                [
                    np.full(n, NULL, dtype=np.int64) if piece is None else piece
                    for piece, n in pieces
                ]
            )
    return FieldStats(**joined)


def _concatenate_bounds(pieces: Sequence[tuple[RawBounds | None, int]]) -> RawBounds:
    width = max(piece.data.shape[1] for piece, _ in pieces if piece is not None)
    total = sum(count for _, count in pieces)
    data = np.zeros((total, width), dtype=np.uint8)
    length = np.full(total, -1, dtype=np.int32)
    at = 0
    for piece, count in pieces:
        if piece is not None:
            data[at : at + count, : piece.data.shape[1]] = piece.data
            length[at : at + count] = piece.length
        at += count
    return RawBounds(data, length)
