"""A table as `engines.table` asks for it, without a JVM: its files and their manifests."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import cast

from reconciler.catalog.listing import files_below
from reconciler.commit import fields, metadata
from reconciler.commit.live import LiveFiles
from reconciler.commit.local_history import LocalHistory
from reconciler.commit.manifest import ADDED, DELETED, EQUALITY_DELETES
from reconciler.commit.reachable import reached
from reconciler.commit.table import LiveTable
from reconciler.engines.delete_file import Ages, DeleteFile
from reconciler.engines.manifests import Tasks
from reconciler.engines.task_file import TaskFile
from reconciler.errors import UnsupportedError
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


class LocalFiles(LocalHistory):
    """A table of a catalog. cache: root of the cache of manifests."""

    def __init__(self, table: LiveTable, cache: Path) -> None:
        super().__init__(table)
        self.cache = cache
        self.shown = ".".join((table.config.name, *table.identifier))
        self._live: tuple[tuple[str, int], LiveFiles] | None = None

    def fresh(self) -> LocalFiles:
        """Return the table of this name, loaded anew from the catalog: it may be another one."""
        return LocalFiles(LiveTable(self.table.config, self.table.identifier), self.cache)

    # Storage

    def location(self) -> str:
        return str(self.state.metadata["location"])

    def metadata_directory(self) -> str:
        return metadata.directory(self.state.metadata)

    def delete_file(self, path: str) -> None:
        """Delete a file; one that is gone already is no error."""
        with contextlib.suppress(FileNotFoundError):
            self.table.io.delete(path)

    def has_file(self, path: str) -> bool:
        return bool(self.table.io.new_input(path).exists())

    def listed(self, directory: str) -> dict[str, tuple[int, int | None]]:
        """Return the bytes, and the time of writing in ms, by path of the files below a
        directory."""
        with contextlib.suppress(UnsupportedError):
            found = files_below(self.table.io, directory)
            return {one.path: (one.size, one.changed_ms) for one in found}
        return {}

    # Manifests

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

    def delete_files(self, snapshot_id: int) -> list[DeleteFile]:
        return self.live(snapshot_id).delete_files()

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

    def _every_entry(self) -> Iterator[tuple[str, int]]:
        """Yield path and snapshot of each live entry of every snapshot's manifests."""
        present = self.fresh().table
        for named in present.each_named(list(reached(present).manifests.values())):
            for one in named:
                if one.status != DELETED:
                    yield one.path, one.snapshot_id
