"""Completes the bounds of files with those of their row groups.

A manifest has no bounds of columns whose metrics mode is `none` or `counts`, and writers may leave
out fields of structs. Footers have them. Engines open a file by the manifest alone, so these bounds
serve to estimate what rows hold, never to skip a file.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from reconciler.table.filetable import UNKNOWN, Array, ColumnBounds, FileTable, Int64


def with_footer_bounds(files: FileTable, groups: FileTable, owner: Int64) -> FileTable:
    """Return the files with bounds and null counts from their row groups where manifests have none.

    groups: row groups as a file table. owner: the file of each row group, ascending.
    """
    if not len(owner):
        return files
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    completed = {
        field: _completed(column, groups.columns[field], groups.records, owner, starts)
        for field, column in files.columns.items()
        if field in groups.columns and not column.bounded[owner[starts]].all()
    }
    return replace(files, columns={**files.columns, **completed}) if completed else files


def _completed(
    column: ColumnBounds, groups: ColumnBounds, records: Int64, owner: Int64, starts: Int64
) -> ColumnBounds:
    """Return the column with the bounds of every file whose row groups all have bounds, or only
    NULLs."""
    empty = groups.nulls >= records
    usable = np.logical_and.reduceat(groups.bounded | empty, starts)
    valued = np.logical_or.reduceat(groups.bounded & ~empty, starts)
    rows = owner[starts]
    missing = ~column.bounded[rows] & usable & valued
    known = np.logical_and.reduceat(groups.nulls != UNKNOWN, starts) & (column.nulls[rows] < 0)
    nulls = column.nulls.copy()
    nulls[rows[known]] = np.add.reduceat(groups.nulls, starts)[known]
    bounded = column.bounded.copy()
    bounded[rows[missing]] = True
    truncated = column.truncated.copy()
    truncated[rows[missing]] = np.logical_or.reduceat(groups.truncated, starts)[missing]
    inside, here = groups.bounded & ~empty, rows[missing]
    least = _extremes(groups.lower, inside, starts)[missing]
    greatest = _extremes(groups.upper, inside, starts, last=True)[missing]
    return replace(
        column,
        lower=_placed(column.lower, here, least),
        upper=_placed(column.upper, here, greatest),
        has_lower=column.has_lower | bounded,
        has_upper=column.has_upper | bounded,
        nulls=nulls,
        truncated=truncated,
    )


def _extremes(values: Array, inside: Array, starts: Int64, last: bool = False) -> Array:
    """Return the least (or the greatest) value per run of row groups that have one; any of them
    where none has."""
    distinct, rank = np.unique(values, return_inverse=True)
    rank = rank.reshape(-1)  # byte strings sort, but have no minimum
    beside = -1 if last else len(distinct)
    reduce = np.maximum if last else np.minimum
    found = reduce.reduceat(np.where(inside, rank, beside), starts)
    return distinct[np.clip(found, 0, len(distinct) - 1)]


def _placed(values: Array, rows: Int64, found: Array) -> Array:
    out = values.astype(np.promote_types(values.dtype, found.dtype))
    out[rows] = found
    return out
