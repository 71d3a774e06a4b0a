"""The engines' operations are committed without a JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.commit import fields
from reconciler.commit.local_commit import LocalCommit
from reconciler.commit.manifest import File
from reconciler.commit.snapshot import AddedFile
from reconciler.commit.table import LiveTable
from reconciler.engines.answers import Kind
from reconciler.engines.commit.commit import Refused
from reconciler.engines.commit.history import Committed
from reconciler.engines.commit.operations import (
    Mark,
    NewManifests,
    RemoveDeletes,
    RewriteFiles,
    RowDelta,
)
from reconciler.engines.manifests import WrittenFile
from reconciler.table.deletes import PartitionKey
from tests.commit.committing import sent_as_batch
from tests.commit.test_local_table import Deleted, Guarded, head_of


@pytest.fixture
def table(tmp_path: Path) -> Deleted:
    return Deleted(tmp_path / "own")


def copy_of(table: Deleted, path: str) -> WrittenFile:
    live = table.live()
    manifests = live.manifests(live.state.head())
    (file,) = (
        entry.file for entries in live.entries(manifests) for entry in entries
        if entry.file.path == path
    )  # fmt: skip
    made = File({**file.values(), fields.PATH: f"{path}.copy"})
    return WrittenFile(
        AddedFile(0, made), made.path, made.records, made.size, PartitionKey(0, "{}")
    )


def test_files_are_replaced(table: Deleted) -> None:
    engine = table.engine()
    head = head_of(engine)
    tasks = engine.tasks(head, table.paths[:2])
    read = engine.snapshot(head)
    assert read is not None
    added = [copy_of(table, path) for path in tasks]
    operation = RewriteFiles(tasks, added, read.sequence_number)
    change, guard = LocalCommit(engine), Guarded(True)
    assert change.send(operation, head, {"layout.batch": "1"}, guard).kind is Kind.ACCEPTED
    assert guard.seen[0] == head
    assert change.unwanted() == ()
    engine.refresh()
    after = engine.snapshot(head_of(engine))
    assert after is not None
    assert (after.operation, after.summary["layout.batch"]) == ("replace", "1")
    assert after.summary["removed-position-delete-files"] == "1"
    assert not engine.tasks(head_of(engine), table.paths[:2])
    assert len(engine.tasks(head_of(engine), [file.path for file in added])) == 2


def test_a_batch_loads_the_table_before_its_request_and_after_it(
    table: Deleted, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = table.engine()
    head = head_of(engine)
    tasks, read = engine.tasks(head, table.paths[:2]), engine.snapshot(head)
    assert read is not None
    added = [copy_of(table, path) for path in tasks]
    operation = RewriteFiles(tasks, added, read.sequence_number)
    loads, honest = list[str](), LiveTable.refresh

    def counted(live: LiveTable) -> Any:
        loads.append(live.name)
        return honest(live)

    monkeypatch.setattr(LiveTable, "refresh", counted)
    assert isinstance(sent_as_batch(engine, operation), Committed)
    assert len(loads) == 2


def test_delete_files_go(table: Deleted) -> None:
    engine = table.engine()
    head = head_of(engine)
    position = [file for file in engine.delete_files(head) if not file.keys]
    tasks = engine.tasks_under(head, [position[0].path])
    assert (
        LocalCommit(engine).send(RowDelta(tasks, (), position), head, {}, None).kind
        is Kind.ACCEPTED
    )
    engine.refresh()
    rest = engine.delete_files(head_of(engine))
    assert all(file.keys for file in rest)
    assert LocalCommit(engine).send(RemoveDeletes(rest), head, {}, None).kind is Kind.ACCEPTED
    engine.refresh()
    assert engine.delete_files(head_of(engine)) == []


def test_manifests_and_a_mark(table: Deleted) -> None:
    engine = table.engine()
    head = head_of(engine)
    live = engine.live(head)
    data = [str(one[fields.M_PATH]) for one in live.manifests if not one[fields.M_CONTENT]]
    operation = NewManifests(data, dict.fromkeys(live.files.path.tolist(), 0))
    assert LocalCommit(engine).send(operation, head, {}, None).kind is Kind.ACCEPTED
    engine.refresh()
    now = engine.live(head_of(engine))
    assert len([one for one in now.manifests if not one[fields.M_CONTENT]]) == 1
    assert sorted(now.files.path) == sorted(live.files.path)
    assert now.ages(table.paths).of_path == live.ages(table.paths).of_path
    again = LocalCommit(engine).send(operation, head, {}, None)
    assert again.kind is Kind.REFUSED
    assert LocalCommit(engine, "audit").send(Mark(), head, {"layout.fence": "a/0"}, None).kind is (
        Kind.ACCEPTED
    )
    engine.refresh()
    assert engine.state.head("audit") != engine.head()


def test_a_delete_file_that_is_gone_refuses(table: Deleted) -> None:
    engine = table.engine()
    head = head_of(engine)
    (gone,) = [file for file in engine.delete_files(head) if file.keys]
    assert LocalCommit(engine).send(RemoveDeletes([gone]), head, {}, None).kind is Kind.ACCEPTED
    engine.refresh()
    late = LocalCommit(engine)
    assert late.send(RemoveDeletes([gone]), head, {}, None).kind is Kind.REFUSED
    assert late.unwanted() == ()


def test_a_delete_file_that_another_writer_replaced_is_a_conflict_at_once(table: Deleted) -> None:
    """Sent again it would be refused again: the plan's next attempt begins on the new head."""
    ours, theirs = table.engine(), table.engine()
    (gone,) = [file for file in ours.delete_files(head_of(ours)) if not file.keys]
    operation = RowDelta(ours.tasks_under(head_of(ours), [gone.path]), (), [gone])
    foreign = LocalCommit(theirs).send(operation, head_of(theirs), {}, None)
    assert foreign.kind is Kind.ACCEPTED
    before = table.written()
    sent = sent_as_batch(ours, operation)
    assert isinstance(sent, Refused)
    assert sent.conflict
    assert table.written() == before
