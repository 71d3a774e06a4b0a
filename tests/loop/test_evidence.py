"""What a plan says of its rates is what was computed."""

from __future__ import annotations

from dataclasses import replace

from reconciler.loop.evidence import rates_document
from reconciler.queries.forecasts.chosen import chosen_forecast
from reconciler.queries.forecasts.window import window_once
from reconciler.queries.rates import forecast_rates
from tests.queries.test_rates import WEEK, days

CHANGED = days(*[1] * 12, 2)


def test_the_share_of_a_new_mix_is_said_to_be_of_the_forecast_that_expects_it() -> None:
    outlook = forecast_rates(CHANGED, WEEK, chosen_forecast).outlook
    found = rates_document(outlook, CHANGED)
    (regime,) = [one for one in found["forecasts"] if one["method"] == "regime"]
    said = str(found["text"])
    assert f"{found['presentPercent']} %" in said
    assert f"({regime['percent']} %)" in said
    none = replace(outlook, scores=tuple(replace(one, weight=0.0) for one in outlook.scores))
    assert "(0 %)" in str(rates_document(none, CHANGED)["text"])


def test_a_log_that_was_not_looked_at_for_changes_is_not_said_to_have_none() -> None:
    literal = forecast_rates(CHANGED, WEEK, window_once).outlook
    quiet = forecast_rates(days(*[1] * 12), WEEK, chosen_forecast).outlook
    texts = [str(rates_document(one, CHANGED)["text"]) for one in (literal, quiet)]
    assert ["no change" in text for text in texts] == [False, True]
