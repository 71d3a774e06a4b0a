"""A round in a real Spark, its event log, and what counts as the same result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.demo import data, script, spark_team, tpch
from reconciler.demo.duckdb_team import DuckDbTeam

SQL = "org.apache.spark.sql.execution.ui."
SCALE = data.Scale(scale_factor=0.001, parts=4, late_parts=1, target_bytes=1 << 20)
QUERIES = tpch.draw((("Q6", 1), ("Q12", 1), ("order lookup", 1)), 1, SCALE.largest_order)


@pytest.mark.jvm
def test_a_round_opens_the_files_that_duckdb_opens_and_then_sorts_the_copy(tmp_path: Path) -> None:
    place = data.prepare(tmp_path)
    generated, catalog = data.generate(place, SCALE), data.open_catalog(place)
    data.create_tables(catalog, generated)
    data.arrive(catalog, generated, SCALE.first_parts)
    data.copy_of(catalog, "lineitem", script.ICEBERG_SORT)
    copy = (data.NAMESPACE, script.ICEBERG_SORT)
    team = spark_team.SparkTeam(place)
    runs, events = team.run_round(QUERIES, team.iceberg_sort(".".join(copy), SCALE.target_bytes))
    by_duckdb, _ = DuckDbTeam(place).run_round(QUERIES)
    assert [run.label for run in runs] == [query.label for query in QUERIES]
    assert [run.files for run in runs] == [run.files for run in by_duckdb]
    assert all(run.bytes and run.scanned >= run.files for run in runs)
    assert events.stat().st_size and len({run.checksum for run in runs}) == len(runs)
    sorted_copy = catalog.load_table(copy).current_snapshot()
    assert sorted_copy.summary.operation.value == "replace"
    assert int(sorted_copy.summary["total-data-files"]) == 1


def scan(table: str, first: int) -> dict[str, Any]:
    return {
        "simpleString": f"BatchScan demo.tpch.{table}[x#1] IcebergScan(...)",
        "children": [],
        "metrics": [
            {"name": "number of result data files", "accumulatorId": first},
            {"name": "number of skipped data files", "accumulatorId": first + 1},
        ],
    }


def log(tmp_path: Path, events: list[dict[str, Any]]) -> Path:
    path = tmp_path / "events"
    path.write_text("\n".join(json.dumps(event) for event in events) + "\n")
    return path


def task(stage: int, size: int) -> dict[str, Any]:
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": stage,
        "Task Metrics": {"Input Metrics": {"Bytes Read": size}},
    }


def test_bytes_and_files_belong_to_the_labelled_execution(tmp_path: Path) -> None:
    plan = {"simpleString": "Join", "children": [scan("lineitem", 10), scan("part", 20)],
            "metrics": []}  # fmt: skip
    path = log(tmp_path, [
        {"Event": SQL + "SparkListenerSQLExecutionStart", "executionId": 3,
         "description": "\n/* Q6 #1 */ select", "sparkPlanInfo": plan},
        {"Event": "SparkListenerJobStart", "Stage IDs": [7, 8],
         "Properties": {"spark.sql.execution.id": "3"}},
        {"Event": "SparkListenerJobStart", "Stage IDs": [9], "Properties": {}},
        {"Event": SQL + "SparkListenerDriverAccumUpdates", "executionId": 3,
         "accumUpdates": [[10, 4], [11, 6], [20, 1], [99, 5]]},
        task(7, 100), task(8, 23), task(9, 5_000),
    ])  # fmt: skip
    assert spark_team.read_event_log(path) == {"Q6 #1": (4, 10, 123)}


def test_statements_without_a_label_are_left_out(tmp_path: Path) -> None:
    path = log(tmp_path, [
        {"Event": SQL + "SparkListenerSQLExecutionStart", "executionId": 1,
         "description": "call system.rewrite_data_files", "sparkPlanInfo": scan("lineitem", 1)},
    ])  # fmt: skip
    assert spark_team.read_event_log(path) == {}


def test_the_checksum_ignores_the_order_of_rows_and_nothing_else() -> None:
    def checksum(*rows: str) -> str:
        return spark_team._checksums("\n".join([f"{spark_team.MARK}Q6 #1", *rows]))["Q6 #1"]

    assert checksum("a\t1", "b\t2") == checksum("b\t2", "a\t1")
    assert checksum("a\t1", "a\t1") != checksum("a\t1")
    assert checksum("a\t1") != checksum("a\t2")


def test_results_end_where_the_next_statement_begins() -> None:
    printed = f"{spark_team.MARK}Q1 #1\nx\n{spark_team.MARK}{spark_team.AFTERWARDS}\n55\t20\n"
    assert (
        spark_team._checksums(printed)["Q1 #1"]
        == spark_team._checksums(f"{spark_team.MARK}Q1 #1\nx\n")["Q1 #1"]
    )
