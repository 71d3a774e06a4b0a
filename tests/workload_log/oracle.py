"""The law of extraction, tested by running queries.

Without the rows that no scan of the query asks for, each table in turn, the result is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb

from reconciler.queries.predicate import (
    EXPRESSION,
    LIKE,
    Always,
    And,
    Comparison,
    In,
    IsNaN,
    IsNull,
    Literal,
    Not,
    Or,
    Predicate,
    StartsWith,
)
from reconciler.table.schema import Field, Schema
from reconciler.table.values import show
from reconciler.workload_log.sql import Skipped, SqlReader, TableRead
from reconciler.workload_log.tables import KnownTable, SchemaMap

EVENT_MS = 1_763_700_000_000


def known_tables(columns: dict[str, tuple[tuple[str, str], ...]]) -> dict[str, KnownTable]:
    return {
        name: KnownTable(
            f"uuid-{name}",
            name,
            Schema(0, tuple(Field(i + 1, n, t) for i, (n, t) in enumerate(fields))),
        )
        for name, fields in columns.items()
    }


def predicate_sql(predicate: Predicate, literals: Sequence[Literal], schema: Schema) -> str:
    """The predicate in DuckDB's SQL, over one table."""
    if isinstance(predicate, Always):
        return str(predicate.value)
    if isinstance(predicate, Not):
        return f"NOT ({predicate_sql(predicate.child, literals, schema)})"
    if isinstance(predicate, (And, Or)):
        word = " AND " if isinstance(predicate, And) else " OR "
        return "(" + word.join(predicate_sql(c, literals, schema) for c in predicate.children) + ")"
    field = schema.by_id[predicate.ref.field_id]
    if isinstance(predicate, IsNull):
        return f'"{field.name}" IS NULL'
    if isinstance(predicate, IsNaN):
        return f'isnan("{field.name}")'
    if predicate.ref.transform in (LIKE, EXPRESSION):
        return "TRUE"  # it names the column, and not the pattern
    pair = predicate.ref.pair
    if pair is not None:
        assert isinstance(predicate, Comparison)
        assert (predicate.op, literals[predicate.slot]) in ((">=", 1), ("<", 1))
        true = f'"{field.name}" {pair.sign} "{schema.by_id[pair.right].name}"'
        return true if predicate.op == ">=" else f"NOT ({true})"
    value = literals[predicate.slot]
    if isinstance(predicate, In):
        assert isinstance(value, tuple)
        return f'"{field.name}" IN ({", ".join(_constant(field.type, v) for v in value)})'
    if isinstance(predicate, StartsWith):
        return f'starts_with("{field.name}", {_constant(field.type, value)})'
    assert isinstance(predicate, Comparison)
    return f'"{field.name}" {predicate.op} {_constant(field.type, value)}'


def _constant(iceberg_type: str, value: Any) -> str:
    text = show(iceberg_type, value)
    if iceberg_type in ("float", "double"):
        return f"CAST({text} AS DOUBLE)"
    if iceberg_type in ("int", "long") or iceberg_type.startswith("decimal"):
        return f"({text})"
    quoted = "'" + text.replace("'", "''") + "'"
    return quoted if iceberg_type == "string" else f"{iceberg_type.upper()} {quoted}"


def demands_of(sql: str, tables: dict[str, KnownTable], dialect: str = "duckdb") -> list[TableRead]:
    found = SqlReader(dialect, SchemaMap({(n,): t for n, t in tables.items()})).extract(
        sql, EVENT_MS
    )
    assert not isinstance(found, Skipped), found.reason
    return found


def keep_condition(demands: Sequence[TableRead], table: KnownTable) -> str:
    """The rows of a table that some scan of the query asks for."""
    asked = [
        f"({predicate_sql(d.fragment.predicate, d.fragment.literals, d.table.schema)})"
        for d in demands
        if d.table.uuid == table.uuid
    ]
    return " OR ".join(asked) if asked else "FALSE"


def check_law(
    connection: duckdb.DuckDBPyConnection, sql: str, tables: dict[str, KnownTable]
) -> dict[str, float]:
    """Asserts the law for one query, one table at a time; returns the share of rows kept."""
    demands = demands_of(sql, tables)
    expected = _result(connection, sql)
    kept: dict[str, float] = {}
    for name in {demand.table.name for demand in demands}:
        condition = keep_condition(demands, tables[name])
        total = _count(connection, name)
        connection.execute(
            f'CREATE TEMP TABLE "{name}" AS SELECT * FROM "{name}" WHERE {condition}'
        )
        try:
            actual = _result(connection, sql)
            left = _count(connection, name)
        finally:
            connection.execute(f'DROP TABLE temp.main."{name}"')
        assert actual == expected, f"{name} without NOT ({condition})\n{sql}"
        kept[name] = left / max(1, total)
    return kept


def _count(connection: duckdb.DuckDBPyConnection, name: str) -> int:
    return int(connection.execute(f'SELECT count(*) FROM "{name}"').fetchall()[0][0])


def _result(connection: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[str, ...]]:
    """Rows as a sorted list of text; floating sums rounded, as their order of addition varies."""
    rows = connection.execute(sql).fetchall()
    return sorted(
        tuple(f"{v:.6g}" if isinstance(v, float) else repr(v) for v in row) for row in rows
    )
