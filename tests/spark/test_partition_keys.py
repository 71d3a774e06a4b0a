"""Partitions are told apart by typed values: NULL and 'null', '' and NULL, NaN, zeros of either
sign, case, and what a path escapes. No action on delete files brings a row back or hides another.

The rows are compared with a model that the test keeps, as Spark reads them and as DuckDB does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from reconciler.demo.witness import connect
from reconciler.errors import InternalError
from reconciler.plan.actions.delete_maintenance import CompactDeletes, ConvertDeletes
from reconciler.spark.deletes import by_engine
from reconciler.spark.schedule import scan
from tests.spark.equality import add_equality_delete, delete_paths
from tests.spark.tables import Bench

pytestmark = pytest.mark.spark

PROPERTIES = "'write.delete.mode'='merge-on-read', 'write.delete.granularity'='partition'"
TEXTS = (None, "null", "", "1", "A", "a", "%2F", "a/b", "x=y", "é", "__HIVE_DEFAULT_PARTITION__")
DOUBLES = (None, math.nan, 0.0, -0.0, math.inf)
ROWS = 4
"""Rows of each partition: ids 0 to 3 below 10 times its number."""


def _filled(bench: Bench, version: int, kind: str, values: Sequence[Any]) -> tuple[str, Any]:
    """A table that got the partition field p after it was made, with ROWS rows of each value; and
    the ids of each row by value."""
    name = bench.create(f"id bigint, p {kind}", f"'format-version'='{version}', {PROPERTIES}")
    bench.sql(f"ALTER TABLE {bench.full(name)} ADD PARTITION FIELD p")
    model = {10 * n + row: value for n, value in enumerate(values) for row in range(ROWS)}
    frame = bench.spark.createDataFrame(list(model.items()), f"id bigint, p {kind}").coalesce(1)
    writer = frame.writeTo(bench.full(name)).option("distribution-mode", "none")
    writer.option("fanout-enabled", "true").append()  # one commit; a sort takes the zeros for one
    assert len(bench.paths(name)) == len(values)
    return name, model


def _key(value: Any) -> str:
    """A value as texts that two engines share: NaN is one, and the zeros are."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value + 0.0)
    return repr(value)


def _seen(bench: Bench, name: str) -> tuple[Counter[Any], Counter[Any]]:
    """The rows as Spark and as DuckDB read them."""
    bench.sql(f"REFRESH TABLE {bench.full(name)}")
    by_spark = Counter((row.id, _key(row.p)) for row in bench.sql(f"TABLE {bench.full(name)}"))
    table = bench.table(name)
    location = str(table.operations().current().metadataFileLocation()).removeprefix("file:")
    rows = connect().execute(f"SELECT id, p FROM iceberg_scan('{location}')").fetchall()
    return by_spark, Counter((row[0], _key(row[1])) for row in rows)


def _assert_rows(bench: Bench, name: str, model: dict[int, Any]) -> None:
    expected = Counter((key, _key(value)) for key, value in model.items())
    for found in _seen(bench, name):
        assert found == expected, (expected - found, found - expected)
    texts = sorted({value for value in model.values() if isinstance(value, str)})
    wheres = ["IS NULL", *(f"= '{value}'" for value in texts)]
    found = bench.sql(  # each partition by itself: pruned by its value
        " UNION ALL ".join(
            f"SELECT {n} AS n, id FROM {bench.full(name)} WHERE p {where}"
            for n, where in enumerate(wheres)
        )
    )
    asked = dict(enumerate([None, *texts]))
    wanted = {(n, key) for n, own in asked.items() for key, value in model.items() if value == own}
    assert {(row.n, row.id) for row in found} == wanted


def _assert_each_place_has_a_key(bench: Bench, name: str, number: int) -> None:
    table = bench.table(name)
    head = int(table.currentSnapshot().snapshotId())
    tasks = scan.scan_tasks(bench.spark, table, head, bench.paths(name))
    keys = scan.partition_keys(bench.spark, table, tasks)
    assert len(set(keys.values())) == len(keys) == number


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(("kind", "values"), [("string", TEXTS), ("double", DOUBLES)])
def test_deletes_of_alike_partitions_stay_apart(
    bench: Bench, version: int, kind: str, values: Sequence[Any]
) -> None:
    name, model = _filled(bench, version, kind, values)
    _assert_each_place_has_a_key(bench, name, len(values))
    gone = [10 * n for n in range(len(values))]
    add_equality_delete(bench, name, {"id": pa.array(gone, pa.int64())}, spec_id=0)
    model = {key: value for key, value in model.items() if key not in gone}
    _assert_rows(bench, name, model)
    result = bench.run(bench.request(name, ConvertDeletes(inputs=delete_paths(bench, name, 2))))
    assert result.done
    _assert_rows(bench, name, model)
    if version == 3:
        return
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id % 10 = 1")  # one file a partition
    model = {key: value for key, value in model.items() if key % 10 != 1}
    result = bench.run(bench.request(name, CompactDeletes(inputs=delete_paths(bench, name, 1))))
    assert result.done
    _assert_rows(bench, name, model)


def test_a_delete_file_of_another_partition_is_never_sent(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault that the check is for: entries of another data file's partition."""
    name, model = _filled(bench, 2, "string", ("null", None))
    add_equality_delete(bench, name, {"id": pa.array([0, 10], pa.int64())}, spec_id=0)
    model = {key: value for key, value in model.items() if key not in (0, 10)}
    before = int(bench.table(name).currentSnapshot().snapshotId())
    honest, first = by_engine._entry, list[Any]()

    def misplaced(core: Any, task: Any, file: Any) -> Any:
        first.append(task)
        return honest(core, first[0], file)

    monkeypatch.setattr(by_engine, "_entry", misplaced)
    with pytest.raises(InternalError):
        bench.run(bench.request(name, ConvertDeletes(inputs=delete_paths(bench, name, 2))))
    assert int(bench.table(name).currentSnapshot().snapshotId()) == before
    assert bench.leftovers(name) == []
    _assert_rows(bench, name, model)
