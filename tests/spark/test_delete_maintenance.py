"""Maintenance of delete files changes no row, whatever deletes them and whoever else writes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.engines.deletes import convert, writing
from reconciler.engines.schedule.refused import NotVerified
from reconciler.errors import TableDamagedError, UnsupportedError, VerificationError
from reconciler.plan.actions.delete_maintenance import (
    CompactDeletes,
    ConvertDeletes,
    RemoveDanglingDeletes,
)
from reconciler.plan.actions.rewrite import ApplyDeletes, BinPack, Recluster
from reconciler.plan.actions.state import Validity
from reconciler.plan.actions.upgrade_format import UpgradeFormat
from reconciler.plan.execution import Event, ExecutionResult
from reconciler.plan.ordering import ARRIVAL, Hilbert, Lexicographic, Ordering
from reconciler.rewrite import hidden
from reconciler.rewrite.opened import Opened
from reconciler.spark.deletes import by_engine
from reconciler.spark.schedule import witness_work
from reconciler.spark.session import iceberg
from reconciler.table.schema import SortColumn
from tests.spark.equality import (
    add_equality_delete,
    add_position_delete,
    data_files,
    delete_paths,
    on_disk,
)
from tests.spark.tables import Bench

pytestmark = pytest.mark.spark

MERGE_ON_READ = "'write.delete.mode'='merge-on-read', 'write.delete.granularity'='partition'"


def _table(
    bench: Bench, version: int, partitioned: str = "", columns: str = "id bigint, d int"
) -> str:
    """Three files of 40 rows in each of two partitions, or in none; ids 0 to 119. What columns
    there are besides the first two is null."""
    name = bench.create(columns, f"'format-version'='{version}', {MERGE_ON_READ}", partitioned)
    if version == 3:  # pyiceberg writes no rows there
        bench.fill(name, 3, 40, "file * 40 + n, cast(n % 2 AS int)")
        return name
    for start in (0, 40, 80):
        ids = range(start, start + 40)
        bench.append(name, {"id": ids, "d": [number % 2 for number in ids]})
    return name


def _ids(bench: Bench, name: str) -> set[int]:
    return set(bench.ids(name))


def _longs(*values: int | None) -> Any:
    return pa.array(values, pa.int64())


def _unchanged(bench: Bench, name: str, *actions: Any) -> ExecutionResult:
    """Carry the actions out; no row may change, and nothing may be left behind."""
    result = _done(bench, name, *actions)
    assert bench.leftovers(name) == []
    return result


def _done(bench: Bench, name: str, *actions: Any) -> ExecutionResult:
    before = bench.rows(name)
    result = bench.run(bench.request(name, *actions))
    assert bench.rows(name) == before
    assert result.done, [(one.action_id, one.state, one.detail) for one in result.actions]
    return result


def _seen_by_pyiceberg(bench: Bench, name: str) -> int:
    """Rows according to a reader that is not Iceberg's own; it knows no equality deletes."""
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog(bench.config.name, **dict(bench.config.properties))
    return int(catalog.load_table(("jobs", name)).scan().to_arrow().num_rows)


