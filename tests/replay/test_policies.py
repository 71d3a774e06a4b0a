"""Policies with which the advisor is compared, on a table whose best layout is known."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from bench.replay.table import arriving, empty_table
from reconciler.queries.fragments import workload_of_fragments
from reconciler.queries.rewrite_cost import Rho
from reconciler.replay.policies.depth_driven import deepest, depth_driven
from reconciler.replay.policies.fixed import rebuild_each, sort_everything
from reconciler.replay.policies.oracle import sorted_for_free
from reconciler.replay.run import Policy, Replay, Running, Step, replay
from tests.advisor.worlds import (
    DAY,
    KEY,
    PART,
    ROW_BYTES,
    SCHEMA,
    SETTINGS,
    arrived,
    arriving_rows,
    range_query,
)

DAYS, ROWS, PER_FILE, WIDTH = 8, 1_000, 250, 28
SIZE = ROW_BYTES * PER_FILE
CHOSEN = replace(
    SETTINGS, target_bytes=SIZE, row_group_bytes=SIZE, open_bytes=0, rho=Rho(1.0, "measured")
)


def _steps(columns: list[int]) -> list[Step]:
    random, steps = np.random.default_rng(3), []
    for day, column in enumerate(columns):
        most = {PART: 99_000, KEY: ROWS * (day + 1) - 10}[column]
        asked = workload_of_fragments(
            range_query(100 * day + n, column, low, low + most // 100, event_ms=day * DAY + n)
            for n, low in enumerate(random.integers(0, most, 12).tolist())
        ).shapes
        rows = arriving_rows(random, ROWS, first=day * ROWS)
        steps.append(arriving(rows, PER_FILE, asked, day * DAY + DAY // 2))
    return steps


def _played(policy: Policy, columns: list[int]) -> Replay:
    return replay(empty_table(SCHEMA), _steps(columns), policy, CHOSEN)


def _free(columns: list[int], *, before: bool) -> Replay:
    steps = _steps(columns)
    return sorted_for_free(empty_table(SCHEMA), steps, CHOSEN, [PART, KEY], before=before)


def test_free_sorts_are_bounds_of_what_a_sort_of_all_can_reach() -> None:
    columns = [PART] * DAYS
    before, after = _free(columns, before=True), _free(columns, before=False)
    whole = _played(sort_everything(PART), columns)
    assert before.read.sum() < after.read.sum()
    assert after.read == pytest.approx(whole.read, rel=0.02)
    assert not before.rewritten.any() and not before.rewritten_bytes.any()
    assert before.untouched == pytest.approx(whole.untouched)


def test_an_oracle_keeps_the_order_of_arrival_where_no_sort_is_better() -> None:
    run = _free([KEY] * 3, before=True)
    assert run.read == pytest.approx(run.untouched)


def test_a_sort_of_each_period_is_by_the_column_of_its_queries() -> None:
    columns = [PART] * 3 + [KEY] * 4
    run = _played(rebuild_each(3 * DAY, [PART, KEY]), columns)
    assert np.flatnonzero(run.rewritten).tolist() == [0, 3, 6]
    assert run.read[2] < 0.8 * run.untouched[2]
    assert run.read[6] > 1.5 * run.untouched[6]  # the tie of a day each was for parts
    assert run.table.files[-1].ours


def test_the_deepest_files_are_sorted_first_and_within_the_budget() -> None:
    files = arrived(np.random.default_rng(0), rows=ROWS, rows_per_file=PER_FILE).file_table()
    every = np.arange(len(files))
    (together,) = deepest(files, every, PART)
    assert together.tolist() == every.tolist()
    assert deepest(files, every, KEY) == []  # no two files hold one key
    bytes_of_batch = 3.0 * WIDTH * PER_FILE
    run = _played(depth_driven(PART, bytes_of_batch), [PART] * DAYS)
    assert run.rewritten.any()
    spent = np.cumsum(run.rewritten_bytes)
    assert (spent <= bytes_of_batch * np.arange(1, DAYS + 1)).all()
    assert run.read[-1] < run.untouched[-1]


def test_rows_that_arrive_after_a_rewrite_are_in_the_same_files_as_in_the_twin() -> None:
    """Else they would count as files that rewrites replaced, and nothing be known of the twin."""
    steps = _steps([PART] * 4)
    running = Running(empty_table(SCHEMA), sort_everything(PART), CHOSEN)
    for step in steps[:3]:
        running.advance(step)
    assert steps[3].arrive is not None
    twin, table = (steps[3].arrive(one) for one in (running.twin, running.table))
    new = {file.path for file in table.files if not file.ours}
    assert len(new) == ROWS // PER_FILE
    assert new <= {file.path for file in twin.files}


def test_a_replay_that_was_kept_goes_on_as_if_it_had_not_been_ended() -> None:
    steps, policy = _steps([PART, KEY] * 2), sort_everything(PART)
    running = Running(empty_table(SCHEMA), policy, CHOSEN)
    for step in steps:
        kept = pickle.loads(pickle.dumps(running))
        running = kept.resumed(policy)
        running.advance(step)
    assert running.steps == len(steps)
    whole = replay(empty_table(SCHEMA), steps, policy, CHOSEN)
    for name in ("read", "rewritten", "untouched"):
        assert getattr(running.costs(), name).tolist() == getattr(whole, name).tolist()
