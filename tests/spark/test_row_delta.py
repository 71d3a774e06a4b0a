"""Delete files are replaced by the protocol that commits rewrites: sent once, guarded, settled."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.engines.commit import commit, history
from reconciler.engines.schedule import execute, processes
from reconciler.errors import UnknownCommitError
from reconciler.plan.actions.delete_maintenance import CompactDeletes
from reconciler.plan.actions.state import Validity
from reconciler.plan.execution import Event, ExecutionRequest, Intent
from reconciler.spark.commit.table import JavaTable
from reconciler.spark.session import iceberg
from tests.spark.equality import delete_paths, on_disk
from tests.spark.tables import Bench, dead_writer

pytestmark = pytest.mark.spark

PROPERTIES = (
    "'format-version'='2', 'write.delete.mode'='merge-on-read', "
    "'write.delete.granularity'='partition'"
)


def _request(bench: Bench, properties: str = PROPERTIES) -> ExecutionRequest:
    """Two files of 100 rows, and two delete files, each on rows of both."""
    name = bench.create("id bigint, s string", properties)
    bench.write(name, 2, 100, "file * 100 + n, 'x'")
    for number in range(2):
        bench.sql(f"DELETE FROM {bench.full(name)} WHERE id % 10 = {number}")
    return bench.request(name, CompactDeletes(inputs=delete_paths(bench, name)))


def _once(phase: str, act: Callable[[], Any]) -> Callable[[Event], None]:
    left = [act]

    def on_event(event: Event) -> None:
        if event.phase == phase and left:
            left.pop()()

    return on_event


def test_delete_files_are_replaced_and_no_row_changes(bench: Bench) -> None:
    request = _request(bench)
    (action,), name = request.actions, request.table[-1]
    before, data = bench.rows(name), bench.paths(name)
    assert len(action.inputs) == 2
    result = bench.run(request)
    assert (result.done, result.commits, result.conflicts) == (True, 1, 0)
    for path in delete_paths(bench, name):  # one for each data file
        assert f"/layout-{result.attempts[0]}/" in path
    assert bench.rows(name) == before and sum(before.values()) == 160
    assert bench.paths(name) == data
    head = bench.table(name).currentSnapshot()
    assert dict(head.summary())["layout.action-ids"] == "a01"
    (outcome,) = bench.ledger.outcomes()
    assert (outcome.files_in, outcome.files_out, outcome.rows) == (2, 2, 40)
    assert bench.leftovers(name) == []
    assert bench.ledger.open_intents(request.table_uuid) == ()
    again = bench.run(request)
    assert (again.commits, again.done) == (0, True)


def test_an_append_within_the_commit_loop_is_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = _request(bench)
    name = request.table[-1]
    honest, calls = commit.Guard.allows, []

    def validate(guard: commit.Guard, snapshots: Any) -> bool | None:
        calls.append(honest(guard, snapshots))
        if len(calls) == 1:
            bench.sql(f"INSERT INTO {bench.full(name)} VALUES (1000, 'theirs')")
        return calls[-1]

    monkeypatch.setattr(commit.Guard, "allows", validate)
    before = bench.rows(name)
    result = bench.run(request)
    assert calls == [True, True]
    assert (result.commits, result.conflicts) == (1, 0)
    assert sum((bench.rows(name) - before).values()) == 1
    assert len(delete_paths(bench, name)) == 2


def test_a_delete_that_comes_between_stays(bench: Bench) -> None:
    request = _request(bench)
    name = request.table[-1]
    delete = f"DELETE FROM {bench.full(name)} WHERE id = 55"
    result = bench.run(request, _once("commit", lambda: bench.sql(delete)))
    assert (result.commits, result.conflicts) == (1, 0)
    assert sum(bench.rows(name).values()) == 159
    assert len(delete_paths(bench, name)) == 3


@pytest.mark.parametrize(
    ("call", "why"),
    [
        # No position applies to the new file any more: the delete files only go.
        ("rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))", "replaced"),
        ("rewrite_position_delete_files(table => '{t}', options => map('rewrite-all', 'true'))",
         ""),
    ],
)  # fmt: skip
def test_another_rewrite_of_the_files_wins(bench: Bench, call: str, why: str) -> None:
    request = _request(bench)
    name = request.table[-1]
    before = bench.rows(name)
    theirs = f"CALL {bench.config.name}.system.{call.format(t=f'jobs.{name}')}"
    result = bench.run(request, _once("commit", lambda: bench.sql(theirs)))
    ended = (1, Validity.DONE) if why else (0, Validity.LOST)
    assert (result.commits, result.actions[0].state) == ended and result.conflicts == 1
    conflict = next(event.text for event in bench.events if event.phase == "conflict")
    assert why in conflict
    assert bench.rows(name) == before
    assert bench.leftovers(name) == []


def test_a_file_to_which_a_removed_delete_applies_from_now_on_is_a_conflict(bench: Bench) -> None:
    """Another writer gives a file that was added after the deletes a lower sequence number."""
    request = _request(bench)
    name = request.table[-1]
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES (1000, 'later')")
    request = replace(request, base_snapshot_id=bench.table(name).currentSnapshot().snapshotId())
    (later,) = [f.file_path for f in bench.files(name) if f.record_count == 1]

    def lowered() -> None:
        table, core = bench.table(name), bench.spark._jvm.org.apache.iceberg
        tasks = iceberg.each(table.newScan().planFiles())
        (file,) = [one.file() for one in tasks if str(one.file().location()) == later]
        shutil.copy(on_disk(later), on_disk(f"{later}.moved"))
        moved = core.DataFiles.builder(table.spec()).copy(file).withPath(f"{later}.moved").build()
        rewrite = table.newRewrite().dataSequenceNumber(1).deleteFile(file).addFile(moved)
        rewrite.validateFromSnapshot(table.currentSnapshot().snapshotId()).commit()

    result = bench.run(request, _once("commit", lowered))
    conflict = next(event.text for event in bench.events if event.phase == "conflict")
    assert "added 1 file " in conflict
    assert sum(bench.rows(name).values()) == 161
    assert result.done and result.conflicts == 1  # the second attempt covers that file too


@pytest.mark.parametrize("arrived", [True, False])
def test_a_crash_is_settled(bench: Bench, monkeypatch: pytest.MonkeyPatch, arrived: bool) -> None:
    request = _request(bench)
    name = request.table[-1]
    before, send, writer = bench.rows(name), commit.send, dead_writer()

    def lost(*arguments: Any) -> commit.Sent:
        if arrived:
            send(*arguments)
        return commit.Unknown("connection lost", lost=True)

    with monkeypatch.context() as patch:
        patch.setattr(commit, "send", lost)
        patch.setattr(processes, "own_identity", lambda jvm: writer)
        with pytest.raises(UnknownCommitError):
            bench.run(request)
    settled = execute.resume(
        bench.config, request.table, bench.engine, bench.ledger, bench.lease, bench.events.append
    )
    assert settled == 1
    (outcome,) = bench.ledger.outcomes()
    counts = (outcome.state, outcome.files_in, outcome.files_out, outcome.rows)
    assert counts == (("committed", 2, 2, 40) if arrived else ("failed", 0, 0, 0))
    assert bench.rows(name) == before
    assert bench.leftovers(name) == []
    result = bench.run(request)
    assert (result.done, result.commits) == (True, 1 - arrived)
    assert bench.rows(name) == before


def test_a_commit_whose_snapshot_expired_is_found_by_its_files(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = _request(bench)
    name = request.table[-1]
    intents: list[Intent] = []
    with monkeypatch.context() as patch:
        patch.setattr(bench.ledger, "record_intent", intents.append)
        bench.run(request)
    ours = bench.table(name).currentSnapshot().snapshotId()
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES (1000, 'later')")
    table = bench.table(name)
    head = table.currentSnapshot().snapshotId()
    table.expireSnapshots().expireOlderThan(1 << 60).retainLast(1).commit()
    live = JavaTable(bench.spark, bench.full(name), bench.table(name))
    assert [int(s.snapshotId()) for s in iceberg.each(live.java.snapshots())] == [head]
    found = history.search(live, next(intent for intent in intents if intent.batch == 1))
    assert found == history.Committed(ours)


def test_a_request_that_loses_the_race_is_sent_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iceberg's own loop gives up at once; ours sends a new commit with the same content."""
    request = _request(bench, f"{PROPERTIES}, 'commit.retry.num-retries'='0'")
    name = request.table[-1]
    honest, slipped = commit.Guard.allows, []

    def validate(guard: commit.Guard, snapshots: Any) -> bool | None:
        verdict = honest(guard, snapshots)
        if not slipped:
            slipped.append(bench.sql(f"INSERT INTO {bench.full(name)} VALUES (1000, 'theirs')"))
        return verdict

    before = bench.rows(name)
    monkeypatch.setattr(commit.Guard, "allows", validate)
    monkeypatch.setattr(commit, "RESEND_SECONDS", 0.0)
    result = bench.run(request)
    assert (result.commits, result.conflicts) == (1, 0)
    assert sum((bench.rows(name) - before).values()) == 1
    assert len(delete_paths(bench, name)) == 2
