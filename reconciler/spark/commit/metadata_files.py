"""Removes the manifests and manifest lists of our commits, when that is safe.

Iceberg deletes them by itself when a commit fails. But a commit may succeed although it was
reported as failed (sent again by a gateway, an HTTP client or a database driver), and then Iceberg
would delete the files of the live snapshot. So our commits delete nothing: they only note what
Iceberg would have deleted, and the files are removed here, after history was searched. What any
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
from dataclasses import dataclass
from typing import Any

from reconciler.plan.execution import Intent
from reconciler.spark.commit import cleanup
from reconciler.spark.schedule.vanished import may_have_vanished
from reconciler.spark.session import iceberg
from reconciler.spark.session.iceberg import LiveTable
from reconciler.table.audits import AUDIT

PRODUCER = "org.apache.iceberg.SnapshotProducer"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A commit before it is sent. uuid: in the names of its files, "" if unknown.

    unwanted: a java.util.Queue of the files that Iceberg wanted to delete. base: the head before
    it, 0 if there is none; only later snapshots can need its files.
    """

    update: Any
    uuid: str
    unwanted: Any
    base: int


def prepare(spark: Any, table: Any, update: Any) -> Prepared:
    """Return the prepared commit; its SnapshotUpdate no longer deletes files itself.

    table: as it was when the update was made.
    """
    head = table.currentSnapshot()
    unwanted = spark._jvm.java.util.concurrent.ConcurrentLinkedQueue()
    add = iceberg.method(spark, "java.util.Collection", "add", "boolean", "java.lang.Object")
    update.deleteWith(iceberg.as_lambda(spark, "java.util.function.Consumer", add.bindTo(unwanted)))
    base = 0 if head is None else int(head.snapshotId())
    return Prepared(update, _commit_uuid(spark, update), unwanted, base)


def _commit_uuid(spark: Any, update: Any) -> str:
    """Return the commit's UUID, which Iceberg does not publish; "" if a version has another
    field."""
    from py4j.protocol import Py4JJavaError

    with contextlib.suppress(Py4JJavaError):
        field = iceberg.java_class(spark, PRODUCER).getDeclaredField("commitUUID")
        field.setAccessible(True)
        return str(field.get(update))
    return ""


def remove_unwanted(live: LiveTable, prepared: Prepared) -> None:
    """Remove the files that Iceberg wanted to delete, except those that a snapshot needs.

    Call it on the table as refreshed after the commit. A file that cannot be removed stays.
    """
    if prepared.unwanted.isEmpty():
        return
    kept = _needed(live, prepared.base)
    unwanted = [str(path) for path in iceberg.each(prepared.unwanted)]
    delete(live, (path for path in unwanted if path not in kept))


def tidy(live: LiveTable, prepared: Prepared, answered: bool) -> None:
    """Remove the files of a commit's other attempts; if that fails, the commit still counts as
    done.

    answered: Iceberg knows that it is done, and named the files.
    """
    with contextlib.suppress(Exception):
        if answered:
            remove_unwanted(live, prepared)
        else:
            remove_of_commits(live, (prepared.uuid,), prepared.base)


def remove_of_commits(live: LiveTable, commits: Collection[str], base: int) -> tuple[int, int]:
    """Remove the files of commits by their UUIDs, except those that a snapshot needs.

    base: a snapshot before them. Returns their number and bytes. Call it only for commits that are
    done or cannot succeed any more, on the table as refreshed since.
    """
    known = [commit for commit in commits if _is_uuid(commit)]
    if not known:
        return 0, 0
    some = str(live.table.operations().metadataFileLocation("x"))
    directory = some.rpartition("/")[0]
    found = cleanup.listing(live.spark, live.table, directory)
    kept = {_name(path) for path in _needed(live, base)}
    removable = {
        path: size
        for path, size in found.items()
        if is_file_of(_name(path), known) and _name(path) not in kept
    }
    for path in removable:
        live.table.io().deleteFile(path)
    return len(removable), sum(removable.values())


def of_commits(live: LiveTable, directory: str, intents: Iterable[Intent]) -> dict[str, int]:
    """Return the bytes by path of what the commits of the intents wrote into the directory, needed
    or not."""
    known = [commit for one in intents for commit in one.commits if _is_uuid(commit)]
    if not known:
        return {}
    found = cleanup.listing(live.spark, live.table, directory)
    return {path: size for path, size in found.items() if is_file_of(_name(path), known)}


def _needed(live: LiveTable, base: int) -> set[str]:
    """Return the manifest lists and manifests of the snapshots that were added after `base`."""
    added = iceberg.added_since(live.table.operations().current(), base)
    return {path for snapshot in added for path in _files_of(live, snapshot)}


def added_by(live: LiveTable, commits: Collection[str], base: int) -> Iterator[int]:
    """Yield the ids of the snapshots that the commits added after `base`, as far as a snapshot
    still has a manifest of theirs. They may have expired: later snapshots keep the manifests."""
    known = [commit for commit in commits if _is_uuid(commit)]
    for snapshot in iceberg.added_since(live.table.operations().current(), base):
        if not any(is_file_of(_name(path), known) for path in _files_of(live, snapshot)):
            continue
        for manifest in iceberg.each(snapshot.allManifests(live.table.io())):
            if is_file_of(_name(str(manifest.path())), known):
                yield int(manifest.snapshotId())


def own_files(live: LiveTable, snapshot: Any) -> list[str]:
    """Return the manifest list of the snapshot, and the manifests that its commit wrote."""
    path = str(snapshot.manifestListLocation())
    commit = _name(path).removesuffix(".avro").split("-", 3)[-1]
    written = _files_of(live, snapshot) if _is_uuid(commit) else ()
    return [
        path,
        *(file for file in written if file != path and is_file_of(_name(file), (commit,))),
    ]


def delete(live: LiveTable, paths: Iterable[str]) -> None:
    """Remove files; one that cannot be removed stays."""
    for path in paths:
        with contextlib.suppress(Exception):
            live.table.io().deleteFile(path)


def is_file_of(name: str, commits: Iterable[str]) -> bool:
    """Whether the file is a manifest or a manifest list that one of the commits wrote."""
    return any(
        re.fullmatch(rf"(snap-\d+-\d+-{commit}|{commit}-m\d+)\.(avro|parquet)", name)
        for commit in commits
    )


def _files_of(live: LiveTable, snapshot: Any) -> set[str]:
    """Return the snapshot's manifest list and manifests.

    Those of an audit's snapshot may be gone: its commit reached the branch after it was settled.
    """
    try:
        manifests = snapshot.allManifests(live.table.io())
    except Exception as error:
        if snapshot.summary().get(AUDIT) is None or not may_have_vanished(error):
            raise
        return {str(snapshot.manifestListLocation())}
    path = iceberg.method(live.spark, "org.apache.iceberg.ManifestFile", "path", "java.lang.String")
    function = iceberg.as_lambda(live.spark, "java.util.function.Function", path)
    lines = live.spark._jvm.java.util.stream.Collectors.joining("\n")
    paths = str(manifests.stream().map(function).collect(lines)).split("\n")
    return {str(snapshot.manifestListLocation()), *paths}


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def _name(path: str) -> str:
    return path.rpartition("/")[2]
