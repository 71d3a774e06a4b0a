"""Improves a tree by growing subtrees again, a counted number of times.

What a subtree reads does not depend on the rest of the tree, so a better one is better for the
whole. Nodes are drawn with a probability that falls with the root of their rows, their first cut in
proportion to a power of its gain.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    if root.weight < 2.0 * least:
        return root
    parents: dict[int, Node] = {}
    nodes = [root, *_below(root, least, parents)]
    odds = _odds(nodes)
    for _ in range(steps):
        node = nodes[_drawn(odds, random)]
        made = _another(problem, node, least, random)
        if made is None or made.cost >= node.cost * (1.0 - EXACT):
            continue
        gained, old = node.cost - made.cost, _below(node, least, {})
        node.cut, node.children, node.cost = made.cut, made.children, made.cost
        above = parents.get(id(node))
        while above is not None:
            above.cost -= gained
            above = parents.get(id(above))
        new = _below(node, least, parents)
        if old:
            at = nodes.index(old[0])
            nodes[at : at + len(old)] = new  # they are together
        elif new:
            nodes = [root, *_below(root, least, parents)]
        odds = _odds(nodes)
    return root


def _another(
    problem: Problem, node: Node, least: float, random: np.random.Generator
) -> Node | None:
    """Return another tree of a node's rows, None where it cannot be cut."""
    credit = CREDITS[random.integers(len(CREDITS))] if problem.disjunctive else 0.0
    found = gains(problem, node, Growth(least, credit))
    if found is None:
        return None
    allowed = np.flatnonzero(found.allowed)
    gain = np.maximum(found.gain[allowed], 0.0)
    gain = gain / max(float(gain.max()), 1e-300) + EXACT
    odds = gain ** POWERS[random.integers(len(POWERS))]
    first = int(allowed[_drawn(_up_to(odds), random)])
    growth = Growth(least, credit, (0.0, NOISE)[random.integers(2)])
    return grow(problem, node, growth, random, first)


def _drawn(upto: Float64, random: np.random.Generator) -> int:
    """Return a number that is drawn as likely as its probability. upto: `_up_to` them.
    `random.choice` draws likewise, and checks them each time."""
    return int(upto.searchsorted(random.random(), side="right"))


def _up_to(odds: Float64) -> Float64:
    """Return the probability of each number and all before it; odds: in proportion to it."""
    upto = (odds / odds.sum()).cumsum()
    return upto / upto[-1]


def _below(node: Node, least: float, parents: dict[int, Node]) -> list[Node]:
    """Return the nodes below one that can be cut, the children of each node together, and add the
    parent of each by its identity."""
    found, left = list[Node](), [node]
    while left:
        above = left.pop()
        # A child of fewer rows is a leaf.
        own = [child for child in above.children if child.weight >= 2.0 * least]
        for child in own:
            parents[id(child)] = above
        found += own
        left += reversed(own)
    return found


def _odds(nodes: Sequence[Node]) -> Float64:
    """Return the probability that a node or one before it is drawn."""
    held = np.fromiter((node.rows.size for node in nodes), np.float64, len(nodes))
    return _up_to(1.0 / np.sqrt(held))
