"""What recorded queries read from given zone maps: the yardstick of predictions and savings.

Planned bytes (definitions: Read cost) of a window over one set of files, and the realised saving of
a past action: later queries against its inputs' old zone maps and against what replaced them
(WAIR section 4.3: savings are measured by comparing zone maps before and after).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reconciler.advisor.advice import HORIZON_MS
from reconciler.advisor.simulate.demand import demands
from reconciler.core.cost import read_shape, table_view
from reconciler.core.filetable import FileTable
from reconciler.core.sample import RowGroups
from reconciler.core.workload import Fragment, Workload, batch_fragments

DAY_MS = 86_400_000


def window_read(
    files: FileTable,
    workload: Workload,
    row_groups: RowGroups | None = None,
    row_group_bytes: int = 128 << 20,
) -> float:
    """Planned bytes that the recorded queries read from `files`; exact where footers are known."""
    if not len(files) or workload.empty:
        return 0.0
    view = table_view(files, row_groups, None, row_group_bytes)
    return float(
        sum(
            float(demand.weight @ read_shape(view, demand).bytes)
            for demand in demands(workload, files.schema, HORIZON_MS)
        )
    )


@dataclass(frozen=True, slots=True)
class Realised:
    """saved: bytes that later queries read less, None where none ran yet. until_ms: last of them.

    too_early: less than a day of queries has been seen since the action.
    """

    saved: float | None
    queries: float
    until_ms: int
    too_early: bool


def realised_saving(
    before: Sequence[FileTable], after: FileTable, fragments: Sequence[Fragment], since_ms: int
) -> Realised:
    """What queries after `since_ms` read less of `after` than they would have of `before`.

    before: the inputs of each action; actions of one plan share no input, so they add up.
    """
    later = batch_fragments(f for f in fragments if f.event_ms >= since_ms and not f.full_scan)
    if later.empty:
        return Realised(None, 0.0, since_ms, True)
    saved = sum(window_read(files, later) for files in before) - window_read(after, later)
    return Realised(saved, later.queries, later.until_ms, later.until_ms - since_ms < DAY_MS)


def live_outputs(files: FileTable, outputs: Sequence[str]) -> FileTable:
    """The files of `outputs` that are still live; empty when they were rewritten since."""
    wanted = set(outputs)
    return files.take(np.array([path in wanted for path in files.path], dtype=bool))
