"""Woodblock makes legal cuts only, is rewarded by what bounds let queries skip, never returns a
worse tree than it started from, and finds the same one however often it is interrupted."""

import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from reconciler.advisor.qdtree.building import better
from reconciler.advisor.qdtree.climbing import best_greedy, climbed
from reconciler.advisor.qdtree.codes import codes_of, planted
from reconciler.advisor.qdtree.conjuncts import boxes_of
from reconciler.advisor.qdtree.greedy import legal, root_of
from reconciler.advisor.qdtree.problem import problem_of
from reconciler.advisor.qdtree.woodblock import ROUND, Training, _Agent, trained
from reconciler.queries.predicate import Comparison, Or, Ref
from tests.advisor.qdtree.worlds import demand_of, pool_of, random_world, read_share

LEAST = 20.0


def problem(columns, nulls, weight, demands):
    pool = pool_of(columns, nulls, weight)
    return problem_of(boxes_of(pool, demands, [one.executions for one in demands]), weight)


def training(world, episodes, seed=0, steps=0, least=LEAST):
    made = problem(*world)
    start = climbed(made, best_greedy(made, root_of(made), least), least, steps, seed)
    return Training(made, least, start, episodes, seed)


pytestmark = pytest.mark.usefixtures("small_networks")


@pytest.mark.parametrize("seed", range(2))
def test_the_result_is_never_worse_and_reads_what_bounds_of_its_leaves_read(seed, extra):
    world = random_world(seed, rows=1_000)
    given = training(world, 2 * ROUND, seed)
    found = trained(given)
    assert found.cost <= given.start.cost
    leaves = [leaf.rows for leaf in found.leaves()]
    assert np.array_equal(np.sort(np.concatenate(leaves)), np.arange(len(world[2])))
    assert found.cost / given.problem.total == pytest.approx(
        read_share(*world[:3], leaves, world[3]), rel=1e-9
    )
    assert better(given, codes_of(found)).cost == pytest.approx(found.cost, rel=1e-12)


def test_it_finds_better_trees_than_the_greedy_ones(extra):
    gained = [
        (given := training(random_world(seed, rows=1_000), 2 * ROUND, seed)).start.cost
        - trained(given).cost
        for seed in (0, 1)
    ]
    assert max(gained) > 0.0


@pytest.mark.parametrize("seed", range(2))
def test_every_cut_of_an_episode_is_legal_and_its_reward_is_the_share_that_is_skipped(seed, extra):
    world = random_world(seed + 10, rows=600)
    given = training(world, ROUND, seed)
    made, agent = given.problem, _Agent.new(given, given.start)
    tree, steps = agent._grown(root_of(made), np.random.default_rng(seed))
    nodes, done = [root_of(made)], 0
    while nodes:  # level by level, as steps are
        level = []
        for node in nodes:
            allowed = legal(made, node, LEAST) if node.own > 0.0 else None
            if allowed is None:
                continue
            assert (
                np.array_equal(steps.legal[done][: len(allowed)], allowed)
                and allowed[steps.cut[done]]
            )
            low = made.code[node.rows, made.column[steps.cut[done]]] <= steps.cut[done]
            parts = [node.rows[low], node.rows[~low]]
            assert all(world[2][rows].sum() >= LEAST for rows in parts)
            level += [planted(made, replace_rows(made, rows), (-1,), LEAST) for rows in parts]
            done += 1
        nodes = level
    assert done == len(steps)
    whole = 1.0 - read_share(*world[:3], [leaf.rows for leaf in tree.leaves()], world[3])
    assert steps.reward[0] == pytest.approx(whole, abs=1e-6)
    assert ((steps.reward >= 0.0) & (steps.reward <= 1.0)).all()


def replace_rows(made, rows):
    from reconciler.advisor.qdtree.greedy import node_of

    return node_of(made, rows, np.arange(len(made.query)))


def test_the_same_inputs_give_the_same_tree_and_an_interrupted_search_too(extra):
    world, kept = random_world(3, rows=800), []
    whole = trained(training(world, 2 * ROUND + 5), keep=kept.append)
    assert [one.rounds for one in kept] == [1, 2]
    assert codes_of(trained(training(world, 2 * ROUND + 5))) == codes_of(whole)
    for progress in kept:
        assert codes_of(trained(training(world, 2 * ROUND + 5), progress)) == codes_of(whole)
    fewer: list = []
    trained(training(world, ROUND), keep=fewer.append)  # a search for more goes on from it
    assert codes_of(trained(training(world, 2 * ROUND + 5), fewer[-1])) == codes_of(whole)


