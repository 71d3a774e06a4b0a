"""What cannot be rewritten safely is refused with one clear message, the table as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StructType

from reconciler.errors import (
    BlockedError,
    InternalError,
    ReconcilerError,
    RefusedInputsError,
    StalePlanError,
    TableDamagedError,
    TableNotFoundError,
    UserError,
)
from reconciler.plan.actions.rewrite import Cluster
from reconciler.plan.actions.state import Validity
from reconciler.plan.execution import ExecutionRequest
from reconciler.spark.schedule import damage
from reconciler.spark.schedule.damage import first_unreadable
from reconciler.table.refusals import NO_FIELD_IDS, PHYSICAL_SCHEMA, WRONG_SIZE
from tests.spark.tables import Bench

pytestmark = pytest.mark.spark


def _table(bench: Bench, properties: str = "'format-version'='2'") -> str:
    name = bench.create("id bigint, s string", properties)
    bench.fill(name, 4, 10, "n * 4 + file, 'x'")
    return name


def _request(bench: Bench, name: str, **more: Any) -> ExecutionRequest:
    return bench.request(name, bench.action(name, Cluster, "id"), **more)


def _refused(bench: Bench, request: ExecutionRequest, error: type[ReconcilerError]) -> str:
    head = bench.table(request.table[-1]).currentSnapshot().snapshotId()
    with pytest.raises(error) as caught:
        bench.run(request)
    assert bench.table(request.table[-1]).currentSnapshot().snapshotId() == head
    assert bench.leftovers(request.table[-1]) == []
    return caught.value.render()


def test_another_file_format(bench: Bench) -> None:
    name = _table(bench, "'write.format.default'='orc'")
    assert "ORC" in _refused(bench, _request(bench, name), UserError)


def test_names_that_differ_in_case_only(bench: Bench, iceberg_catalog: Any) -> None:
    """Of structs too, though their fields are named differently."""
    name = _table(bench)
    request = _request(bench, name)
    with iceberg_catalog.load_table(("jobs", name)).update_schema(case_sensitive=True) as update:
        for number, column in enumerate(("st", "St")):
            field = NestedField(number, f"f{number}", LongType(), required=False)
            update.add_column(column, StructType(field))
    with pytest.raises(UserError, match=r": st, St"):
        bench.run(request)


def test_a_field_that_is_named_like_what_holds_it(bench: Bench) -> None:
    """Iceberg's own index of names leaves `value` and `element` out; Spark needs no index."""
    name = bench.create("id bigint, m map<string, struct<Value: bigint, Key: bigint>>")
    for number in range(2):
        bench.sql(
            f"INSERT INTO {bench.full(name)} SELECT id * 2 + {number}, "
            "map('a', named_struct('Value', id, 'Key', -id)) FROM range(20)"
        )
    before = bench.rows(name)
    assert bench.run(_request(bench, name)).done
    assert bench.rows(name) == before


def test_a_partition_column_that_was_dropped_after_the_plan(
    bench: Bench, iceberg_catalog: Any
) -> None:
    name = bench.create("id bigint, g int", "'format-version'='2'", "g")
    for _ in range(2):
        bench.sql(f"INSERT INTO {bench.full(name)} SELECT id, 1 FROM range(50)")
    request = _request(bench, name)
    table = iceberg_catalog.load_table(("jobs", name))
    with table.update_spec() as spec:
        spec.remove_field("g")
    with table.update_schema(allow_incompatible_changes=True) as schema:
        schema.delete_column("g")
    bench.sql(f"REFRESH TABLE {bench.full(name)}")
    assert "dropped" in _refused(bench, request, UserError)


def test_a_column_that_is_named_like_one_of_icebergs_own(
    bench: Bench, iceberg_catalog: Any
) -> None:
    name = _table(bench)
    request = _request(bench, name)
    with iceberg_catalog.load_table(("jobs", name)).update_schema() as update:
        update.add_column("_pos", LongType())
    with pytest.raises(UserError, match=": _pos"):
        bench.run(request)


def test_parquet_stays_parquet_when_the_default_changed(bench: Bench) -> None:
    name = _table(bench)
    bench.sql(f"ALTER TABLE {bench.full(name)} SET TBLPROPERTIES ('write.format.default'='orc')")
    assert bench.run(_request(bench, name)).done
    assert {file.file_format for file in bench.files(name)} == {"PARQUET"}


