"""Verification refuses a rewrite whose output differs from its input, before the commit.

The output is tampered with where the sorted frame goes to the writer; the check is the real one.
"""

from __future__ import annotations

import datetime as dt
import math
import time
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from reconciler.api.choices import Verification
from reconciler.engines.schedule import input_forms, witnessing
from reconciler.errors import VerificationError
from reconciler.plan.actions.delete_maintenance import CompactDeletes, ConvertDeletes
from reconciler.plan.actions.rewrite import Cluster
from reconciler.plan.execution import ExecutionRequest
from reconciler.spark.commit.table import JavaTable
from reconciler.spark.fallback import fallback
from reconciler.spark.schedule import scan, witness_work
from tests.spark.equality import add_avro_equality_delete, add_equality_delete, delete_paths
from tests.spark.tables import Bench

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("by_spark")]

ROWS = """
  SELECT id, cast(id AS int) % 7 AS a, cast(id AS int) % 5 AS b,
         named_struct('x', id, 'y', named_struct('z', concat('n', id))) AS s,
         array(id, id + 1) AS l, map('k', id) AS m
  FROM range(100)
"""


def _drop_one_double_another(frame: DataFrame) -> DataFrame:
    doubled = frame.where("id = 17")
    return frame.where("id <> 42").unionByName(doubled)


def _swap_two_values_of_a_column(frame: DataFrame) -> DataFrame:
    swapped = f.when(f.col("id") == 3, 4).when(f.col("id") == 4, 3).otherwise(f.col("a"))
    return frame.withColumn("a", swapped.cast("int"))


def _null_a_nested_field(frame: DataFrame) -> DataFrame:
    struct = f.col("s").withField("y.z", f.when(f.col("id") != 9, f.col("s.y.z")))
    return frame.withColumn("s", struct)


def _move_a_value_to_another_column(frame: DataFrame) -> DataFrame:
    hit = f.col("id") == 8
    a, b = f.col("a"), f.col("b")
    return frame.withColumns({"a": f.when(~hit, a), "b": f.when(hit, a).otherwise(b)})


def _change_a_map(frame: DataFrame) -> DataFrame:
    other = f.create_map(f.lit("k"), f.lit(6)).cast("map<string,bigint>")
    return frame.withColumn("m", f.when(f.col("id") == 5, other).otherwise(f.col("m")))


def _lose_a_row(frame: DataFrame) -> DataFrame:
    return frame.where("id <> 99")


TAMPERINGS = [
    _drop_one_double_another,
    _swap_two_values_of_a_column,
    _null_a_nested_field,
    _move_a_value_to_another_column,
    _change_a_map,
    _lose_a_row,
]


def _tampered(monkeypatch: pytest.MonkeyPatch, tamper: Callable[[DataFrame], DataFrame]) -> None:
    honest = fallback.arranged
    monkeypatch.setattr(fallback, "arranged", lambda *given: tamper(honest(*given)))


@pytest.mark.parametrize("tamper", TAMPERINGS, ids=lambda t: t.__name__.strip("_"))
def test_tampered_output_is_not_committed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tamper: Callable[[DataFrame], DataFrame]
) -> None:
    name = bench.create("id bigint, a int, b int, s struct<x:bigint,y:struct<z:string>>,"
                        " l array<bigint>, m map<string,bigint>")  # fmt: skip
    bench.sql(f"INSERT INTO {bench.full(name)} {ROWS}")
    before, head = bench.rows(name), bench.table(name).currentSnapshot().snapshotId()
    _tampered(monkeypatch, tamper)
    request = bench.request(name, bench.action(name, Cluster, "b"))
    with pytest.raises(VerificationError, match="verification of"):
        bench.run(request)
    assert bench.table(name).currentSnapshot().snapshotId() == head
    assert bench.rows(name) == before
    assert bench.leftovers(name) == []
    assert bench.ledger.open_intents(request.table_uuid) == ()


@pytest.fixture
def on_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's Python processes compare the files, as they do with much work in a cluster."""
    monkeypatch.setattr(witness_work, "by_driver", lambda master, size, opening: False)


