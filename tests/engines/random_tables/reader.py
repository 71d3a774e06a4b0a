"""The rows of a snapshot, by DuckDB's Parquet reader and the specification's rules for deletes.

Nothing here shares code with what is tested: entries are pyiceberg's, rows are DuckDB's.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow.parquet as pq
from pyiceberg import types as t
from pyiceberg.manifest import ManifestEntryStatus

from tests.engines.random_tables.values import plain
from tests.engines.random_tables.writer import DATA, EQUALITY, POSITIONS, Row, local

Found = tuple[Any, ...]
_QUERY = "SELECT {} FROM read_parquet('{}', hive_partitioning = false)"


@dataclass(frozen=True)
class Entry:
    """A live entry, with what it inherits from its manifest."""

    status: int
    snapshot: int
    sequence: int
    file_sequence: int
    spec: int
    file: Any

    @property
    def path(self) -> str:
        return str(self.file.file_path)

    @property
    def place(self) -> tuple[Any, ...]:
        values = [self.file.partition[n] for n in range(len(self.file.partition))]
        return self.spec, tuple(repr(one) for one in values)


@dataclass
class Place:
    """A live row, and where it is."""

    entry: Entry
    at: int
    row: Row


class Reader:
    """Reads any snapshot of one table. Files are never changed, so that each is read once."""

    def __init__(self) -> None:
        self._files: dict[str, list[Row]] = {}
        self._lists: dict[str, list[Any]] = {}
        self._entries: dict[str, list[Any]] = {}
        self._connection = duckdb.connect()
        self._connection.execute("SET threads TO 1")

    def entries(self, table: Any, snapshot_id: int | None) -> list[Entry]:
        snapshot = None if snapshot_id is None else table.metadata.snapshot_by_id(snapshot_id)
        if snapshot is None:
            return []
        return [
            Entry(int(one.status), int(one.snapshot_id or 0), int(one.sequence_number or 0),
                  int(one.file_sequence_number or 0), manifest.partition_spec_id, one.data_file)
            for manifest in self.manifests(table, snapshot)
            for one in self.entries_of(table, manifest)
            if one.status != ManifestEntryStatus.DELETED
        ]  # fmt: skip

    def manifests(self, table: Any, snapshot: Any) -> list[Any]:
        path = snapshot.manifest_list
        if path not in self._lists:
            self._lists[path] = snapshot.manifests(table.io)
        return self._lists[path]

    def entries_of(self, table: Any, manifest: Any) -> list[Any]:
        """All entries of a manifest, those of removed files too."""
        path = manifest.manifest_path
        if path not in self._entries:
            self._entries[path] = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        return self._entries[path]

    def live(self, table: Any, snapshot_id: int | None) -> Iterator[Place]:
        """Yield the rows that a reader of the snapshot sees."""
        entries = self.entries(table, snapshot_id)
        positions: dict[str, list[tuple[Entry, set[int]]]] = {}
        for one in entries:
            if int(one.file.content) == POSITIONS:
                for path, gone in self._positions(one.path).items():
                    positions.setdefault(path, []).append((one, gone))
        equal = [one for one in entries if int(one.file.content) == EQUALITY]
        keys = {one.path: self._keys(table, one) for one in equal}
        plain_specs = {
            number for number, spec in table.metadata.specs().items()
            if all(str(field.transform) == "void" for field in spec.fields)
        }  # fmt: skip
        for one in entries:
            if int(one.file.content) != DATA:
                continue
            gone_at = set[int]()
            for other, gone in positions.get(one.path, ()):
                if other.sequence >= one.sequence and other.place == one.place:
                    gone_at |= gone
            by = [
                (other.file.equality_ids, keys[other.path]) for other in equal
                if other.sequence > one.sequence
                and (other.spec in plain_specs or other.place == one.place)
            ]  # fmt: skip
            for at, row in enumerate(self.rows_of(table, one.path)):
                if at in gone_at:
                    continue
                if any(tuple(plain(row.get(n)) for n in ids) in gone for ids, gone in by):
                    continue
                yield Place(one, at, row)

    def rows(self, table: Any, snapshot_id: int | None) -> Counter[Found]:
        schema = table.schema()
        return Counter(shown(schema, place.row) for place in self.live(table, snapshot_id))

    def rows_of(self, table: Any, path: str) -> list[Row]:
        """The rows of a file, nested values by the ids of their fields."""
        if path not in self._files:
            held = pq.read_schema(local(path))
            names = table.name_mapping()
            ids = {one.name: _id_of(one, names) for one in held}
            found = self._connection.execute(_QUERY.format("*", local(path))).fetch_arrow_table()
            columns = {
                ids[name]: _values(found.column(n), held.field(name))
                for n, name in enumerate(found.column_names) if ids[name] is not None
            }  # fmt: skip
            self._files[path] = [
                {key: values[n] for key, values in columns.items()} for n in range(found.num_rows)
            ]
        return self._files[path]

    def _positions(self, path: str) -> dict[str, set[int]]:
        query = _QUERY.format("file_path, pos", local(path))
        found: dict[str, set[int]] = {}
        for name, at in self._connection.execute(query).fetchall():
            found.setdefault(name, set()).add(at)
        return found

    def _keys(self, table: Any, one: Entry) -> set[Found]:
        ids = one.file.equality_ids
        return {tuple(plain(row.get(n)) for n in ids) for row in self.rows_of(table, one.path)}


def _id_of(field: Any, names: Any) -> int | None:
    own = (field.metadata or {}).get(b"PARQUET:field_id")
    if own is not None:
        return int(own)
    if names is None:
        return None
    found = [one for one in names.root if field.name in one.names]
    return found[0].field_id if found else None


def _values(column: Any, held: Any) -> list[Any]:
    return [_value(one, held) for one in column.to_pylist()]


def _value(value: Any, held: Any) -> Any:
    """A value with the fields of structs by id, where the file has ids."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_struct(held.type):
        return {_id_of(one, None) or one.name: _value(value[one.name], one) for one in held.type}
    if isinstance(value, str) and not pa.types.is_string(held.type):
        return uuid.UUID(value)  # DuckDB writes it out
    if pa.types.is_list(held.type):
        return [_value(one, held.type.value_field) for one in value]
    return value


def shown(schema: Any, row: Mapping[int, Any]) -> Found:
    """A row under a schema: columns that it does not have are NULL."""
    return tuple(_under(one, row.get(one.field_id)) for one in schema.fields)


def _under(field: Any, value: Any) -> Any:
    if value is not None and isinstance(field.field_type, t.StructType):
        return tuple(_under(one, value.get(one.field_id)) for one in field.field_type.fields)
    if value is not None and isinstance(field.field_type, t.MapType):
        return tuple(sorted(plain(value)))
    return plain(value)
