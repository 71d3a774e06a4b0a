"""Decimal fractions that are stored as floats, such as amounts: how many fit between bounds."""

from __future__ import annotations

import numpy as np

from reconciler.table.filetable import ColumnBounds

MOST_DIGITS = 4
LEAST_BOUNDS = 4
"""Different bounds that show how many digits the values have."""

EXACT = 1e-11
"""Share of a value by which it may differ from a decimal fraction: doubles have 16 digits."""


def digits_reach(bounds: ColumnBounds) -> float | None:
    """Return how many numbers of as many decimal places as the bounds have fit between the bounds
    of a file, on average over files; None if the bounds have more than MOST_DIGITS, or are few."""
    if not bounds.bounded.all():
        return None
    ends = np.unique(np.concatenate((bounds.lower, bounds.upper)).astype(np.float64))
    if len(ends) < LEAST_BOUNDS or not np.isfinite(ends).all():
        return None
    for places in range(MOST_DIGITS + 1):
        scaled = ends * 10.0**places
        if (np.abs(scaled - np.rint(scaled)) <= EXACT * np.maximum(np.abs(scaled), 1.0)).all():
            apart = (bounds.upper - bounds.lower).astype(np.float64) * 10.0**places
            return float(np.average(apart, weights=np.maximum(bounds.values, 1))) + 1.0
    return None
