"""Judges a recommended tree of cuts by queries that it was not grown for (`qdtree.halves`), as a
plan does. Keys are cut at no literal: what they promise holds for the next queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from reconciler.advisor.pto.present import present_readings
from reconciler.advisor.pto.space import UNSORTED, CandidateLayout, Label, Space
from reconciler.advisor.pto.trees import tree_number
from reconciler.advisor.qdtree.halves import Half, halves
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import TableView
from reconciler.table.filetable import Bool

Part = tuple[Space, CandidateLayout]
"""Some of the queries, and the layout that they read."""


def by_other_queries(
    space: Space, label: Label, view: TableView, seed: int, widenings: Sequence[float]
) -> list[Label]:
    """Return the label in each widening, a tree's with what each query of the horizon reads of a
    tree that was grown without it. The recorded window is what the log reads of the tree itself.

    Where the other half gives no tree, a query reads rows in order of arrival.
    """
    candidate = label.candidate
    parts, found = _parts(space, candidate, view, seed), list[Label]()
    for width in widenings:
        own = label if width == 1.0 else space.label([candidate], widening=width)[0]
        each = [one.label([it], widening=width)[0] for one, it in parts]
        found.append(_together(own, each) if each else own)
    return found


def _parts(space: Space, candidate: CandidateLayout, view: TableView, seed: int) -> list[Part]:
    """Return the halves of the queries with the tree that each reads, and the other queries with
    the tree itself; nothing where all read it."""
    tree = space.trees.get(candidate.ordering)
    found = () if tree is None else halves(space.demands, seed)
    if tree is None or not found:
        return []
    own = [half.own for half in found]
    rest = tuple(~np.logical_or.reduce(mine) for mine in zip(*own, strict=True))
    parts = [(_asking(space, rest, view), candidate)] if any(map(np.any, rest)) else []
    for half in found:
        number = _grown_without(space, half, candidate, tree.least_rows, seed)
        ordering = UNSORTED if number is None else number
        parts.append((_asking(space, half.own, view), replace(candidate, ordering=ordering)))
    return parts


def _grown_without(
    space: Space, half: Half, candidate: CandidateLayout, rows: int, seed: int
) -> int | None:
    others = replace(space, demands=half.others(space.demands))
    return tree_number(others, candidate.sizes.target_bytes, rows, seed, climbs=False)


def _asking(space: Space, chosen: Sequence[Bool], view: TableView) -> Space:
    """Return the space where nobody asks the other queries."""
    demands = tuple(_of(one, mine) for one, mine in zip(space.demands, chosen, strict=True))
    return replace(space, demands=demands, present=present_readings(view, demands))


def _of(demand: Shape, chosen: Bool) -> Shape:
    weight, executions = (np.where(chosen, one, 0.0) for one in (demand.weight, demand.executions))
    return replace(demand, weight=weight, executions=executions)


def _together(own: Label, labels: Sequence[Label]) -> Label:
    """Return the label of all queries, of which some read each of the layouts over the horizon."""
    return replace(
        own,
        reading=sum(one.reading for one in labels),
        ahead=np.sum([one.ahead for one in labels], axis=0),
        opened_ahead=sum(one.opened_ahead for one in labels),
        rows=sum(one.rows for one in labels),
    )
