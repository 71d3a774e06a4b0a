"""Builds the file table of the current schema from decoded manifest entries.

Statistics are matched by field id. The length of a bound decides how it is decoded, so that files
written before a promotion (int to long, float to double, a wider decimal, date to timestamp) keep
their zone maps. Format: Apache Iceberg table specification, appendix D, "Binary single-value
serialization", and "Schema evolution".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reconciler.catalog.entries import (
    NULL,
    Distinct,
    Entries,
    FieldStats,
    PartitionTuple,
    RawBounds,
    select,
)
from reconciler.table.filetable import (
    UNKNOWN,
    ColumnBounds,
    FileTable,
    Partition,
    beyond_trailing_nul,
)
from reconciler.table.metrics_modes import DEFAULT_TRUNCATION, truncation_of
from reconciler.table.observation import SnapshotInfo
from reconciler.table.schema import Field, PartitionField, PartitionSpec, Schema
from reconciler.table.times import DAY_US
from reconciler.table.values import BOUND_BYTES, Kind, encode_wide_decimal, partition_identity

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class FileTableParts:
    """What a file table needs beside its manifests; the table's metadata holds it."""

    schema: Schema
    """The schema that columns are read by."""
    specs: Mapping[int, PartitionSpec]
    """The partition specs by id."""
    default_spec_id: int
    """Id of the spec that writers use."""
    properties: Mapping[str, str]
    """The table's properties."""
    snapshots: Sequence[SnapshotInfo]
    """The snapshots that the metadata retains."""
    manifests: Mapping[str, tuple[int, int, int]]
    """The spec id, sequence number and snapshot id that the entries of a manifest inherit, by its
    path."""


@dataclass(frozen=True)
class DeleteFiles:
    """Live delete files. Arrays have shape [delete files]."""

    entries: Entries
    """The delete files' manifest entries."""
    spec_id: Array
    """Partition spec of each delete file."""
    sequence: Array
    """Data sequence number of each delete file."""
    snapshot: Array
    """Id of the snapshot that added each delete file."""
    partition: tuple[Partition, ...]
    """Partition values of each delete file."""


def assemble(parts: FileTableParts, entries: Entries | None) -> tuple[FileTable, DeleteFiles]:
    """Return the live data files as a file table without delete load, and the live delete files."""
    if entries is None:
        entries = no_entries()
    live = entries.status != 2
    data_rows = np.flatnonzero(live & (entries.content == 0))
    data = entries if len(data_rows) == len(entries) else select(entries, data_rows)
    deletes = select(entries, np.flatnonzero(live & (entries.content != 0)))
    return _file_table(parts, data), _delete_files(parts, deletes)


def no_entries() -> Entries:
    """Return the entries of a table without manifests."""
    longs, flags = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool)
    small, texts = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=object)
    return Entries(
        manifests=(), manifest=small, status=small, content=small, snapshot_id=longs,
        sequence=longs, file_sequence=longs, path=texts, parquet=flags, encrypted=flags,
        records=longs, bytes=longs,
        sort_order_id=small, partition=small, partitions=(), referenced=texts,
        content_offset=longs, content_bytes=longs,
    )  # fmt: skip


def _inherited(parts: FileTableParts, entries: Entries) -> tuple[Array, Array, Array]:
    """Return (spec id, data sequence number, snapshot id) per entry.

    A missing sequence number or snapshot id is the manifest's ("Sequence number inheritance");
    manifests of version 1 have sequence number 0.
    """
    infos = np.array(
        [parts.manifests[path] for path, _ in entries.manifests], dtype=np.int64
    ).reshape(-1, 3)[entries.manifest]
    sequence = np.where(entries.sequence == NULL, infos[:, 1], entries.sequence)
    snapshot = np.where(entries.snapshot_id == NULL, infos[:, 2], entries.snapshot_id)
    return infos[:, 0].astype(np.int32), sequence, snapshot


