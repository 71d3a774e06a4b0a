"""The manifest cache: decoded entries of many manifests in a few files on local disk.

A manifest never changes, so decoded ones are kept, by path and length, below
<cache>/manifests/<table uuid>/. One observation writes one segment for all manifests that were new
to it: an Arrow IPC stream behind a checksum, whole or not at all (atomic rename). An unreadable
segment is ignored and removed, dead manifests are dropped when segments are merged, and the tables
used longest ago are evicted when the cache is full.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc

from reconciler.catalog.entries import (
    SCALARS,
    TEXTS,
    Entries,
    FieldStats,
    RawBounds,
    concatenate,
    select,
)
from reconciler.table.values import decode_partition_value, encode_partition_value

Array = npt.NDArray[Any]
Key = tuple[str, int]
"""A manifest: its path and its length in bytes."""

MAGIC = b"LAYOUT\x00\x05"  # the last byte is the format's version
COMPRESSION = "lz4"
SUFFIX = ".segment"
_HEADER = b"layout.segment"
MAX_SEGMENTS = 8
MAX_CACHE_BYTES = 4 << 30
SWEPT_SHARE = 0.01
"""Share of the cache's limit that a process writes before it looks for tables to evict again: each
look lists all tables, and a process may observe thousands of them."""

_unswept: dict[Path, int] = {}
"""By the root of a cache, the bytes that this process has written since it last looked for tables
to evict."""


class ManifestCache:
    """Decoded manifests of one table. directory: the cache's root, shared by all tables."""

    def __init__(self, directory: Path, table_uuid: str, max_bytes: int = MAX_CACHE_BYTES):
        self.root = directory / "manifests"
        self.directory = self.root / table_uuid
        self.max_bytes = max_bytes
        self._used: set[Key] = set()

    def load(self, wanted: Iterable[Key]) -> Entries | None:
        """Return the entries of the wanted manifests that are cached, each manifest once; None if
        none is."""
        missing = set(wanted)
        self._used |= missing
        parts: list[Entries] = []
        for path in self._segments():
            entries = read_segment(path)
            if entries is None:
                path.unlink(missing_ok=True)
                continue
            useful = [i for i, key in enumerate(entries.manifests) if key in missing]
            missing.difference_update(entries.manifests[i] for i in useful)
            if useful:
                parts.append(_only(entries, useful))
        return concatenate(parts) if parts else None

    def store(self, fresh: Entries) -> None:
        """Store newly decoded manifests.

        An unwritable cache does not make an observation fail.
        """
        with contextlib.suppress(OSError):
            self.directory.mkdir(parents=True, exist_ok=True)
            self._write(fresh)

    def tidy(self) -> None:
        """Merge segments if there are many, keeping what this observation used, and evict old
        tables."""
        with contextlib.suppress(OSError):
            segments = self._segments()
            if len(segments) > MAX_SEGMENTS:
                kept = self.load(set(self._used))
                if kept is not None:
                    self._write(kept)
                for path in segments:
                    path.unlink(missing_ok=True)
            if self._due():
                self._evict()

    def _due(self) -> bool:
        """Whether to look for tables to evict: at first, and whenever a part of the limit was
        written since."""
        if _unswept.get(self.root, self.max_bytes) < SWEPT_SHARE * self.max_bytes:
            return False
        _unswept[self.root] = 0
        return True

    def _write(self, entries: Entries) -> None:
        path = self._new_path()
        write_segment(path, entries)
        if self.root in _unswept:
            _unswept[self.root] += path.stat().st_size

    def _segments(self) -> list[Path]:
        if not self.directory.is_dir():
            return []
        return sorted(path for path in self.directory.iterdir() if path.suffix == SUFFIX)

    def _new_path(self) -> Path:
        return self.directory / f"{uuid.uuid4().hex}{SUFFIX}"

    def _evict(self) -> None:
        """Remove the tables used longest ago until the cache fits its limit."""
        tables = sorted(
            (path for path in self.root.iterdir() if path.is_dir() and path != self.directory),
            key=lambda path: path.stat().st_mtime,
        )
        sizes = {path: _size(path) for path in (*tables, self.directory)}
        excess = sum(sizes.values()) - self.max_bytes
        for path in tables:
            if excess <= 0:
                return
            shutil.rmtree(path, ignore_errors=True)
            excess -= sizes[path]


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def _only(entries: Entries, manifests: Sequence[int]) -> Entries:
    """Return the entries of some manifests of a segment; the others are dropped from its list
    too."""
    if len(manifests) == len(entries.manifests):
        return entries
    renumber = np.full(len(entries.manifests), -1, dtype=np.int32)
    renumber[list(manifests)] = np.arange(len(manifests), dtype=np.int32)
    kept = select(entries, np.flatnonzero(renumber[entries.manifest] >= 0))
    return _with_manifests(kept, tuple(entries.manifests[i] for i in manifests), renumber)


