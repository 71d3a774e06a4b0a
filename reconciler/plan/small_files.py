"""Decides which small files to merge, per partition, and what size the target is.

Files grow in tiers, as in an LSM tree: a set is merged only if every file in it grows by at least a
third, so that a byte is rewritten O(log n) times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from reconciler.format import plural
from reconciler.plan.drift import Drift
from reconciler.plan.grouping import SMALL_SHARE
from reconciler.table.filetable import Bool, FileTable, Int64
from reconciler.table.numbers import FILE_BYTES, number
from reconciler.table.overlap_depth import Ranges, ranges_of
from reconciler.table.schema import SortColumn

MIB = 1 << 20

WRITTEN_SHARE = 0.5
"""A file of ours above this share of the size that it was written to have is not small."""

LARGEST_SHARE = 0.75
"""A set is packed only if its largest file is at most this share of it."""

UNEQUAL = "of too unequal sizes to merge yet"
AS_MANY = "merged they would be as many files of the target size"
APART = "too few of them are neighbours in the order of the key"
"""Why small files are not merged, of at least minInputFiles in their partition."""


def auto_target_bytes(table: FileTable, properties: Mapping[str, str]) -> int:
    """Return the target file size for Auto: the table's property, else by table size.

    PTO, Algorithm 4 (the rule of a human expert):
      TFS = size / min(max(partitions, 10000), max(10 * partitions, 30)), within 32 and 512 MiB.
    """
    declared = declared_target_bytes(properties)
    if declared:
        return declared
    partitions = max(len(np.unique(table.partition)), 1)
    files = min(max(partitions, 10_000), max(10 * partitions, 30))
    return min(max(table.total_bytes // files, 32 * MIB), 512 * MIB)


def declared_target_bytes(properties: Mapping[str, str]) -> int:
    """Return the table's own target, 0 if it has none that is valid."""
    return number(properties, FILE_BYTES, 0)


def small_files(
    table: FileTable,
    target_bytes: int,
    min_input_files: int,
    *,
    key: Sequence[SortColumn] = (),
    taken: Int64 | None = None,
    largest_share: float = LARGEST_SHARE,
    aimed: Int64 | None = None,
) -> list[Drift]:
    """Return sets of small files to bin-pack, and small files to leave alone and why.

    Small is below 0.75 of the target and mergeable with at least minInputFiles of its (spec,
    partition); a tiny partition's only file is not small. With a key, only neighbours in key order
    are packed, so that no packed file spans others. taken: rows that are rewritten anyway.
    largest_share: 1.0 disables the size tiers, for an objective that forces packing. aimed: the
    size that each file of ours was written to have, int64[files]; None for the target.
    """
    candidate = small_and_free(table, target_bytes, taken, aimed)
    decisions: list[Drift] = []
    for spec_id, partition, members in table.groups():
        small = members[candidate[members]]
        if len(small) < 2:
            continue
        ranges = leading(table, key, members)
        packed: list[Int64] = []
        causes: set[str] = set()
        for neighbours in _neighbours(ranges, small, members[~candidate[members]]):
            if len(neighbours) < max(min_input_files, 2):
                causes.add(APART)
            packed += _pack(
                table.bytes, neighbours, target_bytes, min_input_files, largest_share, causes,
                ordered=ranges is not None,
            )  # fmt: skip
        for files in packed:
            reason = f"{plural(len(files), 'file')} below {SMALL_SHARE:.2f} of the target size"
            decisions.append(Drift(spec_id, partition, np.sort(files), True, reason))
        rest = _without(small, packed)
        if len(rest) > 1:
            why = _why_not_packed(len(rest), min_input_files, causes)
            decisions.append(Drift(spec_id, partition, rest, False, why))
    return decisions


