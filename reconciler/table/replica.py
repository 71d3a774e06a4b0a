"""What a table says of its replica: a second table with the same rows, laid out by another tree of
cuts (Yang et al., "Qd-tree", section 6.3).

The record is a property of the source. It names one snapshot of the replica, whose rows were
compared with those of one snapshot of the source. Whoever writes rows to either table makes another
snapshot, so that a replica of other rows is never taken for one of the same rows. A build that ends
half-way leaves a snapshot that no record names.

A table is written to only if it says whose replica it is, and if whoever changed its rows last was
a build of ours. Commits of ours to the source change no rows, whatever operation they name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any

from reconciler.table.audits import AUDIT
from reconciler.table.block_ids import MOST_TREE_BYTES, owned_column
from reconciler.table.cut_tree import NotATree, Tree, tree_of
from reconciler.table.metadata import TableMetadata
from reconciler.table.retention import Snapshot, SnapshotLog
from reconciler.table.schema import Field, Schema
from reconciler.table.summary_keys import ATTEMPT_ID, only_appends
from reconciler.table.times import DAY_MS, HOUR_MS

RECORD = "layout.replica"
"""Property of the source: the record."""
OF = "layout.replica.of"
"""Property of the replica, and key in the summary of each snapshot that a build makes of it: UUID
of the table whose rows it holds. Only such a table is written."""
KEPT_MS = 5 * DAY_MS
"""Time for which the rows that a build replaces stay for queries that read them, where the policy
expires no snapshots and the table does not say for how long they stay: Iceberg's own default."""
LEAST_KEPT_MS = HOUR_MS
"""The same at least, in milliseconds, wherever the budget has room for both."""
SAME_ROWS = "replace"
"""The operation of Iceberg's specification that exchanges files for others with the same rows."""
COPIED = frozenset(
    ("boolean", "int", "long", "float", "double", "date", "timestamp", "timestamptz", "string",
     "binary")
)  # fmt: skip
"""Types that Spark writes as it reads them; and decimals."""


@dataclass(frozen=True, slots=True)
class WantedReplica:
    """spec.layout.clustering.qdTree.replica, with how often the table changes."""

    table: str
    """Name of the replica, in the table's namespace."""
    budget_bytes: int
    """Bytes of storage that it may take."""
    changed_ms: float = math.inf
    """Mean time between commits that change or append rows, in milliseconds; infinite where the
    history has no two of them."""
    rebuilt_ms: float = math.inf
    """The same between commits after which only a whole build helps."""
    kept_ms: int = KEPT_MS
    """Milliseconds for which the rows that a build replaces stay for queries that read them."""
    foreign: str = ""
    """Why no build may write to the table of that name, "" if one may or if nobody looked."""
    lost: str = ""
    """Why that table is not the one that the source's record names, "" if it is, if there is no
    record or if nobody looked."""


@dataclass(frozen=True, slots=True)
class SeenReplica:
    """The table that has a replica's name, as the catalog has it."""

    uuid: str = ""
    """Its UUID, "" if there is no table of that name."""
    schema_id: int = 0
    """Id of its schema."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Its properties."""
    main: tuple[Snapshot, ...] = ()
    """Its retained snapshots from the head back."""
    unreadable: str = ""
    """Why it could not be looked at, "" if it was."""


class Standing(StrEnum):
    """How a replica stands beside its source."""

    FRESH = "fresh"
    """It has the source's rows."""
    BEHIND = "behind"
    """Rows were appended to the source since, and nothing else has changed."""
    STALE = "stale"
    """Its rows may be others; only a whole build mends that."""


