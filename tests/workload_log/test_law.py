"""Random queries, executed: rows that fail all of a table's fragments never matter.

Joins of every kind, disjunctions over tables, subqueries, derived tables, grouping, windows, set
operations and limits over small tables full of ties and NULLs.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.workload_log.oracle import check_law, known_tables

COLUMNS = (
    ("k", "int"), ("n", "long"), ("p", "decimal(6,2)"), ("s", "string"), ("d", "date"),
    ("ts", "timestamp"), ("f", "double"), ("b", "boolean"), ("m", "int"),
)  # fmt: skip
TABLES = known_tables(dict.fromkeys(("ta", "tb", "tc"), COLUMNS))
CREATE = (
    "(k INTEGER, n BIGINT, p DECIMAL(6,2), s VARCHAR, d DATE, ts TIMESTAMP, f DOUBLE, b BOOLEAN,"
    " m INTEGER)"
)


@pytest.fixture(scope="module")
def data() -> Iterator[duckdb.DuckDBPyConnection]:
    """Three tables of 40 rows; every column has few values and some NULLs."""
    with duckdb.connect() as connection:
        for seed, name in enumerate(sorted(TABLES), start=3):
            connection.execute(f"CREATE TABLE {name} {CREATE}")
            connection.execute(f"""
                INSERT INTO {name}
                SELECT CASE WHEN h[1] < 2 THEN NULL ELSE h[1] % 7 END,
                  CASE WHEN h[2] < 2 THEN NULL ELSE h[2] % 9 - 4 END,
                  CASE WHEN h[3] < 2 THEN NULL ELSE (h[3] % 9) * 0.25 END,
                  CASE WHEN h[4] < 2 THEN NULL ELSE substr('abcabdabxyz', 1 + h[4] % 8, 3) END,
                  CASE WHEN h[5] < 2 THEN NULL ELSE DATE '2024-02-27' + (h[5] % 6)::INT END,
                  CASE WHEN h[6] < 2 THEN NULL
                    ELSE TIMESTAMP '2024-02-28 12:00:00' + to_hours((h[6] % 9 * 7)::INT) END,
                  CASE WHEN h[7] < 2 THEN NULL ELSE (h[7] % 7) / 4.0 END,
                  CASE WHEN h[8] < 2 THEN NULL ELSE h[8] % 2 = 0 END,
                  CASE WHEN h[9] < 2 THEN NULL ELSE h[9] % 7 END
                FROM (SELECT [(hash(i * 31 + j * 7919 + {seed}) % 16)::BIGINT
                  FOR j IN range(9)] AS h FROM range(40) t(i))
            """)
        yield connection


CONSTANTS = {
    "k": ["3", "0", "4.5", "-1", "7 - 4", "NULL", "CAST(5 AS BIGINT)", "3e0"],
    "n": ["-2", "1", "2.5", "0 - 3", "NULL"],
    "p": ["0.5", "1", "0.333", "1.25 + 0.25", "99999.5", "-10000000", "NULL", "0.75e0"],
    "s": ["'abc'", "'b'", "''", "'ab' || 'd'", "NULL"],
    "d": ["DATE '2024-02-29'", "'2024-03-01'::DATE", "DATE '2024-02-28' + 1", "NULL",
          "TIMESTAMP '2024-02-28 18:00:00'", "DATE '2024-01-31' + INTERVAL 1 MONTH"],
    "ts": ["TIMESTAMP '2024-02-29 12:00:00'", "DATE '2024-03-01'", "NULL",
           "TIMESTAMP '2024-02-29 19:00:00' - INTERVAL 7 HOUR"],
    "f": ["0.75", "1", "0.3", "NULL"],
}  # fmt: skip


@st.composite
def leaf(draw: st.DrawFn, aliases: tuple[str, ...]) -> str:
    alias = draw(st.sampled_from(aliases))
    column = draw(st.sampled_from(sorted(CONSTANTS)))
    name = f"{alias}.{column}"
    constants = CONSTANTS[column]
    one, two = draw(st.sampled_from(constants)), draw(st.sampled_from(constants))
    op = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
    other = f"{draw(st.sampled_from(aliases))}.{column}"
    choices = [
        f"{name} {op} {one}", f"{name} {op} {one}", f"{one} {op} {name}",
        f"{name} BETWEEN {one} AND {two}", f"{name} NOT BETWEEN {one} AND {two}",
        f"{name} IN ({one}, {two})", f"{name} NOT IN ({one}, {two})",
        f"{name} IS NULL", f"{name} IS NOT NULL", f"{name} {op} {other}",
        f"{name} IS NOT DISTINCT FROM {one}", f"{name} IS DISTINCT FROM {one}",
        f"coalesce({name}, {other}) {op} {one}", f"{alias}.b", f"NOT {alias}.b",
        f"{alias}.b IS TRUE", f"{alias}.b IS NOT FALSE", f"{alias}.s LIKE 'ab%'",
        f"{alias}.s NOT LIKE 'ab%'", f"{alias}.s LIKE 'a_c'", f"{alias}.s NOT LIKE '%b'",
        f"starts_with({alias}.s, 'b')", f"CAST({alias}.ts AS DATE) {op} DATE '2024-02-29'",
        f"CAST({alias}.k AS BIGINT) {op} 4", f"CASE WHEN {name} IS NULL THEN TRUE END",
        f"({alias}.k, {alias}.n) = (3, 1)", "1 = 0", "TRUE", f"{name} = ANY([{one}, {two}])",
        f"NOT ({name} = ANY([{one}, {two}]))", f"{alias}.k {op} '3'",
        f"{alias}.d {op} '2024-03-01'", f"coalesce({name}, {other}) = {one}",
        f"{alias}.s LIKE 'a!_%' ESCAPE '!'", f"{alias}.k {op} {alias}.m",
        f"NOT ({alias}.m {op} {alias}.k)",
    ]  # fmt: skip
    return draw(st.sampled_from(choices))


def subquery_leaf(aliases: tuple[str, ...]) -> st.SearchStrategy[str]:
    inner = conditions(("q",), nested=False)
    correlated = conditions(("q", *aliases), nested=False)
    table, alias = st.sampled_from(sorted(TABLES)), st.sampled_from(aliases)
    word = st.sampled_from(["", "NOT "])
    return st.one_of(
        st.builds(
            "{2}.k {3}IN (SELECT q.k FROM {0} q WHERE {1})".format, table, inner, alias, word
        ),
        st.builds(
            "{3}EXISTS (SELECT * FROM {0} q WHERE q.n = {2}.n AND {1})".format,
            table, correlated, alias, word,
        ),
        st.builds(
            "{2}.k > (SELECT min(q.k) FROM {0} q WHERE {1})".format, table, correlated, alias
        ),
        st.builds("{2}.k <> ALL (SELECT q.k FROM {0} q WHERE {1})".format, table, inner, alias),
    )  # fmt: skip


def conditions(aliases: tuple[str, ...], nested: bool = True) -> st.SearchStrategy[str]:
    base = leaf(aliases)
    if nested:
        base = st.one_of(base, base, base, subquery_leaf(aliases))
    return st.recursive(
        base,
        lambda child: st.one_of(
            st.builds("({0} AND {1})".format, child, child),
            st.builds("({0} OR {1})".format, child, child),
            st.builds("NOT ({0})".format, child),
        ),
        max_leaves=5,
    )


@st.composite
def derived(draw: st.DrawFn) -> str:
    """A table, or a SELECT with the columns of one (so that anything can stand on it)."""
    table = draw(st.sampled_from(sorted(TABLES)))
    if draw(st.integers(0, 2)):
        return table
    inner = draw(conditions(("x",), nested=False))
    other = draw(st.sampled_from(sorted(TABLES)))
    all_columns = "x.k, x.n, x.p, x.s, x.d, x.ts, x.f, x.b"
    side = draw(st.sampled_from(["", "LEFT ", "RIGHT ", "FULL "]))
    ordered = "ORDER BY x.n, x.s, x.d, x.ts, x.p, x.f, x.b"
    rest = "x.p, x.s, x.d, x.ts, x.f, x.b"
    grouped = "max(x.n) AS n, max(x.p) AS p, x.s, max(x.d) AS d, min(x.ts) AS ts, sum(x.f) AS f"
    choices = [
        f"SELECT * FROM {table} x WHERE {inner}",
        f"SELECT DISTINCT {all_columns} FROM {table} x WHERE {inner}",
        f"SELECT x.k, {grouped}, bool_or(x.b) AS b FROM {table} x WHERE {inner} GROUP BY x.k, x.s",
        f"SELECT x.k, {grouped}, bool_or(x.b) AS b FROM {table} x GROUP BY x.k, x.s"
        f" HAVING x.k > 2 OR x.s = 'abc' OR count(*) > 3",
        f"SELECT x.k, {grouped}, bool_or(x.b) AS b FROM {table} x GROUP BY ROLLUP (x.k, x.s)",
        f"SELECT x.k, {grouped}, bool_or(x.b) AS b FROM {table} x GROUP BY ALL"
        f" HAVING x.k > 2 OR x.s = 'abc'",
        f"SELECT max(x.k) AS k, max(x.n) AS n, 1.0 AS p, 'abc' AS s, min(x.d) AS d,"
        f" max(x.ts) AS ts, 0.75 AS f, TRUE AS b FROM {table} x WHERE {inner}",
        "SELECT x.k, row_number() OVER"
        " (PARTITION BY x.k ORDER BY x.n, x.s, x.d, x.ts, x.p, x.f, x.b) AS n, x.p, x.s, x.d,"
        f" x.ts, sum(x.f) OVER (PARTITION BY x.k, x.s) AS f, x.b FROM {table} x WHERE {inner}",
        f"SELECT {all_columns} FROM {table} x WHERE {inner} ORDER BY ALL LIMIT 7",
        f"SELECT x.k + 1 AS k, x.n, x.p, x.s, x.d, x.ts, x.f, x.b FROM {table} x",
        f"SELECT * FROM {table} UNION ALL SELECT * FROM {other} x WHERE {inner}",
        f"SELECT * FROM {table} EXCEPT SELECT * FROM {other} x WHERE {inner}",
        f"SELECT x.* FROM {table} x LEFT JOIN {other} y ON x.k = y.k AND y.n > 0 WHERE {inner}",
        f"SELECT y.* FROM {table} x LEFT JOIN {other} y ON x.k = y.k AND x.n > 0",
        f"SELECT * FROM {table} x QUALIFY row_number() OVER (PARTITION BY x.k {ordered}) = 1",
        f"SELECT * FROM {table} x WHERE {inner}"
        f" QUALIFY count(*) OVER (PARTITION BY x.k, x.n) > 1 AND max(n) OVER (PARTITION BY k) > 0",
        f"SELECT k, y.n, {rest} FROM {table} x {side}JOIN {other} y USING (k) WHERE k > 2",
        f"SELECT k, n, {rest} FROM {table} x {side}JOIN {other} y USING (k, n) WHERE {inner}",
        f"SELECT x.n AS k, x.k AS n, {rest} FROM {table} x WHERE {inner} AND k > 1",
        f"SELECT n AS k, k AS n, max(p) AS p, s, max(d) AS d, max(ts) AS ts, max(f) AS f,"
        f" max(b) AS b FROM {table} GROUP BY {table}.k, {table}.n, s HAVING k > 1 AND s <> 'abc'",
        f"WITH RECURSIVE r AS (SELECT {all_columns} FROM {table} x WHERE {inner} UNION"
        f" SELECT {all_columns} FROM r JOIN {other} x ON x.k = r.k + 1 AND x.n > 0)"
        f" SELECT * FROM r",
        f"WITH {table} AS (SELECT * FROM {table} x WHERE {inner}) SELECT * FROM {table}",
        f"SELECT x.k, q.n, {rest} FROM {table} x, LATERAL"
        f" (SELECT max(y.n) AS n FROM {other} y WHERE y.k = x.k AND y.p > 0.5) q WHERE {inner}",
        f"SELECT x.k, q.n, {rest} FROM {table} x LEFT JOIN LATERAL"
        f" (SELECT y.n FROM {other} y WHERE y.k = x.k AND y.p > 0.5) q ON TRUE WHERE {inner}",
        f"SELECT x.k, e AS n, {rest} FROM {table} x, unnest([x.n, 1]) AS u(e) WHERE {inner}",
        f"SELECT * REPLACE (x.k + 1 AS k) FROM {table} x WHERE {inner}",
        f"SELECT x.k, x.n, x.p, x.s, x.d, x.ts, sum(x.f) OVER w AS f, x.b FROM {table} x"
        f" WHERE {inner} WINDOW w AS (PARTITION BY x.k, x.s)",
        f"SELECT x.k, count(*) OVER w AS n, {rest} FROM {table} x WHERE {inner}"
        " WINDOW w AS (PARTITION BY x.k), v AS (PARTITION BY x.n)",
        f"SELECT * FROM {table} INTERSECT ALL SELECT * FROM {other} x WHERE {inner}",
        f"SELECT * FROM {table} EXCEPT ALL SELECT * FROM {other} x WHERE {inner}",
        f"SELECT * FROM {table} UNION BY NAME SELECT * FROM {other} x WHERE {inner}",
    ]
    return f"({draw(st.sampled_from(choices))})"


JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", ",", ",", "CROSS JOIN", "SEMI JOIN",
         "ANTI JOIN")  # fmt: skip
AFTER_COMMAS = (
    "ta a1, tb a2 RIGHT JOIN tc a3 ON a2.k = a3.k AND a3.n > 0 WHERE a1.n > 0",
    "ta a1, tb a2 RIGHT JOIN tc a3 ON a2.k = a3.k AND a2.n > 0 WHERE a1.n > 0",
    "ta a1, tb a2 RIGHT JOIN tc a3 ON 1 = 0",
    "ta a1, tb a2 JOIN tc a3 ON 1 = 0 RIGHT JOIN ta a4 ON a2.k = a4.k",
    "ta a1, tb a2 FULL JOIN tc a3 ON a2.k = a3.k AND a3.n > 0 WHERE a1.n > 0 AND a3.k > 0",
    "ta a1 LEFT JOIN tb a2 ON a1.k = a2.k AND a2.n > 0, tc a3 RIGHT JOIN ta a4 ON a3.n = a4.n",
    "ta a1, tb a2 LEFT JOIN tc a3 ON a2.k = a3.k AND a3.n > 0 WHERE a1.k = a2.k AND a1.k > 2",
    "ta a1, LATERAL (SELECT * FROM tb q WHERE q.k = a1.k) a2 LEFT JOIN tc a3 ON a2.n = a3.n"
    " AND a3.k > 2 WHERE a1.n > 0",
    "ta a1, (tb a2 RIGHT JOIN tc a3 ON a2.k = a3.k AND a3.n > 0) WHERE a1.n > 0",
    "(ta a1 CROSS JOIN tb a2) RIGHT JOIN tc a3 ON a2.k = a3.k AND a3.n > 0 WHERE a1.n > 0",
    "ta a1, tb a2 JOIN tc a3 USING (k) WHERE a1.k = 3",
    "ta a1, tb a2 LEFT JOIN tc a3 USING (k) WHERE a1.k = 3 AND a2.n > 0",
    "ta a1, tb a2 RIGHT JOIN tc a3 USING (k) WHERE a1.k = 3 AND a3.n > 0",
    "ta a1, (SELECT k, p AS z FROM tb) a2 NATURAL JOIN (SELECT k, n AS z2 FROM tc) a3"
    " WHERE a1.k = 3",
)  # fmt: skip


@st.composite
def queries(draw: st.DrawFn) -> str:
    aliases: list[str] = ["a1"]
    from_ = f"{draw(derived())} a1"
    item = ["a1"]  # aliases since the last comma
    for index in range(draw(st.integers(0, 2))):
        alias = f"a{index + 2}"
        kind = draw(st.sampled_from(JOINS))
        on = ""
        if kind == ",":
            item = []
        elif kind != "CROSS JOIN":
            left = item if draw(st.booleans()) else aliases  # DuckDB permits all before a comma
            extra = draw(conditions((*left, alias), nested=False))
            key = draw(st.sampled_from(["k", "n", "s", "d", "ts"]))
            on = f" ON {draw(st.sampled_from(left))}.{key} = {alias}.{key}"
            on += f" AND {extra}" if draw(st.booleans()) else ""
            on = draw(st.sampled_from([on, on, on, f" USING ({key})", f" ON {extra}"]))
        from_ += f" {kind} {draw(derived())} {alias}{on}"
        if kind not in ("SEMI JOIN", "ANTI JOIN"):
            aliases.append(alias)
            item.append(alias)
    where = draw(conditions(tuple(aliases)))
    columns = ", ".join(f"{a}.k, {a}.s, {a}.d" for a in aliases)
    outputs = draw(
        st.sampled_from(
            [columns, "count(*), " + columns.replace(".k", ".n"), "count(*), max(a1.f)"]
        )
    )
    grouped = ""
    if outputs.startswith("count(*), a"):
        grouped = f" GROUP BY {outputs.removeprefix('count(*), ')}"
        grouped += draw(st.sampled_from(["", " HAVING a1.n > 0", " HAVING count(*) > 1"]))
    return f"SELECT {outputs} FROM {from_} WHERE {where}{grouped}"


@given(sql=queries())
@settings(
    max_examples=examples(250),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_rows_outside_the_fragments_never_matter(data: duckdb.DuckDBPyConnection, sql: str) -> None:
    try:
        data.execute(sql)
    except duckdb.Error:
        return
    check_law(data, sql, TABLES)


@pytest.mark.parametrize("from_", AFTER_COMMAS)
def test_a_comma_before_a_join_keeps_every_row_that_matters(
    data: duckdb.DuckDBPyConnection, from_: str
) -> None:
    check_law(data, f"SELECT a1.k, a1.n, a2.k, a3.k FROM {from_}", TABLES)


def test_the_generated_queries_are_valid_and_prune(data: duckdb.DuckDBPyConnection) -> None:
    """The law would hold for a reader that extracts nothing, or over queries that fail."""
    kept = check_law(
        data,
        "SELECT a1.k FROM ta a1 LEFT JOIN (SELECT * FROM tb UNION ALL SELECT * FROM tc) a2"
        " ON a1.k = a2.k AND a2.n > 1 WHERE a1.k = 3 AND a1.p < 1",
        TABLES,
    )
    assert kept["ta"] < 0.3 and kept["tb"] < 0.7 and kept["tc"] < 0.7


@pytest.mark.parametrize("op", ["=", "<>", "<", "<=", ">", ">="])
@pytest.mark.parametrize("form", ["a1.k {} a1.m", "a1.m {} a1.k", "NOT (a1.k {} a1.m)"])
def test_a_condition_between_columns_keeps_the_rows_that_meet_it(
    data: duckdb.DuckDBPyConnection, form: str, op: str
) -> None:
    condition = form.format(op)
    kept = check_law(data, f"SELECT a1.k, a1.m FROM ta a1 WHERE {condition}", TABLES)
    (met,) = data.execute(f"SELECT count(*) / 40 FROM ta a1 WHERE {condition}").fetchall()
    assert kept["ta"] == met[0] < 1.0
