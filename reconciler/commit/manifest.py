"""Reads and writes the entries of one manifest, and manifest lists.

An entry that is kept is copied: only its status, its snapshot and its sequence numbers are written
anew, as the specification asks ("Sequence Number Inheritance").
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from reconciler.catalog.avro import parse_container
from reconciler.commit import codec, fields
from reconciler.commit.fields import PartitionField
from reconciler.commit.partitions import Summary

EXISTING, ADDED, DELETED = 0, 1, 2
"""Status of an entry."""
DATA, DELETES = 0, 1
"""Content of a manifest."""
POSITION_DELETES, EQUALITY_DELETES = 1, 2
"""Content of a delete file."""
V1_BLOCK_SIZE = 64 << 20
"""What Java writes for a field that format version 1 requires and nobody reads."""
_HEAD = (fields.CONTENT, fields.PATH, fields.FORMAT, fields.PARTITION, fields.RECORDS, fields.SIZE)

ManifestFile = dict[int, Any]
"""A manifest by the field ids of a manifest list."""


class _Form:
    """How the entries of manifests of one Avro schema are read."""

    def __init__(self, schema: Any) -> None:
        shaped = codec.shape(schema)
        self.file = next(f["type"] for f in shaped["fields"] if f["id"] == fields.DATA_FILE)
        self.text = json.dumps(self.file, sort_keys=True)  # bytes of equal texts mean the same
        self.numbers = [
            (f["id"], codec.reader(f["type"])) for f in shaped["fields"]
            if f["id"] != fields.DATA_FILE
        ]  # fmt: skip
        if shaped["fields"][-1]["id"] != fields.DATA_FILE:
            raise ValueError("the entry of a manifest does not end with its file")
        members = self.file["fields"]
        last = max(at for at, one in enumerate(members) if one["id"] in _HEAD)
        self.head = [
            (one["id"], codec.reader(one["type"]) if one["id"] in _HEAD else None,
             codec.skipper(one["type"]))
            for one in members[: last + 1]
        ]  # fmt: skip
        self.rest = [codec.skipper(one["type"]) for one in members[last + 1 :]]
        self.named = [
            (key, read if key in (fields.PATH, fields.SIZE) else None, skip)
            for key, read, skip in self.head
        ]
        self.whole = codec.reader(self.file)

    def read_file(self, data: bytes, at: int) -> tuple[File, int]:
        start, held = at, {}
        for key, read, skip in self.head:
            if read is None:
                at = skip(data, at)
            else:
                held[key], at = read(data, at)
        for skip in self.rest:
            at = skip(data, at)
        held.setdefault(fields.CONTENT, 0)
        return File(held, data[start:at], self), at

    def read_name(self, data: bytes, at: int) -> tuple[str, int, int]:
        """Return the path and the bytes of a file, and the offset behind it."""
        path, size = "", 0
        for key, read, skip in self.named:
            if read is None:
                at = skip(data, at)
            elif key == fields.PATH:
                path, at = read(data, at)
            else:
                size, at = read(data, at)
        for skip in self.rest:
            at = skip(data, at)
        return path, size, at


@lru_cache(maxsize=256)
def _form(schema: str) -> _Form:
    return _Form(json.loads(schema))


class File:
    """A data file or a delete file. Of one that was read only the first fields are decoded."""

    __slots__ = ("form", "head", "raw")

    def __init__(self, head: Mapping[int, Any], raw: bytes = b"", form: _Form | None = None):
        self.head, self.raw, self.form = head, raw, form

    @property
    def path(self) -> str:
        return str(self.head[fields.PATH])

    @property
    def content(self) -> int:
        return int(self.head[fields.CONTENT])

    @property
    def partition(self) -> Mapping[int, Any]:
        """Partition values by field id, as Avro stores them."""
        return self.head[fields.PARTITION]  # type: ignore[no-any-return]

    @property
    def records(self) -> int:
        return int(self.head[fields.RECORDS])

    @property
    def size(self) -> int:
        return int(self.head[fields.SIZE])

    def values(self) -> Mapping[int, Any]:
        """Return every field by its id."""
        if self.form is None:
            return self.head
        return {fields.CONTENT: 0, **self.form.whole(self.raw, 0)[0]}


@dataclass(slots=True)
class Entry:
    """An entry of a manifest."""

    status: int
    """EXISTING, ADDED or DELETED."""
    snapshot_id: int | None
    """The snapshot that added or deleted the file."""
    sequence: int | None
    """The data sequence number, None where a commit gives it."""
    file_sequence: int | None
    """The sequence number of the commit that added the file, None where a commit gives it."""
    file: File
    """What it names."""


@dataclass(frozen=True, slots=True)
class Named:
    """What an entry says of its file without partition, rows and statistics."""

    status: int
    """EXISTING, ADDED or DELETED."""
    snapshot_id: int
    """The snapshot that added or deleted the file, 0 if unknown."""
    path: str
    """Path of the file."""
    size: int
    """Its bytes."""


def read_names(data: bytes, manifest: ManifestFile) -> list[Named]:
    """Return the files that the entries of a manifest name: in half the time of the entries."""
    found = parse_container(data, f'the manifest "{manifest[fields.M_PATH]}"')
    form = _form(found.metadata["avro.schema"].decode())
    added_by, body, at, names = manifest[fields.M_SNAPSHOT], found.body, 0, []
    for _ in range(found.rows):
        own: dict[int, Any] = {}
        for key, read in form.numbers:
            own[key], at = read(body, at)
        path, size, at = form.read_name(body, at)
        snapshot_id = own.get(fields.SNAPSHOT_ID)
        by = added_by if snapshot_id is None else snapshot_id
        names.append(Named(own[fields.STATUS], int(by or 0), path, size))
    return names


def read_entries(data: bytes, manifest: ManifestFile) -> list[Entry]:
    """Return the entries of a manifest, with what they inherit from its manifest list."""
    path = str(manifest[fields.M_PATH])
    found = parse_container(data, f'the manifest "{path}"')
    form = _form(found.metadata["avro.schema"].decode())
    added_by, number = manifest[fields.M_SNAPSHOT], manifest.get(fields.M_SEQUENCE) or 0
    body, at, entries = found.body, 0, []
    for _ in range(found.rows):
        own: dict[int, Any] = {}
        for key, read in form.numbers:
            own[key], at = read(body, at)
        file, at = form.read_file(body, at)
        status = own[fields.STATUS]
        inherits = number == 0 or status == ADDED
        sequence, file_sequence = own.get(fields.SEQUENCE), own.get(fields.FILE_SEQUENCE)
        snapshot_id = own.get(fields.SNAPSHOT_ID)
        entries.append(
            Entry(
                status,
                added_by if snapshot_id is None else snapshot_id,
                number if sequence is None and inherits else sequence,
                number if file_sequence is None and inherits else file_sequence,
                file,
            )
        )
    return entries


@dataclass(frozen=True)
class Layout:
    """What the manifests of one partition spec have in common."""

    version: int
    """The table's format version."""
    spec: Mapping[str, Any]
    """The partition spec as the table's metadata has it."""
    schema: Mapping[str, Any]
    """The table's current schema, as the metadata has it."""
    partition: tuple[PartitionField, ...]
    """The fields of the spec."""
    form: _Form = field(init=False)
    """How its files are written."""
    write_file: codec.Writer = field(init=False)
    """Writes a file that was not read in this form."""

    def __post_init__(self) -> None:
        form = _form(fields.entry_schema(self.version, self.partition))
        object.__setattr__(self, "form", form)
        object.__setattr__(self, "write_file", codec.writer(form.file))

    @property
    def spec_id(self) -> int:
        return int(self.spec["spec-id"])

    def encoded(self, file: File) -> File:
        """Return the file with its bytes in this form."""
        out, values = bytearray(), file.values()
        if self.version == 1:
            values = {**values, fields.BLOCK_SIZE: V1_BLOCK_SIZE}
        self.write_file(out, values)
        return File(file.head, bytes(out), self.form)

    def header(self, content: int) -> dict[str, str]:
        return {
            "schema": _json(self.schema),
            "avro.schema": fields.entry_schema(self.version, self.partition),
            "partition-spec": _json(self.spec["fields"]),
            "partition-spec-id": str(self.spec_id),
            "iceberg.schema": fields.iceberg_schema(self.version, self.partition),
            "format-version": str(self.version),
            **(
                {"content": "deletes" if content == DELETES else "data"} if self.version > 1 else {}
            ),
        }


