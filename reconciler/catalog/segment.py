"""The manifest cache: decoded entries of many manifests in a few files on local disk.

A manifest never changes, so decoded ones are kept, by path and length, below
<cache>/manifests/<table uuid>/. One observation writes one segment for all manifests that were new
to it, whole or not at all (atomic rename, checksum). An unreadable segment is ignored and removed,
dead manifests are dropped when segments are merged, and the tables used longest ago are evicted
when the cache is full.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reconciler.catalog.manifest import (
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

MAGIC = b"LAYOUT\x00\x02"  # the last byte is the format's version
SUFFIX = ".segment"
MAX_SEGMENTS = 8
MAX_CACHE_BYTES = 4 << 30


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
            write_segment(self._new_path(), fresh)

    def tidy(self) -> None:
        """Merge segments if there are many, keeping what this observation used, and evict old
        tables."""
        with contextlib.suppress(OSError):
            segments = self._segments()
            if len(segments) > MAX_SEGMENTS:
                kept = self.load(set(self._used))
                if kept is not None:
                    write_segment(self._new_path(), kept)
                for path in segments:
                    path.unlink(missing_ok=True)
            self._evict()

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
    header, arrays = _flatten(entries)
    blobs: list[bytes] = []
    layout: list[tuple[str, str, list[int], int, int]] = []
    at = 0
    for name, array in arrays.items():
        blob = np.ascontiguousarray(array).tobytes()
        layout.append((name, array.dtype.str, list(array.shape), at, len(blob)))
        blobs.append(blob)
        at += len(blob)
    head = json.dumps({**header, "arrays": layout}, separators=(",", ":")).encode()
    body = len(head).to_bytes(8, "little") + head + b"".join(blobs)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        partial.write_bytes(MAGIC + zlib.crc32(body).to_bytes(4, "little") + body)
        partial.replace(path)
    except OSError:  # a full disk: remove the partial file
        partial.unlink(missing_ok=True)
        raise


def read_segment(path: Path) -> Entries | None:
    """Return a segment's entries, None if the file is not a whole segment of this version."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    body = memoryview(data)[12:]
    if data[:8] != MAGIC or zlib.crc32(body) != int.from_bytes(data[8:12], "little"):
        return None
    size = int.from_bytes(body[:8], "little")
    header = json.loads(bytes(body[8 : 8 + size]))
    payload = body[8 + size :]
    arrays = {
        name: np.frombuffer(payload[at : at + length], dtype=np.dtype(dtype)).reshape(shape)
        for name, dtype, shape, at, length in header["arrays"]
    }
    return _unflatten(header, arrays)


def _flatten(entries: Entries) -> tuple[dict[str, Any], dict[str, Array]]:
    header: dict[str, Any] = {
        "manifests": entries.manifests,
        "partitions": [
            (ids, [encode_partition_value(value) for value in values])
            for ids, values in entries.partitions
        ],
        "equalityIds": sorted(entries.equality_ids.items()),
    }
    arrays: dict[str, Array] = {"manifest": entries.manifest, "partition": entries.partition}
    for name in SCALARS:
        arrays[name] = _narrow(getattr(entries, name))
    for name in TEXTS:
        text = "\0".join(getattr(entries, name)).encode("utf-8", "surrogatepass")
        arrays[name] = np.frombuffer(text, dtype=np.uint8)
    for field_id, stats in entries.stats.items():
        for name in ("lower", "upper"):
            bounds = getattr(stats, name)
            if bounds is not None:
                arrays[f"{field_id}.{name}.data"] = bounds.data
                arrays[f"{field_id}.{name}.length"] = _narrow(bounds.length)
        for name in ("nulls", "nans", "values", "sizes"):
            counts = getattr(stats, name)
            if counts is not None:
                arrays[f"{field_id}.{name}"] = _narrow(counts)
    return header, arrays


_SMALL_NULL = -(2**31)
_LARGE_NULL = -(2**63)


def _narrow(array: Array) -> Array:
    """Return int64 as int32 if every value fits; the marker of a missing value is converted too."""
    if array.dtype != np.int64 or not len(array):
        return array
    missing = array == _LARGE_NULL
    known = array[~missing] if missing.any() else array
    if len(known) and (known.min() <= _SMALL_NULL or known.max() >= 2**31):
        return array
    return np.where(missing, _SMALL_NULL, array).astype(np.int32)


def _widen(array: Array) -> Array:
    wide = array.astype(np.int64)
    if array.dtype == np.int32:
        wide[array == _SMALL_NULL] = _LARGE_NULL
    return wide


_KEPT_NARROW = {"status", "content", "parquet", "encrypted", "sort_order_id"}


def _unflatten(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Entries:
    count = len(arrays["manifest"])
    scalars = {
        name: arrays[name] if name in _KEPT_NARROW else _widen(arrays[name]) for name in SCALARS
    }
    texts = {name: _split(arrays[name], count) for name in TEXTS}
    stats: dict[int, dict[str, Any]] = {}
    for name, array in arrays.items():
        head, _, rest = name.partition(".")
        if not head.isdecimal():
            continue
        found = stats.setdefault(int(head), {})
        kind, _, part = rest.partition(".")
        if part == "data":
            length = arrays[f"{head}.{kind}.length"].astype(np.int32)
            found[kind] = RawBounds(array, length)
        elif not part:
            found[kind] = _widen(array)
    return Entries(
        manifests=tuple((path, length) for path, length in header["manifests"]),
        manifest=arrays["manifest"],
        partition=arrays["partition"],
        partitions=tuple(
            (tuple(ids), tuple(decode_partition_value(value) for value in values))
            for ids, values in header["partitions"]
        ),
        equality_ids={row: tuple(ids) for row, ids in header["equalityIds"]},
        stats={field_id: FieldStats(**found) for field_id, found in sorted(stats.items())},
        **scalars,
        **texts,
    )


def _split(blob: Array, count: int) -> Array:
    out = np.empty(count, dtype=object)
    if count:
        out[:] = bytes(blob).decode("utf-8", "surrogatepass").split("\0")
    return out
