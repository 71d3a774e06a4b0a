"""What carries plans out asks of an engine beside its tables: tasks, entries of new files, copies.

An engine implements these Protocols, and those of `engines.table`, for example by Iceberg's Java
library. None of them decides anything: what is judged, in which order things are done and what is
recorded is the same for all engines. Manifest entries are opaque: values of the engine's own, which
only go back to it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from reconciler.api.catalog_config import CatalogConfig
from reconciler.engines.answers import Answer
from reconciler.engines.delete_file import DeleteFile
from reconciler.engines.engine_errors import Errors
from reconciler.engines.manifests import Tasks, WrittenFile
from reconciler.engines.table import Table
from reconciler.rewrite import hidden
from reconciler.rewrite.comparison import WitnessResult, WitnessWork
from reconciler.rewrite.deletes import Delete
from reconciler.rewrite.failures import Failure
from reconciler.rewrite.files import TableShape
from reconciler.rewrite.storage import Opening
from reconciler.rewrite.task import Made, Output, Resources
from reconciler.table.cut_tree import Tree


@dataclass(frozen=True, slots=True)
class CopyWork:
    """How rows are copied."""

    tree: Tree
    """The tree of cuts whose leaves lay out the rows."""
    target_bytes: int
    """Bytes of a data file to write."""
    name: str
    """Name of the engine's jobs, by which `Backend.spent` finds their CPU seconds."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A commit of copied rows."""

    answer: Answer
    """What the catalog said of it."""
    snapshot_id: int
    """The snapshot that it makes."""


class Copies(Protocol):
    """Another table with the rows of a table of the same namespace, which the engine writes.

    `made` is that table. What writes rows to it, or removes them, commits on exactly its metadata
    as last loaded or refreshed: the catalog refuses it once anybody has changed, dropped or
    replaced the table. `expire` alone removes snapshots from the table as it is by then.
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
        """Replace all rows of `made` by none, in a snapshot of its own. Its old snapshots stay."""
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

    def spent(self, name: str) -> float:
        """Return the CPU seconds of the engine's own jobs of a name."""
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
        """Return what a task (`schedule.native.GroupPlan`) made, or why it made nothing."""
        ...

    def entries(
        self, rewrite: Any, shape: TableShape, files: Sequence[Output]
    ) -> tuple[WrittenFile, ...]:
        """Return files that a task wrote with their manifest entries. rewrite: a
        `schedule.group_rewrite.GroupRewrite`."""
        ...

    def written_otherwise(
        self, rewrite: Any, why: str
    ) -> contextlib.AbstractContextManager[tuple[WrittenFile, ...]]:
        """Provide files of a group that no task can write; they are deleted if anything fails
        meanwhile. rewrite: a `schedule.group_rewrite.GroupRewrite`. why: no task can, as a clause.
        Raises UnsupportedError where the engine has no other writer."""
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
        work: WitnessWork,
        bins: Sequence[Sequence[int]],
        size: int,
        opening: Opening | None,
    ) -> Sequence[WitnessResult]:
        """Return what the files, or the exchanges, of the work hold, of each bin together.

        name: of the work. bins: numbers of files or exchanges; none is empty. size: bytes that are
        read. opening: of files of another store, None if all are local.
        """
        ...

    def refuse_left_out(self, run: Any, snapshot_id: int, inputs: Collection[DeleteFile]) -> None:
        """Raise RefusedInputsError if a manifest entry is wrong by which the engine's scan leaves
        one of these delete files out of a data file."""
        ...