@pytest.mark.parametrize("version", [2, 3])
def test_every_kind_of_equality_delete_becomes_positions(bench: Bench, version: int) -> None:
    """Null, NaN, zeros of either sign, several sets of columns; keys that are renamed, widened,
    dropped or later added."""
    name = bench.create(
        "id bigint, i int, f double, s string, gone string",
        f"'format-version'='{version}', {MERGE_ON_READ}",
    )
    full = bench.full(name)
    bench.sql(
        f"INSERT INTO {full} SELECT /*+ COALESCE(1) */ id, cast(id AS int), "
        "CASE id WHEN 3 THEN double('NaN') WHEN 4 THEN double('-0.0') WHEN 5 THEN 0.0 ELSE id END, "
        "CASE WHEN id >= 6 THEN concat('s', id) END, concat('g', id) FROM range(20)"
    )
    bench.sql(f"DELETE FROM {full} WHERE id = 0")
    gone = int(bench.table(name).schema().findField("gone").fieldId())

    def delete(**keys: Any) -> None:
        add_equality_delete(bench, name, keys)

    delete(id=_longs(1, 77))
    delete(f=pa.array([math.nan, -0.0]))
    delete(id=_longs(2, 6, 7), s=pa.array([None, None, "s7"]))
    delete(gone=pa.array(["g8"]))
    delete(i=pa.array([9], pa.int32()))
    bench.sql(f"ALTER TABLE {full} DROP COLUMN gone")
    bench.sql(f"ALTER TABLE {full} RENAME COLUMN s TO renamed")
    bench.sql(f"ALTER TABLE {full} ALTER COLUMN i TYPE bigint")
    bench.sql(f"ALTER TABLE {full} ADD COLUMN later string")
    delete(id=_longs(11, 12), later=pa.array([None, "x"]))
    delete(renamed=pa.array(["s13"]))
    add_equality_delete(bench, name, {"gone": pa.array(["g14"])}, ids={"gone": gone})
    live = set(range(20)) - {0, 1, 2, 3, 4, 7, 8, 9, 11, 13, 14}
    assert _ids(bench, name) == live
    result = _unchanged(bench, name, ConvertDeletes(inputs=delete_paths(bench, name, 2)))
    assert result.commits == 1 and delete_paths(bench, name, 2) == ()
    assert _ids(bench, name) == live
    assert len(delete_paths(bench, name)) == 1 and _seen_by_pyiceberg(bench, name) == len(live)


@pytest.mark.parametrize("version", [2, 3])
def test_a_delete_on_a_member_of_a_struct_beside_one_on_a_dropped_column(
    bench: Bench, version: int
) -> None:
    """A query that does not read the member gets wrong rows."""
    columns = "id bigint, gone string, st struct<a:int,b:string>"
    name = bench.create(columns, f"'format-version'='{version}'")
    full = bench.full(name)
    bench.sql(
        f"INSERT INTO {full} SELECT /*+ COALESCE(1) */ id, concat('g', id), "
        "CASE WHEN id < 6 THEN named_struct('a', cast(id AS int), 'b', 'z') END FROM range(10)"
    )
    gone = int(bench.table(name).schema().findField("gone").fieldId())
    add_equality_delete(bench, name, {"st.a": pa.array([3], pa.int32())})
    bench.sql(f"ALTER TABLE {full} DROP COLUMN gone")
    add_equality_delete(bench, name, {"gone": pa.array(["g8"])}, ids={"gone": gone})
    _done(bench, name, ConvertDeletes(inputs=delete_paths(bench, name)))
    assert _ids(bench, name) == set(range(10)) - {3, 8}


