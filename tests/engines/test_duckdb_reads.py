"""DuckDB reads what each kind of action wrote: rows and aggregates are those kept by the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from bench.trino_kinds import ACTIONS, NAMESPACE, story
from reconciler.demo.witness import connect
from tests.conftest import sqlite_catalog


def test_duckdb_reads_a_table_after_each_kind_of_action(tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    properties = dict(sqlite_catalog(tmp_path).properties)
    name, connection = f"{NAMESPACE}.kinds", connect()

    def ask(sql: str) -> list[Any]:
        place = SqlCatalog("rec", **properties).load_table(name).metadata_location
        scan = f"iceberg_scan('{place.removeprefix('file://')}')"
        return connection.execute(sql.replace(f"FROM {name}", f"FROM {scan}")).fetchall()

    answers = list(story(tmp_path, ask))
    assert {kind: wrong for kind, wrong in answers if wrong} == {}
    assert [kind for kind, _ in answers] == list(ACTIONS)  # none had nothing to do
