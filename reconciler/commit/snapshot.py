"""Makes the manifests of a new snapshot, as Iceberg's Java library merges and filters them.

Rewritten manifests keep the sequence numbers of their entries, and files that are removed stay as
DELETED entries of this snapshot. Manifests without a removed file are kept as they are.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from reconciler.commit import fields, manifest, merging, summary
from reconciler.commit.manifest import (
    ADDED,
    DATA,
    DELETED,
    DELETES,
    Entry,
    File,
    Layout,
    ManifestFile,
    ManifestWriter,
)
from reconciler.commit.merging import Item, Pending
from reconciler.commit.metadata import MAIN, directory
from reconciler.commit.table import LiveTable, Snapshot, State
from reconciler.table.numbers import LISTED_PARTITIONS, number

PACKED = 4
"""Bytes of encoded entries per byte of a compressed manifest, about."""
HEADER = 7_000
"""Bytes of the header of a manifest, about."""


class MissingFilesError(Exception):
    """Files that a change removes or requires are not in the table."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(f"{len(paths)} files are not in the table, such as {paths[0]}")
        self.paths = tuple(paths)


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file that a change adds."""

    spec_id: int
    """Id of the spec of its partition."""
    file: File
    """Fields of its manifest entry."""


@dataclass(frozen=True)
class SnapshotChange:
    """What a new snapshot does to the files of the one before it."""

    operation: str
    """The snapshot's operation: replace, overwrite, delete or append."""
    added: Sequence[AddedFile] = ()
    """Data files that it adds."""
    sequence: int | None = None
    """Data sequence number of the added data files, None for the commit's own."""
    removed: Mapping[str, str] = field(default_factory=dict)
    """Data files that it removes, each with the manifest where it was last seen, "" if unknown."""
    added_deletes: Sequence[AddedFile] = ()
    """Delete files that it adds."""
    removed_deletes: Mapping[str, str] = field(default_factory=dict)
    """Delete files that it removes, each with its manifest as in `removed`."""
    required: Mapping[str, str] = field(default_factory=dict)
    """Data files that must be in the table, each with its manifest as in `removed`."""
    summary: Mapping[str, str] = field(default_factory=dict)
    """Fields of ours in the snapshot's summary."""
    branch: str = MAIN
    """The branch that gets the snapshot."""
    fast: bool = False
    """Whether manifests stay as they are, as in an append that must not read any."""


@dataclass(frozen=True)
class CommitNames:
    """Names of what one commit writes, chosen before, so that they can be recorded."""

    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    """UUID in the name of each file that the commit writes."""
    snapshot_id: int = field(default_factory=lambda: secrets.randbits(63) or 1)
    """Id of the snapshot that it makes."""

    def manifest(self, metadata: Mapping[str, Any], number: int) -> str:
        return f"{directory(metadata)}/{self.uuid}-m{number}.avro"

    def list(self, metadata: Mapping[str, Any]) -> str:
        return f"{directory(metadata)}/snap-{self.snapshot_id}-1-{self.uuid}.avro"


