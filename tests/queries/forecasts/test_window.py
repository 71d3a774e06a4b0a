"""The paper's adaptive window: it doubles while the queries stay, and halves when they do not."""

from __future__ import annotations

import numpy as np
import pytest

from reconciler.queries.forecasts.window import (
    LEAST_QUERIES,
    MOST_QUERIES,
    next_window,
    window_forecast,
    window_size,
)
from reconciler.queries.fragments import workload_of_fragments
from reconciler.queries.rates import forecast_rates
from tests.queries.test_rates import START, WEEK, asked, days


@pytest.mark.parametrize(
    ("window", "promised", "came", "then"),
    [
        (32, 0.5, 0.6, 64),
        (32, 0.5, 0.5, 64),
        (32, 0.5, 0.4, 16),
        (LEAST_QUERIES, 1.0, 0.0, LEAST_QUERIES),
        (MOST_QUERIES, 0.5, 1.0, MOST_QUERIES),
    ],
)
def test_a_window_that_kept_its_promise_doubles_and_another_halves(
    window: int, promised: float, came: float, then: int
) -> None:
    assert next_window(window, promised, came) == then


def size_of(*groups: int, weight: float = 1.0) -> int:
    return window_size(
        np.array(groups, dtype=np.int64), np.full(len(groups), weight), np.arange(len(groups))
    )


def test_the_window_grows_while_the_kinds_of_queries_stay() -> None:
    # 16, then 16 + 32 + 64 + 128 + 256 judged ones: each of these windows doubles the next.
    assert [size_of(*[0] * count) for count in (16, 32, 64, 128, 256, 512, 5_000)] == [
        16, 32, 64, 128, 256, 512, 512,
    ]  # fmt: skip


def test_the_window_shrinks_when_other_queries_come() -> None:
    stable = [0] * 256
    assert size_of(*stable) == 256
    assert size_of(*stable, *[1] * 256) == 128
    alternating = [kind for _ in range(20) for kind in [0] * 16 + [1] * 16]
    assert size_of(*alternating) == LEAST_QUERIES


def test_weights_are_executions() -> None:
    assert size_of(*[0] * 16, weight=2.0) == size_of(*[0] * 32)
    assert size_of() == LEAST_QUERIES


def test_only_the_queries_of_the_window_are_expected_to_come_again() -> None:
    work = days(1, 2, 3)
    found = forecast_rates(work, WEEK, window_forecast)
    by_time = np.argsort(np.concatenate([shape.event_ms for shape in work.shapes]), kind="stable")
    expected = found.executions[by_time]
    # 60 queries, a change after each 20: the window ends as small as it began.
    assert (expected[:-LEAST_QUERIES] == 0.0).all()
    assert expected[-LEAST_QUERIES:] == pytest.approx(7 * 20 / LEAST_QUERIES)
    assert found.outlook.method == "window"


def test_queries_of_one_instant_are_in_no_order() -> None:
    """A log in whole seconds: no window begins or ends among the queries of one second."""
    kinds = np.array([0, 0, 1, 1] * 50, dtype=np.int64)
    second = np.arange(200) // 4 * 1_000
    shuffled = np.array([1, 0, 1, 0] * 50, dtype=np.int64)
    each = np.ones(200)
    assert window_size(kinds, each, second) == window_size(shuffled, each, second)
    one_instant = np.zeros(200, dtype=np.int64)
    # One window holds all: nothing was promised before it.
    assert window_size(np.sort(kinds), each, one_instant) == LEAST_QUERIES


def test_a_window_takes_all_queries_of_its_first_instant() -> None:
    work = workload_of_fragments(
        asked(column, 10 * number + column, START + number * 1_000)
        for number in range(30)
        for column in (1, 2, 3)
    )
    found = forecast_rates(work, WEEK, window_forecast).executions
    inside = np.split(found > 0.0, np.cumsum([len(shape) for shape in work.shapes])[:-1])
    assert len({int(part.sum()) for part in inside}) == 1
