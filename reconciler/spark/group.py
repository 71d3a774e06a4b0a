"""Groups of an action as Spark runs them: the number of tasks of each, and the commit it belongs
to.

`plan.grouping` decides which files belong together and how many files they become. A group too
large for one task's memory is cut into slices of the key, one task each. Pure: its input is from
manifests.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from reconciler.plan.actions.rewrite import Rewrite
from reconciler.plan.grouping import (
    Extents,
    arrival_order,
    output_files,
    places,
)
from reconciler.table.row_group_bytes import PAGE_ROWS, PAGES
from reconciler.table.values import Scalar, cut_bound

MEMORY_SHARE = 0.6 * 0.8
"""Share of the heap that Spark gives to tasks, less what is not the sort buffer."""
RESERVED_BYTES = 300 << 20
LEAST_TASK_BYTES = 64 << 20
LEAST_MOVED_BYTES = 4 << 20
"""Of inputs for each task that writes rows to their new partitions."""
MOST_CUTS = 8
"""Files of few pages that get a task each: each of these tasks may read all inputs."""
FIXED_ROW_BYTES = 24
VARIABLE_EXPANSION = 4
"""Decoded bytes per compressed byte of variable-width columns, a safe estimate."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """One input as its manifest entry describes it.

    decoded: bytes in memory. low, high: bounds of the first key column in its domain, None if
    unknown, so that the file may hold any key. span: the same as scores (`keys.score`), nulls and
    NaN included; infinite if the manifest does not show them. live: bytes without the deleted rows,
    None without deletes. sequence: its data sequence number. null: whether the column may hold a
    NULL.
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
    null: bool = True

    @property
    def bounded(self) -> bool:
        return self.low is not None and self.high is not None


@dataclass(frozen=True, slots=True)
class Compression:
    """How rows compress in their new order. share: bytes written per byte that is read.

    page_bytes: bytes that compression saves on a page of every column, which a writer counts in
    full until the page ends; None if unknown.
    """

    share: float
    page_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A part of one action that is read, written, verified and committed as a whole.

    inputs: in order of arrival, which rows with equal keys keep. target_bytes: of an output file.
    memory_tasks: number of tasks whose memory its rows fit. cores: number of parallel tasks.
    planned_share: bytes written per live byte read, as the plan expects. expected: what this
    execution has measured instead, None so far.
    """

    action_id: str
    action: Rewrite
    inputs: tuple[InputFile, ...]
    target_bytes: int
    memory_tasks: int
    cores: int
    planned_share: float = 1.0
    expected: Compression | None = None

    @property
    def files(self) -> int:
        """Number of output files it should become."""
        return int(output_files(self.output_bytes, self.target_bytes))

    @property
    def tasks(self) -> int:
        """Number of tasks that write it; each writes at least a file.

        Rows that move become a file per partition, so even less than a target may be many files.
        """
        most = max(self.memory_tasks, self.cores)
        if self.action.moves_by:
            return min(max(self.files, self.bytes // LEAST_MOVED_BYTES), most)
        return self.files if self.few_pages else min(self.files, most)

    @property
    def few_pages(self) -> bool:
        """Whether files have so few pages that a writer can hardly end them where they should.

        Its length counts open pages as they are before compression and falls when they are full.
        Of a wide table it then grows beyond any earlier length only just before the next page is
        full, so that a file has nearly twice the rows of a page, and the one after it the rest.
        """
        few = self.rows < PAGES * PAGE_ROWS * self.files
        return few and self.files <= MOST_CUTS and bool(self.action.ordering.key)

    @property
    def spills(self) -> bool:
        """Whether a task's rows may exceed its memory."""
        return self.tasks < self.memory_tasks

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.inputs)

    @property
    def live_bytes(self) -> int:
        """Bytes in the inputs of the rows that are written."""
        return live_bytes(self.inputs)

    @property
    def output_bytes(self) -> float:
        """Expected bytes of these rows when written."""
        known = self.expected
        return self.live_bytes * (self.planned_share if known is None else known.share)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.inputs)

    @property
    def begins(self) -> tuple[Fraction, ...]:
        """Share of the rows before each task except the first.

        Each task writes whole output files; otherwise each would end in a part of one.
        """
        files, tasks = self.files, self.tasks
        return tuple(Fraction(files * task // tasks, files) for task in range(1, tasks))


def live_bytes(inputs: Iterable[InputFile]) -> int:
    return sum(file.bytes if file.live is None else file.live for file in inputs)


def task_bytes(heap: int, cores: int) -> int:
    """Return the bytes that one of `cores` parallel tasks may sort in a JVM with this heap."""
    return max(LEAST_TASK_BYTES, int((heap - RESERVED_BYTES) * MEMORY_SHARE / cores))


def decoded_bytes(rows: int, columns: int, variable_bytes: int) -> int:
    """Return the memory of the rows as Spark sorts them: 8 bytes per column, plus variable-width
    data."""
    return rows * (8 * columns + FIXED_ROW_BYTES) + VARIABLE_EXPANSION * variable_bytes


def make_groups(
    action_id: str,
    action: Rewrite,
    inputs: Sequence[InputFile],
    target_bytes: int,
    task_bytes: int,
    cores: int,
    merge_bytes: int | None = None,
    written_share: float = 1.0,
) -> list[Group]:
    """Groups of one action in key order. target_bytes: file size to write; task_bytes: memory;
    merge_bytes: as `Ordering.groups` takes it; written_share: `Group.planned_share`."""
    found = action.groups(_extents(inputs), target_bytes=target_bytes, merge_bytes=merge_bytes)
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
        np.array([file.null for file in inputs], dtype=np.bool_),
    )


def _as_kept(bound: Scalar | None, *, upper: bool) -> Scalar | None:
    """Return the bound as file tables keep it, or plan and execution would group by different
    bounds."""
    return cut_bound(bound, upper=upper) if isinstance(bound, bytes) else bound


def _memory_tasks(action: Rewrite, inputs: Sequence[InputFile], task_bytes: int) -> int:
    return -(-sum(file.decoded for file in inputs) // task_bytes) if action.ordering.key else 1


def batches(groups: Sequence[Group], commits: int) -> list[list[int]]:
    """Return the indexes of the groups of each commit: whole groups in order, at most `commits`
    batches."""
    count = max(1, min(commits, len(groups)))
    edges = [len(groups) * i // count for i in range(count + 1)]
    return [list(range(a, b)) for a, b in itertools.pairwise(edges) if b > a]
