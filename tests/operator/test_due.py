"""Due times: jitter within a tenth, refills and boundaries computed, also across clock changes."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.operator.due import LEAST_INTERVAL, boundary, next_look, reopens
from reconciler.plan.budget import Budget, Charge, Spent, admit, closed_by
from tests.examples import examples

NOW = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
BERLIN = ZoneInfo("Europe/Berlin")
DAILY = Budget("daily", per_seconds=86_400, max_rewrite_bytes=100)
OFFICE = Budget(
    "office", schedule="0 8 * * mon-fri", time_zone="Europe/Berlin", duration_seconds=36_000,
    max_rewrite_bytes=0,
)  # fmt: skip


@given(st.text(max_size=20), st.integers(60, 86_400), st.integers(0, 10**9))
@settings(max_examples=examples(200), deadline=None)
def test_an_interval_is_a_tenth_off_at_most(name: str, interval: int, offset: int) -> None:
    now = NOW + dt.timedelta(seconds=offset)
    wait = (next_look(name, interval, now) - now).total_seconds()
    assert 0.9 * interval - 1 <= wait <= 1.1 * interval + 1
    assert next_look(name, interval, now) == next_look(name, interval, now)


def test_an_interval_of_a_second_does_not_loop() -> None:
    for interval in (0, 1, 29):
        assert (next_look("t", interval, NOW) - NOW).total_seconds() >= 0.9 * LEAST_INTERVAL


def test_tables_do_not_all_come_at_once() -> None:
    times = {next_look(f"t{n}", 600, NOW) for n in range(100)}
    assert len(times) > 90


charges = st.lists(
    st.builds(
        lambda ago, size: Spent(NOW - dt.timedelta(seconds=ago), size, 0.0),
        st.integers(0, 90_000),
        st.integers(0, 60),
    ),
    max_size=6,
)


@given(charges, st.integers(1, 120))
@settings(max_examples=examples(300), deadline=None)
def test_a_rolling_budget_admits_at_its_refill_and_not_before(
    spent: list[Spent], size: int
) -> None:
    charge = Charge(size, 0.0)
    if admit([charge], [DAILY], spent, NOW).count:
        return
    moment = reopens([DAILY], spent, charge, NOW)
    if moment is None:
        assert size > 100
        return
    assert admit([charge], [DAILY], spent, moment).count == 1
    just_before = moment - dt.timedelta(seconds=1)
    assert admit([charge], [DAILY], spent, just_before).count == 0


def test_a_window_closes_and_opens_by_local_time_on_both_sides_of_a_clock_change() -> None:
    for day in ("2026-03-27", "2026-03-30", "2026-10-23", "2026-10-26"):  # Fridays and Mondays
        opening = dt.datetime.fromisoformat(f"{day}T08:00").replace(tzinfo=BERLIN)
        before, after = opening - dt.timedelta(seconds=1), opening + dt.timedelta(seconds=1)
        assert closed_by([OFFICE], before.astimezone(dt.UTC)) == ""
        assert closed_by([OFFICE], after.astimezone(dt.UTC)) == "office"
        assert boundary([OFFICE], before.astimezone(dt.UTC)) == opening
        end = opening.astimezone(dt.UTC) + dt.timedelta(hours=10)
        assert boundary([OFFICE], after.astimezone(dt.UTC)) == end
        assert closed_by([OFFICE], end) == ""


def test_a_window_over_the_night_of_a_clock_change_lasts_its_duration() -> None:
    night = Budget(
        "night", schedule="0 1 * * *", time_zone="Europe/Berlin", duration_seconds=4 * 3600,
        max_rewrite_bytes=0,
    )  # fmt: skip
    for day in ("2026-03-29", "2026-10-25"):
        start = dt.datetime.fromisoformat(f"{day}T01:00").replace(tzinfo=BERLIN).astimezone(dt.UTC)
        assert closed_by([night], start + dt.timedelta(hours=3, minutes=59)) == "night"
        assert closed_by([night], start + dt.timedelta(hours=4)) == ""


@pytest.mark.parametrize(
    ("evening", "opening"),
    [
        ("2026-03-28T20:00+00:00", "2026-03-29T03:00+02:00"),  # 2:30 does not come
        ("2026-10-24T20:00+00:00", "2026-10-25T02:30+02:00"),  # 2:30 comes twice
    ],
)
def test_a_window_whose_opening_time_is_skipped_or_repeated_opens_once(
    evening: str, opening: str
) -> None:
    night = Budget(
        "night", schedule="30 2 * * *", time_zone="Europe/Berlin", duration_seconds=1200,
        max_rewrite_bytes=0,
    )  # fmt: skip
    start = dt.datetime.fromisoformat(evening)
    minutes = (start + dt.timedelta(minutes=number) for number in range(12 * 60))
    closed = [minute for minute in minutes if closed_by([night], minute)]
    assert len(closed) == 20
    assert closed[0] == dt.datetime.fromisoformat(opening)


def test_a_schedule_that_never_comes_allows_nothing_and_says_so() -> None:
    never = Budget("x", schedule="0 0 31 2 *", duration_seconds=60, max_rewrite_bytes=5)
    assert admit([Charge(1, 0.0)], [never], (), NOW).count == 0
