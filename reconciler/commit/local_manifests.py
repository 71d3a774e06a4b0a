"""What the manifests of a table say, read without a JVM (`engines.manifests.Manifests`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from reconciler.commit import compared, fields, reachable
from reconciler.commit.live import LiveFiles
from reconciler.commit.local_storage import LocalStorage
from reconciler.commit.manifest import ADDED, DATA, DELETED, EQUALITY_DELETES, Entry
from reconciler.commit.snapshot import AddedFile
from reconciler.commit.table import LiveTable
from reconciler.engines.commit import locations
from reconciler.engines.delete_file import Ages, DeleteFile
from reconciler.engines.manifests import Content, Tasks, WrittenFile
from reconciler.engines.task_file import TaskFile
from reconciler.errors import UnsupportedError
from reconciler.table.audits import AUDIT_BASE
from reconciler.table.deletes import PartitionKey


class LiveTasks(Tasks):
    """Live data files of a snapshot by path."""

    def __init__(
        self, live: LiveFiles, rows: Mapping[str, int], files: Mapping[str, TaskFile]
    ) -> None:
        super().__init__(files)
        self.live, self.rows = live, rows

    def subset(self, paths: Iterable[str]) -> LiveTasks:
        chosen = [path for path in sorted(set(paths)) if path in self._files]
        rows = {path: self.rows[path] for path in chosen}
        return LiveTasks(self.live, rows, {path: self._files[path] for path in chosen})


class LocalManifests(LocalStorage):
    """The table's manifests. What was read of them is cached."""

    def __init__(self, table: LiveTable, cache: Path) -> None:
        """cache: root of the cache of manifests."""
        super().__init__(table)
        self.cache = cache
        self._live: tuple[tuple[str, int], LiveFiles] | None = None

    def live(self, snapshot_id: int) -> LiveFiles:
        """Return the live files of a snapshot; those of the last one asked for are kept."""
        key = self.state.location, snapshot_id
        if self._live is None or self._live[0] != key:
            self._live = key, LiveFiles(self.table, snapshot_id, self.cache)
        return self._live[1]

    def tasks(
        self,
        snapshot_id: int,
        paths: Iterable[str],
        columns: Collection[int] = (),
        bare: bool = False,
    ) -> LiveTasks:
        live = self.live(snapshot_id)
        rows = live.rows(paths)
        return LiveTasks(live, rows, live.task_files(rows, columns, bare))

    def tasks_under(
        self, snapshot_id: int, deletes: Iterable[str], columns: Collection[int] = ()
    ) -> LiveTasks:
        under = self.live(snapshot_id).under(deletes)
        return self.tasks(snapshot_id, under, columns, bare=True)

    def partition_keys(self, tasks: Tasks) -> dict[str, PartitionKey]:
        own = cast(LiveTasks, tasks)
        return {path: own.live.partition_key(row) for path, row in own.rows.items()}

    def ages(self, snapshot_id: int, paths: Iterable[str]) -> Ages:
        return self.live(snapshot_id).ages(paths)

    def touched_by(self, tasks: Tasks, sequences: Collection[int]) -> frozenset[str]:
        own = cast(LiveTasks, tasks)
        return own.live.touched_by(own.rows, sequences)

    def applied(self, tasks: Tasks, files: Sequence[DeleteFile]) -> dict[str, list[DeleteFile]]:
        own, known = cast(LiveTasks, tasks), {file.identity: file for file in files}
        return {
            path: [known[one] for one in identities if one in known]
            for path, identities in own.live.applying(own.rows).items()
        }

    def delete_files(self, snapshot_id: int) -> list[DeleteFile]:
        return self.live(snapshot_id).delete_files()

    def require_once(self, files: Iterable[DeleteFile]) -> None:
        seen: set[tuple[str, int]] = set()
        for file in files:
            if file.identity in seen:
                raise UnsupportedError(
                    f"{self.shown} has {file.path} in two manifest entries",
                    details=("Removing a path removes all of its entries. Nothing was changed.",),
                    do="let a writer of the table remove the file, and add it once",
                )
            seen.add(file.identity)

    def partitioned_equality(self, snapshot_id: int) -> int:
        """Return the number of equality delete files of partitioned specs that the snapshot added;
        a spec that was removed since counts as partitioned."""
        plain = {
            int(one["spec-id"]) for one in self.state.metadata["partition-specs"]
            if all(field["transform"] == "void" for field in one["fields"])
        }  # fmt: skip
        own = [
            one for one in self.table.manifests(snapshot_id)
            if one[fields.M_CONTENT] and one[fields.M_SNAPSHOT] == snapshot_id
            and one[fields.M_SPEC] not in plain
        ]  # fmt: skip
        return sum(
            entry.status == ADDED
            and entry.snapshot_id == snapshot_id
            and entry.file.content == EQUALITY_DELETES
            for entries in self.table.entries(own)
            for entry in entries
        )

    def manifests(self, snapshot_id: int) -> Mapping[str, int]:
        return {
            str(one[fields.M_PATH]): int(one[fields.M_SNAPSHOT])
            for one in self.table.manifests(snapshot_id)
        }

    def manifest_sizes(self) -> dict[str, int]:
        found = self.table.manifests(self.head())
        return {str(one[fields.M_PATH]): int(one[fields.M_LENGTH]) for one in found}

    def grouped(self, groups: int) -> dict[str, int]:
        head = self.head()
        paths = [] if head is None else self.live(head).by_partition()
        return {path: number * groups // len(paths) for number, path in enumerate(paths)}

    def entries(self) -> tuple[int, str]:
        head = self.head()
        if head is None:
            return 0, "0"
        path = str(self.state.snapshots[head]["manifest-list"])
        return compared.live_entries(self.table.io, path)

    def content_of(self, snapshot_id: int) -> Content:
        """Return the files of a snapshot as a commit of them names them.

        Where it removed delete files alone, the snapshot that its batch was made from must not have
        expired.
        """
        added: dict[int, dict[str, AddedFile]] = {DATA: {}}
        removed: dict[int, list[str]] = {DATA: []}
        for spec_id, entry in self._own_entries(snapshot_id):
            kind = min(entry.file.content, 1)
            if entry.status == ADDED:
                added.setdefault(kind, {})[entry.file.path] = AddedFile(spec_id, entry.file)
            else:
                removed.setdefault(kind, []).append(entry.file.path)
        live = self.live(snapshot_id)
        rows = live.rows(added[DATA])
        deletes, gone = added.get(1, {}), set[str]()
        if not removed[DATA]:  # a rewrite takes the deletes of its files with it by itself
            gone = set(removed.get(1, ()))
        new = [
            replace(one, entry=deletes[one.path])
            for one in live.delete_files()
            if one.path in deletes
        ]
        written = [
            WrittenFile(one, path, one.file.records, one.file.size, live.partition_key(rows[path]))
            for path, one in added[DATA].items()
        ]
        before = self.live(self._base(snapshot_id)).delete_files() if gone else []
        return Content(written, removed[DATA], new, [one for one in before if one.path in gone])

    def added_paths(self, snapshot_id: int) -> list[str]:
        own = self._own_entries(snapshot_id)
        found = [entry.file for _, entry in own if entry.status == ADDED]
        return [one.path for one in sorted(found, key=lambda one: min(one.content, 1))]

    def _own_entries(self, snapshot_id: int) -> Iterator[tuple[int, Entry]]:
        """Yield the entries by which the snapshot added or removed a file, each with its spec."""
        listed = self.table.manifests(snapshot_id)
        own = [one for one in listed if one[fields.M_SNAPSHOT] == snapshot_id]
        for one, entries in zip(own, self.table.entries(own), strict=True):
            for entry in entries:
                if entry.snapshot_id == snapshot_id and entry.status in (ADDED, DELETED):
                    yield int(one[fields.M_SPEC]), entry

    def _base(self, snapshot_id: int) -> int:
        """Return the snapshot that a batch was made from."""
        snapshot = self.state.snapshots[snapshot_id]
        return int(snapshot["summary"].get(AUDIT_BASE) or snapshot["parent-snapshot-id"])

    def used_specs(self) -> frozenset[int]:
        return frozenset(
            int(one[fields.M_SPEC])
            for snapshot_id in self.state.snapshots
            for one in self.table.manifests(snapshot_id)
        )

    def referenced(self, prefix: str) -> set[str]:
        """Return the files below the prefix that a snapshot of any branch or tag refers to, as the
        catalog has them now: their paths relative to it."""
        marker = f"/{prefix.rpartition('/')[2]}/"
        return {
            entry_path.partition(marker)[2]
            for entry_path, _ in self._every_entry()
            if marker in entry_path
        }

    def added_by(self, paths: Collection[str]) -> Iterator[int]:
        """Yield the ids of snapshots, as the catalog has them now, that added one of these content
        files; they may have expired."""
        wanted = set(paths)
        for path, snapshot_id in self._every_entry():
            if path in wanted:
                yield snapshot_id

    def frozen(self, expiring: Collection[int]) -> reachable.Reached:
        return reachable.reached(self.table, expiring)

    def unneeded(self, before: Any) -> dict[str, int]:
        kept = cast(reachable.Reached, before)
        roots = locations.roots(self.location(), self.properties())
        now = reachable.reached(self.table, known=kept)
        return reachable.unneeded(self.table, kept, now, roots)

    def mentioned(self, paths: Collection[str]) -> list[str]:
        return reachable.mentioned(self.table, paths)

    def _every_entry(self) -> Iterator[tuple[str, int]]:
        """Yield path and snapshot of each live entry of every snapshot's manifests."""
        present = LiveTable(self.table.config, self.table.identifier)
        for named in present.each_named(list(reachable.reached(present).manifests.values())):
            for one in named:
                if one.status != DELETED:
                    yield one.path, one.snapshot_id