def test_a_live_branch(bench: Bench) -> None:
    name = _table(bench)
    bench.sql(f"ALTER TABLE {bench.full(name)} CREATE BRANCH audit")
    bench.sql(f"INSERT INTO {bench.full(name)}.branch_audit VALUES (100, 'audited')")
    request = _request(bench, name)
    assert "branch audit" in _refused(bench, request, BlockedError)
    allowed = _request(bench, name, allow_live_branches=True)
    assert bench.run(allowed).done


def test_a_branch_without_commits_of_its_own_is_not_live(bench: Bench) -> None:
    name = _table(bench)
    bench.sql(f"ALTER TABLE {bench.full(name)} CREATE BRANCH archive")
    assert bench.run(_request(bench, name)).done


def test_a_replaced_table(bench: Bench) -> None:
    name = _table(bench)
    request = _request(bench, name)
    bench.sql(f"CREATE OR REPLACE TABLE {bench.full(name)} USING iceberg AS SELECT 1L AS id")
    assert "history" in _refused(bench, request, StalePlanError)


def test_a_table_created_again(bench: Bench) -> None:
    name = _table(bench)
    request = _request(bench, name)
    bench.sql(f"DROP TABLE {bench.full(name)}")
    bench.sql(f"CREATE TABLE {bench.full(name)} USING iceberg AS SELECT 1L AS id, 'x' AS s")
    assert "created again" in _refused(bench, request, UserError)


def test_an_expired_base_snapshot(bench: Bench) -> None:
    name = _table(bench)
    request = _request(bench, name)
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES (1, 'later')")
    bench.sql(
        f"CALL rec.system.expire_snapshots(table => 'jobs.{name}', retain_last => 1,"
        " older_than => TIMESTAMP '2999-01-01 00:00:00')"
    )
    text = _refused(bench, request, UserError)
    assert "has expired" in text


def test_a_missing_data_file(bench: Bench) -> None:
    name = _table(bench)
    request = _request(bench, name)
    lost = request.actions[0].inputs[0]
    Path(lost.removeprefix("file:")).unlink()
    text = _refused(bench, request, UserError)
    assert "is missing" in text
    assert lost.rpartition("/")[2] in text
    assert bench.ledger.open_intents(request.table_uuid) == ()


@pytest.mark.parametrize("checksums", [True, False], ids=["with checksums", "without"])
def test_a_truncated_data_file(bench: Bench, checksums: bool) -> None:
    name = _table(bench)
    request = _request(bench, name)
    lost = Path(request.actions[0].inputs[0].removeprefix("file:"))
    lost.write_bytes(lost.read_bytes()[:-20] + b"there is no footer here")
    if not checksums:
        (lost.parent / f".{lost.name}.crc").unlink()
    assert str(lost) in _refused(bench, request, TableDamagedError)


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8])
def test_a_bit_that_flipped_is_found_and_its_file_named(bench: Bench, share: float) -> None:
    """Most such pages decode: only their checksum shows the damage."""
    name = bench.create("id bigint, s string, d double")
    bench.fill(name, 10, 1500, "n, uuid(), rand()")
    request = _request(bench, name)
    damaged = Path(request.actions[0].inputs[2].removeprefix("file:"))
    content = bytearray(damaged.read_bytes())
    content[int(len(content) * share)] ^= 1
    damaged.write_bytes(content)
    (damaged.parent / f".{damaged.name}.crc").unlink()
    assert str(damaged) in _refused(bench, request, TableDamagedError)


@pytest.mark.parametrize("surely", [True, False])
def test_a_file_is_found_by_halves(surely: bool) -> None:
    paths = [f"{number:02d}" for number in range(64)]
    for bad in paths:
        asked: list[int] = []

        def readable(some: Sequence[str], bad: str = bad, asked: list[int] = asked) -> bool:
            asked.append(len(some))
            return bad not in some

        assert first_unreadable(paths, readable, surely=surely) == bad
        assert sum(asked) <= 2 * 64 + 2
    assert first_unreadable(paths, lambda some: True, surely=surely) is None
    assert first_unreadable(paths[:1], lambda some: False, surely=True) == "00"


