"""Finds the rows that satisfy a predicate, for a batch of literal settings of one shape at once.

Used by sampling, utilization and the what-if. SQL's three-valued logic is reduced to "is true":
NULL satisfies only IS NULL, NaN only IS NaN, != and NOT IN; NOT is pushed onto the leaves first, as
in Iceberg. Byte strings that differ only in trailing NULs are equal (see `values`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from reconciler.queries import transforms
from reconciler.queries.literal_ranges import may_hold, points
from reconciler.queries.predicate import Predicate, fields_of
from reconciler.queries.predicate_batch import (
    Leaf,
    SlotLiterals,
    Test,
    always,
    count_queries,
    evaluate,
    per_file,
)
from reconciler.table.filetable import Array, Bool
from reconciler.table.schema import Schema


def matches(
    predicate: Predicate,
    literals: Sequence[SlotLiterals],
    values: Mapping[int, Array],
    null: Mapping[int, Bool],
    *,
    schema: Schema | None = None,
    queries: int | None = None,
) -> Bool:
    """Return bool[queries, rows]: the predicate is true for the row.

    values: by field id, the column's domain, [rows]; null: by field id, a missing entry has no
    nulls. A column that is not given (not sampled) satisfies every condition, so that a row is
    never lost. schema: needed only to apply partition transforms in the predicate; without it
    conditions on a transform are true. queries: needed only if the predicate has no slot.
    """
    rows = _row_count(predicate, values)
    count = count_queries(predicate, literals, queries)

    def compile_leaf(leaf: Leaf) -> Test:
        field_id = leaf.ref.field_id
        if field_id not in values:
            return always(True)
        column = values[field_id]
        missing = null.get(field_id, np.zeros(rows, dtype=np.bool_))
        if leaf.ref.transform == "void":
            missing = np.ones(rows, dtype=np.bool_)
        elif leaf.ref.transform != "identity":
            field = schema.by_id.get(field_id) if schema else None
            if field is None or not transforms.known(leaf.ref.transform):
                return always(True)
            column = transforms.apply(leaf.ref.transform, field.type, column)
        return _leaf_test(leaf, literals, column, missing)

    return evaluate(predicate, compile_leaf, count, rows)


def _leaf_test(leaf: Leaf, literals: Sequence[SlotLiterals], column: Array, missing: Bool) -> Test:
    if leaf.op in ("null", "not null"):
        return per_file(missing if leaf.op == "null" else ~missing)
    if leaf.op in ("nan", "not nan"):
        nan = np.isnan(column) & ~missing if column.dtype.kind == "f" else np.zeros_like(missing)
        return per_file(nan if leaf.op == "nan" else ~nan)
    return may_hold(leaf.op, literals[leaf.slot], points(column, missing))


def _row_count(predicate: Predicate, values: Mapping[int, Array]) -> int:
    for field_id in fields_of(predicate):
        if field_id in values:
            return len(values[field_id])
    return len(next(iter(values.values()))) if values else 0
