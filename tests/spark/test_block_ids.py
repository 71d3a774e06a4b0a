"""Block ids through Iceberg's commits: the column is added, rewrites fill it, and what proves that
they did stays known."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from reconciler.catalog.observe import observe_table
from reconciler.loop.route import route
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.rewrite import Recluster
from reconciler.plan.actions.set_block_column import SetBlockColumn
from reconciler.plan.ordering import by_tree
from reconciler.table.block_ids import TREE, base_of, key_of
from tests.spark.tables import Bench
from tests.spark.test_trees import COLUMNS, LEAF, ROWS
from tests.spark.test_trees import TREE as CUTS

pytestmark = pytest.mark.spark
BLOCK = "layout_block"


def _rows(bench: Bench, name: str) -> list[Any]:
    """Return the rows without their ids."""
    return sorted(
        tuple(map(str, row))
        for row in bench.sql(f"SELECT id, day, shop, price, part FROM {bench.full(name)}")
    )


@pytest.mark.parametrize("version", [2, 3])
def test_ids_are_the_leaves_of_their_rows(bench: Bench, version: int) -> None:
    name = bench.create(COLUMNS, f"'format-version'='{version}'")
    bench.fill(name, 4, 500, ROWS)
    rows = _rows(bench, name)
    action = bench.action(name, Recluster)
    tree = Recluster(
        inputs=action.inputs, ordering=by_tree(CUTS), target_bytes=800, block_column=BLOCK
    )
    bench.run(bench.request(name, SetBlockColumn(BLOCK, (CUTS,)), tree))
    assert _rows(bench, name) == rows
    base = base_of(key_of(CUTS))
    for file in bench.files(name):
        path = file.file_path.removeprefix("file:")
        query = f"SELECT DISTINCT {BLOCK} - {base} - ({LEAF}) FROM '{path}'"
        assert duckdb.sql(query).fetchall() == [(0,)]
    table = bench.table(name)
    assert table.properties().get(TREE + key_of(CUTS))


def test_a_routed_query_has_the_rows_of_the_query(bench: Bench) -> None:
    name = bench.create(COLUMNS)
    bench.fill(name, 4, 500, ROWS)
    action = bench.action(name, Recluster)
    tree = Recluster(
        inputs=action.inputs, ordering=by_tree(CUTS), target_bytes=800, block_column=BLOCK
    )
    bench.run(bench.request(name, SetBlockColumn(BLOCK, (CUTS,)), tree))
    sql = f"SELECT id FROM {bench.full(name)} WHERE day < 10 OR shop IS NULL"
    first = _routed(bench, name, sql)
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id = -1 OR id = 1999")
    log = bench.live(name).log().snapshots
    old = tuple(one.id for one in log if one.id != log[-1].id)
    bench.run(bench.request(name, ExpireSnapshots(old, 0, 1), plan="p-2"))
    assert _routed(bench, name, sql).reads[0].ids == first.reads[0].ids, "proofs outlive snapshots"
    assert first.changed and f"{BLOCK} IS NULL" in first.sql
    assert first.reads[0].files_after < len(bench.paths(name))
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES (9000, 1, 'shop-1', 1.0, 'p0', NULL)")
    _same(bench, sql, first.sql)
    bench.sql(f"UPDATE {bench.full(name)} SET day = 3 WHERE id = 60")
    second = _routed(bench, name, sql)
    assert second.reads[0].notes and not first.reads[0].notes
    _same(bench, sql, second.sql)


def _routed(bench: Bench, name: str, sql: str) -> Any:
    seen = observe_table(bench.config, ("jobs", name), bench.directory / "cache")
    return route(seen, sql)


def _same(bench: Bench, sql: str, routed: str) -> None:
    wanted, found = sorted(map(tuple, bench.sql(sql))), sorted(map(tuple, bench.sql(routed)))
    assert found == wanted
    assert wanted
