"""Manifest entries as arrays, independent of the table's current schema and spec.

Decoded once per manifest and cached (`segment`): entries, statistics by field id with bounds as raw
bytes, partition tuples by partition field id. `observe` turns them into a file table of the current
schema, so that after a column is renamed, added, dropped or promoted no manifest is read again.
Format: Apache Iceberg table specification, "Manifests", for versions 1 to 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.catalog.avro import Container, plain_schema
from reconciler.catalog.entries import (
    NULL,
    Array,
    Distinct,
    Entries,
    FieldStats,
    PartitionTuple,
    RawBounds,
)
from reconciler.table.values import BOUND_BYTES, Scalar, encode_wide_decimal, partition_identity

PARTITION_RECORD = 102
FIELD_NAMES = {
    0: "status", 1: "snapshot_id", 3: "sequence_number", 4: "file_sequence_number", 2: "data_file",
    134: "content", 100: "file_path", 101: "file_format", PARTITION_RECORD: "partition",
    103: "record_count", 104: "file_size_in_bytes", 108: "column_sizes", 109: "value_counts",
    110: "null_value_counts", 137: "nan_value_counts", 125: "lower_bounds", 128: "upper_bounds",
    131: "key_metadata", 135: "equality_ids", 140: "sort_order_id", 143: "referenced_data_file",
    144: "content_offset", 145: "content_size_in_bytes",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """The written form of one field of the partition record: its id, Avro type and precision."""

    field_id: int
    precision: int | None


def entry_schema(container: Container) -> str:
    """Return the manifest's schema in the plain form that `decode_together` takes."""
    return plain_schema(container.schema, FIELD_NAMES, PARTITION_RECORD)


def partition_columns(container: Container) -> tuple[PartitionColumn, ...]:
    """Return partition field ids and decimal precisions, which the plain schema does not hold."""
    entry = {item.get("field-id"): item for item in container.schema["fields"]}
    data_file = {item.get("field-id"): item for item in entry[2]["type"]["fields"]}
    declared: dict[str, Any] = {}
    return tuple(
        PartitionColumn(item.get("field-id", 1000 + number), _precision(item["type"], declared))
        for number, item in enumerate(data_file[PARTITION_RECORD]["type"]["fields"])
    )


def _precision(node: Any, declared: dict[str, Any]) -> int | None:
    options = node if isinstance(node, list) else [node]
    for option in options:
        option = declared.get(option, option) if isinstance(option, str) else option
        if isinstance(option, dict):
            if option.get("type") == "fixed":
                declared[option["name"]] = option
            if option.get("logicalType") == "decimal":
                return int(option["precision"])
    return None


def entries_of(
    table: pa.Table,
    manifests: Sequence[tuple[str, int]],
    rows: Sequence[int],
    partition: Sequence[PartitionColumn],
    cap: int = BOUND_BYTES,
) -> Entries:
    """Return the decoded rows of `manifests`, which have rows[i] entries each, as arrays."""
    table = table.combine_chunks()
    file = _struct(table.column("data_file"))
    count = table.num_rows
    partitions, partition_index = _partitions(_child(file, "partition"), partition, count)
    return Entries(
        manifests=tuple(manifests),
        manifest=np.repeat(np.arange(len(rows), dtype=np.int32), rows),
        status=_ints(table, "status", count, 1).astype(np.uint8),
        content=_ints(file, "content", count, 0).astype(np.uint8),
        snapshot_id=_ints(table, "snapshot_id", count, NULL),
        sequence=_ints(table, "sequence_number", count, NULL),
        file_sequence=_ints(table, "file_sequence_number", count, NULL),
        path=_texts(file, "file_path", count),
        parquet=_is_parquet(file),
        encrypted=_present(file, "key_metadata", count),
        records=_ints(file, "record_count", count, 0),
        bytes=_ints(file, "file_size_in_bytes", count, 0),
        sort_order_id=_ints(file, "sort_order_id", count, -1).astype(np.int32),
        partition=partition_index,
        partitions=partitions,
        referenced=_texts(file, "referenced_data_file", count),
        content_offset=_ints(file, "content_offset", count, NULL),
        content_bytes=_ints(file, "content_size_in_bytes", count, NULL),
        equality_ids=_equality_ids(file),
        stats=_stats(file, count, cap),
    )


def _struct(column: Any) -> pa.StructArray:
    return column.chunk(0) if column.num_chunks else pa.array([], type=column.type)


def _child(source: Any, name: str) -> Any:
    """Return a column of a table or struct array as one array, None if there is none of that
    name."""
    if isinstance(source, pa.Table):
        if name not in source.column_names:
            return None
        column = source.column(name)
        return column.chunk(0) if column.num_chunks else pa.array([], type=column.type)
    index = source.type.get_field_index(name)
    return None if index < 0 else source.field(index)


def _ints(source: Any, name: str, count: int, missing: int) -> Array:
    column = _child(source, name)
    if column is None:
        return np.full(count, missing, dtype=np.int64)
    if column.null_count:
        column = pc.fill_null(column.cast(pa.int64()), missing)
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def _texts(source: Any, name: str, count: int) -> Array:
    out = np.empty(count, dtype=object)
    column = _child(source, name)
    out[:] = [""] * count if column is None else pc.fill_null(column, "").to_pylist()
    return out


def _present(source: Any, name: str, count: int) -> Array:
    column = _child(source, name)
    if column is None:
        return np.zeros(count, dtype=bool)
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False))


def _is_parquet(file: Any) -> Array:
    lowered = pc.utf8_lower(_child(file, "file_format"))
    return np.asarray(pc.equal(lowered, "parquet").to_numpy(zero_copy_only=False))


