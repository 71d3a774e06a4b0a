"""Forecasts how often each recorded query will be executed over the coming horizon.

Every forecast has one interface: the recorded weights per time bucket go in, the executions that
are expected over the horizon come out. `regime_forecast` looks for changes of the mix of queries;
`decayed_forecast` is a mean in which old executions fade. The reference time of both is the end of
the recorded queries, never the clock, so that an old log gives the same plan today.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from reconciler.queries.predicate import fields_of
from reconciler.queries.shape import MIN_SPAN_MS, Workload
from reconciler.table.times import DAY_MS

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

WEEK_MS = 7 * DAY_MS
HALF_LIFE_MS = WEEK_MS

LEAST_WEIGHT = 8.0
"""Executions that a bucket needs: fewer say too little about the mix of queries."""

NEW_MIX = 0.35
"""Distance in total variation, beyond that of chance, at which a bucket starts a new regime."""

SLOWEST = 0.2
"""Least weight of a new bucket in the mean mix of its regime."""

PRIOR_BUCKETS = 12.0
"""Buckets without a change that are assumed before the first one of the log."""

HALF_LIFE_BUCKETS = 4.0
"""Buckets of the present regime after which a query's share in it halves."""

RECENT_BUCKETS = 3
"""Least buckets whose mean weight is the present rate of all queries together; those of the last
week if they are more, because most logs have weekends."""


@dataclass(frozen=True, slots=True)
class RateHistory:
    """All recorded queries of a table, in the order of the workload's shapes."""

    weight: Float64
    """float64[queries]: number of executions."""
    event_ms: Int64
    """int64[queries]: time in epoch milliseconds."""
    bucket: Int64
    """int64[queries]: number of the time bucket."""
    group: Int64
    """int64[queries]: number that queries with conditions on the same columns share."""
    start_ms: Int64
    """int64[buckets]: start of the bucket in epoch milliseconds."""
    length_ms: Float64
    """float64[buckets]: length of the bucket in milliseconds."""
    since_ms: int
    """Start of the log in epoch milliseconds."""
    until_ms: int
    """End of the log in epoch milliseconds."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """Why the rates are what they are."""

    method: str
    """The forecast's method: "regime" or "decay"; "none" without queries."""
    since_ms: int
    """When the present mix of queries began, in epoch milliseconds."""
    until_ms: int
    """End of the log in epoch milliseconds; 0 without queries."""
    bucket_ms: float = 0.0
    """Milliseconds until the log shows a change of the mix."""
    changes: int = 0
    """Number of changes of the mix in the whole log."""
    present_share: float = 1.0
    """Share of the horizon for which the present mix is expected to last. The rest is forecast as
    the mean of the whole log."""


NO_OUTLOOK = Outlook("none", 0, 0)


@dataclass(frozen=True, slots=True)
class Forecast:
    """executions: float64[queries], expected over the horizon, in the order of the history."""

    executions: Float64
    outlook: Outlook


class RateForecast(Protocol):
    """A history of weights per bucket in, the executions expected over the horizon out."""

    def __call__(self, history: RateHistory, horizon_ms: int) -> Forecast: ...


def forecast_rates(workload: Workload, horizon_ms: int, forecast: RateForecast) -> Forecast:
    """Return the forecast of every recorded query, in the order of the shapes."""
    if workload.empty:
        return Forecast(np.zeros(0), NO_OUTLOOK)
    return forecast(history_of(workload), horizon_ms)


