"""What deletes cost those who read the data files: fetched bytes, opened files, applied rows.

Applying is priced by `apply_cost`, fetching and opening like those of data files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from reconciler.advisor.advice import Settings
from reconciler.advisor.deletes.apply_cost import apply_seconds
from reconciler.queries.read_cost import ShapeReading
from reconciler.queries.rewrite_cost import READ_CPU_PER_BYTE
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import projected_bytes
from reconciler.table.deletes import DeleteTable, equality_deleted
from reconciler.table.filetable import Bool, FileTable, Float64


@dataclass(frozen=True)
class Burden:
    """What deletes cost the readers of each file; arrays have shape [files], float64."""

    reads: Float64
    """Whole readings of the file over the horizon."""
    positions: Float64
    """Rows of the position delete files that a reader of the file loads."""
    keys: Float64
    """Rows of the equality delete files that a reader of the file loads."""
    key_sets: Float64
    """Distinct sets of identity columns among these."""
    hidden: Float64
    """Rows that equality deletes hide, if each key is of one row."""
    dead: Float64
    """Rows that are deleted, by position or by key."""
    seconds: Float64
    """CPU seconds of applying deletes in one reading."""
    key_bytes: Float64
    """Bytes of the equality delete files."""

    def density(self, files: FileTable) -> Float64:
        """Return the share of deleted rows, per file."""
        return self.dead / np.maximum(files.records, 1)


def read_bytes_of(settings: Settings, seconds: Any) -> Any:
    """Return CPU seconds (a number or an array) as bytes read, the unit of costs and savings.

    A byte takes READ_CPU_PER_BYTE on a machine of the speed that rewrites had.
    """
    per_byte = settings.throughput.cpu_scale["pack"] * READ_CPU_PER_BYTE
    return seconds / per_byte


def burden_of(
    table: FileTable,
    deletes: DeleteTable,
    demands: Sequence[Shape],
    readings: Sequence[ShapeReading],
) -> Burden:
    """Return what the deletes of every file cost its readers; readings: of the demands."""
    count = len(table)
    positions, keys, key_sets, key_bytes = (np.zeros(count) for _ in range(4))
    if not len(deletes):
        nothing = Burden(*(np.zeros(count) for _ in fields(Burden)))
        return replace(nothing, reads=_reads(table, demands, readings))
    seen: dict[tuple[int, ...], Bool] = {}
    for row in np.flatnonzero(~deletes.dangling).tolist():
        scope = deletes.reaches(row, table)
        if not deletes.equality[row]:
            positions[scope] += deletes.records[row]
            continue
        keys[scope] += deletes.records[row]
        key_bytes[scope] += deletes.bytes[row]
        ids = deletes.equality_ids[row]
        seen.setdefault(ids, np.zeros(count, dtype=np.bool_))[scope] = True
    for hit in seen.values():
        key_sets += hit
    hidden = equality_deleted(table, deletes)
    return Burden(
        reads=_reads(table, demands, readings),
        positions=positions,
        keys=keys,
        key_sets=key_sets,
        hidden=hidden,
        dead=np.minimum(table.position_deleted + hidden, table.records),
        seconds=apply_seconds(positions, keys, key_sets, table.records),
        key_bytes=key_bytes,
    )


def _reads(table: FileTable, demands: Sequence[Shape], readings: Sequence[ShapeReading]) -> Float64:
    """Return how often the queries of the horizon read each file, in whole readings of their
    columns."""
    reads = np.zeros(len(table))
    for demand, reading in zip(demands, readings, strict=True):
        whole = projected_bytes(table, demand.projection) + np.maximum(table.delete_bytes, 0)
        reads += reading.read / np.maximum(whole, 1.0)
    return reads
