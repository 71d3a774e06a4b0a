"""Intervals of predictions, and their calibration by the ledger's outcomes
(docs/design/definitions.md#prediction-interval).

A prediction is printed with the 10 and 90 % quantiles of actual / predicted over past outcomes.
With fewer than five outcomes the interval is fixed and labelled uncalibrated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from reconciler.plan.prediction import Prediction, total

MIN_OUTCOMES = 5
UNCALIBRATED = (0.8, 1.25)


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 80 % interval."""

    low: float
    """Lower end."""
    mid: float
    """The estimate."""
    high: float
    """Upper end."""
    label: str = "uncalibrated"
    """"calibrated", "uncalibrated" or "exact"."""

    @classmethod
    def exactly(cls, value: float) -> Interval:
        return cls(value, value, value, "exact")


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
"""The same if the number follows from the inputs' size only: sorted files, and merged files that
each have a dictionary, take fewer bytes."""


def files_after(now: int, predictions: Iterable[Prediction]) -> Interval:
    """Return the interval of the number of files of a table of `now` files after these actions.

    Each group may end in one more or less; each rewrite leaves at least one.
    """
    rewrites = [each for each in predictions if each.rewrites_data]
    if not rewrites:
        return Interval.exactly(now)
    low = mid = high = float(now - total(rewrites).files_in)
    for each in rewrites:
        written, groups = each.files_out or 0, each.groups or 0
        fewer = FEWER if each.by_columns else FEWER_BY_SIZE
        low += max(1, written - max(groups, math.ceil(fewer * written)))
        mid += written
        high += written + max(groups, math.ceil(MORE * written))
    return Interval(low, mid, high)


def calibrate(ratios: Sequence[float]) -> Calibration:
    """Return the calibration from ratios actual / predicted; only positive finite ratios count."""
    usable = np.array([r for r in ratios if np.isfinite(r) and r > 0.0], dtype=np.float64)
    if len(usable) < MIN_OUTCOMES:
        median = float(np.median(usable)) if len(usable) else 1.0
        return Calibration(median=median, outcomes=len(usable))
    low, median, high = (float(q) for q in np.quantile(usable, [0.1, 0.5, 0.9]))
    return Calibration(low, median, high, len(usable))