def _file_sequence(parts: FileTableParts, entries: Entries) -> Array:
    """Return the sequence number of the commit that added each file: the manifest's where an entry
    has none, which is not before that commit."""
    of_manifest = np.array([parts.manifests[path][1] for path, _ in entries.manifests] or [0])
    own = entries.file_sequence
    return np.where(own == NULL, of_manifest[entries.manifest], own).astype(np.int64)


def _file_table(parts: FileTableParts, entries: Entries) -> FileTable:
    count = len(entries)
    spec_id, sequence, snapshot = _inherited(parts, entries)
    added_ms, ours = _added(parts.snapshots, snapshot)
    partition, partitions = number_partitions(parts, entries, spec_id)
    return FileTable(
        schema=parts.schema,
        specs=parts.specs,
        default_spec_id=parts.default_spec_id,
        path=entries.path,
        spec_id=spec_id,
        partition=partition,
        partitions=partitions,
        records=entries.records,
        bytes=entries.bytes,
        sequence=sequence,
        added_ms=added_ms,
        layout_written=ours,
        sort_order_id=entries.sort_order_id,
        parquet=entries.parquet,
        encrypted=entries.encrypted,
        position_deleted=np.zeros(count, dtype=np.int64),
        delete_files=np.zeros(count, dtype=np.int64),
        delete_bytes=np.zeros(count, dtype=np.int64),
        equality_deletes=np.zeros(count, dtype=np.int64),
        newest_delete=np.full(count, UNKNOWN, dtype=np.int64),
        columns=_columns(parts, entries),
        column_sizes={
            field.field_id: _counts(entries.stats[field.field_id].sizes, count)
            for field in parts.schema.fields
            if field.field_id in entries.stats and entries.stats[field.field_id].sizes is not None
        },
        snapshot_id=snapshot.astype(np.int64),
        file_sequence=_file_sequence(parts, entries),
    )


def _added(snapshots: Sequence[SnapshotInfo], snapshot: Array) -> tuple[Array, Array]:
    """Return the commit time of each file's snapshot (UNKNOWN once expired), and whether it was
    ours."""
    known = {item.snapshot_id: item for item in snapshots}
    ids, inverse = np.unique(snapshot, return_inverse=True)
    found = [known.get(int(number)) for number in ids]
    times = np.array([item.timestamp_ms if item else UNKNOWN for item in found], dtype=np.int64)
    ours = np.array([bool(item and item.ours) for item in found], dtype=bool)
    return times[inverse], ours[inverse]


def number_partitions(
    parts: FileTableParts, entries: Entries, spec_id: Array
) -> tuple[Array, tuple[tuple[int, Partition], ...]]:
    """Return each entry's index into the distinct (spec id, values in the order of the spec's
    fields)."""
    if not len(entries):
        return np.zeros(0, dtype=np.int32), ()
    span = len(entries.partitions)
    pairs, inverse = np.unique(spec_id.astype(np.int64) * span + entries.partition,
                               return_inverse=True)  # fmt: skip
    seen: Distinct[tuple[int, Partition]] = Distinct()
    renumbered = []
    for pair in pairs.tolist():
        spec, number = divmod(pair, span)
        values = partition_values(parts.specs[spec], entries.partitions[number], parts.schema)
        renumbered.append(seen.number((spec, partition_identity(values)), (spec, values)))
    return np.array(renumbered, dtype=np.int32)[inverse], tuple(seen.items)


def partition_values(spec: PartitionSpec, raw: PartitionTuple, schema: Schema) -> Partition:
    """Return a manifest's partition tuple in the order of the spec's fields, None where it has no
    value.

    Values are in the domain of their column's present type, also those of a manifest that was
    written before a decimal was widened: one partition has one identity.
    """
    values = dict(zip(*raw, strict=True))
    return tuple(
        encode_wide_decimal(value) if isinstance(value, int) and _is_wide(field, schema) else value
        for field, value in ((field, values.get(field.field_id)) for field in spec.fields)
    )