def _json(body: Any) -> str:
    return json.dumps(body, separators=(",", ":"))


def layout(metadata: Mapping[str, Any], spec_id: int) -> Layout:
    """Return the layout of manifests of a spec. metadata: of the table, in JSON."""
    spec = next(one for one in metadata["partition-specs"] if one["spec-id"] == spec_id)
    schema = schema_of(metadata)
    return Layout(
        int(metadata["format-version"]), spec, schema, fields.partition_fields(spec, schema)
    )


def schema_of(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the table's current schema."""
    current = metadata["current-schema-id"]
    found: Mapping[str, Any] = next(
        one for one in metadata["schemas"] if one["schema-id"] == current
    )
    return found


@dataclass
class ManifestWriter:
    """Collects the entries of a new manifest."""

    layout: Layout
    """Schema and partition fields of the manifest's spec."""
    content: int
    """DATA or DELETES."""
    snapshot_id: int
    """Id of the snapshot that the commit makes."""
    body: bytearray = field(default_factory=bytearray)
    """The encoded entries."""
    files: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Number of entries by status."""
    rows: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Rows of their files by status."""
    least: int | None = None
    """The lowest data sequence number of a live entry, None if a commit gives all of them."""
    summary: Summary = field(init=False)
    """Bounds of the partitions of its files."""

    def __post_init__(self) -> None:
        self.summary = Summary(self.layout.partition)

    def put(self, entry: Entry) -> None:
        """Put an entry. Of other commits, those of removed files are left out, and those of added
        files become EXISTING."""
        if entry.snapshot_id == self.snapshot_id:
            self._put(entry)
        elif entry.status != DELETED:
            self._put(
                Entry(EXISTING, entry.snapshot_id, entry.sequence, entry.file_sequence, entry.file)
            )

    def _put(self, entry: Entry) -> None:
        out, file = self.body, entry.file
        codec.write_long(out, entry.status)
        if self.layout.version == 1:
            codec.write_long(out, int(entry.snapshot_id or 0))
        else:
            for value in (entry.snapshot_id, entry.sequence, entry.file_sequence):
                if value is None:
                    out.append(0)
                else:
                    out.append(2)
                    codec.write_long(out, value)
        alike = file.form is not None and file.form.text == self.layout.form.text
        out += file.raw if alike else self.layout.encoded(file).raw
        self.files[entry.status] += 1
        self.rows[entry.status] += file.records
        self.summary.update(file.partition)
        if entry.status != DELETED and entry.sequence is not None:
            self.least = entry.sequence if self.least is None else min(self.least, entry.sequence)

    def close(self, path: str) -> tuple[bytes, ManifestFile]:
        """Return the manifest's bytes, and its line in the manifest list; -1 is for sequence
        numbers that the commit gives."""
        data = codec.container(self.layout.header(self.content), sum(self.files), bytes(self.body))
        made = {
            fields.M_PATH: path,
            fields.M_LENGTH: len(data),
            fields.M_SPEC: self.layout.spec_id,
            fields.M_CONTENT: self.content,
            fields.M_SEQUENCE: -1,
            fields.M_MIN_SEQUENCE: -1 if self.least is None else self.least,
            fields.M_SNAPSHOT: self.snapshot_id,
            fields.M_ADDED: self.files[ADDED],
            fields.M_EXISTING: self.files[EXISTING],
            fields.M_DELETED: self.files[DELETED],
            fields.M_ADDED_ROWS: self.rows[ADDED],
            fields.M_EXISTING_ROWS: self.rows[EXISTING],
            fields.M_DELETED_ROWS: self.rows[DELETED],
            fields.M_PARTITIONS: self.summary.fields(),
            fields.M_KEY_METADATA: None,
        }
        return data, made


def read_list(data: bytes, path: str) -> list[ManifestFile]:
    """Return the manifests of a manifest list."""
    found = parse_container(data, f'the manifest list "{path}"')
    read = codec.reader(codec.shape(found.schema))
    at, manifests = 0, []
    for _ in range(found.rows):
        one, at = read(found.body, at)
        for key in (fields.M_CONTENT, fields.M_SEQUENCE, fields.M_MIN_SEQUENCE):
            one.setdefault(key, 0)
        manifests.append(one)
    return manifests


def write_list(
    version: int,
    manifests: Iterable[ManifestFile],
    snapshot_id: int,
    parent: int | None,
    sequence: int,
) -> bytes:
    """Return the bytes of a manifest list; sequence numbers that the commit gives are filled in."""
    schema = fields.list_schema(version)
    put = codec.writer(codec.shape(json.loads(schema)))
    body, rows = bytearray(), 0
    for one in manifests:
        put(body, numbered(one, sequence))
        rows += 1
    header = {
        "avro.schema": schema,
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "format-version": str(version),
        "iceberg.schema": fields.list_iceberg_schema(version),
        **({"sequence-number": str(sequence)} if version > 1 else {}),
    }
    return codec.container(header, rows, bytes(body))


def numbered(manifest: ManifestFile, sequence: int) -> ManifestFile:
    """Return the manifest with the commit's sequence number where it has none."""
    keys = (fields.M_SEQUENCE, fields.M_MIN_SEQUENCE)
    return {**manifest, **{key: sequence for key in keys if manifest[key] == -1}}


def live(manifest: ManifestFile) -> bool:
    """Whether the manifest may have entries that are not DELETED."""
    counts = [manifest.get(key) for key in (fields.M_ADDED, fields.M_EXISTING)]
    return any(count is None or count > 0 for count in counts)


def of_content(manifests: Sequence[ManifestFile], content: int) -> list[ManifestFile]:
    return [one for one in manifests if one[fields.M_CONTENT] == content]
