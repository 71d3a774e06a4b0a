"""Builds a tree from the root: each node takes the cut that spares the most reading (Yang et al.,
"Qd-tree", section 4).

The gain of a cut is exact on the sample, Eq. 1: rows x queries that a node skips. Where all gains
are zero, as with disjunctions, a share of the gain of each box alone decides instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from reconciler.advisor.qdtree.problem import Problem
from reconciler.table.filetable import Bool, Float64, Int64

EXACT = 1e-9
"""Relative difference of costs that counts as none."""


@dataclass(eq=False, slots=True)
class Node:
    """A node of a tree under construction."""

    rows: Int64
    """The sampled rows in it."""
    live: Int64
    """The boxes that meet its bounds."""
    weight: float
    """Rows of the table in it."""
    own: float
    """What its queries read if it is a leaf: rows x cost."""
    cost: float = 0.0
    """What its queries read of the leaves below it."""
    cut: int = -1
    """The code at which it is cut; -1 for a leaf."""
    children: tuple[Node, ...] = field(default=())
    """Its left and its right child; () for a leaf."""

    def leaves(self) -> Iterator[Node]:
        """Yield the leaves from left to right."""
        left = [self]
        while left:
            node = left.pop()
            if node.children:
                left += reversed(node.children)
            else:
                yield node

    def inner(self) -> list[Node]:
        """Return the nodes that are cut, parents first."""
        found, left = [], [self]
        while left:
            node = left.pop()
            if node.children:
                found.append(node)
                left += reversed(node.children)
        return found


@dataclass(frozen=True, slots=True)
class Growth:
    """How a tree is grown."""

    least: float
    """Rows of the table that a leaf has at least: b."""
    credit: float = 0.0
    """Share of the gain that a box would have alone, as a query of its own."""
    noise: float = 0.0
    """Standard deviation of the logarithm of a factor on each gain."""


@dataclass(frozen=True, slots=True)
class Gains:
    """What each cut of a node brings. Arrays have shape [codes]."""

    gain: Float64
    """Rows x cost spared; -inf where a cut is not allowed."""
    allowed: Bool
    """Whether both sides have the least rows."""


def node_of(problem: Problem, rows: Int64, boxes: Int64) -> Node:
    return _leaf(problem, rows, problem.live(rows, boxes))


def _leaf(problem: Problem, rows: Int64, live: Int64) -> Node:
    weight = float(problem.weight.take(rows).sum())
    own = weight * problem.cost_of(live)
    return Node(rows, live, weight, own, own)


def root_of(problem: Problem) -> Node:
    """Return the node of all rows, which drops boxes that lie beyond the data."""
    return node_of(problem, np.arange(len(problem.weight)), np.arange(len(problem.query)))


def gains(problem: Problem, node: Node, growth: Growth) -> Gains | None:
    """Return what each cut of a node brings (section 4: n_left x skipped left + n_right x skipped
    right - n x skipped); None if no cut is allowed."""
    left = _up_to(problem, problem.held(node.rows))
    right = node.weight - left
    allowed = _allowed(problem, left, right, growth.least)
    if not allowed.any():
        return None
    live = node.live
    query = problem.query.take(live)
    low, high = problem.low.take(live, axis=0), problem.high.take(live, axis=0)
    cost = problem.cost.take(query)
    if growth.credit and problem.disjunctive:
        alone = _spared(problem, left, right, low, high, cost / problem.boxes_of[query])
    if problem.disjunctive and len(query):
        begins = np.flatnonzero(np.diff(query, prepend=-1))
        cost, low = cost[begins], np.minimum.reduceat(low, begins)
        high = np.maximum.reduceat(high, begins)
    gain = _spared(problem, left, right, low, high, cost)
    if growth.credit and problem.disjunctive:
        gain = gain + growth.credit * alone
    return Gains(np.where(allowed, gain, -np.inf), allowed)


def legal(problem: Problem, node: Node, least: float) -> Bool | None:
    """Return which cuts leave the least rows on both sides, bool[codes]; None if no cut does."""
    left = _up_to(problem, problem.held(node.rows))
    allowed = _allowed(problem, left, node.weight - left, least)
    return allowed if allowed.any() else None


def _allowed(problem: Problem, left: Float64, right: Float64, least: float) -> Bool:
    allowed: Bool = (left >= least) & (right >= least) & ~problem.last
    return allowed


def _spared(
    problem: Problem, left: Float64, right: Float64, low: Int64, high: Int64, cost: Float64
) -> Float64:
    """Return rows x cost that queries with these ranges skip on both sides of each cut."""
    count, columns = len(left), low.shape[1] if low.ndim == 2 else 0
    each = np.repeat(cost, columns)
    begun = _up_to(problem, np.bincount(low.ravel(), each, count))
    ended = _up_to(problem, np.bincount(high.ravel(), each, count))
    spared: Float64 = left * (cost.sum() - begun) + right * ended
    return spared


def _up_to(problem: Problem, values: npt.NDArray[Any]) -> Float64:
    """Return the sums from the first code of each column up to each code."""
    total = np.zeros(len(values) + 1)
    np.add.accumulate(values, out=total[1:])  # `cumsum` takes three times as long into an array
    found: Float64 = total[1:] - total.take(problem.first)
    return found


def split(problem: Problem, node: Node, cut: int) -> tuple[Node, Node]:
    """Return the children of a node at a cut."""
    column = int(problem.column[cut])
    goes_left = problem.columns[0][column].take(node.rows) <= cut
    left, right = node.rows[goes_left], node.rows[~goes_left]
    met = problem.meets(np.concatenate((left, right)), np.array([0, len(left)]), node.live)
    return (
        _leaf(problem, left, node.live[met[0]]),
        _leaf(problem, right, node.live[met[1]]),
    )


def grow(
    problem: Problem,
    node: Node,
    growth: Growth,
    random: np.random.Generator | None = None,
    first: int | None = None,
) -> Node:
    """Return the greedy tree of a node's rows.

    random: of the noise. first: the cut of the root, if that is given.
    """
    root = Node(node.rows, node.live, node.weight, node.own, node.own)
    left = [root]
    while left:
        at = left.pop()
        chosen = first if at is root and first is not None else _best(problem, at, growth, random)
        if chosen is None:
            continue
        at.cut, at.children = chosen, split(problem, at, chosen)
        left += at.children
    settle(root)
    return root


def _best(
    problem: Problem, node: Node, growth: Growth, random: np.random.Generator | None
) -> int | None:
    if node.weight < 2.0 * growth.least or not len(node.live):
        return None
    found = gains(problem, node, growth)
    if found is None:
        return None
    gain = found.gain
    if growth.noise and random is not None:
        factor = np.exp(growth.noise * random.standard_normal(len(gain)))
        gain = np.where(gain > 0.0, gain * factor, gain)
    best = int(np.argmax(gain))
    return best if gain[best] > EXACT * max(node.own, 1.0) else None


def settle(root: Node) -> None:
    """Sum costs from the leaves up, and undo cuts that bring nothing."""
    for node in reversed(root.inner()):
        below = sum(child.cost for child in node.children)
        if below >= node.own * (1.0 - EXACT):
            node.cut, node.children, node.cost = -1, (), node.own
        else:
            node.cost = below
