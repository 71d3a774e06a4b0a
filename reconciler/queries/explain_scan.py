"""Explains which files one query's scan opens, and which of its conditions excludes which file.

For `explain --query`: pruning is applied condition by condition, to show why a file has to be read.
A recorded shape is represented by one query: the median by files opened. Decisions do not use this
module; they evaluate whole batches (`queries.read_cost`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reconciler.queries.predicate import TRUE, And, Predicate, fields_of, push_not
from reconciler.queries.predicate_batch import SlotLiterals
from reconciler.queries.pruning import contained, may_match, partitions_of, prune, simplify
from reconciler.queries.read_shares import BLOCK_CELLS
from reconciler.queries.shape import Shape
from reconciler.table.filetable import Bool, FileTable

MOST_QUERIES = 256
"""Maximum queries of a shape of which the median is taken: representative, and fast enough."""


@dataclass(frozen=True, slots=True)
class ConditionEffect:
    """The effect of one condition of a conjunction. Arrays have shape [files]."""

    condition: Predicate
    """The condition."""
    by_partition: Bool
    """bool[files]: whether the partition values exclude the file."""
    by_bounds: Bool
    """bool[files]: whether the bounds exclude the file."""
    certain: Bool
    """bool[files]: whether every row of the file meets the condition."""
    unbounded: Bool
    """bool[files]: whether a column of the condition has no bounds in the file."""

    @property
    def rules_out(self) -> Bool:
        return self.by_partition | self.by_bounds


@dataclass(frozen=True, slots=True)
class ExplainedScan:
    """Which files a query opens, and which condition excludes which file."""

    conditions: tuple[ConditionEffect, ...]
    """The conditions in the query's order; all must be true."""
    read: Bool
    """bool[files]: whether the file is opened."""


def explain_scan(
    files: FileTable, predicate: Predicate, literals: Sequence[SlotLiterals]
) -> ExplainedScan:
    """Explain one query against one snapshot. literals: per slot an array (In: a tuple) of one
    query."""
    effects = tuple(
        _effect(files, condition, literals)
        for condition in conditions_of(simplify(push_not(predicate), files.schema))
    )
    read = files.records != 0
    for effect in effects:
        read = read & ~effect.rules_out
    return ExplainedScan(effects, read)


def median_of(files: FileTable, demand: Shape) -> Shape:
    """Return the query of the shape that opens the median number of files, queries by weight.

    Of more than MOST_QUERIES, only evenly spaced ones in their order (by time, as recorded) are
    used.
    """
    if not demand.prunable:
        return demand.take(slice(0, 1))
    spread = np.linspace(0, len(demand) - 1, min(len(demand), MOST_QUERIES)).astype(np.int64)
    asked = demand.take(spread)
    step = max(1, BLOCK_CELLS // max(len(files), 1))
    opened = np.concatenate([
        np.count_nonzero(prune(asked.take(slice(start, start + step)), files), axis=1)
        for start in range(0, len(asked), step)
    ])  # fmt: skip
    order = np.argsort(opened, kind="stable")
    below = np.cumsum(asked.weight[order])
    middle = int(order[np.searchsorted(below, below[-1] / 2.0)])
    return asked.take(slice(middle, middle + 1))


def conditions_of(predicate: Predicate) -> tuple[Predicate, ...]:
    """Return the children of a conjunction, however nested; nothing for TRUE."""
    if isinstance(predicate, And):
        return tuple(one for child in predicate.children for one in conditions_of(child))
    return () if predicate == TRUE else (predicate,)


def _effect(
    files: FileTable, condition: Predicate, literals: Sequence[SlotLiterals]
) -> ConditionEffect:
    by_bounds = may_match(
        condition, literals, files.columns, files.records, schema=files.schema, queries=1
    )[0]
    both = may_match(
        condition, literals, files.columns, files.records,
        partitions=partitions_of(files), schema=files.schema, queries=1,
    )[0]  # fmt: skip
    certain = contained(
        condition, literals, files.columns, files.records, schema=files.schema, queries=1
    )[0]
    unbounded = np.zeros(len(files), dtype=np.bool_)
    for field_id in fields_of(condition):
        column = files.columns.get(field_id)
        unbounded |= True if column is None else ~column.bounded
    return ConditionEffect(condition, by_bounds & ~both, ~by_bounds, certain, unbounded)
