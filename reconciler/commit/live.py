"""Live files of a snapshot, each with the deletes that a reader applies to it.

Entries are read and matched by the code that observes tables (`catalog`), so that plans and commits
see the same files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from reconciler.catalog.assemble import FileTableParts, assemble, no_entries
from reconciler.catalog.deletes import apply_deletes, named_file
from reconciler.catalog.entries import NULL, Entries, FieldStats, RawBounds, select
from reconciler.catalog.manifest_reader import ManifestReader
from reconciler.commit import fields, partitions
from reconciler.commit.entries import plain_schema
from reconciler.commit.fields import PartitionField, partition_fields, unpartitioned
from reconciler.commit.manifest import DELETED, ManifestFile, live, schema_of
from reconciler.commit.table import LiveTable
from reconciler.engines.delete_file import Ages, DeleteFile
from reconciler.engines.task_file import Deletes, TaskFile
from reconciler.errors import UnsupportedError
from reconciler.table.deletes import DeleteTable, PartitionKey, Scope, members_of
from reconciler.table.filetable import FileTable
from reconciler.table.schema import PartitionField as TableField
from reconciler.table.schema import PartitionSpec
from reconciler.table.values import Scalar, decode_wide_decimal

MOST_ENTRIES = 3
"""Manifest entries of one file that an error names."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A manifest as `ManifestReader` asks for it."""

    manifest_path: str
    """Location of the manifest."""
    manifest_length: int
    """Its bytes."""


@dataclass(frozen=True, slots=True)
class _Metadata:
    """A table's metadata as `ManifestReader` asks for it."""

    table_uuid: str
    """Names the table's cache."""


@dataclass(frozen=True, slots=True)
class _Source:
    """A table as `ManifestReader` asks for it."""

    io: Any
    """Opens its files."""
    metadata: _Metadata
    """Metadata of the table."""


