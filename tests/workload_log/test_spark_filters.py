"""What Iceberg prints of a scan's filters reads back as the predicate that was pushed down."""

from __future__ import annotations

import datetime as dt

import pytest

from reconciler.queries.predicate import render
from reconciler.table.schema import Field, Schema
from reconciler.workload_log.constants import Binding
from reconciler.workload_log.scan_text import parse_scan
from reconciler.workload_log.spark_filters import UnreadableFilters, read_filters

NAMES = {"id": "long", "d": "date", "v": "string", "amt": "decimal(10,2)", "ts": "timestamptz",
         "f": "double", "b": "boolean", "st.x": "int", "odd name": "int", "bin": "binary",
         "u": "uuid"}  # fmt: skip
SCHEMA = Schema(0, tuple(Field(i + 1, n, t) for i, (n, t) in enumerate(NAMES.items())))
BINDING = Binding(0, dt.UTC, "spark", {})

CASES = [
    ("", "TRUE"),
    ("true", "TRUE"),
    ("id IS NOT NULL, id >= 10, id < 200", "id >= 10 AND id < 200"),
    ("d = 20458", "d = 2026-01-05"),
    ("d IN (20455, 20456)", "d IN (2026-01-02, 2026-01-03)"),
    ("ts >= 1767243600000000", "ts >= 2026-01-01T05:00:00Z"),
    ("amt > 3.50, amt <= 7", "amt > 3.50 AND amt <= 7.00"),
    ("f > 2.5, f < 1.0E10", "f > 2.5 AND f < 10000000000.0"),
    ("f < -Infinity", "TRUE"),
    ("b = true", "b = true"),
    ("st.x > 990", "st.x > 990"),
    ("odd name = 3", "odd name = 3"),
    ("bin = X'61'", "bin = 0x61"),
    ("v LIKE '1%'", "v LIKE 1%"),
    ("v LIKE 'a%b%'", "v LIKE a%b%"),
    ("v NOT LIKE 'z%'", "v NOT LIKE z%"),
    ("NOT (v LIKE 'z%')", "v NOT LIKE z%"),
    ("NOT (id = 5)", "id != 5"),
    ("NOT ((id = 5 OR d IS NULL))", "id != 5 AND d IS NOT NULL"),
    ("id NOT IN (1, 2)", "id NOT IN (1, 2)"),
    ("v IN ('12', 'a,b', 'it's', 'x AND y')", "v IN (12, a,b, it's, x AND y)"),
    ("v = 'it's', id = 1", "id = 1 AND v = it's"),
    ("v = ''", "v = "),
    ("((id = 1 OR id = 2) AND v IS NULL)", "v IS NULL AND (id = 1 OR id = 2)"),
    ("(is_nan(f) OR not_nan(f))", "f IS NAN OR f IS NOT NAN"),
    ("bucket[4](id) = 2", "bucket(4, id) = 2"),
    ("u = 'f79c3e09-677c-4bbd-a479-3f349cb785e7'", "u = f79c3e09-677c-4bbd-a479-3f349cb785e7"),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_printed_filters_read_back(text: str, expected: str) -> None:
    found = read_filters(text, SCHEMA, BINDING)
    assert render(found.predicate, SCHEMA, found.literals) == expected


FOREIGN = [
    "id >", "unknown = 3", "id = 3 AND", "v = 'open", "id ~ 3", "(id = 1 XOR id = 2)",
    "id = 1; id = 2", "v = 'a', b', id = 1", "NOT id = 3", "id LIKE",
]  # fmt: skip


@pytest.mark.parametrize("text", FOREIGN)
def test_other_text_is_refused_rather_than_guessed(text: str) -> None:
    with pytest.raises(UnreadableFilters):
        read_filters(text, SCHEMA, BINDING)


def line(output: str, rest: str) -> str:
    return f"BatchScan rec.db.q[{output}] {rest} RuntimeFilters: []"


def test_a_scan_line_gives_table_columns_branch_and_filters() -> None:
    found = parse_scan(
        line(
            "id#12L, d#13, a, b#14",
            "IcebergScan(table=rec.db.q, schemaId=0, snapshotId=7, branch=null,"
            " filters=v = ', groupedBy=', id = 3, runtimeFilters=id IN (1), groupedBy=)",
        )
    )
    assert found is not None
    assert found.table == ("rec", "db", "q")
    assert found.columns == ("id", "d", "a, b")
    assert (found.branch, found.filters) == ("", "v = ', groupedBy=', id = 3")
    assert not found.grouped


def test_a_scan_for_a_storage_partitioned_join_is_grouped_by_partition() -> None:
    found = parse_scan(line("id#1L", "IcebergScan(table=t, filters=, groupedBy=id_bucket)"))
    assert found is not None and found.grouped and found.filters == ""


def test_an_older_iceberg_without_snapshot_and_a_named_branch() -> None:
    found = parse_scan(
        line("id#1L", "IcebergScan(table=rec.db.q, branch=audit, filters=, groupedBy=)")
    )
    assert found is not None and found.branch == "audit" and found.filters == ""


def test_a_cut_list_of_columns_means_all_columns() -> None:
    found = parse_scan(
        line("id#1L, d#2, ... 40 more fields", "IcebergScan(table=t, filters=, groupedBy=)")
    )
    assert found is not None and found.columns is None


def test_staged_and_changelog_scans_are_not_queries() -> None:
    for scan in ("IcebergStagedScan(table=t, taskSetID=x, filters=)",
                 "IcebergChangelogScan(table=t, fromSnapshotId=1, filters=)"):  # fmt: skip
        assert parse_scan(line("id#1L", scan)) is None
