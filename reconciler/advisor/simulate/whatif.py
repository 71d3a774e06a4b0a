"""Estimates what queries would read after a rewrite; every action is judged by it
(docs/design/definitions.md#what-if).

All queries are evaluated on the simulated files exactly as on real ones, whatever is known of the
rows: a sample of them, whole files that are only concatenated, or the bounds of files alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from reconciler.advisor.simulate.bounded import bounded
from reconciler.advisor.simulate.layout import Layout, Outcome, Written
from reconciler.advisor.simulate.merged import merged
from reconciler.advisor.simulate.pool import Pool
from reconciler.advisor.simulate.sampled import sampled
from reconciler.queries.read_cost import ShapeReading, read_layout
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import TableView
from reconciler.table.filetable import FileTable

Rows = Pool | TableView | FileTable
"""What is known of the rows: a sample; whole files that keep their rows in order; bounds alone."""


def simulate(layout: Layout, rows: Rows, demands: Sequence[Shape]) -> Outcome | None:
    """Return what every shape reads from the rows in this layout, None if that cannot be known."""
    written = _written(layout, rows)
    if written is None:
        return None
    readings = [_added([read_layout(view, d) for view in written.views]) for d in demands]
    return Outcome(tuple(readings), written)


def _written(layout: Layout, rows: Rows) -> Written | None:
    match rows:
        case Pool():
            return sampled(rows, layout)
        case TableView():
            return merged(rows, layout)
        case FileTable():
            return bounded(rows, layout)


def _added(readings: Sequence[ShapeReading]) -> ShapeReading:
    if len(readings) == 1:
        return replace(readings[0], saving=np.zeros(0), read=np.zeros(0))
    return ShapeReading(
        bytes=np.sum([r.bytes for r in readings], axis=0),
        files=np.sum([r.files for r in readings], axis=0),
        matching=np.sum([r.matching for r in readings], axis=0),
        cost=np.sum([r.cost for r in readings], axis=0),
        saving=np.zeros(0),
        read=np.zeros(0),
    )
