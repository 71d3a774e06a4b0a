"""Predicts which files or row groups an engine would read for which queries.

All literals of one shape are tested against all zone maps at once, for observation, the cost model
and every what-if. It predicts Iceberg, so it keeps what Iceberg keeps:

- `may_match` is the inclusive metrics evaluator. != and NOT IN never prune; IN lists of more than
  200 values prune only files without a value; NOT LIKE 'x%' prunes only if the null count is
  missing (as in pyiceberg); counts and bounds that are missing, or NaN, never prune; NULL and NaN
  prune only if the counts show that nothing else is there.
- Partition values are tested with the inclusive projection of each condition through each
  transform of the file's own spec, once per distinct partition.
- `contained` is the strict counterpart: every row certainly matches. It requires more than
  Iceberg's strict evaluator: a missing null or NaN count proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from reconciler.queries import transforms
from reconciler.queries.literal_ranges import Intervals, may_hold, points
from reconciler.queries.predicate import (
    FALSE,
    TRUE,
    Always,
    And,
    IsNaN,
    IsNull,
    Not,
    Or,
    Predicate,
    fields_of,
)
from reconciler.queries.predicate_batch import (
    CHUNK_CELLS,
    COMPLEMENT,
    NEGATIVE,
    Leaf,
    SlotLiterals,
    Test,
    always,
    conjunction,
    count_queries,
    evaluate,
    per_file,
)
from reconciler.queries.shape import Shape
from reconciler.table.filetable import Array, Bool, ColumnBounds, FileTable, Int64
from reconciler.table.schema import PartitionField, PartitionSpec, Schema
from reconciler.table.values import Kind

IN_LIMIT = 200
"""Iceberg does not look into longer IN lists."""


@dataclass(frozen=True)
class Partitions:
    """Partition values of n files or row groups."""

    schema: Schema
    """Schema of the table."""
    specs: Mapping[int, PartitionSpec]
    """Partition specs of the table, by id."""
    values: tuple[tuple[int, tuple[object, ...]], ...]
    """The distinct (spec id, partition values)."""
    index: Array
    """int64[n]: index into `values` of each file or row group."""

    @cached_property
    def by_spec(self) -> tuple[_SpecPartitions, ...]:
        spec_ids = np.array([spec_id for spec_id, _ in self.values], dtype=np.int64)
        return tuple(
            _spec_partitions(self, self.specs[number], np.flatnonzero(spec_ids == number))
            for number in np.unique(spec_ids).tolist()
            if number in self.specs
        )


@dataclass(frozen=True, slots=True)
class _SpecPartitions:
    """The partitions of one spec."""

    spec: PartitionSpec
    """The partition spec."""
    members: Int64
    """int64[members]: their indexes in `Partitions.values`."""
    columns: tuple[tuple[Array, Bool] | None, ...]
    """Per field of the spec, its values in their domain and which are NULL, both [members]. None if
    the field is not usable (void, unknown transform, dropped source column)."""


def partitions_of(table: FileTable) -> Partitions | None:
    """Return the table's partition values, None if no file is partitioned."""
    if all(spec.unpartitioned for spec in table.specs.values()):
        return None
    if "partitions" not in table.derived:
        table.derived["partitions"] = Partitions(
            table.schema, table.specs, table.partitions, table.partition
        )
    found: Partitions = table.derived["partitions"]
    return found


def prune(shape: Shape, table: FileTable) -> Bool:
    """Return bool[queries, files]: the engine would read the file."""
    if shape.full_scan:
        return np.ones((len(shape), len(table)), dtype=np.bool_)
    return may_match(
        simplify(shape.predicate, table.schema),
        shape.literals,
        table.columns,
        table.records,
        partitions=partitions_of(table),
        schema=table.schema,
        queries=len(shape),
    )


