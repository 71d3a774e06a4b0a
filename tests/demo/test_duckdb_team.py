"""What DuckDB's team writes down of its queries, and that the log can be imported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.demo import data, tpch
from reconciler.demo.duckdb_team import DuckDbTeam
from reconciler.demo.team import QueryRun
from reconciler.queries.fragments import Fragment
from reconciler.workload_log.sql import SqlReader
from reconciler.workload_log.sql_log import SqlLogImport
from reconciler.workload_log.tables import KnownTable, SchemaMap
from tests.workload_log.sinks import MemorySink

SCALE = data.Scale(scale_factor=0.001, parts=4, late_parts=1, target_bytes=1 << 20)
QUERIES = tpch.draw((("Q6", 2), ("Q12", 1), ("order lookup", 1)), 1, SCALE.largest_order)

Played = tuple[data.Place, dict[str, QueryRun], Path]
"""The demo's directory, the runs by label, and the query log."""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    place = data.prepare(tmp_path_factory.mktemp("duckdb"))
    generated = data.generate(place, SCALE)
    catalog = data.open_catalog(place)
    data.create_tables(catalog, generated)
    data.arrive(catalog, generated, SCALE.first_parts)
    runs, log = DuckDbTeam(place).run_round(QUERIES)
    return place, {run.label: run for run in runs}, log


def test_files_are_counted_in_the_fact_tables(
    played: Played,
) -> None:
    _, runs, _ = played
    assert (runs["Q12 #1"].files, runs["Q12 #1"].scanned) == (6, 6), "three of each fact table"
    assert (runs["order lookup #1"].files, runs["order lookup #1"].scanned) == (1, 3)


def test_every_query_has_its_line_with_its_time(
    played: Played,
) -> None:
    _, _, log = played
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["sql"] for line in lines] == [query.sql for query in QUERIES]
    times = [line["timestamp"] for line in lines]
    assert times == sorted(times)


def test_the_log_is_imported_without_a_line_skipped(
    played: Played,
) -> None:
    from reconciler.catalog.metadata import schema_of

    place, _, log = played
    catalog = data.open_catalog(place)
    known = {}
    for name in data.FACTS:
        metadata = catalog.load_table((data.NAMESPACE, name)).metadata
        identifier = (data.CATALOG, data.NAMESPACE, name)
        known[identifier] = KnownTable(name, ".".join(identifier), schema_of(metadata))
    sink = MemorySink()
    tally = SqlLogImport(SqlReader("duckdb", SchemaMap(known)), sink).run(log)
    assert not tally.skipped
    read: list[Fragment] = list(sink.fragments)
    assert len(read) == 5, "one for each query and table"


def test_a_second_round_gets_a_log_of_its_own(
    played: Played,
) -> None:
    place, _, first = played
    _, second = DuckDbTeam(place).run_round(QUERIES[:1])
    assert second != first
    assert len(second.read_text().splitlines()) == 1
