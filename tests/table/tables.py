"""File tables made from rows, for laws about layout: write rows as files, look at their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reconciler.table.filetable import ColumnBounds, FileTable, Int64
from reconciler.table.overlap_depth import Depth, depth_of, value_ranges
from reconciler.table.schema import Field, PartitionField, PartitionSpec, Schema
from reconciler.table.values import Kind

ROW_BYTES = 100
PREFIX = 4
"""Byte strings are truncated to so many bytes in bounds."""


@dataclass(frozen=True)
class File:
    """rows: tuples of key values, None for NULL. ours: written by a rewrite of ours."""

    rows: tuple[tuple[Any, ...], ...]
    partition: int = 0
    ours: bool = False

    @property
    def bytes(self) -> int:
        return len(self.rows) * ROW_BYTES


def table_of(files: Sequence[File], types: Sequence[str], *, bounds: bool = True) -> FileTable:
    """Bounds as a Parquet writer gives them; partition is an identity column of its own."""
    fields = tuple(Field(i + 1, f"k{i + 1}", kind) for i, kind in enumerate(types))
    count = len(files)
    zeros = np.zeros(count, dtype=np.int64)
    off = np.zeros(count, dtype=np.bool_)
    numbers = sorted({f.partition for f in files})
    columns = {
        f.field_id: _bounds(f, [[row[i] for row in file.rows] for file in files])
        for i, f in enumerate(fields)
    }
    return FileTable(
        schema=Schema(0, (*fields, Field(99, "p", "int"))),
        specs={1: PartitionSpec(1, (PartitionField(99, 1000, "identity", "p"),))},
        default_spec_id=1,
        path=np.array([f"f{i}" for i in range(count)], dtype=object),
        spec_id=np.ones(count, dtype=np.int32),
        partition=np.array([numbers.index(f.partition) for f in files], dtype=np.int32),
        partitions=tuple((1, (number,)) for number in numbers),
        records=np.array([len(f.rows) for f in files], dtype=np.int64),
        bytes=np.array([f.bytes for f in files], dtype=np.int64),
        sequence=zeros,
        added_ms=zeros,
        layout_written=np.array([f.ours for f in files], dtype=np.bool_),
        sort_order_id=zeros,
        parquet=~off,
        encrypted=off,
        position_deleted=zeros,
        delete_files=zeros,
        delete_bytes=zeros,
        equality_deletes=zeros,
        newest_delete=zeros - 1,
        columns=columns if bounds else {},
    )


def _bounds(field: Field, cells: list[list[Any]]) -> ColumnBounds:
    kind = field.kind
    assert kind is not None
    lows, highs, cut = [], [], []
    for values in cells:
        present = [v for v in values if v is not None]
        low, high = (min(present), max(present)) if present else (None, None)
        was_cut = False
        if kind is Kind.BYTES and present:
            was_cut = len(low) > PREFIX or len(high) > PREFIX
            low, high = low[:PREFIX], _raised(high)
        lows.append(low)
        highs.append(high)
        cut.append(was_cut)
    has = np.array([low is not None for low in lows], dtype=np.bool_)
    dtype: Any = {Kind.INT: np.int64, Kind.FLOAT: np.float64, Kind.BYTES: np.bytes_}[kind]
    zero: Any = b"" if kind is Kind.BYTES else 0
    counts = np.array([len(values) for values in cells], dtype=np.int64)
    return ColumnBounds(
        field.field_id,
        kind,
        np.array([zero if v is None else v for v in lows], dtype=dtype),
        np.array([zero if v is None else v for v in highs], dtype=dtype),
        has,
        has,
        np.array([sum(v is None for v in values) for values in cells], dtype=np.int64),
        np.full(len(cells), -1, dtype=np.int64),
        counts,
        counts * 8,
        np.array(cut, dtype=np.bool_),
    )


def _raised(high: bytes) -> bytes:
    """A truncated upper bound: the prefix with its last byte incremented."""
    if len(high) <= PREFIX:
        return high
    return high[: PREFIX - 1] + bytes([high[PREFIX - 1] + 1])


def single_column(bounds: Sequence[tuple[int, int]], rows: int = 10) -> FileTable:
    """Files of equal size whose one column has the given bounds."""
    files = [File(tuple((v,) for v in np.linspace(a, b, rows).astype(int))) for a, b in bounds]
    return table_of(files, ("long",))


def column_depth(column: ColumnBounds, rows: Int64) -> Depth:
    """Return the depth over the files with bounds. rows: the weights, int64[files]."""
    ranges = value_ranges(column)
    return depth_of(ranges, ranges.known, rows)
