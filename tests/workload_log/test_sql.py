"""What the reader makes of single queries: constants, dialects, joins, parameters, DML."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from reconciler.queries.predicate import render
from reconciler.workload_log import skip_reasons
from reconciler.workload_log import sql as reader
from reconciler.workload_log.lift import lift
from reconciler.workload_log.parameters import with_question_marks
from reconciler.workload_log.sql import Skipped, SqlReader, TableRead
from reconciler.workload_log.tables import NameIndex, SchemaMap
from tests.workload_log.oracle import EVENT_MS, known_tables

TABLES = known_tables(
    {
        "t": (("i", "int"), ("l", "long"), ("p", "decimal(6,2)"), ("d", "date"),
              ("ts", "timestamp"), ("tz", "timestamptz"), ("s", "string"), ("f", "float"),
              ("g", "double"), ("b", "boolean"), ("u", "uuid"), ("Mixed", "int"), ("st.x", "int"),
              ("tags.element", "string"), ("raw", "binary"), ("code", "fixed[2]")),
        "o": (("i", "int"), ("k", "string"), ("d", "date")),
    }
)  # fmt: skip
BY_NAME = SchemaMap({("cat", "db", name): table for name, table in TABLES.items()})


def demands(sql: str, dialect: str = "trino") -> list[TableRead]:
    found = SqlReader(dialect, BY_NAME).extract(sql, EVENT_MS)
    assert not isinstance(found, Skipped), found.reason
    return found


def condition(where: str, dialect: str = "trino") -> str:
    (found,) = demands(f"SELECT i FROM db.t WHERE {where}", dialect)
    return render(found.fragment.predicate, found.table.schema, found.fragment.literals)


CONDITIONS = [
    ("d < i", "d < i"), ("i < i", "TRUE"), ("f < g", "f < g"), ("l > i", "i < l"),
    ('i < "Mixed"', "i < Mixed"), ('"Mixed" < i', "Mixed < i"), ('i > "Mixed"', "Mixed < i"),
    ('i <= "Mixed"', "Mixed >= i"), ('NOT (i < "Mixed")', "i >= Mixed"),
    ('"Mixed" = i', "i = Mixed"), ('"Mixed" <> i', "i <> Mixed"), ("NOT (i = st.x)", "i <> st.x"),
    ('i < "Mixed" AND i IS NOT NULL', "i < Mixed AND i IS NOT NULL"),
    ('i BETWEEN 3 AND "Mixed"', "i >= 3 AND Mixed >= i"),
    ("i < 3.5", "i < 4"), ("i <= 3.5", "i <= 3"), ("i = 3.5", "FALSE"),
    ("i <> 3.5", "i IS NOT NULL"),
    ("3 < i", "i > 3"), ("i < 99999999999", "i IS NOT NULL"), ("i > 99999999999", "FALSE"),
    ("i = NULL", "FALSE"), ("NOT (i = NULL)", "FALSE"), ("i IN (1, NULL)", "i = 1"),
    ("i NOT IN (1, NULL)", "FALSE"), ("i NOT IN (1, 2)", "i NOT IN (1, 2)"),
    ("NOT (i < 3 AND l >= 4)", "i >= 3 OR l < 4"), ("i = '5'", "TRUE"), ("s = 5", "TRUE"),
    ("p < 1.005", "p < 1.01"), ("p = 1.005", "FALSE"), ("p > 99999.5", "FALSE"),
    ("p > DECIMAL '999.9'", "p > 999.90"), ("p < NUMERIC '-1.5'", "p < -1.50"),
    ("p >= - DECIMAL '1.5'", "p >= -1.50"), ("p < DECIMAL '1.005'", "p < 1.01"),
    ("p BETWEEN DECIMAL '-.5' AND decimal'2.'", "p BETWEEN -0.50 AND 2.00"),
    ("p IN (DECIMAL '1.5', DECIMAL '+2.25')", "p IN (1.50, 2.25)"),
    ("g > DECIMAL '9999.9'", "g > 9999.9"), ("DECIMAL '1.5' < p", "p > 1.50"),
    ("p > 2 * DECIMAL '1.5' AND s <> 'a$b'", "p > 3.00 AND s != a$b"),
    ("p = DECIMAL 'x'", "TRUE"),
    ("p > CAST('99.9' AS DECIMAL(10,2))", "p > 99.90"),
    ("p > CAST('-99.9' AS DECIMAL(10, 2))", "p > -99.90"),
    ("p > -CAST('99.9' AS DECIMAL(3,1))", "p > -99.90"), ("p > CAST('99.9' AS DECIMAL)", "TRUE"),
    ("p > CAST('99' AS DECIMAL)", "p > 99.00"), ("s = 'NUMERIC'", "s = NUMERIC"),
    ("d BETWEEN DATE '2024-01-01' AND DATE '2024-01-31'", "d BETWEEN 2024-01-01 AND 2024-01-31"),
    ("f < 0.1", "f < 0.10000000149011612"), ("g < 0.1", "g < 0.1"),
    ("d >= TIMESTAMP '2024-01-01 12:00:00'", "d >= 2024-01-02"),
    ("d < TIMESTAMP '2024-01-01 12:00:00'", "d < 2024-01-02"),
    ("d = '2024-01-01'", "d = 2024-01-01"), ("d = '2024-1-1'", "TRUE"), ("d > 'x'", "TRUE"),
    ("ts >= DATE '2024-01-01'", "ts >= 2024-01-01T00:00:00Z"),
    ("tz >= TIMESTAMP '2024-01-01 00:00:00 +02:00'", "tz >= 2023-12-31T22:00:00Z"),
    ("tz >= '2024-01-01 00:00:00+02'", "tz >= 2023-12-31T22:00:00Z"),
    ("d < DATE '2024-01-31' + INTERVAL '1' MONTH", "d < 2024-02-29"),
    ("CAST(ts AS DATE) = DATE '2024-01-01'",
     "ts >= 2024-01-01T00:00:00Z AND ts < 2024-01-02T00:00:00Z"),
    ("CAST(ts AS DATE) IN (DATE '2024-01-01', DATE '2024-01-03')",
     "(ts >= 2024-01-01T00:00:00Z AND ts < 2024-01-02T00:00:00Z) OR "
     "(ts >= 2024-01-03T00:00:00Z AND ts < 2024-01-04T00:00:00Z)"),
    ("year(d) NOT IN (2024, 2025)",
     "(d >= 2025-01-01 OR d < 2024-01-01) AND (d >= 2026-01-01 OR d < 2025-01-01)"),
    ("year(d) IN (NULL)", "FALSE"), ("year(d) NOT IN (2024, NULL)", "FALSE"),
    ("year(d) IN (" + ", ".join(map(str, range(1990, 2023))) + ")", "expression of d"),
    ("year(d) = 2024", "d >= 2024-01-01 AND d < 2025-01-01"),
    ("date_trunc('month', d) > DATE '2024-01-15'", "d >= 2024-02-01"),
    ("date_trunc('month', d) = DATE '2024-01-15'", "FALSE"),
    ("CAST(l AS INT) = 5", "TRUE"), ("CAST(i AS BIGINT) = 5", "i = 5"),
    ("i + 1 = 5", "expression of i"), ("lower(s) = 'a'", "expression of s"),
    ("s LIKE 'ab%'", "s LIKE ab%"), ("s LIKE 'a_b%'", "s LIKE a%"),
    ("s NOT LIKE 'a_b%'", "s NOT LIKE ?"), ("s LIKE 'ab'", "s = ab"), ("s LIKE '%b'", "s LIKE ?"),
    ("s LIKE 'a!%b%' ESCAPE '!'", "s LIKE a%"), ("b", "b = true"), ("NOT b", "b = false"),
    ("s = 'it''s'", "s = it's"), ("Mixed = 1 AND MIXED < 4", "Mixed = 1 AND Mixed < 4"),
    ("st.x > 3", "st.x > 3"), ("i = 1 OR s = upper('x')", "TRUE"), ("i BETWEEN 5 AND 1",
     "i BETWEEN 5 AND 1"), ("1 = 0", "FALSE"), ("i = 1 AND random() < 0.5", "i = 1"),
    ("i IN (SELECT i FROM elsewhere.x)", "TRUE"), ("coalesce(i, 0) = 0", "expression of i"),
    ("i IS NOT DISTINCT FROM 3", "i = 3"), ("i IS DISTINCT FROM 3", "i != 3 OR i IS NULL"),
    ("u = 'f79c3e09-677c-4bbd-a479-3f349cb785e7'", "u = f79c3e09-677c-4bbd-a479-3f349cb785e7"),
    ("u = UUID 'F79C3E09-677c-4bbd-a479-3f349cb785e7'", "u = f79c3e09-677c-4bbd-a479-3f349cb785e7"),
    ("u IN (UUID 'f79c3e09-677c-4bbd-a479-3f349cb785e7', "
     "uuid'00000000-0000-0000-0000-000000000001')",
     "u IN (00000000-0000-0000-0000-000000000001, f79c3e09-677c-4bbd-a479-3f349cb785e7)"),
    ("u = UUID 'none'", "TRUE"),
    ("s = UUID 'f79c3e09-677c-4bbd-a479-3f349cb785e7'", "TRUE"),
    ("raw = X'00aF'", "raw = 0x00af"), ("raw >= x'ff' AND raw < X''", "raw >= 0xff AND raw < 0x"),
    ("raw IN (X'02', X'01')", "raw IN (0x01, 0x02)"), ("raw = from_hex('0aff')", "raw = 0x0aff"),
    ("raw = CAST('a' AS VARBINARY)", "raw = 0x61"), ("raw = 'a'", "TRUE"), ("s = X'61'", "TRUE"),
    ("raw = from_hex('0af')", "TRUE"), ("raw BETWEEN X'01' AND X'02'", "raw BETWEEN 0x01 AND 0x02"),
    ("code = X'0aff'", "code = 0x0aff"), ("code = X'0a'", "TRUE"), ("u = X'0aff'", "TRUE"),
]  # fmt: skip


@pytest.mark.parametrize(("where", "expected"), CONDITIONS)
def test_conditions_are_exact_or_wider(where: str, expected: str) -> None:
    assert condition(where) == expected


@pytest.mark.parametrize(
    ("where", "dialect", "expected"),
    [
        ("raw = X'0AFF'", "spark", "raw = 0x0aff"),
        ("raw = unhex('0AFF')", "spark", "raw = 0x0aff"),
        ("raw = '\\x0A\\xFFa'::BLOB", "duckdb", "raw = 0x0aff61"),
        ("raw > BLOB 'a''b'", "duckdb", "raw > 0x612762"),
        ("raw = '\\n'::BLOB", "duckdb", "TRUE"),
        ("raw = 'é'::BLOB", "duckdb", "TRUE"),
        ("raw = '\\x0a'::BYTEA", "postgres", "TRUE"),
    ],
)
def test_bytes_are_read_as_each_dialect_writes_them(
    where: str, dialect: str, expected: str
) -> None:
    assert condition(where, dialect) == expected


def test_queries_that_differ_in_bytes_share_a_template() -> None:
    found = [lift(f"SELECT 1 FROM t WHERE raw = X'{digits}'") for digits in ("0aff", "00")]
    assert found[0].template == found[1].template
    assert [next(iter(each.literals.values())).value for each in found] == [
        b"\x0a\xff",
        b"\x00",
    ]


def test_only_what_the_engine_pushes_down_is_kept() -> None:
    assert condition("year(d) = 2024", "spark") == "expression of d"
    assert condition("s LIKE 'a_b%'", "spark") == "s LIKE ?"
    assert condition("CAST(ts AS DATE) = DATE '2024-01-01'", "duckdb") == "TRUE"


WEEK_AGO = [
    ("trino", "tz >= now() - INTERVAL '7' DAY"), ("spark", "tz >= now() - INTERVAL 7 DAYS"),
    ("spark", "tz >= current_timestamp() - INTERVAL '168' HOUR"),
    ("duckdb", "tz >= now() - INTERVAL 7 DAY"), ("postgres", "tz >= now() - INTERVAL '7 days'"),
    ("snowflake", "tz >= dateadd(day, -7, current_timestamp())"),
    ("bigquery", "tz >= timestamp_sub(current_timestamp(), INTERVAL 7 DAY)"),
    ("mysql", "tz >= date_sub(now(), INTERVAL 7 DAY)"),
    ("tsql", "tz >= dateadd(day, -7, getdate())"),
    ("clickhouse", "tz >= subtractDays(now(), 7)"), ("redshift", "tz >= dateadd(day, -7, sysdate)"),
    ("presto", "tz >= date_add('day', -7, now())"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "where"), WEEK_AGO)
def test_now_relative_sql_moves_exactly_in_every_dialect(dialect: str, where: str) -> None:
    (found,) = demands(f"SELECT i FROM db.t WHERE {where}", dialect)
    assert found.fragment.moving == (-7 * 86_400_000_000,)
    assert found.fragment.literals == (EVENT_MS * 1000 - 7 * 86_400_000_000,)


@pytest.mark.parametrize(
    ("dialect", "where"),
    [("trino", "d >= current_date - INTERVAL '7' DAY"),
     ("spark", "d >= date_sub(current_date(), 7)"),
     ("spark", "d >= date_add(now(), -7)"), ("duckdb", "d >= today() - 7"),
     ("mysql", "d >= curdate() - INTERVAL 7 DAY"), ("snowflake", "d >= current_date() - 7"),
     ("bigquery", "d >= date_sub(current_date(), INTERVAL 1 WEEK)")],
)  # fmt: skip
def test_dates_relative_to_today_move_by_whole_days(dialect: str, where: str) -> None:
    (found,) = demands(f"SELECT i FROM db.t WHERE {where}", dialect)
    (offset,) = found.fragment.moving
    assert offset == -7
    assert found.fragment.literals == (EVENT_MS // 86_400_000 - 7,)


ZONED = [
    ("bigquery", "d >= CURRENT_DATE('America/New_York')", "d >= 2025-11-20"),
    ("bigquery", "ts < CURRENT_DATETIME('America/New_York')", "ts < 2025-11-20T23:40:00Z"),
    ("trino", "ts < CAST(now() AT TIME ZONE 'UTC' AS TIMESTAMP)", "ts < 2025-11-21T04:40:00Z"),
    ("trino", "ts < localtimestamp", "ts < 2025-11-21T05:40:00Z"),
    ("trino", "d = CAST(now() AT TIME ZONE 'America/New_York' AS DATE)", "d = 2025-11-20"),
    ("trino", "d = CAST(TIMESTAMP '2024-01-01 23:30:00 UTC' AS DATE)", "d = 2024-01-01"),
    ("trino", "tz >= now() AT TIME ZONE 'UTC' - INTERVAL '1' HOUR", "tz >= 2025-11-21T03:40:00Z"),
    ("snowflake", "ts < SYSDATE()", "ts < 2025-11-21T04:40:00Z"),
    ("bigquery", "tz >= TIMESTAMP('2024-01-01', 'America/New_York')", "tz >= 2024-01-01T05:00:00Z"),
    ("bigquery", "tz >= TIMESTAMP('2024-01-01')", "tz >= 2023-12-31T23:00:00Z"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "where", "expected"), ZONED)
def test_a_zone_that_the_query_names_goes_before_the_sessions(
    dialect: str, where: str, expected: str
) -> None:
    berlin = reader.Session(zone=ZoneInfo("Europe/Berlin"))
    found = SqlReader(dialect, BY_NAME).extract(
        f"SELECT i FROM db.t WHERE {where}", EVENT_MS, berlin
    )
    assert not isinstance(found, Skipped)
    (demand,) = found
    assert (
        render(demand.fragment.predicate, demand.table.schema, demand.fragment.literals) == expected
    )


TIMES = [
    ("trino", "tz >= from_unixtime(1700000000)", "tz >= 2023-11-14T22:13:20Z"),
    ("postgres", "tz >= to_timestamp(1700000000)", "tz >= 2023-11-14T22:13:20Z"),
    ("bigquery", "tz >= TIMESTAMP_MILLIS(1700000000000)", "tz >= 2023-11-14T22:13:20Z"),
    ("spark", "tz >= timestamp_millis(1700000000000)", "tz >= 2023-11-14T22:13:20Z"),
    ("snowflake", "ts >= TO_TIMESTAMP_NTZ(1700000000000, 3)", "ts >= 2023-11-14T22:13:20Z"),
    ("duckdb", "tz >= to_timestamp(99999999999999)", "TRUE"),
    ("spark", "d BETWEEN trunc(current_date(), 'MM') AND last_day(current_date())",
     "d BETWEEN 2025-11-01 AND 2025-11-30"),
    ("spark", "d >= to_date('20240101', 'yyyyMMdd')", "d >= 2024-01-01"),
    ("spark", "d >= to_date('2024-1-1', 'yyyy-MM-dd')", "TRUE"),
    ("spark", "ts < to_timestamp('2024-01-01 00:30:00', 'yyyy-MM-dd HH:mm:ss')",
     "ts < 2024-01-01T00:30:00Z"),
    ("spark", "d < make_date(2024, 1, 31)", "d < 2024-01-31"),
    ("trino", "d = from_iso8601_date('2024-01-01')", "d = 2024-01-01"),
    ("trino", "d = from_iso8601_date('2024-W01-1')", "TRUE"),
    ("clickhouse", "ts >= toDateTime('2024-01-01 00:30:00') AND d >= toDate('2024-01-01')",
     "d >= 2024-01-01 AND ts >= 2024-01-01T00:30:00Z"),
    ("bigquery", "d >= DATE_TRUNC(CURRENT_DATE(), ISOWEEK)", "d >= 2025-11-17"),
    ("bigquery", "d >= DATE_TRUNC(CURRENT_DATE(), WEEK)", "TRUE"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "where", "expected"), TIMES)
def test_dates_and_times_are_computed_as_the_dialect_does(
    dialect: str, where: str, expected: str
) -> None:
    assert condition(where, dialect) == expected


JOINS = [
    ("t LEFT JOIN o ON t.i = o.i AND o.k = 'a' AND t.l > 5", {"t": "TRUE", "o": "k = a"}),
    ("t LEFT JOIN o ON t.i = o.i WHERE o.k = 'a'", {"t": "TRUE", "o": "k = a"}),
    ("t LEFT JOIN o ON t.i = o.i WHERE o.k IS NULL", {"t": "TRUE", "o": "TRUE"}),
    ("t LEFT JOIN o ON t.i = o.i WHERE coalesce(o.k, 'a') = 'a'", {"t": "TRUE", "o": "TRUE"}),
    ("t LEFT JOIN o ON t.i = o.i WHERE o.k = 'a' OR t.l = 1", {"t": "TRUE", "o": "TRUE"}),
    ("o RIGHT JOIN t ON t.i = o.i AND t.l > 5 WHERE t.l < 9", {"t": "l < 9", "o": "TRUE"}),
    ("t FULL JOIN o ON t.i = o.i WHERE t.l = 1", {"t": "l = 1", "o": "TRUE"}),
    ("t FULL JOIN o ON t.i = o.i AND o.k = 'a'", {"t": "TRUE", "o": "TRUE"}),
    ("t JOIN o ON t.i = o.i WHERE t.i = 5", {"t": "i = 5", "o": "i = 5"}),
    ("t JOIN o ON t.d = o.d WHERE t.d >= DATE '2024-01-01'",
     {"t": "d >= 2024-01-01", "o": "d >= 2024-01-01"}),
    ("t JOIN o ON t.i = o.i WHERE (t.l = 1 AND o.k = 'a') OR (t.l = 2 AND o.k = 'b')",
     {"t": "l = 1 OR l = 2", "o": "k = a OR k = b"}),
    ("t JOIN (SELECT i, max(k) AS k FROM o GROUP BY i) o ON t.i = o.i WHERE o.k = 'a' AND o.i = 3",
     {"t": "i = 3", "o": "i = 3"}),
    ("t JOIN (SELECT i FROM o LIMIT 50000) o ON t.i = o.i WHERE o.i = 3",
     {"t": "i = 3", "o": "TRUE"}),
    ("t WHERE NOT EXISTS (SELECT 1 FROM o WHERE o.i = t.i AND o.k = 'a')",
     {"t": "TRUE", "o": "k = a"}),
    ("t NATURAL JOIN o WHERE t.l = 3", {"o": "TRUE"}),
    ("t JOIN o USING (i) WHERE i = 5 AND t.l = 1", {"t": "i = 5 AND l = 1", "o": "i = 5"}),
    ("t LEFT JOIN o USING (i) WHERE i = 5", {"t": "i = 5", "o": "i = 5"}),
    ("t FULL JOIN o USING (i) WHERE i = 5", {"t": "TRUE", "o": "TRUE"}),
    ("t JOIN o USING (i) JOIN elsewhere.x USING (i) WHERE i = 5", {"t": "i = 5", "o": "i = 5"}),
    ("t LEFT JOIN o ON t.d = o.d AND t.l = 1 WHERE t.d > DATE '2024-01-01'",
     {"t": "d > 2024-01-01", "o": "d > 2024-01-01"}),
    ("(SELECT i, d FROM (SELECT * FROM t WHERE l = 1) q) a JOIN o ON a.d = o.d"
     " WHERE a.d > DATE '2024-01-01'", {"t": "l = 1 AND d > 2024-01-01", "o": "d > 2024-01-01"}),
    ("(SELECT i, d + INTERVAL '1' DAY AS d FROM t) a JOIN o ON a.d = o.d WHERE o.k = 'a'"
     " AND a.d > DATE '2024-01-01'", {"o": "k = a"}),
    ("t LEFT JOIN o ON t.l = 1 WHERE t.d > DATE '2024-01-01'", {"o": "TRUE"}),
    ("db.t JOIN db2.t ON db.t.i = db2.t.i WHERE db2.t.l = 3 AND db.t.l = 4", {"t": "l = 4"}),
    ("db2.t JOIN db.t ON db.t.i = db2.t.i WHERE db2.t.l = 3", {"t": "TRUE"}),
    ("t TABLESAMPLE BERNOULLI (10) WHERE t.l = 3", {"t": "TRUE"}),
    ("t, o LEFT JOIN elsewhere.x ON o.i = x.i WHERE t.l = 3 AND o.k = 'a'",
     {"t": "l = 3", "o": "k = a"}),
    ("t, elsewhere.x JOIN o ON t.i = o.i AND t.l = 3 AND o.k = 'a'", {"t": "l = 3", "o": "k = a"}),
]  # fmt: skip


@pytest.mark.parametrize(("from_", "expected"), JOINS)
def test_joins_give_each_table_what_they_imply(from_: str, expected: dict[str, str]) -> None:
    found = {
        d.table.name: render(d.fragment.predicate, d.table.schema, d.fragment.literals)
        for d in demands(f"SELECT * FROM {from_}")
    }
    assert {name: found[name] for name in expected} == expected


DERIVED = [
    ("spark", "SELECT l FROM db.t LATERAL VIEW explode(tags) x AS tag WHERE i = 3 AND tag = 'a'",
     "i = 3"),
    ("spark", "SELECT l FROM (SELECT *, row_number() OVER (PARTITION BY i ORDER BY l) AS r"
     " FROM db.t) q WHERE i = 3 AND r = 1", "i = 3"),
    ("snowflake", "SELECT l FROM (SELECT * FROM db.t"
     " QUALIFY row_number() OVER (PARTITION BY i ORDER BY l) = 1) WHERE i = 3 AND l = 4", "i = 3"),
    ("trino", "SELECT * FROM db.t MATCH_RECOGNIZE (PARTITION BY i ORDER BY l ALL ROWS PER MATCH"
     " PATTERN (a b) DEFINE b AS b.l > a.l) WHERE l = 3", "TRUE"),
    ("oracle", "SELECT l FROM db.t WHERE l = 3 START WITH i = 1 CONNECT BY PRIOR i = l", "TRUE"),
    ("duckdb", "SELECT l FROM (SELECT * FROM db.t USING SAMPLE 9 ROWS) WHERE i = 3", "TRUE"),
    ("trino", "SELECT l AS i, i AS l FROM db.t GROUP BY i, l HAVING i > 2", "TRUE"),
    ("trino", "SELECT i, max(l) AS l FROM db.t GROUP BY i HAVING i > 2 AND l > 3", "i > 2"),
    ("duckdb", "SELECT l AS i, i AS l FROM db.t GROUP BY ALL HAVING i > 2", "TRUE"),
    ("duckdb", "SELECT l, max(i) AS i FROM (SELECT * FROM db.t WHERE l = 4) GROUP BY ALL"
     " HAVING l < 9", "l = 4 AND l < 9"),
    ("snowflake", "SELECT * FROM (SELECT i, max(l) AS l, p + max(l) AS p FROM db.t GROUP BY ALL)"
     " WHERE i = 3 AND l = 4 AND p = 5", "i = 3"),
    ("clickhouse", "SELECT l AS i FROM db.t WHERE i = 3 AND p > 1", "p > 1.00"),
    ("postgres", "SELECT l FROM db.t WHERE i BETWEEN SYMMETRIC 5 AND 2",
     "(i BETWEEN 2 AND 5) OR (i BETWEEN 5 AND 2)"),
    ("postgres", "SELECT l FROM db.t WHERE i = ANY(ARRAY[1, 2])", "i IN (1, 2)"),
    ("bigquery", "SELECT l FROM db.t WHERE i IN UNNEST([1, 2])", "i IN (1, 2)"),
    ("spark", "SELECT l FROM db.t WHERE i = '5' AND l IN ('3', '4') AND p = '5'",
     "i = 5 AND l IN (3, 4)"),
    ("duckdb", "SELECT l FROM db.t WHERE s LIKE 5 AND i = 3", "i = 3"),
    ("bigquery", "SELECT l FROM db.t WHERE DATE(tz, 'Europe/Berlin') = '2024-01-01'",
     "expression of tz"),
    ("bigquery", "SELECT l FROM db.t WHERE DATE(tz) = '2024-01-01'",
     "tz >= 2024-01-01T00:00:00Z AND tz < 2024-01-02T00:00:00Z"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "sql", "expected"), DERIVED)
def test_one_table_is_asked_what_the_dialect_means(dialect: str, sql: str, expected: str) -> None:
    (found,) = demands(sql, dialect)
    assert render(found.fragment.predicate, found.table.schema, found.fragment.literals) == expected


def test_an_intersection_of_all_columns_reads_them_all() -> None:
    found = demands("SELECT i FROM (SELECT i, d FROM db.t EXCEPT ALL SELECT i, d FROM db.o) q")
    assert [len(demand.fragment.projection) for demand in found] == [2, 2]


def test_prepared_statements_keep_their_shape_and_what_is_known() -> None:
    for mark, dialect in (("?", "trino"), ("$1", "postgres"), (":id", "spark"), ("@id", "tsql")):
        sql = f"SELECT l FROM db.t WHERE i = {mark} AND d = '2024-01-01'"
        (found,) = demands(sql, dialect)
        schema = found.table.schema
        assert render(found.fragment.predicate, schema, found.fragment.literals) == "d = 2024-01-01"
        assert found.fragment.unbound is not None
        assert sorted(render(found.fragment.unbound, schema).split(" AND ")) == ["d = ?", "i = ?"]


DRIVERS = [
    "?", ":day", ":1", "@day", "$1", "%s", "%(day)s", "TIMESTAMP ?", "DATE ?", "date  ?",
    "DATE :day", "TIMESTAMP $1", "DATE %s", "DATE @day", "?::date", "CAST(? AS DATE)",
    "DATE ? - INTERVAL '1' DAY", "current_date - INTERVAL ? DAY",
]  # fmt: skip


@pytest.mark.parametrize("dialect", ["spark", "trino", "snowflake", "bigquery", "redshift", "tsql"])
@pytest.mark.parametrize("mark", DRIVERS)
def test_every_spelling_of_a_parameter_is_a_value_that_is_not_known(
    mark: str, dialect: str
) -> None:
    for where in (f"d >= {mark} AND i = 3", f"i = 3 AND d BETWEEN {mark} AND {mark}",
                  f"d IN ({mark}, {mark}) AND i = 3"):  # fmt: skip
        (found,) = demands(f"SELECT l FROM db.t WHERE {where} ORDER BY l", dialect)
        fragment, schema = found.fragment, found.table.schema
        assert not fragment.full_scan and fragment.unbound is not None
        assert render(fragment.predicate, schema, fragment.literals) == "i = 3"
        assert "d" in render(fragment.unbound, schema)


OTHER_MEANINGS = [
    ("SELECT i %s FROM t WHERE i %s = 3", "duckdb"), ("SELECT {'a':1}, {a:1} FROM t", "duckdb"),
    ("SELECT date:x.y, ts:1 FROM t WHERE s = '%s' -- %s", "snowflake"),
    ("SELECT a[1:2], a[:2] FROM t WHERE j ? 'k' AND date ? 'k'", "postgres"),
    ("SELECT t.$1 FROM @stage/f t", "snowflake"),
    ("SELECT CASE WHEN a THEN b END %s FROM t WHERE s = '%s'", "duckdb"),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "dialect"), OTHER_MEANINGS)
def test_what_only_looks_like_a_parameter_stays(sql: str, dialect: str) -> None:
    assert with_question_marks(sql, dialect) == sql


def test_a_load_of_staged_columns_reads_no_table() -> None:
    load = "COPY INTO db.t FROM (SELECT t.$1, t.$2 FROM @stage/f t)"
    found = SqlReader("snowflake", BY_NAME).extract(load, EVENT_MS)
    assert isinstance(found, Skipped) and found.reason != skip_reasons.UNPARSABLE


def test_a_remainder_by_a_column_is_no_parameter() -> None:
    remainder = "CASE WHEN b THEN l END %s = 2 AND i = 3"
    assert condition(remainder, "duckdb") == "i = 3 AND expression of b"
    part = "SELECT EXTRACT(DAY FROM :1)"
    assert with_question_marks(part, "oracle") == part.replace(":1", "?")


def test_queries_that_differ_by_a_comment_have_one_template() -> None:
    texts = [
        f"/* {{id: {n}}} */ SELECT i FROM db.t WHERE i = {n} -- context 'x{n}'" for n in (1, 2)
    ]
    assert len({lift(text).template for text in texts}) == 1
    for text in texts:
        assert "x" not in lift(text).template
        (found,) = demands(text)
        assert render(found.fragment.predicate, found.table.schema) == "i = ?"
    for kept in (
        "/*+ BROADCAST(t) */",
        "/*! STRAIGHT_JOIN */",
        "/* a /* b */ c */",
        "--3",
        '"--x"',
    ):
        assert kept in lift(f"SELECT i {kept} FROM db.t").template


BESIDE_COMMENTS = [
    ("-- all\rWHERE i > 3", "trino", "i > 3"), ("-- all\rWHERE i > 3 -- x\r", "spark", "i > 3"),
    ("-- all\r\nWHERE i > 3 -- x\r\nAND i < 9", "trino", "i > 3 AND i < 9"),
    ("-- all\rWHERE i > 3 \n WHERE i > 4", "mysql", "i > 4"),
    ("// don't use\nWHERE s = 'a /* b */ c' AND i > 3", "snowflake", "i > 3 AND s = a /* b */ c"),
    ("// don't use\nWHERE s = 'a -- b' AND i > 3", "snowflake", "i > 3 AND s = a -- b"),
    ("WHERE s = '''it's -- old''' AND i > 3", "bigquery", "i > 3 AND s = it's -- old"),
    ('WHERE s = """a"b -- old""" AND i > 3', "bigquery", 'i > 3 AND s = a"b -- old'),
    ("WHERE s = q'[it's -- old]' AND i > 3", "oracle", "i > 3"),
    ("AS [don't] WHERE s = 'a /* b */ c' AND i > 3", "tsql", "i > 3 AND s = a /* b */ c"),
    ("/* /* */ don't */ WHERE s = 'a /* b */ c' AND i > 3", "postgres",
     "i > 3 AND s = a /* b */ c"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "dialect", "expected"), BESIDE_COMMENTS)
