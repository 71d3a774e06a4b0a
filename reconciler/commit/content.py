"""What one snapshot added and removed, by the entries that its own commit wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from reconciler.commit import fields
from reconciler.commit.local_files import LocalFiles
from reconciler.commit.manifest import ADDED, DATA, DELETED, Entry
from reconciler.commit.snapshot import AddedFile
from reconciler.engines.manifests import Content, WrittenFile
from reconciler.table.audits import AUDIT_BASE


def of_snapshot(table: LocalFiles, snapshot_id: int) -> Content:
    """Return the files of a snapshot as a commit of them names them. The snapshot that its batch
    was made from must be there, where it removed delete files alone."""
    added: dict[int, dict[str, AddedFile]] = {DATA: {}}
    removed: dict[int, list[str]] = {DATA: []}
    for spec_id, entry in own_entries(table, snapshot_id):
        kind = min(entry.file.content, 1)
        if entry.status == ADDED:
            added.setdefault(kind, {})[entry.file.path] = AddedFile(spec_id, entry.file)
        else:
            removed.setdefault(kind, []).append(entry.file.path)
    live = table.live(snapshot_id)
    rows = live.rows(added[DATA])
    deletes, gone = added.get(1, {}), set[str]()
    if not removed[DATA]:  # a rewrite takes the deletes of its files with it by itself
        gone = set(removed.get(1, ()))
    new = [replace(one, entry=deletes[one.path]) for one in live.delete_files()
           if one.path in deletes]  # fmt: skip
    written = [
        WrittenFile(one, path, one.file.records, one.file.size, live.partition_key(rows[path]))
        for path, one in added[DATA].items()
    ]
    before = table.live(_base(table, snapshot_id)).delete_files() if gone else []
    return Content(written, removed[DATA], new, [one for one in before if one.path in gone])


def added_paths(table: LocalFiles, snapshot_id: int) -> list[str]:
    """Return the data files, then the delete files, that the snapshot added."""
    found = [entry.file for _, entry in own_entries(table, snapshot_id) if entry.status == ADDED]
    return [one.path for one in sorted(found, key=lambda one: min(one.content, 1))]


def own_entries(table: LocalFiles, snapshot_id: int) -> Iterator[tuple[int, Entry]]:
    """Yield the entries by which the snapshot added or removed a file, each with its spec."""
    own = [
        one for one in table.table.manifests(snapshot_id) if one[fields.M_SNAPSHOT] == snapshot_id
    ]
    for one, entries in zip(own, table.table.entries(own), strict=True):
        for entry in entries:
            if entry.snapshot_id == snapshot_id and entry.status in (ADDED, DELETED):
                yield int(one[fields.M_SPEC]), entry


def _base(table: LocalFiles, snapshot_id: int) -> int:
    """Return the snapshot that a batch was made from."""
    snapshot = table.state.snapshots[snapshot_id]
    return int(snapshot["summary"].get(AUDIT_BASE) or snapshot["parent-snapshot-id"])
