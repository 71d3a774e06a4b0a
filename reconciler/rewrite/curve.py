"""The Hilbert curve over the ranks of key columns, fitted to sampled rows.

It runs over ranks, not values: with columns of unequal width one column would decide it alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reconciler.table.hilbert import CURVE_BITS, hilbert_index

Scores = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Curve:
    """The Hilbert curve over the ranks of scores.

    cuts[i]: strictly increasing scores, between which rows are alike. places[i]: strictly
    increasing, on the grid of 2^bits cells of that column, one more than cuts: of the rows below
    the first cut, from it on, and so on. bits: per column.

    A place is the share of rows below it, as in the what-if (`plan.ordering`): a column that is
    mostly NULL, or has few values, uses the whole axis. Numbered one by one, its values would lie
    in one corner of the curve, which then orders the rows by the other columns alone.
    """

    cuts: tuple[tuple[float, ...], ...]
    places: tuple[tuple[int, ...], ...]
    bits: int

    @property
    def cells(self) -> int:
        return 1 << (self.bits * len(self.cuts))

    def position(self, scores: Scores) -> npt.NDArray[np.int64]:
        """Return the cell along the curve of each row. scores: float64[columns, rows]."""
        cell = np.zeros(scores.shape[1], dtype=np.int64)
        for cuts, places, score in zip(self.cuts, self.places, scores, strict=True):
            ranks = np.asarray(places, dtype=np.int64)
            cell = (cell << self.bits) | ranks[np.searchsorted(cuts, score, side="right")]
        return self.table()[cell].astype(np.int64)

    def table(self) -> npt.NDArray[np.int32]:
        """Return the position along the curve by cell, the first column in the highest bits."""
        columns = len(self.cuts)
        cell = np.arange(self.cells, dtype=np.int64)
        shifts = [self.bits * (columns - 1 - i) for i in range(columns)]
        ranks = np.stack([(cell >> shift) & ((1 << self.bits) - 1) for shift in shifts])
        return hilbert_index(ranks, self.bits).astype(np.int32)


def fit_curve(scores: Scores) -> Curve:
    """Return rank cuts at the sample's quantiles. scores: float64[columns, rows]."""
    bits = max(1, CURVE_BITS // len(scores))
    fitted = [_fitted(column, bits) for column in scores]
    return Curve(tuple(cuts for cuts, _ in fitted), tuple(places for _, places in fitted), bits)


def _fitted(column: Scores, bits: int) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return the cuts of one column, and the places of the rows between them."""
    ordered = np.sort(column)
    finite = ordered[np.isfinite(ordered)]
    if not finite.size:
        return (), (0,)
    levels = np.linspace(0.0, 1.0, (1 << bits) + 1)[1:-1]
    chosen = np.quantile(ordered, levels, method="lower")
    # Infinite scores are NULL and NaN: cuts at both ends of the values part them from these.
    ends = [finite[0], np.nextafter(finite[-1], math.inf)]
    cuts = np.unique(np.concatenate((chosen[np.isfinite(chosen)], ends)))
    below = np.searchsorted(ordered, cuts, side="left")
    place = np.minimum(np.rint(below / len(ordered) * (1 << bits)), (1 << bits) - 1)
    # A cut with no row below it parts nothing, and one place has one cut.
    new = np.diff(place, prepend=0.0) > 0
    return tuple(cuts[new].tolist()), (0, *place[new].astype(np.int64).tolist())
