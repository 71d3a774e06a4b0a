"""Reclustering by overlap alone, as large warehouses do it, whatever queries ask (WAIR, section
6.1: "Data-Driven Incremental", of Dremio by Snowflake's metric)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reconciler.advisor.advice import Settings
from reconciler.plan.actions.base import Action
from reconciler.plan.ordering import Lexicographic
from reconciler.queries.shape import Workload
from reconciler.replay.policies.fixed import sorts
from reconciler.replay.run import Policy, ReplayTable
from reconciler.table.filetable import FileTable, Int64
from reconciler.table.overlap_depth import ranges_of
from reconciler.table.schema import SortColumn

THRESHOLD = 2
"""Files over one value of the key above which they are sorted together."""


def depth_driven(column: int, most_bytes: float) -> Policy[ReplayTable]:
    """After each batch, sort the files over the values that most files hold, until none is held by
    more than THRESHOLD, within a budget.

    most_bytes: of files that one batch admits; what it does not use is kept for the next ones.
    """
    ordering, left = Lexicographic((SortColumn(column),)), 0.0

    def policy(table: ReplayTable, work: Workload, settings: Settings) -> Sequence[Action]:
        nonlocal left
        left += most_bytes
        files, actions = table.file_table(), list[Action]()
        for number in np.unique(files.partition).tolist():
            own = np.flatnonzero(files.partition == number).astype(np.int64)
            for rows in deepest(files, own, column):
                fitting = rows[np.cumsum(files.bytes[rows]) <= left]
                if len(fitting) > 1:
                    left -= float(files.bytes[fitting].sum())
                    actions += sorts(files, fitting, ordering, settings)
        return actions

    return policy


def deepest(files: FileTable, rows: Int64, column: int) -> list[Int64]:
    """Return disjoint sets of these files over one value each, those over the deepest place first,
    as long as more than THRESHOLD remain over one."""
    if column not in files.columns:
        return []
    ranges = ranges_of(files, column)
    found, left = [], rows[ranges.known[rows]]
    while len(left) > THRESHOLD:
        first, last = ranges.first[left], ranges.last[left]
        starts = np.searchsorted(np.sort(first), first, side="right")
        ended = np.searchsorted(np.sort(last), first, side="left")
        place = first[int((starts - ended).argmax())]
        over = (first <= place) & (last >= place)
        if int(over.sum()) <= THRESHOLD:
            break
        found.append(left[over])
        left = left[~over]
    return found
