"""Clocks: windows open and close tables over clock changes, and a clock that is set back holds
nothing up for longer than it was meant to be."""

from __future__ import annotations

import datetime as dt

import pytest

from reconciler.kube.termination_message import Cause, LastWords
from reconciler.operator.work import LAUNCH_KEY
from tests.operator.worlds import GIB, World

HOUR = dt.timedelta(hours=1)


def utc(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("zone", "schedule", "before", "opens", "closes"),
    [
        # 02:30 to 04:30 in the night in which 02:30 comes twice, and in which it never comes
        ("Europe/Berlin", "30 2 * * *", "2026-10-24T23:00", "2026-10-25T00:30", "2026-10-25T02:30"),
        ("Europe/Berlin", "30 2 * * *", "2026-03-28T23:00", "2026-03-29T01:00", "2026-03-29T03:00"),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T13:00", "2026-10-03T15:30",
         "2026-10-03T17:30"),
        ("UTC", "0 12 29 2 *", "2028-02-29T11:00", "2028-02-29T12:00", "2028-02-29T14:00"),
    ],
)  # fmt: skip
def test_a_table_waits_for_the_end_of_a_closed_window_and_is_looked_at_right_then(
    zone: str, schedule: str, before: str, opens: str, closes: str
) -> None:
    closed = {
        "name": "night", "schedule": schedule, "timeZone": zone, "duration": "2h",
        "maxRewriteBytes": "0",
    }  # fmt: skip
    world = World(budgets=[closed], interval="24h")
    world.now = utc(opens)
    name = world.table("orders", GIB)
    operator = world.operator()
    times = []
    while not world.jobs():
        world.turn(operator)
        result = world.reconcile(operator, name)
        times.append(world.now)
        if not world.jobs():
            assert world.converged(name) == "OutsideWindow"
            assert result.due > world.now.timestamp()
            world.now = dt.datetime.fromtimestamp(result.due, dt.UTC)
    assert world.now == utc(closes) and len(times) == 2

    (job,) = world.jobs()
    world.start(job)
    world.now = utc(before)
    result = world.reconcile(operator, name)
    assert world.now.timestamp() < result.due <= utc(opens).timestamp()


def test_a_back_off_does_not_outlast_a_clock_that_is_set_back() -> None:
    world = World()
    name = world.table("orders", GIB)
    operator = world.operator()
    job = world.started(operator)
    world.end(job, 0, LastWords(Cause.UNAVAILABLE, "the catalog did not answer"))
    world.turn(operator, 2)
    assert world.converged(name) == "BackOff"
    world.now -= 24 * HOUR
    world.turn(operator, 2)
    assert len(world.jobs()) == 2


def test_a_refusal_and_the_age_of_an_offer_do_not_outlast_it_either() -> None:
    world = World(engine={"maxConcurrentJobs": 8})
    world.cap = 3 * GIB
    for table in ("a", "b"):
        world.table(table, 2 * GIB)
    operator = world.operator()
    world.turn(operator, 2)
    assert len(world.jobs()) == 1
    (waiting,) = operator.launcher.in_order()
    world.now -= 48 * HOUR
    world.cap = 99 * GIB
    operator.layouts.runtime.settings.max_rewrite_bytes = world.cap
    operator.launcher.reconcile(LAUNCH_KEY)
    assert len(world.jobs()) == 2
    assert waiting not in operator.launcher.in_order()


def test_with_the_clock_set_back_every_due_time_is_ahead_and_near() -> None:
    daily = {"name": "daily", "per": "24h", "maxRewriteBytes": "1Gi"}
    world = World(budgets=[daily])
    names = [world.table("idle"), world.table("busy", GIB, GIB)]
    operator = world.operator()
    job = world.started(operator)
    world.end(job)
    world.turn(operator)
    for jump in (HOUR, 24 * HOUR, 24 * 365 * HOUR):
        world.now -= jump
        for name in names:
            result = world.reconcile(operator, name)
            ahead = result.due - world.now.timestamp()
            assert 0 < ahead <= 24 * 3600, (name, jump, ahead)
    assert len(world.living()) == 0, "what was spent is not forgotten"
