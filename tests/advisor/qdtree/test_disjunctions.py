"""The benchmark of disjunctions in the Qd-tree paper (Yang et al., section 4 and 5, Figure 3): no
single cut gains anything, two together nearly all."""

import numpy as np
import pytest

from reconciler.advisor.qdtree.climbing import best_greedy
from reconciler.advisor.qdtree.conjuncts import boxes_of
from reconciler.advisor.qdtree.greedy import Growth, grow, root_of
from reconciler.advisor.qdtree.problem import problem_of
from reconciler.queries.predicate import Comparison, Or, Ref
from tests.advisor.qdtree.worlds import demand_of, pool_of

CPU, DISK = 1, 2


@pytest.mark.parametrize("seed", range(3))
def test_credit_for_each_side_of_an_or_finds_cuts_that_gain_nothing_alone(seed):
    random = np.random.default_rng(seed)
    columns = {CPU: random.integers(0, 10**6, 10_000), DISK: random.integers(0, 10**6, 10_000)}
    one = np.ones(1)
    demands = [
        demand_of(
            Or((Comparison(Ref(CPU), "<", 0), Comparison(Ref(CPU), ">", 1))),
            (np.array([100_000]), np.array([900_000])), one,
        ),
        demand_of(Comparison(Ref(DISK), "<", 0), (np.array([10_000]),), one),
    ]  # fmt: skip
    pool = pool_of(columns, {}, np.ones(10_000))
    problem = problem_of(boxes_of(pool, demands, [one, one]), pool.weight)
    root = root_of(problem)
    alone = grow(problem, root, Growth(50.0)).cost / problem.total
    found = best_greedy(problem, root, 50.0).cost / problem.total
    cpu, disk = columns[CPU], columns[DISK]
    selectivity = (((cpu < 100_000) | (cpu > 900_000)).mean() + (disk < 10_000).mean()) / 2
    assert alone > 0.5
    assert found <= selectivity + 0.01
