"""What must hold of a table's metadata, as pyiceberg reads it, before and after each action."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyiceberg import types as t
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import ManifestEntryStatus

from reconciler.table.audits import AUDIT
from tests.engines.random_tables.reader import Entry, Found
from tests.engines.random_tables.tables import RandomTable
from tests.engines.random_tables.values import internal
from tests.engines.random_tables.writer import DATA, EQUALITY, POSITIONS, local


@dataclass
class Picture:
    """A table at one time."""

    metadata: Any
    rows: Mapping[str, Counter[Found]]
    """Of each branch and tag, under the current schema."""
    entries: Mapping[int, list[Entry]]
    """Live entries of each snapshot."""

    @property
    def refs(self) -> dict[str, int]:
        return {name: one.snapshot_id for name, one in self.metadata.refs.items()}


def picture(drawn: RandomTable) -> Picture:
    """Read everything, and check what must hold of any table."""
    table = drawn.table.refresh()
    rows = {
        name: drawn.reader.rows(table, one.snapshot_id) for name, one in table.metadata.refs.items()
    }
    entries = {
        one.snapshot_id: drawn.reader.entries(table, one.snapshot_id)
        for one in table.metadata.snapshots
    }
    for snapshot in table.metadata.snapshots:
        _check_files(drawn, snapshot, entries[snapshot.snapshot_id])
    known = set(entries)
    assert {one.snapshot_id for one in table.metadata.snapshot_log} <= known
    assert {one.snapshot_id for one in table.metadata.refs.values()} <= known
    for name, one in table.metadata.refs.items():
        assert rows[name] == drawn.expected(one.snapshot_id), (
            name, (rows[name] - drawn.expected(one.snapshot_id)).most_common(2),
            (drawn.expected(one.snapshot_id) - rows[name]).most_common(2),
        )  # fmt: skip
    return Picture(table.metadata, rows, entries)


def _last(metadata: Any) -> int:
    return int(getattr(metadata, "last_sequence_number", None) or 0)


def _check_files(drawn: RandomTable, snapshot: Any, entries: list[Entry]) -> None:
    """Whatever the snapshot names is there, and is as it says."""
    table = drawn.table
    assert Path(local(snapshot.manifest_list)).exists()
    for one in drawn.reader.manifests(table, snapshot):
        assert Path(local(one.manifest_path)).stat().st_size == one.manifest_length
        _check_manifest(drawn, one)
    paths = Counter(one.path for one in entries)
    assert max(paths.values(), default=1) == 1, paths.most_common(3)
    for entry in entries:
        found = Path(local(entry.path))
        assert found.stat().st_size == entry.file.file_size_in_bytes
        assert entry.sequence <= _last(table.metadata)


def _check_manifest(drawn: RandomTable, one: Any) -> None:
    table, entries = drawn.table, drawn.reader.entries_of(drawn.table, one)
    for status, files, rows in (
        (ManifestEntryStatus.ADDED, one.added_files_count, one.added_rows_count),
        (ManifestEntryStatus.EXISTING, one.existing_files_count, one.existing_rows_count),
        (ManifestEntryStatus.DELETED, one.deleted_files_count, one.deleted_rows_count),
    ):
        some = [entry for entry in entries if entry.status == status]
        assert (files, rows) == (len(some), sum(each.data_file.record_count for each in some))
    live = [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
    least = min((entry.sequence_number or 0 for entry in live), default=None)
    if least is not None and table.metadata.format_version > 1:
        assert (one.min_sequence_number or 0) <= least
    kinds = table.metadata.specs()[one.partition_spec_id].fields
    if not kinds or one.partitions is None:
        return
    for n, (_, summary) in enumerate(zip(kinds, one.partitions, strict=True)):
        values = [entry.data_file.partition[n] for entry in entries]
        assert summary.contains_null or None not in values


# What a snapshot of ours did


def check_commit(drawn: RandomTable, snapshot: Any, before: Picture, after: Picture) -> None:
    """Compare a snapshot of ours with its parent, and its summary and entries with what it did."""
    entries = after.entries[snapshot.snapshot_id]
    old = {one.path: one for one in before.entries.get(snapshot.parent_snapshot_id or 0, [])}
    if snapshot.parent_snapshot_id not in before.entries:
        old = {one.path: one for one in after.entries.get(snapshot.parent_snapshot_id, [])}
    new = {one.path: one for one in entries}
    for path in old.keys() & new.keys():
        assert _kept(old[path]) == _kept(new[path]), path
    removed, added = old.keys() - new.keys(), new.keys() - old.keys()
    _check_summary(snapshot, [old[one] for one in removed], [new[one] for one in added])
    parent = drawn.table.snapshot_by_id(snapshot.parent_snapshot_id)
    begins = AUDIT in snapshot.summary.additional_properties  # of a new branch, as Java's do at 0
    if parent is not None and not begins and _totals_hold(parent, list(old.values())):
        assert _totals_hold(snapshot, entries), snapshot.summary
    _check_removed(drawn, snapshot, {one: old[one] for one in removed})
    for path in added:
        assert new[path].status == int(ManifestEntryStatus.ADDED)
        assert new[path].snapshot == snapshot.snapshot_id
        assert new[path].file_sequence == (snapshot.sequence_number or 0)
        assert new[path].sequence <= (snapshot.sequence_number or 0)
        if int(new[path].file.content) == DATA:
            _check_data_file(drawn, new[path])


def _kept(one: Entry) -> Any:
    file = one.file
    return (
        one.snapshot, one.sequence, one.file_sequence, one.place, int(file.content),
        file.record_count, file.file_size_in_bytes, file.value_counts or {},
        file.null_value_counts or {}, file.lower_bounds or {}, file.upper_bounds or {},
        file.column_sizes or {}, file.nan_value_counts or {}, file.equality_ids or [],
        file.split_offsets or [], file.sort_order_id or 0, file.key_metadata,
    )  # fmt: skip


def _check_summary(snapshot: Any, removed: list[Entry], added: list[Entry]) -> None:
    said, count, rows = snapshot.summary.additional_properties, _count, _rows

    def size(some: list[Entry]) -> int:
        return sum(one.file.file_size_in_bytes for one in some)

    expected = {
        "added-data-files": count(added, DATA), "deleted-data-files": count(removed, DATA),
        "added-records": rows(added, DATA), "deleted-records": rows(removed, DATA),
        "added-delete-files": count(added, POSITIONS, EQUALITY),
        "removed-delete-files": count(removed, POSITIONS, EQUALITY),
        "added-position-delete-files": count(added, POSITIONS),
        "removed-position-delete-files": count(removed, POSITIONS),
        "added-equality-delete-files": count(added, EQUALITY),
        "removed-equality-delete-files": count(removed, EQUALITY),
        "added-position-deletes": rows(added, POSITIONS),
        "removed-position-deletes": rows(removed, POSITIONS),
        "added-equality-deletes": rows(added, EQUALITY),
        "removed-equality-deletes": rows(removed, EQUALITY),
        "added-files-size": size(added), "removed-files-size": size(removed),
    }  # fmt: skip
    for key, value in expected.items():
        assert int(said.get(key, 0)) == value, (key, value, said)


def _totals_hold(snapshot: Any, entries: list[Entry]) -> bool:
    """Whether the totals of a summary are true, as far as it has them: other writers may begin to
    count in the middle."""
    said = snapshot.summary.additional_properties
    totals = {
        "total-data-files": _count(entries, DATA), "total-records": _rows(entries, DATA),
        "total-delete-files": _count(entries, POSITIONS, EQUALITY),
        "total-files-size": sum(one.file.file_size_in_bytes for one in entries),
        "total-position-deletes": _rows(entries, POSITIONS),
        "total-equality-deletes": _rows(entries, EQUALITY),
    }  # fmt: skip
    return all(int(said.get(key, value)) == value for key, value in totals.items())


def _count(some: list[Entry], *contents: int) -> int:
    return sum(int(one.file.content) in contents for one in some)


def _rows(some: list[Entry], *contents: int) -> int:
    return sum(one.file.record_count for one in some if int(one.file.content) in contents)


def _check_removed(drawn: RandomTable, snapshot: Any, removed: Mapping[str, Entry]) -> None:
    """A removed file stays as a DELETED entry with its own sequence numbers."""
    table, found = drawn.table, {}
    for manifest in drawn.reader.manifests(table, snapshot):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for one in drawn.reader.entries_of(table, manifest):
            if one.status == ManifestEntryStatus.DELETED:
                assert one.snapshot_id == snapshot.snapshot_id
                found[one.data_file.file_path] = one
    assert found.keys() == removed.keys(), set(found) ^ set(removed)
    for path, one in found.items():
        was = removed[path]
        assert (one.sequence_number or 0, one.file_sequence_number or 0) == (
            was.sequence, was.file_sequence,
        )  # fmt: skip


def _check_data_file(drawn: RandomTable, entry: Entry) -> None:
    """A written file has the rows, partition and statistics that its entry says."""
    table, schema = drawn.table, drawn.table.schema()
    rows = drawn.reader.rows_of(table, entry.path)
    file = entry.file
    assert file.record_count == len(rows) > 0
    spec = table.metadata.specs()[entry.spec]
    stated = [file.partition[n] for n in range(len(spec.fields))]
    for one, value in zip(spec.fields, stated, strict=True):
        if str(one.transform) == "void":
            continue
        kind = schema.find_type(one.source_id)
        made = one.transform.transform(kind)
        for row in rows:
            own = internal(row.get(one.source_id))
            assert repr(None if own is None else made(own)) == repr(value), (one, own, value)
    groups = pq.read_metadata(local(entry.path)).num_row_groups
    assert not file.split_offsets or len(file.split_offsets) == groups
    for column in schema.fields:
        if isinstance(column.field_type, t.PrimitiveType):
            _check_column(column, file, [row.get(column.field_id) for row in rows])


def _check_column(column: t.NestedField, file: Any, values: list[Any]) -> None:
    key, kind = column.field_id, column.field_type
    if key in (file.value_counts or {}):
        assert file.value_counts[key] == len(values)
    if key in (file.null_value_counts or {}):
        assert file.null_value_counts[key] == values.count(None)
    known = [internal(one) for one in values if one is not None]
    if isinstance(kind, t.UUIDType):
        known = [one.bytes if hasattr(one, "bytes") else one for one in known]
    if isinstance(kind, t.FloatType | t.DoubleType):
        nans = sum(one != one for one in known)
        if key in (file.nan_value_counts or {}):
            assert file.nan_value_counts[key] == nans
        known = [one for one in known if one == one]
    for bounds, holds in ((file.lower_bounds, _at_least), (file.upper_bounds, _at_most)):
        if key in (bounds or {}):
            bound = from_bytes(kind, bounds[key])
            if isinstance(kind, t.UUIDType):
                bound = bytes(bounds[key])
            assert all(holds(one, bound) for one in known), (column, bound)


def _at_least(value: Any, bound: Any) -> bool:
    return bool(value >= bound)


def _at_most(value: Any, bound: Any) -> bool:
    return bool(value <= bound)


def untouched(before: Picture, after: Picture, but: Collection[str] = ()) -> None:
    """Assert that branches, tags and history are those of before, main's head apart. but: names of
    more that may differ."""
    may = {"main", *but}
    others = {name: one for name, one in before.refs.items() if name not in may}
    assert {name: one for name, one in after.refs.items() if name not in may} == others
    was, now = before.metadata, after.metadata
    assert (now.table_uuid, now.location) == (was.table_uuid, was.location)
    assert now.last_updated_ms >= was.last_updated_ms
    assert _last(now) >= _last(was)
    assert now.last_column_id >= was.last_column_id
