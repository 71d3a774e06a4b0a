"""WAIR as its paper states it, where a policy asks for it (`recluster.method: Literal`).

The last W queries are taken to come once more. What they could have skipped of a file (Eq. 3, with
the bonus of Eq. 6) speaks for rewriting it; Algorithm 2 takes the best prefix within the limits of
Eq. 2, 4 and 5 and of the warm start; signatures divide it into groups, and anchors name the order
of each (section 4.4). No what-if judges it: one is made for the plan's prediction, and where plans
run without an approval, for the room that they may use (docs/design/no-harm.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from reconciler.advisor.advice import Rejected
from reconciler.advisor.choose.keys import wanted_columns
from reconciler.advisor.choose.recluster import (
    Proposals,
    allowed,
    exposing,
    left_out,
    varying_columns,
)
from reconciler.advisor.choose.sizes import Simulated
from reconciler.advisor.choose.trees import cut_columns, tree_ordering, tries_trees
from reconciler.advisor.choose.unseen import by_other_queries
from reconciler.advisor.judge.candidate import (
    Candidate,
    credit_left,
    file_reading,
    not_earned,
    planned_layout,
    readings_of,
    rejected,
    weigh,
    what_if,
)
from reconciler.advisor.simulate.pool import build_pool
from reconciler.advisor.situation import Situation
from reconciler.advisor.wair.cut import FilePrefix, best_prefix, spending_limit
from reconciler.advisor.wair.memory import MOST_FILES, memory_parts
from reconciler.advisor.wair.performance import with_bonus
from reconciler.advisor.wair.reselection import reselected_ms
from reconciler.advisor.wair.signature import anchor, cluster, scattered, signatures
from reconciler.advisor.wair.utilization import file_savings
from reconciler.advisor.wair.warm_start import warm_start_limit
from reconciler.plan import reasons
from reconciler.plan.ordering import Ordering, best_of
from reconciler.queries.demanded import demands, predicate_columns
from reconciler.queries.forecasts.window import in_window
from reconciler.queries.rates import history_of
from reconciler.queries.shape import Shape, Workload, workload_of
from reconciler.table.filetable import Float64, Int64
from reconciler.table.schema import SortColumn


@dataclass(frozen=True, slots=True)
class Group:
    """Files of one partition that are rewritten together."""

    rows: Int64
    """int64: rows of the file table, ascending."""
    ordering: Ordering
    """The order that they get."""
    saving: float
    """What the window's queries could have skipped of them, in bytes of reading (Eq. 3 and 6)."""


def literal(situation: Situation) -> Proposals:
    """Return what WAIR rewrites now, with the what-if of each group for the plan's prediction."""
    made, refused = list[Candidate](), list[Rejected]()
    chosen, saving = cut_of_window(situation)
    now, spent = situation, situation.spent.cost
    for group in groups(situation, chosen, saving):
        candidate = _predicted(situation, group)
        if candidate is None:
            refused.append(rejected(situation, "recluster", reasons.NO_SAMPLE, "", group.rows))
        elif (why := not_earned(now, candidate, spent)) is not None:
            refused.append(rejected(situation, "recluster", *why, group.rows, candidate))
        else:
            made.append(candidate)
            spent += candidate.cost
            now = exposing(now, [candidate])
    total = saving.sum(axis=0)
    return Proposals(tuple(made), (*refused, *left_out(situation, chosen, total)))


def cut_of_window(situation: Situation) -> tuple[FilePrefix, Float64]:
    """Return Algorithm 2's cut, and the savings by shape and file, float64[shapes, files]."""
    saving = np.where(allowed(situation), _savings(situation), 0.0)
    found = best_prefix(
        saving.sum(axis=0), situation.cost, situation.settings.alpha, limit_left(situation)
    )
    return found, saving


def limit_left(situation: Situation) -> float:
    """Return what may be spent now, in bytes of reading: the least of what Eq. 2, Eq. 5 and the
    warm start leave. The paper names no cost_limit: it is the share of a year's reading that other
    decisions keep to, at the mean rate of the log."""
    settings, queries = situation.settings, situation.given.workload.queries
    owed = settings.debt.outstanding
    most = min(
        settings.debt_share * situation.expected.yearly_mean,
        warm_start_limit(queries, len(situation.table), file_reading(situation)),
    )
    return spending_limit(owed, most, credit_left(situation))


def groups(
    situation: Situation, chosen: FilePrefix, saving: Float64, *, hybrid: bool = True
) -> Iterator[Group]:
    """Yield the groups of the chosen files.

    saving: float64[shapes, files]. hybrid: each group has its own order (section 4.4); otherwise
    all have the one key that was selected last (section 3.3).
    """
    table, rows = situation.table, np.sort(chosen.chosen)
    one_key = None if hybrid or not len(rows) else _one_key(situation, rows)
    total = saving.sum(axis=0)
    for number in np.unique(table.partition[rows]).tolist():
        own = rows[table.partition[rows] == number]
        orders = [(own, one_key)] if one_key else _by_signature(situation, own, saving)
        for members, ordering in orders:
            for part in memory_parts(table, members, ordering, _most_files(situation, members)):
                yield Group(part, ordering, float(total[part].sum()))