def _equality_ids(file: Any) -> dict[int, tuple[int, ...]]:
    column = _child(file, "equality_ids")
    if column is None or column.null_count == len(column):
        return {}
    return {row: tuple(ids) for row, ids in enumerate(column.to_pylist()) if ids}


def _partitions(
    struct: Any, columns: Sequence[PartitionColumn], count: int
) -> tuple[tuple[PartitionTuple, ...], Array]:
    """Return the distinct partition tuples in order of appearance, and each entry's index into
    them."""
    ids = tuple(column.field_id for column in columns)
    if struct is None:
        return ((ids, (None,) * len(ids)),), np.zeros(count, dtype=np.int32)
    held = [_child(struct, f"p{number}") for number in range(len(columns))]
    values = [
        [None] * count if values is None else _domain(values, column)
        for values, column in zip(held, columns, strict=True)
    ]
    seen: Distinct[tuple[Any, ...]] = Distinct()
    numbers = [seen.number(partition_identity(row), row) for row in zip(*values, strict=True)]
    return tuple((ids, row) for row in seen.items), np.array(numbers, dtype=np.int32)


def _domain(column: Any, kind: PartitionColumn) -> list[Scalar | None]:
    """Return the partition values of one field as domain scalars (table.values)."""
    raw = column.to_pylist()
    if kind.precision is not None:
        convert = int if kind.precision <= 18 else encode_wide_decimal
        return [
            None if value is None else convert(int.from_bytes(value, "big", signed=True))
            for value in raw
        ]
    if pa.types.is_boolean(column.type):
        return [None if value is None else int(value) for value in raw]
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return [None if value is None else value.encode() for value in raw]
    return list(raw)


def _stats(file: Any, count: int, cap: int) -> dict[int, FieldStats]:
    parts: dict[int, dict[str, Any]] = {}
    numbers = {
        "nulls": "null_value_counts", "nans": "nan_value_counts",
        "values": "value_counts", "sizes": "column_sizes",
    }  # fmt: skip
    for attribute, name in numbers.items():
        for field_id, rows, items, child in _by_field(_child(file, name)):
            out = np.full(count, NULL, dtype=np.int64)
            out[rows] = child.to_numpy(zero_copy_only=False)[items]
            parts.setdefault(field_id, {})[attribute] = out
    for attribute, name in (("lower", "lower_bounds"), ("upper", "upper_bounds")):
        for field_id, rows, items, child in _by_field(_child(file, name)):
            bounds = _gather(child, rows, items, count, cap, upper=attribute == "upper")
            parts.setdefault(field_id, {})[attribute] = bounds
    return {field_id: FieldStats(**found) for field_id, found in sorted(parts.items())}


def _by_field(column: Any) -> Iterable[tuple[int, Array, Array, Any]]:
    """Yield, per key of a list of (key, value): entries that have it, positions of the items,
    values.

    Writers may order keys as they like and need not repeat them all in every entry.
    """
    if column is None or len(column) == column.null_count:
        return
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    items = column.flatten()  # skips items of null lists
    keys = items.field(0).to_numpy(zero_copy_only=False)
    values = items.field(1)
    if not len(keys):
        return
    width = int(lengths[0])
    if width and (lengths == width).all() and (keys.reshape(-1, width) == keys[:width]).all():
        rows = np.arange(len(lengths))
        for number in range(width):
            yield int(keys[number]), rows, np.arange(number, len(keys), width), values
        return
    rows = np.repeat(np.arange(len(lengths)), lengths)
    order = np.argsort(keys, kind="stable")
    found, starts = np.unique(keys[order], return_index=True)
    for key, piece in zip(found, np.split(order, starts[1:]), strict=True):
        yield int(key), rows[piece], piece, values


def _gather(
    values: Any, rows: Array, items: Array, count: int, cap: int, *, upper: bool
) -> RawBounds:
    """Return the bounds of one field as a matrix of bytes; wider ones are cut at `cap` and stay
    valid."""
    offsets = np.frombuffer(values.buffers()[1], dtype=np.int32)[values.offset :]
    offsets = offsets[: len(values) + 1]
    start = offsets[items].astype(np.int64)
    size = offsets[items + 1] - offsets[items]
    width = max(1, min(int(size.max()), cap))
    data = np.frombuffer(values.buffers()[2] or b"", dtype=np.uint8)
    padded = np.concatenate((data, np.zeros(width, dtype=np.uint8)))
    windows = np.ndarray((len(data) + 1,), dtype=f"V{width}", buffer=padded, strides=(1,))
    taken = windows[start].view(np.uint8).reshape(-1, width)
    if int(size.min()) < width:
        taken = np.where(np.arange(width) < size[:, None], taken, np.uint8(0))
    size = size.astype(np.int32)
    if upper and int(size.max()) > cap:
        taken, size = _increment(taken, size, cap)
    if len(rows) == count:
        return RawBounds(taken, size)
    matrix = np.zeros((count, width), dtype=np.uint8)
    length = np.full(count, -1, dtype=np.int32)
    matrix[rows], length[rows] = taken, size
    return RawBounds(matrix, length)


def _increment(data: Array, size: Array, cap: int) -> tuple[Array, Array]:
    """Return cut upper bounds as the least byte string above every extension of the cut.

    Trailing 0xFF bytes cannot be incremented and are dropped; all 0xFF means no upper bound.
    """
    data, size = data.copy(), size.copy()
    for row in np.flatnonzero(size > cap):
        kept = bytes(data[row]).rstrip(b"\xff")
        if not kept:
            size[row] = -1
            continue
        above = kept[:-1] + bytes([kept[-1] + 1])
        data[row] = np.frombuffer(above.ljust(data.shape[1], b"\0"), dtype=np.uint8)
    return data, size
