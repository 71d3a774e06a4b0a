"""Which maintenance of delete files the tightest budget can admit, and how the rest is cut.

Position deletes are cut by delete file: each slice leaves one delete file for each data file that
it names, so it is of use by itself. A conversion cannot be cut. An equality delete applies to a
whole partition, and no metadata could say that it applies to only some of its data files any more:
a part that is done would show nowhere, would be read again by the next one, and would spare readers
nothing before the last. The data files of a conversion that no budget admits are rewritten instead
(`majors`), in slices: each data file that is rewritten is out from under the delete for good. The
next equality delete of its partition applies to it again, so where these come sooner than budgets
admit all slices, some data file is always under one (`outrun`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from reconciler.advisor.choose.slices import budgets_needed
from reconciler.advisor.situation import Situation
from reconciler.plan.actions.delete_maintenance import (
    CompactDeletes,
    ConvertDeletes,
    DeleteMaintenance,
)
from reconciler.plan.grouping import filled
from reconciler.queries.table_view import projected_bytes
from reconciler.table.deletes import DeleteTable
from reconciler.table.filetable import Bool, Int64
from reconciler.table.times import HOUR_MS


@dataclass(frozen=True)
class Conversion:
    """Equality deletes of one partition, or of the whole table, to be converted together."""

    inputs: Int64
    """int64: the delete files, as rows of the delete table."""
    rows: Int64
    """int64: the data files that they apply to, ascending rows of the file table."""
    size: int
    """Bytes that the conversion reads."""


@dataclass(frozen=True)
class DeleteSlices:
    """Delete files, cut into slices that the tightest budget can admit."""

    slices: tuple[Int64, ...]
    """The delete files of each slice, as rows of the delete table."""
    oversized: Int64
    """The delete files whose smallest useful part is larger than any budget can admit."""


def conversions(situation: Situation) -> Iterator[Conversion]:
    """Yield the equality deletes of each partition, and those of the whole table."""
    deletes = situation.given.deletes
    for inputs in by_partition(deletes, deletes.equality & ~deletes.dangling):
        rows = reached(situation, inputs)
        if len(rows):
            columns = sorted({i for row in inputs.tolist() for i in deletes.equality_ids[row]})
            scanned = projected_bytes(situation.table, columns)[rows].sum()
            yield Conversion(inputs, rows, int(deletes.bytes[inputs].sum() + scanned))


def beyond_conversion(situation: Situation) -> Bool:
    """Return bool[files]: under equality deletes that the policy lets be converted and no budget
    does."""
    found = np.zeros(len(situation.table), dtype=np.bool_)
    settings = situation.settings
    limited = settings.most_bytes is not None or settings.most_cpu_seconds is not None
    if not (limited and settings.deletes.minors):
        return found
    for one in conversions(situation):
        if not admits(situation, ConvertDeletes, one.size, len(one.inputs)):
            found[one.rows] = True
    return found


def outrun(situation: Situation) -> Bool:
    """Return bool[files]: under equality deletes of which another one is expected before the
    budgets can admit a rewrite of all data files that they apply to.

    Such a rewrite takes the tightest budget several times, and each time but the first a period
    has to pass.
    """
    found = np.zeros(len(situation.table), dtype=np.bool_)
    settings = situation.settings
    for one in conversions(situation):
        times = times_of(situation, one.inputs)
        every = np.flatnonzero(under(situation, one.inputs))  # rewritten by this plan or not
        needed = budgets_needed(situation, every)
        if len(times) < 2 or not 1.0 < needed < math.inf:
            continue
        waits = (math.ceil(needed) - 1) * settings.budget_ms
        between = max(settings.now_ms - min(times), 1) / (len(times) - 1)
        found[one.rows] |= waits >= between
    return found


def times_of(situation: Situation, inputs: Int64) -> list[int]:
    """Return when the retained snapshots that wrote these delete files were committed, in ms."""
    wrote = set(np.unique(situation.given.deletes.snapshot_id[inputs]).tolist())
    every = situation.given.operations.every
    return [one.timestamp_ms for one in every if one.snapshot_id in wrote]


def coming(situation: Situation, inputs: Int64) -> float:
    """Return how many operations on the scope are expected over the horizon, from the commits that
    wrote its delete files."""
    settings, times = situation.settings, times_of(situation, inputs)
    if not times:
        return 0.0
    return len(times) * settings.horizon_ms / max(settings.now_ms - min(times), HOUR_MS)


def admits(situation: Situation, kind: type[DeleteMaintenance], size: int, files: int) -> bool:
    """Whether the tightest budget can admit an action that reads `size` bytes of `files` files."""
    return _share(situation, kind, size, files) <= 1.0


def delete_slices(situation: Situation, inputs: Int64) -> DeleteSlices:
    """Return a compaction of these position deletes in as few slices as the budget needs."""
    deletes = situation.given.deletes
    if admits(situation, CompactDeletes, int(deletes.bytes[inputs].sum()), len(inputs)):
        return DeleteSlices((inputs,), inputs[:0])
    unit = _units(situation, inputs)
    count = int(unit.max()) + 1
    size = np.bincount(unit, deletes.bytes[inputs], count).astype(np.int64)
    files = np.bincount(unit, minlength=count)
    each = zip(size.tolist(), files.tolist(), strict=True)
    share = np.array([_share(situation, CompactDeletes, *one) for one in each])
    fits = share <= 1.0
    number = np.full(count, -1, dtype=np.int64)
    if fits.any():
        number[fits] = filled(share[fits])
    own = number[unit]
    parts = tuple(inputs[own == part] for part in range(int(own.max()) + 1))
    return DeleteSlices(parts, inputs[own < 0])


def _share(situation: Situation, kind: type[DeleteMaintenance], size: int, files: int) -> float:
    """Return the share of the tightest budget that reading so much takes, apart from the fixed CPU
    of an action: more than 1 where no budget admits it."""
    settings, work = situation.settings, kind.work
    assert work is not None
    share = 0.0
    if settings.most_bytes is not None:
        share = size / settings.most_bytes if settings.most_bytes else math.inf
    if settings.most_cpu_seconds is not None:
        time = settings.throughput
        fixed = time.cpu_seconds(work, 0)
        own = time.cpu_seconds(work, size, files) - fixed
        share = max(share, own / max(settings.most_cpu_seconds - fixed, 1e-9))
    return share


def _units(situation: Situation, inputs: Int64) -> Int64:
    """Return the part of each delete file that is not cut, numbered from 0 in the order of slices.

    Delete files of one data file stay together. Those of a partition come first, the oldest first;
    on format 3 they stay together with all others of their partition, because a vector hides every
    other position delete and so has to take them all in.
    """
    deletes = situation.given.deletes
    of_file = deletes.data_row[inputs] >= 0
    if not of_file.all() and situation.settings.metadata.format_version >= 3:
        return np.zeros(len(inputs), dtype=np.int64)
    own = np.where(of_file, deletes.data_row[inputs], inputs)
    age = np.where(of_file, 0, deletes.sequence[inputs])
    order = np.lexsort((own, age, of_file))
    ordered = np.stack((of_file[order], own[order]))
    starts = np.concatenate(([False], (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)))
    unit = np.empty(len(inputs), dtype=np.int64)
    unit[order] = np.cumsum(starts)
    return unit


def by_partition(deletes: DeleteTable, chosen: Bool) -> Iterator[Int64]:
    """Yield the delete files of each (spec, partition), in a fixed order."""
    groups: dict[tuple[int, int, str], list[int]] = {}
    for row in np.flatnonzero(chosen).tolist():
        key = (int(deletes.spec_id[row]), int(deletes.group[row]), repr(deletes.partition[row]))
        groups.setdefault(key, []).append(row)
    for key in sorted(groups):
        yield np.array(groups[key], dtype=np.int64)


def reached(situation: Situation, inputs: Int64) -> Int64:
    """Return the data files that the deletes apply to and that no rewrite of the plan replaces."""
    return np.flatnonzero(under(situation, inputs) & ~situation.spent.taken).astype(np.int64)


def under(situation: Situation, inputs: Int64) -> Bool:
    """Return bool[files]: one of these delete files applies to the file."""
    hit = np.zeros(len(situation.table), dtype=np.bool_)
    for row in inputs.tolist():
        hit[situation.given.deletes.reaches(row, situation.table)] = True
    return hit
