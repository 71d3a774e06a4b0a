"""Measures what recorded queries read from given zone maps; predictions and savings are compared by
it.

It computes planned bytes and their cost with opened files (definitions: Read cost) of a window over
one set of files, and the realised saving of a past action: later queries against its inputs' old
zone maps and against the files that replaced them (WAIR section 4.3). Realised savings count opened
files, because predicted savings and the cost of rewriting do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reconciler.advisor.advice import HORIZON_MS
from reconciler.advisor.simulate.demand import demands
from reconciler.queries.fragments import Fragment, Workload, batch_fragments
from reconciler.queries.read_cost import read_shape
from reconciler.queries.table_view import OPEN_BYTES, table_view
from reconciler.table.filetable import FileTable
from reconciler.table.sample import RowGroups

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class WindowReading:
    """bytes: planned. cost: planned bytes plus the cost of opening data and delete files, in
    bytes."""

    bytes: float = 0.0
    cost: float = 0.0


def window_read(
    files: FileTable,
    workload: Workload,
    row_groups: RowGroups | None = None,
    row_group_bytes: int = 128 << 20,
    open_bytes: int = OPEN_BYTES,
) -> WindowReading:
    """Return what the recorded queries read from `files`; exact if footers are known.

    open_bytes: the price of opening a file by which the plan was made.
    """
    if not len(files) or workload.empty:
        return WindowReading()
    view = table_view(files, row_groups, None, row_group_bytes, open_bytes)
    size = cost = 0.0
    for demand in demands(workload, files.schema, HORIZON_MS):
        reading = read_shape(view, demand)
        size += float(demand.weight @ reading.bytes)
        cost += float(demand.weight @ reading.cost)
    return WindowReading(size, cost)


@dataclass(frozen=True, slots=True)
class Realised:
    """saved: bytes-equivalent of reading that later queries saved, files not opened included; None
    if none ran yet. until_ms: time of the last of them.

    too_early: less than a day of queries has been seen since the action.
    """

    saved: float | None
    queries: float
    until_ms: int
    too_early: bool


def realised_saving(
    before: Sequence[FileTable],
    after: FileTable,
    fragments: Sequence[Fragment],
    since_ms: int,
    open_bytes: int = OPEN_BYTES,
) -> Realised:
    """Return what queries after `since_ms` read and open less of `after` than they would of
    `before`.

    before: the inputs of each action; actions of one plan share no input, so they add up. Full
    scans count as in predictions: they save opened files.
    """
    later = batch_fragments(f for f in fragments if f.event_ms >= since_ms)
    if later.empty:
        return Realised(None, 0.0, since_ms, True)

    def cost(files: FileTable) -> float:
        return window_read(files, later, open_bytes=open_bytes).cost

    saved = sum(map(cost, before)) - cost(after)
    return Realised(saved, later.queries, later.until_ms, later.until_ms - since_ms < DAY_MS)


def live_outputs(files: FileTable, outputs: Sequence[str]) -> FileTable:
    """Return the files of `outputs` that are still live; empty if they were rewritten since."""
    wanted = set(outputs)
    return files.take(np.array([path in wanted for path in files.path], dtype=bool))
