"""WAIR's parts, one by one: utilization, the cut, the window, signatures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.advisor.wair.cut import allowance_credit, best_prefix, spending_limit
from reconciler.advisor.wair.signature import anchor, candidate_keys, cluster, dbscan, signatures
from reconciler.advisor.wair.utilization import file_savings
from reconciler.queries.demanded import demands
from reconciler.queries.read_shares import read_shares
from reconciler.queries.row_filter import matches
from reconciler.queries.table_view import table_view
from tests.advisor.worlds import (
    DAY,
    PART,
    SCHEMA,
    arrived,
    range_query,
    range_workload,
    workload,
)
from tests.examples import examples


def _single(column: int, low: int, high: int):
    (demand,) = demands(workload([range_query(0, column, low, high, event_ms=0)]), SCHEMA, DAY)
    return demand


def test_utilization_is_the_share_of_rows_that_a_query_needs_of_what_it_reads():
    random = np.random.default_rng(1)
    table = arrived(random, rows=2_000, rows_per_file=500)
    view = table_view(table.file_table(), table.row_groups(), table.sample(range(4), 500), 1 << 20)
    demand = _single(PART, 10_000, 30_000)
    rows = matches(demand.predicate, demand.literals, table.values, {})[0]
    exact = [float(rows[file.rows].mean()) for file in table.files]
    ((_, tiles),) = read_shares(view, demand)
    (tile,) = tiles
    assert (tile.used / tile.share)[0].tolist() == pytest.approx(exact, abs=0.01)


def test_savings_sum_what_was_read_in_vain_over_the_expected_executions():
    table = arrived(np.random.default_rng(1), rows=2_000, rows_per_file=500)
    view = table_view(table.file_table(), table.row_groups(), table.sample(range(4), 500), 1 << 20)
    work = workload(range_workload(np.random.default_rng(2), PART, 30, 20_000, 100_000))
    wanted = demands(work, SCHEMA, 7 * DAY)
    savings = file_savings(view, wanted)
    reading = savings.readings[0]
    vain = float(wanted[0].executions @ (reading.bytes - reading.matching))
    assert float(savings.saving.sum()) == pytest.approx(vain, rel=0.01)


@settings(max_examples=examples(60), deadline=None)
@given(
    data=st.lists(st.tuples(st.floats(0, 1e6), st.floats(1, 1e6)), min_size=1, max_size=9),
    alpha=st.sampled_from([0.5, 1.0, 2.0]),
)
def test_no_other_set_of_files_has_a_lower_cost_than_the_cut(data, alpha):
    saving = np.array([pair[0] for pair in data])
    cost = np.array([pair[1] for pair in data])
    chosen = best_prefix(saving, cost, alpha, float("inf")).chosen
    mine = alpha * cost[chosen].sum() - saving[chosen].sum()
    for mask in range(1 << len(data)):
        members = [i for i in range(len(data)) if mask >> i & 1]
        other = alpha * cost[members].sum() - saving[members].sum()
        assert mine <= other + 1e-6 * max(1.0, abs(other))


def test_limits_truncate_the_prefix_instead_of_refusing_it():
    saving, cost = np.array([90.0, 50.0, 80.0, 1.0]), np.array([10.0, 10.0, 10.0, 10.0])
    whole = best_prefix(saving, cost, 1.0, 1e9)
    assert (whole.chosen.tolist(), whole.truncated) == ([0, 2, 1], False)
    part = best_prefix(saving, cost, 1.0, 25.0)
    assert (part.chosen.tolist(), part.truncated) == ([0, 2], True)
    assert best_prefix(saving, cost, 1.0, 0.0).chosen.tolist() == []
    assert best_prefix(np.zeros(3), np.ones(3), 1.0, 1e9).chosen.tolist() == []


def test_recently_written_files_need_twice_the_saving():
    saving, cost = np.array([15.0, 15.0]), np.array([10.0, 10.0])
    assert best_prefix(saving, cost, np.array([1.0, 2.0]), 1e9).chosen.tolist() == [0]


def test_debt_and_allowance_bound_what_may_be_spent():
    assert spending_limit(30.0, 100.0, None) == 70.0
    assert spending_limit(300.0, 100.0, None) == 0.0
    credit = allowance_credit(realised=5.0, spent=20.0, per_query=10.0, queries=4.0, unit=1.0)
    assert credit == 25.0
    assert spending_limit(30.0, 100.0, credit) == 25.0


def test_a_saving_is_split_equally_over_the_predicate_columns():
    by_shape = np.array([[6.0, 0.0, 0.0], [0.0, 3.0, 0.0]])
    vectors = signatures(by_shape, [(7, 8), (8,)], [7, 8])
    assert vectors[0].tolist() == pytest.approx([2**-0.5, 2**-0.5])
    assert vectors[1].tolist() == pytest.approx([0.0, 1.0])
    assert vectors[2].tolist() == [0.0, 0.0]


def _plain_dbscan(points: np.ndarray, eps: float, min_points: int) -> list[set[int]]:
    """Textbook DBSCAN over all points; the clusters' core points."""
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    near = (1 - unit @ unit.T) <= eps
    core = near.sum(axis=1) >= min_points
    seen: set[int] = set()
    clusters = []
    for start in np.flatnonzero(core):
        if start in seen:
            continue
        stack, members = [int(start)], set()
        while stack:
            item = stack.pop()
            if item in members or not core[item]:
                continue
            members.add(item)
            stack += [int(i) for i in np.flatnonzero(near[item])]
        seen |= members
        clusters.append(members)
    return clusters


