"""The pruning oracle equals Iceberg's evaluators and never drops a file with a matching row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions.visitors import (
    _InclusiveMetricsEvaluator,
    _StrictMetricsEvaluator,
    expression_evaluator,
    inclusive_projection,
    manifest_evaluator,
)
from pyiceberg.manifest import ManifestFile, PartitionFieldSummary
from pyiceberg.partitioning import PartitionField as IcebergPartitionField
from pyiceberg.partitioning import PartitionSpec as IcebergSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record

from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.moving_literals import resolve_moving
from reconciler.queries.predicate import (
    FALSE,
    TRUE,
    And,
    Comparison,
    In,
    IsNaN,
    IsNull,
    Not,
    Or,
    Ref,
    StartsWith,
)
from reconciler.queries.pruning import Partitions, contained, may_match, prune, simplify
from reconciler.table.filetable import ColumnBounds
from reconciler.table.schema import Field, PartitionField, PartitionSpec, Schema
from reconciler.table.values import Kind
from tests.encoding import encode
from tests.examples import examples
from tests.queries.iceberg_twin import data_file, expression, iceberg_schema, iceberg_type
from tests.queries.worlds import (
    DOMAINS,
    World,
    batched,
    columns_of,
    file_table,
    holds,
    outward,
    predicates,
    records_of,
    settings_of,
    worlds,
)

# pyiceberg cannot compare a UUID bound with a UUID literal, nor write a nanosecond literal.
EXPRESSIBLE = tuple(kind for kind in DOMAINS if kind not in ("uuid", "timestamp_ns"))


@st.composite
def cases(draw: st.DrawFn, types: tuple[str, ...] = tuple(DOMAINS)) -> tuple[Any, ...]:
    world = draw(worlds(types))
    predicate, slots = draw(predicates(world.schema))
    queries = draw(settings_of(world.schema, slots))
    return world, predicate, slots, queries


@settings(max_examples=examples(300), deadline=None)
@given(cases(EXPRESSIBLE))
def test_metrics_pruning_equals_pyicebergs_inclusive_evaluator(case: tuple[Any, ...]) -> None:
    world, predicate, slots, queries = case
    result = may_match(
        simplify(predicate, world.schema),
        batched(queries, world.schema, slots),
        columns_of(world),
        records_of(world),
        queries=len(queries),
    )
    schema = iceberg_schema(world.schema)
    for q, literals in enumerate(queries):
        theirs = _InclusiveMetricsEvaluator(schema, expression(predicate, literals, world.schema))
        expected = [theirs.eval(data_file(world, f)) for f in range(len(world.files))]
        assert result[q].tolist() == expected


@settings(max_examples=examples(300), deadline=None)
@given(cases())
def test_pruning_never_drops_a_file_with_a_matching_row(case: tuple[Any, ...]) -> None:
    world, predicate, slots, queries = case
    literals = batched(queries, world.schema, slots)
    kept = may_match(
        predicate, literals, columns_of(world), records_of(world), queries=len(queries)
    )
    inside = contained(
        predicate, literals, columns_of(world), records_of(world), queries=len(queries)
    )
    ids = [field.field_id for field in world.schema.fields]
    for q, setting in enumerate(queries):
        for f, rows in enumerate(world.files):
            matching = [holds(predicate, setting, dict(zip(ids, row, strict=True))) for row in rows]
            assert kept[q, f] or not any(matching)
            assert not inside[q, f] or all(matching)


@settings(max_examples=examples(300), deadline=None)
@given(cases(EXPRESSIBLE))
def test_containment_claims_all_that_pyiceberg_claims_where_counts_prove_it(
    case: tuple[Any, ...],
) -> None:
    """With no NULL and known counts, every file that Iceberg's strict evaluator takes is taken."""
    world, predicate, slots, queries = case
    world = World(
        world.schema,
        [[row for row in rows if None not in row] for rows in world.files],
        [dict.fromkeys(missing, frozenset()) for missing in world.missing],
        world.truncate,
    )
    result = contained(
        simplify(predicate, world.schema),
        batched(queries, world.schema, slots),
        columns_of(world),
        records_of(world),
        queries=len(queries),
    )
    schema = iceberg_schema(world.schema)
    for q, literals in enumerate(queries):
        theirs = _StrictMetricsEvaluator(schema, expression(predicate, literals, world.schema))
        for f in range(len(world.files)):
            assert result[q, f] or not theirs.eval(data_file(world, f))


