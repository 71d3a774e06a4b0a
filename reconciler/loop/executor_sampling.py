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
    """Reads sketches (catalog.sketch_reader.ReadSketches).

    start: starts a session with executors. cpu_seconds: that the job may use. bound: holds this
    process to what is left of them, given what other processes used. executor_seconds: CPU seconds
    that the tasks used so far.
    """

    start: Callable[[], Any]
    cpu_seconds: float
    bound: Callable[[float], None]
    executor_seconds: float = 0.0

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