def _with_manifests(entries: Entries, manifests: tuple[Key, ...], renumber: Array) -> Entries:
    return replace(entries, manifests=manifests, manifest=renumber[entries.manifest])


def write_segment(path: Path, entries: Entries) -> None:
    """Write the segment beside its final name and rename it: readers see all or nothing."""
    table = to_arrow(entries)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=COMPRESSION)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    body = sink.getvalue()
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(MAGIC + zlib.crc32(body).to_bytes(4, "little"))
            file.write(body)
        partial.replace(path)
    except OSError:  # a full disk: remove the partial file
        partial.unlink(missing_ok=True)
        raise


def read_segment(path: Path) -> Entries | None:
    """Return a segment's entries, None if the file is not a whole segment of this version.

    The checksum comes first: Arrow's own reader does not notice a changed byte.
    """
    try:
        data = path.read_bytes()
    except OSError:
        return None
    body = memoryview(data)[12:]
    if data[:8] != MAGIC or zlib.crc32(body) != int.from_bytes(data[8:12], "little"):
        return None
    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        return from_arrow(reader.read_all())


_ARRAYS = ("manifest", "partition", *SCALARS)
_BOUNDS = ("lower", "upper")
_COUNTS = ("nulls", "nans", "values", "sizes")


def to_arrow(entries: Entries) -> pa.Table:
    """Return a row per entry; what is not per entry is JSON in the schema's metadata."""
    header = {
        "manifests": entries.manifests,
        "partitions": [
            (ids, [encode_partition_value(value) for value in values])
            for ids, values in entries.partitions
        ],
        "equalityIds": sorted(entries.equality_ids.items()),
    }
    columns = {name: pa.array(getattr(entries, name)) for name in _ARRAYS}
    columns |= {name: pa.array(getattr(entries, name), pa.large_string()) for name in TEXTS}
    for field_id, stats in entries.stats.items():
        for name in _BOUNDS:
            bounds = getattr(stats, name)
            if bounds is not None:
                columns[f"{field_id}.{name}"] = _fixed(bounds.data)
                columns[f"{field_id}.{name}.length"] = pa.array(bounds.length)
        for name in _COUNTS:
            counts = getattr(stats, name)
            if counts is not None:
                columns[f"{field_id}.{name}"] = pa.array(counts)
    return pa.table(columns).replace_schema_metadata({_HEADER: json.dumps(header)})


def from_arrow(table: pa.Table) -> Entries:
    """Return the entries of a table: the inverse of `to_arrow`."""
    header = json.loads(table.schema.metadata[_HEADER])
    arrays = {name: _array(table.column(name)) for name in table.column_names}
    stats: dict[int, dict[str, Any]] = {}
    for name, array in arrays.items():
        head, _, kind = name.partition(".")
        if head.isdecimal() and not kind.endswith(".length"):
            found = stats.setdefault(int(head), {})
            found[kind] = array
            if kind in _BOUNDS:
                found[kind] = RawBounds(array, arrays[f"{name}.length"])
    return Entries(
        manifests=tuple((path, length) for path, length in header["manifests"]),
        partitions=tuple(
            (tuple(ids), tuple(decode_partition_value(value) for value in values))
            for ids, values in header["partitions"]
        ),
        equality_ids={row: tuple(ids) for row, ids in header["equalityIds"]},
        stats={field_id: FieldStats(**found) for field_id, found in sorted(stats.items())},
        **{name: arrays[name] for name in (*_ARRAYS, *TEXTS)},
    )


def _fixed(data: Array) -> pa.Array:
    """Return uint8[n, w] as n values of w bytes."""
    count, width = data.shape
    buffer = pa.py_buffer(np.ascontiguousarray(data))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), count, [None, buffer])


def _array(column: pa.ChunkedArray) -> Array:
    if not pa.types.is_fixed_size_binary(column.type):
        plain: Array = column.to_numpy()
        return plain
    width = column.type.byte_width
    joined = column.combine_chunks()
    data = np.frombuffer(joined.buffers()[1] or b"", dtype=np.uint8, count=len(joined) * width)
    return data.reshape(len(joined), width)
