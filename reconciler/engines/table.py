"""A table of a catalog, as what carries plans out asks an engine for it: metadata, files, commits.

A method that reads a snapshot may raise the engine's own errors; `Errors` says what they mean.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from reconciler.engines.answers import Answer
from reconciler.engines.engine_errors import Errors
from reconciler.engines.manifests import Manifests
from reconciler.engines.snapshots import SnapshotInfo
from reconciler.plan.actions.state import Facts
from reconciler.table.retention import MAIN, Ref, SnapshotLog
from reconciler.table.schema import SpecField


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A field of a partition spec."""

    field_id: int
    """Its own id, 1000 or more."""
    source_id: int
    """Field id of the column that it is computed from."""
    name: str
    """Its name in the spec."""
    transform: str
    """Its transform as the specification writes it: "bucket[16]"."""


class History(Protocol):
    """A table's metadata as last loaded or refreshed. Nothing here reads a manifest."""

    name: str
    """The table's name in the engine, quoted as there."""
    shown: str
    """The table's name as the catalog shows it."""

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

    def snapshots(self) -> Iterable[SnapshotInfo]:
        """Return all snapshots, of main or not, in the order in which they were added."""
        ...

    def added_since(self, base: int) -> Iterator[SnapshotInfo]:
        """Yield the snapshots of every branch added after `base`, newest first; all if it
        expired."""
        ...

    def ancestors(self) -> Iterator[SnapshotInfo]:
        """Yield the snapshots from the head of main back to the root, or to where the history has
        expired."""
        ...

    def main_log(self) -> Sequence[int]:
        """Return the snapshots that main has had, in order, as far as the metadata remember
        them."""
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

    def spec_fields(self, spec_id: int) -> tuple[SpecField, ...] | None:
        """Return what a spec partitions by, void fields left out; None if there is no such spec."""
        ...

    def specs(self) -> Mapping[int, tuple[PartitionField, ...]]:
        """Return the fields of each spec by its id, void ones included."""
        ...

    def sort_orders(self) -> Mapping[int, tuple[str, ...]]:
        """Return the terms (`plan.actions.set_sort_order.sort_term`) of each sort order by its
        id."""
        ...

    def metadata_log(self) -> list[str]:
        """Return the present metadata file, and those before it that the metadata name."""
        ...

    def columns_unknown_to_spark(self) -> list[str]:
        """Return the columns, with their types, that what writes in the engine's place cannot."""
        ...

    def schemas(self) -> Sequence[dict[str, Any]]:
        """Return all schemas, in the order in which the metadata has them."""
        ...

    def statistics(self) -> Mapping[int, Mapping[str, Any]]:
        """Return the statistics files, as the specification writes them in JSON, by the snapshots
        that they are listed under."""
        ...


class Storage(Protocol):
    """The table's files by their paths."""

    def location(self) -> str: ...

    def metadata_directory(self) -> str:
        """Return where the table's metadata files lie."""
        ...

    def delete_file(self, path: str) -> None:
        """Delete a file; one that is gone already is no error."""
        ...

    def has_file(self, path: str) -> bool: ...

    def listed(self, directory: str) -> dict[str, tuple[int, int | None]]:
        """Return the bytes, and the time of writing in ms (None where the storage does not say), by
        path of the files below a directory; {} if there are none, or if the storage cannot list."""
        ...

    def end_uploads(self, prefix: str) -> None:
        """End uploads in parts below the prefix that a killed task has begun: no listing shows
        them."""
        ...

    def remove_empty_directories(self, prefix: str) -> None:
        """On a file system, remove the empty prefix and its directories, deepest first."""
        ...


class Rows(Protocol):
    """What a query returns."""

    @property
    def beyond(self) -> str:
        """Return what it reads beyond the rows of its table, "" for nothing."""
        ...

    def is_empty(self) -> bool: ...


class PendingCommit(Protocol):
    """One commit, which may be sent once. The names of all that it writes have its `uuid`."""

    @property
    def uuid(self) -> str:
        """Return what the names of its manifests and manifest lists have in common, "" if
        unknown."""
        ...

    @property
    def base(self) -> int:
        """Return the head before it, 0 if there is none; only later snapshots can need its
        files."""
        ...

    def send(
        self,
        operation: Any,
        base_snapshot_id: int,
        summary: Mapping[str, str],
        guard: Guard | None,
    ) -> Answer:
        """Load the table, and send the operation, with `summary` in the snapshot's summary.

        base_snapshot_id: the snapshot that the work was made from. Right before each request, on
        the metadata that it replaces, the guard is asked, if there is one. The request must fail
        where the catalog has other metadata by then. It deletes no file by itself, and raises
        nothing.
        """
        ...

    def entries(self, operation: Any, base_snapshot_id: int) -> tuple[int, str]:
        """Return `manifests.Manifests.entries` as they would be after the operation, which is not
        sent."""
        ...

    def unwanted(self) -> Collection[str]:
        """Return the metadata files that it wrote and that its snapshot does not need."""
        ...


class Guard(Protocol):
    """Judges a commit on the metadata that it would replace."""

    @property
    def refusal(self) -> str:
        """Return why the last call refused, "" if it did not."""
        ...

    def allows(self, line: Iterable[SnapshotInfo]) -> bool | None:
        """Return whether it may be sent; None if it is in the table already.

        line: the ancestors of the head that it would replace, newest first, at least as far as the
        snapshot that the work was made from.
        """
        ...


class MetadataChange(Protocol):
    """A change of the metadata as last refreshed, not yet sent."""

    @property
    def before(self) -> Mapping[str, str]:
        """Return what it changes, by name, as people write it."""
        ...

    @property
    def after(self) -> Mapping[str, str]:
        """Return the same after it."""
        ...

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

    def begin(self, operation: Any, branch: str = MAIN) -> PendingCommit:
        """Return an empty commit for an operation, on the table as last refreshed. branch: it
        starts at main's head unless it exists."""
        ...

    def change(self, action: Any) -> MetadataChange:
        """Return the change of metadata that an action asks for. Raises VerificationError if it
        would do more than the action says."""
        ...

    def without(
        self, heads: Mapping[str, int | None], snapshots: Collection[int]
    ) -> MetadataChange:
        """Return the removal of snapshots, and of branches or their newest snapshots. heads: the
        snapshot that each branch gets, None to drop it. It is refused once any ref has moved."""
        ...

    def with_statistics(self, snapshot_id: int, document: Mapping[str, Any]) -> MetadataChange:
        """Return what lists a statistics file of `statistics` under another snapshot."""
        ...

    def keep_on_branch(self, branch: str, snapshots: int) -> None:
        """Let every expiry keep so many snapshots of a branch."""
        ...

    def query(self, text: str, versions: Mapping[str, int]) -> Rows:
        """Ask a query of a policy. versions: by names in the text, the snapshots that they mean."""
        ...
