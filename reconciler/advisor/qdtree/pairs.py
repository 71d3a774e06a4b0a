"""Cuts by conditions between two columns (Yang et al., "Qd-tree", section 6.1: advanced cuts).

Each condition that queries have becomes one more column, of its truth values in the sampled
rows, so that a tree is found as without them. Bounds of files say nothing of such a column. Only
queries that are routed by block ids skip by it. Nobody knows how many will be: each query with such
a condition is taken to be routed half of the time, so that a tree is cut by one only where that is
worth what all other queries lose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from reconciler.advisor.simulate.missing import NULL, VALUE
from reconciler.advisor.simulate.pool import Pool, PoolColumn
from reconciler.queries.predicate import by_pairs, pairs_of
from reconciler.queries.shape import Shape
from reconciler.table.pairs import TRUTHS, TYPES, Pair, ranked
from reconciler.table.schema import Schema
from reconciler.table.values import Kind

MOST_PAIRS = 16
"""Conditions that trees are cut by, those of the most executions."""


def pairs_asked(demands: Sequence[Shape]) -> tuple[Pair, ...]:
    """Return the conditions between two columns that queries have, those of the most executions
    first."""
    weight = dict[Pair, float]()
    for demand in demands:
        for pair in pairs_of(demand.predicate):
            weight[pair] = weight.get(pair, 0.0) + float(demand.executions.sum())
    return tuple(sorted(weight, key=lambda pair: (-weight[pair], pair)))


def cuttable_pairs(
    columns: Mapping[int, PoolColumn], schema: Schema, demands: Sequence[Shape]
) -> tuple[Pair, ...]:
    """Return the conditions that trees can be cut by: of sampled columns that still have one
    type."""
    found = [
        pair
        for pair in pairs_asked(demands)
        if all(one in columns for one in pair.fields) and of_one_type(pair, schema)
    ]
    return tuple(found[:MOST_PAIRS])


def of_one_type(pair: Pair, schema: Schema) -> bool:
    """Whether both columns have one type, of those that trees are cut by."""
    sides = [schema.by_id.get(one) for one in pair.fields]
    types = {"" if side is None else side.type for side in sides}
    return len(types) == 1 and types <= set(TYPES)


def column_of(pair: Pair, columns: Mapping[int, PoolColumn]) -> PoolColumn:
    """Return the truth values of a condition in sampled rows."""
    sides = [columns[one] for one in pair.fields]
    places = ranked(pair, *((side.sort_ranks, side.distinct) for side in sides))
    of = np.where(places < 0, NULL, VALUE).astype(np.int8)
    missing = replace(sides[0].missing, of=of)
    return PoolColumn(Kind.INT, places, TRUTHS, None, None, missing)


def with_pairs(
    pool: Pool, demands: Sequence[Shape], pairs: Sequence[Pair]
) -> tuple[Pool, list[Shape]]:
    """Return rows and queries in which these conditions are columns, -1 the first, for half of the
    executions of each query."""
    known = {pair: -1 - number for number, pair in enumerate(pairs)}
    added = {number: column_of(pair, pool.columns) for pair, number in known.items()}
    asked = list[Shape]()
    for demand in demands:
        routed = replace(demand, predicate=by_pairs(demand.predicate, known))
        if routed.predicate == demand.predicate:
            asked.append(demand)
        else:
            half = 0.5 * demand.executions
            asked += [replace(one, executions=half) for one in (routed, demand)]
    return replace(pool, columns={**pool.columns, **added}), asked
