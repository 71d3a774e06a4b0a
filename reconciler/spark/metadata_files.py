"""Removes the manifests and manifest lists of our commits, when that is safe.

Iceberg deletes them by itself when a commit fails. But a commit may succeed although it was
reported as failed (sent again by a gateway, an HTTP client or a database driver), and then Iceberg
would delete the files of the live snapshot. So our commits delete nothing: they only note what
Iceberg would have deleted, and the files are removed here, after history was searched.

Their names contain a random UUID of the commit, which the ledger records before the first file is
written. It identifies them after a crash, and no other writer's file has it.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from reconciler.spark import cleanup, iceberg
from reconciler.spark.iceberg import LiveTable

PRODUCER = "org.apache.iceberg.SnapshotProducer"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A commit before it is sent. uuid: in the names of its files, "" if unknown.

    unwanted: a java.util.Queue of the files that Iceberg wanted to delete.
    """

    update: Any
    uuid: str
    unwanted: Any


def prepare(spark: Any, update: Any) -> Prepared:
    """Return the prepared commit; its SnapshotUpdate no longer deletes files itself."""
    unwanted = spark._jvm.java.util.concurrent.ConcurrentLinkedQueue()
    add = iceberg.method(spark, "java.util.Collection", "add", "boolean", "java.lang.Object")
    update.deleteWith(iceberg.as_lambda(spark, "java.util.function.Consumer", add.bindTo(unwanted)))
    return Prepared(update, _commit_uuid(spark, update), unwanted)


def _commit_uuid(spark: Any, update: Any) -> str:
    """Return the commit's UUID, which Iceberg does not publish; "" if a version has another
    field."""
    from py4j.protocol import Py4JJavaError

    with contextlib.suppress(Py4JJavaError):
        field = iceberg.java_class(spark, PRODUCER).getDeclaredField("commitUUID")
        field.setAccessible(True)
        return str(field.get(update))
    return ""


def remove_unwanted(live: LiveTable, prepared: Prepared, committed: int | None) -> None:
    """Remove the files that Iceberg wanted to delete, except those of the committed snapshot.

    committed: None if the commit certainly failed. A file that cannot be removed stays.
    """
    if prepared.unwanted.isEmpty():
        return
    kept = _files_of(live, committed)
    if kept is None:
        return
    unwanted = [str(path) for path in iceberg.each(prepared.unwanted)]
    delete(live, (path for path in unwanted if path not in kept))


def tidy(live: LiveTable, prepared: Prepared, committed: int, answered: bool) -> None:
    """Remove the files of a commit's other attempts; if that fails, the commit still counts as
    done.

    answered: Iceberg knows that it is done, and named the files.
    """
    with contextlib.suppress(Exception):
        if answered:
            remove_unwanted(live, prepared, committed)
        else:
            remove_of_commits(live, (prepared.uuid,), committed)


def remove_of_commits(
    live: LiveTable, commits: Collection[str], committed: int | None
) -> tuple[int, int]:
    """Remove the files of commits by their UUIDs, except those of the committed snapshot.

    Returns their number and bytes. Call it with None only for commits that did not succeed and
    cannot succeed any more, or whose snapshot was dropped. What a snapshot of the table needs
    stays: somebody may have made a tag on it meanwhile.
    """
    known = [commit for commit in commits if _is_uuid(commit)]
    kept = _files_of(live, committed)
    if not known or kept is None:
        return 0, 0
    for snapshot in iceberg.each(live.table.snapshots()):
        if is_file_of(_name(str(snapshot.manifestListLocation())), known):
            kept |= _files_of(live, int(snapshot.snapshotId())) or set()
    some = str(live.table.operations().metadataFileLocation("x"))
    directory = some.rpartition("/")[0]
    found = cleanup.listing(live.spark, live.table, directory)
    kept_names = {_name(path) for path in kept}
    removable = {
        path: size
        for path, size in found.items()
        if is_file_of(_name(path), known) and _name(path) not in kept_names
    }
    for path in removable:
        live.table.io().deleteFile(path)
    return len(removable), sum(removable.values())


def own_files(live: LiveTable, snapshots: Iterable[Any]) -> list[str]:
    """Return the manifest lists of the snapshots, and the manifests that their commits wrote."""
    found: list[str] = []
    for snapshot in snapshots:
        path = str(snapshot.manifestListLocation())
        found.append(path)
        commit = _name(path).removesuffix(".avro").split("-", 3)[-1]
        if _is_uuid(commit):
            files = _files_of(live, int(snapshot.snapshotId())) or set()
            found += [file for file in files if is_file_of(_name(file), (commit,))]
    return list(dict.fromkeys(found))


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


def _files_of(live: LiveTable, snapshot_id: int | None) -> set[str] | None:
    """Return the snapshot's manifest list and manifests; None if they are unknown because it
    expired."""
    if snapshot_id is None:
        return set()
    snapshot = live.table.snapshot(snapshot_id)
    if snapshot is None:
        return None
    manifests = snapshot.allManifests(live.table.io())
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
