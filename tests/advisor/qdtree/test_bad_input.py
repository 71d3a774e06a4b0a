"""Queries and rows that no tree serves well: bounded work, a tree that holds, or none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reconciler.advisor.qdtree.building import tree_of_nodes
from reconciler.advisor.qdtree.climbing import best_greedy, climbed
from reconciler.advisor.qdtree.conjuncts import boxes_of
from reconciler.advisor.qdtree.greedy import root_of
from reconciler.advisor.qdtree.problem import MOST_CUTS, Problem, problem_of
from reconciler.plan.ordering import by_tree
from reconciler.queries.predicate import Comparison, Ref
from reconciler.queries.shape import Shape
from reconciler.table.cut_tree import leaves_of_ranks
from tests.advisor.qdtree.worlds import demand_of, pool_of


def _problem(columns: dict[int, np.ndarray], demands: list[Shape], nulls: Any = None) -> Problem:
    rows = len(next(iter(columns.values())))
    pool = pool_of(columns, nulls or {}, np.ones(rows))
    boxes = boxes_of(pool, demands, [demand.executions for demand in demands])
    return problem_of(boxes, pool.weight)


def _below(field: int, values: np.ndarray, executions: np.ndarray | None = None) -> Shape:
    each = np.ones(len(values)) if executions is None else executions
    return demand_of(Comparison(Ref(field), "<", 0), (values,), each)


def test_of_very_many_cuts_the_heaviest_are_candidates() -> None:
    random = np.random.default_rng(1)
    columns = {field: random.permutation(20_000) for field in (1, 2)}
    literals = random.permutation(20_000)[:5_000]
    heavy = literals[:100]
    weight = np.where(np.isin(literals, heavy), 50.0, 1.0)
    demands = [
        *(_below(1, np.roll(literals, n) % 20_000 + n) for n in range(10)),
        _below(2, literals, weight), *(_below(2, literals, weight) for _ in range(9)),
    ]  # fmt: skip
    assert sum(len(demand) for demand in demands) == 100_000
    problem = _problem(columns, demands)
    assert sum(len(places) for places in problem.places) <= MOST_CUTS
    assert all(len(places) == MOST_CUTS // 2 for places in problem.places)
    values = problem.boxes.axes[1].values[problem.places[1] - 1]
    assert np.isin(heavy[(heavy > 0) & (heavy < 19_999)], values).all()
    root = best_greedy(problem, root_of(problem), 500.0)
    assert root.children and all(leaf.weight >= 500.0 for leaf in root.leaves())
    assert root.cost < problem.total


def test_more_cuts_than_rows_leave_leaves_of_rows() -> None:
    values = np.arange(7)
    demand = _below(1, np.repeat(np.arange(-50.0, 50.0, 0.5), 2))
    problem = _problem({1: values.astype(float)}, [demand])
    assert len(problem.places[0]) == 6, "cuts that part the rows alike are one"
    root = best_greedy(problem, root_of(problem), 1.0)
    assert sorted(leaf.rows.tolist() for leaf in root.leaves()) == [[n] for n in range(7)]


@pytest.mark.parametrize("value", [5, 5.0, b"x"])
def test_one_distinct_value_is_not_cut(value: Any) -> None:
    demands = [_below(1, np.array([value, value]))]
    problem = _problem({1: np.array([value] * 50)}, demands)
    root = best_greedy(problem, root_of(problem), 1.0)
    assert not root.children and len(list(root.leaves())) == 1


def test_one_distinct_value_beside_null_is_parted_from_it() -> None:
    null = np.arange(50) < 20
    problem = _problem({1: np.full(50, 5)}, [_below(1, np.array([6]))], {1: null})
    root = best_greedy(problem, root_of(problem), 1.0)
    first, second = root.leaves()
    assert null[first.rows].all() and not null[second.rows].any()


def test_literals_beyond_the_rows_are_no_cuts() -> None:
    demands = [_below(1, np.array([-5, 0, 100, 1 << 40]))]
    problem = _problem({1: np.arange(100)}, demands)
    assert len(problem.places[0]) == 0
    assert not best_greedy(problem, root_of(problem), 1.0).children


def test_without_steps_the_tree_to_start_from_comes_back() -> None:
    problem = _problem({1: np.arange(100)}, [_below(1, np.array([20, 60]))])
    start = best_greedy(problem, root_of(problem), 5.0)
    assert climbed(problem, start, 5.0, 0, 0).cost == start.cost


def test_rows_that_the_sample_misses_lie_in_the_leaf_that_the_cuts_name() -> None:
    """The sample has no row between 40 and 60, NULL or NaN; the table has."""
    sample = np.concatenate((np.arange(0, 40), np.arange(60, 100))).astype(float)
    demands = [_below(1, np.array([20.0, 45.0, 55.0, 80.0]))]
    problem = _problem({1: sample}, demands)
    root = best_greedy(problem, root_of(problem), 5.0)
    tree = tree_of_nodes(problem, root)
    ends = [cut.value for cut in tree.cuts]
    assert len(ends) == 3 and tree.leaves == 4
    assert {column.field_id for column in by_tree(tree).key} == {1}
    values = np.arange(0.0, 100.0)
    places = np.concatenate((np.arange(100), [-1, 100]))  # then NULL and NaN
    leaf = leaves_of_ranks(tree, {1: (places, values)}, len(places))
    expected = [sum(value >= end for end in ends) for value in values.tolist()]
    assert leaf.tolist() == [*expected, 0, 3]
