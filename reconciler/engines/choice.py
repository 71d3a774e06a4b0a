"""Chooses who carries out a plan: processes of this machine, or Spark. Pure.

The same plan runs on either. Its id does not depend on the engine, and neither does its approval.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reconciler.api.choices import EngineType
from reconciler.api.task_memory import LEAST_TASK, PYTHON
from reconciler.format import duration, iec

SCRATCH_FACTOR = 2.4
"""Bytes on disk of rows that do not fit the memory, in stored bytes of the inputs (measured on
lineitem, with lz4)."""
COPIES = 2
"""Copies of a group's bytes in scratch where files are of another store: its inputs and outputs."""
UNEVEN = 1.5
"""Bytes of a large group per byte of an average one: groups end where ranges of keys do."""
FREE_SHARE = 0.5
"""Share of the free memory that all tasks may use together: the plan has some too, and files that
the system keeps in memory make reading fast."""
LONGEST_SECONDS = 4 * 3600
"""A plan that takes longer on this machine is one for a cluster."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a plan needs of the machine that carries it out."""

    unsupported: str = ""
    """Why the local engine cannot carry it out at all, as a clause; "" if it can."""
    stops_spark: str = ""
    """Why no commit of Spark's succeeds on the table, as a clause; "" if one may."""
    group_bytes: int = 0
    """Stored bytes of the inputs of a group, on average of the action with the largest."""
    remote: bool = False
    """Whether its files are of another store, so that they are fetched first."""
    seconds: float = 0.0
    """Predicted time of all its actions."""
    groups: int = 1
    """How many groups all its actions have."""
    task_bytes: int = 0
    """Memory that the task of a large group takes at least, with its rows on disk."""

    def disk_bytes(self, tasks: int) -> int:
        """Return the scratch space of so many groups at a time, some larger than average."""
        factor = SCRATCH_FACTOR + (COPIES if self.remote else 0)
        return int(tasks * self.group_bytes * UNEVEN * factor)


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine has."""

    cores: int
    """Processes that may work at a time."""
    memory_bytes: int
    """Memory that is free."""
    disk_bytes: int
    """Free space in the directory of temporary files."""
    spark: str = ""
    """Why Spark cannot carry the plan out here, as a clause; "" if it can."""

    @property
    def slots(self) -> int:
        """Processes that may work at a time, each with the least memory of a task."""
        return max(1, min(self.cores, self.memory_bytes // (PYTHON + LEAST_TASK)))

    def task_bytes(self, threads: int) -> int:
        """Return the memory that a task may use. threads: the cores that it has, of `slots`."""
        share = int(self.memory_bytes * FREE_SHARE) * threads // self.slots
        return max(LEAST_TASK, share - PYTHON)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The engine of a plan."""

    engine: EngineType
    """Local or Spark."""
    why: str
    """A clause for people."""
    refused: bool = False
    """Whether it cannot carry out the plan, for the reason in `why`."""

    @property
    def text(self) -> str:
        if self.refused:
            return f"none: {self.why}"
        return f"{self.engine}, because {self.why}"


def choose(asked: EngineType, needs: Needs, machine: Machine) -> Chosen:
    """Return the engine of a plan. asked: Auto, Local or Spark, by an option or a document."""
    machine = replace(machine, spark=machine.spark or needs.stops_spark)
    if asked is EngineType.SPARK:
        return _by_spark(machine, "it was asked for")
    if asked is EngineType.LOCAL:
        if needs.unsupported:
            return Chosen(EngineType.LOCAL, f"the local engine cannot: {needs.unsupported}", True)
        return Chosen(EngineType.LOCAL, "it was asked for")
    if needs.unsupported:
        return _by_spark(machine, needs.unsupported)
    short = _short_of(needs, machine)
    if short and not machine.spark:
        return Chosen(EngineType.SPARK, short)
    if short:
        return Chosen(EngineType.LOCAL, f"{short}, and {machine.spark}")
    return Chosen(EngineType.LOCAL, _fits(needs, machine))


def _by_spark(machine: Machine, why: str) -> Chosen:
    if machine.spark:
        return Chosen(EngineType.SPARK, f"{why}, and {machine.spark}", True)
    return Chosen(EngineType.SPARK, why)


def _short_of(needs: Needs, machine: Machine) -> str:
    """Return what of this machine the plan does not fit, "" if it fits."""
    disk = needs.disk_bytes(machine.slots)
    if disk > machine.disk_bytes:
        free = iec(machine.disk_bytes)
        return f"it may need {iec(disk)} of temporary space, and {free} are free"
    if machine.memory_bytes < PYTHON + LEAST_TASK:
        return f"{iec(machine.memory_bytes)} of memory are free"
    most = machine.task_bytes(max(1, machine.slots // max(1, needs.groups)))
    if needs.task_bytes > most:
        return (
            f"a group of it may need {iec(needs.task_bytes)} of memory, and a task has {iec(most)}"
        )
    if needs.seconds > LONGEST_SECONDS:
        return f"it would take about {duration(needs.seconds)} on this machine"
    return ""


def _fits(needs: Needs, machine: Machine) -> str:
    if not needs.group_bytes:
        return "it rewrites no rows"
    free = iec(machine.memory_bytes)
    return f"it fits this machine: groups of about {iec(needs.group_bytes)}, {free} of memory free"