def test_a_comment_ends_where_its_dialect_ends_it_and_none_is_in_a_string(
    text: str, dialect: str, expected: str
) -> None:
    (found,) = demands(f"SELECT i FROM db.t {text}", dialect)
    assert not found.fragment.full_scan
    schema = found.table.schema
    assert render(found.fragment.predicate, schema, found.fragment.literals) == expected


IMMEDIATE = [
    ("'SELECT l FROM db.t WHERE i = ? AND s = ''a?'' AND d < ?' USING -5, DATE '2024-01-01';",
     "i = -5 AND d < 2024-01-01 AND s = a?"),
    ("'SELECT l FROM db.t WHERE p > ?' USING CAST('1.5' AS DECIMAL(3, 1))", "p > 1.50"),
    ("'SELECT l FROM db.t WHERE i > 2 * ?' USING 1 + 2", "i > 6"),
    ("'SELECT l FROM db.t WHERE i = 7'", "i = 7"),
    ("'SELECT l FROM db.t WHERE i = 7 AND l = ?'", "i = 7"),
]  # fmt: skip


@pytest.mark.parametrize(("rest", "expected"), IMMEDIATE)
def test_a_query_executed_immediately_is_read_with_its_values(rest: str, expected: str) -> None:
    (found,) = demands(f"-- an id\rEXECUTE IMMEDIATE {rest}")
    assert render(found.fragment.predicate, found.table.schema, found.fragment.literals) == expected


