"""The result of one observation of a table: metadata, file table, recent writers, and its cost.

`reconciler.catalog.observe` fills it from a catalog; `reconciler.loop`, the CLI and the advisor
read it. Plain values only: nothing here can access the catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.table.audits import AUDIT, WaitingBatch
from reconciler.table.deletes import NO_DELETE_FILES, DeleteTable
from reconciler.table.filetable import FileTable, Partition
from reconciler.table.manifests import NO_MANIFESTS, ManifestTable
from reconciler.table.metadata import TableMetadata
from reconciler.table.operations import NO_OPERATIONS, Operations
from reconciler.table.physical import NO_COLUMNS, Expected
from reconciler.table.schema import Schema

ATTEMPT_ID = "layout.attempt-id"
"""Snapshot summary keys of our own commits (definitions: Action, group, commit batch)."""


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """One snapshot. operation: append | overwrite | replace | delete, "" if missing."""

    snapshot_id: int
    sequence_number: int
    timestamp_ms: int
    operation: str
    summary: Mapping[str, str]

    @property
    def ours(self) -> bool:
        """Whether we committed it, to main or to a branch that a person has published."""
        return ATTEMPT_ID in self.summary or AUDIT in self.summary


@dataclass(frozen=True, slots=True)
class RefInfo:
    """A named reference. type: "branch" | "tag"."""

    name: str
    type: str
    snapshot_id: int


RECENT_MS = 3_600_000
"""How far back other writers' changes are looked for, if no quiet period is longer."""


@dataclass(frozen=True, slots=True)
class RecentWrite:
    """Another writer's overwrite or delete. partitions: (spec id, values) that it changed."""

    snapshot_id: int
    timestamp_ms: int
    operation: str
    partitions: tuple[tuple[int, Partition], ...]


@dataclass(frozen=True, slots=True)
class DeleteLoad:
    """Live delete files of the snapshot, as counts, bytes and deleted rows (vectors apart).

    position_rows, vector_rows: without those of files that apply to no live data file.
    partition_files: position delete files that apply to a whole partition. equality_rows: keys.
    dangling: files of any kind that apply to no live data file. paths: of the files; several
    vectors may share one.
    """

    position_files: int = 0
    partition_files: int = 0
    position_rows: int = 0
    vectors: int = 0
    vector_rows: int = 0
    equality_files: int = 0
    equality_rows: int = 0
    dangling: int = 0
    bytes: int = 0
    paths: frozenset[str] = frozenset()

    @property
    def files(self) -> int:
        return self.position_files + self.vectors + self.equality_files


@dataclass(frozen=True)
class Observation:
    """One table at one snapshot.

    identifier: levels, the last one is the table's name. snapshot_id is None for an empty table.
    sort_order_text: the default sort order as people write it, "" when unsorted.
    ancestry: the retained snapshots from the head back, newest first.
    other_snapshots: retained snapshots outside the ancestry (branches, staged commits).
    manifests: live manifests; manifests_read of them were decoded now, the others came from the
    cache. bytes_read: manifest bytes read now. seconds: after the catalog's answer.
    doubled_vectors: data files with two deletion vectors, which makes the table unreadable.
    operations: row-level operations of the retained history. manifest_table: the live manifests
    of data files. waiting: batches of ours on branches, until a person approves them. published:
    main's files as they would be then, None if nothing waits. columns: what its files must hold.
    ahead_ms: the latest time in its metadata, from the time of the look; negative if it has passed.
    """

    catalog: str
    identifier: tuple[str, ...]
    uuid: str
    format_version: int
    location: str
    metadata_location: str
    metadata: TableMetadata
    snapshot_id: int | None
    snapshot_ms: int
    sequence_number: int
    sort_order_id: int
    sort_order_text: str
    refs: tuple[RefInfo, ...]
    ancestry: tuple[SnapshotInfo, ...]
    other_snapshots: tuple[SnapshotInfo, ...]
    files: FileTable
    deletes: DeleteLoad
    recent_writes: tuple[RecentWrite, ...]
    manifests: int
    manifests_read: int
    bytes_read: int
    seconds: float
    delete_files: DeleteTable = NO_DELETE_FILES
    doubled_vectors: tuple[str, ...] = ()
    operations: Operations = NO_OPERATIONS
    manifest_table: ManifestTable = NO_MANIFESTS
    waiting: tuple[WaitingBatch, ...] = ()
    published: FileTable | None = None
    columns: Expected = NO_COLUMNS
    ahead_ms: int = 0

    @property
    def properties(self) -> Mapping[str, str]:
        return self.metadata.properties

    @property
    def schema(self) -> Schema:
        return self.files.schema

    @property
    def name(self) -> str:
        """Return catalog.namespace.table, with levels in backticks that need them."""
        return quoted_name((self.catalog, *self.identifier))


def quoted_name(levels: tuple[str, ...]) -> str:
    """Return the levels joined by dots; a level with a dot, a space or a backtick is quoted."""
    return ".".join(_quote(level) for level in levels)


def _quote(level: str) -> str:
    plain = level and not any(mark in level for mark in ".` \t\"'")
    return level if plain else "`" + level.replace("`", "``") + "`"
