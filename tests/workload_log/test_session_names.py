"""Names that are no stored table, and texts in the place of a value."""

from __future__ import annotations

import pytest

from reconciler.workload_log import skip_reasons
from reconciler.workload_log.sql import Session, Skipped, SqlReader
from reconciler.workload_log.tables import SchemaMap
from tests.workload_log.oracle import EVENT_MS, known_tables

COLUMNS = (("i", "int"), ("s", "string"), ("d", "date"), ("p", "decimal(6,2)"),
           ("z", "timestamptz"), ("u", "uuid"))  # fmt: skip
TABLES = known_tables({"t": COLUMNS, "o": COLUMNS})
BY_NAME = SchemaMap({("db", name): table for name, table in TABLES.items()})


def read(dialect: str, sql: str) -> list[str] | str:
    """The tables that a query reads, or why it is skipped."""
    found = SqlReader(dialect, BY_NAME).extract(sql, EVENT_MS, Session(("db",)))
    if isinstance(found, Skipped):
        return found.reason
    return sorted(one.table.name.rpartition(".")[2] for one in found)


NOT_STORED = [
    ("tsql", "SELECT i FROM @t WHERE i = 5"),
    ("tsql", "SELECT i FROM #t WHERE i = 5"),
    ("tsql", "SELECT i FROM tempdb..##t WHERE i = 5"),
    ("tsql", "DELETE FROM @t WHERE i = 5"),
    ("mysql", "SELECT i FROM @t"),
    ("bigquery", "SELECT i FROM @t WHERE i = 5"),
    ("tsql", "SELECT i FROM :t"),
    ("snowflake", "SELECT i FROM IDENTIFIER($t) WHERE i = 5"),
    ("spark", "SELECT * FROM t(3) WHERE i = 5"),
    ("spark", "CREATE TEMP VIEW T AS SELECT i FROM o WHERE i = 1; SELECT i FROM t WHERE i = 2"),
    ("snowflake", "CREATE TEMP TABLE db.t (i INT); SELECT i FROM t"),
    ("postgres", "CREATE TEMP TABLE pg_temp.t (i INT); SELECT i FROM t"),
    ("spark", "CREATE TEMP VIEW t AS SELECT 1 AS i; DROP VIEW o; SELECT i FROM t"),
    ("trino", "USE other; SELECT i FROM t WHERE i = 5"),
    ("snowflake", "USE SCHEMA other; SELECT i FROM t WHERE i = 5"),
]


@pytest.mark.parametrize(("dialect", "sql"), NOT_STORED)
def test_what_only_looks_like_a_stored_table_is_none(dialect: str, sql: str) -> None:
    assert read(dialect, sql) == skip_reasons.UNKNOWN_TABLES


STORED = [
    ("tsql", "SELECT x.i FROM @t x JOIN o ON o.i = x.i WHERE o.s = 'a'", ["o"]),
    ("tsql", "INSERT INTO @t SELECT i FROM o; SELECT i FROM @t", ["o"]),
    ("spark", "CREATE TEMPORARY TABLE t (i INT); SELECT i FROM t; SELECT i FROM o", ["o"]),
    ("spark", "CREATE TEMP VIEW t AS SELECT 1 AS i; SELECT i FROM db.t", ["t"]),
    ("snowflake", "CREATE TEMP TABLE other.t (i INT); SELECT i FROM t", ["t"]),
    ("postgres", "CREATE TEMP TABLE t (i INT); DROP TABLE t; SELECT i FROM t", ["t"]),
    ("spark", "CREATE TEMP VIEW t AS SELECT 1 AS i; DROP VIEW IF EXISTS T; SELECT i FROM t", ["t"]),
    ("spark", "CREATE TABLE x AS SELECT i FROM o; SELECT i FROM t", ["o", "t"]),
    ("snowflake", "SELECT i FROM IDENTIFIER('t') WHERE i = 5", ["t"]),
    ("snowflake", "USE WAREHOUSE large; SELECT i FROM t", ["t"]),
    ("trino", "USE other; USE db; SELECT i FROM t", ["t"]),
]


@pytest.mark.parametrize(("dialect", "sql", "tables"), STORED)
def test_stored_tables_beside_them_are_read(dialect: str, sql: str, tables: list[str]) -> None:
    assert read(dialect, sql) == tables


NO_VALUES = [
    ("trino", "d = DATE '?'"),
    ("trino", "d = CAST('?' AS DATE)"),
    ("trino", "z > TIMESTAMP '***'"),
    ("trino", "p > DECIMAL '?'"),
    ("trino", "u = UUID '?'"),
    ("trino", "s = '?'"),
    ("trino", "s IN ('?', '?')"),
    ("trino", "s LIKE '***'"),
    ("spark", "s = '*********(redacted)'"),
    ("snowflake", "s = '***MASKED***' AND d = '***'::DATE"),
    ("postgres", "s = '<REDACTED>'"),
    ("postgres", "i = $1 AND d = $2::date"),
]


@pytest.mark.parametrize(("dialect", "where"), NO_VALUES)
def test_a_text_in_the_place_of_a_value_is_no_value(dialect: str, where: str) -> None:
    found = SqlReader(dialect, BY_NAME).extract(f"SELECT i FROM db.t WHERE {where}", EVENT_MS)
    assert not isinstance(found, Skipped)
    (one,) = found
    assert (one.fragment.literals, one.note) == ((), "")
    assert one.fragment.unbound is not None


@pytest.mark.parametrize("value", ["a?", "**", "*x*", "redacted", "(redacted)", "<b>"])
def test_a_value_that_only_resembles_such_a_text_counts(value: str) -> None:
    query = f"SELECT i FROM db.t WHERE s = '{value}'"
    found = SqlReader("trino", BY_NAME).extract(query, EVENT_MS)
    assert not isinstance(found, Skipped)
    assert found[0].fragment.literals == (value.encode(),)
