"""Judges a tree of cuts by queries that it was not grown for.

A tree is cut at the literals of queries, so that it serves these better than the next ones of the
same kind: the fewer queries there are for a leaf, the more so. Where they are few, each half of
them is read from a tree that was grown for the other half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from reconciler.advisor.choose import trees
from reconciler.advisor.choose.sizes import Simulated, in_parts
from reconciler.advisor.judge.candidate import planned_layout, weigh, weighed_again, what_if
from reconciler.advisor.simulate.layout import Layout
from reconciler.advisor.simulate.pool import Pool
from reconciler.advisor.simulate.whatif import simulate
from reconciler.advisor.situation import Situation
from reconciler.plan.ordering import by_tree
from reconciler.queries.read_cost import ShapeReading
from reconciler.table.filetable import Bool

MOST_QUERIES = 512
"""Queries up to which a tree is judged so. Of 1,000 queries and 500 leaves the next queries read 1
to 4 % more than those that the tree was grown for."""


def by_other_queries(situation: Situation, simulated: Simulated, pool: Pool) -> Simulated:
    """Return a rewrite by a tree with what each query reads of a tree that was grown without it.

    A query that was executed more than once is expected with the same literals again: it reads what
    it reads of the tree itself. Where the other half gives no tree, a query reads what it reads
    now.
    """
    demands, made = situation.expected.demands, simulated.candidate
    once = [demand.weight <= 1.0 for demand in demands]
    if sum(map(len, demands)) > MOST_QUERIES or not any(one.any() for one in once):
        return simulated
    random = np.random.default_rng(situation.settings.seed)
    first = [random.random(len(demand)) < 0.5 for demand in demands]
    after = list(simulated.outcome.readings)
    for half in (first, [~one for one in first]):
        own = [mine & single for mine, single in zip(half, once, strict=True)]
        others = [~one for one in own]
        layout = _grown_for(situation, simulated, pool, others)
        read = list(made.before)
        if layout is not None:
            outcome = simulate(layout, pool, demands)
            read = read if outcome is None else list(outcome.readings)
        after = [_with(a, b, mine) for a, b, mine in zip(after, read, own, strict=True)]
    outcome = replace(simulated.outcome, readings=tuple(after))
    judged = weighed_again(situation, made, simulated.layout, outcome)
    return Simulated(judged, simulated.layout, outcome)


def _grown_for(
    situation: Situation, simulated: Simulated, pool: Pool, chosen: Sequence[Bool]
) -> Layout | None:
    """Return the same rewrite by a tree that was grown for the chosen queries alone; None where
    they give no tree."""
    made = simulated.candidate
    demands = tuple(d.take(k) for d, k in zip(situation.expected.demands, chosen, strict=True))
    known = replace(situation, expected=replace(situation.expected, demands=demands))
    found = trees.tree_found(known, pool, made.written_share, quick=True)
    if found is None:
        return None
    target = simulated.layout.target_bytes
    layout = planned_layout(known, made.rows, by_tree(found.tree), target)
    outcome = what_if(known, made.rows, layout, pool)
    if outcome is None:
        return None
    before = tuple(_taken(one, keep) for one, keep in zip(made.before, chosen, strict=True))
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
