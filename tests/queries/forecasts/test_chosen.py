"""Forecasts are weighed by how well each predicted the table's own last weeks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.queries.forecasts import chosen
from reconciler.queries.forecasts.chosen import FORECASTS, chosen_forecast, scores
from reconciler.queries.forecasts.decay import decayed_forecast
from reconciler.queries.forecasts.regime import regime_forecast
from reconciler.queries.forecasts.window import REMEMBERED, window_forecast
from reconciler.queries.fragments import workload_of_fragments
from reconciler.queries.rates import (
    Forecast,
    Outlook,
    RateForecast,
    RateHistory,
    Score,
    forecast_rates,
    history_of,
    recent_executions,
)
from tests.queries.test_rates import START, WEEK, asked, days, shares

HOUR_MS = 3_600_000

MOST_MORE = 0.1
"""Nats of an execution that the mixture may lose more than the best forecast of a log."""


def weights(*columns: int) -> dict[str, float]:
    return {score.method: score.weight for score in scores(history_of(days(*columns)))}


def test_columns_that_never_change_speak_for_no_forecast() -> None:
    assert weights(*[1] * 20) == pytest.approx(dict.fromkeys(FORECASTS, 1 / len(FORECASTS)))


def test_one_round_of_queries_speaks_for_no_forecast() -> None:
    assert len(set(weights(1).values())) == 1


def test_a_change_that_stays_speaks_for_the_forecast_that_saw_it_on_its_first_day() -> None:
    changed = (*[1] * 12, 2)
    assert weights(*changed)["regime"] > 0.99
    assert shares(days(*changed), chosen_forecast) == pytest.approx(
        shares(days(*changed), regime_forecast), abs=0.01
    )


def test_a_day_that_returns_each_week_speaks_against_following_it() -> None:
    # Every seventh day asks for something else: the mean of the log predicts a week better.
    weekly = [2 if day % 7 == 6 else 1 for day in range(28)]
    found = weights(*weekly)
    assert found["decay"] > 0.9
    assert shares(days(*weekly), chosen_forecast) == pytest.approx(
        shares(days(*weekly), decayed_forecast), abs=0.05
    )


def test_evidence_older_than_the_judged_weeks_does_not_count() -> None:
    found = weights(*[1] * 5, *[2] * 5, *[1] * 40)
    assert found["regime"] < 0.6


def of_columns(history: RateHistory, forecast: RateForecast, groups: int) -> np.ndarray:
    """The probability of each group of columns, a hundredth of it spread evenly."""
    found = np.bincount(history.group, forecast(history, WEEK).executions, groups)
    return (1.0 - chosen.UNSEEN) * found / found.sum() + chosen.UNSEEN / groups


def week_by_week(columns: Sequence[int]) -> dict[str, float]:
    """Mean loss of an execution, by forecast, where each day's is made from the days before and
    judged by the week that it begins."""
    loss = dict.fromkeys([*FORECASTS, "chosen"], 0.0)
    groups, counts = len(set(columns)), 0
    for day in range(7, len(columns) - 7):
        seen = sorted(set(columns[:day]))
        if len(seen) < groups:
            continue
        history = history_of(days(*columns[:day]))
        came = [seen.index(column) for column in columns[day : day + 7]]
        for name, forecast in {**FORECASTS, "chosen": chosen_forecast}.items():
            loss[name] -= float(np.log(of_columns(history, forecast, groups))[came].mean())
        counts += 1
    return {name: found / counts for name, found in loss.items()}


@pytest.mark.parametrize(
    "columns",
    [
        [1, 2] * 15,
        [2 if day % 7 == 6 else 1 for day in range(35)],
        [*[1] * 12, *[2] * 20],
        [1 + day // 4 % 2 for day in range(36)],
    ],
    ids=["in turns", "weekly", "stays", "fourth day"],
)
def test_what_is_applied_loses_little_more_than_the_best_forecast_in_hindsight(
    columns: list[int],
) -> None:
    """Each prediction is of a week that no weight had seen. It is no bound: a log with one change
    before the week of another may speak for the wrong forecast."""
    found = week_by_week(columns)
    assert found["chosen"] < min(found[name] for name in FORECASTS) + MOST_MORE


@given(columns=st.lists(st.integers(1, 3), min_size=2, max_size=25))
def test_an_execution_is_lost_by_no_more_than_the_weight_of_a_forecast(columns: list[int]) -> None:
    history = history_of(days(*columns, per_day=8))
    mixed = np.bincount(history.group, chosen_forecast(history, WEEK).executions)
    judged = scores(history)
    best = min(judged, key=lambda score: score.loss)
    assert best.weight >= 1.0 / len(FORECASTS) - 1e-9
    for score in judged:
        assert score.weight <= math.exp(best.loss - score.loss) + 1e-9
        assert 0.0 <= score.loss <= math.log(len(set(columns)) / chosen.UNSEEN)
        alone = np.bincount(history.group, FORECASTS[score.method](history, WEEK).executions)
        share = alone / alone.sum()
        assert (mixed / mixed.sum() >= score.weight * share - 1e-9).all()


def test_the_window_is_judged_by_queries_as_they_came() -> None:
    """Two columns take turns from query to query: the window grows, and its mix is exact."""
    work = workload_of_fragments(
        asked(1 + number % 2, number, START + number * HOUR_MS // 8) for number in range(3_000)
    )
    judged = {one.method: one for one in scores(history_of(work))}
    assert judged["window"].loss == pytest.approx(math.log(2.0), abs=0.01)
    assert judged["window"].weight == pytest.approx(1 / len(FORECASTS), abs=0.1)


def test_the_window_of_a_round_is_that_of_the_log_up_to_it() -> None:
    history = history_of(days(*[1, 1, 2, 3] * 6, per_day=90))
    ordered, number = chosen._in_rounds(history)
    for now in np.unique(number)[1:].tolist():
        whole = chosen._before(ordered, number, now)
        recent = chosen._as_they_came(ordered, number, now)
        of_all = window_forecast(whole, WEEK).executions
        found = window_forecast(recent, WEEK).executions
        assert recent.weight.sum() <= REMEMBERED + 1
        assert found / found.sum() == pytest.approx((of_all / of_all.sum())[-len(found) :])


def test_losses_are_those_of_an_account_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two columns, one round of eight before a round of eight others: ln of what was given."""

    def even(history: RateHistory, horizon_ms: int) -> Forecast:
        return Forecast(history.weight, Outlook("even", 0, 0))

    monkeypatch.setattr(chosen, "FORECASTS", {"even": even})
    (one,) = scores(history_of(days(1, 2, per_day=8)))
    assert one.loss == pytest.approx(-math.log(chosen.UNSEEN / 2))
    (one,) = scores(history_of(days(1, 2, 1, 1, per_day=8)))
    # Before each round: rounds of column 1, and all. After it come 2 1 1, then 1 1, then 1.
    given = [(1, 1), (1, 2), (2, 3)]
    came = [(2 / 3, 1 / 3), (1.0, 0.0), (1.0, 0.0)]
    by_hand = 0.0
    for (first, every), (ones, twos) in zip(given, came, strict=True):
        share = 0.99 * first / every + 0.005
        by_hand -= ones * math.log(share) + twos * math.log(1.0 - share)
    assert one.loss == pytest.approx(by_hand / 3)


