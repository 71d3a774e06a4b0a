"""pyiceberg's own reading of a table's manifests, entry by entry, to compare observations with."""

from __future__ import annotations

from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
from pyiceberg.types import DateType, DoubleType, FloatType, IntegerType, LongType, TimestampType

from reconciler.table.filetable import UNKNOWN, FileTable
from reconciler.table.observation import Observation
from reconciler.table.values import Kind, kind_of
from tests.encoding import encode

DAY_US = 86_400_000_000


def live_entries(table: Any) -> list[Any]:
    """Live data file entries of the current snapshot, in manifest order."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return []
    return [
        entry
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.status != ManifestEntryStatus.DELETED
        and entry.data_file.content == DataFileContent.DATA
    ]


def bound_value(field: Any, raw: bytes) -> Any:
    """A serialized bound as a scalar of the column's present type."""
    kind = field.field_type
    if isinstance(kind, LongType) and len(raw) == 4:
        return encode("long", from_bytes(IntegerType(), raw))
    if isinstance(kind, DoubleType) and len(raw) == 4:
        return encode("double", from_bytes(FloatType(), raw))
    if isinstance(kind, TimestampType) and len(raw) == 4:
        return from_bytes(DateType(), raw) * DAY_US
    value = from_bytes(kind, raw)
    if str(kind) == "uuid" and isinstance(value, bytes):
        return value
    return encode(str(kind), value)


def assert_same(table: Any, seen: Observation) -> None:
    """Every file, count, size, partition value and bound is what pyiceberg reads."""
    files = seen.files
    entries = {entry.data_file.file_path: entry for entry in live_entries(table)}
    assert sorted(files.path.tolist()) == sorted(entries)
    for row, path in enumerate(files.path.tolist()):
        _assert_file(table, files, row, entries[path])


def _assert_file(table: Any, files: FileTable, row: int, entry: Any) -> None:
    data = entry.data_file
    assert files.records[row] == data.record_count
    assert files.bytes[row] == data.file_size_in_bytes
    assert files.sequence[row] == (entry.sequence_number or 0)
    assert files.spec_id[row] == data.spec_id
    snapshot = table.metadata.snapshot_by_id(entry.snapshot_id)
    assert files.added_ms[row] == (snapshot.timestamp_ms if snapshot else UNKNOWN)
    assert files.sort_order_id[row] == (
        UNKNOWN if data.sort_order_id is None else data.sort_order_id
    )
    _assert_partition(table, files, row, data)
    for field_id, field in table.schema()._lazy_id_to_field.items():
        if field_id in files.columns:
            _assert_column(files, row, field_id, field, data)
        elif (data.column_sizes or {}).get(field_id) is not None:
            assert files.column_sizes[field_id][row] == data.column_sizes[field_id]


def _assert_partition(table: Any, files: FileTable, row: int, data: Any) -> None:
    spec_id, values = files.partitions[files.partition[row]]
    spec = table.specs()[spec_id]
    schema = table.schema()
    assert spec_id == data.spec_id
    for number, field in enumerate(spec.fields):
        expected = data.partition[number]
        source = schema._lazy_id_to_field.get(field.source_id)
        if expected is not None and source is not None:
            result = field.transform.result_type(source.field_type)
            expected = expected if isinstance(expected, int) else encode(str(result), expected)
        if source is not None:
            assert values[number] == expected


def _assert_column(files: FileTable, row: int, field_id: int, field: Any, data: Any) -> None:
    column = files.columns[field_id]
    assert column.kind == kind_of(str(field.field_type))
    for name, counts in (
        ("nulls", data.null_value_counts),
        ("nans", data.nan_value_counts),
        ("values", data.value_counts),
        ("sizes", data.column_sizes),
    ):
        assert getattr(column, name)[row] == (counts or {}).get(field_id, UNKNOWN), name
    for side, bounds in (("lower", data.lower_bounds), ("upper", data.upper_bounds)):
        raw = (bounds or {}).get(field_id)
        has = getattr(column, f"has_{side}")[row]
        assert has == (raw is not None), (side, field.name)
        if raw is None:
            continue
        found = getattr(column, side)[row]
        expected = bound_value(field, raw)
        if column.kind is Kind.BYTES and len(raw) <= 64:
            raised = side == "upper" and expected.endswith(b"\0")
            raised &= str(field.field_type) in ("string", "binary")
            expected = expected + b"\x01" if raised else expected.rstrip(b"\0")
            assert bytes(found) == expected, field.name
        elif column.kind is not Kind.BYTES:
            assert found == expected, field.name
