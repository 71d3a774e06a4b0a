"""What a table says of its replica: a second table with the same rows, laid out by another tree of
cuts (Yang et al., "Qd-tree", section 6.3).

The record is a property of the source. It names one snapshot of the replica, whose rows were
compared with those of one snapshot of the source. Whoever writes to either table makes another
snapshot, so that a replica of other rows is never taken for one of the same rows. A build that ends
half-way leaves a snapshot that no record names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from reconciler.table.block_ids import MOST_TREE_BYTES, owned_column
from reconciler.table.cut_tree import NotATree, Tree, tree_of
from reconciler.table.metadata import TableMetadata
from reconciler.table.retention import Snapshot
from reconciler.table.schema import Field, Schema

RECORD = "layout.replica"
"""Property of the source: the record."""
OF = "layout.replica.of"
"""Property of the replica: UUID of the table whose rows it holds. Only such a table is written."""
SAME_ROWS, ADDS_ROWS = "replace", "append"
"""Operations of Iceberg's specification: files are exchanged for others with the same rows, or
files are added and nothing else."""
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
    """By which its rows are laid out."""
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


def since(snapshot_id: int, main: Sequence[tuple[int, str]]) -> Since:
    """Return what happened since a snapshot. main: id and operation of the retained snapshots from
    the head back, each the parent of the one before it."""
    appended = list[int]()
    for number, operation in main:
        if number == snapshot_id:
            if not appended:
                return Since(Standing.FRESH)
            why = f"{len(appended)} commits have appended rows since"
            return Since(Standing.BEHIND, why, tuple(reversed(appended)))
        if operation == ADDS_ROWS:
            appended.append(number)
        elif operation != SAME_ROWS:
            why = f"a commit has changed rows since (operation {operation or 'unknown'})"
            return Since(Standing.STALE, why)
    return Since(Standing.STALE, "the snapshot that it was built from is not in the history")


def line_of(main: Iterable[Snapshot]) -> list[tuple[int, str]]:
    """Return `since`'s view of main, newest first."""
    return [(one.id, one.operation) for one in main]


def standing(record: Replica, metadata: TableMetadata) -> Since:
    """Return how a replica stands beside the source with this metadata, by the source alone."""
    if metadata.schema_id != record.schema_id:
        return Since(Standing.STALE, "the table's schema has changed since")
    return since(record.source_snapshot_id, line_of(metadata.log.main))


def covers(record: Replica, snapshot_id: int, metadata: TableMetadata) -> bool:
    """Whether the replica was compared with this snapshot of main, or with a later one."""
    ids = [one.id for one in metadata.log.main]
    if record.source_snapshot_id not in ids or snapshot_id not in ids:
        return False
    return ids.index(record.source_snapshot_id) <= ids.index(snapshot_id)


def not_the_recorded(
    record: Replica, uuid: str, schema_id: int, main: Sequence[tuple[int, str]]
) -> str:
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
