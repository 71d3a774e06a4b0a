"""Files move into the partitions of another spec, and no deleted row comes back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.engines.schedule import witnessing
from reconciler.engines.schedule.refused import NotVerified
from reconciler.plan.actions.migrate import Migrate
from reconciler.plan.actions.partition_specs import AddSpec, SwitchSpec
from reconciler.plan.actions.state import Validity
from reconciler.plan.execution import Event
from reconciler.plan.ordering import Hilbert, Lexicographic, Ordering
from reconciler.spark.commit.reading import written_files
from reconciler.table.schema import SpecField
from tests.gateway import LATE, TWICE, Gateway
from tests.spark.equality import add_equality_delete, data_files
from tests.spark.tables import Bench, intact

COLUMNS = "id BIGINT, ts TIMESTAMP, s STRING"
DAYS = "timestamp '2026-03-01 00:30:00' + make_interval(0, 0, 0, id % 5, 0, 0, 0)"
ROWS = f"id, CASE WHEN id % 50 = 7 THEN NULL ELSE {DAYS} END AS ts, repeat(cast(id AS string), 9)"
TS, ID = 2, 1


def table_of(bench: Bench, version: int, partitioned: str = "") -> str:
    more = ", 'write.delete.mode'='merge-on-read'" if version > 1 else ""
    name = bench.create(COLUMNS, f"'format-version'='{version}'{more}", partitioned)
    bench.sql(f"INSERT INTO {bench.full(name)} SELECT {ROWS} FROM RANGE(0, 400, 1, 2)")
    return name


def to_spec(bench: Bench, name: str, number: int, *fields: SpecField) -> tuple[Any, ...]:
    """The actions that move every file of the default spec."""
    table = bench.table(name)
    old = int(table.spec().specId())
    moved = bench.action(
        name, Migrate, "id", spec_id=old, output_spec_id=number, fields=fields, target_bytes=1 << 20
    )
    return AddSpec(number, fields, old), moved, SwitchSpec(number, fields, old)


def specs_of(bench: Bench, name: str) -> list[int]:
    return [int(number) for number in dict(bench.table(name).specs())]


def spec_ids(bench: Bench, name: str) -> Counter[int]:
    return Counter(row.spec_id for row in bench.files(name))


@pytest.mark.parametrize("version", [2, 3])
def test_rows_stay_the_same_and_each_partition_gets_one_file(bench: Bench, version: int) -> None:
    name = table_of(bench, version)
    bench.sql(f"ALTER TABLE {bench.full(name)} WRITE ORDERED BY id")
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id % 40 = 3")
    rows = bench.rows(name)
    result = bench.run(bench.request(name, *to_spec(bench, name, 1, SpecField(TS, "day"))))
    assert result.done and result.conflicts == 0
    assert bench.rows(name) == rows
    assert spec_ids(bench, name) == {1: 6}  # five days and NULL
    assert {row.sort_order_id for row in bench.files(name)} == {1}
    assert int(bench.table(name).spec().specId()) == 1
    buckets = (SpecField(ID, "bucket[3]"),)
    result = bench.run(bench.request(name, *to_spec(bench, name, 2, *buckets), plan="p-2"))
    assert result.done and bench.rows(name) == rows and spec_ids(bench, name) == {2: 3}
    if version == 2:
        intact(bench, name, rows)


@pytest.mark.parametrize("by", ["engine", "spark"])
@pytest.mark.parametrize(
    ("key", "curve"),
    [(("id",), Lexicographic), (("id desc",), Lexicographic), (("id", "p"), Hilbert)],
)
def test_each_partition_gets_its_rows_in_order(
    bench: Bench, request: pytest.FixtureRequest, key: tuple[str, ...], curve: type[Ordering],
    by: str,
) -> None:  # fmt: skip
    if by == "spark":
        request.getfixturevalue("by_spark")
    name = bench.create("id BIGINT, p INT, s STRING", "'format-version'='2'")
    far = f"CASE id WHEN 7 THEN {-(1 << 62)} WHEN 8 THEN {1 << 62} ELSE id * id % 211 - 99 END"
    part = "CASE WHEN id % 9 = 0 THEN NULL ELSE CAST(id % 9 - 4 AS INT) END"
    some = f"SELECT {far} AS id, {part} AS p, repeat(hex(id * 77), 9) AS s FROM RANGE(0, 400, 1, 2)"
    bench.sql(f"INSERT INTO {bench.full(name)} {some}")
    assert sidecars(bench.files(name)[0].file_path)
    rows, target = bench.rows(name), (SpecField(2, "identity"),)
    moved = bench.action(
        name, Migrate, *key, curve=curve, output_spec_id=1, fields=target, target_bytes=4_000
    )
    result = bench.run(bench.request(name, AddSpec(1, target, 0), moved, verify="Full"))
    assert result.done and bench.rows(name) == rows
    files = bench.files(name)
    assert {row.partition[0] for row in files} == {None, *range(-3, 5)}
    assert len(files) == 9 or by == "spark"
    assert not [path for row in files for path in sidecars(row.file_path)]
    for row in files if curve is Lexicographic else ():
        column, _, direction = key[0].partition(" ")
        table = pq.read_table(row.file_path.removeprefix("file:"), columns=[column])
        values = table[column].to_pylist()
        assert values == sorted(values, reverse=direction == "desc")


def sidecars(path: str) -> list[Path]:
    """The checksum file that Hadoop writes beside a local file."""
    file = Path(path.removeprefix("file:"))
    return list(file.parent.glob(f".{file.name}.crc"))


def test_an_equality_delete_of_a_partition_that_comes_meanwhile_is_a_conflict(
    bench: Bench,
) -> None:
    """Without the guard two deleted rows came back: the delete applies to files of its own spec."""
    name = table_of(bench, 2, "bucket(2, id)")
    before = sum(bench.rows(name).values())
    file = data_files(bench, name)[0]
    gone = [row.id for row in bench.spark.read.parquet(file).limit(2).collect()]
    late = []

    def meanwhile(event: Event) -> None:
        if event.phase == "verified" and not late:
            late.append(event)
            add_equality_delete(bench, name, {"id": pa.array(gone)}, like=file)

    result = bench.run(
        bench.request(name, *to_spec(bench, name, 1, SpecField(TS, "day"))), meanwhile
    )
    assert late and result.conflicts == 1
    assert "equality delete" in next(e.text for e in bench.events if e.phase == "conflict")
    switch = result.actions[2]
    assert (switch.state, int(bench.table(name).spec().specId())) == (Validity.LOST, 0)
    assert "equality deletes" in switch.detail
    ids = Counter(row.id for row in bench.spark.table(bench.full(name)).collect())
    assert sum(ids.values()) == before - 2 and not ids.keys() & set(gone)


def test_a_position_delete_of_a_partition_that_comes_meanwhile_is_a_conflict(bench: Bench) -> None:
    name = table_of(bench, 2, "bucket(2, id)")
    full, late = bench.full(name), []
    bench.sql(f"ALTER TABLE {full} SET TBLPROPERTIES ('write.delete.granularity'='partition')")
    rows = bench.rows(name)

    def meanwhile(event: Event) -> None:
        if event.phase == "verified" and not late:
            late.append(event)
            bench.sql(f"DELETE FROM {full} WHERE id IN (1, 2, 3, 4)")

    target = to_spec(bench, name, 1, SpecField(TS, "day"))
    result = bench.run(bench.request(name, *target), meanwhile)
    left = bench.rows(name)
    assert late and result.conflicts == 1
    assert sum(left.values()) == sum(rows.values()) - 4 and left <= rows


def test_an_equality_delete_without_partitions_reaches_the_moved_rows(bench: Bench) -> None:
    name = table_of(bench, 2)
    late = []

    def meanwhile(event: Event) -> None:
        if event.phase == "verified" and not late:
            late.append(event)
            add_equality_delete(bench, name, {"id": pa.array([1, 2, 3])})

    target = to_spec(bench, name, 1, SpecField(TS, "day"))
    result = bench.run(bench.request(name, *target), meanwhile)
    assert late and result.conflicts == 0
    states = [item.state for item in result.actions]  # its next one would miss rows: no switch
    assert states == [Validity.DONE, Validity.DONE, Validity.LOST]
    ids = {row.id for row in bench.spark.table(bench.full(name)).collect()}
    assert ids == set(range(400)) - {1, 2, 3} and set(spec_ids(bench, name)) == {1}


def test_without_the_spec_that_outputs_were_written_for_nothing_is_committed(
    bench: Bench,
) -> None:
    name = table_of(bench, 2)
    rows = bench.rows(name)
    _, moved, switch = to_spec(bench, name, 1, SpecField(TS, "day"))
    result = bench.run(bench.request(name, moved, switch))
    assert [item.state for item in result.actions] == [Validity.LOST, Validity.LOST]
    assert "spec 1" in result.actions[0].detail
    bench.sql(f"ALTER TABLE {bench.full(name)} ADD PARTITION FIELD bucket(4, id)")
    result = bench.run(bench.request(name, *to_spec(bench, name, 1, SpecField(TS, "day"))))
    assert {item.state for item in result.actions} == {Validity.LOST}
    assert bench.rows(name) == rows and spec_ids(bench, name) == {0: 2}


def test_a_column_that_is_dropped_meanwhile_changes_nothing(bench: Bench) -> None:
    name = table_of(bench, 2)
    rows = sum(bench.rows(name).values())
    target = to_spec(bench, name, 1, SpecField(TS, "day"))
    bench.sql(f"ALTER TABLE {bench.full(name)} DROP COLUMN ts")
    result = bench.run(bench.request(name, *target))
    assert {item.state for item in result.actions} == {Validity.LOST}
    assert len(specs_of(bench, name)) == 1
    bench.sql(f"ALTER TABLE {bench.full(name)} ADD PARTITION FIELD bucket(2, id)")
    bench.sql(f"ALTER TABLE {bench.full(name)} DROP PARTITION FIELD bucket(2, id)")
    other = to_spec(bench, name, 1, SpecField(ID, "bucket[2]"))
    bench.sql(f"ALTER TABLE {bench.full(name)} RENAME COLUMN id TO number")  # it has the same id
    assert bench.run(bench.request(name, *other, plan="p-2")).done
    assert sum(bench.rows(name).values()) == rows and spec_ids(bench, name) == {1: 2}


def test_a_column_that_is_dropped_after_its_spec_was_added_moves_nothing(bench: Bench) -> None:
    name = table_of(bench, 2)
    target = to_spec(bench, name, 1, SpecField(TS, "day"))
    assert bench.run(bench.request(name, target[0])).done
    bench.sql(f"ALTER TABLE {bench.full(name)} DROP COLUMN ts")
    result = bench.run(bench.request(name, *target[1:], plan="p-2"))
    assert [item.state for item in result.actions] == [Validity.LOST, Validity.LOST]
    assert all("field id 2" in item.detail for item in result.actions)
    assert spec_ids(bench, name) == {0: 2} and int(bench.table(name).spec().specId()) == 0
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES (1000, 'x')")
    assert sum(bench.rows(name).values()) == 401


def test_partitions_of_nan_and_of_null_move(bench: Bench) -> None:
    name = bench.create("id BIGINT, x DOUBLE", "'format-version'='2'", "x")
    value = "CASE id % 4 WHEN 0 THEN double('NaN') WHEN 1 THEN NULL WHEN 2 THEN -0.0D ELSE 1.5D END"
    bench.sql(f"INSERT INTO {bench.full(name)} SELECT id, {value} FROM RANGE(0, 40, 1, 1)")
    rows = bench.rows(name)
    assert len({str(row.partition) for row in bench.files(name)}) == 4
    result = bench.run(bench.request(name, *to_spec(bench, name, 1, SpecField(ID, "bucket[2]"))))
    assert result.done and bench.rows(name) == rows and spec_ids(bench, name) == {1: 2}
    intact(bench, name, rows)


@pytest.mark.parametrize("writer", ["engine", "spark"])
def test_an_entry_with_another_partition_than_its_rows_is_not_committed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, writer: str
) -> None:
    """The partition of one file is altered after the rows were written."""
    if writer == "spark":
        request.getfixturevalue("by_spark")
    name = table_of(bench, 2)
    add, moved, _ = to_spec(bench, name, 1, SpecField(TS, "day"))
    seen_outputs = witnessing.seen_outputs

    def misplaced(attempt: Any, base: str, files: Any, *more: Any) -> Any:
        spec = bench.table(name).specs().get(1)
        builder = bench.spark._jvm.org.apache.iceberg.DataFiles.builder(spec)
        builder = builder.copy(files[0].entry)
        first = builder.withPartition(files[-1].entry.partition()).build()
        altered = written_files(bench.spark, bench.table(name), [first])
        return seen_outputs(attempt, base, (*altered, *files[1:]), *more)

    monkeypatch.setattr(witnessing, "seen_outputs", misplaced)
    with pytest.raises(NotVerified) as caught:
        bench.run(bench.request(name, add, moved))
    assert '"ts"' in caught.value.render()
    assert spec_ids(bench, name) == {0: 2} and bench.leftovers(name) == []


@pytest.mark.rest
@pytest.mark.parametrize("fault", [TWICE, LATE])
@pytest.mark.parametrize("request_of", ["add-spec", "set-default-spec"])
def test_a_change_of_specs_that_is_answered_wrongly_is_made_once(
    gateway_bench: Bench, gateway: Gateway, fault: str, request_of: str
) -> None:
    bench = gateway_bench
    name = bench.create("id BIGINT, ts TIMESTAMP", "'format-version'='2'")
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES (1, NULL)")
    rows, (add, moved, switch) = bench.rows(name), to_spec(bench, name, 1, SpecField(TS, "day"))
    gateway.fails(fault, request_of)
    result = bench.run(bench.request(name, add, moved, switch))
    if fault == LATE:
        gateway.release()
    assert gateway.faults == 1 and result.done and len(result.outcomes) == 3
    assert specs_of(bench, name) == [0, 1] and spec_ids(bench, name) == {1: 1}
    assert int(bench.table(name).spec().specId()) == 1 and bench.rows(name) == rows
