"""Row groups that a rewrite chooses by its what-if, where nobody names their size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reconciler.advisor.row_groups import MOST_PER_FILE, SMALLEST
from reconciler.plan.actions.cluster import Cluster
from reconciler.plan.ordering import Lexicographic
from reconciler.table.schema import SortColumn
from tests.advisor.worlds import (
    PART,
    ROW_BYTES,
    SETTINGS,
    advise,
    apply,
    arrived,
    range_workload,
    window_cost,
    window_read,
    workload,
)

ROWS = 60_000
LARGE = replace(SETTINGS, target_bytes=ROW_BYTES * ROWS, row_group_bytes=128 << 20)
AUTO = replace(LARGE, row_group_auto=True)


def _table():
    return arrived(np.random.default_rng(1), rows=ROWS)


def _work(width, weight=1.0):
    return workload(
        range_workload(np.random.default_rng(2), PART, 60, width, 100_000, weight=weight)
    )


def test_one_sorted_file_gets_row_groups_where_queries_read_little_of_it():
    work = _work(1_000)
    named, chosen = advise(_table(), work, LARGE), advise(_table(), work, AUTO)
    size = chosen.actions[0].action.row_group_bytes
    assert named.actions == () or named.actions[0].action.row_group_bytes == 128 << 20
    assert SMALLEST <= size < ROW_BYTES * ROWS and size & (size - 1) == 0
    after = apply(_table(), chosen, AUTO)
    assert len(after.file_table()) == 1
    assert 1 < len(after.row_groups().file) <= MOST_PER_FILE
    assert window_read(after, work) < 0.2 * ROW_BYTES * ROWS * 60
    assert window_read(after, work) == pytest.approx(chosen.read_after.mid, rel=0.15)


def test_the_next_plan_keeps_them():
    work = _work(1_000)
    after = apply(_table(), advise(_table(), work, AUTO), AUTO)
    assert advise(after, work, AUTO).actions == ()


def test_a_declared_key_gets_them_too():
    declared = replace(AUTO, mode="Declared", ordering=Lexicographic((SortColumn(PART),)))
    (scored,) = advise(_table(), _work(1_000), declared).actions
    assert isinstance(scored.action, Cluster)
    assert scored.action.row_group_bytes < ROW_BYTES * ROWS


@pytest.mark.parametrize("width", [1_000, 20_000, 60_000])
def test_reading_costs_at_most_as_much_as_with_the_table_s_own_size(width):
    work = _work(width, weight=5.0)
    costs = [
        window_cost(apply(_table(), advise(_table(), work, settings), settings), work, settings)
        for settings in (AUTO, LARGE)
    ]
    assert costs[0] <= 1.02 * costs[1]


def test_a_small_sample_chooses_no_size():
    advice = advise(_table(), _work(1_000), AUTO, rows_per_file=4)
    assert all(one.action.row_group_bytes == 128 << 20 for one in advice.actions)
