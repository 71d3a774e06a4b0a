"""How the expected executions of queries follow from the recorded ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.queries.forecasts.chosen import chosen_forecast
from reconciler.queries.forecasts.decay import decayed_forecast
from reconciler.queries.forecasts.regime import regime_forecast
from reconciler.queries.forecasts.window import window_forecast
from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.predicate import And, Comparison, Ref
from reconciler.queries.rates import Forecast, RateForecast, forecast_rates, history_of
from reconciler.queries.shape import Workload
from reconciler.table.times import DAY_MS

START, WEEK = 1_700_006_400_000, 7 * DAY_MS
"""START: midnight of a day in UTC."""

FORECASTS = [decayed_forecast, regime_forecast, window_forecast, chosen_forecast]


def asked(column: int, position: int, at_ms: int, weight: float = 1.0) -> Fragment:
    return Fragment(
        source="log", position=position, table_uuid="u", predicate=Comparison(Ref(column), "=", 0),
        literals=(position,), moving=(None,), projection=(column,), weight=weight, event_ms=at_ms,
        engine="spark",
    )  # fmt: skip


def days(*columns: int, per_day: int = 20, weight: float = 1.0) -> Workload:
    """A day of queries on each of these columns, one after the other."""
    return workload_of_fragments(
        asked(column, 1_000 * day + number, START + day * DAY_MS + number * DAY_MS // per_day,
              weight)
        for day, column in enumerate(columns)
        for number in range(per_day)
    )  # fmt: skip


def shares(work: Workload, forecast: RateForecast) -> dict[int, float]:
    """The expected share of each column's queries."""
    found = forecast_rates(work, WEEK, forecast).executions
    parts = np.split(found, np.cumsum([len(batch) for batch in work.shapes])[:-1])
    return {
        min(batch.projection): float(part.sum() / found.sum())
        for batch, part in zip(work.shapes, parts, strict=True)
    }


def outlook_of(work: Workload) -> Forecast:
    return forecast_rates(work, WEEK, regime_forecast)


@pytest.mark.parametrize("forecast", FORECASTS)
def test_an_even_log_goes_on_at_its_rate(forecast: RateForecast) -> None:
    found = forecast_rates(days(*[1] * 10), WEEK, forecast)
    assert found.executions.sum() == pytest.approx(7 * 20, rel=0.02)


@pytest.mark.parametrize("forecast", FORECASTS)
def test_a_short_log_counts_as_at_least_a_day(forecast: RateForecast) -> None:
    work = workload_of_fragments([asked(1, 0, START), asked(1, 1, START + 1_000)])
    found = forecast_rates(work, DAY_MS, forecast)
    assert found.executions.sum() == pytest.approx(2.0, rel=0.06)


@pytest.mark.parametrize("forecast", FORECASTS)
@given(back=st.integers(0, 5_000), weight=st.floats(0.1, 50.0))
def test_an_old_log_forecasts_what_it_did_then_and_weights_are_executions(
    forecast: RateForecast, back: int, weight: float
) -> None:
    work = days(1, 1, 2, 2)
    older = workload_of_fragments(
        asked(min(b.projection), n, int(at) - back * DAY_MS, weight)
        for b in work.shapes
        for n, at in enumerate(b.event_ms)
    )
    once = workload_of_fragments(
        asked(min(b.projection), n, int(at), weight)
        for b in work.shapes
        for n, at in enumerate(b.event_ms)
    )
    assert forecast_rates(older, WEEK, forecast).executions == pytest.approx(
        forecast_rates(once, WEEK, forecast).executions
    )


def test_a_rate_halves_in_seven_days() -> None:
    work = workload_of_fragments([asked(1, 0, START), asked(1, 1, START + WEEK)])
    old, new = forecast_rates(work, WEEK, decayed_forecast).executions
    assert new / old == pytest.approx(2.0)


def test_one_day_of_other_queries_is_a_new_regime_while_a_mean_still_expects_the_old() -> None:
    changed = days(*[1] * 12, 2)
    assert shares(changed, regime_forecast)[2] > 0.6
    assert shares(changed, decayed_forecast)[2] < 0.2
    expected = outlook_of(changed).outlook
    assert (expected.changes, expected.since_ms) == (1, START + 12 * DAY_MS)


def test_a_mix_that_never_changed_is_expected_to_last() -> None:
    expected = outlook_of(days(*[1] * 12)).outlook
    assert (expected.changes, expected.since_ms, expected.present_share) == (0, START, 1.0)


def test_the_more_often_the_mix_changed_the_less_of_the_horizon_is_left_to_the_present_one() -> (
    None
):
    calm, restless = days(*[1] * 14, 2, 2), days(1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 2)
    seldom, often = outlook_of(calm).outlook, outlook_of(restless).outlook
    assert (seldom.changes, often.changes) == (1, 15)
    assert seldom.present_share > 0.7 > 0.5 > often.present_share
    kept = shares(restless, regime_forecast)
    assert min(kept.values()) > 0.15


def test_chance_alone_changes_no_mix() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        columns = random.integers(1, 5, 30 * 12)
        work = workload_of_fragments(
            asked(int(column), number, START + number * DAY_MS // 12)
            for number, column in enumerate(columns)
        )
        assert outlook_of(work).outlook.changes == 0


def test_a_bucket_has_whole_days_and_at_least_eight_executions() -> None:
    history = history_of(days(*[1] * 9, per_day=20, weight=0.1))
    assert history.start_ms.tolist() == [START, START + 4 * DAY_MS]
    assert np.bincount(history.bucket, history.weight) == pytest.approx([8.0, 10.0])


def test_queries_of_other_projections_are_of_the_same_mix() -> None:
    one = days(*[1] * 6)
    other = [
        Fragment(**{**{name: getattr(f, name) for name in Fragment.__slots__},
                    "projection": (1, 10 + f.position % 7)})
        for day in range(6, 9)
        for number in range(20)
        for f in [asked(1, 1_000 * day + number, START + day * DAY_MS + number)]
    ]  # fmt: skip
    first = [asked(1, n, int(at)) for batch in one.shapes for n, at in enumerate(batch.event_ms)]
    assert outlook_of(workload_of_fragments([*first, *other])).outlook.changes == 0


@pytest.mark.parametrize("transform", ["like", "less[7]"])
def test_a_condition_that_a_later_version_records_is_no_other_mix(transform: str) -> None:
    """Earlier versions recorded a condition that no bound says anything of as true."""
    whole = [
        asked(1, 100 * day + n, START + day * DAY_MS + n) for day in range(9) for n in range(20)
    ]
    more = Comparison(Ref(5, transform), ">=", 1)
    later = [
        replace(one, predicate=And((one.predicate, more)), literals=(*one.literals, 1),
                moving=(None, None)) if one.position >= 600 else one
        for one in whole
    ]  # fmt: skip
    work = workload_of_fragments(later)
    assert len(work.shapes) == 2 and outlook_of(work).outlook.changes == 0
    for forecast in FORECASTS:
        before = forecast_rates(workload_of_fragments(whole), WEEK, forecast).executions
        assert forecast_rates(work, WEEK, forecast).executions.sum() == pytest.approx(before.sum())


def test_without_queries_nothing_is_expected() -> None:
    assert not len(forecast_rates(workload_of_fragments([]), WEEK, regime_forecast).executions)
