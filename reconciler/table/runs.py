"""Runs: rows with a value that follow each other and repeat it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reconciler.table.filetable import Array, Bool, Float64, Int64


@dataclass(frozen=True)
class Runs:
    """Runs of equal values in a column."""

    first: Int64
    """The first row of each run: int64[runs]."""
    mean_rows: float
    """Rows of the column per run."""


def runs_of(values: Array, null: Bool, starts: Int64) -> Runs:
    """Return the runs of a column. NULLs do not end a run. starts: first rows of blocks, which no
    run crosses."""
    filled = np.flatnonzero(~null)
    own = values[filled]
    begins = np.append(True, own[1:] != own[:-1])[: len(own)]
    block = np.searchsorted(starts, filled, side="right")
    begins |= np.diff(block, prepend=-1) != 0
    first = filled[begins].astype(np.int64)
    return Runs(first, len(values) / max(len(first), 1))


def bytes_in_runs(index: Float64, together: Float64 | float) -> Float64:
    """Return the bytes per row of an index whose values come in runs of a mean length: a run takes
    what one of its rows took, and what says its length, which a compressor stores in the entropy of
    geometric lengths, (-p log2 p - (1 - p) log2 (1 - p)) / p bits with p = 1 / length."""
    ends = 1.0 / np.maximum(together, 1.0)
    goes_on = np.maximum(1.0 - ends, 1e-12)
    length = -(np.log2(ends) + goes_on / ends * np.log2(goes_on))
    found: Float64 = (index + length / 8.0) * ends
    return found
