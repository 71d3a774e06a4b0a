"""Starts of schedules against a brute-force reading of the clock, minute by minute.

The oracle walks over instants and looks at the wall clock; it knows neither CronSim nor folds but
by what the wall clock shows.
"""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reconciler.operator.due import boundary
from reconciler.plan.budget import Budget, budget_state
from reconciler.plan.schedule import last_start, next_start
from tests.examples import examples

MINUTE = dt.timedelta(minutes=1)
CHANGES = {
    "Europe/Berlin": ("2026-03-29T01:00", "2026-10-25T01:00"),
    "America/New_York": ("2026-03-08T07:00", "2026-11-01T06:00"),
    "Australia/Lord_Howe": ("2026-04-04T15:00", "2026-10-03T15:30"),  # half an hour
    "America/Havana": ("2026-03-08T05:00", "2026-11-01T05:00"),  # around midnight
    "Africa/Casablanca": ("2026-02-15T02:00", "2026-03-22T02:00"),  # negative summer time
    "Asia/Kathmandu": ("2026-05-01T00:00",),  # none, and an odd offset
    "Pacific/Apia": ("2011-12-30T10:00",),  # a day that did not happen
}
PLACES = [(zone, moment) for zone, moments in CHANGES.items() for moment in moments]

minutes = st.sampled_from(["0", "30", "15,45", "59", "*/15", "*/7", "*"])
hours = st.sampled_from(["0", "1", "2", "3", "23", "1-3", "*/6", "*"])
weekdays = st.sampled_from(["*", "sun", "sat,sun", "mon-fri"])
schedules = st.builds(lambda m, h, d: f"{m} {h} * * {d}", minutes, hours, weekdays)
DAYS = {"mon": 0, "tue": 1, "wed": 2, "thu": 3, "fri": 4, "sat": 5, "sun": 6}


def numbers(part: str, most: int) -> set[int]:
    found: set[int] = set()
    for item in part.split(","):
        span, _, step = item.partition("/")
        low, _, high = span.partition("-")
        first, last = (0, most) if span == "*" else (int(low), int(high or low))
        found |= set(range(first, last + 1, int(step or 1)))
    return found


def weekdays_of(part: str) -> set[int]:
    if part == "*":
        return set(range(7))
    if "-" in part:
        low, high = part.split("-")
        return set(range(DAYS[low], DAYS[high] + 1))
    return {DAYS[item] for item in part.split(",")}


def oracle(
    schedule: str, zone: ZoneInfo, first: dt.datetime, last: dt.datetime
) -> list[dt.datetime]:
    """Every start in [first, last], both whole minutes in UTC."""
    minute, hour, _, _, weekday = schedule.split()
    by_minute, by_hour, by_day = numbers(minute, 59), numbers(hour, 23), weekdays_of(weekday)
    follows_real_time = minute.startswith("*") or hour.startswith("*")

    def named(wall: dt.datetime) -> bool:
        return wall.minute in by_minute and wall.hour in by_hour and wall.weekday() in by_day

    found, shown = [], set()
    at, before = first - dt.timedelta(hours=30), None
    while at <= last:
        wall = at.astimezone(zone).replace(tzinfo=None)
        starts = named(wall) and (follows_real_time or wall not in shown)
        skipped = before + MINUTE if before is not None else wall
        while skipped < wall and not follows_real_time:
            starts = starts or named(skipped)
            skipped += MINUTE
        if starts and at >= first:
            found.append(at)
        shown.add(wall)
        before = wall if before is None else max(before, wall)
        at += MINUTE
    return found


@given(
    schedules,
    st.sampled_from(PLACES),
    st.integers(-20 * 60, 20 * 60),
    st.sampled_from([0.0, 0.5, 29.0, 59.9]),
)
@example("30 2 * * *", ("Europe/Berlin", "2026-10-25T01:00"), 0, 0.0)
@example("30 2 * * *", ("Europe/Berlin", "2026-03-29T01:00"), 30, 0.0)
@example("0 0 * * *", ("America/Havana", "2026-03-08T05:00"), -1, 0.0)
@example("15,45 1 * * *", ("Australia/Lord_Howe", "2026-04-04T15:00"), -20, 0.5)
@settings(max_examples=examples(120), deadline=None)
def test_starts_are_those_that_the_wall_clock_shows(
    schedule: str, place: tuple[str, str], offset: int, seconds: float
) -> None:
    zone = ZoneInfo(place[0])
    minute = dt.datetime.fromisoformat(place[1]).replace(tzinfo=dt.UTC) + offset * MINUTE
    now = minute + dt.timedelta(seconds=seconds)
    reach = dt.timedelta(hours=50)
    expected = oracle(schedule, zone, minute - reach, minute + reach)
    later = [at for at in expected if at > now]
    earlier = [at for at in expected if at <= now]
    upcoming, latest = next_start(schedule, zone, now), last_start(schedule, zone, now)
    assert upcoming == later[0] if later else upcoming > minute + reach
    assert latest == earlier[-1] if earlier else latest < minute - reach


@given(
    schedules,
    st.sampled_from(PLACES),
    st.integers(-20 * 60, 20 * 60),
    st.integers(1, 30 * 60),
)
@settings(max_examples=examples(60), deadline=None)
def test_a_window_is_closed_for_its_duration_after_each_start_and_its_boundary_is_ahead(
    schedule: str, place: tuple[str, str], offset: int, duration: int
) -> None:
    zone = ZoneInfo(place[0])
    now = dt.datetime.fromisoformat(place[1]).replace(tzinfo=dt.UTC) + offset * MINUTE
    budget = Budget(
        "w", schedule=schedule, time_zone=place[0], duration_seconds=duration * 60,
        max_rewrite_bytes=0,
    )  # fmt: skip
    length = duration * MINUTE
    starts = oracle(schedule, zone, now - length, now)
    inside = any(start <= now < start + length for start in starts)
    assert budget_state(budget, (), now).closed is inside
    moment = boundary([budget], now)
    assert moment is not None and moment > now
    between = oracle(schedule, zone, now + MINUTE, moment)
    # Where windows overlap, the latest start's end counts.
    changes = [*between, *(start + length for start in starts[-1:])]
    assert min(at for at in changes if at > now) == moment


def test_following_the_boundaries_never_stands_still_over_a_year_of_clock_changes() -> None:
    """Half an hour's change, both directions, a window around it: two boundaries a day."""
    zone = "Australia/Lord_Howe"
    budget = Budget(
        "w", schedule="45 1 * * *", time_zone=zone, duration_seconds=3600, max_rewrite_bytes=0
    )
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    end, steps = now + dt.timedelta(days=365), 0
    while now < end:
        moment = boundary([budget], now)
        assert moment is not None and moment > now
        now, steps = moment, steps + 1
    assert steps in range(2 * 365 - 2, 2 * 365 + 3)


@pytest.mark.parametrize(("year", "leap"), [(2027, 2028), (2096, 2104)])
def test_a_window_on_the_leap_day_waits_for_it_even_over_a_century(year: int, leap: int) -> None:
    now = dt.datetime(year, 3, 1, tzinfo=dt.UTC)
    start = next_start("0 8 29 2 *", ZoneInfo("Europe/Berlin"), now)
    assert start == dt.datetime(leap, 2, 29, 7, tzinfo=dt.UTC)
    assert last_start("0 8 29 2 *", ZoneInfo("Europe/Berlin"), start) == start
