"""WAIR as the paper states it, against which ours is compared: the decisions of
`recluster.method: Literal`, which are carried out without a prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reconciler.advisor.advice import Settings
from reconciler.advisor.choose.literal import Group, cut_of_window, groups
from reconciler.advisor.situation import Situation, situation_of
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.rewrite import Recluster
from reconciler.queries.forecasts.window import window_once
from reconciler.queries.shape import Workload
from reconciler.replay.run import Policy, ReplayTable


def literal_wair(*, hybrid: bool = True) -> Policy[ReplayTable]:
    """Return the policy. hybrid: each group has its own order (section 4.4); otherwise all files
    are sorted by one column, chosen anew from time to time (section 3.3)."""

    def policy(table: ReplayTable, work: Workload, settings: Settings) -> Sequence[Action]:
        settings = replace(settings, literal=True, forecast=window_once)
        situation = situation_of(table.given(work, settings))
        if not situation.expected.demands:
            return ()
        chosen, saving = cut_of_window(situation)
        found = groups(situation, chosen, saving, hybrid=hybrid)
        return [_action(situation, group) for group in found]

    return policy


def _action(situation: Situation, group: Group) -> Recluster:
    table, settings = situation.table, situation.settings
    spec, partition = table.partitions[int(table.partition[group.rows[0]])]
    return Recluster(
        spec_id=spec,
        partition=partition,
        ordering=group.ordering,
        target_bytes=settings.target_bytes,
        row_group_bytes=settings.row_group_bytes,
        inputs=tuple(sorted(str(path) for path in table.path[group.rows])),
    )