def test_an_unknown_value_in_a_disjunction_or_negation_keeps_every_row() -> None:
    for where in ("i = ? OR l = 3", "NOT (i = ?)", "i NOT IN (1, ?)", "NOT (i = ? AND l = 3)"):
        (found,) = demands(f"SELECT l FROM db.t WHERE {where}")
        assert (
            render(found.fragment.predicate, found.table.schema) == "TRUE"
            and found.fragment.unbound is not None
        )


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [("trino", "EXPLAIN ANALYZE VERBOSE SELECT l FROM db.t WHERE i = 3"),
     ("postgres", "/* a */ EXPLAIN (ANALYZE, BUFFERS) SELECT l FROM db.t WHERE i = 3"),
     ("redshift", "UNLOAD ('SELECT l FROM db.t WHERE i = 3') TO 's3://x' PARALLEL OFF"),
     ("athena", "UNLOAD (SELECT l FROM db.t WHERE i = 3) TO 's3://x' WITH (format = 'PARQUET')"),
     ("duckdb", "COPY (SELECT l FROM db.t WHERE i = 3) TO 'x.parquet'"),
     ("spark", "CACHE TABLE x AS SELECT l FROM db.t WHERE i = 3"),
     ("snowflake", "CREATE MATERIALIZED VIEW x AS SELECT l FROM db.t WHERE i = 3")],
)  # fmt: skip
def test_statements_that_run_a_query_are_read_as_the_query(dialect: str, sql: str) -> None:
    (found,) = demands(sql, dialect)
    assert render(found.fragment.predicate, found.table.schema, found.fragment.literals) == "i = 3"


