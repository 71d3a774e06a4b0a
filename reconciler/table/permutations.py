"""Orders of rows or files as arrays of their numbers."""

from __future__ import annotations

import numpy as np

from reconciler.table.filetable import Int64


def inverse_permutation(order: Int64) -> Int64:
    """Return the position of each number in an order of all of them, int64."""
    found = np.empty(len(order), dtype=np.int64)
    found[order] = np.arange(len(order), dtype=np.int64)
    return found
