"""Conflicts in a row: how they are counted, how long work waits after them, and which work."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.plan.actions.base import Action
from reconciler.plan.actions.delete_maintenance import (
    CompactDeletes,
    ConvertDeletes,
    RemoveDanglingDeletes,
)
from reconciler.plan.actions.rewrite import ApplyDeletes, BinPack, Recluster
from reconciler.plan.conflicts import NO_CONFLICTS, Conflicts

SECOND = 1_000
DATA: tuple[Action, ...] = (BinPack(), Recluster(), ApplyDeletes())
REST: tuple[Action, ...] = (CompactDeletes(), ConvertDeletes(), RemoveDanglingDeletes())
ACTIONS = st.sets(st.sampled_from(DATA + REST), max_size=3)
EXECUTIONS = st.lists(st.tuples(ACTIONS, ACTIONS), max_size=12)


@pytest.mark.parametrize(
    ("in_a_row", "seconds"),
    [(0, 0), (1, 60), (2, 120), (3, 240), (4, 480), (5, 900), (6, 900), (10**6, 900)],
)
def test_each_conflict_in_a_row_doubles_the_wait_up_to_the_default_quiet_period(
    in_a_row: int, seconds: int
) -> None:
    assert Conflicts(data=in_a_row).hold_ms == seconds * SECOND
    assert Conflicts(rest=in_a_row).hold_ms == seconds * SECOND


@given(EXECUTIONS)
def test_a_class_counts_the_executions_that_lost_some_of_it_since_one_that_did_some(
    executions: list[tuple[set[Action], set[Action]]],
) -> None:
    known = NO_CONFLICTS
    for lost, done in executions:
        known = known.after(lost, done)
    for mine, found in ((DATA, known.data), (REST, known.rest)):
        since = [bool(lost & set(mine)) for lost, done in executions]
        last = max((n for n, (_, done) in enumerate(executions) if done & set(mine)), default=-1)
        assert found == sum(since[last + 1 :])


@given(st.integers(0, 3), st.integers(0, 3), ACTIONS)
def test_work_is_concerned_by_the_conflicts_of_its_own_class(
    data: int, rest: int, actions: set[Action]
) -> None:
    either = (data and actions & set(DATA)) or (rest and actions & set(REST))
    assert Conflicts(data, rest).concern(actions) is bool(either)