STATEMENTS = [
    ("INSERT INTO db.o SELECT i, s, d FROM db.t WHERE i = 3", {"t": "i = 3"}),
    ("CREATE TABLE x AS WITH c AS (SELECT * FROM db.t WHERE l = 2) SELECT * FROM c",
     {"t": "l = 2"}),
    ("DELETE FROM db.t WHERE d < DATE '2024-01-01'", {"t": "d < 2024-01-01"}),
    ("UPDATE db.t SET l = (SELECT max(i) FROM db.o WHERE k = 'a') WHERE i = 3",
     {"t": "i = 3", "o": "k = a"}),
    ("MERGE INTO db.t USING db.o ON t.i = o.i AND t.d > DATE '2024-01-01' AND o.k = 'a'"
     " WHEN MATCHED THEN UPDATE SET l = 1", {"t": "d > 2024-01-01", "o": "k = a"}),
    ("MERGE INTO db.t USING db.o ON t.i = o.i AND t.d > DATE '2024-01-01' AND o.k = 'a'"
     " WHEN NOT MATCHED THEN INSERT (i) VALUES (o.i)", {"t": "d > 2024-01-01", "o": "TRUE"}),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "expected"), STATEMENTS)
def test_statements_read_what_they_read(sql: str, expected: dict[str, str]) -> None:
    found = demands(sql)
    assert {
        d.table.name: render(d.fragment.predicate, d.table.schema, d.fragment.literals)
        for d in found
    } == expected


