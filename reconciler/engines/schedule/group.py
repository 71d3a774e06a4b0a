"""Groups of an action as they are carried out, and the commit that each belongs to.

`plan.grouping` decides which files belong together and how many files they become. Pure: its input
is from manifests.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from reconciler.plan.actions.rewrite import Rewrite
from reconciler.plan.grouping import Extents, arrival_order, by_bounds
from reconciler.table.permutations import inverse_permutation
from reconciler.table.row_group_bytes import output_files
from reconciler.table.values import Scalar, cut_bound


@dataclass(frozen=True, slots=True)
class InputFile:
    """One input as its manifest entry describes it."""

    path: str
    """Location of the file."""
    bytes: int
    """Size of the file."""
    rows: int
    """Rows in it, deleted ones included."""
    low: Scalar | None = None
    """Lower bound of the first key column in its domain, or the first leaf of a tree that may have
    values of it; None if unknown: the file may hold any key."""
    high: Scalar | None = None
    """Upper bound of the first key column, or the last such leaf, None if unknown."""
    live: int | None = None
    """Bytes without the deleted rows, None without deletes."""
    sequence: int = 0
    """Data sequence number."""
    null: bool = True
    """Whether the first key column may hold a NULL."""

    @property
    def bounded(self) -> bool:
        return self.low is not None and self.high is not None


@dataclass(frozen=True, slots=True)
class Group:
    """A part of one action that is read, written, verified and committed as a whole."""

    action_id: str
    """Id of the action."""
    action: Rewrite
    """What is done to it."""
    inputs: tuple[InputFile, ...]
    """Input files in order of arrival, in which rows with equal keys stay."""
    target_bytes: int
    """Bytes of an output file."""
    written_share: float = 1.0
    """Bytes written per live byte read, as the plan expects."""

    @property
    def files(self) -> int:
        """Return the number of output files, as the plan counts them."""
        return int(output_files(self.output_bytes, self.target_bytes))

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.inputs)

    @property
    def live_bytes(self) -> int:
        """Return the bytes in the inputs of the rows that are written."""
        return live_bytes(self.inputs)

    @property
    def output_bytes(self) -> float:
        """Return the expected bytes of these rows when written."""
        return self.live_bytes * self.written_share

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.inputs)


def live_bytes(inputs: Iterable[InputFile]) -> int:
    return sum(file.bytes if file.live is None else file.live for file in inputs)


def make_groups(
    action_id: str,
    action: Rewrite,
    inputs: Sequence[InputFile],
    target_bytes: int,
    merge_bytes: int | None = None,
    written_share: float = 1.0,
) -> list[Group]:
    """Return the groups of one action in key order. target_bytes: bytes of a file to write.
    merge_bytes: as in `Ordering.groups`. written_share: as in `Group`."""
    found = action.groups(_extents(inputs), target_bytes=target_bytes, merge_bytes=merge_bytes)
    return [
        Group(action_id, action, tuple(inputs[i] for i in members), target_bytes, written_share)
        for members in found.members
    ]


def _extents(inputs: Sequence[InputFile]) -> Extents:
    lows = [_as_kept(file.low, upper=False) for file in inputs]
    highs = [_as_kept(file.high, upper=True) for file in inputs]
    paths = np.array([file.path for file in inputs], dtype=np.str_)
    sequences = np.array([file.sequence for file in inputs], dtype=np.int64)
    return by_bounds(
        inverse_permutation(arrival_order(paths, sequences)),
        np.array([file.bytes for file in inputs], dtype=np.int64),
        np.array(lows, dtype=object),  # whole numbers of any size, and bytes with their last NULs
        np.array(highs, dtype=object),
        np.array([None not in pair for pair in zip(lows, highs, strict=True)], dtype=np.bool_),
        np.array([file.null for file in inputs], dtype=np.bool_),
    )


def _as_kept(bound: Scalar | None, *, upper: bool) -> Scalar | None:
    """Return the bound as file tables keep it, or plan and execution would group by different
    bounds."""
    return cut_bound(bound, upper=upper) if isinstance(bound, bytes) else bound


def batches(groups: Sequence[Group], commits: int) -> list[list[int]]:
    """Return the indexes of the groups of each commit: whole groups in order, at most `commits`
    batches."""
    count = max(1, min(commits, len(groups)))
    edges = [len(groups) * i // count for i in range(count + 1)]
    return [list(range(a, b)) for a, b in itertools.pairwise(edges) if b > a]
