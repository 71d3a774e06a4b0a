"""Files that snapshots of a table refer to, and those that only expired ones did."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from reconciler.catalog.listing import Resolver
from reconciler.commit import fields
from reconciler.commit.manifest import DELETED, ManifestFile
from reconciler.commit.table import LiveTable
from reconciler.table.orphans import Candidates, Listed
from reconciler.table.paths import is_local, key_of


@dataclass(frozen=True)
class Reached:
    """What the snapshots of one state of a table refer to."""

    lists: frozenset[str]
    """Manifest lists."""
    manifests: Mapping[str, ManifestFile]
    """Manifests by path."""
    statistics: Mapping[str, int]
    """Bytes of statistics files by path."""


def reached(table: LiveTable) -> Reached:
    """Return what the table refers to, as last refreshed. No manifest is read."""
    snapshots = table.state.snapshots
    found = {
        str(one[fields.M_PATH]): one
        for snapshot_id in snapshots
        for one in table.manifests(snapshot_id)
    }
    statistics = {
        str(one["statistics-path"]): int(one.get("file-size-in-bytes", -1))
        for kind in ("statistics", "partition-statistics")
        for one in table.state.metadata.get(kind) or ()
    }
    lists = frozenset(str(one["manifest-list"]) for one in snapshots.values())
    return Reached(lists, found, statistics)


def mentioned(table: LiveTable, paths: Collection[str]) -> list[str]:
    """Return what any snapshot refers to and may mean one of the paths, however it is spelled: on a
    local file system everything, since links give a file other names."""
    found = reached(table)
    names = {_last(path) for path in paths}
    every = {
        *found.lists, *found.manifests, *found.statistics,
        *(entry.file.path for entries in table.entries(list(found.manifests.values()))
          for entry in entries),
    }  # fmt: skip
    return sorted(path for path in every if is_local(path) or _last(path) in names)


def _last(path: str) -> str:
    return key_of(path).rpartition("/")[2]


def unneeded(
    table: LiveTable, before: Reached, after: Reached, roots: Collection[str]
) -> dict[str, int]:
    """Return the files that `before` refers to and `after` does not: bytes by path, -1 where no
    metadata holds them.

    A file that was live in an expired snapshot is an entry of a manifest of that snapshot. It is
    needed if that manifest is, or if another one that is needed has it. A path that may mean a
    needed file, in another spelling or through a link, is not named. roots: locations that the
    table's files lie below.
    """
    gone = [one for path, one in before.manifests.items() if path not in after.manifests]
    found = dict.fromkeys(before.lists - after.lists, -1)
    found |= {k: v for k, v in before.statistics.items() if k not in after.statistics}
    needed = {*after.lists, *after.manifests, *after.statistics}
    if gone:
        found |= {str(m[fields.M_PATH]): int(m[fields.M_LENGTH]) for m in gone}
        found |= _live(table, gone)
        needed |= _live(table, after.manifests.values()).keys()
    left = Candidates([Listed(path, size, 0) for path, size in found.items()], *roots)
    Resolver().strike(left, needed)
    return {file.path: file.size for file in left.oldest()}


def _live(table: LiveTable, manifests: Iterable[ManifestFile]) -> dict[str, int]:
    return {
        entry.file.path: entry.file.size
        for entries in table.entries(list(manifests))
        for entry in entries
        if entry.status != DELETED
    }