@dataclass(frozen=True, slots=True)
class Replica:
    """The record of a replica whose rows were compared."""

    table: str
    """Name of the replica, in the source's namespace."""
    uuid: str
    """UUID of the replica."""
    snapshot_id: int
    """The snapshot of the replica that was compared."""
    source_snapshot_id: int
    """The snapshot of the source that it was compared with."""
    schema_id: int
    """Id of the source's schema then."""
    tree: Tree
    """The tree of cuts that lays out its rows."""
    built_bytes: int
    """Bytes of its files after the last whole build."""
    bytes: int
    """Bytes of its files."""
    own_schema_id: int
    """Id of the replica's schema then: a column that is dropped and added again under its name is
    empty."""

    @property
    def text(self) -> str:
        """Return the value of the property."""
        body = {
            "table": self.table, "uuid": self.uuid, "snapshot": str(self.snapshot_id),
            "sourceSnapshot": str(self.source_snapshot_id), "schema": self.schema_id,
            "tree": self.tree.text, "builtBytes": self.built_bytes, "bytes": self.bytes,
            "ownSchema": self.own_schema_id,
        }  # fmt: skip
        return json.dumps(body, sort_keys=True)


def replica_of(properties: Mapping[str, str]) -> Replica | None:
    """Return the record among a table's properties; None without one that can be read."""
    try:
        body = json.loads(properties[RECORD])
        return Replica(
            str(body["table"]), str(body["uuid"]), int(body["snapshot"]),
            int(body["sourceSnapshot"]), int(body["schema"]), tree_of(str(body["tree"])),
            int(body["builtBytes"]), int(body["bytes"]), int(body["ownSchema"]),
        )  # fmt: skip
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError, NotATree):
        return None


@dataclass(frozen=True, slots=True)
class Since:
    """What happened to the source since a snapshot."""

    standing: Standing
    """How the rows of that snapshot stand beside the present ones."""
    why: str = ""
    """Why they are others; "" for FRESH."""
    appended: tuple[int, ...] = ()
    """Snapshots that appended rows since, oldest first; for BEHIND."""


def changes_rows(one: Snapshot) -> bool:
    """Whether a commit to a table may have changed its rows. Ours never does."""
    ours = ATTEMPT_ID in one.summary or AUDIT in one.summary
    return one.operation != SAME_ROWS and not ours


def since(snapshot_id: int, main: Sequence[Snapshot]) -> Since:
    """Return what happened since a snapshot, which may be the first that has expired. main: the
    retained snapshots from the head back, each the parent of the one before it."""
    appended = list[int]()
    for one in main:
        if one.id == snapshot_id:
            return _since(appended)
        if changes_rows(one) and only_appends(one.operation, one.summary):
            appended.append(one.id)
        elif changes_rows(one):
            why = f"a commit has changed rows since (operation {one.operation or 'unknown'})"
            return Since(Standing.STALE, why)
    if main and main[-1].parent == snapshot_id:
        return _since(appended)
    return Since(Standing.STALE, "the snapshot that it was built from is not in the history")


def _since(appended: Sequence[int]) -> Since:
    if not appended:
        return Since(Standing.FRESH)
    why = f"{len(appended)} commits have appended rows since"
    return Since(Standing.BEHIND, why, tuple(reversed(appended)))


def kept_record(
    properties: Mapping[str, str], main: Sequence[Snapshot], expired: Collection[int]
) -> dict[str, str]:
    """Return the properties to set when snapshots of the source expire, so that it stays known
    whose rows the replica has: the record then names the newest snapshot with the same rows. main:
    the retained snapshots, newest first."""
    record, ids = replica_of(properties), [one.id for one in main]
    if record is None or not main:
        return {}
    ids.append(main[-1].parent or 0)  # it has expired, and may be the one that is named
    if record.source_snapshot_id not in ids:
        return {}
    named = place = ids.index(record.source_snapshot_id)
    if ids[min(named, len(main) - 1)] not in expired:
        return {}
    while place and not changes_rows(main[place - 1]):
        place -= 1
    if place == named:
        return {}
    return {RECORD: replace(record, source_snapshot_id=ids[place]).text}


