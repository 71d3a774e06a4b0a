"""Groups of an action as Spark runs them: how many tasks share one, and which commit has it.

`core.grouping` says which files belong together and how many files they become. A group too large
for one task's memory is cut into slices of the key, one task each. Pure: takes what manifests say.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from reconciler.core.actions import Action
from reconciler.core.grouping import Extents, arrival_order, group_files, output_files, places
from reconciler.core.values import Scalar, cut_bound

MEMORY_SHARE = 0.6 * 0.8
"""Share of the heap that Spark gives to tasks, with room for what is not the sort buffer."""
RESERVED_BYTES = 300 << 20
LEAST_TASK_BYTES = 64 << 20
FIXED_ROW_BYTES = 24
VARIABLE_EXPANSION = 4
"""Decoded bytes per compressed byte of variable-width columns, on the safe side."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """One input as its manifest entry describes it.

    decoded: bytes in memory. low, high: bounds of the first key column in its domain, None where
    unknown, so that the file may hold any key. span: the same as scores (`keys.score`), nulls
    and NaN included; infinite where they cannot be told from the manifest. live: bytes without the
    rows that are deleted, None where none are. sequence: its data sequence number.
    """

    path: str
    bytes: int
    rows: int
    decoded: int
    low: Scalar | None = None
    high: Scalar | None = None
    span: tuple[float, float] = (-math.inf, math.inf)
    live: int | None = None
    sequence: int = 0

    @property
    def bounded(self) -> bool:
        return self.low is not None and self.high is not None


@dataclass(frozen=True, slots=True)
class Compression:
    """How rows compress in their new order. share: bytes written per byte that is read. page_bytes:
    what compression takes off a page of every column, which a writer counts in full until it ends;
    None where it is not known."""

    share: float
    page_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A part of one action that is read, written, verified and committed as a whole.

    inputs: in order of arrival, which rows of equal keys keep. target_bytes: of an output file.
    memory_tasks: in how many tasks its rows fit their memory.
    cores: how many tasks run side by side. planned_share: bytes written per live byte read, as the
    plan expects. expected: what this execution knows better, None until it does.
    """

    action_id: str
    action: Action
    inputs: tuple[InputFile, ...]
    target_bytes: int
    memory_tasks: int
    cores: int
    planned_share: float = 1.0
    expected: Compression | None = None

    @property
    def files(self) -> int:
        """Output files it should become."""
        return int(output_files(self.output_bytes, self.target_bytes))

    @property
    def tasks(self) -> int:
        """How many tasks write it; none writes less than a file."""
        return min(self.files, max(self.memory_tasks, self.cores))

    @property
    def spills(self) -> bool:
        """A task's rows may not fit its memory."""
        return self.tasks < self.memory_tasks

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.inputs)

    @property
    def live_bytes(self) -> int:
        """What the rows that are written take in the inputs."""
        return live_bytes(self.inputs)

    @property
    def output_bytes(self) -> float:
        """What they should take once written."""
        known = self.expected
        return self.live_bytes * (self.planned_share if known is None else known.share)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.inputs)

    @property
    def begins(self) -> tuple[Fraction, ...]:
        """The share of the rows before each task but the first: whole output files a task, or each
        would end in a part of one."""
        files, tasks = self.files, self.tasks
        return tuple(Fraction(files * task // tasks, files) for task in range(1, tasks))


def live_bytes(inputs: Iterable[InputFile]) -> int:
    return sum(file.bytes if file.live is None else file.live for file in inputs)


def task_bytes(heap: int, cores: int) -> int:
    """What one of `cores` tasks side by side may sort in a JVM with a heap of that many bytes."""
    return max(LEAST_TASK_BYTES, int((heap - RESERVED_BYTES) * MEMORY_SHARE / cores))


def decoded_bytes(rows: int, columns: int, variable_bytes: int) -> int:
    """Memory of the rows as Spark sorts them: 8 bytes a column, plus variable-width data."""
    return rows * (8 * columns + FIXED_ROW_BYTES) + VARIABLE_EXPANSION * variable_bytes


def make_groups(
    action_id: str,
    action: Action,
    inputs: Sequence[InputFile],
    target_bytes: int,
    task_bytes: int,
    cores: int,
    merge_bytes: int | None = None,
    written_share: float = 1.0,
) -> list[Group]:
    """Groups of one action in key order. target_bytes: file size to write; task_bytes: memory;
    merge_bytes: as `group_files` takes it; written_share: `Group.planned_share`."""
    found = group_files(
        _extents(inputs),
        keyed=bool(action.key),
        curve=action.curve,
        target_bytes=target_bytes,
        merge_bytes=merge_bytes,
    )
    groups = [[inputs[i] for i in members] for members in found.members]
    return [
        Group(
            action_id, action, tuple(own), target_bytes, _memory_tasks(action, own, task_bytes),
            cores, written_share,
        )
        for own in groups
    ]  # fmt: skip


def _extents(inputs: Sequence[InputFile]) -> Extents:
    lows = [_as_kept(file.low, upper=False) for file in inputs]
    highs = [_as_kept(file.high, upper=True) for file in inputs]
    bounds = {bound for bound in (*lows, *highs) if bound is not None}
    rank: dict[Scalar | None, int] = {b: number for number, b in enumerate(sorted(bounds))}
    paths = np.array([file.path for file in inputs], dtype=np.str_)
    sequences = np.array([file.sequence for file in inputs], dtype=np.int64)
    return Extents(
        places(arrival_order(paths, sequences)),
        np.array([file.bytes for file in inputs], dtype=np.int64),
        np.array([rank.get(low, 0) for low in lows], dtype=np.int64),
        np.array([rank.get(high, 0) for high in highs], dtype=np.int64),
        np.array([None not in pair for pair in zip(lows, highs, strict=True)], dtype=np.bool_),
    )


def _as_kept(bound: Scalar | None, *, upper: bool) -> Scalar | None:
    """As file tables keep it, or the plan would group by other bounds than the execution."""
    return cut_bound(bound, upper=upper) if isinstance(bound, bytes) else bound


def _memory_tasks(action: Action, inputs: Sequence[InputFile], task_bytes: int) -> int:
    return -(-sum(file.decoded for file in inputs) // task_bytes) if action.key else 1


def batches(groups: Sequence[Group], commits: int) -> list[list[int]]:
    """Indexes of the groups of each commit: whole groups in order, at most `commits` batches."""
    count = max(1, min(commits, len(groups)))
    edges = [len(groups) * i // count for i in range(count + 1)]
    return [list(range(a, b)) for a, b in itertools.pairwise(edges) if b > a]
