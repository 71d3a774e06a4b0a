"""Reselection of the clustering key in WAIR (section 3.3, extension 3): a key that all rewrites
share is chosen anew after each t_resel operations, and holds between them.

The paper asks for t_resel of the order of n, for n files. It is n queries here, counted from the
start of the log.
"""

from __future__ import annotations

import numpy as np

from reconciler.table.filetable import Float64, Int64


def reselected_ms(event_ms: Int64, weight: Float64, files: int) -> int:
    """Return the time of the last query by which the key was chosen, in epoch milliseconds.

    event_ms, weight: float64[queries], times and executions. Before n queries it is the last one.
    """
    order = np.argsort(event_ms, kind="stable")
    passed = np.cumsum(weight[order])
    each = max(files, 1)
    if passed[-1] < each:
        return int(event_ms.max())
    last = each * np.floor(passed[-1] / each)
    return int(event_ms[order][np.searchsorted(passed, last)])