class LiveFiles:
    """The live files of one snapshot. Rows are those of `files` and `deletes`."""

    def __init__(self, table: LiveTable, snapshot_id: int | None, cache: Path) -> None:
        self._name, metadata = table.name, table.state.metadata
        self.manifests = table.manifests(snapshot_id)
        reader = ManifestReader(_Source(table.io, _Metadata(table.state.uuid)), cache)  # type: ignore[arg-type]
        entries = reader.entries([_line(one) for one in self.manifests if live(one)])
        self._entries = no_entries() if entries is None else entries
        schema = schema_of(metadata)
        used = {int(one[fields.M_SPEC]) for one in self.manifests if live(one)}
        self._partition = {
            int(one["spec-id"]): partition_fields(one, schema)
            for one in metadata["partition-specs"]
            if int(one["spec-id"]) in used  # the column of an old one may be gone
        }
        parts = FileTableParts(
            plain_schema(schema),
            {int(one["spec-id"]): _spec(one) for one in metadata["partition-specs"]},
            int(metadata["default-spec-id"]),
            table.state.properties,
            (),
            {str(one[fields.M_PATH]): _inherited(one) for one in self.manifests},
        )
        files, self._found = assemble(parts, self._entries)
        applied = apply_deletes(files, self._found, parts.specs)
        self.files: FileTable = applied.files
        self.deletes: DeleteTable = applied.deletes

    @cached_property
    def _data(self) -> Entries:
        entries = self._entries
        rows = np.flatnonzero((entries.status != DELETED) & (entries.content == 0))
        return select(entries, rows)

    def manifest(self, row: int) -> str:
        """Return the manifest that has the data file."""
        return self._data.manifests[int(self._data.manifest[row])][0]

    def manifest_of_delete(self, row: int) -> str:
        entries = self._found.entries
        return entries.manifests[int(entries.manifest[row])][0]

    def rows(self, paths: Iterable[str]) -> dict[str, int]:
        """Return the row of each path that is live, in order of path. Raises UnsupportedError for
        one in two manifest entries."""
        wanted = set(paths)
        found = [n for n, path in enumerate(self.files.path) if path in wanted]
        times = Counter(str(self.files.path[row]) for row in found)
        for path, number in sorted(times.items()):
            if number > 1:
                raise self._twice(path)
        return dict(sorted((str(self.files.path[n]), n) for n in found))

    def _twice(self, path: str) -> UnsupportedError:
        rows = np.flatnonzero(self.files.path == path).tolist()
        entries = [
            f"an entry of {self.manifest(row)}, data sequence number {self.files.sequence[row]}"
            for row in rows
        ]
        return UnsupportedError(
            f"{self._name} has {path} in {len(rows)} manifest entries",
            details=(*entries[:MOST_ENTRIES],
                     "A replacement names a path, so that it replaces all of them. Nothing was "
                     "changed."),
            do="let a writer of the table remove the file, which removes all of its entries, and "
            "add it once",
        )  # fmt: skip

    # Data files

    def by_partition(self) -> list[str]:
        """Return the data files, each once, ordered by spec, partition and path."""
        ranks = [_rank(*one) for one in self.files.partitions]
        pairs = zip(self.files.partition.tolist(), map(str, self.files.path), strict=True)
        ordered = sorted(pairs, key=lambda one: (ranks[one[0]], one[1]))
        return list(dict.fromkeys(path for _, path in ordered))

    def task_files(
        self, rows: Mapping[str, int], columns: Collection[int], bare: bool
    ) -> dict[str, TaskFile]:
        """Return data files as values. columns: whose statistics are wanted. bare: without their
        deletes."""
        applied = {} if bare else self._applied(rows.values())
        return {path: self._task(row, columns, applied.get(row)) for path, row in rows.items()}

    def _task(self, row: int, columns: Collection[int], applied: list[int] | None) -> TaskFile:
        files, data = self.files, self._data
        chosen = {key: data.stats[key] for key in columns if key in data.stats}
        positions = [n for n in applied or () if not self.deletes.equality[n]]
        return TaskFile(
            path=str(files.path[row]),
            format="PARQUET" if files.parquet[row] else "OTHER",
            size=int(files.bytes[row]),
            rows=int(files.records[row]),
            spec_id=int(files.spec_id[row]),
            sequence=int(files.sequence[row]),
            encrypted=bool(files.encrypted[row]),
            deletes=Deletes(
                frozenset(self._identity(n) for n in positions),
                frozenset(
                    str(self.deletes.path[n]) for n in applied or () if self.deletes.equality[n]
                ),
            ),
            deleted=self._deleted(positions),
            partition=self._partitions[int(files.partition[row])],
            lower=_bounds(chosen, "lower", row),
            upper=_bounds(chosen, "upper", row),
            nulls=_numbers(chosen, "nulls", row),
            nans=_numbers(chosen, "nans", row),
            sizes=_numbers(chosen, "sizes", row),
        )

    def _applied(self, rows: Iterable[int]) -> dict[int, list[int]]:
        """Return the deletes that a reader applies to each of the data files. A vector replaces
        older position deletes of its file."""
        found: dict[int, list[int]] = {row: [] for row in rows}
        for number in range(len(self.deletes)):
            for row in self.deletes.reaches(number, self.files).tolist():
                if row in found:
                    found[row].append(number)
        scopes = self.deletes.scope
        for row, numbers in found.items():
            if any(scopes[n] == Scope.VECTOR for n in numbers):
                kept = (Scope.VECTOR, Scope.EQUALITY, Scope.GLOBAL)
                found[row] = [n for n in numbers if scopes[n] in kept]
        return found

    def applying(self, rows: Mapping[str, int]) -> dict[str, list[tuple[str, int]]]:
        """Return the deletes that a reader applies to each of the data files, as
        `DeleteFile.identity`. rows: by path."""
        applied = self._applied(rows.values())
        return {path: [self._identity(n) for n in applied[row]] for path, row in rows.items()}

    def _deleted(self, positions: Iterable[int]) -> int:
        own = (n for n in positions if self.deletes.scope[n] in (Scope.FILE, Scope.VECTOR))
        return sum(int(self.deletes.records[n]) for n in own)

    def _identity(self, number: int) -> tuple[str, int]:
        return str(self.deletes.path[number]), max(int(self.deletes.offset[number]), 0)

    def _json(self, spec_id: int, values: Iterable[Scalar | None]) -> tuple[Any, ...]:
        of = self._partition[spec_id]
        return tuple(_json_value(one, value) for one, value in zip(of, values, strict=True))

    @cached_property
    def _partitions(self) -> list[tuple[Any, ...]]:
        """The values of each of `FileTable.partitions` in JSON."""
        return [self._json(*one) for one in self.files.partitions]

    @cached_property
    def _partition_keys(self) -> list[PartitionKey]:
        """The key of each of `FileTable.partitions`."""
        pairs = zip(self.files.partitions, self._partitions, strict=True)
        return [self._partition_key(spec_id, values) for (spec_id, _), values in pairs]

    def partition_key(self, row: int) -> PartitionKey:
        """Return the partition of a data file."""
        return self._partition_keys[int(self.files.partition[row])]

    def _partition_key(self, spec_id: int, values: Iterable[Any]) -> PartitionKey:
        return PartitionKey(spec_id, partitions.text_of(self._partition[spec_id], values))

    def ages(self, paths: Iterable[str]) -> Ages:
        """Return the sequence numbers of the data files. paths: of which to name."""
        named = self.rows(paths)
        oldest: dict[PartitionKey, int] = {}
        files = self.files
        for number, rows in members_of(files).items():
            oldest[self._partition_keys[number]] = int(files.sequence[rows].min())
        return Ages(oldest, {path: int(files.sequence[row]) for path, row in named.items()})

    def under(self, deletes: Iterable[str]) -> list[str]:
        """Return the data files to which one of these delete files applies."""
        wanted = set(deletes)
        numbers = [n for n, path in enumerate(self.deletes.path) if path in wanted]
        rows = {int(r) for n in numbers for r in self.deletes.reaches(n, self.files)}
        return sorted(str(self.files.path[row]) for row in rows)

    def touched_by(self, rows: Mapping[str, int], sequences: Collection[int]) -> frozenset[str]:
        """Return the files that a snapshot of one of these sequence numbers wrote, or deleted rows
        of by position."""
        applied, deletes = self._applied(rows.values()), self.deletes
        return frozenset(
            path
            for path, row in rows.items()
            if int(self.files.sequence[row]) in sequences
            or any(
                not deletes.equality[n] and int(deletes.sequence[n]) in sequences
                for n in applied[row]
            )
        )

    # Delete files

    def delete_files(self) -> list[DeleteFile]:
        """Return all live delete files, also those that apply to nothing."""
        return [self._delete_file(row) for row in range(len(self.deletes))]

    def _delete_file(self, row: int) -> DeleteFile:
        deletes, found = self.deletes, self._found
        spec_id = int(deletes.spec_id[row])
        keys = tuple(deletes.equality_ids[row])
        vector = deletes.scope[row] == Scope.VECTOR
        path, offset = self._identity(row)
        key = self._partition_key(spec_id, self._json(spec_id, deletes.partition[row]))
        return DeleteFile(
            self.manifest_of_delete(row), path, offset, key,
            unpartitioned(self._partition[spec_id]),
            int(deletes.sequence[row]), "" if keys else named_file(found, row), keys,
            "PUFFIN" if vector else "OTHER" if deletes.other_format[row] else "PARQUET",
            int(deletes.records[row]), int(deletes.bytes[row]),
        )  # fmt: skip

    def own_deletes(self, rows: Iterable[int]) -> dict[str, str]:
        """Return the delete files of these data files alone that readers apply, each with its
        manifest."""
        scopes = self.deletes.scope
        return {
            str(self.deletes.path[n]): self.manifest_of_delete(n)
            for numbers in self._applied(rows).values()
            for n in numbers
            if scopes[n] in (Scope.FILE, Scope.VECTOR)
        }


