"""Estimates the speed of this machine, relative to the machine on which constants were measured.

In come ratios of measured to modelled CPU time, from the ledger's executed actions; out comes the
scale with its 10 and 90 % quantiles. Actions that keep the order of this table's rows are compared
most closely with a statement; sorts and actions on other tables less so. The logarithms of the
ratios are taken to be normal, so that each kind counts by its precision. Without any ratio, a prior
says that nothing is known of the machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

QUANTILE = 1.2816
"""Standard deviations from the middle of a normal distribution to its 10 and 90 % quantiles."""
UNKNOWN = 2.0
"""A machine that was not measured takes between half and twice the CPU, in 80 of 100 cases."""
KIN, FOREIGN = 1.5, 2.0
"""Factors between the scale of a statement and that of a rewrite which keeps the order of the same
rows (KIN), or of other work (FOREIGN), in 80 of 100 cases. Measured on one machine: rewriting
lineitem in order took 1.2 times its modelled CPU, sorting it 0.6 times, MERGE 1.0 times."""
NOISE, NOISE_COUNT = 1.25, 4
"""Factor within which two measurements of the same work lie, in 80 of 100 cases. It is a guess, and
counts as much as NOISE_COUNT measurements."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How much CPU this machine needs, relative to the constants of the time model."""

    scale: float = 1.0
    """CPU seconds of statements divided by those of their constants."""
    low: float = 1.0 / UNKNOWN
    """10 % quantile of the scale."""
    high: float = UNKNOWN
    """90 % quantile of the scale."""
    actions: int = 0
    """Number of this table's actions that it was measured by."""
    runs: int = 0
    """Number of runs on other tables that it was measured by, if this table has no action."""

    @property
    def label(self) -> str:
        return "measured" if self.actions else "other tables" if self.runs else "model"

    @property
    def ends(self) -> tuple[float, float]:
        """Relative to `scale`."""
        return self.low / self.scale, self.high / self.scale


UNKNOWN_SPEED = Speed()


def speed_of(packed: Sequence[float], sorted_: Sequence[float], runs: Sequence[float]) -> Speed:
    """Return the speed by ratios of measured / modelled CPU: of this table's actions that keep the
    order of rows, of those that sort, and of the last runs on any table.

    The runs count only if the table has no action of its own: its actions are among the runs.
    """
    packed, sorted_, runs = (_usable(each) for each in (packed, sorted_, runs))
    actions = len(packed) + len(sorted_)
    groups = [(packed, KIN), (sorted_, FOREIGN)] if actions else [(runs, FOREIGN)]
    if not any(ratios for ratios, _ in groups):
        return UNKNOWN_SPEED
    precision, weighted = 1.0 / _variance(UNKNOWN), 0.0
    for ratios, relation in groups:
        if ratios:
            logs = np.log(ratios)
            middle = float(np.median(logs))
            squares = NOISE_COUNT * _variance(NOISE) + float(((logs - middle) ** 2).sum())
            each = squares / (NOISE_COUNT + len(logs))
            known = 1.0 / (_variance(relation) + each / len(logs))
            precision, weighted = precision + known, weighted + known * middle
    mean, width = weighted / precision, QUANTILE / math.sqrt(precision)
    low, scale, high = (math.exp(mean + side * width) for side in (-1.0, 0.0, 1.0))
    return Speed(scale, low, high, actions, 0 if actions else len(runs))


def _usable(ratios: Sequence[float]) -> list[float]:
    return [ratio for ratio in ratios if math.isfinite(ratio) and ratio > 0.0]


def _variance(factor: float) -> float:
    """Of the logarithm whose 10 and 90 % quantiles are those of 1 / factor and factor."""
    return (math.log(factor) / QUANTILE) ** 2
