"""Each kind of change by Iceberg's Java library and in Python, from the same table, is the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.commit import fields, snapshot_changes, updates
from reconciler.commit.local_table import LocalTable
from reconciler.commit.manifest import File
from reconciler.commit.metadata_changes import CHANGES
from reconciler.commit.snapshot import AddedFile, SnapshotChange
from reconciler.engines.answers import Kind
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.partition_specs import AddSpec, SwitchSpec
from reconciler.plan.actions.remove_specs import RemoveSpecs
from reconciler.plan.actions.roll_back import RollBack
from reconciler.plan.actions.set_block_column import SetBlockColumn
from reconciler.spark.commit.table import JavaTable
from reconciler.spark.session import iceberg
from reconciler.table.schema import SpecField
from tests.commit.twins import Twins, copied, filled
from tests.spark.tables import Bench

MERGED = "'commit.manifest.min-count-to-merge'='2'"


def rewrite(both: Twins, gone: list[str]) -> None:
    """Both sides replace the files by their copies."""
    live, tasks = both.live(), both.java_tasks()
    entries = both.entries()
    files = both.bench.spark._jvm.org.apache.iceberg.DataFiles
    scoped = both.bench.spark._jvm.org.apache.iceberg.util.ContentFileUtil.isFileScoped
    head = both.java.currentSnapshot()
    update = both.java.newRewrite().validateFromSnapshot(head.snapshotId())
    if both.python.state.version > 1:
        update.dataSequenceNumber(head.sequenceNumber())
    for path in gone:
        update.deleteFile(tasks[path].file())
        for delete in iceberg.each(tasks[path].deletes()):
            if scoped(delete):
                update.deleteFile(delete)
        copy = files.builder(both.java.spec()).copy(tasks[path].file()).withPath(f"{path}.copy")
        update.addFile(copy.build())
    update.set("layout.plan-id", "p")
    update.commit()
    added = [copied(f"{path}.copy", entries[path]) for path in gone]
    change = snapshot_changes.replace_files(live, gone, added, int(head.sequenceNumber()))
    both.committed(noted(change, {"layout.plan-id": "p"}))


def noted(change: SnapshotChange, summary: dict[str, str]) -> SnapshotChange:
    return replace(change, summary=summary)


def test_replaced_files_of_a_table_without_partitions(bench: Bench, iceberg_catalog: Any) -> None:
    both = filled(bench, iceberg_catalog, 2, properties=MERGED, by="")
    rewrite(both, sorted(both.entries()))
    assert both.differences() == {}


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("properties", [MERGED, ""])
def test_a_row_delta(bench: Bench, iceberg_catalog: Any, adds: bool, properties: str) -> None:
    both = filled(bench, iceberg_catalog, 2, properties=properties, deletes=True)
    live = both.live()
    gone = sorted(live.delete_files(), key=lambda one: one.path)[0]
    under = live.under([gone.path])
    of_java = {
        str(file.location()): file for task in both.java_tasks().values()
        for file in iceberg.each(task.deletes())
    }  # fmt: skip
    head = both.java.currentSnapshot()
    update = both.java.newRowDelta().validateFromSnapshot(head.snapshotId())
    update.validateDeletedFiles()
    update.validateDataFilesExist(iceberg.java_set(bench.spark, under))
    update.removeDeletes(of_java[gone.path])
    added = []
    if adds:
        partition = of_java[gone.path].partition().toString().split("day=")[1].rstrip("}")
        made = bench.spark._jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(both.java.spec())
        made = made.ofPositionDeletes().withPath("file:/tmp/new.parquet").withFormat("parquet")
        made = made.withFileSizeInBytes(77).withRecordCount(2).withPartitionPath(f"day={partition}")
        update.addDeletes(made.build())
        values = {
            fields.CONTENT: 1, fields.PATH: "file:/tmp/new.parquet", fields.FORMAT: "PARQUET",
            fields.PARTITION: {1000: int(partition)}, fields.RECORDS: 2, fields.SIZE: 77,
        }  # fmt: skip
        added = [AddedFile(0, File(values))]
    update.commit()
    both.committed(snapshot_changes.row_delta(live, under, added, [gone]))
    assert both.differences() == {}


def test_an_append_of_nothing(bench: Bench, iceberg_catalog: Any) -> None:
    both = filled(bench, iceberg_catalog, 2, properties=MERGED, deletes=True)
    both.java.newFastAppend().set("layout.fence", "a/1").commit()
    both.committed(noted(snapshot_changes.append_nothing(), {"layout.fence": "a/1"}))
    assert both.differences() == {}


def _properties(both: Twins) -> None:
    both.java.updateProperties().set("a", "b").remove("write.delete.mode").commit()
    both.updated(updates.set_properties({"a": "b"}, ["write.delete.mode"]))


def _expired(both: Twins) -> None:
    second = list(both.python.state.snapshots)[1]
    both.java.expireSnapshots().expireSnapshotId(second).cleanExpiredFiles(False).commit()
    both.updated(updates.expire([second], {}))


def _branches(both: Twins) -> None:
    first, *_, last = both.python.state.snapshots
    manage = both.java.manageSnapshots
    manage().createBranch("a", first).commit()
    both.updated(updates.set_branch(both.python.state, "a", first))
    manage().fastForwardBranch("a", "main").commit()
    both.updated(updates.set_branch(both.python.state, "a", last))
    manage().createBranch("b", first).commit()
    both.updated(updates.set_branch(both.python.state, "b", first))
    manage().removeBranch("a").commit()
    both.updated(updates.drop_branch("a"))


def _rolled_back(both: Twins) -> None:
    """By Iceberg's own rollback, and by ours."""
    first, *_, last = both.python.state.snapshots
    both.java.manageSnapshots().rollbackTo(first).commit()
    action = RollBack(snapshot_id=first, over=last)
    table = LocalTable(both.python, both.bench.directory / "cache")
    both.updated(CHANGES[RollBack](table, action).updates)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("change", [_properties, _expired, _branches, _rolled_back])
