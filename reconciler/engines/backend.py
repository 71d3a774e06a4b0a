"""What carries plans out asks of an engine: the table, its files, its storage, and commits.

An engine implements these Protocols, for example by Iceberg's Java library. None of them decides
anything: what is judged, in which order things are done and what is recorded is the
same for all engines. Manifest entries are opaque: values of the engine's own, which only go back to
it. A method that reads a snapshot may raise the engine's own errors; `Errors` says what they mean.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from reconciler.engines.answers import Answer
from reconciler.engines.delete_file import Ages, DeleteFile, Place
from reconciler.engines.snapshots import SnapshotInfo
from reconciler.engines.task_file import TaskFile
from reconciler.errors import ReconcilerError
from reconciler.plan.actions.state import Facts
from reconciler.table.retention import Ref, SnapshotLog


class Errors(Protocol):
    """What the engine's errors mean."""

    def lost(self, error: BaseException) -> bool:
        """Whether the process that does the engine's work is gone: the outcome is unknown."""
        ...

    def message(self, error: BaseException) -> str:
        """Return one line that says what happened, never a stack."""
        ...

    def text(self, error: BaseException) -> str:
        """Return what the error and its causes say, with the names of their classes."""
        ...

    def error_class(self, error: BaseException) -> str:
        """Return the name of the class of the error, without its text."""
        ...

    def is_missing_file(self, error: BaseException) -> bool:
        """Whether a file was not found, and it is not that one may not open it."""
        ...

    def is_missing_table(self, error: BaseException) -> bool:
        """Whether the catalog has no table of that name."""
        ...

    def is_unwritable(self, error: BaseException) -> bool:
        """Whether the storage is full or read-only: any further write fails too."""
        ...

    def translate(self, error: BaseException, doing: str) -> ReconcilerError:
        """Return the error for people. doing: "rewrite sales.lineitem". Raises it as it is if it is
        one of this version's own code."""
        ...


class History(Protocol):
    """A table's metadata as last loaded or refreshed. Nothing here reads a manifest."""

    name: str
    """The table's name in the engine, quoted as there."""

    def refresh(self) -> None:
        """Read the newest metadata from the catalog."""
        ...

    def uuid(self) -> str: ...

    def format_version(self) -> int: ...

    def schema_id(self) -> int: ...

    def head(self) -> int | None:
        """Return the id of main's snapshot, None if there is none."""
        ...

    def snapshot(self, snapshot_id: int) -> SnapshotInfo | None: ...

    def added_since(self, base: int) -> Iterator[SnapshotInfo]:
        """Yield the snapshots of every branch added after `base`, newest first; all if it
        expired."""
        ...

    def ancestors(self) -> Iterator[SnapshotInfo]:
        """Yield the snapshots from the head of main back to the root, or to where the history has
        expired."""
        ...

    def is_ancestor(self, head: int, snapshot_id: int) -> bool:
        """Whether the walk back from `head` reaches the snapshot; a snapshot reaches itself."""
        ...

    def refs(self) -> Mapping[str, Ref]: ...

    def properties(self) -> Mapping[str, str]: ...

    def facts(self) -> Facts:
        """Return what actions that change metadata are judged by."""
        ...

    def log(self) -> SnapshotLog:
        """Return all snapshots and refs: one call, however many there are."""
        ...

    def latest_ms(self) -> int:
        """Return the newest time in the metadata, in epoch milliseconds: a commit must not be
        older."""
        ...

    def schema(self) -> dict[str, Any]:
        """Return the present schema as the specification writes it in JSON."""
        ...

    def schemas(self) -> Sequence[dict[str, Any]]:
        """Return all schemas, in the order in which the metadata has them."""
        ...


class Storage(Protocol):
    """The table's files by their paths."""

    def location(self) -> str: ...

    def metadata_directory(self) -> str:
        """Return where the table's metadata files lie."""
        ...

    def delete_file(self, path: str) -> None: ...

    def has_file(self, path: str) -> bool: ...

    def listed(self, directory: str) -> dict[str, tuple[int, int]]:
        """Return the bytes, and the time of writing in ms, by path of the files below a directory;
        {} if there are none, or if the storage cannot list."""
        ...

    def end_uploads(self, prefix: str) -> None:
        """End uploads in parts below the prefix that a killed task has begun: no listing shows
        them."""
        ...

    def remove_empty_directories(self, prefix: str) -> None:
        """On a file system, remove the empty prefix and its directories, deepest first."""
        ...


class Tasks(Mapping[str, TaskFile], ABC):
    """Live data files of a snapshot by path, in order of path, with the engine's own entries."""

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
    place: Place
    """Its partition, as its entry says."""


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

    def tasks_under(self, snapshot_id: int, deletes: Iterable[str]) -> Tasks:
        """Return the live data files to which one of these delete files applies, without their
        deletes."""
        ...

    def places(self, tasks: Tasks) -> dict[str, Place]:
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

    def metadata_files(self, snapshot_id: int) -> Mapping[str, int]:
        """Return the snapshot's manifests by path with the snapshot that added each, and its
        manifest list with the snapshot itself."""
        ...

    def referenced(self, prefix: str) -> set[str]:
        """Return the files below the prefix that a snapshot of any branch or tag, as the catalog
        has them now, refers to: their paths relative to it."""
        ...

    def added_by(self, paths: Collection[str]) -> Iterator[int]:
        """Yield the ids of snapshots, as the catalog has them now, that added one of these content
        files, which a run of ours wrote; they may have expired."""
        ...


class Change(Protocol):
    """One commit, which may be sent once. The names of all that it writes have its `uuid`."""

    uuid: str
    """In the names of the manifests and manifest lists that it writes, "" if unknown."""
    base: int
    """The head before it, 0 if there is none; only later snapshots can need its files."""

    def send(
        self, operation: Any, base_snapshot_id: int, summary: Mapping[str, str], guard: Guard
    ) -> Answer:
        """Send the operation, with `summary` in the snapshot's summary.

        base_snapshot_id: the snapshot that the work was made from. Right before each request, on
        the metadata that it replaces, the guard is asked. The request must fail where the catalog
        has other metadata by then. It deletes no file by itself, and raises nothing.
        """
        ...

    def unwanted(self) -> Collection[str]:
        """Return the metadata files that it wrote and that its snapshot does not need."""
        ...


class Guard(Protocol):
    """Judges a commit on the metadata that it would replace."""

    def allows(self, line: Sequence[SnapshotInfo]) -> bool | None:
        """Return whether it may be sent; None if it is in the table already.

        line: the ancestors of the head that it would replace, newest first, at least as far as the
        snapshot that the work was made from.
        """
        ...


class MetadataChange(Protocol):
    """A change of the metadata as last refreshed, not yet sent."""

    before: Mapping[str, str]
    """What it changes, by name, as people write it."""
    after: Mapping[str, str]
    """The same after it."""

    def send(self) -> Answer:
        """Send it: the catalog must refuse it on any other metadata. Raises nothing."""
        ...


class Table(History, Storage, Manifests, Protocol):
    """A table of a catalog."""

    errors: Errors
    """What the errors of its methods mean."""

    def fresh(self) -> Table:
        """Return the table of this name, loaded anew from the catalog: it may be another one."""
        ...

    def begin(self, operation: Any) -> Change:
        """Return an empty commit for an operation, on the table as last refreshed."""
        ...

    def begin_on_branch(self, operation: Any, branch: str) -> Change:
        """Return the same for a branch, which starts at main's head unless it exists."""
        ...
