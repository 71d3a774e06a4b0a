"""What a single query's scan of a table opens, and which of its conditions rules out which file.

For `explain --query`: the pruning oracle applied condition by condition, so that a person sees why
a file has to be read. Decisions do not use it; they evaluate whole batches (`core.cost`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reconciler.core.filetable import Bool, FileTable
from reconciler.core.leaves import SlotLiterals
from reconciler.core.predicate import TRUE, And, Predicate, fields_of, push_not
from reconciler.core.pruning import contained, may_match, partitions_of, simplify


@dataclass(frozen=True, slots=True)
class ConditionEffect:
    """One condition of a conjunction. Arrays have shape [files].

    by_partition, by_bounds: files that it rules out by their partition values or by their bounds;
    certain: every row of the file meets it; unbounded: a column of it has no bounds there.
    """

    condition: Predicate
    by_partition: Bool
    by_bounds: Bool
    certain: Bool
    unbounded: Bool

    @property
    def rules_out(self) -> Bool:
        return self.by_partition | self.by_bounds


@dataclass(frozen=True, slots=True)
class Scan:
    """conditions: what must all hold, in the query's order. read: bool[files], it is opened."""

    conditions: tuple[ConditionEffect, ...]
    read: Bool


def explain_scan(files: FileTable, predicate: Predicate, literals: Sequence[SlotLiterals]) -> Scan:
    """One query against one snapshot. literals: per slot an array (In: a tuple) of one query."""
    effects = tuple(
        _effect(files, condition, literals)
        for condition in conditions_of(simplify(push_not(predicate), files.schema))
    )
    read = files.records != 0
    for effect in effects:
        read = read & ~effect.rules_out
    return Scan(effects, read)


def conditions_of(predicate: Predicate) -> tuple[Predicate, ...]:
    """The children of a conjunction, however nested; nothing for TRUE."""
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