def history_of(workload: Workload) -> RateHistory:
    """Return the recorded weights in buckets of whole UTC days, each of at least LEAST_WEIGHT."""
    weight = np.concatenate([batch.weight for batch in workload.shapes])
    event_ms = np.concatenate([batch.event_ms for batch in workload.shapes])
    columns = [tuple(sorted(fields_of(batch.predicate))) for batch in workload.shapes]
    number = {key: place for place, key in enumerate(sorted(set(columns)))}
    group = np.concatenate(
        [np.full(len(b), number[key]) for b, key in zip(workload.shapes, columns, strict=True)]
    )
    days, of_day = np.unique(event_ms // DAY_MS, return_inverse=True)
    bucket_of_day = _filled(np.bincount(of_day.reshape(-1), weight, len(days)).astype(np.float64))
    first = np.flatnonzero(np.diff(bucket_of_day, prepend=-1))
    start_ms = days[first] * DAY_MS
    start_ms[0] = workload.since_ms
    return RateHistory(
        weight=weight,
        event_ms=event_ms,
        bucket=bucket_of_day[of_day.reshape(-1)],
        group=group.astype(np.int64),
        start_ms=start_ms,
        length_ms=_lengths(start_ms, workload.until_ms),
        since_ms=workload.since_ms,
        until_ms=workload.until_ms,
    )


def _filled(per_day: Float64) -> Int64:
    """Return the bucket of each day: a bucket takes days until it has LEAST_WEIGHT executions.

    Days at the end that do not fill a bucket belong to the last one.
    """
    found = np.empty(len(per_day), dtype=np.int64)
    number, held = 0, 0.0
    for day, weight in enumerate(per_day.tolist()):
        found[day] = number
        held += weight
        if held >= LEAST_WEIGHT:
            number, held = number + 1, 0.0
    if held > 0.0 and number > 0:
        found[found == number] = number - 1
    return found


def _lengths(start_ms: Int64, until_ms: int) -> Float64:
    """Return the length of each bucket in milliseconds.

    A log may end at any time of its last bucket, or have all queries of a bucket at its start. The
    last bucket therefore counts as at least as long as the one before it.
    """
    ends = np.append(start_ms[1:], until_ms)
    length = (ends - start_ms).astype(np.float64)
    least = float(length[-2]) if len(length) > 1 else float(MIN_SPAN_MS)
    length[-1] = max(length[-1], least)
    return length


def decayed_forecast(history: RateHistory, horizon_ms: int) -> Forecast:
    """Return a mean in which executions fade with a half-life of 7 days.

    rate = decayed weight / decayed span; the span is at least 24 h.
    """
    tau = HALF_LIFE_MS / np.log(2.0)
    span = float(max(history.until_ms - history.since_ms, MIN_SPAN_MS))
    decayed_span = tau * (1.0 - np.exp(-span / tau))
    age = (history.until_ms - history.event_ms).astype(np.float64)
    executions = history.weight * np.exp(-age / tau) / decayed_span * horizon_ms
    bucket_ms = float(history.length_ms.mean())
    return Forecast(executions, Outlook("decay", history.since_ms, history.until_ms, bucket_ms))


def regime_forecast(history: RateHistory, horizon_ms: int) -> Forecast:
    """Return a mixture of the present mix of queries and that of the whole log.

    The mix changes with the hazard p = (changes + 1) / (buckets + 1 + PRIOR_BUCKETS) per bucket. Of
    the K buckets of the horizon the present mix is expected to last for the share
        (1 - p) (1 - (1 - p)^K) / (p K),   or all of it if the mix never changed.
    All queries together keep their mean rate of the last week, or of RECENT_BUCKETS if longer.
    """
    buckets = len(history.start_ms)
    total = np.bincount(history.bucket, history.weight, buckets).astype(np.float64)
    start, changes = _present_regime(history, total)
    hazard = (changes + 1.0) / (buckets + 1.0 + PRIOR_BUCKETS)
    ahead = max(horizon_ms / float(history.length_ms.mean()), 1.0)
    share = 1.0
    if start > 0:
        share = (1.0 - hazard) * (1.0 - (1.0 - hazard) ** ahead) / (hazard * ahead)
    week = int((history.start_ms >= history.until_ms - WEEK_MS).sum())
    recent_buckets = max(RECENT_BUCKETS, week)
    span = max(float(history.length_ms[-recent_buckets:].sum()), float(MIN_SPAN_MS))
    expected = float(total[-recent_buckets:].sum()) / span * horizon_ms
    age = buckets - 1 - history.bucket
    fading = history.weight * 0.5 ** (age / HALF_LIFE_BUCKETS)
    recent = np.where(history.bucket >= start, fading, 0.0)
    mixture = share * recent / max(float(recent.sum()), 1e-300)
    mixture += (1.0 - share) * history.weight / max(float(history.weight.sum()), 1e-300)
    outlook = Outlook(
        "regime", int(history.start_ms[start]), history.until_ms, float(history.length_ms.mean()),
        changes, min(share, 1.0),
    )  # fmt: skip
    return Forecast(expected * mixture, outlook)


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
