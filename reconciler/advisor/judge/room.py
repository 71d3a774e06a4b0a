"""Bounds what may be spent on a table before it has paid for it
(docs/design/decisions.md#first-do-no-harm).

A rewrite is a bet that the queries stay as they are. If they change, its cost is lost. Until the
layout follows, other queries may also read more than of a table that nobody rewrote. The limit
applies to the whole layout: every small rewrite adds to what those before it may lose. The sum must
fit the room that the table has earned: a share of what its queries read, plus what past rewrites saved,
minus what they cost. A rewrite that lowers the possible loss, because it brings files back to what
the queries ask for, needs no room.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from reconciler.advisor.measure.untouched import Asked
from reconciler.advisor.situation import Situation
from reconciler.queries.read_cost import ShapeReading, read_layout, read_shape
from reconciler.queries.table_view import TableView
from reconciler.table.filetable import Int64


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
class PossibleLoss:
    """What may be lost if the queries change, in bytes of reading."""

    cost: float
    """What the rewrite costs."""
    exposure: float
    """What other queries would read more than of the untouched table, after the rewrite."""
    standing: float
    """What they would read more without the rewrite."""

    @property
    def total(self) -> float:
        return self.cost + self.exposure

    @property
    def added(self) -> float:
        """What the rewrite adds to the exposure of the table."""
        return max(0.0, self.exposure - self.standing)


def room_left(situation: Situation, spent: float) -> float:
    """Return what may be lost now: a share of the reading so far + savings - spent.

    The share is `early_share` while the log shows one mix of queries. Each change that it shows
    makes another one likelier: after n of them the share is early_share / (n + 1), but at least
    `debt_share`. The reading counts as of the untouched table where that is less: past queries do
    not get dearer because files were rewritten for others. spent: cost of the plan's actions
    already chosen.
    """
    settings = situation.settings
    if settings.early_share is None:
        return float("inf")
    read = sum(asked.weight * min(asked.now, asked.untouched) for asked in situation.foreseen.asked)
    share = max(
        settings.debt_share, settings.early_share / (1 + situation.foreseen.outlook.changes)
    )
    earned = share * (read + settings.debt.realised) - settings.debt.outstanding
    return max(0.0, earned - spent - situation.spent.exposed)


def possible_loss(situation: Situation, candidate: Change) -> PossibleLoss:
    """Return the candidate's cost, and the exposure of the table with and without it."""
    table = situation.table
    written = table.layout_written.copy()
    standing = _exposure(
        situation, (a.loss for a in situation.foreseen.asked), float(table.bytes[written].sum())
    )
    written[candidate.rows] = True
    losses = (asked.loss + _more(situation, candidate, asked) for asked in situation.foreseen.asked)
    exposure = _exposure(situation, losses, float(table.bytes[written].sum()))
    return PossibleLoss(candidate.cost, exposure, standing)


def admitted(possible: PossibleLoss, room: float) -> bool:
    """Whether the loss fits the room, or is less than the table may lose without the rewrite."""
    return possible.total <= max(room, possible.standing)


def added_by(situation: Situation, candidates: Iterable[Change]) -> float:
    """Return what the candidates add to the exposure of the table, if it matters."""
    if situation.settings.early_share is None:
        return 0.0
    return sum(possible_loss(situation, candidate).added for candidate in candidates)


def _exposure(situation: Situation, losses: Iterable[float], written: float) -> float:
    """Return the loss, at the present rate of all queries, if the worst of the losses becomes the
    loss of each: until the log shows it, and until it has cost as much as another rewrite.

    written: bytes of files that would have to be rewritten once more.
    """
    settings = situation.settings
    executions = sum(float(demand.executions.sum()) for demand in situation.foreseen.demands)
    until_seen = executions * situation.foreseen.outlook.bucket_ms / settings.horizon_ms
    worst = max([*losses, 0.0])
    return until_seen * worst + min(executions * worst, settings.rho.value * written)


def _more(situation: Situation, candidate: Change, asked: Asked) -> float:
    """Return what the queries read more with the candidate, per execution."""
    if asked.guard is not None:
        after = sum(float(read_layout(v, asked.guard).cost.sum()) for v in candidate.views)
        before = read_shape(situation.part(candidate.rows), asked.guard).cost
        return (after - float(before.sum())) / len(asked.guard)
    more = sum(
        float(
            situation.foreseen.demands[n].weight
            @ (candidate.after[n].cost - candidate.before[n].cost)
        )
        for n in asked.members
    )
    return more / np.maximum(asked.weight, 1e-9)
