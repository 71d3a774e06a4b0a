"""The engine of a JVM: Iceberg's Java library commits, Spark runs what this process does not.

Implements `engines.backend.Backend`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

from reconciler.api.catalog_config import CatalogConfig
from reconciler.engines import engine_errors
from reconciler.engines.backend import Copies
from reconciler.engines.delete_file import DeleteFile
from reconciler.engines.manifests import Tasks, WrittenFile
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.group_rewrite import GroupRewrite
from reconciler.engines.schedule.native import GroupPlan
from reconciler.engines.schedule.refused import DamagedInputError
from reconciler.engines.schedule.run import Run
from reconciler.rewrite import hidden
from reconciler.rewrite.comparison import WitnessResult, WitnessWork
from reconciler.rewrite.deletes import Delete
from reconciler.rewrite.failures import Failure
from reconciler.rewrite.files import TableShape
from reconciler.rewrite.storage import Opening
from reconciler.rewrite.task import Made, Output, Resources
from reconciler.spark.commit import table
from reconciler.spark.commit.reading import written_files
from reconciler.spark.commit.table import JavaTable
from reconciler.spark.deletes import by_engine, left_out
from reconciler.spark.fallback import replica_rows
from reconciler.spark.schedule import damage, entries, witness_work
from reconciler.spark.schedule import tasks as tasks_of_spark
from reconciler.spark.schedule.fallen_back import overridden, written_by_spark
from reconciler.spark.schedule.scan import ScanTasks
from reconciler.spark.session import iceberg, metrics, translate


class JavaBackend:
    """The engine of a session with a JVM, which starts Spark when something needs it."""

    errors: engine_errors.Errors = translate

    def __init__(self, spark: Any) -> None:
        self.spark = spark

    @property
    def cores(self) -> int:
        return int(self.spark.cores)

    def process_id(self) -> int | None:
        return iceberg.jvm_pid(self.spark)

    def load(self, catalog: CatalogConfig, identifier: tuple[str, ...]) -> JavaTable:
        return table.load(self.spark, iceberg.qualified(catalog, identifier))

    def copies(self, catalog: CatalogConfig, table: tuple[str, ...], name: str) -> Copies:
        other = iceberg.qualified(catalog, (*table[:-1], name))
        return replica_rows.JavaCopies(self.spark, other)

    def cancel(self, names: Iterable[str]) -> None:
        self.spark.cancel(names)

    def spent(self, name: str) -> float:
        return metrics.of_job_group(self.spark, name)

    def resources(self, opening: Opening | None, threads: int) -> Resources:
        return tasks_of_spark.resources_of(self.spark, opening, threads)

    def more(self, opening: Opening | None, given: Resources, needed: int) -> Resources:
        return tasks_of_spark.more(self.spark, opening, given, needed)

    def output_paths(
        self,
        attempt: Attempt,
        changes: Mapping[str, str],
        spec_id: int,
        tasks: Tasks | None,
        names: Sequence[str],
        of: str = "",
    ) -> tuple[str, ...]:
        placed = overridden(attempt, changes)
        return entries.output_paths(placed, spec_id, cast("ScanTasks | None", tasks), names, of)

    def run_task(self, attempt: Attempt, name: str, plan: GroupPlan) -> Made | Failure:
        return tasks_of_spark.run(attempt, name, plan)

    def entries(
        self, rewrite: GroupRewrite, shape: TableShape, files: Sequence[Output]
    ) -> tuple[WrittenFile, ...]:
        placed = overridden(rewrite.attempt, rewrite.changes)
        made = entries.entries_of(self.spark, placed, rewrite, shape, files)
        return written_files(self.spark, placed, made)

    def written_otherwise(
        self, rewrite: GroupRewrite, why: str
    ) -> AbstractContextManager[tuple[WrittenFile, ...]]:
        return written_by_spark(rewrite)

    def pinpointed(
        self, attempt: Attempt, number: int, tasks: Tasks, error: Exception
    ) -> DamagedInputError | None:
        return damage.pinpointed(attempt, number, cast(ScanTasks, tasks), error)

    def task_room(self) -> tuple[int, int]:
        return by_engine.task_room(self.spark)

    def readable_deletes(
        self, attempt: Attempt, files: Sequence[DeleteFile]
    ) -> AbstractContextManager[Mapping[tuple[str, int], Delete]]:
        return by_engine.in_parquet(attempt, files)

    def find_hidden(
        self,
        attempt: Attempt,
        name: str,
        work: Sequence[hidden.Task],
        size: int,
        opening: Opening | None,
    ) -> list[hidden.Found | Failure]:
        return by_engine.find(attempt, name, work, size, opening)

    def delete_entries(
        self, attempt: Attempt, tasks: Tasks, files: Sequence[hidden.Written]
    ) -> list[DeleteFile]:
        return by_engine.entries_of(attempt, cast(ScanTasks, tasks), files)

    def reads(
        self, attempt: Attempt, files: Sequence[DeleteFile], new: Sequence[hidden.Written]
    ) -> bool:
        return by_engine.reads(attempt, files, new)

    def witness(
        self,
        attempt: Attempt,
        name: str,
        work: WitnessWork,
        bins: Sequence[Sequence[int]],
        size: int,
        opening: Opening | None,
    ) -> list[WitnessResult]:
        return witness_work.looked_at(attempt, name, work, bins, size, opening)

    def refuse_left_out(self, run: Run, snapshot_id: int, inputs: Collection[DeleteFile]) -> None:
        left_out.refuse(run, snapshot_id, inputs)
