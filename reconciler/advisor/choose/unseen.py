"""Judges a tree of cuts by queries that it was not grown for (`qdtree.halves`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from reconciler.advisor.choose import trees
from reconciler.advisor.choose.sizes import Simulated, in_parts
from reconciler.advisor.judge.candidate import planned_layout, weigh, weighed_again, what_if
from reconciler.advisor.qdtree.halves import Half, halves
from reconciler.advisor.simulate.layout import Layout
from reconciler.advisor.simulate.pool import Pool
from reconciler.advisor.simulate.whatif import simulate
from reconciler.advisor.situation import Situation
from reconciler.plan.ordering import by_tree
from reconciler.queries.read_cost import ShapeReading
from reconciler.table.filetable import Bool


def by_other_queries(
    situation: Situation, simulated: Simulated, pool: Pool, *, parts: bool = True
) -> Simulated:
    """Return a rewrite by a tree with what each query reads of a tree that was grown without it.

    Where the other half gives no tree, a query reads what it reads now. parts: whether leaves may
    be parted into row groups, as those of the rewrite may be.
    """
    demands, made = situation.expected.demands, simulated.candidate

    def read(half: Half) -> Sequence[ShapeReading]:
        layout = _grown_for(situation, simulated, pool, half, parts=parts)
        outcome = None if layout is None else simulate(layout, pool, demands)
        return made.before if outcome is None else outcome.readings

    after = read_by_halves(situation, simulated.outcome.readings, read)
    if after is simulated.outcome.readings:
        return simulated
    outcome = replace(simulated.outcome, readings=after)
    judged = weighed_again(situation, made, simulated.layout, outcome)
    return Simulated(judged, simulated.layout, outcome)


def read_by_halves(
    situation: Situation,
    after: tuple[ShapeReading, ...],
    read: Callable[[Half], Sequence[ShapeReading]],
) -> tuple[ShapeReading, ...]:
    """Return what the expected queries read of trees that were grown without them.

    after: what they read of the tree that was grown for all of them. read: returns what all of them
    read of the tree that was grown without a half.
    """
    for half in halves(situation.expected.demands, situation.settings.seed):
        after = tuple(
            _with(a, b, mine) for a, b, mine in zip(after, read(half), half.own, strict=True)
        )
    return after


def _grown_for(
    situation: Situation, simulated: Simulated, pool: Pool, half: Half, *, parts: bool
) -> Layout | None:
    """Return the same rewrite by a tree that was grown without the queries of a half; None where
    the others give no tree."""
    made = simulated.candidate
    demands = half.others(situation.expected.demands)
    known = replace(situation, expected=replace(situation.expected, demands=demands))
    found = trees.tree_found(known, pool, made.written_share, quick=True)
    if found is None:
        return None
    target = simulated.layout.target_bytes
    layout = planned_layout(known, made.rows, by_tree(found.tree), target)
    if parts:
        outcome = what_if(known, made.rows, layout, pool)
        if outcome is None:
            return None
        before = tuple(_taken(one, ~own) for one, own in zip(made.before, half.own, strict=True))
        grown = weigh(known, made.rows, layout, before, outcome)
        layout = in_parts(known, Simulated(grown, layout, outcome), pool, found).layout
    return replace(layout, row_group_bytes=simulated.layout.row_group_bytes)


def _taken(reading: ShapeReading, chosen: Bool) -> ShapeReading:
    return replace(
        reading,
        bytes=reading.bytes[chosen],
        files=reading.files[chosen],
        matching=reading.matching[chosen],
        cost=reading.cost[chosen],
    )


def _with(reading: ShapeReading, other: ShapeReading, chosen: Bool) -> ShapeReading:
    """Return the reading with the chosen queries' numbers of the other one."""
    return replace(
        reading,
        bytes=np.where(chosen, other.bytes, reading.bytes),
        files=np.where(chosen, other.files, reading.files),
        matching=np.where(chosen, other.matching, reading.matching),
        cost=np.where(chosen, other.cost, reading.cost),
    )