def test_other_statements_are_skipped_with_a_reason() -> None:
    for sql, reason in (
        ("GRANT SELECT ON db.t TO x", skip_reasons.NOT_A_QUERY),
        ("CREATE VIEW v AS SELECT * FROM db.t", skip_reasons.NOT_A_QUERY),
        ("SELECT 1", skip_reasons.UNKNOWN_TABLES),
        ("EXPLAIN SELECT * FROM db.t", skip_reasons.NOT_A_QUERY),
        ("SELECT * FROM db.t FOR VERSION AS OF 5", skip_reasons.TIME_TRAVEL),
        ("SELECT * FROM cat.db.t.files", skip_reasons.TIME_TRAVEL),
        ("SELECT * FROM t.branch_audit", skip_reasons.TIME_TRAVEL),
        ('SELECT * FROM db."t$partitions"', skip_reasons.TIME_TRAVEL),
        ("SELECT * FROM elsewhere.files", skip_reasons.UNKNOWN_TABLES),
        ("-- layoutctl\nSELECT * FROM db.t", skip_reasons.OWN_JOB),
    ):
        assert SqlReader("trino", BY_NAME).extract(sql, EVENT_MS) == Skipped(reason), sql


LOOKS = (
    "SELECT * FROM db.t LIMIT 10",
    "SELECT i, s FROM db.t FETCH FIRST 100 ROWS ONLY",
    "SELECT count(*) FROM (SELECT * FROM db.t LIMIT 10) x",
    "WITH c AS (SELECT * FROM db.t LIMIT 5) SELECT * FROM c WHERE i > 3",
)
READS = (
    "SELECT * FROM db.t WHERE i = 1 LIMIT 10",
    "SELECT * FROM db.t ORDER BY i LIMIT 10",
    "SELECT count(*) FROM db.t LIMIT 10",
    "SELECT DISTINCT i FROM db.t LIMIT 10",
    "SELECT i FROM db.t GROUP BY i LIMIT 10",
    "SELECT * FROM db.t LIMIT 1000000000",
    "SELECT * FROM db.t LIMIT 10 OFFSET 1000000",
    "SELECT i, row_number() OVER (ORDER BY s) FROM db.t LIMIT 10",
    "SELECT a.i FROM db.t a JOIN db.t b ON a.i = b.i LIMIT 10",
    "WITH c AS (SELECT * FROM db.t WHERE i > 3) SELECT * FROM c LIMIT 5",
    "SELECT 1 FROM (SELECT * FROM db.t) x LIMIT 5",
    "SELECT (SELECT max(i) FROM db.t) FROM db.t LIMIT 5",
    "SELECT my_aggregate(i) FROM db.t LIMIT 1",
    "SELECT approx_set(i) FROM db.t LIMIT 1",
)


