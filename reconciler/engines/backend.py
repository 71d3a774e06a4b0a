"""What carries plans out asks of an engine: the table, its files, its storage, and commits.

An engine implements these Protocols, for example by Iceberg's Java library. None of them decides
anything: what is judged, in which order things are done and what is recorded is the
same for all engines. Manifest entries are opaque: values of the engine's own, which only go back to
it. A method that reads a snapshot may raise the engine's own errors; `Errors` says what they mean.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from reconciler.api.catalog_config import CatalogConfig
from reconciler.engines.answers import Answer
from reconciler.engines.delete_file import DeleteFile
from reconciler.engines.manifests import Manifests, Tasks, WrittenFile
from reconciler.engines.snapshots import SnapshotInfo
from reconciler.errors import ReconcilerError
from reconciler.plan.actions.state import Facts
from reconciler.rewrite import hidden
from reconciler.rewrite.comparison import Seen, Work
from reconciler.rewrite.deletes import Delete
from reconciler.rewrite.failures import Failure
from reconciler.rewrite.files import Table as Shape
from reconciler.rewrite.storage import Opening
from reconciler.rewrite.task import Made, Output, Resources
from reconciler.table.cut_tree import Tree
from reconciler.table.retention import MAIN, Ref, SnapshotLog
from reconciler.table.schema import SpecField


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


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A field of a partition spec."""

    field_id: int
    """Its own id, 1000 or more."""
    source_id: int
    """Field id of the column that it is computed from."""
    name: str
    """As the spec names it."""
    transform: str
    """As the specification writes it: "bucket[16]"."""


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

    def delete_file(self, path: str) -> None: ...

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


class Change(Protocol):
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
        """Send the operation, with `summary` in the snapshot's summary.

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

    def begin(self, operation: Any, branch: str = MAIN) -> Change:
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


@dataclass(frozen=True, slots=True)
class CopyWork:
    """How rows are copied."""

    tree: Tree
    """By whose leaves they are laid out."""
    target_bytes: int
    """Bytes of a data file."""
    name: str
    """Of the engine's jobs (`Backend.spent`)."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A commit of copied rows."""

    answer: Answer
    """What the catalog said of it."""
    snapshot_id: int
    """The snapshot that it makes, 0 if it has no rows."""


class Copies(Protocol):
    """Another table with the rows of a table of the same namespace, which the engine writes.

    `made` is that table. What writes to it commits on exactly its metadata as last loaded or
    refreshed: the catalog refuses it once anybody has changed, dropped or replaced the table.
    """

    def found(self) -> Table | None:
        """Return the other table, None if there is none of its name."""
        ...

    def create(self, source: Table, properties: Mapping[str, str]) -> Table | None:
        """Return it, made without rows; None if there is a table of its name by then."""
        ...

    def write_all(
        self,
        source: Table,
        made: Table,
        tasks: Tasks,
        properties: Mapping[str, str],
        work: CopyWork,
    ) -> Copied:
        """Replace all rows of `made` by those of the tasks, each leaf in files of its own, under
        the columns of the source. Its old snapshots stay."""
        ...

    def write_appended(
        self, source: Table, made: Table, between: tuple[int, int], files: int, work: CopyWork
    ) -> Copied:
        """Append the rows that were appended to the table between two snapshots, the first of them
        excluded, in so many files."""
        ...

    def every_task(self, source: Table, snapshot_id: int) -> Tasks:
        """Return all live data files of a snapshot of the table, with their deletes."""
        ...

    def held_bytes(self, made: Table) -> int:
        """Return the bytes of all files that some snapshot of `made` holds."""
        ...

    def empty(self, made: Table) -> Copied:
        """Replace all rows of `made` by none. Its old snapshots stay."""
        ...

    def expire(self, made: Table, snapshots: Collection[int]) -> None:
        """Remove these snapshots of `made`, with the files that no other one has, and refresh
        it."""
        ...


