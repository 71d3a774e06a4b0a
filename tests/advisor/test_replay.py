"""Policies replayed on the same days: what each reads and rewrites, against doing nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.replay.table import arriving, empty_table
from reconciler.queries.fragments import workload_of_fragments
from reconciler.queries.rewrite_cost import Rho
from reconciler.replay.policies.fixed import do_nothing, sort_everything
from reconciler.replay.policies.literal_wair import literal_wair
from reconciler.replay.policies.ours import ours
from reconciler.replay.run import Policy, Replay, replay
from tests.advisor.worlds import DAY, PART, ROW_BYTES, SCHEMA, SETTINGS, arriving_rows, range_query

DAYS, ROWS, PER_FILE = 8, 2_000, 250


def played(policy: Policy, rho: float = 1.0) -> Replay:
    random = np.random.default_rng(3)
    steps = []
    for day in range(DAYS):
        asked = workload_of_fragments(
            range_query(100 * day + number, PART, low, low + 900, event_ms=day * DAY + number)
            for number, low in enumerate(random.integers(0, 99_000, 20).tolist())
        ).shapes
        rows = arriving_rows(random, ROWS, first=day * ROWS)
        steps.append(arriving(rows, PER_FILE, asked, day * DAY + DAY // 2))
    size = ROW_BYTES * PER_FILE
    settings = replace(
        SETTINGS, target_bytes=size, row_group_bytes=size, open_bytes=0, rho=Rho(rho, "measured")
    )
    return replay(empty_table(SCHEMA), steps, policy, settings)


def test_doing_nothing_costs_what_the_untouched_copy_costs() -> None:
    run = played(do_nothing)
    assert run.ratio == 1.0
    assert not run.rewritten.any()


def test_sorting_everything_reads_least_and_rewrites_the_table_each_day() -> None:
    run = played(sort_everything(PART))
    width = sum((4, 8, 8, 8))
    assert run.rewritten.tolist() == [width * ROWS * (day + 1) for day in range(DAYS)]
    assert run.read[1:].sum() < 0.7 * run.untouched[1:].sum()


@pytest.mark.parametrize("policy", [ours, literal_wair()], ids=["ours", "literal"])
def test_both_forms_of_wair_save_more_than_they_cost(policy: Policy) -> None:
    run = played(policy)
    assert run.rewritten.any()
    assert run.ratio < 0.8


def test_no_policy_of_ours_rewrites_what_does_not_pay_back() -> None:
    run = played(ours, rho=10_000.0)
    assert run.ratio == 1.0


def test_a_rewrite_moves_rows_and_changes_none() -> None:
    run = played(sort_everything(PART))
    rows = np.sort(np.concatenate([file.rows for file in run.table.files]))
    assert rows.tolist() == list(range(DAYS * ROWS))
