"""Improves a tree by growing subtrees again, a counted number of times.

What a subtree reads does not depend on the rest of the tree, so a better one is better for the
whole. Nodes are drawn with a probability that falls with the root of their rows, their first cut in
proportion to a power of its gain.
"""

from __future__ import annotations

import numpy as np

from reconciler.advisor.qdtree.greedy import EXACT, Growth, Node, gains, grow
from reconciler.advisor.qdtree.problem import Problem
from reconciler.table.filetable import Float64

CREDITS = 0.0, 0.1, 0.5, 1.0
"""Credits of boxes with which greedy trees are grown; the best one is kept."""
POWERS = 0.0, 1.0, 3.0
"""Of a cut's gain, one of which its probability is in proportion to."""
NOISE = 0.5
"""Of the gains of every other attempt (`Growth.noise`)."""


def best_greedy(problem: Problem, root: Node, least: float) -> Node:
    """Return the best of the greedy trees of all credits."""
    credits = CREDITS if problem.disjunctive else CREDITS[:1]
    trees = [grow(problem, root, Growth(least, credit)) for credit in credits]
    return min(trees, key=lambda tree: tree.cost)


def climbed(problem: Problem, root: Node, least: float, steps: int, seed: int) -> Node:
    """Return the tree after `steps` attempts to grow a subtree better; the tree itself is changed.

    The same arguments give the same tree.
    """
    random = np.random.default_rng(seed)
    nodes, parents, odds = _indexed(root, least)
    for _ in range(steps if nodes else 0):
        node = nodes[int(random.choice(len(nodes), p=odds))]
        made = _another(problem, node, least, random)
        if made is None or made.cost >= node.cost * (1.0 - EXACT):
            continue
        gained = node.cost - made.cost
        node.cut, node.children, node.cost = made.cut, made.children, made.cost
        above = parents.get(id(node))
        while above is not None:
            above.cost -= gained
            above = parents.get(id(above))
        nodes, parents, odds = _indexed(root, least)
    return root


def _another(
    problem: Problem, node: Node, least: float, random: np.random.Generator
) -> Node | None:
    """Return another tree of a node's rows, None where it cannot be cut."""
    credit = float(random.choice(CREDITS)) if problem.disjunctive else 0.0
    found = gains(problem, node, Growth(least, credit))
    if found is None:
        return None
    allowed = np.flatnonzero(found.allowed)
    gain = np.maximum(found.gain[allowed], 0.0)
    gain = gain / max(float(gain.max()), 1e-300) + EXACT
    odds = gain ** float(random.choice(POWERS))
    first = int(random.choice(allowed, p=odds / odds.sum()))
    growth = Growth(least, credit, float(random.choice((0.0, NOISE))))
    return grow(problem, node, growth, random, first)


def _indexed(root: Node, least: float) -> tuple[list[Node], dict[int, Node], Float64]:
    """Return the nodes that can be cut, the parent of each by its identity, and the probabilities
    to be drawn."""
    parents, nodes = {}, [root] if root.weight >= 2.0 * least else []
    for node in root.inner():
        for child in node.children:
            parents[id(child)] = node
            if child.weight >= 2.0 * least:
                nodes.append(child)
    odds = 1.0 / np.sqrt(np.array([len(node.rows) for node in nodes], dtype=np.float64))
    return nodes, parents, odds / odds.sum()
