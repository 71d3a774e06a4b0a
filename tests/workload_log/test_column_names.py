"""A column is found by its name, whatever characters are in it, in every dialect."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.types import LongType, NestedField, StringType, StructType

from reconciler.catalog.metadata import schema_of
from reconciler.queries.predicate import fields_of, render
from reconciler.table.schema import Field, Schema
from reconciler.workload_log.constants import Binding
from reconciler.workload_log.spark_filters import read_filters
from reconciler.workload_log.sql import SqlReader, TableRead
from reconciler.workload_log.tables import KnownTable, SchemaMap
from reconciler.workload_log.unknown_columns import unknown_columns
from tests.examples import examples

QUOTES = {
    **dict.fromkeys(("trino", "duckdb", "snowflake", "postgres", "redshift", "presto"), ('"', '"')),
    **dict.fromkeys(("spark", "hive", "databricks", "mysql", "clickhouse"), ("`", "`")),
    "tsql": ("[", "]"),
}
NAMES = [
    "service.name", "a.b", "a b", "a.b.c", ".", "a.", ".a", 'we"ird', "we`ird", "it's", "select",
    "größe", "列", "ID", "x-y", "a,b", "a/*b", "--c", "sum(x)", "1st", "$x", "a  b", "null",
]  # fmt: skip
characters = st.text("ab.B \"'-_(é0", min_size=1, max_size=6).filter(lambda s: s.strip() == s)
names = st.one_of(st.sampled_from(NAMES), characters)


def quoted(name: str, dialect: str) -> str:
    left, right = QUOTES[dialect]
    return left + name.replace(right, right * 2) + right


def table_of(*fields: NestedField) -> KnownTable:
    """Made by pyiceberg, so that the names go the way of a real table's."""
    from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
    from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

    metadata = new_table_metadata(
        IcebergSchema(*fields), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///t", {}
    )
    return KnownTable("uuid-t", "cat.db.t", schema_of(metadata))


def demand(table: KnownTable, dialect: str, sql: str) -> TableRead:
    reader = SqlReader(dialect, SchemaMap({("cat", "db", "t"): table}))
    found = reader.extract(sql, 1_772_359_200_000)
    assert isinstance(found, list), (found, sql)
    (only,) = found
    return only


PREDICATES = ["{c} = 7", "{c} >= 3 AND {c} < 9", "{c} IN (1, 2)", "{c} IS NULL", "t.{c} > 5",
              "{c} BETWEEN 1 AND 2 OR {c} = 9", "NOT {c} = 1"]  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(names, st.sampled_from(sorted(QUOTES)), st.sampled_from(PREDICATES), st.booleans())
@example("service.name", "trino", "{c} = 7", False)
@example("service.name", "spark", "{c} = 7", True)
def test_a_condition_reaches_the_column_of_its_name(
    name: str, dialect: str, predicate: str, derived: bool
) -> None:
    assume(name.lower() != "v" and not (dialect in ("mysql", "bigquery") and name.endswith(" ")))
    table = table_of(
        NestedField(1, "v", LongType()), NestedField(2, name, LongType(), required=False)
    )
    column = quoted(name, dialect)
    inner = f"(SELECT v, {column} FROM cat.db.t) t" if derived else "cat.db.t t"
    sql = f"SELECT v FROM {inner} WHERE {predicate.format(c=column)}"
    found = demand(table, dialect, sql)
    assert fields_of(found.fragment.predicate) == (2,), (sql, found)
    assert (
        found.fragment.projection == (1, 2) and not found.fragment.full_scan and not found.unknown
    )
    assert render(found.fragment.predicate, table.schema)
    if not derived:
        assert unknown_columns(sql, dialect, table.schema) == ()


NESTED = table_of(
    NestedField(1, "service.name", LongType()),
    NestedField(2, "service", StructType(
        NestedField(3, "id", LongType()), NestedField(4, "x.y", LongType()),
        NestedField(5, "deep", StructType(NestedField(6, "er.", LongType()))),
    )),
    NestedField(7, "v", StringType()),
)  # fmt: skip


@pytest.mark.parametrize(
    ("column", "field"),
    [
        ('"service.name"', "service.name"), ("t.\"service.name\"", "service.name"),
        ('"SERVICE.Name"', "service.name"), ("service.id", "service.id"),
        ("t.service.id", "service.id"), ('service."x.y"', "service.x.y"),
        ('t."service"."X.Y"', "service.x.y"), ('service.deep."er."', "service.deep.er."),
        ('t.service.deep."er."', "service.deep.er."),
        # names of other columns, though the dotted text is the same
        ("service.name", None), ('"service.id"', None), ("service.x.y", None),
        ('"service.x.y"', None), ('"service.x".y', None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dialect", sorted(QUOTES))
def test_a_column_with_a_dot_and_a_field_of_a_struct_are_different(
    column: str, field: str | None, dialect: str
) -> None:
    left, right = QUOTES[dialect]
    parts = column.split('"')
    written = "".join(left + part + right if at % 2 else part for at, part in enumerate(parts))
    found = demand(NESTED, dialect, f"SELECT v FROM cat.db.t t WHERE {written} = 5")
    named = [NESTED.schema.name_of(number) for number in fields_of(found.fragment.predicate)]
    assert named == ([] if field is None else [field])


@settings(max_examples=examples(100), deadline=None)
@given(names, st.sampled_from(["{c} = 7", "({c} >= 3 AND {c} < 9)", "{c} IS NULL", "{c} IN (1, 2)",
                               "NOT ({c} = 4)", "{c} IS NOT NULL, {c} > 1"]))  # fmt: skip
def test_a_filter_of_an_event_log_reaches_the_column_of_its_name(name: str, text: str) -> None:
    import datetime as dt

    assume(name.lower() != "v" and not name.startswith(("(", "NOT", "true", "false")))
    schema = Schema(0, (Field(1, "v", "long"), Field(2, name, "long", levels=(name,))))
    found = read_filters(text.format(c=name), schema, Binding(0, dt.UTC, "spark", {}))
    assert fields_of(found.predicate) == (2,)
