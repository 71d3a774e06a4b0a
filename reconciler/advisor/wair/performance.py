"""The performance bonus of WAIR (section 4.3, Eq. 6): saving + beta * files skipped in addition.

If a query uses the share u of a file, and rows are put in its order, the used rows fill u files
instead of one: 1 - u of a file more are skipped. That is the estimate of the extra pruned files.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reconciler.advisor.wair.utilization import FileSavings
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import TableView, projected_bytes
from reconciler.table.filetable import Float64


def with_bonus(
    savings: FileSavings, view: TableView, demands: Sequence[Shape], beta: float
) -> Float64:
    """Return the savings per shape and file with the bonus, float64[shapes, files].

    beta: price of a file that is skipped, in bytes of reading.
    """
    if not beta:
        return savings.by_shape
    size = np.stack([projected_bytes(view.files, demand.projection) for demand in demands])
    return savings.by_shape + beta * savings.by_shape / np.maximum(size, 1.0)
