"""A second tree beside a layout that is given: for the queries that the layout serves worst (Yang
et al., "Qd-tree", section 6.3).

Each query reads the copy of the rows that is better for it. The paper changes the greedy criterion
by that choice; here the queries are assigned to the second tree, the tree is grown for these alone,
and the queries are assigned again, as long as all together read less. What is read never rises, so
that this ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from reconciler.advisor.qdtree.climbing import best_greedy, climbed
from reconciler.advisor.qdtree.greedy import EXACT, Node, root_of
from reconciler.advisor.qdtree.problem import Problem
from reconciler.table.filetable import Bool, Float64

STARTS = 0.25, 0.5, 1.0
"""Shares of what is read by the queries that are assigned to the second tree at first, the worst
served queries first."""
ROUNDS = 6
"""Most assignments from one start."""


@dataclass(frozen=True, slots=True)
class SecondTree:
    """A tree beside a first layout."""

    root: Node
    """The tree."""
    read: Float64
    """float64[queries]: what each query reads of the copy in which it reads less."""
    assigned: Bool
    """bool[queries]: which read the second one."""

    @property
    def total(self) -> float:
        return float(self.read.sum())


def second_tree(
    problem: Problem, first: Float64, least: float, steps: int = 0, seed: int = 0
) -> SecondTree | None:
    """Return the tree that serves the queries best beside the first layout; None where none helps.

    first: what each query reads there, float64[queries], in the units of `Problem.total`. least:
    rows of a leaf. steps: attempts to improve the tree.
    """
    found = [_from(problem, first, least, chosen) for chosen in _starts(problem, first)]
    best = min((one for one in found if one is not None), key=lambda one: one.total, default=None)
    if best is None or not steps:
        return best
    part = _only(problem, best.assigned)
    better = _beside(problem, first, climbed(part, best.root, least, steps, seed))
    return better if better.total < best.total else best


def _starts(problem: Problem, first: Float64) -> list[Bool]:
    """Return which queries are assigned at first: those of which the greatest share of rows is
    read, until they read some share of all."""
    worst = np.argsort(-first / np.maximum(problem.cost, 1e-300), kind="stable")
    so_far = np.cumsum(first[worst])
    found = []
    for share in STARTS:
        count = int(np.searchsorted(so_far, share * so_far[-1] * (1.0 - EXACT))) + 1
        chosen = np.zeros(len(first), dtype=np.bool_)
        chosen[worst[:count]] = True
        found.append(chosen)
    return found


def _from(problem: Problem, first: Float64, least: float, chosen: Bool) -> SecondTree | None:
    best: SecondTree | None = None
    for _ in range(ROUNDS):
        part = _only(problem, chosen)
        made = _beside(problem, first, best_greedy(part, root_of(part), least))
        before = float(first.sum()) if best is None else best.total
        if not made.root.children or made.total >= before * (1.0 - EXACT):
            break
        best, same = made, bool((made.assigned == chosen).all())
        chosen = made.assigned
        if same:
            break
    return best


def _only(problem: Problem, chosen: Bool) -> Problem:
    """Return the problem in which other queries cost nothing."""
    weight = np.where(chosen, problem.boxes.weight, 0.0)
    return replace(problem, boxes=replace(problem.boxes, weight=weight))


def _beside(problem: Problem, first: Float64, root: Node) -> SecondTree:
    read = reads(problem, root)
    return SecondTree(root, np.minimum(first, read), read < first)


def reads(problem: Problem, root: Node) -> Float64:
    """Return what each query reads of a tree's leaves, rows x cost, float64[queries]."""
    rows, boxes = np.zeros(len(problem.cost)), np.arange(len(problem.query))
    for leaf in root.leaves():
        rows[np.unique(problem.query[problem.live(leaf.rows, boxes)])] += leaf.weight
    return rows * problem.cost
