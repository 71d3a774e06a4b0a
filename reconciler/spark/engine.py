"""The engine of a JVM: Iceberg's Java library commits, Spark runs what this process does not.

Implements `engines.backend.Backend`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from reconciler.api.catalog_config import CatalogConfig
from reconciler.engines import backend
from reconciler.engines.backend import Tasks
from reconciler.engines.delete_file import DeleteFile
from reconciler.engines.deletes.wanted import Hidden, Wanted
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.group import Group
from reconciler.engines.schedule.refused import DamagedInputError
from reconciler.engines.schedule.run import Run
from reconciler.engines.schedule.written import TaskMetrics, Written
from reconciler.rewrite.storage import Opening
from reconciler.rewrite.witness import Seen, Work
from reconciler.spark.commit import table
from reconciler.spark.commit.table import JavaTable
from reconciler.spark.deletes import by_engine, left_out
from reconciler.spark.schedule import damage, witness_work, write
from reconciler.spark.schedule.scan import ScanTasks
from reconciler.spark.session import iceberg, metrics, translate


class JavaBackend:
    """spark: the session, which starts Spark when something needs it."""

    errors: backend.Errors = translate

    def __init__(self, spark: Any) -> None:
        self.spark = spark

    @property
    def cores(self) -> int:
        return int(self.spark.cores)

    def process_id(self) -> int | None:
        return iceberg.jvm_pid(self.spark)

    def load(self, catalog: CatalogConfig, identifier: tuple[str, ...]) -> JavaTable:
        return table.load(self.spark, iceberg.qualified(catalog, identifier))

    def cancel(self, names: Iterable[str]) -> None:
        self.spark.cancel(names)

    def spent(self, name: str) -> TaskMetrics:
        return metrics.of_job_group(self.spark, name)

    def rewrite_group(
        self,
        attempt: Attempt,
        number: int,
        group: Group,
        tasks: Tasks,
        begun: Callable[[int], None],
        threads: int,
    ) -> Written:
        return write.rewrite_group(attempt, number, group, cast(ScanTasks, tasks), begun, threads)

    def pinpointed(
        self, attempt: Attempt, number: int, tasks: Tasks, error: Exception
    ) -> DamagedInputError | None:
        return damage.pinpointed(attempt, number, cast(ScanTasks, tasks), error)

    def write_deletes(
        self,
        attempt: Attempt,
        base: str,
        tasks: Tasks,
        wanted: Mapping[str, Wanted],
        keep: bool = False,
    ) -> Hidden:
        return by_engine.written(attempt, base, cast(ScanTasks, tasks), wanted, keep)

    def witness(
        self,
        attempt: Attempt,
        name: str,
        work: Work,
        bins: Sequence[Sequence[int]],
        size: int,
        opening: Opening | None,
    ) -> list[Seen]:
        return witness_work.looked_at(attempt, name, work, bins, size, opening)

    def refuse_left_out(self, run: Run, snapshot_id: int, inputs: Collection[DeleteFile]) -> None:
        left_out.refuse(run, snapshot_id, inputs)
