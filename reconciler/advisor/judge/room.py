"""Bounds what rewrites of a table may lose if its queries change (docs/design/no-harm.md).

A rewrite is a bet that the queries stay as they are. If they change, its cost is lost; and until
the layout follows, the new queries may read more than of a table that nobody rewrote (exposure).
The limit applies to all rewrites of the table together. What they may lose must fit the room: a
share of what queries would have read without any rewrite, minus what past rewrites have cost more
than they saved. A part of the room is held back to pay for putting files back in the order in which
rows arrive.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from reconciler.advisor.measure.lately import lost_lately
from reconciler.advisor.measure.untouched import QueryGroup
from reconciler.advisor.situation import Situation
from reconciler.plan.ordering import Ordering
from reconciler.queries.read_cost import ShapeReading, read_layout, read_shape
from reconciler.queries.table_view import TableView
from reconciler.table.filetable import Bool, Int64
from reconciler.table.times import YEAR_MS


class RewriteEffect(Protocol):
    """A rewrite of the files `rows`, with what each shape reads before and after it."""

    @property
    def rows(self) -> Int64: ...
    @property
    def ordering(self) -> Ordering: ...
    @property
    def before(self) -> tuple[ShapeReading, ...]: ...
    @property
    def after(self) -> tuple[ShapeReading, ...]: ...
    @property
    def views(self) -> tuple[TableView, ...]: ...
    @property
    def cost(self) -> float: ...


@dataclass(frozen=True, slots=True)
class PossibleLoss:
    """What may be lost, in bytes of reading."""

    cost: float
    """Cost of the rewrite."""
    exposure: float
    """What other queries would read more than of the untouched table with the rewrite."""
    standing: float
    """What they would read more without it."""
    spare: float
    """What is held back for it anyway: `standing`, or the cost of putting files back alone where
    past losses have used up the rest."""

    @property
    def total(self) -> float:
        return self.cost + self.exposure

    @property
    def added(self) -> float:
        """What the rewrite adds to the exposure of the table."""
        return max(0.0, self.exposure - self.standing)


def promised(situation: Situation) -> float:
    """Return what the table may have lost by now, in bytes of reading; infinite without the limit.

    It is `early_share` of what doing nothing would have read, and at most `debt_share` of what it
    would read in a year. What doing nothing would have read has two lower bounds, of which the
    greater one counts: what the recorded queries read of the untouched table, and what rewrites
    have saved (docs/design/no-harm.md). Where the untouched table is an estimate, the present
    reading counts if it is less.
    """
    settings, untouched = situation.settings, situation.expected.untouched
    if settings.early_share is None or untouched is None:
        return float("inf")
    known = untouched.known_of(situation.table)
    read = coming = 0.0
    for asked in situation.expected.groups:
        each = asked.untouched if known else min(asked.now, asked.untouched)
        read += asked.weight * each
        coming += _executions(situation, asked) * each
    so_far = max(read, settings.debt.realised)
    yearly = read * YEAR_MS / situation.given.workload.span_ms
    if not settings.literal:  # the paper's window comes once more at no stated time
        yearly = min(coming * YEAR_MS / settings.horizon_ms, yearly)
    return min(settings.early_share * so_far, settings.debt_share * max(yearly, so_far))


def room_left(situation: Situation, spent: float) -> float:
    """Return what may be lost now: the promised share of the reading so far - what is lost already.

    The share is `early_share` while the log shows one mix of queries. Each change that it shows
    makes another one likelier: after n of them the share is early_share / (n + 1), but at least
    `debt_share`. spent: cost of the plan's actions already chosen.
    """
    settings = situation.settings
    if settings.early_share is None:
        return float("inf")
    part = 1.0 / (1.0 + situation.expected.outlook.changes)
    part = max(part, settings.debt_share / settings.early_share)
    earned = min(part, 1.0) * promised(situation) - settings.debt.outstanding
    return max(0.0, earned - spent - situation.spent.exposed)


def standing(situation: Situation) -> float:
    """Return the exposure that the present layout has: what other queries would read more of it
    than of the untouched table."""
    return _exposure(situation, _worst(situation), _displaced(situation))


def unseen(situation: Situation) -> float:
    """Return what queries may read more of the present layout than of the untouched table until the
    log shows it: assumption A1 of docs/design/no-harm.md."""
    return _until_seen(situation) * max(_worst(situation), 0.0)


def _worst(situation: Situation) -> float:
    return max((asked.worst for asked in situation.expected.groups), default=0.0)


def _until_seen(situation: Situation) -> float:
    """Return the executions until the log shows a change: those that are expected, or as many as
    in the busiest such time of the log. Decisions are made early where more come (`state.mixes`).
    """
    outlook, horizon_ms = situation.expected.outlook, situation.settings.horizon_ms
    return max(_expected(situation) * outlook.bucket_ms / horizon_ms, outlook.busiest)


def _expected(situation: Situation) -> float:
    return sum(float(demand.executions.sum()) for demand in situation.expected.demands)


def _displaced(situation: Situation) -> Bool:
    untouched = situation.expected.untouched
    if untouched is None:
        return np.zeros(len(situation.table), dtype=np.bool_)
    return untouched.displaced


def reserve_is_due(situation: Situation) -> bool:
    """Whether files have to be put back to the order of arrival now.

    They have if two things hold. What is lost already and what the layout can still lose until it
    is put back exceed the promised limit; and the expected queries lose, or the last ones did.
    """
    if not _displaced(situation).any():
        return False
    possible = situation.settings.debt.outstanding + standing(situation)
    if possible <= promised(situation):
        return False
    return _present_loss(situation) > 0.0 or lost_lately(situation) > 0.0


def _present_loss(situation: Situation) -> float:
    """Return what the expected queries read more than of the untouched table."""
    found = 0.0
    for asked in situation.expected.groups:
        found += _executions(situation, asked) * asked.loss if asked.guard is None else 0.0
    return found


def _executions(situation: Situation, asked: QueryGroup) -> float:
    """Return the executions of these queries that are expected over the horizon."""
    return sum(float(situation.expected.demands[n].executions.sum()) for n in asked.members)


def possible_loss(situation: Situation, candidate: RewriteEffect) -> PossibleLoss:
    """Return the candidate's cost, and the exposure of the table with and without it."""
    displaced = _displaced(situation).copy()
    displaced[candidate.rows] = not _as_they_arrive(situation, candidate.ordering)
    losses = [_loss_with(situation, candidate, asked) for asked in situation.expected.groups]
    exposure = _exposure(situation, max(losses, default=0.0), displaced)
    now = standing(situation)
    kept = situation.settings.debt.outstanding + now <= promised(situation)
    back = min(_putting_back(situation, _displaced(situation)), now)
    return PossibleLoss(candidate.cost, exposure, now, now if kept else back)


