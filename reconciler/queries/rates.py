"""Forecasts how often each recorded query will be executed over the coming horizon.

Every forecast has one interface: the recorded weights per time bucket go in, the executions that
are expected over the horizon come out. `forecasts` holds the implementations; `forecasts.chosen`
weighs them by how well each predicted the log. The reference time is the end of the recorded
queries, never the clock, so that an old log gives the same plan today.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from reconciler.queries.predicate import bounded_fields_of
from reconciler.queries.shape import MIN_SPAN_MS, Shape, Workload
from reconciler.table.filetable import Float64, Int64
from reconciler.table.times import DAY_MS

WEEK_MS = 7 * DAY_MS

LEAST_WEIGHT = 8.0
"""Executions that a bucket needs: fewer say too little about the mix of queries."""

PARTS, SPLIT_SHAPES = 8, 16
"""Parts of the values that a shape's queries ask for, by which forecasts are judged, and the number
of shapes that are split so: those of the greatest weight."""

RECENT_BUCKETS = 3
"""Buckets at the end of the log whose mean weight is the present rate of all queries together.
Where the last week has more buckets, those count, because most logs have weekends."""


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
    part: Int64
    """int64[queries]: number that queries of one group share that ask for the same values: one of
    PARTS parts of a shape, or any of the group's rare shapes."""
    start_ms: Int64
    """int64[buckets]: start of the bucket in epoch milliseconds."""
    length_ms: Float64
    """float64[buckets]: length of the bucket in milliseconds."""
    since_ms: int
    """Start of the log in epoch milliseconds."""
    until_ms: int
    """End of the log in epoch milliseconds."""


@dataclass(frozen=True, slots=True)
class Score:
    """How well a forecast predicted the last weeks of the log: the columns of the queries'
    conditions, and the values that they ask for."""

    method: str
    """Name of the forecast."""
    weight: float
    """Its share in the forecast of the columns; the shares of all forecasts add up to 1."""
    loss: float
    """Mean of -ln of the probability that it gave to the columns of each execution, in nats; 0 if
    there was nothing to judge by."""
    values_weight: float
    """Its share in the forecast of the values; the shares of all forecasts add up to 1."""
    values_loss: float
    """Mean of -ln of the probability that it gave to the part of the values that each execution
    asked for, given its columns, in nats; 0 if there was nothing to judge by."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """Why the rates are what they are."""

    method: str
    """The forecast, or that of the greatest weight: "regime", "decay" or "window"; "none" without
    queries."""
    since_ms: int
    """When the present mix of queries began, in epoch milliseconds."""
    until_ms: int
    """End of the log in epoch milliseconds; 0 without queries."""
    bucket_ms: float = 0.0
    """Mean length of a bucket in milliseconds: after about so long the log shows a change of the
    mix."""
    changes: int = 0
    """Number of changes of the mix in the whole log."""
    present_share: float = 1.0
    """Share of the horizon for which the present mix is expected to last. The rest is forecast as
    the mean of the whole log."""
    scores: tuple[Score, ...] = ()
    """The forecasts that were compared; () where there was no choice."""
    busiest: float = 0.0
    """Executions of the busiest bucket of the log."""


NO_OUTLOOK = Outlook("none", 0, 0)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The executions that are expected, and why."""

    executions: Float64
    """float64[queries]: executions over the horizon, in the order of the history."""
    outlook: Outlook
    """Why the rates are what they are."""


class RateForecast(Protocol):
    """A history of weights per bucket in, the executions expected over the horizon out."""

    def __call__(self, history: RateHistory, horizon_ms: int) -> Forecast: ...


def forecast_rates(workload: Workload, horizon_ms: int, forecast: RateForecast) -> Forecast:
    """Return the forecast of every recorded query, in the order of the shapes."""
    if workload.empty:
        return Forecast(np.zeros(0), NO_OUTLOOK)
    history = history_of(workload)
    found = forecast(history, horizon_ms)
    return replace(found, outlook=replace(found.outlook, busiest=_busiest(history)))


