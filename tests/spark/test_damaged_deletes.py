"""Damage by deletes that another engine wrote: it is named, with a remedy that works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from reconciler.catalog.observe import observe_table
from reconciler.errors import TableDamagedError
from reconciler.plan.actions.delete_maintenance import CompactDeletes, ConvertDeletes
from reconciler.plan.actions.upgrade_format import UpgradeFormat
from reconciler.rewrite import hidden
from reconciler.rewrite.files import DataFile, TableShape
from reconciler.rewrite.hidden import Group, Target, Task
from reconciler.spark.deletes import by_engine, delete_files
from reconciler.spark.schedule.scan import scan_tasks
from reconciler.table.damage import damage_of
from tests.spark.equality import add_equality_delete, data_files, delete_paths, on_disk
from tests.spark.tables import Bench

pytestmark = pytest.mark.spark

BY_PARTITION = (
    "'format-version'='2', 'write.delete.mode'='merge-on-read', "
    "'write.delete.granularity'='partition'"
)


def _table(bench: Bench) -> str:
    name = bench.create("id bigint", BY_PARTITION)
    bench.sql(f"INSERT INTO {bench.full(name)} SELECT id FROM range(0, 40, 1, 2)")
    return name


def test_of_two_vectors_for_one_file_the_table_is_rolled_back(bench: Bench, tmp_path: Path) -> None:
    """As Iceberg's compaction of position deletes leaves it if a DELETE commits beside it."""
    name, spark = _table(bench), bench.spark
    full = bench.full(name)
    bench.sql(f"DELETE FROM {full} WHERE id IN (3, 33)")
    bench.run(bench.request(name, UpgradeFormat(2, 3)))
    bench.sql(f"DELETE FROM {full} WHERE id = 5")
    sound, table = bench.rows(name), bench.table(name)
    assert _damage(bench, name, tmp_path) == ""
    head = int(table.currentSnapshot().snapshotId())
    path = str(bench.sql(f"SELECT DISTINCT _file FROM {full} WHERE id = 6")[0][0])
    tasks = scan_tasks(spark, table, head, [path])
    task = tasks.java_tasks([path]).get(0)
    target = Target(DataFile(path, 20, 1), known=BitMap64([3]).serialize())
    to = f"{table.location()}/data/other.puffin"
    (made,) = hidden.found(
        Task(TableShape((), {}, None, False), (Group((target,), ""),), to), None
    ).files
    vector = by_engine._entry(spark._jvm.org.apache.iceberg, task, made)
    (old,) = [file for file in delete_files.live(spark, table, head) if not file.vector]
    table.newRewrite().deleteFile(old.entry).addFile(vector).commit()
    with pytest.raises(Exception, match="multiple DVs"):
        bench.rows(name)
    said = _damage(bench, name, tmp_path)
    assert path.rpartition("/")[2] in said
    (call,) = re.findall(r"CALL .*\)", said)
    bench.sql(call)
    assert bench.rows(name) == sound
    assert _damage(bench, name, tmp_path) == ""


def _damage(bench: Bench, name: str, tmp_path: Path) -> str:
    return damage_of(observe_table(bench.config, ("jobs", name), tmp_path / "cache"))


@pytest.mark.parametrize("kind", [CompactDeletes, ConvertDeletes])
def test_a_missing_data_file_is_named_where_its_deletes_are_maintained(
    bench: Bench, kind: Any
) -> None:
    """A compaction does not open data files, and so goes on."""
    name = _table(bench)
    if kind is CompactDeletes:
        bench.sql(f"DELETE FROM {bench.full(name)} WHERE id IN (3, 33)")
    else:
        add_equality_delete(bench, name, {"id": pa.array([3, 33], pa.int64())})
    action = kind(inputs=delete_paths(bench, name))
    gone = data_files(bench, name)[0]
    on_disk(gone).unlink()
    request = bench.request(name, action)
    if kind is CompactDeletes:
        assert bench.run(request).done
        return
    with pytest.raises(TableDamagedError) as caught:
        bench.run(request)
    assert gone.rpartition("/")[2] in caught.value.render()
    assert bench.table(name).currentSnapshot().snapshotId() == request.base_snapshot_id
    assert bench.leftovers(name) == []


def test_equality_deletes_are_converted_beside_types_and_defaults_of_format_3(
    bench: Bench,
) -> None:
    """The engine reads the columns of keys alone."""
    name = bench.create("id bigint, v variant", "'format-version'='3'")
    full = bench.full(name)
    bench.sql(
        f"INSERT INTO {full} SELECT id, parse_json(concat('{{\"a\":', id, '}}')) "
        "FROM range(0, 20, 1, 1)"
    )
    table, core = bench.table(name), bench.spark._jvm.org.apache.iceberg
    kind, literal = core.types.Types.LongType.get(), core.expressions.Literal.of(7)
    table.updateSchema().addColumn("later", kind, literal).commit()
    add_equality_delete(bench, name, {"id": pa.array([3, 4], pa.int64())})
    result = bench.run(bench.request(name, ConvertDeletes(inputs=delete_paths(bench, name))))
    assert result.done and delete_paths(bench, name, 2) == ()
    rows = bench.sql(f"SELECT id, later, to_json(v) AS v FROM {full}")
    wanted = {(i, 7, f'{{"a":{i}}}') for i in range(20) if i not in (3, 4)}
    assert {(row.id, row.later, row.v) for row in rows} == wanted