def test_data_files_whose_partition_column_was_dropped_are_left_alone(bench: Bench) -> None:
    """An imported file takes the values of a column that it lacks from its partition, which cannot
    be read any more: an equality delete would not find its rows, and the witness would agree."""
    name = bench.create("id bigint, d int, p int", "'format-version'='2'", "d, p")
    full = bench.full(name)
    bench.sql(f"INSERT INTO {full} SELECT id, cast(id % 2 AS int), 0 FROM range(10)")
    bench.sql(f"ALTER TABLE {full} DROP PARTITION FIELD d")
    bench.sql(f"ALTER TABLE {full} DROP PARTITION FIELD p")
    bench.sql(f"ALTER TABLE {full} DROP COLUMN p")
    spec = int(bench.table(name).spec().specId())
    path = add_equality_delete(bench, name, {"d": pa.array([1], pa.int32())}, spec_id=spec)
    head = int(bench.table(name).currentSnapshot().snapshotId())
    with pytest.raises(UnsupportedError) as refused:
        bench.run(bench.request(name, ConvertDeletes(inputs=(path,))))
    assert "partitions" in refused.value.what
    assert int(bench.table(name).currentSnapshot().snapshotId()) == head
    assert _ids(bench, name) == {0, 2, 4, 6, 8}


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_of_every_scope_are_converted_together(bench: Bench, version: int) -> None:
    """Global ones of an older spec, of a partition, and position deletes of the partition."""
    name = _table(bench, version)
    full = bench.full(name)
    bench.sql(f"ALTER TABLE {full} ADD PARTITION FIELD d")
    bench.sql(f"INSERT INTO {full} SELECT id + 120, cast(id % 2 AS int) FROM range(40)")
    bench.sql(f"DELETE FROM {full} WHERE id % 40 = 7")
    added = next(row.file_path for row in bench.files(name) if row.spec_id == 1)
    everywhere = add_equality_delete(bench, name, {"id": _longs(2, 82, 122, 123)})
    local = add_equality_delete(bench, name, {"id": _longs(124, 125, 4)}, like=added)
    live = set(range(160)) - {7, 47, 87, 127, 2, 82, 122, 123}
    live -= {124} if bench.sql(f"SELECT d FROM {full} WHERE id = 125") else {125}
    assert _ids(bench, name) == live
    (partition,) = {row.partition.d for row in bench.files(name) if row.file_path == added}
    result = _unchanged(
        bench, name,
        ConvertDeletes(inputs=(everywhere,)),
        ConvertDeletes(inputs=(local,), spec_id=1, partition=(partition,)),
    )  # fmt: skip
    assert result.commits == 1  # a data file may be under both
    assert delete_paths(bench, name, 2) == ()
    assert len(bench.sql(f"SELECT 1 FROM {full}.delete_files")) == 5  # one of each data file
    assert _seen_by_pyiceberg(bench, name) == len(live)


@pytest.mark.parametrize("version", [2, 3])
def test_equality_deletes_that_hit_no_row_go_without_new_delete_files(
    bench: Bench, version: int
) -> None:
    """An upsert writes one for every key, new keys included."""
    name = _table(bench, version)
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES (200, 0), (300, 0)")
    between = add_equality_delete(bench, name, {"id": _longs(250)})
    result = _unchanged(bench, name, ConvertDeletes(inputs=(between,)))
    assert result.commits == 1
    assert bench.sql(f"SELECT 1 FROM {bench.full(name)}.delete_files") == []
    assert _ids(bench, name) == {*range(120), 200, 300}


def test_gaps_in_sequence_numbers_change_nothing(bench: Bench) -> None:
    """A job that was restored from a checkpoint leaves them: what it had committed since was rolled
    back, and the snapshots of older checkpoints have expired."""
    name = _table(bench, 2)
    first = add_equality_delete(bench, name, {"id": _longs(1, 2)})
    restored = int(bench.table(name).currentSnapshot().snapshotId())
    add_equality_delete(bench, name, {"id": _longs(3)})
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES (2, 0)")
    bench.table(name).manageSnapshots().rollbackTo(restored).commit()
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES (1, 0)")
    second = add_equality_delete(bench, name, {"id": _longs(4)})
    bench.expire(name)
    result = _done(bench, name, ConvertDeletes(inputs=(first, second)))
    assert result.commits == 1 and delete_paths(bench, name, 2) == ()
    assert _ids(bench, name) == set(range(120)) - {2, 4}