def test_a_cancelled_job_is_not_damage_whatever_the_table_is_called() -> None:
    def may_be(detail: str) -> bool:
        error = InternalError("could not rewrite sales.cancelled_orders", details=(detail,))
        return damage.may_be_damage(ValueError(), error)

    assert may_be("NegativeArraySizeException: -3")
    assert not may_be("SparkException: [SPARK_JOB_CANCELLED] Job 7 cancelled part of a group")


def test_no_file_is_blamed_for_a_storage_that_reads_none() -> None:
    assert first_unreadable(["a", "b", "c"], lambda some: False, surely=False) is None
    assert first_unreadable(["a"], lambda some: False, surely=False) is None


def test_a_plan_of_other_files(bench: Bench) -> None:
    name = _table(bench)
    action = bench.action(name, Cluster, "id", inputs=("file:/nowhere/a.parquet",))
    text = _refused(bench, bench.request(name, action), UserError)
    assert "1 input file" in text


def test_a_dropped_key_column(bench: Bench) -> None:
    name = _table(bench)
    action = bench.action(name, Cluster, "s")
    bench.sql(f"ALTER TABLE {bench.full(name)} DROP COLUMN s")
    before = bench.files(name)
    (outcome,) = bench.run(bench.request(name, action)).actions
    assert outcome.state is Validity.LOST and "field id 2" in outcome.detail
    assert bench.files(name) == before and bench.leftovers(name) == []


def test_a_table_that_does_not_exist(bench: Bench) -> None:
    name = _table(bench)
    request = _request(bench, name)
    bench.sql(f"DROP TABLE {bench.full(name)}")
    with pytest.raises(TableNotFoundError):
        bench.run(request)


def _registered(table: Any, path: Path, columns: pa.Table, size: int = 0) -> str:
    """Register a file as another writer's manifest would, without a look into it. Returns its
    path."""
    pq.write_table(columns, path)
    file = DataFile.from_args(
        content=DataFileContent.DATA, file_path=f"file:{path}", file_format=FileFormat.PARQUET,
        partition=Record(), record_count=len(columns), column_sizes={}, value_counts={},
        null_value_counts={}, nan_value_counts={}, lower_bounds={}, upper_bounds={},
        file_size_in_bytes=size or path.stat().st_size, split_offsets=[4], sort_order_id=None,
        equality_ids=None, key_metadata=None,
    )  # fmt: skip
    file.spec_id = 0
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    return f"file:{path}"


def _columns(unit: str = "us", ids: bool = True) -> pa.Table:
    kinds = {"id": pa.int64(), "at": pa.timestamp(unit)}
    fields = [
        pa.field(name, kind, metadata={"PARQUET:field_id": str(number)} if ids else None)
        for number, (name, kind) in enumerate(kinds.items(), start=1)
    ]
    values = [pa.array([1, 2], pa.int64()), pa.array([5, 6], pa.timestamp(unit))]
    return pa.table(values, schema=pa.schema(fields))


@pytest.mark.parametrize(
    ("columns", "size", "reason"),
    [
        (_columns("ms"), 0, PHYSICAL_SCHEMA),
        (_columns(ids=False), 0, NO_FIELD_IDS),
        (_columns(), 300, WRONG_SIZE),
    ],
)
def test_files_that_a_reader_may_misread_are_refused_and_recorded(
    bench: Bench, iceberg_catalog: Any, tmp_path: Path, columns: pa.Table, size: int, reason: str
) -> None:
    name = bench.create("id bigint, at timestamp_ntz", "'format-version'='2'")
    table = iceberg_catalog.load_table(("jobs", name))
    sound = _registered(table, tmp_path / "sound.parquet", _columns())
    bad = _registered(table.refresh(), tmp_path / "bad.parquet", columns, size)
    request = _request(bench, name)
    assert set(request.actions[0].inputs) == {sound, bad}
    message = _refused(bench, request, RefusedInputsError)
    assert bad in message and sound not in message
    (refused,) = bench.ledger.refused[request.table_uuid]
    assert (refused.path, refused.reason) == (bad, reason)
    left = replace(request, actions=(replace(request.actions[0], inputs=(sound,)),))
    assert bench.run(left).commits == 1