def test_metadata(
    bench: Bench, iceberg_catalog: Any, change: Callable[[Twins], None], version: int
) -> None:
    both = filled(bench, iceberg_catalog, version)
    change(both)
    assert both.differences() == {}


def test_an_append_on_a_branch(bench: Bench, iceberg_catalog: Any) -> None:
    both = filled(bench, iceberg_catalog, 2, properties=MERGED)
    both.java.newFastAppend().toBranch("audit").set("x", "y").commit()
    change = noted(snapshot_changes.append_nothing(), {"x": "y"})
    both.committed(replace(change, branch="audit"))
    assert both.differences() == {}
    assert both.python.refresh().head("audit") != both.python.state.head()


DAY = SpecField(4, "identity")
BUCKET = SpecField(1, "bucket[8]")
WITHOUT_DAY = AddSpec(1, (BUCKET, SpecField(2, "truncate[3]")), 0)
ACTIONS: dict[str, list[Action]] = {
    "another field": [AddSpec(1, (DAY, BUCKET), 0), SwitchSpec(1, (DAY, BUCKET), 0)],
    "back again": [
        WITHOUT_DAY, SwitchSpec(1, WITHOUT_DAY.fields, 0), AddSpec(2, (DAY, BUCKET), 1),
    ],
    "unpartitioned": [AddSpec(1, (), 0), SwitchSpec(1, (), 0)],
    "removed": [AddSpec(1, (DAY, BUCKET), 0), AddSpec(2, (), 0), RemoveSpecs((1,))],
    "block ids": [SetBlockColumn("leaf")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "version"),
    [
        *((name, 2) for name in ACTIONS),
        ("another field", 1),
        ("removed", 1),
    ],
)
def test_actions_that_change_metadata(
    bench: Bench, iceberg_catalog: Any, name: str, version: int
) -> None:
    """The changes that both engines make for an action, and what they say of it."""
    both = filled(bench, iceberg_catalog, version)
    python = LocalTable(both.python, bench.directory / "cache")
    java = JavaTable(bench.spark, bench.full(both.names[0]), both.java)
    for action in ACTIONS[name]:
        made = []
        for side in (java, python):
            side.refresh()
            change = side.change(action)
            assert change.send().kind is Kind.ACCEPTED
            made.append((change.before, change.after))
        assert made[0] == made[1]
    log = both.python.refresh().metadata["snapshot-log"]
    assert (both.differences(), len(log)) == ({}, len(both.python.state.snapshots))