def may_match(
    predicate: Predicate,
    literals: Sequence[SlotLiterals],
    columns: Mapping[int, ColumnBounds],
    records: Int64,
    *,
    partitions: Partitions | None = None,
    schema: Schema | None = None,
    queries: int | None = None,
) -> Bool:
    """Return bool[queries, n]: the file (or row group) may hold a matching row.

    literals: per slot an array [queries] in the column's domain, for In a tuple of tuples. Byte
    strings that end in NUL must come as an object array, because numpy strips them. columns: zone
    maps by field id, [n]; a column that is missing never prunes. records: int64[n], negative if
    unknown. schema: to transform bounds for conditions on a partition transform; without it those
    never prune. queries: needed only if the predicate has no slot.
    """
    count = count_queries(predicate, literals, queries)

    def compile_leaf(leaf: Leaf) -> Test:
        column = _transformed(leaf, columns, schema)
        return (
            _unjudged(leaf, literals) if column is None else _inclusive_leaf(leaf, literals, column)
        )

    result = evaluate(predicate, compile_leaf, count, len(records))
    result &= (records != 0)[None, :]
    result |= (records < 0)[None, :]
    if partitions is not None:
        _and_partitions(result, predicate, literals, partitions)
    return result


def contained(
    predicate: Predicate,
    literals: Sequence[SlotLiterals],
    columns: Mapping[int, ColumnBounds],
    records: Int64,
    *,
    schema: Schema | None = None,
    queries: int | None = None,
) -> Bool:
    """Return bool[queries, n]: every row of the file (or row group) certainly matches.

    Arguments as in `may_match`. A row matches if the predicate is true for it, so a file with a
    NULL in the column is inside no comparison. Empty files are inside everything.
    """
    count = count_queries(predicate, literals, queries)

    def compile_leaf(leaf: Leaf) -> Test:
        column = _transformed(leaf, columns, schema)
        if column is None:
            return always(False)
        return _strict_leaf(leaf, literals, _with_required(column, schema))

    result = evaluate(predicate, compile_leaf, count, len(records))
    result &= (records >= 0)[None, :]
    result |= (records == 0)[None, :]
    return result


def simplify(predicate: Predicate, schema: Schema) -> Predicate:
    """Return the predicate with constants for what the schema decides, as Iceberg does.

    That is IS NULL of a required column, and IS NAN of a column that is no float.
    """
    if isinstance(predicate, Not):
        child = simplify(predicate.child, schema)
        return Always(not child.value) if isinstance(child, Always) else Not(child)
    if isinstance(predicate, (And, Or)):
        children = tuple(simplify(child, schema) for child in predicate.children)
        return And(children) if isinstance(predicate, And) else Or(children)
    if isinstance(predicate, IsNull) and _never_null(predicate.ref.field_id, schema):
        return TRUE if predicate.ref.transform == "void" else FALSE
    if isinstance(predicate, IsNaN):
        field = schema.by_id.get(predicate.ref.field_id)
        if field is not None and field.kind is not None and field.kind is not Kind.FLOAT:
            return FALSE
    return predicate


def _inclusive_leaf(leaf: Leaf, literals: Sequence[SlotLiterals], column: ColumnBounds) -> Test:
    """Return Iceberg's InclusiveMetricsEvaluator for one condition."""
    nulls_only = (column.values > 0) & (column.nulls == column.values)
    nans_only = (column.nans > 0) & (column.nans == column.values)
    if leaf.op == "null":
        return per_file(column.nulls != 0)
    if leaf.op == "not null":
        return per_file(~nulls_only)
    if leaf.op == "nan":
        if column.kind is not Kind.FLOAT:
            return always(False)
        return per_file((column.nans != 0) & ~nulls_only)
    if leaf.op == "not nan":
        return per_file(~nans_only)
    if leaf.op in ("!=", "not in"):
        return always(True)
    if leaf.op == "not starts":
        unknown = replace(column, has_lower=column.has_lower & (column.nulls < 0))
        none = np.zeros_like(nulls_only)
        return may_hold(leaf.op, literals[leaf.slot], _intervals(unknown, none, none))
    over = intervals_of(leaf.op, column)
    return may_hold(leaf.op, literals[leaf.slot], over, in_limit=IN_LIMIT)


