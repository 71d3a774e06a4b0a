"""Files that snapshots of a table refer to, and those that only expired ones did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reconciler.commit import fields
from reconciler.commit.manifest import DELETED, ManifestFile
from reconciler.commit.table import LiveTable


@dataclass(frozen=True)
class Reached:
    """What the snapshots of one state of a table refer to."""

    lists: frozenset[str]
    """Manifest lists."""
    manifests: Mapping[str, ManifestFile]
    """Manifests by path."""


def reached(table: LiveTable) -> Reached:
    """Return what the table refers to, as last refreshed. No manifest is read."""
    snapshots = table.state.snapshots
    found = {
        str(one[fields.M_PATH]): one
        for snapshot_id in snapshots
        for one in table.manifests(snapshot_id)
    }
    return Reached(frozenset(str(one["manifest-list"]) for one in snapshots.values()), found)


def unneeded(table: LiveTable, before: Reached, after: Reached) -> dict[str, int]:
    """Return the files that `before` refers to and `after` does not: bytes by path, -1 where no
    metadata holds them.

    A file that was live in an expired snapshot is an entry of a manifest of that snapshot. It is
    needed if that manifest is, or if another one that is needed has it.
    """
    gone = [one for path, one in before.manifests.items() if path not in after.manifests]
    found = dict.fromkeys(before.lists - after.lists, -1)
    if not gone:
        return found
    kept = _live(table, after.manifests.values())
    content = {
        path: size for path, size in _live(table, gone).items() if path not in kept
    }  # fmt: skip
    return {**found, **{str(m[fields.M_PATH]): int(m[fields.M_LENGTH]) for m in gone}, **content}


def _live(table: LiveTable, manifests: Iterable[ManifestFile]) -> dict[str, int]:
    return {
        entry.file.path: entry.file.size
        for entries in table.entries(list(manifests))
        for entry in entries
        if entry.status != DELETED
    }