class Backend(Protocol):
    """An engine on this machine or in a cluster. An attempt is a `schedule.attempt.Attempt`, which
    has its engine."""

    errors: Errors
    """What its errors mean."""

    @property
    def cores(self) -> int:
        """Return how many groups it rewrites at the same time."""
        ...

    def process_id(self) -> int | None:
        """Return the process beside this one that sends commits, None if there is none."""
        ...

    def load(self, catalog: CatalogConfig, identifier: tuple[str, ...]) -> Table: ...

    def copies(self, catalog: CatalogConfig, table: tuple[str, ...], name: str) -> Copies:
        """Return what copies the rows of a table to the table of this name beside it."""
        ...

    def cancel(self, names: Iterable[str]) -> None:
        """End the work of these names: attempt/number/step."""
        ...

    def spent(self, name: str) -> Any:
        """Return what the engine's own jobs of a name took (`schedule.written.TaskMetrics`)."""
        ...

    def resources(self, opening: Opening | None, threads: int) -> Resources:
        """Return what a task may use. opening: of files of another store, None if all are local.
        threads: of this process that no other group uses."""
        ...

    def more(self, opening: Opening | None, given: Resources, needed: int) -> Resources:
        """Return what a task may use that needs so many bytes: no more than there is."""
        ...

    def output_paths(
        self,
        attempt: Any,
        changes: Mapping[str, str],
        spec_id: int,
        tasks: Tasks | None,
        names: Sequence[str],
        of: str = "",
    ) -> tuple[str, ...]:
        """Return the paths of new files as the table places them.

        changes: properties that override the table's. tasks: files in whose partition they are,
        None if they are in none yet. of: the one of these that counts, "" for any.
        """
        ...

    def run_task(self, attempt: Any, name: str, plan: Any) -> Made | Failure:
        """Return what a task (`schedule.native.Plan`) made, or why it made nothing."""
        ...

    def entries(
        self,
        attempt: Any,
        group: Any,
        tasks: Tasks,
        changes: Mapping[str, str],
        shape: Shape,
        order_id: int,
        files: Sequence[Output],
    ) -> tuple[WrittenFile, ...]:
        """Return files that a task wrote with their manifest entries. order_id: of the sort order
        that they record. The rest as in `output_paths`."""
        ...

    def written_otherwise(
        self,
        attempt: Any,
        group: Any,
        tasks: Tasks,
        changes: Mapping[str, str],
        base: str,
        order_id: int,
    ) -> contextlib.AbstractContextManager[tuple[WrittenFile, ...]]:
        """Provide files of a group that no task can write; they are deleted if anything fails
        meanwhile. base: names the work."""
        ...

    def pinpointed(self, attempt: Any, number: int, tasks: Tasks, error: Exception) -> Any:
        """Return the error of group `number` with the file that caused it, found by reading its
        inputs again; None if no file causes it, or if the error names the file."""
        ...

    def task_room(self) -> tuple[int, int]:
        """Return the bytes of memory of a task that finds hidden rows, and how many run at once."""
        ...

    def readable_deletes(
        self, attempt: Any, files: Sequence[DeleteFile]
    ) -> contextlib.AbstractContextManager[Mapping[tuple[str, int], Delete]]:
        """Provide delete files as tasks read them, by identity: others as copies in Parquet."""
        ...

    def find_hidden(
        self,
        attempt: Any,
        name: str,
        work: Sequence[hidden.Task],
        size: int,
        opening: Opening | None,
    ) -> Sequence[hidden.Found | Failure]:
        """Return what each task found and wrote, or why not. The rest as in `witness`."""
        ...

    def delete_entries(
        self, attempt: Any, tasks: Tasks, files: Sequence[hidden.Written]
    ) -> list[DeleteFile]:
        """Return delete files that tasks wrote with their entries. tasks: the data files that they
        are of."""
        ...

    def reads(
        self, attempt: Any, files: Sequence[DeleteFile], new: Sequence[hidden.Written]
    ) -> bool:
        """Return whether readers of the table find the rows of a new file that were written to it.
        files: the new ones with their entries."""
        ...

    def witness(
        self,
        attempt: Any,
        name: str,
        work: Work,
        bins: Sequence[Sequence[int]],
        size: int,
        opening: Opening | None,
    ) -> Sequence[Seen]:
        """Return what the files, or the exchanges, of the work hold, of each bin together.

        name: of the work. bins: numbers of files or exchanges; none is empty. size: bytes that are
        read. opening: of files of another store, None if all are local.
        """
        ...

    def refuse_left_out(self, run: Any, snapshot_id: int, inputs: Collection[DeleteFile]) -> None:
        """Raise RefusedInputsError if a manifest entry is wrong by which the engine's scan leaves
        one of these delete files out of a data file."""
        ...


@contextlib.contextmanager
def translated(errors: Errors, doing: str) -> Iterator[None]:
    """Run a block; `doing` ("rewrite sales.lineitem") is the subject of any error."""
    try:
        yield
    except ReconcilerError:
        raise
    except Exception as error:
        raise errors.translate(error, doing) from error
