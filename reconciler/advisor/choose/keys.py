"""Decides by which key files are clustered: the what-if of every candidate key (WAIR section 4.4).

All candidates are judged on a thin sample. The best of them are judged on the full one, each in
files and row groups of the sizes that serve it best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations
from typing import NamedTuple

import numpy as np

from reconciler.advisor.advice import QD_TREE
from reconciler.advisor.choose import trees
from reconciler.advisor.choose.bands import banded
from reconciler.advisor.choose.sizes import Simulated, in_parts, left_to_read, sized
from reconciler.advisor.choose.unseen import by_other_queries
from reconciler.advisor.judge.candidate import (
    Candidate,
    planned_layout,
    readings_of,
    sharpen,
    weigh,
    what_if,
)
from reconciler.advisor.simulate.pool import Pool, build_pool
from reconciler.advisor.situation import Situation
from reconciler.advisor.wair.signature import candidate_keys
from reconciler.plan.ordering import Lexicographic, Ordering, best_of, by_tree
from reconciler.queries.demanded import predicate_columns
from reconciler.queries.read_cost import ShapeReading
from reconciler.queries.table_view import projected_bytes
from reconciler.table.filetable import Float64, Int64
from reconciler.table.schema import SortColumn

Passes = Callable[[Candidate], bool]
"""Whether a rewrite passes the gate."""

QUICK_ROWS, FULL_ROWS = 4_096, 32_768
FINALISTS = 2
CURVE = 0.98
"""Share of a Hilbert curve's net saving that counts beside sorts. The execution ranks rows by
sampled quantiles, which the what-if does not show, and any later rewrite along a curve takes whole
partitions."""
BANDS = CURVE**2
"""Share of the net saving of bands that counts beside sorts: they have to save as much more than a
curve as a curve has to save more than a sort."""

NEAR = 0.8
"""Share of the best net saving by a thin sample from which a tree is judged on the full one."""

FILLED = 0.5
"""Share of a row group that the most frequent value of a column has to fill before a second column
is tried behind it."""


def ranked(
    situation: Situation, rows: Int64, centroid: Float64, columns: list[int], passes: Passes
) -> list[Candidate]:
    """Return all candidate keys by what-if, best first; the finalists are judged on the full
    sample. Where the policy asks for trees alone, only those.

    All are compared by the queries that they were made for, and the best is then judged by others.
    """
    part = situation.part(rows)
    wanted = sorted({*trees.cut_columns(situation, wanted_columns(situation)),
                     *situation.expected.guarded})  # fmt: skip
    quick = build_pool(part, wanted, QUICK_ROWS)
    before = readings_of(situation, rows)
    scored = _scored(
        situation,
        rows,
        [
            best_of(tuple(SortColumn(columns[i]) for i in members))
            for members in candidate_keys(centroid, served_shares(situation, rows, columns))
        ],
        quick,
        before,
    )
    if not scored:
        return []
    grown: Ordering | None = None
    if quick is not None:
        if trees.tries_trees(situation, rows, columns):
            grown = trees.tree_ordering(situation, quick, quick=True)
        scored = _with_others(situation, scored, grown, quick, before)
    if situation.settings.mode == QD_TREE:
        scored = [one for one in scored if one.ordering == grown]
    full = build_pool(part, wanted, FULL_ROWS) if quick is not None else None
    if full is None or not scored:
        return scored
    chosen = _finalists(situation, scored, grown)
    rest = [candidate for candidate in scored if not any(candidate is one for one in chosen)]
    finalists = [
        _judged(situation, one, full, before, passes, grown=one.ordering == grown) for one in chosen
    ]
    finalists.sort(key=lambda item: -_rated(situation, item.candidate))
    best = _sharpened(situation, finalists[0], full, passes)
    return [best, *(item.candidate for item in finalists[1:]), *rest[:1]]


def _with_others(
    situation: Situation,
    scored: Sequence[Candidate],
    grown: Ordering | None,
    pool: Pool,
    before: tuple[ShapeReading, ...],
) -> list[Candidate]:
    """Return these keys with the orders that follow from the best of them, and the grown tree."""
    rows, trees_grown = scored[0].rows, [] if grown is None else [grown]

    def judge(*orderings: Ordering) -> list[Candidate]:
        return _scored(situation, rows, orderings, pool, before)

    others = judge(*nested_pairs(scored, pool), *trees_grown)
    return _by_net(situation, [*scored, *banded(situation, scored, pool, judge), *others])


class _Finalist(NamedTuple):
    """A candidate that was judged on the full sample."""

    candidate: Candidate
    """The rewrite."""
    simulated: Simulated | None
    """Its simulation; None if the full sample adds nothing."""
    grown: bool
    """Whether it is a tree that was grown for the queries."""


def _sharpened(situation: Situation, best: _Finalist, pool: Pool, passes: Passes) -> Candidate:
    """Return the best candidate judged by queries that it was not made for, and with the sample's
    own error, which only lowers the bound: what is refused without it is refused with it."""
    own = best.simulated
    if own is None:
        return best.candidate
    made = by_other_queries(situation, own, pool) if best.grown else own
    if not passes(made.candidate):
        return made.candidate
    return sharpen(situation, *made, pool, own.outcome)


def _finalists(
    situation: Situation, scored: Sequence[Candidate], grown: Ordering | None
) -> list[Candidate]:
    """Return the candidates that are judged on the full sample: the best, the best curve if row
    groups or files may become smaller, and the grown tree if it is not far behind.

    A curve gains most by smaller sizes: it orders rows by several columns, and large row groups
    show little of it. A tree gains by the sample: leaves have more of its rows than slices need.
    """
    best, settings = list(scored[:FINALISTS]), situation.settings
    if (settings.row_group_auto or settings.target_auto) and all(
        one.ordering.lead is not None for one in best
    ):
        best += [one for one in scored[FINALISTS:] if one.ordering.curve][:1]
    best += [
        one for one in scored[FINALISTS:]
        if one.ordering == grown and one.net >= NEAR * max(scored[0].net, 0.0)
    ]  # fmt: skip
    return best


def wanted_columns(situation: Situation) -> list[int]:
    """Return the columns that some query filters on."""
    schema = situation.table.schema
    return sorted(
        {c for d in situation.expected.demands for c in predicate_columns(d.predicate, schema)}
    )


def served_shares(situation: Situation, rows: Int64, columns: list[int]) -> Float64:
    """Return, per column, the share of the possible saving that the present layout already gives.

    It is the bytes that the column's queries skip in these files now, over all bytes that could be
    saved. A shape's bytes are split equally over its predicate columns (4.4).
    """
    schema = situation.table.schema
    served = np.zeros(len(columns))
    for demand, reading in situation.expected.readings:
        whole = projected_bytes(situation.table, demand.projection)[rows]
        spared = float((demand.executions.sum() * whole - reading.read[rows]).sum())
        used = [c for c in predicate_columns(demand.predicate, schema) if c in columns]
        for column in used:
            served[columns.index(column)] += max(spared, 0.0) / len(used)
    return served / max(float(situation.expected.savings.saving[rows].sum()), 1.0)


def _scored(
    situation: Situation,
    rows: Int64,
    orderings: Sequence[Ordering],
    pool: Pool | None,
    before: tuple[ShapeReading, ...],
) -> list[Candidate]:
    """Return the orderings of which something is known, best first."""
    scored = []
    for ordering in orderings:
        layout = planned_layout(situation, rows, ordering)
        outcome = what_if(situation, rows, layout, pool)
        if outcome is not None:
            scored.append(weigh(situation, rows, layout, before, outcome))
    return _by_net(situation, scored)


def _by_net(situation: Situation, candidates: Sequence[Candidate]) -> list[Candidate]:
    return sorted(
        candidates,
        key=lambda c: (
            -_rated(situation, c),
            len(c.ordering.key),
            [k.field_id for k in c.ordering.key],
        ),
    )


def _rated(situation: Situation, candidate: Candidate) -> float:
    """Return what candidates are compared by: a curve has to be clearly better than a sort, and a
    tree has to leave clearly less to read than a key."""
    tree = candidate.ordering.tree
    if tree is not None and tree.bands is None:
        return candidate.net - (1.0 - trees.CLEARLY) * left_to_read(situation, candidate)
    if candidate.ordering.lead is not None or candidate.net < 0.0:
        return candidate.net
    return candidate.net * (CURVE if tree is None else BANDS)


def nested_pairs(ranked: Sequence[Candidate], pool: Pool) -> list[Ordering]:
    """Return the sorts by one column and then by another that may be better than those ranked.

    Both orders of the best pair of columns, and the best single column before the leads of the next
    two. If no value of a column fills a row group, a second column has nothing to separate.
    """
    keys = [candidate.ordering.key for candidate in ranked]
    pair = next((key for key in keys if len(key) == 2), ())
    leads = list(dict.fromkeys(key[0] for key in keys if len(key) == 1))
    wanted = [*permutations(pair, 2), *((leads[0], other) for other in leads[1:3])]
    slices = max(sum(len(view.row_groups or ()) for view in ranked[0].views), 1)
    filled = {column for column in dict.fromkeys(key[0] for key in wanted)
              if _largest_share(pool, column.field_id) * slices >= FILLED}  # fmt: skip
    return [Lexicographic(key) for key in dict.fromkeys(wanted) if key[0] in filled]


def _largest_share(pool: Pool, field_id: int) -> float:
    """Return the share of the rows that have the most frequent value of the column, or NULL."""
    column = pool.columns.get(field_id)
    if column is None or not len(pool):
        return 0.0
    seen = np.bincount(column.sort_ranks - column.sort_ranks.min())
    return float(seen.max()) / len(column.sort_ranks)


def _judged(
    situation: Situation,
    candidate: Candidate,
    pool: Pool,
    before: tuple[ShapeReading, ...],
    passes: Passes,
    *,
    grown: bool,
) -> _Finalist:
    """Return the same key judged on the full sample, in files and row groups of the best sizes. A
    grown tree is built again for that sample, and for what its rows will take."""
    ordering, found = candidate.ordering, None
    if grown:
        found = trees.tree_found(situation, pool, candidate.written_share)
        if found is not None:
            ordering = by_tree(found.tree)
    layout = planned_layout(situation, candidate.rows, ordering)
    outcome = what_if(situation, candidate.rows, layout, pool)
    if outcome is None or outcome.written.label == "bound":
        return _Finalist(candidate, None, grown)
    made = weigh(situation, candidate.rows, layout, before, outcome)
    simulated = sized(
        situation, in_parts(situation, Simulated(made, layout, outcome), pool, found), pool,
        refused=lambda other: not passes(other),
    )  # fmt: skip
    training = None if found is None else found.training
    made = replace(simulated.candidate, training=training)
    return _Finalist(made, simulated._replace(candidate=made), grown)
