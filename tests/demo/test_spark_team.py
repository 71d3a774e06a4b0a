"""What is read out of Spark's event log, and what counts as the same result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reconciler.demo import spark_team

SQL = "org.apache.spark.sql.execution.ui."


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
