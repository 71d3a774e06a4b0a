"""How much a table's readers read and open for nothing, by metadata and recorded queries alone.

It ranks the tables of a fleet before any is planned: no footer and no data file is read. With
recorded queries it is what they read beyond the rows that match. Without them the table counts as
read once a day as a whole, which is an assumption and is called so where it is printed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from reconciler.plan.small_files import auto_target_bytes, small_files
from reconciler.queries.read_cost import read_shape
from reconciler.queries.shape import Shape, Workload
from reconciler.queries.table_view import (
    OPEN_BYTES,
    TableView,
    projected_bytes,
    row_group_count,
    table_view,
)
from reconciler.table.deletes import live_rows
from reconciler.table.observation import Observation
from reconciler.table.times import DAY_MS

MIN_INPUT_FILES = 5
"""Fewest small files that are worth a merge, by the built-in policy."""

ROW_GROUP_BYTES = 128 << 20
"""Size of a row group where no footer was read: the default of Iceberg's writers."""


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """The small files of a table that merging would make fewer."""

    files: int
    """Number of files that would be merged."""
    surplus: int
    """How many fewer files there would be."""
    target: int
    """Target size of a file in bytes."""


@dataclass(frozen=True, slots=True)
class Waste:
    """What is read and opened for nothing, per day."""

    read_bytes: float
    """Bytes read beyond those of the rows that are asked for, delete files included."""
    openings: float
    """Files opened beyond those that would hold the same rows at the target size; every delete file
    is one of them."""
    open_bytes: int
    """Price of opening a file, in bytes of reading."""
    queries: float | None
    """Recorded executions per day; None without any, where one read of the table is assumed."""

    @property
    def cost(self) -> float:
        """The waste in bytes of reading per day: read_bytes + open_bytes x openings
        (docs/design/definitions.md#read-cost)."""
        return self.read_bytes + self.open_bytes * self.openings


def mergeable(seen: Observation) -> SmallFiles:
    """Return the small files that bin-packing would merge, with the built-in settings."""
    target = auto_target_bytes(seen.files, seen.properties)
    packs = [d for d in small_files(seen.files, target, MIN_INPUT_FILES) if d.rewrite]
    surplus = sum(
        max(0, len(d.files) - max(1, math.ceil(int(seen.files.bytes[d.files].sum()) / target)))
        for d in packs
    )
    return SmallFiles(sum(len(d.files) for d in packs), surplus, target)


def waste_of(
    seen: Observation, workload: Workload, small: SmallFiles, open_bytes: int = OPEN_BYTES
) -> Waste:
    """Return the waste of the recorded queries; of one full read a day if none is recorded.

    open_bytes: price of opening a file, in bytes of reading.
    """
    if workload.empty:
        return _of_one_read(seen, small, open_bytes)
    view = table_view(seen.files, None, None, ROW_GROUP_BYTES, open_bytes)
    spare = _spare(seen, small) / max(len(seen.files), 1)
    read = opened = 0.0
    for shape in workload.shapes:
        beyond, files = _of_shape(view, shape)
        read += beyond
        opened += files
    days = workload.span_ms / DAY_MS
    return Waste(read / days, spare * opened / days, open_bytes, workload.queries / days)


def _of_shape(view: TableView, shape: Shape) -> tuple[float, float]:
    """Return the bytes that the queries of a shape read for nothing, and the data files that they
    open, over the recorded window.

    A query needs the matching rows, and at least one row group of its columns, as in the scan
    amplification (docs/design/definitions.md#read-cost).
    """
    found = read_shape(view, shape)
    whole = float(projected_bytes(view.files, shape.projection).sum())
    least = whole / max(row_group_count(view), 1.0)
    needed = np.minimum(np.maximum(found.matching, least), found.bytes)
    return float(shape.weight @ (found.bytes - needed)), float(shape.weight @ found.files)


def _of_one_read(seen: Observation, small: SmallFiles, open_bytes: int) -> Waste:
    """Return the waste of one read of the whole table: hidden rows, delete files, small files."""
    files = seen.files
    hidden = _hidden_share(seen) * files.total_bytes
    beside = float(np.maximum(files.delete_bytes, 0).sum())
    return Waste(hidden + beside, _spare(seen, small), open_bytes, None)


def _spare(seen: Observation, small: SmallFiles) -> float:
    """Return how many openings one read of the whole table could do without."""
    return small.surplus + float(seen.files.delete_files.sum())


def _hidden_share(seen: Observation) -> float:
    """Return the share of the stored rows that deletes hide, as estimated from metadata."""
    stored = int(seen.files.records.sum())
    if not stored or not len(seen.delete_files):
        return 0.0
    return min(max(1.0 - live_rows(seen.files, seen.delete_files).estimate / stored, 0.0), 1.0)
