"""The forecast that a table's own log speaks for: a mixture of all, by how well each predicted it.

The last weeks of the log are gone through once more. Before each round of executions every forecast
says from the log up to then which queries the next week brings: on which columns their conditions
are, and which values they ask for. An execution of that week to which a forecast gave the
probability p costs it -ln p. The loss of a round is the mean of these costs over the week that
follows, as far as the log has it, times the executions of the round itself. L is the sum of the
losses of all rounds. The weights are proportional to exp(-L): multiplicative weights for log loss
(Vovk, "Aggregating Strategies", 1990), for the columns and for the values given the columns.

What holds. Of any execution, the mixture loses at most ln(1 / weight) more than a forecast does:
its probability is a sum of which weight * p is one term. A forecast that lost x more than the best
one has at most the weight e^-x, and the best of N has at least 1 / N. So the mixture loses at most
ln N of an execution more than the forecast that was best so far. The learning rate is 1, because
log loss is mixable at 1, whatever its range. An execution costs at most ln(k / UNSEEN) of k groups
or parts. The bound of Vovk's mixture, ln N over all executions, does not hold: it needs weights
that know what came just before, and here a week must pass first.

The weights follow from the recorded queries alone: the same log gives the same weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from reconciler.queries.forecasts.decay import decayed_forecast
from reconciler.queries.forecasts.regime import regime_forecast
from reconciler.queries.forecasts.window import REMEMBERED, window_forecast
from reconciler.queries.rates import (
    LEAST_WEIGHT,
    WEEK_MS,
    Forecast,
    RateForecast,
    RateHistory,
    Score,
    last_at,
    recent_executions,
)
from reconciler.table.filetable import Bool, Float64, Int64
from reconciler.table.times import DAY_MS

FORECASTS: Mapping[str, RateForecast] = {
    "regime": regime_forecast,
    "decay": decayed_forecast,
    "window": window_forecast,
}
"""The forecasts that are compared, by name."""

EVIDENCE_MS = 28 * DAY_MS
"""Length of the part of the log that forecasts are judged by."""

AHEAD_MS = WEEK_MS
"""Time after a round that forecasts predict: as long as a rewrite has to pay back."""

MOST_ROUNDS = 32
"""Rounds into which that part is cut, each of at least LEAST_WEIGHT executions."""

UNSEEN = 0.01
"""Probability that every forecast spreads evenly, so that nothing is impossible to it."""

BY_ORDER = frozenset({"window"})
"""Forecasts that the order of single queries matters to: they are judged on the queries as they
came, and the others on their sums by round."""


def chosen_forecast(history: RateHistory, horizon_ms: int) -> Forecast:
    """Return the mixture of all forecasts by their weights, at the present rate of all queries.

    rate = sum_i weight_i P_i(columns) * sum_j values_weight_j P_j(query | columns). The outlook is
    that of the changes of the mix; it names the forecast of the greatest weight.
    """
    found = {name: one(history, horizon_ms) for name, one in FORECASTS.items()}
    judged = scores(history)
    columns, within = np.zeros(int(history.group.max()) + 1), np.zeros(len(history.weight))
    for score in judged:
        of_columns, of_values = _shares(history, found[score.method].executions)
        columns += score.weight * of_columns
        within += score.values_weight * of_values
    expected = columns[history.group] * within
    best = max(judged, key=lambda score: score.weight)
    outlook = replace(found["regime"].outlook, method=best.method, scores=judged)
    return Forecast(recent_executions(history, horizon_ms) * expected, outlook)


def _shares(history: RateHistory, executions: Float64) -> tuple[Float64, Float64]:
    """Return what a forecast says of the columns, and of the values given the columns.

    executions: float64[queries], the forecast. Returned: the share of each group of columns,
    float64[groups], and of each query among those of its columns, float64[queries]. The values of
    columns that the forecast leaves out are those of the whole log. The same shares are judged and
    applied.
    """
    groups = int(history.group.max()) + 1
    mix = np.bincount(history.group, executions, groups)
    log = np.bincount(history.group, history.weight, groups)
    left_out = (mix <= 0.0)[history.group]
    of_values = np.where(left_out, history.weight, executions)
    each = np.where(mix > 0.0, mix, log)
    of_values /= np.maximum(each, 1e-300)[history.group]
    return mix / max(float(mix.sum()), 1e-300), of_values


def scores(history: RateHistory) -> tuple[Score, ...]:
    """Return each forecast's weights, and its losses for each execution it was judged by.

    The weights are equal where all queries are alike, or the log has one round only.
    """
    ordered, number = _in_rounds(history)
    kinds, rounds = _summary(ordered, number)
    group_of = np.zeros(int(kinds.part.max()) + 1, dtype=np.int64)
    group_of[kinds.part] = kinds.group
    numbers = np.unique(rounds)[1:].tolist() if len(group_of) > 1 else []
    loss, judged = np.zeros((len(FORECASTS), 2)), 0.0
    for now in numbers:
        before = _before(kinds, rounds, now)
        part, weight = _week_from(kinds, rounds, now)
        came = np.bincount(part, weight, len(group_of)).astype(np.float64)
        for place, (name, forecast) in enumerate(FORECASTS.items()):
            seen = _as_they_came(ordered, number, now) if name in BY_ORDER else before
            said = forecast(seen, AHEAD_MS).executions
            given = said if seen is before else _on_parts_of(before, seen.part, said)
            loss[place] += _losses(given, before, came, group_of)
        judged += float(weight.sum())
    shares, mean = _weights(loss), loss / max(judged, 1e-300)
    return tuple(
        Score(
            name, weight=float(shares[place, 0]), loss=float(mean[place, 0]),
            values_weight=float(shares[place, 1]), values_loss=float(mean[place, 1]),
        )
        for place, name in enumerate(FORECASTS)
    )  # fmt: skip


def _weights(loss: Float64) -> Float64:
    """Return the weights that are proportional to exp(-loss), float64[forecasts, 2]."""
    found = np.exp(loss.min(axis=0) - loss)
    return found / found.sum(axis=0)


def _losses(executions: Float64, before: RateHistory, came: Float64, group_of: Int64) -> Float64:
    """Return -ln of the probability that was given to the columns of what came, and to its values
    given the columns: float64[2].

    executions: float64[queries of `before`], the forecast. came: float64[parts]. group_of:
    int64[parts].
    """
    groups, parts = int(group_of.max()) + 1, len(group_of)
    shares, of_queries = _shares(before, executions)
    columns = np.append(shares, np.zeros(groups - len(shares)))
    size = np.bincount(group_of, minlength=groups)[group_of]
    seen = np.bincount(before.group, minlength=groups)[group_of] > 0
    values = np.where(seen, np.bincount(before.part, of_queries, parts), 1.0 / size)
    of_columns = np.log((1.0 - UNSEEN) * columns + UNSEEN / groups)
    of_values = np.log((1.0 - UNSEEN) * values + UNSEEN / size)
    return -np.array([came @ of_columns[group_of], came @ of_values])


def _week_from(history: RateHistory, rounds: Int64, number: int) -> tuple[Int64, Float64]:
    """Return the parts that are asked for from a round on, for AHEAD_MS, and their weights, which
    add up to that of the round."""
    own = rounds == number
    end = int(history.event_ms[own].min()) + AHEAD_MS
    week = (rounds >= number) & (own | (history.event_ms < end))
    weight = history.weight[week]
    return history.part[week], weight * float(history.weight[own].sum()) / float(weight.sum())


def _in_rounds(history: RateHistory) -> tuple[RateHistory, Int64]:
    """Return the queries in the order of time, and the round of each.

    Round 0 is what came before the part that forecasts are judged by. Queries of one instant have
    no order: they are of one round.
    """
    ordered = _queries_of(history, np.lexsort((history.part, history.event_ms)))
    judged = ordered.event_ms > history.until_ms - EVIDENCE_MS
    passed = np.cumsum(np.where(judged, ordered.weight, 0.0))[last_at(ordered.event_ms)]
    each = max(LEAST_WEIGHT, float(passed[-1]) / MOST_ROUNDS)
    return ordered, np.ceil(passed / each - 1e-9).astype(np.int64)


def _queries_of(history: RateHistory, rows: Int64 | Bool) -> RateHistory:
    """Return the history with these of its queries alone. Buckets stay."""
    return replace(
        history, weight=history.weight[rows], event_ms=history.event_ms[rows],
        bucket=history.bucket[rows], group=history.group[rows], part=history.part[rows],
    )  # fmt: skip


def _summary(ordered: RateHistory, number: Int64) -> tuple[RateHistory, Int64]:
    """Return the history with one query for all of a kind, bucket and round, and the round of each.

    number: int64[queries], the round of each query, ascending.
    """
    cell = (number * (ordered.bucket.max() + 1) + ordered.bucket) * (ordered.part.max() + 1)
    cell += ordered.part
    _, first, place = np.unique(cell, return_index=True, return_inverse=True)
    total = np.bincount(place, ordered.weight).astype(np.float64)
    mean_ms = np.bincount(place, ordered.weight * (ordered.event_ms - ordered.since_ms)) / total
    times = ordered.since_ms + mean_ms.astype(np.int64)
    return replace(_queries_of(ordered, first), weight=total, event_ms=times), number[first]


def _as_they_came(ordered: RateHistory, number: Int64, now: int) -> RateHistory:
    """Return the last queries before a round, as many as a window may look at, one by one."""
    end = int(np.searchsorted(number, now))
    passed = np.cumsum(ordered.weight[:end])
    start = int(np.searchsorted(passed[last_at(ordered.event_ms[:end])], passed[-1] - REMEMBERED))
    return _before(_queries_of(ordered, np.arange(start, end)), number[start:end], now)


def _on_parts_of(before: RateHistory, part: Int64, executions: Float64) -> Float64:
    """Return a forecast of single queries as one of the sums of the same log: all executions of a
    part stand at one of its queries. part, executions: [single queries]."""
    found, first = np.unique(before.part, return_index=True)
    given = np.zeros(len(before.part))
    given[first] = np.bincount(part, executions, int(found[-1]) + 1)[found]
    return given


def _before(history: RateHistory, rounds: Int64, number: int) -> RateHistory:
    """Return the history as it was before a round. Executions at its end that do not fill a bucket
    belong to the last one before."""
    cut = _queries_of(history, rounds < number)
    last = int(cut.bucket.max())
    if last and float(cut.weight[cut.bucket == last].sum()) < LEAST_WEIGHT:
        cut = replace(cut, bucket=np.minimum(cut.bucket, last - 1))
        last -= 1
    return replace(
        cut, start_ms=cut.start_ms[: last + 1], length_ms=cut.length_ms[: last + 1],
        until_ms=int(cut.event_ms.max()),
    )  # fmt: skip
