"""Policies without a model of the workload, with which others are compared: nothing, a sort of all
files, of new files, a sort of all files now and then, and a new
tree of cuts each time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reconciler.advisor.advice import Settings
from reconciler.advisor.qdtree.building import found_for
from reconciler.advisor.simulate.pool import build_pool
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.rewrite import Cluster
from reconciler.plan.ordering import Lexicographic, Ordering, by_tree
from reconciler.queries.demanded import demands
from reconciler.queries.predicate import bounded_fields_of
from reconciler.queries.shape import Workload
from reconciler.queries.table_view import table_view
from reconciler.replay.run import Policy, ReplayTable
from reconciler.table.filetable import FileTable, Int64
from reconciler.table.schema import SortColumn
from reconciler.table.values import Scalar


def do_nothing(table: ReplayTable, work: Workload, settings: Settings) -> Sequence[Action]:
    """Never rewrite."""
    return ()


def sort_everything(column: int) -> Policy[ReplayTable]:
    """Sort the whole table by one column after each batch."""
    ordering = Lexicographic((SortColumn(column),))

    def policy(table: ReplayTable, work: Workload, settings: Settings) -> Sequence[Action]:
        files = table.file_table()
        return sorts(files, np.arange(len(files)), ordering, settings)

    return policy


def sort_new_data(column: int) -> Policy[ReplayTable]:
    """Sort the files that came since the last batch by one column, and never touch them again
    ("new data, new cluster" in WAIR, section 6)."""
    ordering = Lexicographic((SortColumn(column),))

    def policy(table: ReplayTable, work: Workload, settings: Settings) -> Sequence[Action]:
        files = table.file_table()
        return sorts(files, np.flatnonzero(~files.layout_written), ordering, settings)

    return policy


def rebuild_each(period_ms: int, columns: Sequence[int]) -> Policy[ReplayTable]:
    """Sort the whole table once in each period by the column of which its queries asked most."""
    last: int | None = None

    def policy(table: ReplayTable, work: Workload, settings: Settings) -> Sequence[Action]:
        nonlocal last
        if last is not None and settings.now_ms - last < period_ms:
            return ()
        since = 0 if last is None else last
        asked = {column: _filtering(work, column, since) for column in columns}
        best = max(asked, key=lambda column: (asked[column], -column), default=None)
        if best is None or not asked[best]:
            return ()
        last, files = settings.now_ms, table.file_table()
        return sorts(files, np.arange(len(files)), Lexicographic((SortColumn(best),)), settings)

    return policy


def _filtering(work: Workload, column: int, since_ms: int) -> float:
    """Return the executions after a time that filter on the column."""
    return sum(
        float(one.since(since_ms).weight.sum())
        for one in work.shapes
        if column in bounded_fields_of(one.predicate)
    )


def rebuild_tree(table: ReplayTable, work: Workload, settings: Settings) -> Sequence[Action]:
    """Write the whole table into a new tree of cuts after each batch (Yang et al., "Qd-tree")."""
    given = table.given(work, settings)
    view = table_view(
        given.table, given.row_groups, given.sample, settings.row_group_bytes, settings.open_bytes
    )
    wanted = demands(work, given.table.schema, settings.horizon_ms)
    pool = None if given.sample is None else build_pool(view, tuple(given.sample.values))
    if pool is None or not wanted:
        return ()
    found = found_for(pool, wanted, settings.target_bytes, settings.trees, settings.seed)
    if found is None:
        return ()
    every = np.arange(len(given.table), dtype=np.int64)
    return sorts(given.table, every, by_tree(found.tree), settings)


def sorts(files: FileTable, rows: Int64, ordering: Ordering, settings: Settings) -> list[Action]:
    """Return one sort of these files for each partition."""
    found: list[Action] = []
    for number in np.unique(files.partition[rows]).tolist():
        spec, partition = files.partitions[number]
        own = rows[files.partition[rows] == number]
        found.append(clustered(files, own, spec, partition, ordering, settings))
    return found


def clustered(
    files: FileTable,
    rows: Int64,
    spec: int,
    partition: tuple[Scalar | None, ...],
    ordering: Ordering,
    settings: Settings,
) -> Action:
    return Cluster(
        spec_id=spec,
        partition=partition,
        ordering=ordering,
        inputs=tuple(sorted(str(path) for path in files.path[rows])),
        target_bytes=settings.target_bytes,
        row_group_bytes=settings.row_group_bytes,
    )
