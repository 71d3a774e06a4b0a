"""What an engine reads of a table's manifests, and files of which it knows the entries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from reconciler.engines.delete_file import Ages, DeleteFile
from reconciler.engines.task_file import TaskFile
from reconciler.table.deletes import PartitionKey


class Tasks(Mapping[str, TaskFile], ABC):
    """Live data files of a snapshot by path, in order of path, with the engine's own entries."""

    def __init__(self, files: Mapping[str, TaskFile]) -> None:
        self._files = files

    def __getitem__(self, path: str) -> TaskFile:
        return self._files[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    @abstractmethod
    def subset(self, paths: Iterable[str]) -> Tasks:
        """Return those of the paths that are present."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A content file that was written and is not committed yet."""

    entry: Any
    """The engine's own object of its manifest entry."""
    path: str
    """Its location."""
    rows: int
    """Rows in it, as its entry counts them."""
    size: int
    """Bytes of the file."""
    partition_key: PartitionKey
    """Its partition, as its entry says."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a snapshot added and removed."""

    added: Sequence[WrittenFile]
    """Data files that it added."""
    removed: Sequence[str]
    """Paths of data files that it removed."""
    added_deletes: Sequence[DeleteFile]
    """Delete files that it added."""
    removed_deletes: Sequence[DeleteFile]
    """Delete files that it removed."""


class Manifests(Protocol):
    """What the manifests of a snapshot say."""

    def tasks(
        self,
        snapshot_id: int,
        paths: Iterable[str],
        columns: Collection[int] = (),
        bare: bool = False,
    ) -> Tasks:
        """Return those of the paths that are live data files of the snapshot, with the deletes that
        a reader must apply.

        columns: ids of the columns whose statistics to read. bare: without their deletes. Raises
        UnsupportedError for a file in two manifest entries.
        """
        ...

    def tasks_under(
        self, snapshot_id: int, deletes: Iterable[str], columns: Collection[int] = ()
    ) -> Tasks:
        """Return the live data files to which one of these delete files applies, without their
        deletes. columns: as in `tasks`."""
        ...

    def applied(self, tasks: Tasks, files: Sequence[DeleteFile]) -> dict[str, list[DeleteFile]]:
        """Return which of the delete files apply to each data file, as the engine's own scan
        found."""
        ...

    def require_once(self, files: Iterable[DeleteFile]) -> None:
        """Raise UnsupportedError if one of the delete files is in two manifest entries."""
        ...

    def content_of(self, snapshot_id: int) -> Content: ...

    def added_paths(self, snapshot_id: int) -> list[str]:
        """Return the data files, then the delete files, that the snapshot added."""
        ...

    def used_specs(self) -> frozenset[int]:
        """Return the ids of the specs that a manifest of any snapshot has."""
        ...

    def manifest_sizes(self) -> dict[str, int]:
        """Return the bytes of each manifest of the head by its path."""
        ...

    def grouped(self, groups: int) -> Any:
        """Return which live data files are to share a manifest, in runs of equal length in the
        order of the partitions; a value for `NewManifests` alone."""
        ...

    def entries(self) -> tuple[int, str]:
        """Return the number of the head's live entries, and a sum of their hashes, which does not
        depend on their order."""
        ...

    def frozen(self, expiring: Collection[int]) -> Any:
        """Return the table as it is now, which no commit changes, for `unneeded`. expiring: ids of
        snapshots of which files may be missing already."""
        ...

    def unneeded(self, before: Any) -> dict[str, int]:
        """Return the files that the table referred to when it was `frozen` and does not now: bytes
        by path, -1 where no metadata holds them."""
        ...

    def mentioned(self, paths: Collection[str]) -> list[str]:
        """Return what any snapshot refers to and may mean one of the paths, however it is
        spelled."""
        ...

    def partition_keys(self, tasks: Tasks) -> dict[str, PartitionKey]:
        """Return the partition of each file."""
        ...

    def ages(self, snapshot_id: int, paths: Iterable[str]) -> Ages:
        """Return the sequence numbers of the snapshot's data files. paths: of which to name."""
        ...

    def touched_by(self, tasks: Tasks, sequences: Collection[int]) -> frozenset[str]:
        """Return the files that a snapshot of one of these sequence numbers wrote, or deleted rows
        of by position."""
        ...

    def delete_files(self, snapshot_id: int) -> list[DeleteFile]:
        """Return the delete files that the snapshot's manifests list: also those that apply to
        nothing."""
        ...

    def partitioned_equality(self, snapshot_id: int) -> int:
        """Return the number of equality delete files of partitioned specs that the snapshot added;
        a spec that was removed since counts as partitioned."""
        ...

    def manifests(self, snapshot_id: int) -> Mapping[str, int]:
        """Return the snapshot's manifests by path, with the snapshot that added each."""
        ...

    def referenced(self, prefix: str) -> set[str]:
        """Return the files below the prefix that a snapshot of any branch or tag, as the catalog
        has them now, refers to: their paths relative to it."""
        ...

    def added_by(self, paths: Collection[str]) -> Iterator[int]:
        """Yield the ids of snapshots, as the catalog has them now, that added one of these content
        files, which a run of ours wrote; they may have expired."""
        ...
