"""Chooses who reads the sample of a recommend job: its own process, or executors.

Executors take time and CPU to start. They read what is large; the session ends as soon as the
sample is read, so that no executor waits while candidates are simulated.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.catalog.sketch_reader import Requests, Sketch, read_directly
from reconciler.table.schema import Field, Schema

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

DIRECT_BYTES = 1 << 30
"""Most stored bytes that the job reads itself."""


@dataclass
class ExecutorSampling:
    """Reads sketches on executors (`catalog.sketch_reader.ReadSketches`)."""

    start: Callable[[], Any]
    """Starts a session with executors."""
    cpu_seconds: float
    """CPU seconds that the job may use in all."""
    bound: Callable[[float], None]
    """Limits this process to the rest of `cpu_seconds`; takes those that other processes have
    used."""
    executor_seconds: float = 0.0
    """CPU seconds that the tasks have used so far."""

    def __call__(
        self, io: FileIO, schema: Schema, fields: Sequence[Field], requests: Requests, now_ms: int
    ) -> Sequence[Sketch]:
        from reconciler.spark.schedule.sketches import OnExecutors, can_be_carried
        from reconciler.spark.session.session import stop

        size = sum(request.size for request in requests)
        if size <= DIRECT_BYTES or not can_be_carried(io):
            return read_directly(io, schema, fields, requests, now_ms)
        spark = self.start()
        try:
            left = max(0.0, self.cpu_seconds - self.used_seconds())
            read = OnExecutors(spark, left, self._charge)
            return read(io, schema, fields, requests, now_ms)
        finally:
            stop(spark)
            self.bound(self._elsewhere())

    def _charge(self, seconds: float) -> None:
        self.executor_seconds += seconds

    def used_seconds(self) -> float:
        """Return the CPU seconds of this process, of its JVM once that has ended, and of tasks."""
        return time.process_time() + self._elsewhere()

    def _elsewhere(self) -> float:
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ended.ru_utime + ended.ru_stime + self.executor_seconds
