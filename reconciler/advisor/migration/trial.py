"""Chooses the files of a trial: those that hold rows of one partition of the declared spec.

If the spec's first field keeps the order of values, a partition's files are known by their bounds.
Else every file may have rows of every partition, and the files of one present partition are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reconciler.advisor.advice import Migration
from reconciler.advisor.migration.targets import target_bounds
from reconciler.advisor.situation import Situation
from reconciler.format import iec
from reconciler.plan.reasons import partition_text
from reconciler.table.filetable import FileTable, Float64, Int64
from reconciler.table.schema import PartitionField, PartitionSpec, lead_field


@dataclass(frozen=True)
class Part:
    """The files that a trial moves."""

    rows: Int64
    """int64: the files, ascending rows of the file table."""
    why: str
    """What they are and why these, for people."""


@dataclass(frozen=True)
class _Sets:
    """Sets of files by target partition, of which a trial moves one."""

    first: Int64
    """int64[files]: the first set that the file is in."""
    last: Int64
    """int64[files]: the last set that the file is in."""
    names: Sequence[str]
    """The target partition of each set, for people."""

    def sums(self, values: Float64) -> Float64:
        """Return the sums per set of values per file."""
        change = np.zeros(len(self.names) + 1)
        np.add.at(change, self.first, values)
        np.add.at(change, self.last + 1, -values)
        return np.cumsum(change)[:-1]


def trial_part(situation: Situation, migration: Migration, free: Int64) -> Part | None:
    """Return the part of these files on which the declared spec shows most: where the recorded
    queries could save most for each byte that is moved; without queries, the smallest part.

    None where no part is smaller than the whole: then there is nothing to try.
    """
    files, settings = situation.table.take(free), situation.settings
    sets = _by_target(files, migration) or _by_partition(files)
    size = sets.sums(files.bytes.astype(np.float64))
    number = sets.sums(np.ones(len(files)))
    usable = (number > 0.5) & (number < len(files) - 0.5)
    if settings.most_bytes is not None:
        usable &= size <= settings.most_bytes
    if not usable.any():
        return None
    gain = sets.sums(np.maximum(situation.expected.savings.saving[free], 0.0))
    shows = bool((gain[usable] > 0.0).any())
    score = gain / np.maximum(size, 1.0) if shows else -size
    best = int(np.argmax(np.where(usable, score, -np.inf)))
    moved = f"{sets.names[best]}, {iec(int(size[best]))} of {iec(files.total_bytes)}"
    why = "the queries could save most there for what is moved" if shows else "it is the smallest"
    return Part(
        free[(sets.first <= best) & (sets.last >= best)], f"trial on one partition, {moved}: {why}"
    )


def _by_target(files: FileTable, migration: Migration) -> _Sets | None:
    """Return a set per partition value that bounds a file; None where bounds do not tell."""
    lead = lead_field(migration.fields)
    bounds = target_bounds(files, lead)
    if lead is None or bounds is None:
        return None
    field = PartitionField(lead.source_id, 0, lead.transform, lead.text(files.schema))
    spec = PartitionSpec(migration.spec_id, (field,))
    names = [partition_text(spec, (value,), files.schema) for value in bounds.values.tolist()]
    return _Sets(bounds.low, bounds.high, names)


def _by_partition(files: FileTable) -> _Sets:
    """Return a set per present partition."""
    present, number = np.unique(files.partition, return_inverse=True)
    names = []
    for index in present.tolist():
        spec_id, values = files.partitions[index]
        names.append(partition_text(files.specs[spec_id], values, files.schema))
    place = number.reshape(-1).astype(np.int64)
    return _Sets(place, place, names)