@pytest.mark.parametrize("version", [2, 3])
def test_executors_find_and_write_what_is_too_much_for_the_driver(
    bench: Bench, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python processes of Spark's, as in a cluster; data files of a partition are in two tasks."""
    monkeypatch.setattr(witness_work, "by_driver", lambda local, size, opening: False)
    monkeypatch.setattr(writing, "LEAST_PIECE", 1)
    name = _table(bench, 2, "d", "id bigint, d int, st struct<a:int>")
    full = bench.full(name)
    bench.sql(f"DELETE FROM {full} WHERE id % 10 IN (6, 7)")
    if version == 3:
        bench.sql(f"ALTER TABLE {full} SET TBLPROPERTIES ('format-version'='3')")
    positions = delete_paths(bench, name)
    actions: list[Any] = [
        CompactDeletes(inputs=(path,), partition=(number,))
        for number, path in enumerate(sorted(positions, key=lambda path: "d=1" in path))
    ]
    add_equality_delete(
        bench, name, {"id": _longs(*range(0, 120, 6))}, like=data_files(bench, name)[0]
    )
    conversion = ConvertDeletes(inputs=delete_paths(bench, name, 2))
    result = _unchanged(bench, name, *actions, conversion)
    assert result.commits == 2
    rows = bench.sql(f"SELECT * FROM {full}.delete_files")
    assert len(rows) == 6
    assert {row.file_format for row in rows} == {"PUFFIN" if version == 3 else "PARQUET"}


def _jobs(bench: Bench) -> int:
    context = bench.spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    return int(context.statusStore().jobsList(None).size())


@pytest.mark.parametrize("version", [2, 3])
def test_few_positions_are_compacted_without_a_spark_job(bench: Bench, version: int) -> None:
    name = _table(bench, 2, "d")
    full = bench.full(name)
    for number in (3, 4):
        bench.sql(f"DELETE FROM {full} WHERE id % 10 = {number}")
    if version == 3:
        bench.sql(f"ALTER TABLE {full} SET TBLPROPERTIES ('format-version'='3')")
    paths = delete_paths(bench, name)
    actions = [
        CompactDeletes(inputs=tuple(p for p in paths if f"d={d}/" in p), partition=(d,))
        for d in (0, 1)
    ]
    before, request = bench.rows(name), bench.request(name, *actions)
    jobs = _jobs(bench)
    result = bench.run(request)
    assert (result.done, result.commits, _jobs(bench) - jobs) == (True, 1, 0)
    assert bench.rows(name) == before and bench.leftovers(name) == []
    assert min(one.cpu_seconds for one in result.outcomes if one.batch) > 0.0


def test_a_conversion_reads_the_data_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    name = _table(bench, 2)
    path = add_equality_delete(bench, name, {"id": _longs(2, 102)})
    request = bench.request(name, ConvertDeletes(inputs=(path,)))
    opened, honest = [], Opened.hidden
    monkeypatch.setattr(
        Opened, "hidden", lambda own: (opened.append(own.file.path), honest(own))[1]
    )
    jobs = _jobs(bench)
    assert bench.run(request).done
    assert _jobs(bench) == jobs and sorted(opened) == data_files(bench, name)


def test_a_conflict_of_a_conversion_costs_only_the_files_that_were_touched(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vector comes for one of three data files, each time that the conversion is about to
    commit."""
    name = _table(bench, 3)
    path = add_equality_delete(bench, name, {"id": _longs(2, 42, 82)})
    reads: list[int] = []
    honest = writing.written

    def counted(attempt: Any, base: str, tasks: Any, wanted: Any, keep: bool = False) -> Any:
        reads.append(sum(one.known is None for one in wanted.values()))
        return honest(attempt, base, tasks, wanted, keep)

    monkeypatch.setattr(writing, "written", counted)
    left = [7, 47]

    def on_event(event: Event) -> None:
        if event.phase == "commit" and left:
            bench.sql(f"DELETE FROM {bench.full(name)} WHERE id = {left.pop()}")

    result = bench.run(bench.request(name, ConvertDeletes(inputs=(path,))), on_event)
    assert (result.done, result.conflicts, reads) == (True, 2, [3, 1, 1])
    first, second, third = [one.read_bytes for one in result.outcomes if one.batch]
    assert second < first and third < first
    assert _ids(bench, name) == set(range(120)) - {2, 42, 82, 7, 47}
    assert delete_paths(bench, name, 2) == () and bench.leftovers(name) == []


def test_after_a_conflict_files_that_are_still_being_changed_wait(bench: Bench) -> None:
    """One file got a vector before the plan, another one at the commit: neither is tried again."""
    name = _table(bench, 3)
    full = bench.full(name)
    bench.sql(f"DELETE FROM {full} WHERE id = 7")
    action = bench.action(name, ApplyDeletes)
    still = bench.sql(f"SELECT DISTINCT _file FROM {full} WHERE id >= 80")[0][0]
    deletion = _on_commit(lambda: bench.sql(f"DELETE FROM {full} WHERE id = 47"))
    result = bench.run(bench.request(name, action), deletion)
    assert (result.conflicts, result.commits) == (1, 1)
    assert still not in data_files(bench, name)
    assert len(set(action.inputs) & set(data_files(bench, name))) == 2
    assert _ids(bench, name) == set(range(120)) - {7, 47}


def test_a_row_that_a_conversion_does_not_read_is_noticed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The equality delete that hides it would be removed."""
    name = _table(bench, 2)
    path = add_equality_delete(bench, name, {"id": _longs(2, 102)})
    before, honest = bench.rows(name), Opened.hidden

    def half(own: Opened) -> Iterator[Any]:
        return (rows[rows < 20] for rows in honest(own))

    monkeypatch.setattr(Opened, "hidden", half)
    with pytest.raises(VerificationError):
        bench.run(bench.request(name, ConvertDeletes(inputs=(path,))))
    assert bench.rows(name) == before and bench.leftovers(name) == []


def test_only_what_readers_apply_is_written(bench: Bench) -> None:
    """A position delete file of a partition that names a file of another one, a file that is not
    there, and a row twice."""
    name = _table(bench, 2, "d")
    mine, other = (
        next(row.file_path for row in bench.files(name) if row.partition.d == d) for d in (0, 1)
    )
    rows = [(mine, 1), (mine, 1), (mine, 3), (other, 5), (f"{mine}-gone", 7)]
    path = add_position_delete(bench, name, rows, "d=0")
    assert len(_ids(bench, name)) == 118
    _unchanged(bench, name, CompactDeletes(inputs=(path,), partition=(0,)))
    (left,) = bench.sql(f"SELECT record_count FROM {bench.full(name)}.delete_files")
    assert left.record_count == 2
    dead = add_position_delete(bench, name, [(f"{mine}-gone", 7)], "d=0")
    _unchanged(bench, name, CompactDeletes(inputs=(dead,), partition=(0,)))
    assert dead not in delete_paths(bench, name)


def test_a_vector_takes_in_whatever_it_would_hide(bench: Bench) -> None:
    """Of two delete files of a partition one is compacted after an upgrade."""
    name = _table(bench, 2)
    full = bench.full(name)
    for number in (3, 4):
        bench.sql(f"DELETE FROM {full} WHERE id % 10 = {number}")
    first, _ = delete_paths(bench, name)
    upgrade = UpgradeFormat(2, 3)
    _unchanged(bench, name, upgrade, CompactDeletes(inputs=(first,)))
    bench.sql(f"DELETE FROM {full} WHERE id = 55")
    assert _ids(bench, name) == {i for i in range(120) if i % 10 not in (3, 4)} - {55}


def test_an_upgrade_that_comes_between_is_a_conflict(bench: Bench) -> None:
    """What was written for format 2 is dropped, and the deletes become vectors."""
    name = _table(bench, 2)
    add_equality_delete(bench, name, {"id": _longs(3, 4)})
    before = bench.rows(name)
    request = bench.request(name, ConvertDeletes(inputs=delete_paths(bench, name)))

    def on_event(event: Event) -> None:
        table = bench.table(name)
        if event.phase == "verified" and iceberg.format_version(table) == 2:
            table.updateProperties().set("format-version", "3").commit()

    result = bench.run(request, on_event)
    assert (result.done, result.commits, result.conflicts) == (True, 1, 1)
    assert bench.rows(name) == before and bench.leftovers(name) == []
    formats = bench.sql(f"SELECT file_format FROM {bench.full(name)}.delete_files")
    assert {row.file_format for row in formats} == {"PUFFIN"}


def test_an_upgrade_keeps_away_from_foreign_compaction(bench: Bench) -> None:
    name = _table(bench, 2)
    request = bench.request(name, UpgradeFormat(2, 3))
    call = f"rewrite_data_files(table => 'jobs.{name}', options => map('rewrite-all', 'true'))"
    bench.sql(f"CALL {bench.config.name}.system.{call}")
    (state,) = bench.run(request).actions
    assert state.state is Validity.LOST and "another engine" in state.detail
    assert int(bench.table(name).operations().current().formatVersion()) == 2


@pytest.mark.parametrize("kind", [BinPack, ApplyDeletes])
@pytest.mark.parametrize("version", [2, 3])
def test_files_under_equality_deletes_are_rewritten(
    bench: Bench, version: int, kind: type[BinPack] | type[ApplyDeletes]
) -> None:
    """The outputs keep the sequence number, so that the deletes dangle, and then go."""
    name = _table(bench, version)
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id % 10 = 3")
    add_equality_delete(bench, name, {"id": _longs(2, 102)})
    action = bench.action(name, kind)
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES (2, 0)")  # after the delete: it stays
    _unchanged(bench, name, action)
    assert len(data_files(bench, name)) == 2
    left = delete_paths(bench, name)
    assert bool(left) is (version == 3)  # Iceberg drops what is older than every data file
    if left:
        _unchanged(bench, name, RemoveDanglingDeletes(inputs=left))
    assert delete_paths(bench, name) == ()


def test_a_delete_that_applies_is_not_removed(bench: Bench) -> None:
    """Neither when it does so at once, nor when a rewrite makes it apply within the commit."""
    name = _table(bench, 2, "d")
    add_equality_delete(bench, name, {"id": _longs(2)}, like=data_files(bench, name)[0])
    before = bench.rows(name)
    result = bench.run(bench.request(name, RemoveDanglingDeletes(inputs=delete_paths(bench, name))))
    assert (result.commits, result.actions[0].state) == (0, Validity.LOST)
    assert "apply to" in result.actions[0].detail
    assert bench.rows(name) == before


def _on_commit(act: Any) -> Any:
    left = [act]

    def on_event(event: Event) -> None:
        if event.phase == "commit" and left:
            left.pop()()

    return on_event


@pytest.mark.parametrize("version", [2, 3])
def test_a_conversion_beside_a_rewrite_brings_no_row_back(
    bench: Bench, version: int, tmp_path: Path
) -> None:
    """A rewrite reads, the equality delete and its conversion commit, then the rewrite commits."""
    name = _table(bench, version)
    other = Bench(bench.spark, bench.config, tmp_path / "other")

    def deleted_and_converted() -> None:
        add_equality_delete(bench, name, {"id": _longs(2, 102)})
        _done(other, name, ConvertDeletes(inputs=delete_paths(bench, name)))

    request = bench.request(name, bench.action(name, ApplyDeletes))
    result = bench.run(request, _on_commit(deleted_and_converted))
    assert (result.conflicts, result.commits) == (1, 1)
    assert _ids(bench, name) == set(range(120)) - {2, 102}


@pytest.mark.parametrize("version", [2, 3])
def test_a_rewrite_beside_a_conversion_brings_no_row_back(
    bench: Bench, version: int, tmp_path: Path
) -> None:
    """The conversion reads, a rewrite commits, then the conversion commits: what is left of it."""
    name = _table(bench, version)
    add_equality_delete(bench, name, {"id": _longs(2, 102)})
    other = Bench(bench.spark, bench.config, tmp_path / "other")
    rewrite = ApplyDeletes(inputs=tuple(data_files(bench, name)[:2]))
    request = bench.request(name, ConvertDeletes(inputs=delete_paths(bench, name)))
    result = bench.run(request, _on_commit(lambda: _done(other, name, rewrite)))
    assert result.conflicts == 1 and result.done
    assert _ids(bench, name) == set(range(120)) - {2, 102}
    assert delete_paths(bench, name, 2) == ()


def test_rows_and_deletes_that_come_meanwhile_do_not_conflict(bench: Bench) -> None:
    name = _table(bench, 2)
    full = bench.full(name)
    first = add_equality_delete(bench, name, {"id": _longs(2, 102)})

    def others() -> None:
        bench.sql(f"INSERT INTO {full} VALUES (2, 0)")
        add_equality_delete(bench, name, {"id": _longs(3)})
        bench.sql(f"DELETE FROM {full} WHERE id = 44")

    result = bench.run(bench.request(name, ConvertDeletes(inputs=(first,))), _on_commit(others))
    assert (result.done, result.conflicts) == (True, 0)
    assert _ids(bench, name) == set(range(120)) - {102, 3, 44}
    assert len(delete_paths(bench, name, 2)) == 1


def test_a_position_that_is_not_written_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = _table(bench, 2)
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id % 10 = 3")
    compaction = CompactDeletes(inputs=delete_paths(bench, name))
    conversion = ConvertDeletes(inputs=(add_equality_delete(bench, name, {"id": _longs(2, 102)}),))
    before, honest = bench.rows(name), hidden._Run._changed

    def less(run: Any) -> Iterator[Any]:
        for path, target, rows in honest(run):
            rows.remove(rows.min())
            yield path, target, rows

    monkeypatch.setattr(hidden._Run, "_changed", less)
    for action in (compaction, conversion):
        with pytest.raises(NotVerified):
            bench.run(bench.request(name, action))
        assert bench.rows(name) == before and bench.leftovers(name) == []


@pytest.mark.parametrize("version", [2, 3])
def test_positions_that_only_iceberg_misses_are_noticed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """As with a file that the engine and the witness read, and Iceberg reads otherwise."""
    name = _table(bench, version)
    path = add_equality_delete(bench, name, {"id": _longs(2, 102)})
    honest = by_engine._loader

    class More:
        def __init__(self, spark: Any, table: Any) -> None:
            self.loader = honest(spark, table)

        def loadPositionDeletes(self, files: Any, of: str) -> Any:
            found = self.loader.loadPositionDeletes(files, of)
            found.delete(33)
            return found

    monkeypatch.setattr(by_engine, "_loader", More)
    before = bench.rows(name)
    with pytest.raises(VerificationError) as caught:
        bench.run(bench.request(name, ConvertDeletes(inputs=(path,))))
    assert not isinstance(caught.value, NotVerified), "the witness sees nothing wrong"
    assert bench.rows(name) == before and bench.leftovers(name) == []


@pytest.mark.parametrize("codec", ["zstd", "gzip", "lz4"])
def test_compacted_files_have_the_codec_of_the_table_and_what_readers_prune_by(
    bench: Bench, codec: str
) -> None:
    name = _table(bench, 2, "d")
    full = bench.full(name)
    bench.sql(f"DELETE FROM {full} WHERE id % 10 = 3")
    bench.sql(f"DELETE FROM {full} WHERE id % 10 = 6")
    named = f"'write.delete.parquet.compression-codec'='{codec}'"
    bench.sql(f"ALTER TABLE {full} SET TBLPROPERTIES ({named})")
    paths = delete_paths(bench, name)
    actions = [
        CompactDeletes(inputs=tuple(p for p in paths if f"d={d}/" in p), partition=(d,))
        for d in (0, 1)
    ]
    _unchanged(bench, name, *actions)
    files = bench.sql(f"SELECT * FROM {full}.delete_files")
    live = set(data_files(bench, name))
    for file in files:
        low, high = (bounds[2147483546] for bounds in (file.lower_bounds, file.upper_bounds))
        assert low == high and low.decode() in live and file.partition.d in (0, 1)
        body = on_disk(file.file_path).read_bytes()
        footer = pq.ParquetFile(on_disk(file.file_path)).metadata
        assert (footer.num_rows, len(body)) == (file.record_count, file.file_size_in_bytes)
        assert footer.metadata[b"delete-type"] == b"position"
        assert footer.row_group(0).column(1).compression == codec.upper()
    assert len({file.file_path for file in files}) == len(live)


def test_a_codec_that_nobody_writes_is_refused(bench: Bench) -> None:
    name = _table(bench, 2)
    path = add_equality_delete(bench, name, {"id": _longs(2, 102)})
    named = "'write.delete.parquet.compression-codec'='lzo'"
    bench.sql(f"ALTER TABLE {bench.full(name)} SET TBLPROPERTIES ({named})")
    request = bench.request(name, ConvertDeletes(inputs=(path,)))
    with pytest.raises(UnsupportedError, match="lzo"):
        bench.run(request)
    assert bench.table(name).currentSnapshot().snapshotId() == request.base_snapshot_id


@pytest.mark.parametrize("damage", ["missing", "unreadable"])
def test_a_damaged_delete_file_is_named(bench: Bench, damage: str) -> None:
    name = _table(bench, 2)
    path = add_equality_delete(bench, name, {"id": _longs(2, 102)})
    head = bench.table(name).currentSnapshot().snapshotId()
    on_disk(path).unlink() if damage == "missing" else on_disk(path).write_bytes(b"x" * 400)
    with pytest.raises(TableDamagedError) as caught:
        bench.run(bench.request(name, ConvertDeletes(inputs=(path,))))
    assert path.rpartition("/")[2] in caught.value.render()
    assert bench.table(name).currentSnapshot().snapshotId() == head


@pytest.mark.parametrize(
    "ordering", [ARRIVAL, Lexicographic((SortColumn(2),)), Hilbert((SortColumn(1), SortColumn(2)))]
)
def test_files_of_which_every_row_is_deleted_are_rewritten_to_none(
    bench: Bench, ordering: Ordering
) -> None:
    """Spark drops the plan of an empty result, together with what it observed."""
    name = _table(bench, 2)
    gone = data_files(bench, name)[:2]
    paths = ", ".join(f"'{path}'" for path in gone)
    rows = bench.sql(f"SELECT id FROM {bench.full(name)} WHERE _file IN ({paths})")
    add_equality_delete(bench, name, {"id": _longs(*(row.id for row in rows))})
    kind = ApplyDeletes if ordering is ARRIVAL else Recluster
    result = _done(bench, name, kind(inputs=gone, ordering=ordering, target_bytes=1 << 20))
    assert result.commits == 1
    assert not set(gone) & set(data_files(bench, name))


@pytest.mark.parametrize("version", [2, 3])
def test_the_witness_finds_deleted_rows_that_would_come_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """The engine that writes the delete files is taken to read back what it believes."""
    name = _table(bench, version)
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id % 10 = 3")
    path = add_equality_delete(bench, name, {"id": _longs(2, 42)})
    before, honest = bench.rows(name), convert.replacement_for

    def forgetful(*arguments: Any) -> Any:
        made = honest(*arguments)
        return replace(made, added=made.added[1:])

    monkeypatch.setattr(convert, "replacement_for", forgetful)
    request = bench.request(name, ConvertDeletes(inputs=(path,)))
    with pytest.raises(NotVerified):
        bench.run(request)
    assert bench.rows(name) == before and bench.leftovers(name) == []
    assert path in {one.path for one in bench.ledger.refused[request.table_uuid]}
