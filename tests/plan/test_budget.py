"""Budgets: windows, prefixes, fail-closed."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.plan.budget import Budget, Charge, Spent, admit, budget_state

NOON = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)  # a Friday
GIB = 1 << 30
OFFICE = Budget(
    "office", schedule="0 8 * * mon-fri", time_zone="Europe/Berlin",
    duration_seconds=10 * 3600, max_rewrite_bytes=0,
)  # fmt: skip


def at(hour: int, minute: int = 0, day: int = 20) -> dt.datetime:
    return dt.datetime(2026, 11, day, hour, minute, tzinfo=dt.UTC)


def test_rolling_window_forgets_what_is_older_than_per():
    budget = Budget("daily", per_seconds=86_400, max_rewrite_bytes=10 * GIB)
    spent = [
        Spent(NOON - dt.timedelta(hours=25), 9 * GIB, 1.0),
        Spent(NOON - dt.timedelta(hours=1), 4 * GIB, 1.0),
    ]
    state = budget_state(budget, spent, NOON)
    assert (state.spent_bytes, state.remaining_bytes) == (4 * GIB, 6 * GIB)


@pytest.mark.parametrize("held", [False, True])
def test_a_refusal_says_that_a_run_without_an_end_holds_the_budget(held):
    budget = Budget("daily", per_seconds=86_400, max_rewrite_bytes=10 * GIB)
    spent = [Spent(NOON, GIB, 0.0), Spent(NOON, 8 * GIB, 0.0, held=held)]
    gate = admit([Charge(2 * GIB, 0.0)], [budget], spent, NOON)
    assert gate.budgets[0].held_bytes == (8 * GIB if held else 0)
    plain = admit([Charge(2 * GIB, 0.0)], [budget], [Spent(NOON, 9 * GIB, 0.0)], NOON)
    assert (gate.message != plain.message) is held


@pytest.mark.parametrize(("hours", "may_go_on"), [(-1, False), (24, True)])
def test_what_a_killed_run_holds_is_free_once_the_window_has_passed(hours, may_go_on):
    budget = Budget("daily", per_seconds=86_400, max_rewrite_bytes=10 * GIB)
    ends = NOON + dt.timedelta(hours=hours)
    spent = [Spent(min(NOON, ends), 9 * GIB, 0.0, held=True, ends=ends)]
    gate = admit([Charge(2 * GIB, 0.0)], [budget], spent, NOON)
    (state,) = gate.budgets
    assert (state.held_until, state.may_go_on) == (ends + dt.timedelta(days=1), may_go_on)
    assert f"{state.held_until:%Y-%m-%dT%H:%M:%SZ}" in gate.message


@pytest.mark.parametrize(
    ("limits", "size", "seconds", "told"),
    [
        ({"max_cpu_seconds": 60}, 0, 50.0, True),
        ({"max_cpu_seconds": 60}, 8 * GIB, 0.0, False),
        ({"max_rewrite_bytes": GIB}, 0, 50.0, False),
        ({"max_rewrite_bytes": 4 * GIB, "max_cpu_seconds": 60}, 0, 50.0, True),
    ],
)
def test_a_run_without_an_end_holds_what_the_budget_limits(limits, size, seconds, told):
    budget = Budget("daily", per_seconds=86_400, **limits)
    asked = [Charge(2 * GIB, 20.0 if told else 70.0)]  # what never fits says nothing of who holds
    held = admit(asked, [budget], [Spent(NOON, size, seconds, held=True)], NOON)
    assert held.budgets[0].held_cpu_seconds == seconds
    ended = admit(asked, [budget], [Spent(NOON, size, seconds)], NOON)
    assert held.count == ended.count == ended.budgets[0].held_cpu_seconds == 0
    assert (held.message != ended.message) is told


@pytest.mark.parametrize(
    ("moment", "closed"),
    [
        (at(6, 59), False),  # 07:59 in Berlin
        (at(7, 0), True),
        (at(16, 59), True),
        (at(17, 0), False),
        (at(12, 0, day=21), False),  # Saturday
    ],
)
def test_closed_hours_follow_the_time_zone_to_the_minute(moment, closed):
    assert budget_state(OFFICE, (), moment).closed is closed
    admission = admit([Charge(1, 1.0)], [OFFICE], (), moment)
    assert (admission.count, admission.reason) == ((0, "OutsideWindow") if closed else (1, ""))


def test_closed_window_says_when_it_opens():
    assert budget_state(OFFICE, (), NOON).boundary == at(17)
    assert budget_state(OFFICE, (), at(18)).boundary == dt.datetime(2026, 11, 23, 7, tzinfo=dt.UTC)


def test_schedule_keeps_local_hours_over_the_change_to_winter_time():
    summer = dt.datetime(2026, 10, 23, 6, 30, tzinfo=dt.UTC)  # 08:30 CEST
    winter = dt.datetime(2026, 10, 26, 6, 30, tzinfo=dt.UTC)  # 07:30 CET
    assert budget_state(OFFICE, (), summer).closed
    assert not budget_state(OFFICE, (), winter).closed


@pytest.mark.parametrize(
    "budget",
    [
        Budget("a", per_seconds=3600),
        Budget("b", schedule="not cron", duration_seconds=60, max_rewrite_bytes=1 << 40),
        Budget("c", schedule="0 8 * * *", time_zone="Mars/Olympus", duration_seconds=60,
               max_rewrite_bytes=1 << 40),
        Budget("d", max_rewrite_bytes=1 << 40),
        Budget("e", schedule="0 8 * * *", max_rewrite_bytes=1 << 40),
    ],
)  # fmt: skip
def test_an_invalid_budget_allows_nothing(budget, said):
    admission = admit([Charge(1, 0.0)], [budget], (), NOON)
    assert admission.count == 0
    said(admission.message)


def test_an_unreadable_ledger_allows_nothing():
    budget = Budget("daily", per_seconds=86_400, max_rewrite_bytes=GIB)
    assert admit([Charge(1, 0.0)], [budget], None, NOON).count == 0


def test_metadata_changes_cost_nothing_and_pass_a_spent_budget():
    budget = Budget("daily", per_seconds=86_400, max_rewrite_bytes=GIB)
    spent = [Spent(NOON, GIB, 0.0)]
    assert admit([Charge(0, 0.0), Charge(1, 0.0)], [budget], spent, NOON).count == 1


@given(
    sizes=st.lists(st.integers(0, 100), max_size=12),
    limits=st.lists(st.integers(0, 400), min_size=1, max_size=3),
    already=st.integers(0, 200),
)
def test_admission_is_the_longest_prefix_that_every_budget_allows(sizes, limits, already):
    budgets = [
        Budget(f"b{n}", per_seconds=60, max_rewrite_bytes=limit) for n, limit in enumerate(limits)
    ]
    count = admit([Charge(s, 0.0) for s in sizes], budgets, [Spent(NOON, already, 0.0)], NOON).count
    room = min(max(0, limit - already) for limit in limits)
    assert sum(sizes[:count]) <= room
    if count < len(sizes):
        assert sum(sizes[: count + 1]) > room


def test_a_message_quotes_the_name_of_its_budget(said):
    none = Budget("none", per_seconds=86_400, max_rewrite_bytes=0)
    said(admit([Charge(1, 1.0)], [none], (), NOON).message)
    said(admit([Charge(1, 1.0)], [OFFICE], (), NOON).message)


def test_a_message_uses_the_title_of_a_budget_that_has_one():
    cap = Budget("cluster", per_seconds=86_400, max_rewrite_bytes=1, title="Cap")
    found = admit([Charge(2, 0.0)], [cap], (), at(12))
    assert found.message.startswith("Cap ")
    assert "cluster" not in found.message


@pytest.mark.parametrize("limits", [{"max_rewrite_bytes": 0}, {"max_cpu_seconds": 9}])
def test_what_a_budget_can_never_admit_is_not_said_to_wait(limits, said):
    budget = Budget("daily", per_seconds=86_400, **limits)
    gate = admit([Charge(1, 10.0)], [budget], [], NOON)
    assert (gate.count, gate.reason) == (0, "OverBudget")
    said(gate.message)