def _as_they_arrive(situation: Situation, ordering: Ordering) -> bool:
    """Whether the order of rows is that in which they arrive."""
    untouched = situation.expected.untouched
    lead = ordering.lead
    if untouched is None or not untouched.natural or lead is None:
        return False
    return lead.field_id == untouched.natural[0]


def admitted(possible: PossibleLoss, room: float, spent: float = 0.0) -> bool:
    """Whether the loss fits the room, or what is held back for the present layout. spent: cost of
    the plan's actions already chosen."""
    return possible.total <= max(room, possible.spare - spent)


def added_by(situation: Situation, candidates: Iterable[RewriteEffect]) -> float:
    """Return what the candidates add to the exposure of the table, if it matters."""
    if situation.settings.early_share is None:
        return 0.0
    return sum(possible_loss(situation, candidate).added for candidate in candidates)


def _exposure(situation: Situation, worst: float, displaced: Bool) -> float:
    """Return the loss, at the present rate of all queries, if the worst loss becomes that of each:
    until the log shows it, and what putting back the files costs then.

    A layout that loses less in a year than turning it back costs is kept. displaced: bool[files],
    those that would have to be put back.
    """
    worst = max(worst, 0.0)
    yearly = _expected(situation) * YEAR_MS / situation.settings.horizon_ms
    back = min(yearly * worst, _putting_back(situation, displaced))
    return _until_seen(situation) * worst + back


def _putting_back(situation: Situation, displaced: Bool) -> float:
    return situation.settings.rho.value * float(situation.table.bytes[displaced].sum())


def _loss_with(situation: Situation, candidate: RewriteEffect, asked: QueryGroup) -> float:
    """Return what an execution of the query that loses most reads more than of the untouched table
    with the candidate."""
    if asked.guard is not None:
        after = sum(read_layout(view, asked.guard).cost for view in candidate.views)
        before = read_shape(situation.part(candidate.rows), asked.guard).cost
        return float((asked.each + after - before).max())
    more = [candidate.after[n].cost - candidate.before[n].cost for n in asked.members]
    return float((asked.each + np.concatenate(more)).max())
