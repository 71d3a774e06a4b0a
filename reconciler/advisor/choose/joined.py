"""Joins drifted sets of one partition, and the small files beside them, that would be small files
apart.

Sets that do not overlap are sorted apart, or a file could span the range between them. Where no
other file is in that range, nothing is lost by one file for both. What the next plan would merge
with the file that a set becomes joins it now, by the rules of that plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reconciler.advisor.choose.next_merges import next_merges
from reconciler.advisor.choose.recluster import allowed
from reconciler.advisor.choose.slices import in_one
from reconciler.advisor.situation import Situation
from reconciler.advisor.spent import Left
from reconciler.format import plural
from reconciler.plan.drift import Drift
from reconciler.plan.small_files import WRITTEN_SHARE, leading, small_and_free
from reconciler.table.filetable import FileTable, Int64
from reconciler.table.overlap_depth import Ranges


@dataclass(frozen=True, slots=True)
class _Unit:
    """Files that are rewritten together in any case, or one small file."""

    files: Int64
    """Rows of the file table, ascending."""
    bytes: int
    """Their stored bytes."""
    drift: Drift | None
    """The drifted set; None for a small file."""


def joined(situation: Situation, drifted: Sequence[Drift]) -> list[Drift]:
    """Return the sets to rewrite with those joined that would be less than a file each, and with
    the files that the next plan would merge with what they become. What no budget admits as one
    action stays as it is."""
    partition = situation.table.partition
    found: list[Drift] = []
    for number in dict.fromkeys(int(partition[one.files[0]]) for one in drifted):
        own = [one for one in drifted if partition[one.files[0]] == number]
        found += own if len(own) < 2 else _of_partition(situation, own, number)
    return _with_next_merges(situation, found)


def _with_next_merges(situation: Situation, drifted: Sequence[Drift]) -> list[Drift]:
    """Return the sets, those that become one small file with all that small-file merges of the next
    plan would take together with it."""
    settings = situation.settings
    becoming = [_left(situation.table, one.files, settings.target_bytes) for one in drifted]
    if not any(len(one.bytes) for one in becoming):
        return list(drifted)
    found = list(drifted)
    for merge in next_merges(situation, becoming, lambda _: settings.ordering.key):
        made = _together([drifted[number] for number in merge.sets], merge.rows)
        for number in merge.sets:
            found[number] = made
    return list({id(one): one for one in found}.values())


def _left(table: FileTable, rows: Int64, target_bytes: int) -> Left:
    """Return the one small file that a set becomes; nothing where it becomes larger ones."""
    size = np.array([_as_one_file(table, rows)])
    size = size[size < WRITTEN_SHARE * target_bytes]
    records = np.array([int(table.records[rows].sum())])[: len(size)]
    return Left(rows, records, size, target_bytes, {})


def _as_one_file(table: FileTable, rows: Int64) -> int:
    """Return the bytes of these files as one: of small ones much is footers, of which one is
    left."""
    size = table.bytes[rows]
    chunks = [sizes[rows] for sizes in table.column_sizes.values()]
    if not chunks or min(int(one.min()) for one in chunks) < 0:
        return int(size.sum())
    footers = np.maximum(size - np.sum(chunks, axis=0), 0)
    return int((size - footers).sum() + footers.max())


def _of_partition(situation: Situation, drifted: Sequence[Drift], number: int) -> list[Drift]:
    table, settings = situation.table, situation.settings
    members = np.flatnonzero(table.partition == number)
    ranges = leading(table, settings.ordering.key, members)
    if ranges is None:
        return list(drifted)
    members = members[ranges.known[members]]
    rest = np.setdiff1d(members, np.concatenate([one.files for one in drifted]))
    taken = np.flatnonzero(~allowed(situation))
    small = rest[small_and_free(table, settings.target_bytes, taken, situation.aimed)[rest]]
    units = [_Unit(one.files, int(table.bytes[one.files].sum()), one) for one in drifted]
    units += [_Unit(np.array([row]), int(table.bytes[row]), None) for row in small]
    units.sort(key=lambda unit: _hull(ranges, unit.files))
    found: list[Drift] = []
    for run in _runs(ranges, units, _Others(ranges, np.setdiff1d(rest, small))):
        for part in _parts(run, settings.target_bytes):
            found += _made(situation, part)
    return found


def _hull(ranges: Ranges, files: Int64) -> tuple[int, int]:
    return int(ranges.first[files].min()), int(ranges.last[files].max())


class _Others:
    """Files that stay, by where they lie in the order of the key."""

    def __init__(self, ranges: Ranges, files: Int64) -> None:
        first, last = ranges.first[files], ranges.last[files]
        wide = first < last
        self._first, self._last = np.sort(first[wide]), np.sort(last[wide])
        self._values = np.sort(first[~wide])

    def meet(self, low: int, high: int) -> bool:
        """Whether one of them overlaps the range. Those whose ends touch it do not, unless they or
        the range are of one value."""
        wide = low < high
        begun = np.searchsorted(self._first, high, side="left" if wide else "right")
        ended = np.searchsorted(self._last, low, side="right" if wide else "left")
        upto = np.searchsorted(self._values, high, side="right")
        before = np.searchsorted(self._values, low, side="left")
        return bool(begun > ended or upto > before)


def _runs(ranges: Ranges, units: Sequence[_Unit], others: _Others) -> list[list[_Unit]]:
    """Return the units, which are in order of the key, cut where another file would be spanned."""
    runs: list[list[_Unit]] = []
    low = high = 0
    for unit in units:
        first, last = _hull(ranges, unit.files)
        if runs and not others.meet(low, max(high, last)):
            runs[-1].append(unit)
            high = max(high, last)
        else:
            runs.append([unit])
            low, high = first, last
    return runs


def _parts(run: Sequence[_Unit], target_bytes: int) -> list[list[_Unit]]:
    """Return the run in parts of at least the target size."""
    parts: list[list[_Unit]] = [[]]
    left, held = sum(unit.bytes for unit in run), 0
    for unit in run:
        if held >= target_bytes and left >= target_bytes:
            parts, held = [*parts, []], 0
        parts[-1].append(unit)
        held, left = held + unit.bytes, left - unit.bytes
    return parts


def _made(situation: Situation, part: Sequence[_Unit]) -> list[Drift]:
    """Return one set of all files of a part, or its drifted sets as they are."""
    own = [unit.drift for unit in part if unit.drift is not None]
    rows = np.sort(np.concatenate([unit.files for unit in part]))
    if not own or len(part) < 2 or not in_one(situation, rows):
        return own
    return [_together(own, rows)]


def _together(own: Sequence[Drift], rows: Int64) -> Drift:
    sets = plural(len(own), "set") + " of overlapping files"
    beside = " beside each other" if len(own) > 1 else " and the small files beside it"
    reason = f"{sets}{beside}, {plural(len(rows), 'file')} in all"
    return Drift(own[0].spec_id, own[0].partition, rows, True, reason)
