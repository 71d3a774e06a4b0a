"""Bounds what may be spent on a table before it has paid for it (design: First do no harm).

A rewrite is a bet that the queries stay as they are. Its stake is its cost, and what queries of
another kind would read more until the log shows that they came. The stake must fit the room that
the table has earned so far: a share of what its queries read, plus what past rewrites saved, minus
what they cost. Queries that nobody has asked yet are represented by ranges of the columns that the
files already keep in order: those are what a rewrite can spoil.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from reconciler.advisor.situation import Situation
from reconciler.queries.demand import Demand
from reconciler.queries.predicate import And, Comparison, Ref, fields_of
from reconciler.queries.read_cost import ShapeReading, read_layout, read_shape
from reconciler.queries.table_view import TableView
from reconciler.table.filetable import Int64
from reconciler.table.overlap_depth import depth_of, ranges_of

NATURAL = 0.33
"""A column orders the table if its values are in at most this share of the files on average."""

MOST_NATURAL = 2
"""Columns in the order of the files that are guarded, those in the best order first."""

RANGES, WIDTH = 16, 0.03
"""Ranges that represent the queries of a column, and the share of the files that each covers."""


class Change(Protocol):
    """A rewrite of the files `rows`, with what each shape reads before and after it."""

    @property
    def rows(self) -> Int64: ...
    @property
    def before(self) -> tuple[ShapeReading, ...]: ...
    @property
    def after(self) -> tuple[ShapeReading, ...]: ...
    @property
    def views(self) -> tuple[TableView, ...]: ...
    @property
    def cost(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Stake:
    """What a rewrite may lose, in bytes of reading. exposure: what other queries would read more
    until the log shows them."""

    cost: float
    exposure: float

    @property
    def total(self) -> float:
        return self.cost + self.exposure


def room_left(situation: Situation, spent: float) -> float:
    """Return what may be lost now: a share of the reading so far + savings - spent.

    The share is `early_share` while the log shows one mix of queries. Each change that it shows
    makes another one likelier: after n of them the share is early_share / (n + 1), but at least
    `debt_share`. spent: cost of the plan's actions already chosen.
    """
    settings = situation.settings
    if settings.early_share is None:
        return float("inf")
    untouched = situation.recorded + settings.debt.realised
    share = max(settings.debt_share, settings.early_share / (1 + situation.outlook.changes))
    return max(0.0, share * untouched - settings.debt.outstanding - spent)


def stake(situation: Situation, candidate: Change) -> Stake:
    """Return the candidate's cost, and its exposure at the present rate of all queries."""
    executions = sum(float(demand.executions.sum()) for demand in situation.demands)
    until_seen = executions * situation.outlook.bucket_ms / situation.settings.horizon_ms
    worst = max(_recorded_loss(situation, candidate), _unseen_loss(situation, candidate), 0.0)
    return Stake(candidate.cost, until_seen * worst)


def _recorded_loss(situation: Situation, candidate: Change) -> float:
    """Return the greatest mean loss per execution among recorded queries of the same columns."""
    weight: dict[tuple[int, ...], float] = {}
    lost: dict[tuple[int, ...], float] = {}
    for number, demand in enumerate(situation.demands):
        columns = tuple(sorted(fields_of(demand.predicate)))
        more = candidate.after[number].cost - candidate.before[number].cost
        weight[columns] = weight.get(columns, 0.0) + float(demand.weight.sum())
        lost[columns] = lost.get(columns, 0.0) + float(demand.weight @ more)
    return max((lost[key] / max(weight[key], 1e-9) for key in sorted(lost)), default=0.0)


def _unseen_loss(situation: Situation, candidate: Change) -> float:
    """Return the greatest mean loss per range of a column that the files are ordered by."""
    part = situation.part(candidate.rows)
    losses = []
    for demand in natural_demands(situation):
        after = sum(float(read_layout(view, demand).cost.sum()) for view in candidate.views)
        losses.append((after - float(read_shape(part, demand).cost.sum())) / len(demand))
    return max(losses, default=0.0)


def natural_demands(situation: Situation) -> tuple[Demand, ...]:
    """Return queries of the columns that order the files, one demand a column."""
    known: tuple[Demand, ...] | None = situation.table.derived.get("natural demands")
    if known is None:
        columns = natural_columns(situation)[:MOST_NATURAL]
        known = tuple(_ranges(situation, column) for column in columns)
        situation.table.derived["natural demands"] = known
    return known


def natural_columns(situation: Situation) -> list[int]:
    """Return the columns whose values are in few files on average, the fewest first."""
    table = situation.table
    depths = []
    rows = np.maximum(table.records, 0)
    for field, column in sorted(table.columns.items()):
        if not column.bounded.all() or not len(table):
            continue
        ranges = ranges_of(table, field)
        judged = np.flatnonzero(ranges.known)
        if len(judged) == len(table):
            mean = depth_of(ranges, judged, rows).mean
            if mean <= NATURAL * len(table):
                depths.append((mean, field))
    return [field for _, field in sorted(depths)]


def _ranges(situation: Situation, column: int) -> Demand:
    """Return RANGES ranges at even places of the files' order, read by the commonest projection."""
    lower: Int64 = np.sort(situation.table.columns[column].lower)
    place = (np.arange(RANGES) + 0.5) / RANGES * (len(lower) - 1)
    reach = max(1.0, WIDTH * len(lower)) / 2.0
    first = np.clip(np.floor(place - reach), 0, len(lower) - 1).astype(np.int64)
    last = np.clip(np.floor(place + reach), 0, len(lower) - 1).astype(np.int64)
    common = max(situation.demands, key=lambda demand: float(demand.executions.sum()))
    return Demand(
        shape_id=f"range of {column}",
        predicate=And((Comparison(Ref(column), ">=", 0), Comparison(Ref(column), "<", 1))),
        projection={**common.projection, column: 1.0},
        literals=(lower[first], lower[last]),
        weight=np.zeros(RANGES),
        executions=np.ones(RANGES),
        moving=False,
        full_scan=False,
    )
