"""Removes the manifests and manifest lists of our commits, when that is safe.

A library deletes them by itself when a commit fails. But a commit may succeed although it was
reported as failed (sent again by a gateway, an HTTP client or a database driver), and then it would
delete the files of the live snapshot. So our commits delete nothing: they only note what would have
been deleted, and the files are removed here, after history was searched. What any
snapshot since needs stays, whatever the search found: the commit's own snapshot may have expired
while its manifests are those of the head.

Their names contain a random UUID of the commit, which the ledger records before the first file is
written. It identifies them after a crash, and no other writer's file has it.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Collection, Iterable, Iterator

from reconciler.engines.commit import cleanup
from reconciler.engines.schedule.vanished import may_have_vanished
from reconciler.engines.snapshots import SnapshotInfo
from reconciler.engines.table import PendingCommit, Table
from reconciler.plan.execution import Intent
from reconciler.table.audits import AUDIT


def remove_unwanted(table: Table, change: PendingCommit) -> None:
    """Remove the files that a commit did not need, except those that a snapshot needs.

    Call it on the table as refreshed after the commit. A file that cannot be removed stays.
    """
    unwanted = change.unwanted()
    if unwanted:
        kept = _needed(table, change.base)
        cleanup.discard(table, (path for path in unwanted if path not in kept))


def tidy(table: Table, change: PendingCommit, answered: bool) -> None:
    """Remove the files of a commit's other attempts; if that fails, the commit still counts as
    done.

    answered: its sender knows that it is done, and named the files.
    """
    with contextlib.suppress(Exception):
        if answered:
            remove_unwanted(table, change)
        else:
            remove_of_commits(table, (change.uuid,), change.base)


def remove_of_commits(table: Table, commits: Collection[str], base: int) -> cleanup.Discarded:
    """Remove the files of commits by their UUIDs, except those that a snapshot needs.

    base: a snapshot before them. Call it only for commits that are done or cannot succeed any more,
    on the table as refreshed since.
    """
    known = [commit for commit in commits if _is_uuid(commit)]
    if not known:
        return cleanup.Discarded(0, 0, None)
    found = cleanup.listing(table, table.metadata_directory())
    kept = {_name(path) for path in _needed(table, base)}
    removable = {
        path: size
        for path, size in found.items()
        if is_file_of(_name(path), known) and _name(path) not in kept
    }
    return cleanup.discard(table, removable)


def of_commits(table: Table, directory: str, intents: Iterable[Intent]) -> dict[str, int]:
    """Return the bytes by path of what the commits of the intents wrote into the directory, needed
    or not."""
    known = [commit for one in intents for commit in one.commits if _is_uuid(commit)]
    if not known:
        return {}
    found = cleanup.listing(table, directory)
    return {path: size for path, size in found.items() if is_file_of(_name(path), known)}


def _needed(table: Table, base: int) -> set[str]:
    """Return the manifest lists and manifests of the snapshots that were added after `base`; of all
    snapshots if it expired."""
    return {path for one in table.added_since(base) for path in _files_of(table, one)}


def added_by(table: Table, commits: Collection[str], base: int) -> Iterator[int]:
    """Yield the ids of the snapshots that the commits added after `base`, as far as a snapshot
    still has a manifest of theirs. They may have expired: later snapshots keep the manifests."""
    known = [commit for commit in commits if _is_uuid(commit)]
    for snapshot in table.added_since(base):
        if not any(is_file_of(_name(path), known) for path in _files_of(table, snapshot)):
            continue
        for path, added in table.manifests(snapshot.id).items():
            if is_file_of(_name(path), known):
                yield added


def own_files(table: Table, snapshot: SnapshotInfo) -> list[str]:
    """Return the manifest list of the snapshot, and the manifests that its commit wrote."""
    path = snapshot.manifest_list
    commit = _name(path).removesuffix(".avro").split("-", 3)[-1]
    written = _files_of(table, snapshot) if _is_uuid(commit) else ()
    return [
        path,
        *(file for file in written if file != path and is_file_of(_name(file), (commit,))),
    ]


def delete_unneeded(table: Table, paths: Iterable[str], base: int) -> None:
    """Remove files of snapshots that are gone from the table, except those that a snapshot needs.

    A snapshot may need them although it is no descendant any more: what was between them may have
    expired. Nothing is removed where that cannot be read. base: a snapshot before those.
    """
    try:
        kept = {_name(path) for path in _needed(table, base)}
    except Exception as error:
        if table.errors.lost(error):
            raise
        return
    cleanup.discard(table, (path for path in paths if _name(path) not in kept))


def is_file_of(name: str, commits: Iterable[str]) -> bool:
    """Whether the file is a manifest or a manifest list that one of the commits wrote."""
    return any(
        re.fullmatch(rf"(snap-\d+-\d+-{commit}|{commit}-m\d+)\.(avro|parquet)", name)
        for commit in commits
    )


def _files_of(table: Table, snapshot: SnapshotInfo) -> set[str]:
    """Return the snapshot's manifest list and manifests.

    Those of an audit's snapshot may be gone: its commit reached the branch after it was settled.
    """
    try:
        return {snapshot.manifest_list, *table.manifests(snapshot.id)}
    except Exception as error:
        if AUDIT not in snapshot.summary or not may_have_vanished(table.errors, error):
            raise
        return {snapshot.manifest_list}


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def _name(path: str) -> str:
    return path.rpartition("/")[2]
