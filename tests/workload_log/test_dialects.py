"""A log in another dialect is recognised, whichever the two dialects are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.errors import UserError
from reconciler.workload_log.dialects import better_dialect, parses, why_unparsable
from tests.workload_log.sinks import MemorySink
from tests.workload_log.test_sql_log import entry, run

ONLY = {
    "tsql": "SELECT TOP 5 [id] FROM db.t WHERE [id] = {n} OPTION (RECOMPILE)",
    "spark": "SELECT id FROM db.t LATERAL VIEW explode(array(1)) x AS y WHERE `id` = {n}",
    "bigquery": "SELECT * EXCEPT (day) FROM `db.t` WHERE id IN UNNEST([{n}, 2])",
    "clickhouse": "SELECT id FROM db.t PREWHERE id = {n} LIMIT 1 BY id SETTINGS max_threads = 1",
    "snowflake": "SELECT $1:a:b FROM db.t WHERE id = {n} QUALIFY 1 = 1",
}


@pytest.mark.parametrize("written", ONLY)
def test_the_named_dialect_parses_what_the_other_does_not(written: str) -> None:
    sql = [ONLY[written].format(n=n) for n in range(50)]
    assert parses(sql[0], written)
    wrong = [other for other in ("trino", *ONLY) if not parses(sql[0], other)]
    assert wrong
    for other in wrong:
        better, count, tried = better_dialect(sql, other)
        assert (count, tried) == (32, 32) and parses(sql[-1], better)


@pytest.mark.parametrize(("bad", "kept"), [(0, 20), (10, 20), (11, None), (20, None)])
def test_a_log_is_kept_only_if_most_of_it_parses(
    tmp_path: Path, bad: int, kept: int | None
) -> None:
    sink = MemorySink()
    wrong = [entry(n, sql=ONLY["tsql"].format(n=n)) for n in range(bad)]
    path = tmp_path / "q.jsonl"
    path.write_text("".join(f"{line}\n" for line in [*wrong, *map(entry, range(20 - bad))]))
    if kept is None:
        with pytest.raises(UserError) as refused:
            run(sink, path)
        assert "tsql" in refused.value.render()
        assert not sink.stored and not sink.cursors and not sink.skips
        assert run(sink, path, "tsql").kept == 20
    else:
        assert run(sink, path).kept == kept
        assert sum(item.full_scan for item in sink.fragments) == bad


def test_a_log_that_was_right_at_its_beginning_goes_on(tmp_path: Path) -> None:
    """A log grows by a few lines at a time; those alone do not show its dialect."""
    sink = MemorySink()
    path = tmp_path / "q.jsonl"
    path.write_text("".join(f"{entry(n)}\n" for n in range(5)))
    run(sink, path)
    with path.open("a") as file:
        file.write(json.dumps({**json.loads(entry(9)), "sql": ONLY["tsql"].format(n=9)}) + "\n")
    assert run(sink, path).kept == 1


def test_no_more_statements_are_tried_than_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def refuse(sql: str, dialect: str) -> bool:
        tried.append(sql)
        return False

    monkeypatch.setattr("reconciler.workload_log.dialects.parses", refuse)
    better, _, count = better_dialect(["SELECT ((("] * 1000 + ["x" * 20_000], "trino")
    assert (better, count) == ("", 32) and len(tried) <= 32 * 20


@pytest.mark.parametrize(
    "sql", ["SELECT (((sEcReT FROM t", "SELECT 'sEcReT", "x" * 50 + " sEcReT ]]"]
)
def test_the_reason_shows_nothing_of_the_statement(sql: str) -> None:
    why = why_unparsable(sql, "trino")
    assert why and "secret" not in why.lower()