def _busiest(history: RateHistory) -> float:
    """Return the executions of the busiest bucket of the log.

    The last bucket counts in two parts: the days until it was full, and the days after them, which
    fill no bucket of their own.
    """
    total = weights_by_bucket(history)
    last = history.bucket == len(total) - 1
    days = history.event_ms[last] // DAY_MS
    passed = np.cumsum(np.bincount(days - days.min(), history.weight[last]))
    own = passed[min(int(np.searchsorted(passed, LEAST_WEIGHT)), len(passed) - 1)]
    return float(max(total[:-1].max(initial=0.0), own, passed[-1] - own))


def history_of(workload: Workload) -> RateHistory:
    """Return the recorded weights in buckets of whole UTC days, each of at least LEAST_WEIGHT."""
    weight = np.concatenate([shape.weight for shape in workload.shapes])
    event_ms = np.concatenate([shape.event_ms for shape in workload.shapes])
    columns = [tuple(sorted(bounded_fields_of(shape.predicate))) for shape in workload.shapes]
    number = {key: place for place, key in enumerate(sorted(set(columns)))}
    group = np.concatenate(
        [
            np.full(len(shape), number[key])
            for shape, key in zip(workload.shapes, columns, strict=True)
        ]
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
        part=_parts(workload.shapes, group),
        start_ms=start_ms,
        length_ms=_lengths(start_ms, workload.until_ms),
        since_ms=workload.since_ms,
        until_ms=workload.until_ms,
    )


def _parts(shapes: Sequence[Shape], group: Int64) -> Int64:
    """Return the part of the values that each query asks for, int64[queries]."""
    weight = [float(shape.weight.sum()) for shape in shapes]
    split = sorted(range(len(shapes)), key=lambda place: (-weight[place], place))[:SPLIT_SHAPES]
    part, start = group.astype(np.int64), 0
    for place, shape in enumerate(shapes):
        end = start + len(shape)
        if place in split:
            part[start:end] = int(group.max()) + 1 + PARTS * place + _part_of_shape(shape)
        start = end
    return np.unique(part, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _part_of_shape(shape: Shape) -> Int64:
    """Return one of PARTS parts of equal weight for each query, by its first literal, or by the
    literal's distance to the time of the query."""
    values = shape.literals[0] if shape.literals else ()
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "if":
        return np.zeros(len(shape), dtype=np.int64)
    away = shape.offsets[0]
    asked = np.where(np.isnan(away), values.astype(np.float64), away)
    order = np.argsort(asked, kind="stable")
    passed = np.cumsum(shape.weight[order]) / max(float(shape.weight.sum()), 1e-300)
    ends = np.searchsorted(passed, np.arange(1, PARTS) / PARTS)
    edges = asked[order][np.minimum(ends, len(order) - 1)]
    return np.searchsorted(edges, asked, side="left").astype(np.int64)


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


def last_at(event_ms: Int64) -> Int64:
    """Return the index of the last query of each query's instant, for times in ascending order:
    int64[queries]."""
    return np.searchsorted(event_ms, event_ms, side="right") - 1


def weights_by_bucket(history: RateHistory) -> Float64:
    """Return the executions of each bucket, float64[buckets]."""
    return np.bincount(history.bucket, history.weight, len(history.start_ms)).astype(np.float64)


def recent_executions(history: RateHistory, horizon_ms: int) -> float:
    """Return the executions of all queries together over the horizon: at the mean rate of the last
    week, or of RECENT_BUCKETS if that is longer."""
    week = int((history.start_ms >= history.until_ms - WEEK_MS).sum())
    recent = max(RECENT_BUCKETS, week)
    span = max(float(history.length_ms[-recent:].sum()), float(MIN_SPAN_MS))
    return float(weights_by_bucket(history)[-recent:].sum()) / span * horizon_ms