def _is_wide(field: PartitionField, schema: Schema) -> bool:
    """Whether the values of a partition field are decimals of more than 18 digits."""
    column = schema.by_id.get(field.source_id)
    if column is None or column.kind is not Kind.BYTES or not column.type.startswith("decimal"):
        return False
    return field.transform == "identity" or field.transform.startswith("truncate")


def _delete_files(parts: FileTableParts, entries: Entries) -> DeleteFiles:
    spec_id, sequence, snapshot = _inherited(parts, entries)
    index, partitions = number_partitions(parts, entries, spec_id)
    partition = tuple(partitions[int(number)][1] for number in index)
    return DeleteFiles(entries, spec_id, sequence, snapshot, partition)


def _columns(parts: FileTableParts, entries: Entries) -> dict[int, ColumnBounds]:
    columns: dict[int, ColumnBounds] = {}
    for field in parts.schema.fields:
        if field.kind is None:
            continue
        stats = entries.stats.get(field.field_id, FieldStats())
        truncation = truncation_of(parts.properties, field)
        columns[field.field_id] = column_bounds(field, stats, len(entries), truncation)
    return columns


def column_bounds(field: Field, stats: FieldStats, count: int, truncation: int) -> ColumnBounds:
    """Return the zone map of one column, with bounds in the column's domain (table.values)."""
    kind = field.kind
    assert kind is not None
    lower, has_lower = _decode(field.type, kind, stats.lower, count)
    upper, has_upper = _decode(field.type, kind, stats.upper, count)
    if field.type in ("string", "binary") and stats.upper is not None:
        kept = np.minimum(stats.upper.length, stats.upper.data.shape[1])
        upper = beyond_trailing_nul(upper, kept.astype(np.int64))
    if field.type == "uuid":  # Java compares UUIDs as signed: these bounds enclose no value
        has_lower = has_upper = has_lower & has_upper & (lower <= upper)
    return ColumnBounds(
        field_id=field.field_id,
        kind=kind,
        lower=lower,
        upper=upper,
        has_lower=has_lower,
        has_upper=has_upper,
        nulls=_counts(stats.nulls, count),
        nans=_counts(stats.nans, count),
        values=_counts(stats.values, count),
        sizes=_counts(stats.sizes, count),
        truncated=_truncated(field.type, stats, count, truncation),
    )


def _counts(raw: Array | None, count: int) -> Array:
    if raw is None:
        return np.full(count, UNKNOWN, dtype=np.int64)
    return np.where(raw == NULL, UNKNOWN, raw)


def _decode(
    iceberg_type: str, kind: Kind, raw: RawBounds | None, count: int
) -> tuple[Array, Array]:
    """Return bounds as (values in the domain, whether each is usable)."""
    if kind is Kind.INT:
        return _decode_int(iceberg_type, raw, count)
    if kind is Kind.FLOAT:
        return _decode_float(raw, count)
    if raw is None:
        return np.zeros(count, dtype="S1"), np.zeros(count, dtype=bool)
    if iceberg_type.startswith("decimal"):
        return _decode_wide_decimal(raw)
    present = raw.length >= 0
    width = raw.data.shape[1]
    return np.ascontiguousarray(raw.data).view(f"S{width}").ravel(), present


def _decode_int(iceberg_type: str, raw: RawBounds | None, count: int) -> tuple[Array, Array]:
    if raw is None:
        return np.zeros(count, dtype=np.int64), np.zeros(count, dtype=bool)
    if iceberg_type.startswith("decimal"):
        return _signed(raw, 8).view(">i8").ravel().astype(np.int64), raw.length > 0
    if iceberg_type == "boolean":
        return (raw.data[:, 0] != 0).astype(np.int64), raw.length >= 1
    data = _at_least(raw.data, 8)
    four = np.ascontiguousarray(data[:, :4]).view("<i4").ravel().astype(np.int64)
    if not (raw.length > 4).any():
        values = four
    else:
        eight = np.ascontiguousarray(data[:, :8]).view("<i8").ravel()
        values = np.where(raw.length == 4, four, eight)
    if iceberg_type.startswith("timestamp"):  # a column that was a date: convert days to its unit
        unit = DAY_US * (1000 if iceberg_type.startswith("timestamp") and "_ns" in iceberg_type
                         else 1)  # fmt: skip
        values = np.where(raw.length == 4, four * unit, values)
    return values, (raw.length == 4) | (raw.length == 8)


