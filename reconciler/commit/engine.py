"""The engine without a JVM: pyiceberg's catalogs commit, processes of this machine move rows.

Implements `engines.backend.Backend`. What only Spark can do is refused before anything is written
(`loop.engines` chooses the engine), and again here.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.task_memory import PYTHON, Limits
from reconciler.commit import errors, fields, manifest, partitions, positions
from reconciler.commit.entries import Entries
from reconciler.commit.local_manifests import LiveTasks
from reconciler.commit.local_table import LocalTable
from reconciler.commit.table import LiveTable
from reconciler.engines import backend, engine_errors
from reconciler.engines.choice import Machine
from reconciler.engines.delete_file import DeleteFile
from reconciler.engines.local.pool import Cancelled, Killed, Limit, OutOfMemory, Pool
from reconciler.engines.manifests import Tasks, WrittenFile
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.described import delete_of
from reconciler.engines.schedule.group_rewrite import GroupRewrite
from reconciler.engines.schedule.native import GroupPlan
from reconciler.engines.schedule.run import Run
from reconciler.errors import UnsupportedError
from reconciler.rewrite import hidden, task_calls
from reconciler.rewrite.comparison import WitnessResult, WitnessWork
from reconciler.rewrite.deletes import Delete
from reconciler.rewrite.failures import ENDED, MEMORY, Failure, Stopped
from reconciler.rewrite.files import TableShape
from reconciler.rewrite.storage import Opening
from reconciler.rewrite.task import Made, Output, Resources
from reconciler.rewrite.witness import witnessed
from reconciler.table.deletes import PartitionKey
from reconciler.table.paths import is_local

T = TypeVar("T")
SMALLER = 4
"""A task that was killed for its memory is done again with so much less of it: it then keeps its
rows on disk."""


class LocalBackend:
    """The engine of this machine's processes.

    cache: directory for what was read of manifests. machine: what the engine may use. say: is given
    what a user should know of the work.
    """

    errors: engine_errors.Errors = errors

    def __init__(
        self, pool: Pool, machine: Machine, cache: Path, say: Callable[[str], None]
    ) -> None:
        self._pool, self._machine, self._cache, self._say = pool, machine, cache, say

    @property
    def cores(self) -> int:
        return self._machine.slots

    def process_id(self) -> None:
        return None

    def load(self, catalog: CatalogConfig, identifier: tuple[str, ...]) -> LocalTable:
        """Return the table. Raises UnsupportedError if the catalog's server has its files opened by
        other code than Arrow's, as one does that signs requests."""
        from pyiceberg.io.pyarrow import PyArrowFileIO

        table = LocalTable(LiveTable(catalog, identifier), self._cache)
        if not is_local(table.location()) and not isinstance(table.table.io, PyArrowFileIO):
            raise _needs_spark(table.shown, f"files are opened by {type(table.table.io).__name__}")
        return table

    def copies(self, catalog: CatalogConfig, table: tuple[str, ...], name: str) -> backend.Copies:
        raise _needs_spark(".".join((catalog.name, *table)), f"{name} is a copy of its rows")

    def cancel(self, names: Iterable[str]) -> None:
        """Do nothing: a task looks at its attempt, and is killed."""

    def spent(self, name: str) -> float:
        return 0.0

    # Tasks

    def resources(self, opening: Opening | None, threads: int) -> Resources:
        return Resources(self._machine.task_bytes(threads), threads)

    def more(self, opening: Opening | None, given: Resources, needed: int) -> Resources:
        """Return what was given: the other processes have the rest."""
        return given

    def run_task(self, attempt: Attempt, name: str, plan: GroupPlan) -> Made | Failure:
        """Return what the task made in a process of its own.

        One that takes too much memory is done once more, with its rows on disk, if the budgets
        cover that its inputs are read twice.
        """
        given = plan.resources
        try:
            return self._in_process(attempt, given, task_calls.rewritten, *plan.work)
        except Killed as error:  # by the system for memory, for one; nobody says why
            why = str(error)
        if not attempt.repeats(name.rpartition("/")[0], sum(f.size for f in plan.task.files)):
            text = f"{why}, and the budget does not cover reading its files once more"
            return Failure("", "", text, ENDED)
        self._say(f"{name}: {why}; it is done again with rows on disk")
        less = replace(given, memory_bytes=given.memory_bytes // SMALLER, threads=1)
        again = functools.partial(task_calls.rewritten, attempt="1")
        try:
            return self._in_process(attempt, given, again, *replace(plan, resources=less).work)
        except OutOfMemory as error:
            return Failure("", "", str(error), MEMORY)

    def witness(
        self,
        attempt: Attempt,
        name: str,
        work: WitnessWork,
        bins: Sequence[Sequence[int]],
        size: int,
        opening: Opening | None,
    ) -> list[WitnessResult]:
        given = self.resources(opening, 1)
        limits = Limits.within(given.memory_bytes)

        def one(numbers: Sequence[int]) -> WitnessResult:
            try:
                return self._in_process(attempt, given, witnessed, work, numbers, opening, limits)
            except OutOfMemory as error:
                return WitnessResult(failures=(Failure("", "", str(error), MEMORY),))

        return self._side_by_side(name, one, bins)

    def task_room(self) -> tuple[int, int]:
        return self.resources(None, 1).memory_bytes, self.cores

    def find_hidden(
        self,
        attempt: Attempt,
        name: str,
        work: Sequence[hidden.Task],
        size: int,
        opening: Opening | None,
    ) -> list[hidden.Found | Failure]:
        given = self.resources(opening, 1)

        def one(task: hidden.Task) -> hidden.Found | Failure:
            try:
                return self._in_process(attempt, given, task_calls.found, task, opening)
            except OutOfMemory as error:
                return Failure("", "", str(error), MEMORY)

        return self._side_by_side(name, one, work)

    def _side_by_side(self, name: str, one: Callable[[Any], T], parts: Sequence[Any]) -> list[T]:
        if len(parts) == 1:
            return [one(parts[0])]
        threads = max(1, min(len(parts), self.cores))
        with ThreadPoolExecutor(threads, thread_name_prefix=name) as pool:
            return list(pool.map(one, parts))

    def _in_process(
        self, attempt: Attempt, given: Resources, work: Callable[..., T], *arguments: Any
    ) -> T:
        stopping = attempt.cancelled.is_set
        try:
            return self._pool.run(
                work, *arguments, limit=Limit(given.memory_bytes, PYTHON), stopping=stopping
            )
        except Cancelled as error:
            raise Stopped from error

    # Files

    def output_paths(
        self,
        attempt: Attempt,
        changes: Mapping[str, str],
        spec_id: int,
        tasks: Tasks | None,
        names: Sequence[str],
        of: str = "",
    ) -> tuple[str, ...]:
        from pyiceberg.table.locations import load_location_provider

        table = cast(LocalTable, attempt.table)
        properties = {**table.properties(), **changes}
        provider = load_location_provider(table.location(), properties)
        within = (
            "" if tasks is None else self._directory(table, spec_id, cast(LiveTasks, tasks), of)
        )
        return tuple(provider.new_data_location(f"{within}{name}") for name in names)

    def _directory(self, table: LocalTable, spec_id: int, tasks: LiveTasks, of: str) -> str:
        """Return the directory of the partition of one of the files, "" without a partition."""
        spec = manifest.layout(table.state.metadata, spec_id).partition
        if fields.unpartitioned(spec):
            return ""
        entries = Entries(table.state.metadata, table.properties(), spec_id, 0)
        values = entries.partition_of(tasks[of or next(iter(tasks))].partition)
        return f"{partitions.path(spec, values)}/"

    def entries(
        self, rewrite: GroupRewrite, shape: TableShape, files: Sequence[Output]
    ) -> tuple[WrittenFile, ...]:
        table, live = cast(LocalTable, rewrite.attempt.table), cast(LiveTasks, rewrite.tasks)
        properties, action = {**table.properties(), **rewrite.changes}, rewrite.group.action
        made = Entries(table.state.metadata, properties, action.into, rewrite.order_id)
        first, moves = next(iter(live)), action.moves_by is not None

        def written(one: Output) -> WrittenFile:
            values = made.partition_of(one.partition if moves else live[first].partition)
            key = PartitionKey(made.spec_id, made.key(values))
            return WrittenFile(made.of(one, values), one.path, one.rows, one.size, key)

        return tuple(written(one) for one in files)

    @contextlib.contextmanager
    def readable_deletes(
        self, attempt: Attempt, files: Sequence[DeleteFile]
    ) -> Iterator[Mapping[tuple[str, int], Delete]]:
        odd = sorted(one.path for one in files if one.format not in ("PARQUET", "PUFFIN"))
        if odd:
            raise _needs_spark(attempt.name, f"{odd[0]} is in ORC or Avro")
        yield {file.identity: delete_of(file) for file in files}

    def delete_entries(
        self, attempt: Attempt, tasks: Tasks, files: Sequence[hidden.Written]
    ) -> list[DeleteFile]:
        table, live = cast(LocalTable, attempt.table), cast(LiveTasks, tasks)
        found = list[DeleteFile]()
        of_spec = {
            spec_id: Entries(table.state.metadata, table.properties(), spec_id, 0)
            for spec_id in {live[one.data_file].spec_id for one in files}
        }
        for one in files:
            owner = live[one.data_file]
            made = of_spec[owner.spec_id]
            values = made.partition_of(owner.partition)
            key = PartitionKey(made.spec_id, made.key(values))
            found.append(DeleteFile(
                made.of_positions(one, values), one.path, 0, key,
                made.unpartitioned, 0, one.data_file, (), "PARQUET", one.rows, one.size,
            ))  # fmt: skip
        return found

    def reads(
        self, attempt: Attempt, files: Sequence[DeleteFile], new: Sequence[hidden.Written]
    ) -> bool:
        """Return whether DuckDB reads the rows of one new file, the smallest: Arrow wrote it."""
        one = min(new, key=lambda each: (each.rows, each.path))
        with cast(LocalTable, attempt.table).table.io.new_input(one.path).open() as stream:
            found = positions.read(stream.read(), one.data_file)
        return len(found) == one.rows and found.issuperset(one.sample)

    @contextlib.contextmanager
    def written_otherwise(
        self, rewrite: GroupRewrite, why: str
    ) -> Iterator[tuple[WrittenFile, ...]]:
        raise _needs_spark(rewrite.attempt.name, why)
        yield ()

    def pinpointed(self, attempt: Attempt, number: int, tasks: Tasks, error: Exception) -> None:
        """Return None: errors of this engine's tasks name the file."""

    def refuse_left_out(self, run: Run, snapshot_id: int, inputs: Collection[DeleteFile]) -> None:
        """Do nothing: equality deletes are applied by partition and sequence number alone."""


def _needs_spark(name: str, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"{name} needs Spark: {why}",
        details=("Nothing of this step was committed.",),
        do="run it with --engine Spark, or set spec.engine.type to Spark",
    )