@pytest.mark.parametrize("sql", LOOKS)
def test_a_query_that_looks_at_some_rows_is_no_read_of_the_whole_table(sql: str) -> None:
    found = SqlReader("trino", BY_NAME).extract(sql, EVENT_MS)
    assert found == Skipped(skip_reasons.STOPS_EARLY)


@pytest.mark.parametrize("sql", READS)
def test_a_limit_after_other_work_reads_what_it_would_read_without(sql: str) -> None:
    assert not isinstance(SqlReader("trino", BY_NAME).extract(sql, EVENT_MS), Skipped)


def test_lifting_literals_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = [f"SELECT i FROM db.t WHERE {where}" for where, _ in CONDITIONS]
    queries += [f"SELECT * FROM {from_}" for from_, _ in JOINS] + [sql for sql, _ in STATEMENTS]
    lifted = [demands(sql) for sql in queries]
    monkeypatch.setattr("reconciler.workload_log.lift._MISREAD", __import__("re").compile(""))
    assert [demands(sql) for sql in queries] == lifted


def test_queries_of_one_template_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []
    analyse = SqlReader._analysed
    monkeypatch.setattr(
        SqlReader, "_analysed", lambda self, *a: parsed.append(a) or analyse(self, *a)
    )
    one = SqlReader("trino", BY_NAME)
    for n in range(50):
        found = one.extract(
            f"SELECT i FROM db.t WHERE i = {n} AND p < DECIMAL '{n}.5'"
            f" AND s IN ('a{n}', 'b''{n}') -- it's {n % 1}\n",
            EVENT_MS,
        )
        assert isinstance(found, list) and found[0].fragment.literals == (
            n, 100 * n + 50, (f"a{n}".encode(), f"b'{n}".encode()),
        )  # fmt: skip
    assert len(parsed) == 1