def small_and_free(
    table: FileTable, target_bytes: int, taken: Int64 | None, aimed: Int64 | None
) -> Bool:
    """Return bool[files]: which are free and small; a file of ours, for what it was to be."""
    free = np.ones(len(table), dtype=np.bool_)
    if taken is not None:
        free[taken] = False
    least = np.minimum(target_bytes, target_bytes if aimed is None else aimed)
    grown = table.layout_written & (table.bytes >= WRITTEN_SHARE * least)
    return free & (table.bytes < SMALL_SHARE * target_bytes) & ~grown


def _without(small: Int64, packed: Sequence[Int64]) -> Int64:
    """Return the small files that are in no pack, ascending if there is one."""
    if not packed:
        return small
    left = np.zeros(int(small.max(initial=-1)) + 1, dtype=np.bool_)
    left[small] = True
    left[np.concatenate(packed)] = False
    return np.flatnonzero(left)


def small_mask(
    table: FileTable,
    target_bytes: int,
    min_input_files: int,
    *,
    key: Sequence[SortColumn] = (),
    aimed: Int64 | None = None,
) -> Bool:
    """Return bool[files]: the file is small as objectives count it, so it can be packed away."""
    mask = np.zeros(len(table), dtype=np.bool_)
    for decision in small_files(table, target_bytes, min_input_files, key=key, aimed=aimed):
        if decision.rewrite:
            mask[decision.files] = True
    return mask


def _neighbours(ranges: Ranges | None, small: Int64, large: Int64) -> list[Int64]:
    """Return runs of small files in key order, split wherever a large file is between two of them.

    Files without bounds form a set of their own: packing them does not disturb a known order.
    """
    if ranges is None:
        return [small]
    unknown = small[~ranges.known[small]]
    small = small[ranges.known[small]]
    large = large[ranges.known[large]]
    order = small[np.lexsort((ranges.last[small], ranges.first[small]))]
    reach = np.maximum.accumulate(ranges.last[order])[:-1]
    following = ranges.first[order][1:]
    begun = np.searchsorted(np.sort(ranges.first[large]), following, side="left")
    ended = np.searchsorted(np.sort(ranges.last[large]), reach, side="right")
    between = (following > reach) & (begun > ended)
    pieces = np.split(order, np.flatnonzero(between) + 1)
    return [piece for piece in (*pieces, unknown) if len(piece)]


def _pack(
    size: Int64,
    files: Int64,
    target_bytes: int,
    min_input_files: int,
    largest_share: float,
    causes: set[str],
    *,
    ordered: bool,
) -> list[Int64]:
    """Return the set itself if it is worth packing, else what remains of it without its largest
    file.

    Every file then grows by at least a third, and the number of files falls. In key order the
    largest file separates its neighbours; without an order the rest stays together. causes: why a
    set was not packed is added here.
    """
    packed: list[Int64] = []
    pending = [files]
    while pending:
        part = pending.pop()
        if len(part) < max(min_input_files, 2):
            continue
        mine = size[part]
        largest = int(np.argmax(mine))
        total = int(mine.sum())
        equal = mine[largest] <= largest_share * total
        if equal and -(-total // target_bytes) < len(part):
            packed.append(part)
            continue
        causes.add(AS_MANY if equal else UNEQUAL)
        if ordered:
            pending += [part[:largest], part[largest + 1 :]]
        else:
            pending.append(np.delete(part, largest))
    return packed


def _why_not_packed(count: int, min_input_files: int, causes: set[str]) -> str:
    """Return why files of one partition are not merged; files of equal size may be too large."""
    if count < min_input_files:
        return f"fewer than minInputFiles {min_input_files} in each"
    return ", or ".join(cause for cause in (UNEQUAL, AS_MANY, APART) if cause in causes)


def leading(table: FileTable, key: Sequence[SortColumn], members: Int64) -> Ranges | None:
    """Return the ranges of the first key column of which these files, of one partition, hold more
    than one value: rows of a partition by a key column are in the order of the next one. None
    where it has no bounds."""
    for column in key:
        if column.field_id not in table.columns:
            return None
        ranges = ranges_of(table, column.field_id)
        first = ranges.first[members]
        if not ranges.constant[members].all() or first.min() < first.max():
            return ranges
    return None