def _most_files(situation: Situation, rows: Int64) -> int:
    """Return k_max, or fewer files where a budget never admits so many."""
    most = situation.settings.most_bytes
    largest = int(situation.table.bytes[rows].max())
    return MOST_FILES if most is None else max(1, min(MOST_FILES, most // max(largest, 1)))


def _by_signature(
    situation: Situation, rows: Int64, saving: Float64
) -> Iterator[tuple[Int64, Ordering]]:
    """Yield the files of one partition by the cluster of their signature, with its order."""
    used = [_filtered(situation, demand) for demand in situation.expected.demands]
    columns = varying_columns(situation, rows)
    if not columns:
        return
    vectors = signatures(saving[:, rows], used, columns)
    labels = cluster(vectors)
    for number in range(int(labels.max()) + 1):
        members = labels == number
        centroid = vectors[members].mean(axis=0)
        key = [SortColumn(columns[place]) for place in anchor(centroid)]
        tree = _tree(situation, rows[members], columns) if scattered(centroid) else None
        yield rows[members], tree or best_of(key)


def _filtered(situation: Situation, demand: Shape) -> tuple[int, ...]:
    return tuple(predicate_columns(demand.predicate, situation.table.schema))


def _tree(situation: Situation, rows: Int64, columns: list[int]) -> Ordering | None:
    """Return a tree of cuts for files whose savings come from many columns; None without one."""
    pool = build_pool(situation.part(rows), cut_columns(situation, wanted_columns(situation)))
    if pool is None or not tries_trees(situation, rows, columns):
        return None
    return tree_ordering(situation, pool)


def _one_key(situation: Situation, rows: Int64) -> Ordering | None:
    """Return the column that saves most by the window of the last reselection; None without any."""
    shapes = situation.given.workload.shapes
    event_ms = np.concatenate([shape.event_ms for shape in shapes])
    weight = np.concatenate([shape.weight for shape in shapes])
    until = reselected_ms(event_ms, weight, len(situation.table))
    work = workload_of([shape.since(0, until) for shape in shapes])
    view = situation.part(rows)
    wanted = [demand for _, demand in _asked(situation, work, 0)]
    by_shape = file_savings(view, wanted).by_shape
    total: dict[int, float] = {}
    for demand, own in zip(wanted, by_shape, strict=True):
        columns = [c for c in _filtered(situation, demand) if c in view.files.columns]
        for column in columns:
            total[column] = total.get(column, 0.0) + float(own.sum()) / len(columns)
    if not any(total.values()):
        return None
    return best_of([SortColumn(max(sorted(total), key=lambda column: total[column]))])


def _savings(situation: Situation) -> Float64:
    """Return what the window's queries could have skipped, float64[shapes, files].

    A query counts for a file that we wrote only if it ran after that: it never read the file
    before.
    """
    table, settings = situation.table, situation.settings
    beta = settings.beta_openings * settings.open_bytes
    view, wanted = situation.facts.view, situation.expected.demands
    found = with_bonus(situation.expected.savings, view, wanted, beta).copy()
    ours = table.layout_written & (table.added_ms >= situation.expected.outlook.since_ms)
    for added in np.unique(table.added_ms[ours]).tolist():
        rows = np.flatnonzero(ours & (table.added_ms == added)).astype(np.int64)
        found[:, rows] = 0.0
        later = _asked(situation, situation.given.workload, added + 1)
        if later:
            part, asked = situation.part(rows), [demand for _, demand in later]
            own = with_bonus(file_savings(part, asked), part, asked, beta)
            numbers = np.array([number for number, _ in later], dtype=np.int64)
            found[np.ix_(numbers, rows)] = own
    return found


def _asked(situation: Situation, work: Workload, since_ms: int) -> list[tuple[int, Shape]]:
    """Return the window's queries from a time on, with the number of their shape."""
    inside = in_window(history_of(work))
    ends = np.cumsum([len(shape) for shape in work.shapes])[:-1]
    found = []
    for number, (shape, part) in enumerate(zip(work.shapes, np.split(inside, ends), strict=True)):
        kept = (part > 0.0) & (shape.event_ms >= since_ms)
        if kept.any():
            one = replace(work, shapes=(shape.take(kept),))
            schema, horizon = situation.table.schema, situation.settings.horizon_ms
            found += [(number, demand) for demand in demands(one, schema, horizon, part[kept])]
    return found


def _predicted(situation: Situation, group: Group) -> Candidate | None:
    layout = planned_layout(situation, group.rows, group.ordering)
    pool = build_pool(situation.part(group.rows), wanted_columns(situation))
    outcome = what_if(situation, group.rows, layout, pool)
    if outcome is None:
        return None
    made = weigh(situation, group.rows, layout, readings_of(situation, group.rows), outcome)
    if pool is None or group.ordering.tree is None:
        return made
    return by_other_queries(
        situation, Simulated(made, layout, outcome), pool, parts=False
    ).candidate
