"""Boundary files: those that a query needs only in part (WAIR section 3.2, Algorithm 1).

A file wholly inside or wholly outside every queried range gains nothing from reclustering.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reconciler.queries.pruning import contained
from reconciler.queries.read_cost import Demand, files_to_read
from reconciler.table.filetable import Bool, ColumnBounds, FileTable, Int64
from reconciler.table.values import Scalar


def boundary_files(files: FileTable, demand: Demand) -> Bool:
    """Return bool[queries, files]: the query reads the file, and perhaps needs only a part of
    it."""
    if not demand.prunable:
        return np.zeros((len(demand), len(files)), dtype=np.bool_)
    whole = contained(
        demand.predicate, demand.literals, files.columns, files.records,
        schema=files.schema, queries=len(demand),
    )  # fmt: skip
    return files_to_read(files, demand) & ~whole


def greedy_boundaries(column: ColumnBounds, left: Scalar, right: Scalar) -> tuple[Int64, Int64]:
    """Return the files that cover l and those that cover r, as two sets to recluster (Algorithm 1).

    Files with a degenerate range are skipped, and the second set leaves out files of the first.
    """
    wide = column.bounded & (column.lower != column.upper)
    covers_left = wide & _covers(column, left)
    covers_right = wide & _covers(column, right) & ~covers_left
    return (
        np.flatnonzero(covers_left).astype(np.int64),
        np.flatnonzero(covers_right).astype(np.int64),
    )


def _covers(column: ColumnBounds, value: Scalar) -> npt.NDArray[np.bool_]:
    point = np.asarray(value, dtype=column.lower.dtype if column.lower.dtype.kind != "S" else None)
    return (column.lower <= point) & (point <= column.upper)
