"""Files that snapshots of a table refer to, and those that only expired ones did."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

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
    held: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Paths of the manifests that each manifest list names."""


def reached(
    table: LiveTable, expiring: Collection[int] = (), known: Reached | None = None
) -> Reached:
    """Return what the table refers to, as last refreshed. No manifest is read.

    expiring: snapshots whose manifest lists may be missing: another engine's expiry may have been
    interrupted; fewer files are found to be unneeded then. known: what the table referred to
    before, whose manifest lists are not read again: such a file never changes.
    """
    lists = {number: str(one["manifest-list"]) for number, one in table.state.snapshots.items()}
    needed = {path for number, path in lists.items() if number not in expiring}
    held = {} if known is None else {p: known.held[p] for p in lists.values() if p in known.held}
    found = {path: known.manifests[path] for own in held.values() for path in own} if known else {}
    new = [path for path in dict.fromkeys(lists.values()) if path not in held]
    for path, own in zip(new, table.lists(new, set(new) - needed), strict=True):
        if own is not None:
            found.update((str(one[fields.M_PATH]), one) for one in own)
            held[path] = tuple(str(one[fields.M_PATH]) for one in own)
    statistics = {
        str(one["statistics-path"]): int(one.get("file-size-in-bytes", -1))
        for kind in ("statistics", "partition-statistics")
        for one in table.state.metadata.get(kind) or ()
    }
    return Reached(frozenset(held), found, statistics, held)


def mentioned(table: LiveTable, paths: Collection[str]) -> list[str]:
    """Return what any snapshot refers to and may mean one of the paths, however it is spelled: on a
    local file system everything, since links give a file other names."""
    found, names = reached(table), {_last(path) for path in paths}
    content = (
        one.path for named in table.each_named(list(found.manifests.values())) for one in named
    )
    every = itertools.chain(found.lists, found.manifests, found.statistics, content)
    return sorted({path for path in every if is_local(path) or _last(path) in names})


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
        found |= _live(table, gone, may_miss=True)
        needed |= _live(table, after.manifests.values()).keys()
    left = Candidates([Listed(path, size, 0) for path, size in found.items()], *roots)
    Resolver().strike(left, needed)
    return {file.path: file.size for file in left.oldest()}


def _live(
    table: LiveTable, manifests: Iterable[ManifestFile], may_miss: bool = False
) -> dict[str, int]:
    return {
        one.path: one.size
        for named in table.each_named(list(manifests), may_miss)
        for one in named
        if one.status != DELETED
    }
