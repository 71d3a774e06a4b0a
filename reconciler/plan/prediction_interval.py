"""Intervals of predictions, and their calibration by the ledger's outcomes (definitions: 80 %).

A prediction is printed with the 10 and 90 % quantiles of actual / predicted over past outcomes.
With fewer than five outcomes the interval is fixed and labelled uncalibrated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MIN_OUTCOMES = 5
UNCALIBRATED = (0.8, 1.25)


@dataclass(frozen=True, slots=True)
class Interval:
    """An 80 % interval around an estimate. label: "calibrated" | "uncalibrated" | "exact"."""

    low: float
    mid: float
    high: float
    label: str = "uncalibrated"


@dataclass(frozen=True, slots=True)
class Calibration:
    """Quantiles of actual / predicted over past outcomes of one quantity."""

    low: float = UNCALIBRATED[0]
    median: float = 1.0
    high: float = UNCALIBRATED[1]
    outcomes: int = 0

    @property
    def label(self) -> str:
        return "calibrated" if self.outcomes >= MIN_OUTCOMES else "uncalibrated"

    def around(self, predicted: float) -> Interval:
        return Interval(predicted * self.low, predicted, predicted * self.high, self.label)


PRIOR_CALIBRATION = Calibration()

FEWER, MORE = 0.1, 0.1
"""Fewer and more written files than predicted: in most rewrites of `bench.written_bytes` the bytes
written are within a tenth of the estimate."""
FEWER_BY_SIZE = 0.25
"""The same if the number follows from the inputs' size: sorted files, and merged files that each
have a dictionary, take fewer bytes."""


@dataclass(frozen=True, slots=True)
class FilesTold:
    """Number of files that one rewrite reads and is predicted to write, in how many groups.

    by_size: the number follows from the inputs' size, not from how their columns are stored.
    """

    read: int
    written: int
    groups: int
    by_size: bool


def files_after(now: int, told: Sequence[FilesTold]) -> Interval:
    """Return the interval of the number of files of a table of `now` files after these rewrites.

    Each group may end in one more or less; each rewrite leaves at least one.
    """
    if not told:
        return Interval(now, now, now, "exact")
    kept = now - sum(each.read for each in told)
    low = mid = high = float(kept)
    for each in told:
        fewer = FEWER_BY_SIZE if each.by_size else FEWER
        low += max(1, each.written - max(each.groups, math.ceil(fewer * each.written)))
        mid += each.written
        high += each.written + max(each.groups, math.ceil(MORE * each.written))
    return Interval(low, mid, high)


def calibrate(ratios: Sequence[float]) -> Calibration:
    """Return the calibration from ratios actual / predicted; only positive finite ratios count."""
    usable = np.array([r for r in ratios if np.isfinite(r) and r > 0.0], dtype=np.float64)
    if len(usable) < MIN_OUTCOMES:
        median = float(np.median(usable)) if len(usable) else 1.0
        return Calibration(median=median, outcomes=len(usable))
    low, median, high = (float(q) for q in np.quantile(usable, [0.1, 0.5, 0.9]))
    return Calibration(low, median, high, len(usable))
