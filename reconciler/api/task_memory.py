"""How memory is divided between the JVM and the Python that moves and compares rows.

The one place for these sizes: what pods of a policy's spec.engine have, and what a task may use of
it. The JVM of an executor only runs Python and what falls back to Spark, so its heap is small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MIB = 1 << 20
EXECUTOR_HEAP, HEAP_PER_CORE = 512 * MIB, 256 * MIB
"""Of an executor's JVM: Spark itself, and a task that sorts and writes one file by Spark, which
spills what it cannot hold."""
LEAST_OUTSIDE, OUTSIDE_SHARE = 384 * MIB, 10
"""What a JVM takes outside of its heap, by Spark's own figures: 384 MiB, or a tenth of the heap."""
PYTHON = 128 * MIB
"""Of a Python process with Arrow and DuckDB that has read nothing yet."""
LEAST_TASK = 256 * MIB
"""What a task may use at least, whatever is measured or set."""
LEAST_DUCKDB, DUCKDB_SHARE = 128 * MIB, 2
"""DuckDB may use half of a task's memory: Arrow keeps what it freed in the same process."""
DRIVER_SHARE = 0.4
"""Memory of a driver's pod beside its heap, in heaps: Spark's own figure for a Python driver."""
LEAST_THREAD, MOST_THREAD = 128 * MIB, 512 * MIB
"""Memory of a driver's pod for each core's thread: it compares small work alone."""


def executor_heap(cores: int) -> int:
    return EXECUTOR_HEAP + cores * HEAP_PER_CORE


def outside_heap(heap_bytes: int) -> int:
    return max(LEAST_OUTSIDE, heap_bytes // OUTSIDE_SHARE)


def executor_overhead(memory_bytes: int, cores: int) -> int:
    """Return the memory of an executor's pod beside its heap. memory_bytes: for its Python
    processes together, as spec.engine asks for it."""
    python = max(memory_bytes, cores * (PYTHON + LEAST_TASK))
    return outside_heap(executor_heap(cores)) + python


def of_task(overhead_bytes: int, heap_bytes: int, tasks: int) -> int:
    """Return the memory of each of the tasks that an executor runs side by side. overhead_bytes:
    what it has beside its heap."""
    share = (overhead_bytes - outside_heap(heap_bytes)) // max(1, tasks)
    return max(LEAST_TASK, share - PYTHON)


def driver_pod(heap_bytes: int, cores: int) -> int:
    """Return the memory of a driver's pod."""
    beside = max(LEAST_OUTSIDE, DRIVER_SHARE * heap_bytes)
    thread = min(MOST_THREAD, max(LEAST_THREAD, heap_bytes // (4 * max(cores, 1))))
    return math.ceil(heap_bytes + beside) + cores * thread


def local_pod(memory_bytes: int, cores: int) -> int:
    """Return the memory of a pod that carries plans out without Spark: its process, the one that
    starts others, and a process for each core. memory_bytes: for rows, as spec.engine asks."""
    return max(memory_bytes, cores * LEAST_TASK) + (cores + 2) * PYTHON


@dataclass(frozen=True, slots=True)
class Limits:
    """What the witness may use."""

    memory_bytes: int = 512 * MIB
    """Of DuckDB, which spills beyond it."""

    @staticmethod
    def within(task_bytes: int) -> Limits:
        """Return the limits for a task with this memory."""
        return Limits(max(LEAST_DUCKDB, task_bytes // DUCKDB_SHARE))
