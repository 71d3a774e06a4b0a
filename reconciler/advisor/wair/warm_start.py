"""The warm start of WAIR (section 3.3, extension 2): during the first t queries of a table, the
cost above that of doing nothing stays within C_start * t.

The paper asks for C_start and a start of the order of log n and n, for n files, and names no
numbers: C_start is log2 n readings of a file, and the start ends with the n-th query.
"""

from __future__ import annotations

import numpy as np


def warm_start_limit(queries: float, files: int, unit: float) -> float:
    """Return the limit of the debt so far; infinite after the start.

    queries: t, those recorded. unit: what one query reads of one file.
    """
    if queries >= files:
        return float("inf")
    return float(np.log2(max(files, 2))) * queries * unit