@pytest.mark.usefixtures("on_executors")
@pytest.mark.parametrize("tamper", TAMPERINGS[1:3], ids=lambda t: t.__name__.strip("_"))
def test_executors_find_tampered_output(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tamper: Callable[[DataFrame], DataFrame]
) -> None:
    test_tampered_output_is_not_committed(bench, monkeypatch, tamper)


@pytest.mark.usefixtures("on_executors")
@pytest.mark.parametrize("version", [2, 3])
def test_executors_compare_rows_and_their_deletes(bench: Bench, version: int) -> None:
    name = bench.create(
        "id bigint, a bigint",
        f"'format-version'='{version}', 'write.delete.mode'='merge-on-read'",
    )
    for part in (0, 1):
        bench.sql(f"INSERT INTO {bench.full(name)} SELECT id * 2 + {part}, id FROM range(100)")
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id % 10 = 3")
    add_equality_delete(bench, name, {"id": pa.array([0, 1], pa.int64())})
    before = bench.rows(name)
    assert before.total() == 178
    inputs = delete_paths(bench, name, 2)
    assert bench.run(bench.request(name, ConvertDeletes(inputs=inputs), plan="p-0")).done
    assert bench.rows(name) == before
    assert bench.run(bench.request(name, bench.action(name, Cluster, "id"))).done
    assert bench.rows(name) == before and bench.leftovers(name) == []


def test_deletes_that_iceberg_leaves_out_by_wrong_bounds_are_not_lost(bench: Bench) -> None:
    """The new file would be younger than the delete: every other reader would see its row again."""
    name = bench.create("id bigint", "'format-version'='2'")
    for part in (0, 1):
        bench.sql(f"INSERT INTO {bench.full(name)} SELECT id * 2 + {part} FROM range(10)")
    far = (1_000).to_bytes(8, "little")
    key = {"id": pa.array([4], pa.int64())}
    add_equality_delete(bench, name, key, bounds={"id": (far, far)})
    before = bench.table(name).currentSnapshot().snapshotId()
    with pytest.raises(VerificationError, match=r"\b19\b.*\b20\b"):
        bench.run(bench.request(name, bench.action(name, Cluster, "id")))
    assert bench.table(name).currentSnapshot().snapshotId() == before


