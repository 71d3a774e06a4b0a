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
from reconciler.table.summary_keys import ATTEMPT_ID
from reconciler.table.times import HOUR_MS


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """One snapshot of the table's history."""

    snapshot_id: int
    """Id of the snapshot."""
    sequence_number: int
    """Its sequence number."""
    timestamp_ms: int
    """Its commit time in epoch milliseconds."""
    operation: str
    """"append", "overwrite", "replace" or "delete"; "" if missing."""
    summary: Mapping[str, str]
    """Its summary properties."""

    @property
    def ours(self) -> bool:
        """Whether we committed it, to main or to a branch that a person has published."""
        return ATTEMPT_ID in self.summary or AUDIT in self.summary


@dataclass(frozen=True, slots=True)
class RefInfo:
    """A branch or a tag."""

    name: str
    """Its name."""
    type: str
    """"branch" or "tag"."""
    snapshot_id: int
    """Id of its snapshot."""


RECENT_MS = HOUR_MS
"""How far back other writers' changes are looked for, if no quiet period is longer."""


@dataclass(frozen=True, slots=True)
class RecentWrite:
    """Another writer's overwrite or delete."""

    snapshot_id: int
    """Id of its snapshot."""
    timestamp_ms: int
    """Time of the commit, in epoch milliseconds."""
    operation: str
    """The snapshot's operation."""
    partitions: tuple[tuple[int, Partition], ...]
    """Spec id and values of each partition that it changed."""


@dataclass(frozen=True, slots=True)
class DeleteLoad:
    """The live deletes of the snapshot in figures. Deletion vectors are counted apart from position
    delete files."""

    position_files: int = 0
    """Number of position delete files."""
    partition_files: int = 0
    """Number of these that apply to a whole partition."""
    position_rows: int = 0
    """Rows that position delete files delete, without files that apply to no live data file."""
    vectors: int = 0
    """Number of deletion vectors."""
    vector_rows: int = 0
    """Rows that vectors delete, without vectors of data files that are gone."""
    equality_files: int = 0
    """Number of equality delete files."""
    equality_rows: int = 0
    """Number of keys in them."""
    dangling: int = 0
    """Number of delete files of any kind that apply to no live data file."""
    bytes: int = 0
    """Bytes of all of them."""
    paths: frozenset[str] = frozenset()
    """Paths of the files; several vectors may share one."""

    @property
    def files(self) -> int:
        return self.position_files + self.vectors + self.equality_files


@dataclass(frozen=True)
class Observation:
    """One table at one snapshot."""

    catalog: str
    """Name of the catalog."""
    identifier: tuple[str, ...]
    """Levels of the table's name, the table last."""
    uuid: str
    """UUID of the table."""
    format_version: int
    """Version of Apache Iceberg's table specification."""
    location: str
    """The table's location."""
    metadata_location: str
    """Path of the metadata file that was read."""
    metadata: TableMetadata
    """Properties, sort order, specs and snapshots."""
    snapshot_id: int | None
    """The head of main; None for an empty table."""
    snapshot_ms: int
    """Commit time of the head in epoch milliseconds."""
    sequence_number: int
    """The table's last sequence number."""
    sort_order_id: int
    """Id of the default sort order."""
    sort_order_text: str
    """The default sort order as people write it, "" when unsorted."""
    refs: tuple[RefInfo, ...]
    """The branches and tags."""
    ancestry: tuple[SnapshotInfo, ...]
    """The retained snapshots from the head back, newest first."""
    other_snapshots: tuple[SnapshotInfo, ...]
    """The retained snapshots outside the ancestry: of branches, and staged commits."""
    files: FileTable
    """The live data files."""
    deletes: DeleteLoad
    """The live deletes in figures."""
    recent_writes: tuple[RecentWrite, ...]
    """Recent overwrites and deletes by other writers."""
    manifests: int
    """Number of live manifests."""
    manifests_read: int
    """Number of these that were decoded now; the others came from the cache."""
    bytes_read: int
    """Bytes of manifests read now."""
    seconds: float
    """Seconds that it took after the catalog's answer."""
    delete_files: DeleteTable = NO_DELETE_FILES
    """The live deletes one by one."""
    doubled_vectors: tuple[str, ...] = ()
    """Paths of data files with two deletion vectors, which make the table unreadable."""
    operations: Operations = NO_OPERATIONS
    """Row-level operations of the retained history."""
    manifest_table: ManifestTable = NO_MANIFESTS
    """The live manifests of data files."""
    waiting: tuple[WaitingBatch, ...] = ()
    """Batches of ours that wait on branches for approval."""
    published: FileTable | None = None
    """Main's files as they would be after the approval of what waits; None if nothing waits."""
    published_deletes: DeleteTable | None = None
    """Their delete files, which name the rows of `published`; None if nothing waits."""
    columns: Expected = NO_COLUMNS
    """What the schema says of the columns that files must hold."""
    ahead_ms: int = 0
    """Milliseconds from the time of the look to the latest time in the metadata; negative if that
    has passed."""

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
