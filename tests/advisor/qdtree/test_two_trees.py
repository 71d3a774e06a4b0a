"""A second tree serves what the first layout serves badly: every query reads the better copy."""

from __future__ import annotations

import numpy as np
import pytest

from reconciler.advisor.qdtree.climbing import best_greedy
from reconciler.advisor.qdtree.conjuncts import boxes_of
from reconciler.advisor.qdtree.greedy import root_of
from reconciler.advisor.qdtree.problem import Problem, problem_of
from reconciler.advisor.qdtree.two_trees import reads, second_tree
from tests.advisor.qdtree.worlds import pool_of, random_world

LEAST = 25.0


def _problem(seed: int) -> Problem:
    columns, nulls, weight, demands = random_world(seed)
    pool = pool_of(columns, nulls, weight)
    boxes = boxes_of(pool, demands, [demand.executions for demand in demands])
    return problem_of(boxes, weight)


@pytest.mark.parametrize("seed", range(20))
def test_what_queries_read_of_a_tree_is_its_cost(seed: int) -> None:
    problem = _problem(seed)
    tree = best_greedy(problem, root_of(problem), LEAST)
    assert reads(problem, tree).sum() == pytest.approx(tree.cost, rel=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_two_trees_read_no_more_than_the_first_and_each_query_the_better(seed: int) -> None:
    problem = _problem(seed)
    first = reads(problem, best_greedy(problem, root_of(problem), LEAST))
    found = second_tree(problem, first, LEAST, steps=seed % 2 * 20, seed=seed)
    if found is None:
        return
    own = reads(problem, found.root)
    assert np.array_equal(found.read, np.minimum(first, own))
    assert found.total < first.sum()
    assert np.array_equal(found.assigned, own < first)
    assert all(leaf.weight >= LEAST for leaf in found.root.leaves())
    again = second_tree(problem, first, LEAST, steps=seed % 2 * 20, seed=seed)
    assert again is not None and again.total == found.total


def test_some_queries_gain_by_a_tree_of_their_own() -> None:
    helped = 0
    for seed in range(12):
        problem = _problem(seed)
        first = reads(problem, best_greedy(problem, root_of(problem), LEAST))
        found = second_tree(problem, first, LEAST)
        helped += found is not None and found.total < 0.95 * first.sum()
    assert helped >= 4


def test_beside_a_layout_that_reads_nothing_no_tree_helps() -> None:
    problem = _problem(1)
    assert second_tree(problem, np.zeros(len(problem.cost)), LEAST) is None
