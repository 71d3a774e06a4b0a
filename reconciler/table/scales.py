"""The bounds of a column as places among all of them.

What is asked of each bound, such as how many literals of queries are below it, is then found once
for each distinct one, in their order. Sorting them is worth it for a table's own files, of which
much is asked, and not for simulated ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from reconciler.table.filetable import Array, ColumnBounds, Int64
from reconciler.table.stable_order import distinct_ranks


@dataclass(frozen=True)
class Scale:
    """The bounds of n files. Those without meaning are among them."""

    distinct: Array
    """The distinct lower and upper bounds, ascending; of simulated files, also other values."""
    low: Int64
    """int64[n]: place of the lower bound."""
    high: Int64
    """int64[n]: place of the upper bound."""

    @cached_property
    def ranks(self) -> tuple[Int64, Int64]:
        """Return the rank of each lower bound among the lower ones, and likewise of the upper
        ones, int64[n] each."""
        low, high = (_dense(one, len(self.distinct)) for one in (self.low, self.high))
        return low, high


def _dense(place: Int64, count: int) -> Int64:
    found: Int64 = (np.cumsum(np.bincount(place, minlength=count) > 0) - 1)[place]
    return found


def least_of(lower: Array) -> Any:
    """Return the least lower bound that is no NaN; numpy has no minimum of byte strings."""
    return min(lower.tolist()) if lower.dtype.kind == "S" else np.fmin.reduce(lower)


def greatest_of(upper: Array) -> Any:
    """Return the greatest upper bound, NaN if one of them is."""
    return max(upper.tolist()) if upper.dtype.kind == "S" else upper.max()


def keep_scale(column: ColumnBounds, scale: Scale) -> None:
    """Keep the places of a column's bounds, which were made from them."""
    column.derived["scale"] = scale


def known_scale(column: ColumnBounds) -> Scale | None:
    """Return the places of a column's bounds, if they were found before."""
    found: Scale | None = column.derived.get("scale")
    return found


def scale_of(column: ColumnBounds) -> Scale:
    """Return the places of a column's bounds, found once."""
    known = known_scale(column)
    if known is None:
        distinct, rank = distinct_ranks(np.concatenate((column.lower, column.upper)))
        known = Scale(distinct, rank[: len(column.lower)], rank[len(column.lower) :])
        keep_scale(column, known)
    return known
