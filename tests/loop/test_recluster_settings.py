"""What a policy's `recluster` means for the decisions."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.loop.decision_settings import settings_for
from reconciler.loop.history import History
from reconciler.loop.ports import RecordedQueries
from reconciler.queries.coverage import Coverage
from reconciler.queries.forecasts.chosen import chosen_forecast
from reconciler.queries.forecasts.window import window_once
from reconciler.queries.fragments import workload_of_fragments
from reconciler.queries.rates import RateForecast
from tests.cli.observations import lineitem
from tests.loop.test_step import policy

NOTHING = workload_of_fragments([])


@pytest.mark.parametrize(
    ("recluster", "literal", "forecast"),
    [
        ({}, False, chosen_forecast),
        ({"method": "Adaptive"}, False, chosen_forecast),
        ({"method": "Literal"}, True, window_once),
    ],
)
def test_the_literal_method_takes_the_last_queries_to_come_once_more(
    recluster: dict[str, str], literal: bool, forecast: RateForecast
) -> None:
    found = settings_of(recluster)
    assert (found.literal, found.forecast) == (literal, forecast)


@pytest.mark.parametrize(
    ("name", "alpha", "allowance", "beta"),
    [
        ("Conservative", 2.0, None, 0.0),
        ("Balanced", 1.0, None, 0.0),
        ("Aggressive", 0.5, 10.0, 1.0),
    ],
)
def test_aggressiveness_is_alpha_the_allowance_and_the_bonus(
    name: str, alpha: float, allowance: float | None, beta: float
) -> None:
    found = settings_of({"aggressiveness": name})
    assert (found.alpha, found.allowance, found.beta_openings) == (alpha, allowance, beta)


def settings_of(recluster: dict[str, str]) -> Any:
    asked: Any = policy("t", recluster=recluster)
    return settings_for(
        asked, lineitem(12, 3), History(),
        RecordedQueries(NOTHING, Coverage(1.0, "bytes"), NOTHING),
        target_bytes=1, now_ms=0,
    )  # fmt: skip