def _decode_float(raw: RawBounds | None, count: int) -> tuple[Array, Array]:
    """Decode float bounds; writers that predate NaN counts could write NaN as a bound, which is
    ignored."""
    if raw is None:
        return np.zeros(count, dtype=np.float64), np.zeros(count, dtype=bool)
    data = _at_least(raw.data, 8)
    four = np.ascontiguousarray(data[:, :4]).view("<f4").ravel()
    eight = np.ascontiguousarray(data[:, :8]).view("<f8").ravel()
    with np.errstate(invalid="ignore"):
        values = np.where(raw.length == 4, four.astype(np.float64), eight)
    present = ((raw.length == 4) | (raw.length == 8)) & ~np.isnan(values)
    return np.where(present, values, 0.0), present


def _decode_wide_decimal(raw: RawBounds) -> tuple[Array, Array]:
    """Apply table.values.encode_wide_decimal to a whole column: flip the sign bit of 17 bytes."""
    wide = _signed(raw, 17)
    wide[:, 0] ^= 0x80
    return wide.view("S17").ravel(), raw.length > 0


def _signed(raw: RawBounds, width: int) -> Array:
    """Return big-endian two's complement of any length as `width` bytes, sign-extended on the
    left."""
    length = np.maximum(raw.length, 0)
    source = np.arange(width) - width + length[:, None]  # position in the bound, < 0: sign
    inside = (source >= 0) & (source < raw.data.shape[1])
    clipped = np.clip(source, 0, raw.data.shape[1] - 1)
    taken = np.take_along_axis(raw.data, clipped, axis=1)
    sign = np.where(raw.data[:, :1] & 0x80, np.uint8(0xFF), np.uint8(0))
    return np.ascontiguousarray(np.where(inside, taken, sign))


def _at_least(data: Array, width: int) -> Array:
    if data.shape[1] >= width:
        return data
    return np.pad(data, ((0, 0), (0, width - data.shape[1])))


def _truncated(iceberg_type: str, stats: FieldStats, count: int, truncation: int) -> Array:
    """Return which bounds may not occur as values: cut to the metrics mode's length, or by us.

    A value of exactly that length cannot be distinguished from a cut one, so it counts as cut;
    equal lower and upper bounds are exact, since a cut upper bound is incremented.
    """
    cuttable = iceberg_type in ("string", "binary") or iceberg_type.startswith("fixed")
    if not cuttable or stats.lower is None or stats.upper is None:
        return np.zeros(count, dtype=bool)
    cut = np.zeros(count, dtype=bool)
    for bounds in (stats.lower, stats.upper):
        characters = _characters(bounds) if iceberg_type == "string" else bounds.length
        cut |= (characters == truncation) | (characters == DEFAULT_TRUNCATION)
        cut |= bounds.length > BOUND_BYTES
    rows = np.flatnonzero(cut)
    width = max(stats.lower.data.shape[1], stats.upper.data.shape[1])
    lower, upper = (_at_least(b.data[rows], width) for b in (stats.lower, stats.upper))
    same_length = stats.lower.length[rows] == stats.upper.length[rows]
    exact = (lower == upper).all(axis=1) & same_length & (stats.lower.length[rows] <= BOUND_BYTES)
    cut[rows[exact]] = False
    return cut


def _characters(bounds: RawBounds) -> Array:
    """Return the number of code points of UTF-8 bounds, of the bytes that are kept."""
    if not len(bounds.data) or int(bounds.data.max()) < 0x80:
        return bounds.length
    continuation = (bounds.data & 0xC0) == 0x80
    return np.asarray(np.minimum(bounds.length, BOUND_BYTES) - continuation.sum(axis=1))