@pytest.mark.parametrize(
    "sql",
    ["SELECT 'a''b' = \"x='1'\" -- y = 'z'", "SELECT /* a = 1 */ `b='2'` FROM t WHERE c=1.5e3",
     "x = r'raw' AND y = 'a\\'b'", "$$ x = 1 $$", "a = 1x", "a = 7.8.9"],
)  # fmt: skip
def test_text_in_quotes_and_comments_is_not_lifted(sql: str) -> None:
    lifted = lift(sql)
    assert all(mark in lifted.template for mark in lifted.literals)
    for kept in ("x='1'", "`b='2'`", "r'raw'"):
        assert (kept in sql) == (kept in lifted.template)
    assert "y = 'z'" not in lifted.template and "a = 1 */" not in lifted.template


def test_names_are_found_by_unique_suffix_only() -> None:
    index = NameIndex([("c", "a", "t"), ("c", "b", "t"), ("c", "b", "u"), ("b", "u")])
    assert index.find(("t",)) is None
    assert index.find(("A", "T")) == ("c", "a", "t")
    assert index.find(("b", "u")) == ("b", "u")
    assert index.find(("x", "t")) is None


def test_names_that_differ_in_case_only_are_distinguished_or_refused() -> None:
    index = NameIndex([("c", "a", "t"), ("c", "a", "T"), ("c", "a", "u"), ("c", "b", "U")])
    assert index.find(("c", "a", "T")) == ("c", "a", "T")
    assert index.find(("a", "t")) == ("c", "a", "t")
    assert index.find(("A", "t")) is None
    assert index.find(("u",)) is None  # two schemas: a guess, whatever its case


@pytest.mark.parametrize("sql", ["SELECT i FROM db.T", 'SELECT x.i FROM cat.db."T" AS x'])
def test_a_query_gets_the_table_of_its_own_spelling(sql: str) -> None:
    named = {("cat", "db", "t"): TABLES["t"], ("cat", "db", "T"): TABLES["o"]}
    found = SqlReader("duckdb", SchemaMap(named)).extract(sql + " WHERE i = 3", EVENT_MS)
    assert not isinstance(found, Skipped)
    assert [one.table.uuid for one in found] == [TABLES["o"].uuid]


def test_tables_that_differ_in_case_only_are_joined_without_aliases() -> None:
    named = {("cat", "db", "t"): TABLES["t"], ("cat", "db", "T"): TABLES["o"]}
    sql = (
        "SELECT count(*) FROM cat.db.T JOIN cat.db.t ON cat.db.T.i = cat.db.t.i "
        "WHERE cat.db.t.l = 7 AND cat.db.T.k = 'a'"
    )
    found = SqlReader("duckdb", SchemaMap(named)).extract(sql, EVENT_MS)
    assert not isinstance(found, Skipped)
    conditions = {
        one.table.uuid: render(one.fragment.predicate, one.table.schema, one.fragment.literals)
        for one in found
    }
    assert conditions == {TABLES["o"].uuid: "k = a", TABLES["t"].uuid: "l = 7"}