def intervals_of(op: str, column: ColumnBounds) -> Intervals:
    """Return what files may hold of a column as intervals, for a comparison or another condition
    that a value fails or meets."""
    nulls_only = (column.values > 0) & (column.nulls == column.values)
    nans_only = (column.nans > 0) & (column.nans == column.values)
    return _intervals(column, nulls_only | nans_only, nulls_only, op)


def _strict_leaf(leaf: Leaf, literals: Sequence[SlotLiterals], column: ColumnBounds) -> Test:
    """Return the strict test: every row matches if no value can meet the complement and no NULL or
    NaN is there."""
    nulls_only = (column.values > 0) & (column.nulls == column.values)
    nans_only = (column.nans > 0) & (column.nans == column.values)
    no_nulls = column.nulls == 0
    no_nans = (column.nans == 0) | (column.kind is not Kind.FLOAT)
    if leaf.op == "null":
        return per_file(nulls_only)
    if leaf.op == "not null":
        return per_file(no_nulls)
    if leaf.op == "nan":
        return per_file(nans_only)
    if leaf.op == "not nan":
        return per_file(no_nans | nulls_only)
    certain = no_nulls if leaf.op in NEGATIVE else no_nulls & no_nans
    over = _intervals(column, nulls_only | nans_only, nulls_only, "=")
    if leaf.op in ("=", "in", "starts"):
        certain = certain & over.has_lower & over.has_upper
    complement = may_hold(COMPLEMENT[leaf.op], literals[leaf.slot], over)
    return lambda chunk: ~complement(chunk) & certain


def _intervals(column: ColumnBounds, valueless: Bool, null_only: Bool, op: str = "") -> Intervals:
    """Return zone maps as intervals. A NaN bound means that the bounds are not reliable."""
    lower, upper = column.has_lower, column.has_upper
    if column.kind is Kind.FLOAT:
        unreliable = lower & np.isnan(column.lower)
        lower = lower & ~unreliable
        upper = upper & ~np.isnan(column.upper)
        if op in ("=", "in"):
            upper = upper & ~unreliable
    return Intervals(column.lower, column.upper, lower, upper, valueless, null_only)


def _transformed(
    leaf: Leaf, columns: Mapping[int, ColumnBounds], schema: Schema | None
) -> ColumnBounds | None:
    """Return the column's zone map under an order-preserving transform, None if not usable.

    Other transforms keep the counts, because every transform except void keeps NULL and values
    apart.
    """
    column = columns.get(leaf.ref.field_id)
    transform = leaf.ref.transform
    if column is None or transform == "identity":
        return column
    field = schema.by_id.get(leaf.ref.field_id) if schema else None
    if field is None or transform == "void" or not transforms.known(transform):
        return None
    if not transforms.preserves_order(transform):
        none = np.zeros(len(column.has_lower), dtype=np.bool_)
        kind = transforms.result_kind(transform, field.type) or column.kind
        blank = np.zeros(len(none), dtype=np.int64)
        return replace(column, kind=kind, lower=blank, upper=blank, has_lower=none, has_upper=none)
    return replace(
        column,
        lower=transforms.apply(transform, field.type, column.lower),
        upper=transforms.apply(transform, field.type, column.upper),
    )


def _never_null(field_id: int, schema: Schema) -> bool:
    """Whether the field is required and not inside a struct, which may itself be null."""
    field = schema.by_id.get(field_id)
    return field is not None and field.required and "." not in field.name


def _with_required(column: ColumnBounds, schema: Schema | None) -> ColumnBounds:
    if schema is None or not _never_null(column.field_id, schema):
        return column
    return replace(column, nulls=np.where(column.nulls < 0, 0, column.nulls))


