"""Parquet files and commits as other writers make them, by pyarrow and pyiceberg's manifests."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import types as t
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation, Summary, update_snapshot_summaries
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record

from tests.delete_commits import _DeleteManifest
from tests.engines.random_tables.values import (
    Random,
    arrow_field,
    arrow_type,
    arrow_value,
    internal,
)

Row = dict[int, Any]
DATA, POSITIONS, EQUALITY = 0, 1, 2


@dataclass
class Commit:
    """What one commit of another writer does. added: files by spec id."""

    operation: Operation
    added: list[tuple[int, DataFile]] = field(default_factory=list)
    removed: set[str] = field(default_factory=set)
    branch: str = "main"
    totals: bool = True
    """Whether its summary has totals, which the specification asks of nobody."""


class _Foreign(_FastAppendFiles):
    """One snapshot: its own manifests first, then those of the parent, rewritten where a file
    goes."""

    def __init__(self, change: Commit, transaction: Any, io: Any) -> None:
        super().__init__(change.operation, transaction, io, branch=change.branch)
        self._change, self._gone = change, list[DataFile]()

    def _writer(self, spec: Any, content: ManifestContent) -> Any:
        if content == ManifestContent.DATA:
            return self.new_manifest_writer(spec)
        output = self.new_manifest_output()
        return _DeleteManifest(spec, self.schema(), output, self._snapshot_id, self._compression)

    def _manifests(self) -> list[Any]:
        return [*self._new(), *self._kept()]

    def _new(self) -> list[Any]:
        from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus

        made = []
        kinds = {(spec, file.content != DataFileContent.DATA) for spec, file in self._change.added}
        for spec_id, deletes in sorted(kinds):
            content = ManifestContent.DELETES if deletes else ManifestContent.DATA
            with self._writer(self.spec(spec_id), content) as writer:
                for spec, file in self._change.added:
                    if spec == spec_id and (file.content != DataFileContent.DATA) == deletes:
                        writer.add(ManifestEntry.from_args(
                            status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id,
                            sequence_number=None, file_sequence_number=None, data_file=file,
                        ))  # fmt: skip
            made.append(writer.to_manifest_file())
        return made

    def _kept(self) -> list[Any]:
        kept = []
        for manifest in self._existing_manifests():
            entries = self.fetch_manifest_entry(manifest)
            gone = [e for e in entries if e.data_file.file_path in self._change.removed]
            if not gone:
                kept.append(manifest)
                continue
            with self._writer(self.spec(manifest.partition_spec_id), manifest.content) as writer:
                for entry in entries:
                    put = writer.delete if entry in gone else writer.existing
                    put(entry)
            self._gone += [entry.data_file for entry in gone]
            kept.append(writer.to_manifest_file())
        return kept

    def _summary(self, snapshot_properties: Any = None) -> Summary:
        files = [one for _, one in self._change.added]
        found: dict[str, str] = {}
        for verb, some in ("added", files), ("deleted", self._gone):
            for key, value in _counted(verb, some).items():
                if value:
                    found[key] = str(value)
        made = Summary(operation=self._operation, **found)
        if not self._change.totals:
            return made
        metadata = self._transaction.table_metadata
        before = metadata.snapshot_by_id(self._parent_snapshot_id or 0)
        return update_snapshot_summaries(made, None if before is None else before.summary)


def _counted(verb: str, files: Sequence[DataFile]) -> dict[str, int]:
    """The fields of a summary, as `update_snapshot_summaries` adds them up."""
    removed = verb == "deleted"
    data = [one for one in files if int(one.content) == DATA]
    at, by = ([one for one in files if int(one.content) == n] for n in (POSITIONS, EQUALITY))
    names = "removed" if removed else "added"
    return {
        f"{verb}-data-files": len(data),
        f"{verb}-records": sum(one.record_count for one in data),
        f"{names}-delete-files": len(at) + len(by),
        f"{names}-position-delete-files": len(at),
        f"{names}-equality-delete-files": len(by),
        f"{names}-position-deletes": sum(one.record_count for one in at),
        f"{names}-equality-deletes": sum(one.record_count for one in by),
        f"{names}-files-size": sum(one.file_size_in_bytes for one in files),
    }


def commit(table: Any, change: Commit) -> None:
    with table.transaction() as transaction:
        _Foreign(change, transaction, table.io).commit()


def written_as(random: Random, schema: Schema) -> list[t.NestedField]:
    """The columns that a writer writes: in an order of its own, some optional ones not at all."""
    columns = [
        one for one in schema.fields if one.required or one.field_id == 1 or random.random() < 0.93
    ]
    if random.random() < 0.3:
        random.shuffle(columns)
    return columns


def data_file(
    random: Random, table: Any, columns: Sequence[t.NestedField], rows: Sequence[Row],
    partition: Sequence[Any], spec_id: int, ids: bool,
) -> DataFile:  # fmt: skip
    """Write rows, all of one partition, and return their entry."""
    held = pa.schema([arrow_field(one, ids) for one in columns])
    arrays = [
        pa.array([arrow_value(one.field_type, row.get(one.field_id)) for row in rows],
                 arrow_type(one.field_type, ids).storage_type
                 if isinstance(one.field_type, t.UUIDType) else arrow_type(one.field_type, ids))
        for one in columns
    ]  # fmt: skip
    arrays = [
        pa.ExtensionArray.from_storage(pa.uuid(), array)
        if isinstance(one.field_type, t.UUIDType) else array
        for one, array in zip(columns, arrays, strict=True)
    ]  # fmt: skip
    made = pa.Table.from_arrays(arrays, schema=held)
    path = _put(random, table, made)
    stats = _statistics(random, columns, rows)
    return DataFile.from_args(
        content=DataFileContent.DATA, file_path=path, file_format=FileFormat.PARQUET,
        partition=Record(*partition), record_count=len(rows),
        file_size_in_bytes=Path(local(path)).stat().st_size, spec_id=spec_id, **stats,
    )  # fmt: skip


def _put(random: Random, table: Any, rows: pa.Table) -> str:
    scheme = random.choice(["file://", "file://", "file://", "file:"])
    path = f"{local(table.location())}/data/{random.choice(['', 'x=1/', 'a b/'])}{uuid.uuid4()}"
    path += ".parquet"
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {}
    if random.random() < 0.03 and rows.num_columns:
        options["use_deprecated_int96_timestamps"] = True
    pq.write_table(
        rows, path,
        row_group_size=random.choice([1, 3, 7, 1_000]),
        compression=random.choice(["snappy", "zstd", "gzip", "none"]),
        use_dictionary=random.random() < 0.5,
        data_page_version=random.choice(["1.0", "1.0", "1.0", "2.0"]),
        write_statistics=random.random() < 0.8,
        store_schema=random.random() < 0.5,
        store_decimal_as_integer=random.random() < 0.5,
        **options,
    )  # fmt: skip
    return scheme + path


def local(path: str) -> str:
    return "/" + path.removeprefix("file:").lstrip("/")


def _statistics(
    random: Random, columns: Sequence[t.NestedField], rows: Sequence[Row]
) -> Mapping[str, Any]:
    """What the writer says of its columns: nothing, some of it, or all of it."""
    if random.random() < 0.3:
        return {}
    values, nulls, lower, upper = {}, {}, {}, {}
    for one in columns:
        kind = one.field_type
        if not isinstance(kind, t.PrimitiveType) or random.random() < 0.2:
            continue
        own = [row.get(one.field_id) for row in rows]
        values[one.field_id], nulls[one.field_id] = len(own), own.count(None)
        known = [internal(one) for one in own if one is not None]
        if not known or isinstance(kind, t.FloatType | t.DoubleType | t.UUIDType | t.BooleanType):
            continue
        low, high = min(known), max(known)
        if isinstance(kind, t.StringType):
            low = low[:2]
            if len(high) > 16:
                continue
        lower[one.field_id], upper[one.field_id] = to_bytes(kind, low), to_bytes(kind, high)
    found = {"value_counts": values, "null_value_counts": nulls, "lower_bounds": lower,
             "upper_bounds": upper}  # fmt: skip
    return {key: value for key, value in found.items() if random.random() < 0.8}


def position_deletes(
    random: Random, table: Any, places: Sequence[tuple[str, int]], partition: Sequence[Any],
    spec_id: int,
) -> DataFile:  # fmt: skip
    schema = pa.schema([
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ])  # fmt: skip
    places = sorted(places)
    paths = [path for path, _ in places]
    made = pa.table([pa.array(paths, pa.string()), pa.array([n for _, n in places], pa.int64())],
                    schema=schema)  # fmt: skip
    path = _put(random, table, made)
    stats: dict[str, Any] = {}
    if random.random() < 0.7:
        stats = {"lower_bounds": {2147483546: paths[0].encode()},
                 "upper_bounds": {2147483546: paths[-1].encode()}}  # fmt: skip
    return DataFile.from_args(
        content=DataFileContent.POSITION_DELETES, file_path=path, file_format=FileFormat.PARQUET,
        partition=Record(*partition), record_count=len(places),
        file_size_in_bytes=Path(local(path)).stat().st_size, spec_id=spec_id, **stats,
    )  # fmt: skip


def equality_deletes(
    random: Random, table: Any, keys: Sequence[t.NestedField], rows: Sequence[Row],
    partition: Sequence[Any], spec_id: int,
) -> DataFile:  # fmt: skip
    """A delete file that may have more columns than those that it deletes by, as Flink's has."""
    more = [one for one in table.schema().fields if one not in keys and random.random() < 0.1]
    columns = [*keys, *more]
    made = data_file(random, table, columns, rows, partition, spec_id, True)
    return DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES, file_path=made.file_path,
        file_format=FileFormat.PARQUET, partition=Record(*partition), record_count=len(rows),
        file_size_in_bytes=made.file_size_in_bytes, spec_id=spec_id,
        equality_ids=[one.field_id for one in keys],
    )  # fmt: skip
