"""Which partitions of the declared spec the rows of files go to, as bounds show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reconciler.plan import grouping
from reconciler.plan.grouping import Extents
from reconciler.queries import transforms
from reconciler.table.filetable import FileTable, Int64
from reconciler.table.schema import SpecField


@dataclass(frozen=True)
class TargetBounds:
    """Between which target partitions the rows of each file lie."""

    values: npt.NDArray[Any]
    """Partition values that bound some file, ascending."""
    low: Int64
    """int64[files]: index in `values` of the file's lower bound."""
    high: Int64
    """int64[files]: index in `values` of the file's upper bound."""


def target_bounds(files: FileTable, lead: SpecField | None) -> TargetBounds | None:
    """Return the bounds of the lead field's partition values; None where a file may have any."""
    column = None if lead is None else files.columns.get(lead.source_id)
    if lead is None or column is None or not column.bounded.all():
        return None
    source = files.schema.by_id[lead.source_id].type
    if not transforms.groupable(source):
        return None
    ends = [transforms.apply(lead.transform, source, v) for v in (column.lower, column.upper)]
    values, places = np.unique(np.concatenate(ends), return_inverse=True)
    low, high = np.split(places.reshape(-1).astype(np.int64), 2)
    return TargetBounds(values, low, high)


def target_extents(files: FileTable, lead: SpecField | None) -> Extents:
    """Return the range of target partitions of each file, from its bounds of the lead column."""
    arrival, found = grouping.arrivals(files), target_bounds(files, lead)
    if lead is None or found is None:
        return grouping.unbounded(arrival, files.bytes)
    column = files.columns[lead.source_id]
    return Extents(arrival, files.bytes, found.low, found.high, column.bounded, column.nulls != 0)