def test_a_forecast_is_judged_by_what_it_said_before_it_knew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that knew the log's later days would have no loss; it is shown only what came before."""
    seen: list[int] = []

    def honest(history: RateHistory, horizon_ms: int) -> Forecast:
        seen.append(int(history.event_ms.max()))
        return regime_forecast(history, horizon_ms)

    history = history_of(days(1, 2, 1, 2))
    monkeypatch.setattr(chosen, "FORECASTS", {"honest": honest})
    scores(history)
    assert seen == sorted(seen)
    assert max(seen) < history.until_ms


def test_columns_and_values_are_forecast_by_the_best_of_each() -> None:
    """The values move on from day to day, so that forecasts that forget predict them better."""
    work = days(*[1] * 30)
    judged = {one.method: one for one in scores(history_of(work))}
    assert judged["window"].values_loss > judged["decay"].values_loss
    assert judged["window"].values_weight < 0.01
    assert judged["window"].weight == pytest.approx(1 / len(FORECASTS))
    expected = forecast_rates(work, WEEK, chosen_forecast).executions
    assert expected.sum() == pytest.approx(7 * 20, rel=0.02)


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 60 * 24), st.sampled_from([0.1, 1.0, 7.0])),
        min_size=1, max_size=120,
    )
)  # fmt: skip
def test_no_execution_is_lost_where_forecasts_leave_columns_out(
    queries: list[tuple[int, int, float]],
) -> None:
    work = workload_of_fragments(
        asked(column, place, START + hour * HOUR_MS, weight)
        for place, (column, hour, weight) in enumerate(queries)
    )
    history = history_of(work)
    found = chosen_forecast(history, WEEK).executions
    assert found.sum() == pytest.approx(recent_executions(history, WEEK))
    assert (found >= 0.0).all()


