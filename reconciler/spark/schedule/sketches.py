"""Samples data files on Spark's executors, by the reader that samples them on one machine.

Spark distributes names of files and what may be read of each; `catalog.sketch_reader` runs in its
Python processes, and only sampled rows come back. Spark's own `sample` would read everything, and a
single row group cannot be staged as a task of Iceberg. An RDD and not `mapInArrow`, which needs
pandas on the driver and on each executor.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.catalog.network import current_reach
from reconciler.catalog.sketch_reader import VERSION, Requests, Sketch, requested
from reconciler.engines.schedule.asking import balanced
from reconciler.errors import InternalError, ReconcilerError, UserError
from reconciler.rewrite.storage import Opening
from reconciler.spark.session.translate import translate
from reconciler.table.schema import Field, Schema

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

TASKS_PER_SLOT = 2
"""More tasks than slots, so that a slow store delays a part of the work only."""
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([^'.]+)")


@dataclass(frozen=True, slots=True)
class TaskInput:
    """What a task needs."""

    opening: Opening
    """How it opens files."""
    schema: Schema
    """The table's schema."""
    fields: tuple[Field, ...]
    """Columns that are sampled."""
    requests: Requests
    """What may be read of each file."""
    bins: tuple[tuple[int, ...], ...]
    """The numbers of the requests of each task."""
    now_ms: int
    """The time of the sample, in milliseconds since 1970."""
    cpu_seconds: float
    """CPU seconds that a task may use."""
    version: int = VERSION
    """Version of how rows are chosen, here."""


def can_be_carried(io: FileIO) -> bool:
    """Whether another process can open the same files: not if the catalog signs each request."""
    return not io.properties.get("s3.signer")


@dataclass(frozen=True, slots=True)
class OnExecutors:
    """Samples by tasks that have about equal bytes to read (`sketch_reader.ReadSketches`)."""

    spark: Any
    """The session."""
    cpu_seconds: float
    """CPU seconds that all tasks together may use; each has an equal share, which is checked before
    each file."""
    charge: Callable[[float], None]
    """Is called with the CPU seconds that they used, also if one of them failed."""

    def __call__(
        self, io: FileIO, schema: Schema, fields: Sequence[Field], requests: Requests, now_ms: int
    ) -> tuple[Sketch, ...]:
        """Return a sketch per request, in their order.

        Raises the error of the first request that failed, and UserError if the executors lack a
        package or a task used more than its share.
        """
        if not requests:
            return ()
        slots = self.spark.cores
        bins = balanced([request.size for request in requests], TASKS_PER_SLOT * slots)
        properties = {key: value for key, value in io.properties.items() if isinstance(value, str)}
        work = TaskInput(
            Opening(properties, current_reach()), schema, tuple(fields), tuple(requests), bins,
            now_ms, self.cpu_seconds / len(bins),
        )  # fmt: skip
        if "PYSPARK_PYTHON" not in os.environ:
            # Executors run this image or this machine; "python3" may be another interpreter there.
            self.spark.sparkContext.pythonExec = sys.executable
        try:
            numbers = self.spark.sparkContext.parallelize(range(len(bins)), len(bins))
            rows = numbers.flatMap(reading(work)).collect()
        except Exception as error:
            raise _explained(error) from error
        self.charge(sum(seconds for _, seconds, _ in rows))
        found = {number: result for number, _, result in rows}
        failed = [found[number] for number in sorted(found) if isinstance(found[number], Exception)]
        if failed:
            raise failed[0]
        missing = len(requests) - len(found)
        if missing:
            raise InternalError(f"Spark returned {missing} of {len(requests)} samples too few")
        return tuple(found[number] for number in range(len(requests)))


Row = tuple[int, float, Sketch | ReconcilerError]
"""Number of the request, CPU seconds that it took, the sketch or why there is none."""


def reading(work: TaskInput) -> Callable[[int], Iterator[Row]]:
    """Return the function of a task, from the number of its bin to rows."""
    return lambda number: _read_bin(work, number)


def _read_bin(work: TaskInput, number: int) -> Iterator[Row]:
    """Yield a row per request of the bin, until one fails."""
    from reconciler.catalog.network import on_behalf

    start = before = time.process_time()
    for index in work.bins[number]:
        request = work.requests[index]
        result: Sketch | ReconcilerError
        try:
            _check(work, time.process_time() - start)
            with on_behalf(work.opening.reach):
                io = work.opening.open(request.path)
                result = requested(io, work.schema, work.fields, request, work.now_ms)
        except ReconcilerError as error:
            result = error
        now = time.process_time()
        yield index, now - before, result
        before = now
        if isinstance(result, ReconcilerError):
            return


def _check(work: TaskInput, used: float) -> None:
    if work.version != VERSION:
        raise UserError(
            "the executors have another release of this package than the driver",
            details=(f"They choose rows by version {VERSION}, the driver by {work.version}.",),
            do="give driver and executors the same image",
        )
    if used > work.cpu_seconds:
        raise UserError(
            f"a task of the sample used more than {work.cpu_seconds:.0f} CPU seconds, its share of "
            "what was reserved",
            do="lower spec.recommend.sampleBytes",
        )


def _explained(error: Exception) -> ReconcilerError:
    """Return the error for people: a package that the executors lack is named."""
    found = _MISSING.search(str(error))
    if found is None:
        return translate(error, "sample the table on executors")
    return UserError(
        f'the executors lack the Python package "{found[1]}"',
        details=("Python processes on the executors read the sample with the driver's packages.",),
        do="give driver and executors the same image, with this package and its dependencies",
    )
