"""How the ranges of files' values lie on the scale of a column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reconciler.table.column_bytes import MOST_DISTINCT
from reconciler.table.filetable import Array, FileTable, Float64, Int64
from reconciler.table.values import Kind

APART = 2.0
"""Files are apart in a column if their ranges add up to at most this many times the whole range."""

SHARED = 1.0 / 3.0
"""Share of the ranks of all bounds that a file's range has on average where files share values."""


@dataclass(frozen=True)
class Spans:
    """The range of each file's values in one column, on a common scale."""

    first: Float64
    """float64[files], the first place of each file: its least value or the rank of its lower
    bound."""
    last: Float64
    """float64[files], the last place of each file, likewise."""
    mean: float
    """Mean of the files' ranges in places, weighted by rows; at least 1."""
    discrete: bool
    """Whether places are values, so that a range bounds the number of distinct values; else they
    are only ranks among the bounds."""
    apart: bool = False
    """Whether files hold different parts of the scale, as they do of what grows with time."""

    def reach(self, file: Int64, starts: Int64) -> Float64:
        """Return the joint range of each slice's files; file: per row, starts: first row per
        slice."""
        last = np.maximum.reduceat(self.last[file], starts)
        return last - np.minimum.reduceat(self.first[file], starts) + 1.0

    @property
    def shared(self) -> bool:
        """Whether all files hold about the same part of a scale of ranks.

        If only their extremes differ, and these at random, a file's range has half of the ranks.
        """
        whole = float(self.last.max() - self.first.min() + 1.0)
        return not self.discrete and self.mean > SHARED * whole

    def most(self, file: Int64, starts: Int64) -> Float64:
        """Return an upper bound of the distinct values per slice."""
        if self.discrete:
            return self.reach(file, starts)
        return np.full(len(starts), MOST_DISTINCT)


def spans_of(files: FileTable, field: int) -> Spans | None:
    bounds = files.columns.get(field)
    if bounds is None or not bounds.bounded.all() or not len(files):
        return None
    if bounds.kind is Kind.INT:
        first, last = bounds.lower.astype(np.float64), bounds.upper.astype(np.float64)
    else:
        first, last = _places(bounds.lower, bounds.upper)
    rows = np.maximum(files.records, 1).astype(np.float64)
    mean = float(((last - first + 1.0) * rows).sum() / rows.sum())
    apart = mean * len(files) <= APART * float(last.max() - first.min() + 1.0)
    return Spans(first, last, max(mean, 1.0), bounds.kind is Kind.INT, apart and len(files) > 1)


def _places(lower: Array, upper: Array) -> tuple[Float64, Float64]:
    codes = np.unique(np.concatenate([lower, upper]), return_inverse=True)[1].reshape(-1)
    return codes[: len(lower)].astype(np.float64), codes[len(lower) :].astype(np.float64)
