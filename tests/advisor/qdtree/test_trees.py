"""A tree reads of the sample what it claims, however it is built, written down and read again."""

import numpy as np
import pytest

from reconciler.advisor.qdtree.building import tree_of_nodes
from reconciler.advisor.qdtree.climbing import _another, best_greedy, climbed
from reconciler.advisor.qdtree.conjuncts import boxes_of
from reconciler.advisor.qdtree.greedy import EXACT, root_of
from reconciler.advisor.qdtree.problem import problem_of
from reconciler.plan.ordering import by_tree
from reconciler.table.cut_tree import tree_of
from tests.advisor.qdtree.worlds import pool_of, random_world, read_share


def _built(world, least=25.0, steps=0, seed=0):
    columns, nulls, weight, demands = world
    pool = pool_of(columns, nulls, weight)
    boxes = boxes_of(pool, demands, [demand.executions for demand in demands])
    problem = problem_of(boxes, weight)
    root = best_greedy(problem, root_of(problem), least)
    return pool, problem, climbed(problem, root, least, steps, seed)


@pytest.mark.parametrize("seed", range(40))
def test_the_share_of_a_tree_is_what_bounds_of_its_leaves_read(seed):
    world = random_world(seed)
    _, problem, root = _built(world, steps=seed % 3 * 10, seed=seed)
    leaves = [leaf.rows for leaf in root.leaves()]
    assert np.array_equal(np.sort(np.concatenate(leaves)), np.arange(len(world[2])))
    assert all(world[2][rows].sum() >= 25.0 for rows in leaves)
    expected = read_share(*world[:3], leaves, world[3])
    assert root.cost / problem.total == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_a_tree_routes_the_rows_that_it_was_built_from_to_its_leaves(seed):
    pool, problem, root = _built(random_world(seed))
    if not root.children:
        pytest.skip("no cut helps")
    tree = tree_of_nodes(problem, root)
    assert tree_of(tree.text) == tree and tree_of(tree.text).name == tree.name
    ordering = by_tree(tree)
    key = [pool.columns[column.field_id] for column in ordering.key]
    leaf = ordering.leaf_of([one.sort_ranks for one in key], [one.distinct for one in key])
    expected = np.empty(len(leaf), dtype=int)
    for number, node in enumerate(root.leaves()):
        expected[node.rows] = number
    assert np.array_equal(leaf, expected)


def test_climbing_is_never_worse_and_repeatable():
    worse = 0
    for seed in range(8):
        world = random_world(seed, rows=1000)
        start, first, second = (_built(world, 20.0, steps, seed)[2].cost for steps in (0, 60, 60))
        assert first == second <= start
        worse += first < start
    assert worse >= 4


@pytest.mark.parametrize("seed", range(4))
def test_each_climb_draws_among_all_nodes_that_can_be_cut_then(seed):
    """The nodes are kept from step to step: here they are listed anew before each."""
    world, least = random_world(seed, rows=1000), 20.0
    _, problem, root = _built(world, least)
    random = np.random.default_rng(seed)
    for _ in range(60):
        parents = {id(child): node for node in root.inner() for child in node.children}
        every = [root, *(child for node in root.inner() for child in node.children)]
        nodes = [node for node in every if node.weight >= 2.0 * least]
        odds = 1.0 / np.sqrt(np.array([float(len(node.rows)) for node in nodes]))
        node = nodes[int(random.choice(len(nodes), p=odds / odds.sum()))]
        made = _another(problem, node, least, random)
        if made is not None and made.cost < node.cost * (1.0 - EXACT):
            gained, above = node.cost - made.cost, parents.get(id(node))
            node.cut, node.children, node.cost = made.cut, made.children, made.cost
            while above is not None:
                above.cost -= gained
                above = parents.get(id(above))
    kept = _built(world, least, 60, seed)[2]
    assert [node.cut for node in kept.inner()] == [node.cut for node in root.inner()]
    assert kept.cost == root.cost
