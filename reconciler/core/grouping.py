"""How an action's files are divided into groups, and a group's rows into output files.

The what-if simulates these groups and the execution runs them: both call these functions, or a plan
foretells another layout than the one that is written. Only what manifests say goes in, never the
memory or the cores of a machine: the same plan writes the same groups everywhere. What a task can
hold in memory decides how many tasks share a group, not what belongs to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reconciler.core.actions import HILBERT
from reconciler.core.filetable import Bool, FileTable, Int64
from reconciler.core.schema import SortColumn

MAX_GROUP_BYTES = 16 << 30
"""A larger set of overlapping files is cut in order of key midpoints: a conflict loses one part."""
PACK_TARGETS = 4
"""Output files of one group of files that need not be together: a conflict loses little."""
SMALL_SHARE = 0.75
"""A file below this share of the target size is small, a candidate for bin-packing."""


@dataclass(frozen=True, slots=True)
class Extents:
    """What grouping looks at, one entry a file.

    path: str[files], for an order that is always the same. bytes: int64[files], stored. low, high:
    int64[files], ranks of the bounds of the key's first column among all of these bounds.
    bounded: bool[files], False where a file may hold any key.
    """

    path: npt.NDArray[np.str_]
    bytes: Int64
    low: Int64
    high: Int64
    bounded: Bool

    def __len__(self) -> int:
        return len(self.path)


def extents(table: FileTable, key: tuple[SortColumn, ...]) -> Extents:
    """The files of a table by the first column of the key; all alike without a key."""
    column = table.columns.get(key[0].field_id) if key else None
    if column is None:
        return unbounded(table.path.astype(str), table.bytes)
    ranks = np.unique(np.concatenate((column.lower, column.upper)), return_inverse=True)[1]
    low, high = np.split(ranks.reshape(-1).astype(np.int64), 2)
    return Extents(table.path.astype(str), table.bytes, low, high, column.bounded)


def unbounded(path: npt.NDArray[np.str_], size: Int64) -> Extents:
    """Files whose keys are not known, or do not matter."""
    zeros = np.zeros(len(path), dtype=np.int64)
    return Extents(path, size, zeros, zeros, np.zeros(len(path), dtype=np.bool_))


def output_files(size: npt.ArrayLike, target_bytes: float) -> Int64:
    """Files that so many bytes become, int64: whole targets, rounded.

    Files of 2/3 to 3/2 of the target then, 3/4 at least where there are several, so that what one
    rewrite leaves is not small for the next.
    """
    targets = np.asarray(size, dtype=np.float64) / max(float(target_bytes), 1.0)
    return np.maximum(1, np.floor(targets + 0.5)).astype(np.int64)


def group_files(
    files: Extents,
    *,
    keyed: bool,
    curve: str,
    target_bytes: int,
    merge_bytes: int | None = None,
    max_bytes: int = MAX_GROUP_BYTES,
) -> list[Int64]:
    """Indexes per group, groups in key order; every file is in exactly one group.

    With a key, files whose key ranges overlap belong together, and neighbours that are less than
    PACK_TARGETS files are merged. Along a curve every file may overlap every other. Without a key a
    group is a run of files in order of their paths. merge_bytes: neighbours are not merged beyond
    it, PACK_TARGETS targets by default.
    """
    if not len(files):
        return []
    merge = PACK_TARGETS * target_bytes if merge_bytes is None else merge_bytes
    if not keyed:
        return _runs(files, merge, target_bytes)
    whole = [np.argsort(files.path, kind="stable")]
    if curve != HILBERT:
        whole = _merged(
            _overlapping(files), files.bytes, merge, min(SMALL_SHARE * target_bytes, merge)
        )
    return [part for component in whole for part in _bounded(component, files, max_bytes)]


def _overlapping(files: Extents) -> list[Int64]:
    """Connected components of files whose key ranges overlap; touching ends do not connect."""
    if not files.bounded.all():
        return [np.argsort(files.path, kind="stable")]
    order = np.lexsort((files.path, files.high, files.low))
    low, high = files.low[order], files.high[order]
    reach = np.maximum.accumulate(high)
    # Equal constant files (low == high == reach) share their value with the component.
    constant = (low[1:] == high[1:]) & (low[1:] == reach[:-1])
    apart = (low[1:] >= reach[:-1]) & ~constant
    return np.split(order, np.flatnonzero(apart) + 1)


def _merged(components: list[Int64], size: Int64, limit: int, small: float) -> list[Int64]:
    """Neighbouring components together up to `limit` bytes; none is left alone below `small`."""
    total = [int(size[component].sum()) for component in components]
    starts, held = [0], total[0]
    for number, own in enumerate(total[1:], start=1):
        if held + own <= limit or held < small:
            held += own
        else:
            starts.append(number)
            held = own
    if held < small and len(starts) > 1:
        starts.pop()
    ends = [*starts[1:], len(components)]
    return [np.concatenate(components[a:b]) for a, b in zip(starts, ends, strict=True)]


def _bounded(component: Int64, files: Extents, limit: int) -> list[Int64]:
    """One component in parts of about `limit` bytes at most, in order of key midpoints.

    Of all ways to cut it, this loses least against one sort of everything (WAIR section 3.3).
    """
    total = int(files.bytes[component].sum())
    parts = -(-total // limit)
    if parts <= 1:
        return [component]
    last = np.iinfo(np.int64).max
    middle = np.where(files.bounded, files.low + files.high, last)[component]
    order = component[np.lexsort((files.path[component], middle))]
    size = files.bytes[order]
    part = np.minimum((np.cumsum(size) - size) * parts // total, parts - 1)
    return np.split(order, np.flatnonzero(np.diff(part)) + 1)


def _runs(files: Extents, limit: int, target_bytes: int) -> list[Int64]:
    """Runs of at most `limit` bytes in order of path; a small rest joins the last run."""
    order = np.argsort(files.path, kind="stable")
    starts, held = [0], 0
    for number, own in enumerate(files.bytes[order].tolist()):
        if number and held + own > limit:
            starts.append(number)
            held = 0
        held += own
    if len(starts) > 1 and (held < target_bytes or starts[-1] == len(order) - 1):
        starts.pop()
    return np.split(order, starts[1:])