@pytest.mark.parametrize("dialect", ["trino", "spark", "duckdb", "postgres", "snowflake"])
def test_named_windows_read_what_they_name_and_keep_the_conditions(dialect: str) -> None:
    (found,) = demands(
        "SELECT i, sum(l) OVER w FROM db.t WHERE i = 3 WINDOW w AS (PARTITION BY s ORDER BY d),"
        " v AS (PARTITION BY b)",
        dialect,
    )
    assert render(found.fragment.predicate, found.table.schema, found.fragment.literals) == "i = 3"
    names = {field.field_id: field.name for field in found.table.schema.fields}
    assert {names[field] for field in found.fragment.projection} == {"i", "l", "s", "d", "b"}


@pytest.mark.parametrize("dialect", ["snowflake", "tsql", "oracle", "spark", "duckdb"])
def test_a_cte_that_names_itself_is_recursive_without_the_word(dialect: str) -> None:
    (found,) = demands(
        "WITH x AS (SELECT i k FROM db.t WHERE i = 1 UNION ALL SELECT x.k + 1 FROM x WHERE x.k < 4)"
        " SELECT * FROM x WHERE k > 2",
        dialect,
    )
    assert render(found.fragment.predicate, found.table.schema, found.fragment.literals) == "i = 1"


@pytest.mark.parametrize(
    ("sql", "unknown"),
    [
        ("SELECT i FROM db.t WHERE ii = 5 AND l > 3", ("ii",)),
        ("SELECT i FROM cat.db.t AS x WHERE nope = 1 OR X.i = 2", ("nope",)),
        (
            "SELECT i FROM db.t WHERE ST.x = 1 AND st.y = 2 AND db.t.i = 3 AND gone.y = 1",
            ("gone",),
        ),
        ("SELECT i AS a FROM db.t WHERE a = 1 AND MIXED = 3", ()),
        ("SELECT nope FROM db.t WHERE i = 1 ORDER BY nope", ()),
        ("SELECT i FROM db.t WHERE \"$path\" = 'x' AND _file = 'y'", ()),
        ("SELECT t.i FROM db.t JOIN db.o ON t.i = o.i WHERE kk = 'x'", ()),
        ("SELECT i FROM db.t WHERE any_match(tags, x -> x = 'b')", ()),
        ("DELETE FROM db.t WHERE ii = 5", ("ii",)),
    ],
)
def test_columns_of_conditions_that_the_table_does_not_have_are_named(
    sql: str, unknown: tuple[str, ...]
) -> None:
    for found in demands(sql):
        assert found.unknown == unknown


def test_a_column_that_its_table_does_not_have_makes_a_full_scan_that_says_so() -> None:
    (found,) = demands("SELECT i FROM cat.db.t AS x WHERE x.nope = 1")
    assert (found.fragment.full_scan, found.note) == (True, skip_reasons.UNRESOLVED)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT t.l FROM db.t JOIN db.o ON t.i = o.i WHERE o.k = 'a'", True),
        ("SELECT t.l FROM db.t, db.o WHERE t.i = o.i AND o.d > DATE '2024-01-01'", True),
        ("SELECT t.l FROM db.t JOIN db.o ON t.i = o.i AND o.k = 'a'", True),
        ("SELECT t.l FROM db.t WHERE t.i IN (SELECT i FROM db.o WHERE k = 'a')", True),
        ("SELECT t.l FROM db.t JOIN unknown u ON t.i = u.i WHERE u.x = 1", True),
        ("SELECT t.l FROM db.t JOIN db.o ON t.i = o.i", False),
        ("SELECT t.l FROM db.t JOIN db.o ON t.i = o.i WHERE o.k = 'a' AND t.l = 3", False),
        ("SELECT l FROM db.t", False),
        ("SELECT l FROM db.t WHERE upper(s) = 'A'", False),
    ],
)
def test_a_scan_without_a_condition_knows_whether_the_query_has_some_on_other_tables(
    sql: str, expected: bool
) -> None:
    found = {one.table.name.rpartition(".")[2]: one for one in demands(sql, "spark")}
    assert found["t"].fragment.elsewhere is expected


LATEST = [
    ("SELECT * FROM db.t ORDER BY ts DESC LIMIT 10", "last 10 by ts"),
    ("SELECT i, d FROM db.t ORDER BY d, s LIMIT 5", "first 5 by d"),
    ("SELECT i AS n FROM db.t ORDER BY n LIMIT 5", "first 5 by i"),
    ("SELECT count(*) FROM (SELECT i FROM db.t ORDER BY i LIMIT 7) x", "first 7 by i"),
    ("SELECT * FROM db.t ORDER BY i NULLS FIRST LIMIT 5", "TRUE"),
    ("SELECT * FROM db.t ORDER BY i + 1 LIMIT 5", "TRUE"),
    ("SELECT * FROM db.t ORDER BY s LIMIT 5", "TRUE"),
    ("SELECT * FROM db.t ORDER BY g DESC LIMIT 5", "TRUE"),
    ("SELECT * FROM db.t ORDER BY i LIMIT 5 OFFSET 3", "TRUE"),
    ("SELECT * FROM db.t ORDER BY i LIMIT 1000000", "TRUE"),
    ("SELECT * FROM db.t ORDER BY i", "TRUE"),
    ("SELECT DISTINCT i FROM db.t ORDER BY i LIMIT 5", "TRUE"),
    ("SELECT max(s) FROM db.t GROUP BY i ORDER BY i LIMIT 5", "TRUE"),
    ("SELECT * FROM db.t WHERE l = 3 ORDER BY i LIMIT 5", "l = 3"),
]


@pytest.mark.parametrize(("sql", "read"), LATEST)
def test_the_first_rows_in_an_order_are_known_where_the_engine_skips_to_them(
    sql: str, read: str
) -> None:
    (found,) = demands(sql, "duckdb")
    predicate, literals = found.fragment.predicate, found.fragment.literals
    assert render(predicate, found.table.schema, literals) == read


def test_an_engine_that_reads_all_files_for_an_order_reads_no_first_rows() -> None:
    (found,) = demands("SELECT * FROM db.t ORDER BY ts DESC LIMIT 10", "spark")
    assert render(found.fragment.predicate, found.table.schema) == "TRUE"