TRANSFORMS = {
    "int": ["identity", "bucket[3]", "truncate[2]", "void"],
    "long": ["identity", "bucket[5]", "truncate[3]"],
    "double": ["identity"],
    "date": ["identity", "year", "month", "day", "bucket[4]", "void"],
    "timestamp": ["identity", "year", "month", "day", "hour", "bucket[4]"],
    "timestamptz": ["day", "hour", "month"],
    "string": ["identity", "truncate[1]", "truncate[2]", "bucket[3]"],
    "binary": ["identity", "truncate[1]", "bucket[3]"],
    "decimal(9, 2)": ["identity", "truncate[50]", "bucket[3]"],
    "decimal(25, 3)": ["identity", "truncate[1000]", "bucket[3]"],
}


@st.composite
def partitioned(draw: st.DrawFn) -> tuple[Any, ...]:
    """A case whose files hold one partition each, with pyiceberg's own transformed values."""
    world, predicate, slots, queries = draw(cases(tuple(TRANSFORMS)))
    fields = []
    for number in range(draw(st.integers(1, 2))):
        field = draw(st.sampled_from(world.schema.fields))
        transform = draw(st.sampled_from(TRANSFORMS[field.type]))
        fields.append(PartitionField(field.field_id, 1000 + number, transform, f"p{number}"))
    files, values = [], []
    for rows in world.files:
        by_value: dict[tuple[Any, ...], list[Any]] = {}
        for row in rows:
            by_value.setdefault(partition_of(world.schema, fields, row), []).append(row)
        for value, members in by_value.items():
            values.append(value)
            files.append(members)
    missing = [world.missing[i % len(world.missing)] for i in range(len(files))]
    world = World(world.schema, files, missing, world.truncate)
    return world, predicate, slots, queries, PartitionSpec(1, tuple(fields)), values


def partition_of(schema: Schema, fields: list[PartitionField], row: Any) -> tuple[Any, ...]:
    """pyiceberg's partition values of a row, as pyiceberg has them."""
    places = {field.field_id: i for i, field in enumerate(schema.fields)}
    out = []
    for part in fields:
        kind = schema.by_id[part.source_id].type
        value = outward(kind, row[places[part.source_id]])
        if value is None or (value != value and part.transform != "identity"):
            out.append(None)
        else:
            out.append(parse_transform(part.transform).transform(iceberg_type(kind))(value))
    return tuple(out)


