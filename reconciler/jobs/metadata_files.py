"""The manifests and manifest lists that a commit of ours wrote, and when they may be removed.

Iceberg deletes them by itself when a commit fails. But a commit may have arrived although it was
answered as a failure (sent again by a gateway, an HTTP client or a database driver), and then
Iceberg deletes the files of the live snapshot. So a commit of ours deletes nothing: it only notes
what Iceberg would have deleted, and the files are removed here, once history was searched.

Their names carry a random UUID of the commit, which the ledger records before the first file is
written. It identifies them after a crash, and no other writer's file has it.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from reconciler.jobs import cleanup, iceberg
from reconciler.jobs.iceberg import LiveTable

PRODUCER = "org.apache.iceberg.SnapshotProducer"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A commit before it is sent. uuid: of the names of its files, "" if it cannot be known.
    unwanted: a java.util.Queue of the files that Iceberg wanted to delete."""

    update: Any
    uuid: str
    unwanted: Any


def prepare(spark: Any, update: Any) -> Prepared:
    """Takes the deletion of files from a new SnapshotUpdate."""
    unwanted = spark._jvm.java.util.concurrent.ConcurrentLinkedQueue()
    add = iceberg.method(spark, "java.util.Collection", "add", "boolean", "java.lang.Object")
    update.deleteWith(iceberg.as_lambda(spark, "java.util.function.Consumer", add.bindTo(unwanted)))
    return Prepared(update, _commit_uuid(spark, update), unwanted)


def _commit_uuid(spark: Any, update: Any) -> str:
    """Iceberg has no public name for it; a version that has another field gives ""."""
    from py4j.protocol import Py4JJavaError

    with contextlib.suppress(Py4JJavaError):
        field = iceberg.java_class(spark, PRODUCER).getDeclaredField("commitUUID")
        field.setAccessible(True)
        return str(field.get(update))
    return ""


def remove_unwanted(live: LiveTable, prepared: Prepared, committed: int | None) -> None:
    """Removes what Iceberg wanted to, except for the files of the snapshot that was committed.

    committed: None if the commit certainly did not arrive. A file that cannot be removed stays.
    """
    if prepared.unwanted.isEmpty():
        return
    kept = _files_of(live, committed)
    if kept is None:
        return
    for path in [str(path) for path in iceberg.each(prepared.unwanted)]:
        if path not in kept:
            with contextlib.suppress(Exception):
                live.table.io().deleteFile(path)


def tidy(live: LiveTable, prepared: Prepared, committed: int, answered: bool) -> None:
    """Removes what the other attempts of a commit that is done wrote; it stays done if that fails.

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
    """Removes the files of commits by their UUIDs, except for those of the snapshot that was
    committed; how many, and their bytes.

    Call it with None only for commits that did not arrive and cannot arrive any more.
    """
    known = [commit for commit in commits if _is_uuid(commit)]
    kept = _files_of(live, committed)
    if not known or kept is None:
        return 0, 0
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


def is_file_of(name: str, commits: Iterable[str]) -> bool:
    """Whether the file is a manifest or a manifest list that one of the commits wrote."""
    return any(
        re.fullmatch(rf"(snap-\d+-\d+-{commit}|{commit}-m\d+)\.(avro|parquet)", name)
        for commit in commits
    )


def _files_of(live: LiveTable, snapshot_id: int | None) -> set[str] | None:
    """The snapshot's manifest list and manifests; None if they are not known: it expired."""
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
