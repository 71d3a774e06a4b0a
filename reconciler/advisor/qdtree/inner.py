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
    columns = _columns(problem, leaf)
    if not columns:
        return best
    places = np.stack([problem.boxes.axes[number].places.take(leaf.rows) for number in columns])
    orders = leaf.rows[np.argsort(places, axis=1, kind="stable")]
    for number, cost in zip(columns, _costs(problem, orders, begins, leaf.live), strict=True):
        if cost < best.cost * (1.0 - EXACT):
            best = Sorting(problem.boxes.columns[number], cost)
    return best


def _costs(problem: Problem, orders: Int64, begins: Int64, live: Int64) -> list[float]:
    """Return what the queries read of parts of the rows in each order: rows x cost. orders:
    int64[orders, rows]; begins: of the parts."""
    count, rows = orders.shape
    starts = (np.arange(count)[:, None] * rows + begins).reshape(-1)
    alive = problem.meets(orders.reshape(-1), starts, live)
    query = problem.query[live]
    if problem.disjunctive:
        first = np.flatnonzero(np.diff(query, prepend=-1))
        alive, query = np.logical_or.reduceat(alive, first, axis=1), query[first]
    cost, weight = problem.cost.take(query), problem.weight.take(orders)
    held, parts = np.add.reduceat(weight, begins, axis=1), len(begins)
    return [
        float(held[number] @ (alive[number * parts : (number + 1) * parts] @ cost))
        for number in range(count)
    ]


def _columns(problem: Problem, leaf: Node) -> list[int]:
    """Return the columns whose range in the leaf is cut by its queries, those of the most cost
    first."""
    codes, live = problem.columns[0].take(leaf.rows, axis=1), leaf.live
    low, high = problem.low.take(live, axis=0), problem.high.take(live, axis=0)
    inside = (low > codes.min(axis=1)) | (high < codes.max(axis=1))
    cost = problem.cost.take(problem.query.take(live)) @ inside
    bounded = np.asarray(problem.boxes.columns) > 0  # row groups have no bounds of pairs
    cost = np.where(bounded, cost, 0.0)
    order = np.argsort(-cost, kind="stable")[:MOST_COLUMNS]
    return [int(number) for number in order if cost[number] > 0.0]
