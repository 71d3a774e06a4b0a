"""Windows that an application clocks to the hour, day, week or month, and several at once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reconciler.queries import moving_windows
from reconciler.queries.calendar import PERIODS, Period, PeriodClock
from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.moving_literals import resolve_moving
from reconciler.queries.moving_windows import Movement, with_movement
from reconciler.queries.predicate import Comparison, Ref
from reconciler.queries.shape import Shape, workload_of
from reconciler.state.movements import record_movements, stored_movements
from reconciler.state.state import StateStore
from reconciler.table.schema import Field, Schema
from tests.queries.single import detected

HOUR, DAY = 3_600_000, 86_400_000
SCHEMA = Schema(0, (Field(1, "ts", "timestamptz"), Field(2, "day", "date")))
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SINCE = Comparison(Ref(1), ">=", 0)

Rule = Callable[[dt.datetime], dt.datetime]


def midnight(at: dt.datetime) -> dt.datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


RULES: dict[str, Rule] = {
    "hour": lambda at: at.replace(minute=0, second=0, microsecond=0) - dt.timedelta(hours=2),
    "day": lambda at: midnight(at) - dt.timedelta(days=1),
    "week": lambda at: midnight(at) - dt.timedelta(days=at.weekday() + 7),
    "month": lambda at: midnight(at).replace(day=1),
}


def moments(days: int, count: int = 200) -> list[dt.datetime]:
    seconds = np.sort(np.random.default_rng(1).integers(0, days * 86_400, count))
    return [START + dt.timedelta(seconds=int(second)) for second in seconds]


def asked(at: dt.datetime, since: dt.datetime) -> Fragment:
    event, literal = round(at.timestamp() * 1000), round(since.timestamp() * 1_000_000)
    return Fragment("log", event, "u", SINCE, (literal,), (None,), (1,), 1.0, event, "x")


def replayed(items: list[Fragment], at: dt.datetime) -> set[dt.datetime]:
    """The literals that these queries would have at another time."""
    (batch,) = with_movement(workload_of_fragments(items), SCHEMA, {}).shapes
    (values,) = resolve_moving(batch, SCHEMA, round(at.timestamp() * 1000))
    return {dt.datetime.fromtimestamp(int(v) / 1e6, dt.UTC) for v in values}


@pytest.mark.parametrize("period", PERIODS)
def test_a_cut_window_moves_from_period_to_period(period: Period) -> None:
    rule = RULES[period]
    items = [asked(at, rule(at)) for at in moments(70)]
    assert {f.clocks for f in detected(items, SCHEMA)} == {(PeriodClock(period),)}
    for days in (75.3, 83.9, 120.5):
        later = START + dt.timedelta(days=days)
        assert replayed(items, later) == {rule(later)}


def test_local_midnight_is_a_day_that_starts_later() -> None:
    zone = dt.timezone(dt.timedelta(hours=-5))
    items = [asked(at, midnight(at.astimezone(zone))) for at in moments(10)]
    assert {f.clocks for f in detected(items, SCHEMA)} == {(PeriodClock("day", 5 * HOUR),)}
    for hour in (2, 7):
        later = START + dt.timedelta(days=20, hours=hour)
        assert replayed(items, later) == {midnight(later.astimezone(zone))}


def test_one_shape_may_have_several_windows() -> None:
    spans = (1, 7, 30)
    cut = [asked(at, midnight(at) - dt.timedelta(spans[i % 3])) for i, at in enumerate(moments(20))]
    exact = [asked(at, at - dt.timedelta(spans[i % 3])) for i, at in enumerate(moments(20))]
    later = START + dt.timedelta(days=40, hours=9)
    ends = {span: dt.timedelta(days=span) for span in spans}
    assert replayed(cut, later) == {midnight(later) - back for back in ends.values()}
    assert replayed(exact, later) == {later - back for back in ends.values()}


def test_a_few_fixed_literals_stay_fixed_among_moving_ones() -> None:
    still = START - dt.timedelta(days=400)
    items = [asked(at, still if i % 10 == 0 else midnight(at)) for i, at in enumerate(moments(20))]
    later = START + dt.timedelta(days=40, hours=9)
    assert replayed(items, later) == {still, midnight(later)}


def test_days_that_people_pick_at_random_do_not_move() -> None:
    random = np.random.default_rng(3)
    items = [
        asked(at, midnight(at) - dt.timedelta(days=int(random.integers(0, 30))))
        for at in moments(30, 900)
    ]
    assert {f.moving for f in detected(items, SCHEMA)} == {(None,)}


def test_the_first_of_a_month_within_one_month_may_be_fixed() -> None:
    items = [asked(at, RULES["month"](at)) for at in moments(25)]
    assert {f.moving for f in detected(items, SCHEMA)} == {(None,)}


def test_nanoseconds_are_cut_alike() -> None:
    schema = Schema(0, (Field(1, "ts", "timestamptz_ns"),))
    items = [asked(at, RULES["day"](at)) for at in moments(10)]
    items = [replace(f, literals=(f.literals[0] * 1000,)) for f in items]  # type: ignore[operator]
    assert {f.clocks for f in detected(items, schema)} == {(PeriodClock("day"),)}


@pytest.mark.parametrize("period", PERIODS)
def test_times_on_a_cut_are_their_own_start(period: Period) -> None:
    clock = PeriodClock(period, 0 if period == "month" else 5 * HOUR)
    at = np.random.default_rng(2).integers(-(10**13), 10**13, 500)
    number = clock.number(at)
    assert (clock.start(number) <= at).all() and (at < clock.start(number + 1)).all()
    assert (clock.number(clock.start(number)) == number).all()


def asks(rule: Rule, column: int, days: int, seed: int) -> list[Fragment]:
    """Queries of one shape, of which every eighth has a fixed literal if they keep to a clock."""
    still = START - dt.timedelta(days=400)
    return [
        replace(
            asked(at, still if number % 8 == 7 and rule in RULES.values() else rule(at)),
            predicate=Comparison(Ref(1), "<" if column else ">=", 0),
            position=seed * 100_000 + number,
        )
        for number, at in enumerate(moments(days))
    ]


@pytest.mark.parametrize("period", [*PERIODS, "exact"])
def test_what_an_import_found_gives_the_same_movement_without_looking_again(
    period: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = RULES.get(period, lambda at: at - dt.timedelta(hours=5))
    store = StateStore(tmp_path)
    store.append_fragments(asks(rule, 0, 70, 1))
    record_movements(store, "u", SCHEMA, workload_of(store.shapes("u")))
    wanted = with_movement(workload_of(store.shapes("u")), SCHEMA, {}).shapes
    assert any(shape.moving for shape in wanted)
    looked_at: list[str] = []
    look = moving_windows._detected

    def detected_again(shape: Shape, schema: Schema) -> dict[int, Movement]:
        looked_at.append(shape.shape_id)
        return look(shape, schema)

    monkeypatch.setattr(moving_windows, "_detected", detected_again)
    known = stored_movements(StateStore(tmp_path), "u")
    found = with_movement(workload_of(store.shapes("u")), SCHEMA, known).shapes
    assert repr(found) == repr(wanted) and not looked_at
    store.append_fragments(asks(RULES["day"], 1, 20, 2))  # another shape: the first stays as it is
    record_movements(store, "u", SCHEMA, workload_of(store.shapes("u")))
    assert len(looked_at) == 1 and wanted[0].shape_id not in looked_at
    later = Schema(1, (Field(1, "ts", "timestamptz_ns"),))  # another type: looked at again
    with_movement(workload_of(store.shapes("u")), later, stored_movements(store, "u"))
    assert len(looked_at) == 3
