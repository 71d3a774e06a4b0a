"""Measures what the recorded queries read of one set of files, by their zone maps.

A table before and after a plan is compared by it (`read_checks`): planned bytes, and their cost
with opened files (docs/design/definitions.md#read-cost). `advisor.measure.credit` measures what
later queries did not read.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.queries.demanded import recorded
from reconciler.queries.read_cost import read_shape
from reconciler.queries.shape import Workload
from reconciler.queries.table_view import OPEN_BYTES, table_view
from reconciler.table.filetable import FileTable
from reconciler.table.sample import RowGroups


@dataclass(frozen=True, slots=True)
class WindowReading:
    """What the recorded queries read of one set of files."""

    bytes: float = 0.0
    """Planned bytes."""
    cost: float = 0.0
    """Planned bytes plus the cost of opening data and delete files, in bytes."""


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
    for demand in recorded(workload, files.schema):
        reading = read_shape(view, demand)
        size += float(demand.weight @ reading.bytes)
        cost += float(demand.weight @ reading.cost)
    return WindowReading(size, cost)
