"""Decides of which files rows are sampled: only where a sample could change a decision
(docs/design/decisions.md#sketches-only-where-they-can-change-a-decision).

Zone maps bound what a rewrite can save: of each file at most what queries with a condition read of
it now. If that is less than the cost of rewriting the file, no sample is needed. Of the other
files, some are chosen that are spread evenly over partitions and values.
"""

from __future__ import annotations

import numpy as np

from reconciler.advisor.choose.binpack import small_files_mask
from reconciler.advisor.choose.recluster import allowed, movable
from reconciler.advisor.situation import Situation, is_quiet
from reconciler.plan.grouping import SMALL_SHARE
from reconciler.queries.predicate import bounded_fields_of
from reconciler.queries.rewrite_cost import MORE_TO_SORT
from reconciler.queries.shape import Shape
from reconciler.table.filetable import Bool, FileTable, Float64, Int64
from reconciler.table.values import Kind

MAX_FILES = 64
ROUNDING = 1e-4


def files_to_sketch(situation: Situation) -> Int64:
    """Return the row numbers of files to sketch, ascending; empty if no sample could change
    anything.

    Files that already have sampled rows count towards MAX_FILES and are not returned again. Files
    that the quiet period holds back come after all that may be rewritten now, because they are only
    reported.
    """
    moving = situation.facts.moving & movable(situation)  # shows which partitions they become
    worth = np.zeros(len(situation.table), dtype=np.bool_)
    if situation.trusted:
        bound = saving_bound(situation)
        worth = (bound > situation.alpha * situation.cost) | _merged_anyway(situation, bound)
    elif not moving.any():
        return np.zeros(0, dtype=np.int64)
    free = (worth & allowed(situation)) | moving
    waits = worth & situation.facts.rewritable & ~situation.spent.taken & is_quiet(situation)
    sample = situation.facts.view.sample
    known = np.unique(sample.file) if sample is not None else np.zeros(0, dtype=np.int64)
    room = MAX_FILES - int((free | waits)[known].sum())
    if room <= 0:
        return np.zeros(0, dtype=np.int64)
    picked = _stratified(situation, np.flatnonzero(free), MAX_FILES)
    later = _stratified(situation, np.flatnonzero(waits), MAX_FILES - len(picked))
    picked = np.union1d(picked, later)
    return np.setdiff1d(picked, known)[:room].astype(np.int64)


def _merged_anyway(situation: Situation, bound: Float64) -> Bool:
    """Return bool[files]: small files that fewer openings may pay for merging, and of which queries
    read so much that sorting them meanwhile may pay, too. bound: what a layout can save of each."""
    settings, cost = situation.settings, situation.cost
    if not settings.by_workload:
        return np.zeros(len(situation.table), dtype=np.bool_)
    executions = sum(float(demand.executions.sum()) for demand in situation.expected.demands)
    openings = executions * settings.open_bytes
    wanted = (bound > MORE_TO_SORT * cost) & (bound + openings > situation.alpha * cost)
    wanted &= situation.table.bytes < SMALL_SHARE * settings.target_bytes
    rest = wanted & (bound <= situation.alpha * cost)
    return wanted & small_files_mask(situation) if rest.any() else rest


def saving_bound(situation: Situation) -> Float64:
    """Return an upper bound of each file's saving over the horizon, in bytes, float64[files].

    It is all that queries read of the file, if some query needs only a part of it, or if that is
    not known; else 0.
    """
    bound = np.zeros(len(situation.table))
    for demand, reading in situation.expected.readings:
        if demand.prunable:
            partly = reading.saving > ROUNDING * reading.read
            bound += np.where(partly | _unknown(situation, demand), reading.read, 0.0)
    return bound


def _unknown(situation: Situation, demand: Shape) -> Bool:
    """Return bool[files]: nobody knows which values the file has in a column of the condition."""
    files = situation.facts.view.known
    unknown = np.zeros(len(files), dtype=np.bool_)
    for field_id in bounded_fields_of(demand.predicate):
        column = files.columns.get(field_id)
        if column is not None:
            unknown |= ~column.bounded & (column.nulls < files.records)
    return unknown


def _stratified(situation: Situation, rows: Int64, limit: int) -> Int64:
    """Return evenly spaced files, ordered by partition and by the column with the greatest
    saving."""
    if len(rows) <= limit:
        return rows.astype(np.int64)
    rank = _midpoint_rank(situation.table, _leading_column(situation))[rows]
    order = rows[np.lexsort((rows, rank, situation.table.partition[rows]))]
    place = ((np.arange(limit) + 0.5) * len(order) / limit).astype(np.int64)
    return np.sort(order[place])


def _leading_column(situation: Situation) -> int:
    """Return the filtered column with the greatest saving, split equally over each query's
    columns."""
    from reconciler.queries.demanded import predicate_columns

    total: dict[int, float] = {}
    for number, demand in enumerate(situation.expected.demands):
        columns = predicate_columns(demand.predicate, situation.table.schema)
        for column in columns:
            share = float(situation.expected.savings.by_shape[number].sum()) / len(columns)
            total[column] = total.get(column, 0.0) + share
    return max(sorted(total), key=lambda c: total[c]) if total else -1


def _midpoint_rank(table: FileTable, field_id: int) -> Int64:
    """Return the rank of each file by the middle of its bounds; for bytes by the sum of the two
    ranks.
    """
    column = table.columns.get(field_id)
    if column is None:
        return np.zeros(len(table), dtype=np.int64)
    if column.kind is Kind.BYTES:
        low = np.unique(column.lower, return_inverse=True)[1].reshape(-1).astype(np.int64)
        high = np.unique(column.upper, return_inverse=True)[1].reshape(-1).astype(np.int64)
        middle = (low + high).astype(np.float64)
    else:
        middle = column.lower.astype(np.float64) / 2.0 + column.upper.astype(np.float64) / 2.0
    middle = np.where(column.bounded, middle, np.inf)
    return np.unique(middle, return_inverse=True)[1].reshape(-1).astype(np.int64)
