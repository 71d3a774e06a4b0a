"""A forecast that looks for changes of the mix of queries: the present one lasts until the next."""

from __future__ import annotations

import numpy as np

from reconciler.queries.rates import (
    Forecast,
    Outlook,
    RateHistory,
    recent_executions,
    weights_by_bucket,
)
from reconciler.table.filetable import Float64

NEW_MIX = 0.35
"""Distance in total variation, beyond that of chance, at which a bucket starts a new regime."""

SLOWEST = 0.2
"""Least weight of a new bucket in the mean mix of its regime."""

PRIOR_BUCKETS = 12.0
"""Buckets without a change that are assumed before the first one of the log."""

HALF_LIFE_BUCKETS = 4.0
"""Buckets of the present regime after which a query's share in it halves."""


def regime_forecast(history: RateHistory, horizon_ms: int) -> Forecast:
    """Return a mixture of the present mix of queries and that of the whole log.

    The mix changes with the hazard p = (changes + 1) / (buckets + 1 + PRIOR_BUCKETS) per bucket. Of
    the K buckets of the horizon the present mix is expected to last for the share
        (1 - p) (1 - (1 - p)^K) / (p K),   or all of it if the mix never changed.
    All queries together keep their mean rate of the last week, or of RECENT_BUCKETS if longer.
    """
    buckets = len(history.start_ms)
    total = weights_by_bucket(history)
    start, changes = _present_regime(history, total)
    hazard = (changes + 1.0) / (buckets + 1.0 + PRIOR_BUCKETS)
    ahead = max(horizon_ms / float(history.length_ms.mean()), 1.0)
    share = 1.0
    if start > 0:
        share = (1.0 - hazard) * (1.0 - (1.0 - hazard) ** ahead) / (hazard * ahead)
    age = buckets - 1 - history.bucket
    fading = history.weight * 0.5 ** (age / HALF_LIFE_BUCKETS)
    recent = np.where(history.bucket >= start, fading, 0.0)
    mixture = share * recent / max(float(recent.sum()), 1e-300)
    mixture += (1.0 - share) * history.weight / max(float(history.weight.sum()), 1e-300)
    outlook = Outlook(
        "regime", int(history.start_ms[start]), history.until_ms, float(history.length_ms.mean()),
        changes, min(share, 1.0),
    )  # fmt: skip
    return Forecast(recent_executions(history, horizon_ms) * mixture, outlook)


def _present_regime(history: RateHistory, total: Float64) -> tuple[int, int]:
    """Return the first bucket of the present mix of queries, and how often the mix changed.

    A bucket starts a new regime if its mix differs from the regime's by more than NEW_MIX in total
    variation, plus what chance explains: sqrt(k / (2 pi n)) for n executions of k groups, in the
    bucket and in the regime's mean.
    """
    groups = int(history.group.max()) + 1
    counts = np.zeros((len(total), groups))
    np.add.at(counts, (history.bucket, history.group), history.weight)
    mixes = counts / np.maximum(total, 1e-300)[:, None]
    mean, start, changes, behind = mixes[0], 0, 0, float(total[0])
    for number in range(1, len(total)):
        mix = mixes[number]
        alive = int(((mix > 0.0) | (mean > 0.0)).sum())
        own_weight = float(total[number])
        chance = _by_chance(alive, own_weight) + _by_chance(alive, behind)
        if 0.5 * float(np.abs(mix - mean).sum()) > NEW_MIX + chance:
            mean, start, changes, behind = mix, number, changes + 1, own_weight
        else:
            own = max(1.0 / (number - start + 1), SLOWEST)
            mean = (1.0 - own) * mean + own * mix
            behind = min(behind + own_weight, own_weight / SLOWEST)
    return start, changes


def _by_chance(groups: int, executions: float) -> float:
    """Return the mean distance between the shares of `groups` and those of a sample of them."""
    return float(np.sqrt(groups / (2.0 * np.pi * max(executions, 1e-300))))
