"""WAIR as the paper states it, against which ours is compared (Algorithm 2 and section 4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from reconciler.advisor.advice import Settings
from reconciler.advisor.wair.cut import cut
from reconciler.advisor.wair.signature import signatures
from reconciler.advisor.wair.utilization import file_savings
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.rewrite import Recluster
from reconciler.plan.grouping import extents
from reconciler.plan.ordering import Lexicographic
from reconciler.queries.demanded import demands, predicate_columns
from reconciler.queries.shape import Workload
from reconciler.queries.table_view import table_view
from reconciler.replay.run import Policy, ReplayTable
from reconciler.table.filetable import FileTable, Int64
from reconciler.table.schema import SortColumn


def literal_wair(columns: Sequence[int], window: int, k_max: int) -> Policy[ReplayTable]:
    """Algorithm 2 to the letter: utilization alone, the one of `columns` with the greatest savings.

    window: queries that it remembers; k_max: most files of one sort.
    """

    def policy(table: ReplayTable, work: Workload, settings: Settings) -> Sequence[Action]:
        given = table.given(work, settings)
        files = given.table
        view = table_view(
            files, given.row_groups, given.sample, settings.row_group_bytes, settings.open_bytes
        )
        wanted = [
            replace(demand, executions=demand.weight)
            for demand in demands(recent(work, window), files.schema, settings.horizon_ms)
        ]
        savings = file_savings(view, wanted)
        cost = settings.rho.value * files.bytes.astype(np.float64)
        chosen = np.sort(cut(savings.saving, cost, settings.alpha, np.inf).chosen)
        if not len(chosen):
            return ()
        used = [predicate_columns(demand.predicate, files.schema) for demand in wanted]
        vectors = signatures(savings.by_shape[:, chosen], used, list(columns))
        key = (SortColumn(columns[int(vectors.sum(axis=0).argmax())]),)
        return [
            action
            for number in np.unique(files.partition[chosen]).tolist()
            for action in _sorts(
                files, chosen[files.partition[chosen] == number], key, k_max, settings
            )
        ]

    return policy


def _sorts(
    files: FileTable, rows: Int64, key: tuple[SortColumn, ...], k_max: int, settings: Settings
) -> list[Action]:
    """Return the sorts of the chosen files of one partition, each of at most k_max files."""
    each = replace(extents(files.take(rows), key), bytes=np.ones(len(rows), dtype=np.int64))
    groups = Lexicographic(key).groups(each, target_bytes=k_max, max_bytes=k_max)
    spec, partition = files.partitions[int(files.partition[rows[0]])]
    return [
        Recluster(
            spec_id=spec,
            partition=partition,
            ordering=Lexicographic(key),
            target_bytes=settings.target_bytes,
            row_group_bytes=settings.row_group_bytes,
            inputs=tuple(sorted(files.path[rows[group]])),
        )
        for group in groups.members
    ]


def recent(workload: Workload, window: int) -> Workload:
    """The last `window` queries by event time: what the literal policy decides by."""
    if workload.empty:
        return workload
    times = np.concatenate([batch.event_ms for batch in workload.shapes])
    if len(times) <= window:
        return workload
    since = int(np.sort(times)[-window])
    shapes = tuple(shape.since(since) for shape in workload.shapes)
    return Workload(
        tuple(shape for shape in shapes if len(shape)), since, workload.until_ms, workload.skipped
    )