@pytest.mark.usefixtures("on_executors")
def test_a_stop_ends_the_processes_that_compare(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = bench.create("id bigint")
    bench.sql(f"INSERT INTO {bench.full(name)} SELECT id FROM range(10)")
    noted = str(bench.directory / "pid")

    def endless(opening: Any, limits: Any) -> Callable[[Any], Any]:
        def read(work: Any) -> Any:
            import os
            import time
            from pathlib import Path

            Path(noted).write_text(str(os.getpid()))
            time.sleep(600)

        return read

    monkeypatch.setattr(witness_work, "_reading", endless)
    request = bench.request(name, bench.action(name, Cluster, "id"))
    result = bench.run(request, should_stop=(bench.directory / "pid").exists)
    assert not result.done and result.commits == 0 and bench.leftovers(name) == []
    pid = int((bench.directory / "pid").read_text())
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text():
        time.sleep(0.1)


@pytest.mark.parametrize("codec", ["avro", "orc"])
def test_delete_files_of_other_formats_are_compared(bench: Bench, codec: str) -> None:
    name = bench.create(
        "id bigint, a bigint",
        "'format-version'='2', 'write.delete.mode'='merge-on-read', "
        f"'write.delete.granularity'='partition', 'write.delete.format.default'='{codec}'",
    )
    for part in (0, 1):
        bench.sql(f"INSERT INTO {bench.full(name)} SELECT id * 2 + {part}, id FROM range(100)")
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id % 10 = 3")
    compaction = CompactDeletes(inputs=delete_paths(bench, name))
    assert all(path.endswith(codec) for path in compaction.inputs)
    assert bench.run(bench.request(name, compaction, plan="p-0")).done
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id % 10 = 4")
    assert any(path.endswith(codec) for path in delete_paths(bench, name))
    before = bench.rows(name)
    assert before.total() == 160
    assert bench.run(bench.request(name, bench.action(name, Cluster, "id"))).done
    assert bench.rows(name) == before and bench.leftovers(name) == []


def test_keys_in_avro_delete_files_are_applied_by_their_types(bench: Bench) -> None:
    """Written by Iceberg: text, NULL, NaN, decimals, times, and a member of a struct."""
    name = bench.create(
        "id bigint, s string, f double, d decimal(9,2), at timestamp, day date, st struct<x:int>"
    )
    bench.sql(
        f"INSERT INTO {bench.full(name)} SELECT id, nullif(concat('s', id), 's2'), "
        "CASE WHEN id = 3 THEN double('NaN') ELSE id END, cast(id AS decimal(9,2)), "
        "timestamp_micros(id), date_add(date '2026-01-01', int(id)), "
        "CASE WHEN id <> 7 THEN named_struct('x', int(id)) END FROM range(0, 20, 1, 1)"
    )
    keys: dict[str, Any] = {
        "s": ["s1", None], "f": [math.nan], "d": [Decimal("4.00")],
        "at": [dt.datetime(1970, 1, 1, microsecond=5, tzinfo=dt.UTC)],
        "day": [dt.date(2026, 1, 7)], "st.x": [8],
    }  # fmt: skip
    for column, values in keys.items():
        add_avro_equality_delete(bench, name, column, values)
    live = {row.id for row in bench.sql(f"SELECT * FROM {bench.full(name)}")}
    assert live == set(range(20)) - {1, 2, 3, 4, 5, 6, 8}
    before = bench.rows(name)
    conversion = ConvertDeletes(inputs=delete_paths(bench, name, 2))
    assert bench.run(bench.request(name, conversion, plan="p-0")).done
    assert bench.rows(name) == before and delete_paths(bench, name, 2) == ()


def test_counts_mode_sees_lost_rows_only(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    name = bench.create("id bigint, a int")
    bench.sql(f"INSERT INTO {bench.full(name)} SELECT id, 1 FROM range(100)")
    _tampered(monkeypatch, _lose_a_row)
    request = bench.request(name, bench.action(name, Cluster, "id"), verify="Counts")
    with pytest.raises(VerificationError, match=r"\b100 rows\b.*\b99\b"):
        bench.run(request)


@pytest.fixture(params=["Full", "Counts"])
def overlapping(bench: Bench, request: pytest.FixtureRequest) -> tuple[str, ExecutionRequest]:
    """A table of two overlapping files, and a request that sorts them into two."""
    name = bench.create("id bigint, a bigint")
    for part in (0, 1):
        rows = f"SELECT id * 2 + {part}, xxhash64(id) FROM range(0, 20000, 1, 1)"
        bench.sql(f"INSERT INTO {bench.full(name)} {rows}")
    size = bench.size(name)
    action = bench.action(name, Cluster, "id", target_bytes=size // 2)
    return name, bench.request(name, action, verify=request.param)


def test_a_wrong_row_count_in_the_manifests_is_looked_up_in_the_files(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, overlapping: tuple[str, ExecutionRequest]
) -> None:
    name, request = overlapping
    before = bench.rows(name)
    honest = JavaTable.tasks

    def mistaken(*arguments: Any, **more: Any) -> scan.ScanTasks:
        found = honest(*arguments, **more)
        files = {path: replace(file, rows=7) for path, file in found.items()}
        return scan.ScanTasks(bench.spark, found._tasks, files)

    monkeypatch.setattr(JavaTable, "tasks", mistaken)
    monkeypatch.setattr(input_forms, "refuse_unsound", lambda *_: None)  # it would refuse the count
    bench.run(request)
    assert bench.rows(name) == before


def test_sampled_mode_hashes_about_one_group_in_eight() -> None:
    chosen = sum(witnessing.checks_hashes(Verification.SAMPLED, f"attempt/{i}") for i in range(800))
    assert 60 <= chosen <= 140
    assert witnessing.checks_hashes(Verification.FULL, "attempt/1")
    assert not witnessing.checks_hashes(Verification.COUNTS, "attempt/1")
