"""The Hilbert curve over ranks, vectorised, for what-ifs of multi-column clustering.

It runs over ranks, because with raw values the column with the widest range would decide the curve
alone. The transform is J. Skilling's (Programming the Hilbert curve, 2004).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

UInt64 = npt.NDArray[np.uint64]
CURVE_BITS = 16
"""Bits of a cell of the curve along which rows are written, over all columns: a table of 65,536
entries is looked up per row."""


def hilbert_index(ranks: npt.NDArray[np.int64], bits: int) -> UInt64:
    """Return the position along the curve. ranks: int64[columns, rows] in [0, 2^bits); columns*bits
    <= 64."""
    columns = len(ranks)
    if columns * bits > 64:
        raise ValueError("a Hilbert index has at most 64 bits")
    axes = ranks.astype(np.uint64)
    _undo_excess_work(axes, bits)
    _gray_encode(axes, bits)
    index = np.zeros(ranks.shape[1], dtype=np.uint64)
    for bit in range(bits - 1, -1, -1):
        for column in range(columns):
            index = (index << np.uint64(1)) | ((axes[column] >> np.uint64(bit)) & np.uint64(1))
    return index


def _undo_excess_work(axes: UInt64, bits: int) -> None:
    """Skilling's inverse undo: per bit, invert or exchange the lower bits of the first axis."""
    for bit in range(bits - 1, 0, -1):
        q = np.uint64(1 << bit)
        lower = np.uint64((1 << bit) - 1)
        for column in range(len(axes)):
            is_set = (axes[column] & q) != 0
            swap = np.where(is_set, np.uint64(0), (axes[0] ^ axes[column]) & lower)
            axes[0] ^= np.where(is_set, lower, swap)
            axes[column] ^= swap


def _gray_encode(axes: UInt64, bits: int) -> None:
    for column in range(1, len(axes)):
        axes[column] ^= axes[column - 1]
    parity = np.zeros(axes.shape[1], dtype=np.uint64)
    for bit in range(bits - 1, 0, -1):
        is_set = (axes[-1] & np.uint64(1 << bit)) != 0
        parity ^= np.where(is_set, np.uint64((1 << bit) - 1), np.uint64(0))
    axes ^= parity
