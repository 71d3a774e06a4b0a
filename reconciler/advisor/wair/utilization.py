"""Utilization of files by queries and the possible savings (WAIR section 4.1, Eq. 3).

u(P, Q) = bytes of P that Q needed / bytes of P that Q read, with projection and row groups as in
section 5.2. The saving of a file is optimistic: it orders candidates, and the what-if judges them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reconciler.queries.read_cost import ShapeReading, read_shape
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import TableView
from reconciler.table.filetable import Float64


@dataclass(frozen=True)
class FileSavings:
    """What the queries of a table could skip of each file, and what they read now."""

    saving: Float64
    """float64[files]: bytes over the horizon that an ideal layout would not read."""
    by_shape: Float64
    """float64[shapes, files]: the same for each shape."""
    readings: tuple[ShapeReading, ...]
    """What the queries of each shape read now."""


def file_savings(view: TableView, demands: Sequence[Shape]) -> FileSavings:
    """Return the sum over queries of (1 - u) * size_read, per file and per shape (Algorithm 2,
    first loop)."""
    readings = tuple(read_shape(view, demand) for demand in demands)
    by_shape = np.stack([reading.saving for reading in readings] or [np.zeros(len(view.files))])
    return FileSavings(by_shape.sum(axis=0), by_shape, readings)