def test_progress_of_another_search_or_of_other_networks_is_not_used(extra):
    world, kept = random_world(4, rows=600), []
    given = training(world, ROUND + 3)
    whole = codes_of(trained(given, keep=kept.append))
    other = [
        replace(kept[0], name="other"), replace(kept[0], best=(5, -1)),
        replace(kept[0], best=(10**9, -1, -1)), replace(kept[0], optimiser=kept[0].optimiser[1:]),
        replace(kept[0], weights={**kept[0].weights, "policy": np.zeros((2, 2), np.float32)}),
        replace(kept[0], rounds=9),
    ]  # fmt: skip
    for progress in other:
        assert codes_of(trained(given, progress)) == whole


def test_a_later_tree_is_never_worse_while_a_search_goes_on(extra):
    world, costs = random_world(6, rows=800), []
    given = training(world, 3 * ROUND)

    def keep(progress):
        tree = planted(given.problem, root_of(given.problem), progress.best, LEAST)
        costs.append(tree.cost)

    trained(given, keep=keep)
    assert all(after <= before for before, after in pairwise([given.start.cost, *costs]))


def test_zero_episodes_return_the_tree_to_start_from_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    given = training(random_world(1), 0)
    assert codes_of(trained(given)) == codes_of(given.start)


def test_nothing_to_cut_returns_one_leaf_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    one = np.ones(1)
    small = {1: np.arange(10)}, {}, np.ones(10), [demand_of(Comparison(Ref(1), "<", 0),
                                                            (np.array([5]),), one)]  # fmt: skip
    assert codes_of(trained(training(small, ROUND))) == (-1,)  # fewer rows than two leaves


def test_without_the_extra_a_search_names_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ModuleNotFoundError) as raised:
        trained(training(random_world(1), ROUND))
    assert raised.value.name == "jax"


def test_one_cut_is_made(extra):
    one = np.ones(1)
    world = {1: np.arange(100)}, {}, np.ones(100), [demand_of(Comparison(Ref(1), "<", 0),
                                                              (np.array([50]),), one)]  # fmt: skip
    made = problem(*world)
    root = root_of(made)  # not cut yet
    found = trained(Training(made, LEAST, root, ROUND))
    assert found.cost == pytest.approx(0.5 * made.total) and len(list(found.leaves())) == 2


def test_a_column_of_one_value_is_not_cut(extra):
    one = np.ones(1)
    world = {1: np.full(100, 7)}, {}, np.ones(100), [demand_of(Comparison(Ref(1), "<=", 0),
                                                               (np.array([7]),), one)]  # fmt: skip
    made = problem(*world)
    assert codes_of(trained(Training(made, LEAST, root_of(made), ROUND))) == (-1,)


def test_disjunctions_are_cut_where_no_single_cut_gains(extra):
    random = np.random.default_rng(0)
    columns = {1: random.integers(0, 10**6, 10_000), 2: random.integers(0, 10**6, 10_000)}
    one = np.ones(1)
    demands = [
        demand_of(
            Or((Comparison(Ref(1), "<", 0), Comparison(Ref(1), ">", 1))),
            (np.array([100_000]), np.array([900_000])), one,
        ),
        demand_of(Comparison(Ref(2), "<", 0), (np.array([10_000]),), one),
    ]  # fmt: skip
    made = problem(columns, {}, np.ones(10_000), demands)
    found = trained(Training(made, 50.0, root_of(made), ROUND))
    outside = ((columns[1] < 100_000) | (columns[1] > 900_000)).mean()
    selectivity = (outside + (columns[2] < 10_000).mean()) / 2
    assert found.cost / made.total <= selectivity + 0.005


@pytest.mark.parametrize("codes", [(), (-1, -1), (0,), (0, -1), (-2,), (10**6, -1, -1), (3, 3, 3)])
def test_forged_codes_give_no_tree(codes):
    given = training(random_world(2), ROUND)
    assert planted(given.problem, given.start, codes, LEAST) is None
    assert better(given, codes) is given.start


def test_the_name_changes_with_every_input():
    base = training(random_world(5), ROUND)
    made = base.problem
    others = [
        replace(base, episodes=ROUND + 1), replace(base, seed=1), replace(base, least=21.0),
        replace(base, start=root_of(made)),
        replace(base, problem=replace(made, weight=made.weight * 2.0)),
        replace(base, problem=replace(made, low=made.low + 1)),
        replace(base, problem=replace(made, null=~made.null)),
        replace(base, problem=replace(made, wants_null=~made.wants_null)),
        replace(base, problem=replace(made, code=made.code[::-1])),
    ]  # fmt: skip
    assert len({one.name for one in (base, *others)}) == 1 + len(others)
    assert training(random_world(5), ROUND).name == base.name
    assert replace(base, episodes=9).lasting == base.lasting
