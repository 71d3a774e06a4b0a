"""What queries read of files as they were written: by footers, pruned by their bounds alone.

Shares nothing with the simulation: bounds, sizes of column chunks and footers come from the files,
and a row group is read if every range of a query meets its bounds. One price list holds for all
layouts: that of a plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from bench.recommend_grid.kinds import EPOCH, Query

OPEN, GROUP, CHUNK = float(1 << 20), float(1 << 13), float(1 << 11)
"""Bytes of reading that an opened file, a row group and each of its column chunks cost."""

Bounds = Mapping[str, tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Pieces:
    """Row groups as they are stored. owner: the file of each; bounds: of filtered columns; sizes:
    bytes of each column; footers: bytes of each file's."""

    owner: np.ndarray
    bounds: Bounds
    sizes: Mapping[str, np.ndarray]
    footers: np.ndarray
    bytes: int


@dataclass(frozen=True, slots=True)
class Found:
    """Of all recorded queries: bytes of column chunks, files opened, and the cost of reading."""

    read: float
    opened: float
    cost: float
    files: int
    groups: int
    bytes: int


def pieces_of(paths: Iterable[Path], columns: Sequence[str]) -> Pieces:
    """Return the row groups of files, by their footers."""
    owner, footers, size = [], [], 0
    lows: dict[str, list[Any]] = {name: [] for name in columns}
    highs: dict[str, list[Any]] = {name: [] for name in columns}
    sizes: dict[str, list[int]] = {}
    for number, path in enumerate(paths):
        footer = pq.read_metadata(path)
        footers.append(footer.serialized_size)
        size += path.stat().st_size
        for group in range(footer.num_row_groups):
            owner.append(number)
            row_group = footer.row_group(group)
            for place in range(row_group.num_columns):
                chunk = row_group.column(place)
                name = chunk.path_in_schema
                sizes.setdefault(name, []).append(chunk.total_compressed_size)
                if name in lows:
                    lows[name].append(_number(chunk.statistics.min))
                    highs[name].append(_number(chunk.statistics.max))
    return Pieces(
        np.array(owner),
        {name: (np.array(lows[name]), np.array(highs[name])) for name in columns},
        {name: np.array(known, dtype=np.float64) for name, known in sizes.items()},
        np.array(footers, dtype=np.float64), size,
    )  # fmt: skip


def _number(value: Any) -> Any:
    if hasattr(value, "hour"):
        return int((value - EPOCH).total_seconds() * 1e6)
    return (value - EPOCH.date()).days if hasattr(value, "toordinal") else value


def priced(
    pieces: Pieces, queries: Sequence[Query], buckets: Mapping[str, Any] | None = None
) -> Found:
    """Return what the queries read. buckets: by column, (bucket of a value, bucket of each file):
    by which queries for single values are pruned as well."""
    files = len(pieces.footers)
    begins = np.searchsorted(pieces.owner, np.arange(files))
    read = opened = cost = 0.0
    whole = {
        name: (np.minimum.reduceat(low, begins), np.maximum.reduceat(high, begins))
        if low.dtype.kind != "U"
        else _of_texts(low, high, begins)
        for name, (low, high) in pieces.bounds.items()
    }
    for query in queries:
        of_files = _alive(whole, query, files)
        for name, (bucket_of, of_file) in (buckets or {}).items():
            low, high = query.ranges.get(name, (0, 1))
            if low == high:
                of_files &= of_file == bucket_of(low)
        alive = _alive(pieces.bounds, query, len(pieces.owner)) & of_files[pieces.owner]
        columns = dict.fromkeys((*query.reads, *query.ranges))
        size = sum(float(pieces.sizes[name][alive].sum()) for name in columns)
        files_read = float(of_files.sum())
        read += size
        opened += files_read
        cost += size + OPEN * files_read + float(pieces.footers[of_files].sum())
        cost += float(alive.sum()) * (GROUP + CHUNK * len(columns))
    return Found(read, opened, cost, files, len(pieces.owner), pieces.bytes)


def _of_texts(low: np.ndarray, high: np.ndarray, begins: np.ndarray) -> tuple[Any, Any]:
    ends = [*begins[1:].tolist(), len(low)]
    spans = list(zip(begins.tolist(), ends, strict=True))
    return np.array([min(low[a:b]) for a, b in spans]), np.array([max(high[a:b]) for a, b in spans])


def _alive(bounds: Bounds, query: Query, count: int) -> np.ndarray:
    alive = np.ones(count, dtype=bool)
    for name, (first, last) in query.ranges.items():
        low, high = bounds[name]
        alive &= (low <= last) & (high >= first)
    return alive
