"""This advisor as a policy, within budgets if there are any."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from reconciler.advisor.advice import Settings
from reconciler.advisor.decide import decide
from reconciler.plan.actions.base import Action
from reconciler.plan.budget import Budget, Charge, Spent, admit
from reconciler.queries.shape import Workload
from reconciler.replay.run import Policy, ReplayTable


def ours(table: ReplayTable, work: Workload, settings: Settings) -> Sequence[Action]:
    """Carry out what the advisor plans."""
    return [item.action for item in decide(table.given(work, settings)).actions]


def within(budgets: Sequence[Budget]) -> Policy[ReplayTable]:
    """Return a policy that carries out what of the advisor's plans the budgets admit, without
    waiting for an approval. It keeps what it spent: one replay each."""
    spent: list[Spent] = []

    def policy(table: ReplayTable, work: Workload, settings: Settings) -> Sequence[Action]:
        items = decide(table.given(work, settings)).actions
        charges = [Charge(i.predicted.rewrite_bytes, i.predicted.cpu_seconds) for i in items]
        now = dt.datetime.fromtimestamp(settings.now_ms / 1000, tz=dt.UTC)
        count = admit(charges, budgets, spent, now).count
        spent.extend(Spent(now, one.rewrite_bytes, one.cpu_seconds) for one in charges[:count])
        return [item.action for item in items[:count]]

    return policy if budgets else ours