def _and_partitions(
    result: Bool, predicate: Predicate, literals: Sequence[SlotLiterals], partitions: Partitions
) -> None:
    """Clear the result where the file's partition values exclude a match."""
    kept = _partitions_may_match(predicate, literals, partitions, len(result))
    if kept is None:
        return
    step = max(1, CHUNK_CELLS // max(result.shape[1], 1))
    for start in range(0, len(result), step):
        chunk = slice(start, start + step)
        result[chunk] &= kept[chunk].take(partitions.index, axis=1)


def _partitions_may_match(
    predicate: Predicate,
    literals: Sequence[SlotLiterals],
    partitions: Partitions,
    queries: int,
) -> Bool | None:
    """Return bool[queries, distinct partitions], None if no spec partitions by a filtered
    column."""
    filtered = set(fields_of(predicate))
    kept: Bool | None = None
    for part in partitions.by_spec:
        if not any(one.source_id in filtered for one in part.spec.fields):
            continue
        if kept is None:
            kept = np.ones((queries, len(partitions.values)), dtype=np.bool_)
        kept[:, part.members] = _spec_may_match(
            predicate, literals, partitions.schema, part, queries
        )
    return kept


def _spec_may_match(
    predicate: Predicate,
    literals: Sequence[SlotLiterals],
    schema: Schema,
    part: _SpecPartitions,
    queries: int,
) -> Bool:
    def compile_leaf(leaf: Leaf) -> Test:
        tests = [
            _projected_leaf(leaf, literals, schema, one, *column)
            for one, column in zip(part.spec.fields, part.columns, strict=True)
            if one.source_id == leaf.ref.field_id and column is not None
        ]
        return conjunction([_unjudged(leaf, literals), *tests])

    return evaluate(predicate, compile_leaf, queries, len(part.members))


def _unjudged(leaf: Leaf, literals: Sequence[SlotLiterals]) -> Test:
    """Return the test for an unknown column: only an empty IN list certainly matches nothing."""
    if leaf.op != "in":
        return always(True)
    filled = np.array([len(members) > 0 for members in literals[leaf.slot]], dtype=np.bool_)
    return lambda chunk: filled[chunk, None]


def _projected_leaf(
    leaf: Leaf,
    literals: Sequence[SlotLiterals],
    schema: Schema,
    part: PartitionField,
    values: Array,
    null: Bool,
) -> Test:
    """Return the test of one condition on one partition field; a condition on the same transform
    applies unchanged."""
    literal = literals[leaf.slot] if leaf.slot >= 0 else None
    if leaf.ref.transform == part.transform:
        condition: tuple[str, SlotLiterals | None] | None = (leaf.op, literal)
    elif leaf.ref.transform == "identity":
        source_type = schema.by_id[part.source_id].type
        condition = transforms.project(leaf.op, literal, part.transform, source_type)
    else:
        condition = None
    return always(True) if condition is None else _point_test(*condition, values, null)


def _spec_partitions(
    partitions: Partitions, spec: PartitionSpec, members: Int64
) -> _SpecPartitions:
    rows = [partitions.values[i][1] for i in members.tolist()]
    columns: list[tuple[Array, Bool] | None] = []
    for place, part in enumerate(spec.fields):
        field = partitions.schema.by_id.get(part.source_id)
        kind = transforms.result_kind(part.transform, field.type) if field else None
        if kind is None:
            columns.append(None)
            continue
        null = np.array([row[place] is None for row in rows], dtype=np.bool_)
        filled = [_ZERO[kind] if row[place] is None else row[place] for row in rows]
        columns.append((np.array(filled, dtype=_DTYPE[kind]), null))
    return _SpecPartitions(spec, members, tuple(columns))


_ZERO: dict[Kind, object] = {Kind.INT: 0, Kind.FLOAT: 0.0, Kind.BYTES: b""}
_DTYPE: dict[Kind, type] = {Kind.INT: np.int64, Kind.FLOAT: np.float64, Kind.BYTES: np.bytes_}


def _point_test(op: str, literal: SlotLiterals | None, values: Array, null: Bool) -> Test:
    """Return Iceberg's evaluation of a partition value: != and NOT IN are true for NULL there."""
    if op in ("null", "not null"):
        return per_file(null if op == "null" else ~null)
    if op in ("nan", "not nan"):
        nan = np.isnan(values) & ~null if values.dtype.kind == "f" else np.zeros_like(null)
        return per_file(nan if op == "nan" else ~nan)
    assert literal is not None
    return may_hold(op, literal, replace(points(values, null), null_only=np.zeros_like(null)))