def _line(one: ManifestFile) -> Any:
    return _Line(str(one[fields.M_PATH]), int(one[fields.M_LENGTH]))


def _inherited(one: ManifestFile) -> tuple[int, int, int]:
    return one[fields.M_SPEC], one.get(fields.M_SEQUENCE) or 0, one[fields.M_SNAPSHOT]


def _spec(body: Mapping[str, Any]) -> PartitionSpec:
    return PartitionSpec(
        int(body["spec-id"]),
        tuple(
            TableField(int(one["source-id"]), int(one["field-id"]), str(one["transform"]),
                       str(one["name"]))
            for one in body["fields"]
        ),
    )  # fmt: skip


def _rank(spec_id: int, values: Iterable[Scalar | None]) -> tuple[Any, ...]:
    """Return what partitions are ordered by: NULL comes first, NaN last."""
    return spec_id, *(
        (0, 0) if one is None else (2, 0) if one != one else (1, one) for one in values
    )


def _json_value(one: PartitionField, value: Scalar | None) -> Any:
    """Return a partition value as the specification writes it in JSON."""
    if value is None:
        return None
    if one.type.startswith("decimal"):
        number = decode_wide_decimal(value) if isinstance(value, bytes) else int(value)
        size = fields.decimal_bytes(int(one.type[len("decimal(") :].split(",")[0]))
        return partitions.to_json(one.type, number.to_bytes(size, "big", signed=True))
    if one.type == "string":
        assert isinstance(value, bytes)
        return value.decode()
    return partitions.to_json(one.type, bool(value) if one.type == "boolean" else value)


def _bounds(chosen: Mapping[int, FieldStats], side: str, row: int) -> dict[int, bytes]:
    found = {}
    for key, stats in chosen.items():
        bounds: RawBounds | None = getattr(stats, side)
        if bounds is not None and bounds.length[row] >= 0:
            found[key] = bytes(bounds.data[row, : bounds.length[row]])
    return found


def _numbers(chosen: Mapping[int, FieldStats], name: str, row: int) -> dict[int, int]:
    found = {}
    for key, stats in chosen.items():
        values = getattr(stats, name)
        if values is not None and values[row] != NULL:
            found[key] = int(values[row])
    return found