def standing(record: Replica, metadata: TableMetadata) -> Since:
    """Return how a replica stands beside the source with this metadata, by the source alone."""
    if metadata.schema_id != record.schema_id:
        return Since(Standing.STALE, "the table's schema has changed since")
    return since(record.source_snapshot_id, metadata.log.main)


def covers(record: Replica, snapshot_id: int, metadata: TableMetadata) -> bool:
    """Whether the replica was compared with this snapshot of main, or with a later one."""
    ids = [one.id for one in metadata.log.main]
    if record.source_snapshot_id not in ids or snapshot_id not in ids:
        return False
    return ids.index(record.source_snapshot_id) <= ids.index(snapshot_id)


def not_the_recorded(record: Replica, uuid: str, schema_id: int, main: Sequence[Snapshot]) -> str:
    """Return why a table is not the replica of the record, "" if it is. uuid, schema_id, main: of
    the table; main: its snapshots."""
    if uuid != record.uuid:
        return "it is another table than the one that was built"
    if schema_id != record.own_schema_id:
        return "its columns have been changed since it was built"
    found = since(record.snapshot_id, main)
    if found.standing is Standing.FRESH:
        return ""
    return "somebody else has written to it, or a build has not ended"


def not_ours(
    source: str, properties: Mapping[str, str], main: Sequence[Snapshot], record: Replica | None
) -> str:
    """Return why a build may not write to a table, "" if it may. source: UUID of the table that it
    would be the replica of. properties, main: of the table, the newest snapshot first. record: of
    the source."""
    if properties.get(OF) != source:
        return "it is no replica of this table"
    recorded = None if record is None else record.snapshot_id
    for one in main:
        if one.summary.get(OF) == source or one.id == recorded:
            return ""
        if changes_rows(one):
            return "somebody else has written rows to it"
    if not main or (recorded is not None and main[-1].parent == recorded):
        return ""
    return "its history does not show who wrote its rows"


def replaced(log: SnapshotLog, kept_ms: int, now_ms: int) -> tuple[int, ...]:
    """Return the snapshots of a replica that may expire: those that are no branch's or tag's, and
    that another one replaced longer ago than so many milliseconds. Their own age does not count:
    queries read a snapshot until it is replaced."""
    ordered = sorted(log.snapshots, key=lambda one: one.timestamp_ms)
    return tuple(
        one.id
        for one, after in pairwise(ordered)
        if one.id not in log.heads and after.timestamp_ms < now_ms - kept_ms
    )


def hindrance(schema: Schema, metadata: TableMetadata, tree: Tree | None = None) -> str:
    """Return why a table can have no replica, "" if it can. tree: of the replica, if known."""
    if OF in metadata.properties:
        return "it is a replica itself"
    if owned_column(metadata) is not None:
        return "it has a column of block ids, whose values rewrites change"
    other = next((one for one in schema.fields if not _is_copied(one)), None)
    if other is not None:
        return f'its column "{other.name}" has type {other.type}, which Spark does not write alike'
    if schema.alike or schema.reserved:
        return "Spark cannot tell some of its columns apart"
    if tree is not None and len(tree.text) > MOST_TREE_BYTES:
        return "its tree is too large for a property"
    return ""


def _is_copied(field: Field) -> bool:
    return field.type in COPIED or field.type.startswith("decimal")


def columns_differ(source: Schema, other: Schema) -> bool:
    """Whether two tables have other columns: other names, types or orders of them."""

    def shown(schema: Schema) -> list[Any]:
        return [(one.path, one.type, one.repeated) for one in schema.fields]

    return shown(source) != shown(other)


def grown(record: Replica, snapshot_id: int, source_snapshot_id: int, size: int) -> Replica:
    """Return the record after rows were appended. size: bytes of all files."""
    return replace(
        record, snapshot_id=snapshot_id, source_snapshot_id=source_snapshot_id, bytes=size
    )
