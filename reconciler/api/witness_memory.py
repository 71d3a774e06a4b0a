"""How much memory verification takes beside a JVM's heap: for tasks, and for the size of pods."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_MEMORY = 128 << 20
PYTHON_MEMORY = 256 << 20
"""Bytes of a Python process with DuckDB and Arrow, besides DuckDB's limit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a task may use."""

    memory_bytes: int = 512 << 20
    """Of DuckDB, which spills beyond it."""

    @staticmethod
    def beside(heap_bytes: int, cores: int) -> Limits:
        """Return the limits of each of `cores` tasks beside a JVM with this heap."""
        most = Limits().memory_bytes
        return Limits(min(most, max(LEAST_MEMORY, heap_bytes // (4 * max(cores, 1)))))


def in_driver(heap_bytes: int, cores: int) -> int:
    """Return the bytes that a driver's threads take, one for each core, in a process that runs
    anyway."""
    return cores * Limits.beside(heap_bytes, cores).memory_bytes


def in_executor(heap_bytes: int, cores: int) -> int:
    """Return the bytes that an executor's Python processes take, one for each core."""
    return in_driver(heap_bytes, cores) + cores * PYTHON_MEMORY