@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 1_000), eps=st.sampled_from([0.05, 0.1, 0.3]))
def test_weighted_dbscan_finds_the_clusters_of_the_repeated_points(seed, eps):
    random = np.random.default_rng(seed)
    distinct = np.abs(random.normal(size=(8, 3))) + 0.01
    counts = random.integers(1, 5, 8)
    labels = dbscan(distinct, counts.astype(float), eps, 5)
    repeated = np.repeat(np.arange(8), counts)
    expected = {
        frozenset(int(repeated[i]) for i in members)
        for members in _plain_dbscan(distinct[repeated], eps, 5)
    }
    unit = distinct / np.linalg.norm(distinct, axis=1, keepdims=True)
    core = ((1 - unit @ unit.T) <= eps) @ counts >= 5
    found = {
        frozenset(np.flatnonzero((labels == k) & core).tolist()) for k in range(labels.max() + 1)
    }
    assert found == expected


def test_files_with_different_dominant_columns_form_two_clusters():
    vectors = np.array([[1.0, 0.02]] * 20 + [[0.01, 1.0]] * 20 + [[0.99, 0.1]])
    labels = cluster(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    assert labels[:20].tolist() == [0] * 20
    assert labels[20:40].tolist() == [1] * 20
    assert labels[40] == 0


def test_anchors_name_a_single_column_or_a_blend_by_falling_contribution():
    assert anchor(np.array([0.1, 0.99, 0.0])) == (1,)
    assert anchor(np.array([0.6, 0.0, 0.7])) == (2, 0)
    keys = candidate_keys(np.array([0.6, 0.0, 0.7]))
    assert keys[0] == (2, 0)
    assert (0,) in keys
    assert (2,) in keys


def test_curves_along_the_best_three_and_more_columns_are_tried():
    keys = candidate_keys(np.array([0.5, 0.1, 0.3, 0.4, 0.2, 0.01]))
    assert [key for key in keys if len(key) > 3] == [(0, 3, 2, 4), (0, 3, 2, 4, 1)]
    assert (0, 3, 2) in keys


def test_the_order_that_files_have_is_tried_alone_though_little_is_left_to_save_by_it():
    """Where deletes are to be removed, any other key scatters what its queries find together."""
    little, none = np.array([0.0, 1.0, 0.03]), np.zeros(3)
    assert candidate_keys(little) == [(1,)]
    assert candidate_keys(little, none) == [(1,), (2,)]
    assert candidate_keys(np.array([0.0, 1.0, 0.005]), none) == [(1,)]
    served = np.array([0.4, 0.0, 0.0])
    assert candidate_keys(np.array([0.0, 1.0, 0.005]), served) == [(1,), (1, 0), (0,)]