@dataclass
class SnapshotProducer:
    """Makes one snapshot on the table's present state."""

    table: LiveTable
    """The table that it reads and writes."""
    change: SnapshotChange
    """What the snapshot does."""
    names: CommitNames
    """Names of the files that it writes."""
    engine: Mapping[str, str] = field(default_factory=dict)
    """Fields of the summary that name the writer."""
    written: list[str] = field(default_factory=list)
    """Files that were written so far."""
    number: int = 0
    """Number of the next manifest in its name."""

    @cached_property
    def state(self) -> State:
        return self.table.state

    def make(self) -> Snapshot:
        """Write the manifests and the manifest list; return the snapshot, which is not committed.
        Raises MissingFilesError, UnsupportedError, OSError."""
        change = self.change
        head = self.state.head(change.branch)
        if head is None and change.branch != MAIN:
            head = self.state.head()
        present = self.table.manifests(head)
        counts = summary.Counts()
        if change.fast:
            manifests, replaced = [*self._new(counts, DATA), *present], 0
        else:
            manifests, replaced = self._merged(present, counts)
        lines = [self._line(item) for item in manifests]
        created = sum(one[fields.M_SNAPSHOT] == self.names.snapshot_id for one in lines)
        numbers = summary.manifests(created, len(lines) - created, replaced)
        limit = number(self.state.properties, LISTED_PARTITIONS, 0)
        return self.listed(lines, head, {**change.summary, **numbers, **counts.fields(limit)})

    def listed(
        self, lines: Sequence[ManifestFile], parent: int | None, found: Mapping[str, str]
    ) -> Snapshot:
        """Write the manifest list and return the snapshot. found: its summary without totals."""
        version, metadata = self.state.version, self.state.metadata
        sequence = 0 if version == 1 else int(metadata.get("last-sequence-number", 0)) + 1
        path = self.names.list(metadata)
        data = manifest.write_list(version, lines, self.names.snapshot_id, parent, sequence)
        self.put(path, data)
        before = None  # the totals of a new branch begin at 0, as Java's do
        if parent is not None and self.change.branch in self.state.refs:
            before = self.state.snapshots[parent].get("summary") or {}
        return {
            **({"sequence-number": sequence} if sequence else {}),
            "snapshot-id": self.names.snapshot_id,
            **({} if parent is None else {"parent-snapshot-id": parent}),
            "timestamp-ms": self._now(),
            "summary": {
                "operation": self.change.operation,
                **summary.with_totals(found, before),
                **self.engine,
            },
            "manifest-list": path,
            "schema-id": metadata["current-schema-id"],
        }

    def _now(self) -> int:
        """Return the time of the snapshot: never before that of the last change, which the
        specification asks for."""
        return max(int(time.time() * 1000), int(self.state.metadata["last-updated-ms"]))

    def layout(self, spec_id: int) -> Layout:
        if spec_id not in self._layouts:
            self._layouts[spec_id] = manifest.layout(self.state.metadata, spec_id)
        return self._layouts[spec_id]

    @cached_property
    def _layouts(self) -> dict[int, Layout]:
        return {}

    def put(self, path: str, data: bytes) -> None:
        self.written.append(path)
        self.table.write(path, data)

    def writer(self, spec_id: int, content: int) -> ManifestWriter:
        return ManifestWriter(self.layout(spec_id), content, self.names.snapshot_id)

    def close(self, one: ManifestWriter) -> ManifestFile:
        """Write a manifest and return its line."""
        path = self.names.manifest(self.state.metadata, self.number)
        self.number += 1
        data, line = one.close(path)
        self.put(path, data)
        return line

    # Entries

    def _merged(
        self, present: Sequence[ManifestFile], counts: summary.Counts
    ) -> tuple[list[Item], int]:
        """Return the manifests of the snapshot, and how many of the present ones they replace."""
        change = self.change
        data = manifest.of_content(present, DATA)
        filtered, replaced = self._filtered(data, change.removed, counts, 0)
        self._holding(data, change.required)  # raises if one of them is missing
        # The sequence number that the new files keep counts too. Java does not look at it, and may
        # drop a delete that came after the files were read, if its manifest is rewritten anyway.
        last = int(self.state.metadata.get("last-sequence-number") or 0)
        own = [] if change.sequence is None or not change.added else [change.sequence]
        oldest = min([last, *own, *_least(filtered)])
        deletes = manifest.of_content(present, DELETES)
        kept, others = self._filtered(deletes, change.removed_deletes, counts, oldest)
        new = {content: self._new(counts, content) for content in (DATA, DELETES)}
        settings = merging.settings(self.state.properties)
        found: list[Item] = []
        replaced += others
        for content, rest in ((DATA, filtered), (DELETES, kept)):
            items = [one for one in (*new[content], *rest) if self._is_kept(one)]
            merged, gone = merging.merged(items, settings, self._merge, self.names.snapshot_id)
            found += merged
            replaced += gone
        return found, replaced

    def _is_kept(self, one: Item) -> bool:
        """Whether a manifest has live files, or says what this commit removes."""
        if isinstance(one, Pending):
            return True
        return manifest.live(one) or one[fields.M_SNAPSHOT] == self.names.snapshot_id

    def _filtered(
        self,
        present: Sequence[ManifestFile],
        removed: Mapping[str, str],
        counts: summary.Counts,
        oldest: int,
    ) -> tuple[list[Item], int]:
        """Return the manifests without the removed files. oldest: delete files below this sequence
        number apply to nothing; those in a manifest that is rewritten anyway go too."""
        held = self._holding(present, removed)
        items: list[Item] = []
        for one in present:
            entries = held.get(str(one[fields.M_PATH]))
            if entries is None:
                items.append(one)
                continue
            layout = self.layout(one[fields.M_SPEC])
            kept = []
            for entry in entries:
                if entry.status == DELETED:
                    continue
                old = 0 < (entry.sequence or 0) < oldest
                if entry.file.path in removed or old:
                    counts.removed(layout, entry.file)
                    entry = Entry(DELETED, self.names.snapshot_id, entry.sequence,
                                  entry.file_sequence, entry.file)  # fmt: skip
                kept.append(entry)
            share = len(kept) / max(len(entries), 1)
            items.append(Pending(one[fields.M_SPEC], one[fields.M_CONTENT], kept,
                                 int(one[fields.M_LENGTH] * share)))  # fmt: skip
        return items, len(held)

    def _holding(
        self, present: Sequence[ManifestFile], wanted: Mapping[str, str]
    ) -> dict[str, list[Entry]]:
        """Return the entries of the manifests that have one of the files, by manifest. Raises
        MissingFilesError."""
        left, found = set(wanted), {}
        hinted = set(wanted.values())
        first = [one for one in present if one[fields.M_PATH] in hinted]
        rest = [one for one in present if one[fields.M_PATH] not in hinted and manifest.live(one)]
        for some in (first, rest):
            if not left:
                break
            for one, entries in zip(some, self.table.entries(some), strict=True):
                paths = {entry.file.path for entry in entries if entry.status != DELETED}
                if not paths.isdisjoint(wanted):
                    found[str(one[fields.M_PATH])] = entries
                    left -= paths
        if left:
            raise MissingFilesError(sorted(left))
        return found

    def _new(self, counts: summary.Counts, content: int) -> list[Item]:
        """Return the manifests of the added files of a content."""
        change, made = self.change, list[Item]()
        target = merging.settings(self.state.properties).target
        added = change.added if content == DATA else change.added_deletes
        sequence = change.sequence if content == DATA and self.state.version > 1 else None
        for spec_id in sorted({one.spec_id for one in added}):
            layout = self.layout(spec_id)
            one = Pending(spec_id, content, [], HEADER)
            for item in (item for item in added if item.spec_id == spec_id):
                if one.length >= target:
                    made.append(one)
                    one = Pending(spec_id, content, [], HEADER)
                file = layout.encoded(item.file)
                counts.added(layout, file)
                one.entries.append(Entry(ADDED, self.names.snapshot_id, sequence, None, file))
                one.length += len(file.raw) // PACKED
            made.append(one)
        return made

    def _line(self, item: Item) -> ManifestFile:
        return self._merge([item]) if isinstance(item, Pending) else item

    def _merge(self, items: Sequence[Item]) -> ManifestFile:
        """Write one manifest of these."""
        first = items[0]
        spec_id = first.spec_id if isinstance(first, Pending) else first[fields.M_SPEC]
        content = first.content if isinstance(first, Pending) else first[fields.M_CONTENT]
        one = self.writer(spec_id, content)
        on_disk = [item for item in items if not isinstance(item, Pending)]
        read = iter(self.table.entries(on_disk))
        for item in items:
            entries: Iterable[Entry] = item.entries if isinstance(item, Pending) else next(read)
            for entry in entries:
                one.put(entry)
        return self.close(one)


Make = Callable[[SnapshotProducer], Snapshot]
"""Writes the snapshot of a change."""


def _least(items: Sequence[Item]) -> list[int]:
    """Return the lowest data sequence number of each manifest with live files."""
    found = []
    for one in items:
        if isinstance(one, Pending):
            found += [
                e.sequence for e in one.entries if e.status != DELETED and e.sequence is not None
            ]
        else:
            found.append(int(one[fields.M_MIN_SEQUENCE]))
    return found
