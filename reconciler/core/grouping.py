"""How an action's files are cut into groups that are rewritten one at a time.

The what-if simulates these groups and the execution runs them, so both call this one function: a
group's rows must fit one task's memory (decoded, not compressed), and files are taken in order of
the key's midpoint, which loses least against one sort of everything (WAIR section 3.3, memory
limit).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reconciler.core.filetable import FileTable, Int64
from reconciler.core.schema import SortColumn
from reconciler.core.values import Kind


def key_range_groups(
    table: FileTable,
    key: tuple[SortColumn, ...],
    decoded: npt.NDArray[np.float64],
    max_bytes: int,
    max_files: int,
) -> list[Int64]:
    """Row numbers per group, groups and members in key order; every file in exactly one group.

    decoded: bytes in memory per file, float64[files]. The groups are equal in bytes, as few as
    the limits allow.
    """
    if not len(table):
        return []
    order = np.lexsort((table.path.astype(str), *reversed(key_order(table, key))))
    size = np.maximum(decoded[order], 1.0)
    wanted = max(
        int(np.ceil(size.sum() / max(max_bytes, 1))), int(np.ceil(len(order) / max(max_files, 1)))
    )
    middle = np.cumsum(size) - size / 2.0
    group = np.minimum((middle / size.sum() * wanted).astype(np.int64), wanted - 1)
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    return [piece.astype(np.int64) for piece in np.split(order, starts[1:])]


def key_order(table: FileTable, key: tuple[SortColumn, ...]) -> list[Int64]:
    """Per key column the rank of each file's midpoint, int64[files]; unbounded files come last."""
    ranks = []
    for column in key[:2]:
        rank = midpoint_rank(table, column.field_id)
        ranks.append(-rank if column.direction == "desc" else rank)
    return ranks or [np.zeros(len(table), dtype=np.int64)]


def midpoint_rank(table: FileTable, field_id: int) -> Int64:
    """Rank of each file by the middle of its bounds: by number, for bytes by the two ranks' sum."""
    column = table.columns.get(field_id)
    if column is None:
        return np.zeros(len(table), dtype=np.int64)
    if column.kind is Kind.BYTES:
        low = np.unique(column.lower, return_inverse=True)[1].reshape(-1).astype(np.int64)
        high = np.unique(column.upper, return_inverse=True)[1].reshape(-1).astype(np.int64)
        middle = (low + high).astype(np.float64)
    else:
        middle = column.lower.astype(np.float64) / 2.0 + column.upper.astype(np.float64) / 2.0
    middle = np.where(column.bounded, middle, np.inf)
    return np.unique(middle, return_inverse=True)[1].reshape(-1).astype(np.int64)
