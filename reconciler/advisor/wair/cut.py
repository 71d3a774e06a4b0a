"""Decides which files are worth reclustering: the cut of WAIR's Algorithm 2, with Eq. 1, 2, 4 and
5.

Files are ordered by saving per cost (equal to the paper's order by saving if files are equal in
size), and the prefix with the least alpha * cost - savings is taken. A limit shortens the prefix to
what fits: all-or-nothing might never act.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reconciler.table.filetable import Float64, Int64


@dataclass(frozen=True)
class FilePrefix:
    """The files that Algorithm 2 takes: a prefix of the files by saving per cost."""

    chosen: Int64
    """int64: the files of the prefix, best first."""
    order: Int64
    """int64: all files with a saving, best first."""
    net: Float64
    """float64[order]: cumulative saving - alpha * cost; its maximum ends the prefix."""
    truncated: bool
    """Whether a limit ended the prefix before the maximum."""


def best_prefix(saving: Float64, cost: Float64, alpha: Float64 | float, limit: float) -> FilePrefix:
    """Return Algorithm 2's prefix. alpha: Eq. 4's factor, a scalar or per file (hysteresis).

    limit: what may still be spent (Eq. 2: cost_limit - debt; Eq. 5: credit), in the cost's unit.
    """
    candidates = np.flatnonzero(saving > 0.0)
    weighed = np.broadcast_to(np.asarray(alpha, dtype=np.float64), cost.shape) * cost
    ratio = saving[candidates] / np.maximum(weighed[candidates], 1e-9)
    order = candidates[np.lexsort((candidates, -ratio))]
    net = np.cumsum(saving[order] - weighed[order])
    if not len(order) or net.max() <= 0.0:
        return FilePrefix(order[:0].astype(np.int64), order.astype(np.int64), net, False)
    best = int(net.argmax()) + 1
    affordable = int(np.searchsorted(np.cumsum(cost[order]), limit, side="right"))
    count = min(best, affordable)
    return FilePrefix(order[:count].astype(np.int64), order.astype(np.int64), net, count < best)


def spending_limit(debt: float, cost_limit: float, credit: float | None) -> float:
    """Return what Eq. 2 and Eq. 5 leave to spend: cost_limit - debt, and at most the credit."""
    left = cost_limit - debt
    return max(0.0, left if credit is None else min(left, credit))


def allowance_credit(
    realised: float, spent: float, per_query: float, queries: float, unit: float
) -> float:
    """Return Eq. 5: realised savings - past cost + c * |Q|; unit: the reading of one file, in which
    c counts."""
    return realised - spent + per_query * queries * unit