def inward(schema: Schema, spec: PartitionSpec, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Partition values in the reconciler's domain."""
    out = []
    for part, value in zip(spec.fields, values, strict=True):
        kind = schema.by_id[part.source_id].type
        same_type = part.transform == "identity" or part.transform.startswith("truncate")
        out.append(encode(kind, value) if same_type and value is not None else value)
    return tuple(out)


def manifest_of(struct: IcebergSchema, values: tuple[Any, ...]) -> ManifestFile:
    """A manifest that lists one file, so that its summaries are that file's partition values."""
    summaries = [
        PartitionFieldSummary(
            value is None,
            value is not None and value != value,
            None if value is None or value != value else to_bytes(field.field_type, value),
            None if value is None or value != value else to_bytes(field.field_type, value),
        )
        for field, value in zip(struct.fields, values, strict=True)
    ]
    return ManifestFile.from_args(partitions=summaries)


@settings(max_examples=examples(300), deadline=None)
@given(partitioned())
def test_partition_pruning_equals_pyicebergs_projection_and_never_drops_a_match(
    case: tuple[Any, ...],
) -> None:
    world, predicate, slots, queries, spec, values = case
    if not world.files:
        return
    table = file_table(world, spec, [inward(world.schema, spec, v) for v in values])
    kept = may_match(
        predicate,
        batched(queries, world.schema, slots),
        {},
        np.ones(len(table), dtype=np.int64),
        partitions=Partitions(table.schema, table.specs, table.partitions, table.partition),
        queries=len(queries),
    )
    schema = iceberg_schema(world.schema)
    theirs = IcebergSpec(
        *(
            IcebergPartitionField(p.source_id, p.field_id, parse_transform(p.transform), p.name)
            for p in spec.fields
        )
    )
    struct = IcebergSchema(*theirs.partition_type(schema).fields)
    ids = [field.field_id for field in world.schema.fields]
    for q, literals in enumerate(queries):
        projected = inclusive_projection(schema, theirs)(
            expression(predicate, literals, world.schema)
        )
        evaluator = expression_evaluator(struct, projected, True)
        manifests = manifest_evaluator(theirs, schema, projected)
        assert kept[q].tolist() == [
            manifests(manifest_of(struct, value)) and evaluator(Record(*value)) for value in values
        ]
        for f, rows in enumerate(world.files):
            if any(holds(predicate, literals, dict(zip(ids, r, strict=True))) for r in rows):
                assert kept[q, f]


ONE = np.ones(1, dtype=np.bool_)


def zone(lower: Any, upper: Any, *, kind: Kind = Kind.INT, **counts: int) -> Any:
    def count(name: str, default: int) -> Any:
        return np.array([counts.get(name, default)], dtype=np.int64)

    return ColumnBounds(
        1, kind, np.array([lower]), np.array([upper]), ONE, ONE,
        count("nulls", 0), count("nans", 0), count("values", 10), count("sizes", 1), ~ONE,
    )  # fmt: skip


RECORDS = np.array([10], dtype=np.int64)


def objects(*values: bytes) -> Any:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def test_a_literal_that_ends_in_nul_keeps_the_file_whose_bound_it_may_exceed() -> None:
    """numpy strips trailing NULs: 'a' < 'a\\0' holds although both look alike in an array."""
    column = {1: zone(b"a", b"a", kind=Kind.BYTES)}
    less = Comparison(Ref(1), "<", 0)
    assert may_match(less, [objects(b"a\0")], column, RECORDS).all()
    assert not may_match(less, [objects(b"a")], column, RECORDS).any()
    assert may_match(Not(StartsWith(Ref(1), 0)), [objects(b"a\0")], column, RECORDS).all()
    assert not contained(Comparison(Ref(1), "=", 0), [objects(b"a\0")], column, RECORDS).any()
    assert not contained(Comparison(Ref(1), ">=", 0), [objects(b"a\0")], column, RECORDS).any()
    assert not contained(In(Ref(1), 0), [((b"a\0",),)], column, RECORDS).any()


def test_an_in_list_above_icebergs_limit_prunes_only_files_without_a_value() -> None:
    many = (tuple(range(1000, 1201)), tuple(range(1000, 1200)))
    kept = may_match(In(Ref(1), 0), [many], {1: zone(0, 9)}, RECORDS)
    assert kept[:, 0].tolist() == [True, False]
    empty = may_match(In(Ref(1), 0), [many], {1: zone(0, 9, nulls=10)}, RECORDS)
    assert not empty.any()


def test_nan_bounds_are_not_trusted() -> None:
    nan = float("nan")
    equal = Comparison(Ref(1), "=", 0)
    column = {1: zone(nan, 1.0, kind=Kind.FLOAT)}
    assert may_match(equal, [np.array([5.0])], column, RECORDS).all()
    assert may_match(Comparison(Ref(1), "<", 0), [np.array([-5.0])], column, RECORDS).all()
    assert may_match(
        Comparison(Ref(1), ">", 0), [np.array([5.0])], {1: zone(0.0, nan, kind=Kind.FLOAT)}, RECORDS
    ).all()


def test_a_missing_null_count_proves_no_containment_unless_the_column_is_required() -> None:
    at_least = Comparison(Ref(1), ">=", 0)
    column = {1: zone(5, 9, nulls=-1)}
    literals = [np.array([0])]
    optional = Schema(0, (Field(1, "x", "int"),))
    required = Schema(0, (Field(1, "x", "int", required=True),))
    below_struct = Schema(0, (Field(1, "s.x", "int", required=True),))
    assert not contained(at_least, literals, column, RECORDS, schema=optional).any()
    assert contained(at_least, literals, column, RECORDS, schema=required).all()
    assert not contained(at_least, literals, column, RECORDS, schema=below_struct).any()


def test_unknown_record_counts_keep_and_empty_files_drop() -> None:
    column = zone(5, 9).take(np.array([0, 0, 0]))
    records = np.array([-1, 0, 3], dtype=np.int64)
    kept = may_match(Comparison(Ref(1), "<", 0), [np.array([0, 100])], {1: column}, records)
    assert kept.tolist() == [[True, False, False], [True, False, True]]


def test_conditions_on_a_transform_use_bounds_and_the_partition_of_that_transform() -> None:
    schema = Schema(0, (Field(1, "d", "date"),))
    spec = PartitionSpec(0, (PartitionField(1, 1000, "bucket[8]", "b"),))
    parts = Partitions(schema, {0: spec}, ((0, (3,)), (0, (4,))), np.array([0, 1]))
    records = np.array([5, 5], dtype=np.int64)
    month = Comparison(Ref(1, "month"), "=", 0)
    column = zone(31, 58).take(np.array([0, 0]))
    kept = may_match(month, [np.array([0, 1, 2])], {1: column}, records, schema=schema)
    assert kept[:, 0].tolist() == [False, True, False]
    bucket = Comparison(Ref(1, "bucket[8]"), "=", 0)
    kept = may_match(bucket, [np.array([3])], {1: column}, records, schema=schema, partitions=parts)
    assert kept.tolist() == [[True, False]]
    other = Comparison(Ref(1, "bucket[4]"), "=", 0)
    assert may_match(
        other, [np.array([3])], {1: column}, records, schema=schema, partitions=parts
    ).all()


def test_is_null_of_a_required_column_and_is_nan_of_an_integer_are_false() -> None:
    schema = Schema(0, (Field(1, "x", "int", required=True), Field(2, "y", "int")))
    assert simplify(IsNull(Ref(1)), schema) == FALSE
    assert simplify(Not(IsNull(Ref(1))), schema) == TRUE
    assert simplify(IsNull(Ref(2)), schema) == IsNull(Ref(2))
    both = simplify(And((IsNaN(Ref(2)), Or((IsNull(Ref(1)), IsNull(Ref(2)))))), schema)
    assert both == And((FALSE, Or((FALSE, IsNull(Ref(2))))))


def moving_batch(kind: str, offset: int, at_ms: int) -> tuple[Any, Schema]:
    schema = Schema(0, (Field(1, "t", kind), Field(2, "x", "int")))
    predicate = And((Comparison(Ref(1), ">=", 0), Comparison(Ref(2), "=", 1)))
    fragment = Fragment(
        "log", 0, "uuid", predicate, (0, 7), (offset, None), (1, 2), 1.0, at_ms, "trino"
    )
    return workload_of_fragments([fragment]).shapes[0], schema


@pytest.mark.parametrize(
    ("kind", "offset", "expected"),
    [
        ("date", -7, 20_000 - 7),
        ("timestamp", -3_600_000_000, 20_000 * 86_400_000_000 + 5_000 - 3_600_000_000),
        ("timestamptz_ns", 1, 20_000 * 86_400_000_000_000 + 5_000_000 + 1),
        ("int", -7, 0),
    ],
)
def test_moving_literals_follow_the_time_in_the_columns_unit(
    kind: str, offset: int, expected: int
) -> None:
    batch, schema = moving_batch(kind, offset, 0)
    moved = resolve_moving(batch, schema, 20_000 * 86_400_000 + 5)
    assert moved[0].tolist() == [expected]
    assert moved[1].tolist() == [7]


@settings(max_examples=examples(50), deadline=None)
@given(cases())
def test_one_batch_gives_what_its_queries_give_alone(case: tuple[Any, ...]) -> None:
    world, predicate, _, queries = case
    fragments = [
        Fragment("log", i, "u", predicate, tuple(q), (None,) * len(q), (1,), 1.0, i, "spark")
        for i, q in enumerate(queries)
    ]
    table = file_table(world, PartitionSpec(0), [()] * len(world.files))
    together = prune(workload_of_fragments(fragments).shapes[0], table)
    for i, fragment in enumerate(fragments):
        alone = prune(workload_of_fragments([fragment]).shapes[0], table)
        assert alone[0].tolist() == together[i].tolist()
