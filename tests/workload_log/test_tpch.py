"""TPC-H, executed: every row that a scan of any of the 22 queries needs satisfies its fragment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from reconciler.queries.predicate import render
from tests.workload_log.oracle import check_law, demands_of, known_tables
from tests.workload_log.tpch import QUERIES, SCHEMAS

TABLES = known_tables(SCHEMAS)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """All eight tables at scale factor 0.01."""
    directory = tmp_path_factory.mktemp("tpch")
    generator = Path(sys.executable).with_name("tpchgen-cli")
    subprocess.run(
        [generator, "parquet", "-s", "0.01", "--output-dir", directory],
        check=True,
        capture_output=True,
    )
    with duckdb.connect() as connection:
        for name in TABLES:
            connection.execute(f"CREATE TABLE {name} AS FROM '{directory}/{name}.parquet'")
        yield connection


@pytest.mark.parametrize("number", sorted(QUERIES))
def test_rows_outside_the_fragments_do_not_matter(
    data: duckdb.DuckDBPyConnection, number: int
) -> None:
    check_law(data, QUERIES[number], TABLES)


EXPECTED = {
    1: {"lineitem": ["l_shipdate <= 1998-09-02"]},
    2: {"part": ["p_type LIKE ? AND p_size = 15"], "region": ["r_name = EUROPE"] * 2},
    3: {
        "customer": ["c_mktsegment = BUILDING"],
        "orders": ["o_orderdate < 1995-03-15"],
        "lineitem": ["l_shipdate > 1995-03-15"],
    },
    4: {
        "orders": ["o_orderdate >= 1993-07-01 AND o_orderdate < 1993-10-01"],
        "lineitem": ["l_commitdate < l_receiptdate"],
    },
    6: {
        "lineitem": [
            "l_quantity < 24.00 AND l_discount BETWEEN 0.05 AND 0.07"
            " AND l_shipdate >= 1994-01-01 AND l_shipdate < 1995-01-01"
        ]
    },
    7: {
        "nation": ["n_name = FRANCE OR n_name = GERMANY"] * 2,
        "lineitem": ["l_shipdate BETWEEN 1995-01-01 AND 1996-12-31"],
        "customer": ["TRUE"],
    },
    13: {"customer": ["TRUE"], "orders": ["o_comment NOT LIKE ?"]},
    15: {"lineitem": ["l_shipdate >= 1996-01-01 AND l_shipdate < 1996-04-01"] * 2},
    16: {"supplier": ["s_comment LIKE ?"]},
    20: {"part": ["p_name LIKE forest%"], "nation": ["n_name = CANADA"]},
    21: {
        "orders": ["o_orderstatus = F"],
        "lineitem": ["TRUE", *["l_commitdate < l_receiptdate"] * 2],
    },
    22: {
        "customer": ["expression of c_phone", "expression of c_phone AND c_acctbal > 0.00"],
        "orders": ["TRUE"],
    },
}


@pytest.mark.parametrize("number", sorted(EXPECTED))
def test_the_conditions_are_those_that_the_query_implies(number: int) -> None:
    found: dict[str, list[str]] = {}
    for demand in demands_of(QUERIES[number], TABLES):
        text = render(demand.fragment.predicate, demand.table.schema, demand.fragment.literals)
        found.setdefault(demand.table.name, []).append(text)
    for table, conditions in EXPECTED[number].items():
        assert sorted(found[table]) == sorted(conditions), table


def test_a_disjunction_over_two_tables_gives_each_its_share() -> None:
    """Query 19: three brands, each with its own range of sizes and quantities."""
    demands = {d.table.name: d.fragment for d in demands_of(QUERIES[19], TABLES)}
    lineitem = render(
        demands["lineitem"].predicate, TABLES["lineitem"].schema, demands["lineitem"].literals
    )
    assert lineitem.count(" OR ") == 2
    assert "l_quantity BETWEEN 20.00 AND 30.00" in lineitem
    assert "l_shipmode IN (AIR, AIR REG)" in lineitem
    part = render(demands["part"].predicate, TABLES["part"].schema, demands["part"].literals)
    assert "p_brand = Brand#34" in part and "p_size BETWEEN 1 AND 15" in part


def test_projection_is_what_the_query_reads_of_the_table() -> None:
    (demand,) = demands_of(QUERIES[6], TABLES)
    schema = TABLES["lineitem"].schema
    assert [schema.name_of(i) for i in demand.fragment.projection] == [
        "l_quantity", "l_extendedprice", "l_discount", "l_shipdate",
    ]  # fmt: skip
    by_table = {d.table.name: d for d in demands_of(QUERIES[4], TABLES)}
    names = [schema.name_of(i) for i in by_table["lineitem"].fragment.projection]
    assert names == ["l_orderkey", "l_commitdate", "l_receiptdate"]