def test_columns_that_the_best_forecast_of_values_leaves_out_keep_their_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One forecast knows the columns, and the other the values of one column only."""
    work = days(*[1, 2] * 10)
    history = history_of(work)

    def last_group(history: RateHistory, horizon_ms: int) -> Forecast:
        mine = history.group == history.group[history.event_ms.argmax()]
        return Forecast(np.where(mine, history.weight, 0.0), Outlook("last", 0, 0))

    monkeypatch.setattr(chosen, "FORECASTS", {"regime": regime_forecast, "last": last_group})
    judged = (
        Score("regime", weight=1.0, loss=0.0, values_weight=0.0, values_loss=1.0),
        Score("last", weight=0.0, loss=1.0, values_weight=1.0, values_loss=0.0),
    )
    monkeypatch.setattr(chosen, "scores", lambda history: judged)
    found = chosen_forecast(history, WEEK).executions
    regime = regime_forecast(history, WEEK).executions
    assert np.bincount(history.group, found) == pytest.approx(np.bincount(history.group, regime))


def test_a_loss_is_that_of_the_prediction_that_would_be_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a forecast alone: values of columns that it leaves out are those of the log before."""

    def of_column_2(history: RateHistory, horizon_ms: int) -> Forecast:
        kept = np.where(history.group == 1, history.weight, 0.0)
        return Forecast(kept if kept.any() else history.weight, Outlook("two", 0, 0))

    monkeypatch.setattr(chosen, "FORECASTS", {"two": of_column_2})
    work = days(2, 1, 1, per_day=8)
    kinds, rounds = chosen._summary(*chosen._in_rounds(history_of(work)))
    by_hand = judged = 0.0
    size = np.bincount(np.unique(np.stack([kinds.part, kinds.group]), axis=1)[1])
    for number in np.unique(rounds)[1:]:
        before = chosen._before(kinds, rounds, int(number))
        applied = chosen_forecast_alone(before, of_column_2)
        part, weight = chosen._week_from(kinds, rounds, int(number))
        for one, count in zip(part.tolist(), weight.tolist(), strict=True):
            group = int(kinds.group[kinds.part == one][0])
            given = applied.get((group, one), 0.0 if group in before.group else 1 / size[group])
            by_hand -= count * math.log(0.99 * given + 0.01 / size[group])
        judged += float(weight.sum())
    (found,) = scores(history_of(work))
    assert found.values_loss == pytest.approx(by_hand / judged)


def chosen_forecast_alone(history: RateHistory, forecast: RateForecast) -> dict[object, float]:
    """The probability of each part of the values given its group, in plain Python."""
    own = forecast(history, WEEK).executions
    found = dict[object, float]()
    for group in set(history.group.tolist()):
        mine = history.group == group
        rate = own if own[mine].sum() > 0.0 else history.weight
        for part in set(history.part[mine].tolist()):
            found[group, part] = float(rate[history.part == part].sum() / rate[mine].sum())
    return found


def test_rounds_hold_whole_instants() -> None:
    work = workload_of_fragments(
        asked(column, 100 * number + column, START + number * HOUR_MS)
        for number in range(60)
        for column in range(1, 6)
    )
    history = history_of(work)
    by_columns = np.bincount(history.group, chosen_forecast(history, WEEK).executions)
    assert by_columns == pytest.approx(np.full(5, recent_executions(history, WEEK) / 5))
    kinds, rounds = chosen._summary(*chosen._in_rounds(history))
    of_round = [np.bincount(kinds.group[rounds == n], kinds.weight[rounds == n]) for n in rounds]
    assert all(len(set(counts.tolist())) == 1 for counts in of_round)


def test_the_outlook_names_the_best_forecast_and_the_changes_of_the_mix() -> None:
    outlook: Outlook = forecast_rates(days(*[1] * 12, 2), WEEK, chosen_forecast).outlook
    assert (outlook.method, outlook.changes) == ("regime", 1)
    assert sum(score.weight for score in outlook.scores) == pytest.approx(1.0)
    assert min(outlook.scores, key=lambda score: score.loss).method == "regime"


def test_a_large_log_is_judged_in_few_rounds() -> None:
    history = history_of(days(*[1, 2] * 14, per_day=200))
    kinds, rounds = chosen._summary(*chosen._in_rounds(history))
    assert len(np.unique(rounds)) <= chosen.MOST_ROUNDS + 1
    assert float(kinds.weight.sum()) == pytest.approx(28 * 200)
