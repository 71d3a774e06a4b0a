"""Hostile statements and logs: each is read within bounds, or counted with its reason.

A reader that is quadratic or worse in one of these does not end before the timeout.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.workload_log import (
    complexity,
    importing,
    log_lines,
    skip_reasons,
    spark_events,
)
from reconciler.workload_log.event_log_files import is_event_log
from reconciler.workload_log.importing import Tally
from reconciler.workload_log.prepared import PreparedStatements
from reconciler.workload_log.scan_text import parse_scan
from reconciler.workload_log.spark_events import SparkEventImport
from reconciler.workload_log.sql import Skipped, SqlReader
from reconciler.workload_log.sql_log import SqlLogImport
from reconciler.workload_log.tables import SchemaMap
from reconciler.workload_log.unknown_columns import unknown_columns
from tests.workload_log.oracle import EVENT_MS, known_tables
from tests.workload_log.sinks import MemorySink

TABLES = known_tables(
    {"t": (("i", "int"), ("l", "long"), ("s", "string"), ("d", "date"), ("p", "decimal(6,2)")),
     "o": (("i", "int"), ("k", "string"))}
)  # fmt: skip
BY_NAME = SchemaMap({("cat", "db", name): table for name, table in TABLES.items()})
WHERE = "SELECT i FROM db.t WHERE "

pytestmark = pytest.mark.timeout(300)


def many(separator: str, number: int, item: Callable[[int], str]) -> str:
    return separator.join(item(k) for k in range(number))


def nested(levels: int, item: str) -> str:
    query = "SELECT i AS a, l, s, d, p FROM db.t"
    for level in range(levels):
        query = f"SELECT {item} FROM ({query}) x{level}"
    return query


def outcome(sql: str, dialect: str = "trino") -> str:
    """What became of the statement: "analysed", or the reason why it is a full scan or skipped."""
    text, reason = PreparedStatements(dialect).executed(sql, "")
    if reason:
        return reason
    found = SqlReader(dialect, BY_NAME).extract(text, EVENT_MS)
    if isinstance(found, Skipped):
        return found.reason
    assert all(demand.fragment.full_scan == bool(demand.note) for demand in found)
    return next((demand.note for demand in found if demand.note), "analysed")


ANALYSED = {
    "many ORs": WHERE + many(" OR ", 2000, lambda k: f"i = {k}"),
    "many ANDs": WHERE + many(" AND ", 1000, lambda k: f"i <> {k}"),
    "a long IN list": WHERE + f"i IN ({many(',', 10_000, str)})",
    "many unions": many(" UNION ALL ", 200, lambda k: WHERE + f"i = {k}"),
    "many joins": "SELECT a0.i FROM db.t a0 "
    + many(" ", 60, lambda k: f"LEFT JOIN db.t a{k + 1} ON a{k + 1}.i = a{k}.i")
    + " WHERE a60.i = 1",
    "nested derived tables": nested(20, "a, l") + " WHERE a = 3",
    "a long string": WHERE + f"s = '{'x' * 900_000}'",
}
TOO_MUCH = {
    "thousands of unions": many(" UNION ALL ", 2000, lambda k: WHERE + f"i = {k}"),
    "thousands of CTEs": "WITH "
    + many(",", 2_000, lambda k: f"c{k} AS (SELECT i FROM db.t)")
    + " SELECT * FROM c1",
    "thousands of tables": "SELECT 1 FROM " + many(",", 3000, lambda k: f"db.t a{k}"),
    "CTEs that double": "WITH c0 AS (SELECT 1 AS i)"
    + many("", 40, lambda k: f", c{k + 1} AS (SELECT a.i FROM c{k} a JOIN c{k} b ON a.i = b.i)")
    + " SELECT * FROM c40, db.t",
    "stars that double": nested(30, "*, *"),
    "aliases that double": "SELECT i AS c0"
    + many("", 40, lambda k: f", c{k}+c{k} AS c{k + 1}")
    + " FROM db.t",
    "a million characters": WHERE + f"s = '{'x' * 1_100_000}'",
    "a deep sum": WHERE + "i = " + many("+", 15_000, str),
}  # fmt: skip


@pytest.mark.parametrize("name", ANALYSED)
def test_a_large_statement_is_analysed(name: str) -> None:
    assert outcome(ANALYSED[name]) == "analysed"


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_statement_beyond_the_bounds_counts_as_a_full_scan(name: str) -> None:
    assert outcome(TOO_MUCH[name]) == skip_reasons.TOO_COMPLEX


def test_a_statement_of_too_many_tokens_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complexity, "MAX_TOKENS", 100)
    assert outcome(WHERE + "i = " + "- " * 100 + "1") == skip_reasons.TOO_COMPLEX


def test_a_condition_that_doubles_at_each_level_is_left_out() -> None:
    assert outcome(f"SELECT * FROM ({nested(25, 'a + a AS a')}) y WHERE y.a = 3") in (
        "analysed",
        skip_reasons.TOO_COMPLEX,
    )


SPACES = " " * 100_000
TEXTS = {
    "an open parenthesis each": WHERE + "(" * 20_000,
    "one long word": "SELECT (FROM db.t " + "a" * 200_000,
    "a name of many levels": "SELECT (FROM db.t, " + "a." * 40_000,
    "open brackets": "SELECT (FROM db.t " + "[" * 60_000,
    "open comments": WHERE + "i = 1 (" + "/*" * 50_000,
    "spaces after a comparison": WHERE + f"i = {SPACES}x (",
    "spaces in a range": WHERE + f"i BETWEEN {SPACES}1 AND{SPACES}x (",
    "spaces in a list": WHERE + f"i IN ({SPACES}x",
    "spaces after FROM": "SELECT ( FROM" + SPACES,
    "semicolons that end nothing": "EXECUTE IMMEDIATE 'x' USING " + ";" * 200_000 + "x",
    "spaces that end nothing": f"EXECUTE p USING {SPACES}x{SPACES}y",
    "an open UNLOAD": f"UNLOAD({SPACES}" + ")" * 20_000,
    "an open EXPLAIN": "EXPLAIN (" + "ANALYZE " * 20_000,
    "an open PREPARE": "PREPARE x (" + "()" * 20_000,
    "quotes": WHERE + '"' * 199_999,
    "open names in brackets": WHERE + "i = 1 (" + "[a" * 100_000,
    "comments that end": WHERE + "i = 1 (" + "/**/" * 50_000,
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_nothing_reads_ends_in_a_reason(name: str) -> None:
    assert outcome(TEXTS[name])


NUMBERS = {
    "an exponent in an interval": "d > DATE '2024-01-01' + INTERVAL '1e999999999' DAY",
    "digits in an interval": f"d > DATE '2024-01-01' + INTERVAL '{'1' * 200_000}'",
    "an exponent in a cast": "p = CAST('1e999999999' AS DECIMAL(38,2))",
    "a cast's precision": "p = CAST('1' AS DECIMAL(999999999,0))",
    "digits": f"i = {'9' * 200_000}",
    "decimal places": f"p = 1.{'9' * 200_000}",
    "a product": f"i = {many('*', 200, lambda k: '9' * 50)}",
    "an escape": f"s LIKE 'a' ESCAPE '{'a-z' * 50_000}'",
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_fills_the_memory_is_not_computed(name: str) -> None:
    """The condition is left out, and the other one is kept."""
    found = SqlReader("trino", BY_NAME).extract(f"{WHERE}{NUMBERS[name]} AND l = 7", EVENT_MS)
    assert not isinstance(found, Skipped)
    assert [demand.fragment.literals for demand in found] in ([(7,)], [()])


@pytest.mark.parametrize(
    "sql", ["(" * 3000, "SELECT 'a", f"SELECT {'(' * 3000}i{')' * 3000} FROM t"]
)
def test_no_column_is_unknown_in_a_query_that_cannot_be_parsed(sql: str) -> None:
    assert unknown_columns(sql, "trino", TABLES["t"].schema) == ()


def log(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def line(sql: str) -> bytes:
    return json.dumps({"sql": sql, "timestamp": "2026-03-01T10:00:00Z"}).encode()


def imported(path: Path) -> Tally:
    return SqlLogImport(SqlReader("trino", BY_NAME), MemorySink()).run(path)


def test_a_nested_first_line_is_a_skipped_line_of_a_sql_log(tmp_path: Path) -> None:
    path = log(
        tmp_path / "q.jsonl", b'{"a":' * 100_000 + b"1" + b"}" * 100_000, line(WHERE + "i = 1")
    )
    assert not is_event_log(path)
    tally = imported(path)
    assert dict(tally.skipped) == {skip_reasons.NOT_JSON: 1} and tally.kept == 1


def test_hostile_statements_are_counted_and_the_import_goes_on(tmp_path: Path) -> None:
    statements = [TOO_MUCH["stars that double"], TOO_MUCH["thousands of tables"], WHERE + "i = 1"]
    tally = imported(log(tmp_path / "q.jsonl", *map(line, statements)))
    assert tally.kept == len(statements)
    assert dict(tally.full_scans) == {skip_reasons.TOO_COMPLEX: 2}


def test_an_unparsable_statement_has_another_reason_than_one_that_is_too_complex() -> None:
    assert outcome(WHERE + "i = = 1") == skip_reasons.UNPARSABLE


def test_a_line_beyond_the_limit_is_skipped_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lines, "MAX_LINE", 1000)
    tally = imported(log(tmp_path / "q.jsonl", line("x" * 2000), line(WHERE + "i = 1")))
    assert dict(tally.skipped) == {skip_reasons.TOO_LONG: 1} and tally.kept == 1


def test_a_packed_log_that_unpacks_to_far_more_ends_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "MAX_UNPACKED", 1 << 20)
    path = tmp_path / "q.jsonl.gz"
    path.write_bytes(gzip.compress(line(WHERE + "i = 1") + b"\n" * (2 << 20)))
    tally = imported(path)
    assert tally.kept == 1 and dict(tally.skipped) == {skip_reasons.BOMB: 1}


def spark(path: Path, *events: object) -> Tally:
    start = {"Event": "SparkListenerApplicationStart", "App Name": "x", "App ID": "app-1"}
    log(path, *(json.dumps(event).encode() for event in (start, *events)))
    return SparkEventImport(BY_NAME, MemorySink()).run(path)


SQL = "org.apache.spark.sql.execution.ui.SparkListenerSQL"
SCAN = "BatchScan cat.db.t[i#1] IcebergScan(table=cat.db.t, branch=null, filters=, groupedBy=)"


def execution(number: int, at: int, plan: object) -> list[object]:
    identity = {"executionId": number, "time": at}
    return [
        {"Event": SQL + "ExecutionStart", **identity, "sparkPlanInfo": plan},
        {"Event": SQL + "ExecutionEnd", **identity},
    ]


def test_numbers_that_no_store_holds_are_unreadable_events(tmp_path: Path) -> None:
    plan = {"simpleString": SCAN, "metrics": [], "children": []}
    events = [*execution(10**30, EVENT_MS, plan), *execution(2, 10**30, plan)]
    tally = spark(tmp_path / "app", *events, *execution(3, EVENT_MS, plan))
    assert tally.kept == 1
    assert dict(tally.skipped) == {skip_reasons.UNREADABLE_EVENT: 2}


def test_plans_nested_too_deeply_are_unreadable_events(tmp_path: Path) -> None:
    plan: dict[str, object] = {"simpleString": SCAN, "metrics": [], "children": []}
    for _ in range(400):
        plan = {"simpleString": "x", "metrics": [], "children": [plan]}
    tally = spark(tmp_path / "app", *execution(1, EVENT_MS, plan))
    assert tally.kept + sum(tally.skipped.values()) == 1


@pytest.mark.parametrize(
    "text",
    ["IcebergScan(table=" * 50_000, "[" * 100_000 + "IcebergScan(table=a, filters=",
     SCAN.replace("branch=null", "branch=" * 50_000)],
)  # fmt: skip
def test_the_text_of_a_scan_is_read_in_linear_time(text: str) -> None:
    assert parse_scan(text) is None or parse_scan(text) is not None


def test_executions_that_never_end_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is held stays bounded, by number and by text, also if an id starts again or an
    execution's plan changes at each step."""
    monkeypatch.setattr(spark_events, "MOST_OPEN", 5)
    monkeypatch.setattr(spark_events, "MOST_OPEN_TEXT", 20 * len(SCAN))

    def plan(number: int) -> dict[str, object]:
        metrics = [{"name": "m", "accumulatorId": number}]
        return {"simpleString": SCAN, "metrics": metrics, "children": []}

    started = [execution(n // 2, EVENT_MS + n, plan(n))[0] for n in range(400)]
    update = {"Event": f"{SQL}AdaptiveExecutionUpdate", "executionId": 199}
    changed = [{**update, "sparkPlanInfo": plan(1000 + n)} for n in range(50)]
    held: list[spark_events._Application] = []
    made = spark_events._Application.__init__

    def noted(self: spark_events._Application, *arguments: object) -> None:
        made(self, *arguments)  # type: ignore[arg-type]
        held.append(self)

    monkeypatch.setattr(spark_events._Application, "__init__", noted)
    tally = spark(tmp_path / "app", *started, *changed, *execution(900, EVENT_MS, plan(9)))
    (state,) = held
    assert len(state.executions) <= 5 and len(state.by_accumulator) <= 5
    assert state.open_text == sum(one.text for one in state.executions.values())
    assert tally.kept == 1
    assert tally.skipped == {skip_reasons.NEVER_ENDED: 200 - 5 + 1}


def test_what_a_reader_remembers_of_statements_is_bounded_by_their_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from reconciler.workload_log import prepared, sql

    monkeypatch.setattr(sql, "MAX_TEMPLATE_TEXT", 2_000)
    reader = SqlReader("trino", BY_NAME)
    for number in range(300):
        assert isinstance(reader.extract(f"SELECT i AS a{number} FROM db.t", EVENT_MS), list)
    assert sum(len(text) for text, _ in reader._templates) == reader._size <= 2_000
    monkeypatch.setattr(prepared, "MAX_TEXT", 1_000)
    statements = PreparedStatements("trino")
    for number in range(300):
        statements.executed(f"PREPARE p{number % 70} FROM SELECT {number} FROM db.t", f"s{number}")
    assert sum(map(len, statements._texts.values())) == statements._size <= 2_000


def test_unknown_columns_are_named_up_to_a_number(tmp_path: Path) -> None:
    lines = (line(f"{WHERE}nothing{n} = 1") for n in range(importing.MOST_UNKNOWN + 50))
    tally = imported(log(tmp_path / "q.jsonl", *lines))
    assert len(tally.unknown) == importing.MOST_UNKNOWN + 1
    assert tally.unknown["t", "(others)"] == 50
