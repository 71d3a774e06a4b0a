"""Where the witness's work is done: small work and that of a local master by threads of the driver,
the rest by Spark's Python processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from reconciler.api.task_memory import Limits
from reconciler.engines.schedule.attempt import Attempt
from reconciler.rewrite import task_calls
from reconciler.rewrite.comparison import WitnessResult, WitnessWork
from reconciler.rewrite.failures import Failure
from reconciler.rewrite.storage import Opening
from reconciler.rewrite.witness import witnessed
from reconciler.spark.commit.table import spark_of
from reconciler.spark.schedule import again
from reconciler.spark.session import resources

DIRECT_BYTES = 64 << 20
"""Most stored bytes of another store that the driver compares itself: a Python process of an
executor takes a second to start."""


def looked_at(
    attempt: Attempt,
    name: str,
    work: WitnessWork,
    bins: Sequence[Sequence[int]],
    size: int,
    opening: Opening | None,
) -> list[WitnessResult]:
    """Return what the parts of the work hold (`backend.Backend.witness`)."""
    if by_driver(spark_of(attempt).local, size, opening):
        return _in_threads(attempt, work, bins, opening)
    return _on_executors(attempt, name, work, bins, opening)


def by_driver(local: bool, size: int, opening: Opening | None) -> bool:
    """Whether the driver compares the files itself: work that is small, that of a local master, and
    that of a catalog that signs each request."""
    return local or size <= DIRECT_BYTES or is_signed(opening)


def is_signed(opening: Opening | None) -> bool:
    """Whether the catalog signs each request, which it does for the driver alone."""
    return opening is not None and bool(opening.properties.get("s3.signer"))


def _in_threads(
    attempt: Attempt, work: WitnessWork, bins: Sequence[Sequence[int]], opening: Opening | None
) -> list[WitnessResult]:
    threads = min(len(bins), resources.driver_cores(spark_of(attempt)))
    limits = Limits.within(resources.of_driver(spark_of(attempt)).memory_bytes)

    def one(numbers: Sequence[int]) -> WitnessResult:
        return witnessed(work, numbers, opening, limits, attempt.cancelled.is_set)

    with ThreadPoolExecutor(threads, thread_name_prefix="witness") as pool:
        return list(pool.map(one, bins))


def _on_executors(
    attempt: Attempt,
    name: str,
    work: WitnessWork,
    bins: Sequence[Sequence[int]],
    opening: Opening | None,
) -> list[WitnessResult]:
    context = spark_of(attempt).sparkContext
    use_this_python(context)
    context.setJobGroup(name, f"layoutctl verify {attempt.name}")
    parts = [_part(work, numbers) for numbers in bins]
    limits = Limits.within(resources.of_executor(spark_of(attempt)).memory_bytes)

    def run(numbers: Sequence[int]) -> list[WitnessResult | None]:
        some = context.parallelize([parts[number] for number in numbers], len(numbers))
        return list(some.map(_reading(opening, limits)).collect())

    found = again.repeated(attempt, context, name, [_read_bytes(part) for part in parts], run)
    return [WitnessResult(failures=(f,)) if isinstance(f, Failure) else f for f in found]


def use_this_python(context: Any) -> None:
    """Let executors run this interpreter: "python3" may be another one, on this machine or in this
    image."""
    if "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable


def _part(work: WitnessWork, numbers: Sequence[int]) -> WitnessWork:
    if work.exchanges:
        return replace(work, exchanges=tuple(work.exchanges[n] for n in numbers))
    return replace(work, files=tuple(work.files[n] for n in numbers))


def _read_bytes(part: WitnessWork) -> int:
    """Return the most bytes that a task reads."""
    before = [*part.files, *(one.file for one in part.exchanges)]
    deletes = [*(d for file in before for d in file.deletes),
               *(d for one in part.exchanges for d in one.after)]  # fmt: skip
    once = {(one.path, one.offset): one.length for one in deletes}
    return sum(file.size for file in before) + sum(once.values())


def _reading(
    opening: Opening | None, limits: Limits
) -> Callable[[WitnessWork], WitnessResult | None]:
    """Return the function of a task."""

    def read(work: WitnessWork) -> WitnessResult:
        return task_calls.seen(work, opening, limits)

    return again.first_only(read)
