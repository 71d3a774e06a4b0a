"""Random constants, computed by DuckDB: no row that a condition keeps fails its fragment.

Dates, times with and without zone, numbers of every kind and patterns, nested in each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import duckdb
import pytest

from tests.examples import examples, seeds
from tests.workload_log.oracle import check_law, known_tables

TABLES = known_tables(
    {"tt": (("i", "int"), ("l", "long"), ("p", "decimal(6,2)"), ("d", "date"),
            ("ts", "timestamp"), ("tz", "timestamptz"), ("s", "string"), ("f", "float"),
            ("g", "double"))}
)  # fmt: skip
ZONES = ["UTC", "Europe/Berlin", "America/New_York"]


@pytest.fixture(scope="module")
def data() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("""
            CREATE TABLE tt AS SELECT (n * 37 % 400 - 200)::INT AS i,
              (n * 7919 % 40000 - 20000)::BIGINT AS l,
              ((n * 13 % 800 - 400) / 16.0)::DECIMAL(6,2) AS p,
              DATE '2023-11-01' + (n % 240)::INT AS d,
              TIMESTAMP '2024-01-28' + to_seconds(n * 3571 % 5000000) AS ts,
              TIMESTAMPTZ '2024-01-28 00:00:00+00' + to_seconds(n * 3571 % 5000000) AS tz,
              chr((97 + n % 5)::INT) || chr((95 + n % 7)::INT) || (n % 13)::VARCHAR AS s,
              ((n * 11 % 700 - 350) / 10.0)::FLOAT AS f, ((n * 11 % 700 - 350) / 10.0)::DOUBLE AS g
            FROM range(700) t(n)
        """)
        connection.execute(f"INSERT INTO tt VALUES ({', '.join(['NULL'] * 9)})")
        yield connection


class Grammar:
    """Expressions of one kind each; depth: how far they are nested already."""

    def __init__(self, seed: int):
        self.random = Random(seed)

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def number_in(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def date(self, depth: int = 0) -> str:
        month, day, days = self.number_in(1, 4), self.number_in(10, 29), self.number_in(-40, 40)
        plain = f"DATE '2024-0{month}-{day}'"
        if depth > 2:
            return plain
        inner, unit = self.date(depth + 1), self.pick("week", "month", "day", "year", "quarter")
        return self.pick(
            plain, f"({inner} + INTERVAL {days} DAY)::DATE", f"make_date(2024, {month}, {day})",
            f"({inner} - INTERVAL {month} MONTH)::DATE", f"date_trunc('{unit}', {inner})::DATE",
            f"last_day({inner})", f"{inner} + {days}", f"CAST('2024-0{month}-{day}' AS DATE)",
            f"CAST({self.time(depth + 1)} AS DATE)", f"'2024-0{month}-{day}'",
            f"strptime('0{month}/{day}/2024', '%m/%d/%Y')::DATE",
        )  # fmt: skip

    def time(self, depth: int = 0) -> str:
        day, hour, moved = self.number_in(10, 29), self.number_in(0, 9), self.number_in(-90, 90)
        plain = f"TIMESTAMP '2024-02-{day} 1{hour}:30:00'"
        if depth > 2:
            return plain
        inner, epoch = self.time(depth + 1), 1_706_400_000 + self.number_in(0, 5_000_000)
        unit = self.pick("hour", "minute", "day", "second", "week")
        return self.pick(
            plain, f"({inner} + INTERVAL {moved} {unit})", f"date_trunc('{unit}', {inner})",
            f"({inner} - INTERVAL '{hour} months {day} days')", self.date(depth + 1),
            f"CAST({self.date(depth + 1)} AS TIMESTAMP)", f"'2024-02-{day} 0{hour}:15:00'",
            f"strptime('2024-02-{day} 0{hour}:30:00', '%Y-%m-%d %H:%M:%S')",
            f"(to_timestamp({epoch}) AT TIME ZONE '{self.pick(*ZONES)}')",
        )  # fmt: skip

    def instant(self, depth: int = 0) -> str:
        day, moved = self.number_in(10, 29), self.number_in(-90, 90)
        zone = self.pick("+00", "+02:00", "-05:30", "Z", " UTC")
        plain = f"TIMESTAMPTZ '2024-02-{day} 12:00:00{zone}'"
        if depth > 2:
            return plain
        inner = self.instant(depth + 1)
        return self.pick(
            plain, f"to_timestamp({1_706_400_000 + self.number_in(0, 5_000_000)})",
            f"({self.time(depth + 1)} AT TIME ZONE '{self.pick(*ZONES)}')", self.time(depth + 1),
            f"({inner} + INTERVAL {moved} HOUR)", f"date_trunc('day', {inner})",
        )  # fmt: skip

    def number(self, depth: int = 0) -> str:
        whole, part = self.number_in(-220, 220), self.number_in(0, 99)
        plain = self.pick(
            f"{whole}", f"{whole}.{part}", f"{whole}e0", "0.1", "99999999999", "1e30", "0.005",
            "'12'", "-'7'", "9223372036854775808", "NULL", f"{whole}::FLOAT",
        )  # fmt: skip
        if depth > 2:
            return plain
        kind = self.pick("DOUBLE", "BIGINT", "DECIMAL(8,3)", "SMALLINT")
        return self.pick(
            plain, plain, f"({self.number(depth + 1)} + {self.number(depth + 1)})",
            f"({self.number(depth + 1)} * {part % 5 - 2})", f"(- {self.number(depth + 1)})",
            f"CAST({whole} AS {kind})", f"({whole} / {self.pick('1', '2', '4', '0.5')})",
        )  # fmt: skip

    def text(self, depth: int = 0) -> str:
        return self.pick("'aa1'", "'b'", "'ca' || '5'", "''", "'d_%'", "'e''x'", "NULL", "'zz'")

    def leaf(self) -> str:
        makers = {"d": self.date, "ts": self.time, "tz": self.instant, "s": self.text}
        column = self.pick("d", "ts", "tz", "i", "l", "p", "f", "g", "s")
        make, word = makers.get(column, self.number), self.pick("", "NOT ")
        op = self.pick("=", "<>", "<", "<=", ">", ">=")
        pattern = self.pick("'a%'", "'b_%'", "'%1'", "'c!_%' ESCAPE '!'", "'d`1'", "'%'", "''",
                            "'a!%%' ESCAPE '!'", "'e%%'", "'aa1'", "'c\\_%'")  # fmt: skip
        return self.pick(
            f"{column} {op} {make()}", f"{column} {op} {make()}", f"{make()} {op} {column}",
            f"{column} {word}BETWEEN {make()} AND {make()}", f"s {word}LIKE {pattern}",
            f"{column} {word}IN ({make()}, {make()}, {make()})",
            f"{column} IS {word}DISTINCT FROM {make()}", f"CAST(d AS TIMESTAMP) {op} {self.time()}",
            f"CAST(i AS DECIMAL(12,2)) {op} {self.number()}",
        )  # fmt: skip

    def condition(self, depth: int = 0) -> str:
        if depth > 2:
            return self.leaf()
        one, two = self.condition(depth + 1), self.condition(depth + 1)
        return self.pick(self.leaf(), f"({one} AND {two})", f"({one} OR {two})", f"NOT ({one})")


@pytest.mark.parametrize("seed", seeds(4))
def test_no_row_that_a_condition_keeps_fails_its_fragment(
    data: duckdb.DuckDBPyConnection, seed: int
) -> None:
    grammar, pruned, valid, wanted = Grammar(seed), 0, 0, examples(30)
    for _ in range(4 * wanted):
        if valid == wanted:
            break
        sql = f"SELECT i, l FROM tt WHERE {grammar.condition()}"
        try:
            data.execute(sql)
        except duckdb.Error:
            continue
        valid += 1
        pruned += check_law(data, sql, TABLES)["tt"] < 1.0
    assert valid == wanted and pruned > valid // 2
