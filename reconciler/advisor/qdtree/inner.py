"""Chooses the column by which the rows of a leaf are sorted: the one of whose row groups its own
queries then skip most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reconciler.advisor.qdtree.greedy import EXACT, Node
from reconciler.advisor.qdtree.problem import Problem
from reconciler.table.filetable import Int64

PARTS = 4
"""Row groups that a file has at least, and that a leaf is cut into to try a column."""
MOST_COLUMNS = 4
"""Columns that are tried in a leaf: those that most of its reading depends on."""
LEAST_ROWS = 8
"""Sampled rows of a part."""


@dataclass(frozen=True, slots=True)
class Sorting:
    """How the rows of a leaf are sorted."""

    column: int
    """Field id of the column, 0 where they stay in order of arrival."""
    cost: float
    """What the leaf's queries read of its row groups then: rows x cost."""


def sorting(problem: Problem, leaf: Node) -> Sorting:
    """Return the column to sort a leaf by, 0 where no column helps."""
    parts = min(PARTS, len(leaf.rows) // LEAST_ROWS)
    best = Sorting(0, leaf.own)
    if parts < 2 or not len(leaf.live):
        return best
    begins = np.arange(parts) * len(leaf.rows) // parts
    for number in _columns(problem, leaf):
        places = problem.boxes.axes[number].places[leaf.rows]
        order = leaf.rows[np.argsort(places, kind="stable")]
        cost = _cost(problem, order, begins, leaf.live)
        if cost < best.cost * (1.0 - EXACT):
            best = Sorting(problem.boxes.columns[number], cost)
    return best


def _cost(problem: Problem, order: Int64, begins: Int64, live: Int64) -> float:
    """Return what the queries read of parts of ordered rows: rows x cost."""
    alive = problem.meets(order, begins, live)
    query = problem.query[live]
    if problem.disjunctive:
        first = np.flatnonzero(np.diff(query, prepend=-1))
        alive, query = np.logical_or.reduceat(alive, first, axis=1), query[first]
    reads = alive @ problem.cost[query]
    return float(np.add.reduceat(problem.weight[order], begins) @ reads)


def _columns(problem: Problem, leaf: Node) -> list[int]:
    """Return the columns whose range in the leaf is cut by its queries, those of the most cost
    first."""
    codes, live = problem.columns[0].take(leaf.rows, axis=1), leaf.live
    inside = (problem.low[live] > codes.min(axis=1)) | (problem.high[live] < codes.max(axis=1))
    cost = problem.cost[problem.query[live]] @ inside
    bounded = np.asarray(problem.boxes.columns) > 0  # row groups have no bounds of pairs
    cost = np.where(bounded, cost, 0.0)
    order = np.argsort(-cost, kind="stable")[:MOST_COLUMNS]
    return [int(number) for number in order if cost[number] > 0.0]
