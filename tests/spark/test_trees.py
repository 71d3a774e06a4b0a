"""Tables written leaf by leaf of a tree of cuts, through Iceberg's commit: Spark and pyiceberg read
the rows of before, DuckDB finds each file in one leaf."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from reconciler.errors import UserError
from reconciler.plan.actions.rewrite import Recluster
from reconciler.plan.ordering import by_tree
from reconciler.table.cut_tree import Cut, made
from tests.spark.tables import Bench, intact

pytestmark = pytest.mark.spark

COLUMNS = "id bigint, day int, shop string, price double, part string"
ROWS = (
    "file * 500 + n AS id, CAST(n % 97 AS INT) AS day, "
    "IF(n % 11 = 0, NULL, concat('shop-', n % 13)) AS shop, "
    "IF(n % 29 = 0, double('NaN'), n * 1.5) AS price, concat('p', file % 2) AS part"
)
DAY, SHOP, PRICE = 2, 3, 4
TREE = made(
    (Cut(DAY, 40), (Cut(SHOP, b"shop-3"), None, (Cut(PRICE, 300.0, True), None, None)),
     (Cut(SHOP, None), None, None)),
    [PRICE, DAY, 0, DAY, PRICE],
)  # fmt: skip
LEAF = """
CASE WHEN day < 40 THEN
       CASE WHEN shop IS NULL OR shop < 'shop-3' THEN 0
            WHEN price IS NULL OR price <= 300 THEN 1 ELSE 2 END
     WHEN shop IS NULL THEN 3 ELSE 4 END
"""


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("partitioned", [False, True])
def test_files_are_leaves_and_rows_are_those_of_before(
    bench: Bench, version: int, partitioned: bool
) -> None:
    parts = "part" if partitioned else ""
    name = bench.create(COLUMNS, f"'format-version'='{version}'", partitioned=parts)
    bench.fill(name, 4, 500, ROWS)
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id % 50 = 7")
    rows, by_partition = bench.rows(name), dict[Any, list[str]]()
    for file in bench.files(name):
        key = tuple(file.partition) if partitioned else ()
        by_partition.setdefault(key, []).append(file.file_path)
    actions = [
        Recluster(
            inputs=tuple(sorted(paths)), partition=tuple(v.encode() for v in key),
            spec_id=bench.files(name)[0].spec_id, ordering=by_tree(TREE), target_bytes=800,
        )
        for key, paths in sorted(by_partition.items())
    ]  # fmt: skip
    bench.run(bench.request(name, *actions))
    intact(bench, name, rows)
    leaves = dict[str, list[int]]()
    for file in bench.files(name):
        path = file.file_path.removeprefix("file:")
        found = duckdb.sql(f"SELECT {LEAF} AS leaf, count(*) FROM '{path}' GROUP BY 1").fetchall()
        assert len(found) == 1, found
        leaves.setdefault(path.rpartition("/")[0], []).append(found[0][0])
    assert all(own == sorted(own) for own in leaves.values()), "by path, as files arrive"
    assert len(bench.paths(name)) >= 5 * len(actions)


def test_spark_is_not_asked_to_write_leaves(bench: Bench) -> None:
    name = bench.create(COLUMNS)
    bench.fill(name, 1, 100, ROWS)
    codec = "'write.parquet.compression-codec'='brotli'"
    bench.sql(f"ALTER TABLE {bench.full(name)} SET TBLPROPERTIES ({codec})")
    before = bench.rows(name)
    action = bench.action(name, Recluster, target_bytes=1_000)
    action = Recluster(inputs=action.inputs, ordering=by_tree(TREE), target_bytes=1_000)
    with pytest.raises(UserError) as raised:
        bench.run(bench.request(name, action))
    assert "brotli" in str(raised.value.details)
    intact(bench, name, before)
