"""Policies without a model of the workload, against which the others are compared."""

from __future__ import annotations

from collections.abc import Sequence

from bench.replay.replay import Policy
from bench.replay.table import SimulatedTable
from reconciler.advisor.advice import Settings
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.rewrite import Cluster
from reconciler.plan.ordering import Lexicographic
from reconciler.queries.shape import Workload
from reconciler.table.schema import SortColumn


def do_nothing(table: SimulatedTable, work: Workload, settings: Settings) -> Sequence[Action]:
    """Never rewrite."""
    return ()


def sort_everything(column: int) -> Policy:
    """Sort the whole table by one column after each batch."""
    ordering = Lexicographic((SortColumn(column),))

    def policy(table: SimulatedTable, work: Workload, settings: Settings) -> Sequence[Action]:
        inputs = tuple(sorted(file.path for file in table.files))
        return [
            Cluster(
                ordering=ordering,
                inputs=inputs,
                target_bytes=settings.target_bytes,
                row_group_bytes=settings.row_group_bytes,
            )
        ]

    return policy
