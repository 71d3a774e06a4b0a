"""Groups: how the inputs of an action are divided into work that fits memory.

A group is committed as a whole. With a key, files whose key ranges overlap belong together; a
group too large for one task's memory is cut into slices of the key, one task each. Without a key,
a group is any run of files. Pure: takes what manifests say, returns which file goes where.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from reconciler.core.actions import HILBERT, Action
from reconciler.core.values import Scalar

MAX_GROUP_BYTES = 16 << 30
"""A larger set of overlapping files is cut in order of key midpoints: a conflict loses one part."""
PACK_TARGETS = 4
"""Output files of one bin-pack group: a conflict loses little, and a tail is rare."""
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
    and NaN included; infinite where they cannot be told from the manifest.
    """

    path: str
    bytes: int
    rows: int
    decoded: int
    low: Scalar | None = None
    high: Scalar | None = None
    span: tuple[float, float] = (-math.inf, math.inf)

    @property
    def bounded(self) -> bool:
        return self.low is not None and self.high is not None


@dataclass(frozen=True, slots=True)
class Group:
    """A part of one action that is read, written, verified and committed as a whole.

    tasks: how many tasks write it side by side. files: output files it should become.
    """

    action_id: str
    action: Action
    inputs: tuple[InputFile, ...]
    tasks: int
    files: int

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.inputs)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.inputs)


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
) -> list[Group]:
    """Groups of one action in key order. target_bytes: file size to write; task_bytes: memory."""
    if action.key and action.curve == HILBERT:
        members = _bounded_size(sorted(inputs, key=lambda file: file.path))
    elif action.key:
        whole = _merge_small(_overlapping(inputs), target_bytes, task_bytes)
        members = [part for component in whole for part in _bounded_size(component)]
    else:
        members = _runs(sorted(inputs, key=lambda file: file.path), target_bytes)
    return [_group(action_id, action, m, target_bytes, task_bytes, cores) for m in members]


def _group(
    action_id: str,
    action: Action,
    inputs: Sequence[InputFile],
    target_bytes: int,
    task_bytes: int,
    cores: int,
) -> Group:
    size = sum(file.bytes for file in inputs)
    files = max(1, round(size / target_bytes))
    memory = -(-sum(file.decoded for file in inputs) // task_bytes) if action.key else 1
    tasks = min(files, max(memory, cores))
    return Group(action_id, action, tuple(inputs), tasks, files)


def _overlapping(inputs: Sequence[InputFile]) -> list[list[InputFile]]:
    """Connected components of files whose key ranges overlap; touching ends do not connect."""
    if any(not file.bounded for file in inputs):
        return [sorted(inputs, key=lambda file: file.path)]
    ordered = sorted(inputs, key=lambda file: (file.low, file.high, file.path))
    components: list[list[InputFile]] = []
    reach: Scalar | None = None
    for file in ordered:
        # Equal constant files (low == high == reach) share their value with the component.
        apart = reach is None or file.low >= reach  # type: ignore[operator]
        if apart and not (components and file.low == file.high == reach):
            components.append([])
        components[-1].append(file)
        reach = file.high if reach is None else max(reach, file.high)  # type: ignore[type-var]
    return components


def _merge_small(
    components: list[list[InputFile]], target_bytes: int, task_bytes: int
) -> list[list[InputFile]]:
    """Neighbouring components together, while they fit one task and are not yet a few files."""
    merged: list[list[InputFile]] = []
    for component in components:
        last = merged[-1] if merged else []
        together = [*last, *component]
        fits = sum(file.decoded for file in together) <= task_bytes
        if merged and fits and sum(f.bytes for f in last) < PACK_TARGETS * target_bytes:
            merged[-1] = together
        else:
            merged.append(list(component))
    return merged


def _bounded_size(component: list[InputFile]) -> list[list[InputFile]]:
    """One component in parts of at most MAX_GROUP_BYTES, in order of key midpoints."""
    total = sum(file.bytes for file in component)
    parts = -(-total // MAX_GROUP_BYTES)
    if parts <= 1:
        return [component]
    ordered = sorted(component, key=lambda file: (_midpoint(file), file.path))
    cut: list[list[InputFile]] = [[] for _ in range(parts)]
    seen = 0
    for file in ordered:
        cut[min(parts - 1, seen * parts // total)].append(file)
        seen += file.bytes
    return [part for part in cut if part]


def _midpoint(file: InputFile) -> float:
    low, high = file.span
    return (low + high) / 2 if math.isfinite(low) and math.isfinite(high) else 0.0


def _runs(inputs: Sequence[InputFile], target_bytes: int) -> list[list[InputFile]]:
    """Runs of about PACK_TARGETS output files; a small rest joins the last run."""
    limit = PACK_TARGETS * target_bytes
    runs: list[list[InputFile]] = []
    size = 0
    for file in inputs:
        if not runs or size + file.bytes > limit:
            runs.append([])
            size = 0
        runs[-1].append(file)
        size += file.bytes
    if len(runs) > 1 and (size < target_bytes or len(runs[-1]) == 1):
        rest = runs.pop()
        runs[-1].extend(rest)
    return runs


def batches(groups: Sequence[Group], commits: int) -> list[list[int]]:
    """Indexes of the groups of each commit: whole groups in order, at most `commits` batches."""
    count = max(1, min(commits, len(groups)))
    edges = [len(groups) * i // count for i in range(count + 1)]
    return [list(range(a, b)) for a, b in itertools.pairwise(edges) if b > a]
