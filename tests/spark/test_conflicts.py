"""Other writers between reading and committing: appends pass, everything else is worked around."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.catalog.observe import observe_table
from reconciler.engines.actions.rewrite import RewriteExecutor
from reconciler.engines.commit import commit
from reconciler.errors import BlockedError, InternalError, LiveBranchesError, UnavailableError
from reconciler.plan.actions.rewrite import Cluster, Recluster
from reconciler.plan.actions.state import Validity
from reconciler.plan.execution import Event
from reconciler.spark.commit import java_commit
from reconciler.table.others import other_optimizer
from tests.spark.tables import Bench, intact

pytestmark = pytest.mark.spark

MERGE_ON_READ = (
    "'format-version'='2', 'write.delete.mode'='merge-on-read', 'write.delete.granularity'='file'"
)


def _table(bench: Bench, properties: str = MERGE_ON_READ, files: int = 4) -> str:
    """File k holds ids k, k + files, ...: every file covers the whole range."""
    name = bench.create("id bigint, s string", properties)
    bench.write(name, files, 50, f"n * {files} + file, 'x'")
    return name


def _once(phase: str, act: Callable[[], Any]) -> Callable[[Event], None]:
    """Acts at the first event of the phase."""
    acted: list[int] = []

    def on_event(event: Event) -> None:
        if event.phase == phase and not acted:
            acted.append(1)
            act()

    return on_event


def test_a_concurrent_append_is_not_a_conflict(bench: Bench) -> None:
    name = _table(bench)
    request = bench.request(name, bench.action(name, Cluster, "id"))
    append = f"INSERT INTO {bench.full(name)} VALUES (1000, 'new')"
    result = bench.run(request, _once("commit", lambda: bench.sql(append)))
    assert (result.commits, result.conflicts, result.done) == (1, 0, True)
    assert sum(bench.rows(name).values()) == 201
    assert len(bench.paths(name)) == 2


def test_a_commit_that_loses_the_race_is_checked_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The append lands inside the commit loop, after our checks have passed once."""
    name = _table(bench)
    request = bench.request(name, bench.action(name, Cluster, "id"))
    honest, calls = commit.Guard.allows, []

    def validate(guard: commit.Guard, snapshots: Any) -> bool:
        verdict = honest(guard, snapshots)
        calls.append(verdict)
        if len(calls) == 1:
            other = bench.table(name)
            other.newFastAppend().commit()
        return verdict

    monkeypatch.setattr(commit.Guard, "allows", validate)
    result = bench.run(request)
    assert calls == [True, True]
    assert (result.commits, result.conflicts) == (1, 0)


def test_a_delete_on_an_input_is_a_conflict_and_the_rest_goes_on(bench: Bench) -> None:
    name = _table(bench)
    request = bench.request(name, bench.action(name, Cluster, "id"))
    delete = f"DELETE FROM {bench.full(name)} WHERE id = 4"  # in the first file
    result = bench.run(request, _once("commit", lambda: bench.sql(delete)))
    assert (result.commits, result.conflicts) == (1, 1)
    assert result.actions[0].state is Validity.LOST
    ids = bench.ids(name)
    assert ids == [i for i in range(200) if i != 4]
    live = set(bench.paths(name))
    assert len(live & set(request.actions[0].inputs)) == 1  # the deleted-from file was left alone
    assert bench.leftovers(name) == []
    states = [outcome.state for outcome in bench.ledger.outcomes()]
    assert states == ["conflict", "committed"]
    (conflict,) = (event.text for event in bench.events if event.phase == "conflict")
    assert re.search("DELETE|overwrite", conflict)


def test_an_overwrite_of_an_input_leaves_the_rest_to_be_done(bench: Bench) -> None:
    name = _table(bench, "'format-version'='2', 'write.delete.mode'='copy-on-write'")
    request = bench.request(name, bench.action(name, Cluster, "id"))
    delete = f"DELETE FROM {bench.full(name)} WHERE id = 5"
    result = bench.run(request, _once("verified", lambda: bench.sql(delete)))
    assert (result.commits, result.conflicts, result.done) == (1, 1, True)
    ids = bench.ids(name)
    assert ids == [i for i in range(200) if i != 5]
    assert bench.leftovers(name) == []


def test_work_goes_on_after_a_conflict_in_the_middle(bench: Bench) -> None:
    """The second of three batches conflicts: the first and third stay, the rest is done again."""
    name = bench.create("id bigint, s string", "'format-version'='2'")
    bench.write(name, 6, 50, "n + 100 * file, 'x'")
    action = bench.action(name, Recluster, "id desc")
    request = bench.request(name, action, group_bytes=1, max_commits=3)
    delete = f"DELETE FROM {bench.full(name)} WHERE id = 205"  # copy-on-write, in the third file
    result = bench.run(request, _once("committed", lambda: bench.sql(delete)))
    assert (result.commits, result.conflicts, result.done) == (3, 1, True)
    ids = bench.ids(name)
    assert ids == [100 * k + i for k in range(6) for i in range(50) if (k, i) != (2, 5)]
    assert bench.leftovers(name) == []


def test_another_rewrite_of_the_inputs_wins_and_is_seen_as_another_optimizer(bench: Bench) -> None:
    name = _table(bench)
    request = bench.request(name, bench.action(name, Cluster, "id"))
    before = bench.rows(name)
    other = (
        f"CALL rec.system.rewrite_data_files(table => 'jobs.{name}', "
        "options => map('rewrite-all', 'true'))"
    )
    result = bench.run(request, _once("commit", lambda: bench.sql(other)))
    assert (result.commits, result.conflicts) == (0, 1)
    assert result.actions[0].state is Validity.LOST
    assert bench.rows(name) == before
    assert bench.leftovers(name) == []
    seen = observe_table(bench.config, ("jobs", name), bench.directory / "cache")
    assert "spark" in other_optimizer(seen, round(1000 * time.time()))


def test_a_replaced_delete_file_is_a_conflict(bench: Bench) -> None:
    """Deletes that were applied when the input was read must still be there (partition-scoped)."""
    name = _table(bench, MERGE_ON_READ.replace("file", "partition"))
    for k in (4, 8):
        bench.sql(f"DELETE FROM {bench.full(name)} WHERE id = {k}")
    before = bench.rows(name)
    request = bench.request(name, bench.action(name, Cluster, "id"))
    other = (
        f"CALL rec.system.rewrite_position_delete_files(table => 'jobs.{name}', "
        "options => map('rewrite-all', 'true'))"
    )
    result = bench.run(request, _once("commit", lambda: bench.sql(other)))
    assert result.conflicts == 1
    assert bench.rows(name) == before
    assert bench.leftovers(name) == []


def test_a_schema_change_is_a_conflict_and_is_done_again(bench: Bench) -> None:
    name = _table(bench)
    request = bench.request(name, bench.action(name, Cluster, "id"))
    alter = f"ALTER TABLE {bench.full(name)} ADD COLUMN extra int"
    result = bench.run(request, _once("commit", lambda: bench.sql(alter)))
    assert (result.commits, result.conflicts, result.done) == (1, 1, True)
    assert "schema" in bench.ledger.outcomes()[0].detail


def test_a_branch_that_is_made_after_the_first_check_is_refused(bench: Bench) -> None:
    name = _table(bench)
    request = bench.request(name, bench.action(name, Cluster, "id"))
    head = bench.table(name).currentSnapshot().snapshotId()

    def branch() -> None:
        bench.sql(f"ALTER TABLE {bench.full(name)} CREATE BRANCH audit")
        bench.sql(f"INSERT INTO {bench.full(name)}.branch_audit VALUES (1000, 'audited')")

    with pytest.raises(LiveBranchesError, match="branch audit"):
        bench.run(request, _once("commit", branch))
    assert bench.table(name).currentSnapshot().snapshotId() == head
    intact(bench, name)
    assert bench.ledger.open_intents(request.table_uuid) == ()
    assert [outcome.state for outcome in bench.ledger.outcomes()] == ["failed"]


def test_an_error_inside_the_check_is_settled_not_guessed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception that leaves the validator proves nothing: the outcome is unknown at first."""
    name = _table(bench)
    request = bench.request(name, bench.action(name, Cluster, "id"))
    honest, calls = commit.Guard.allows, []

    def validate(guard: commit.Guard, snapshots: Any) -> bool:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("not cleanable")
        return honest(guard, snapshots)

    monkeypatch.setattr(commit.Guard, "allows", validate)
    before = bench.rows(name)
    result = bench.run(request)
    assert (result.commits, result.done) == (1, True)
    assert [event.phase for event in bench.events].count("unknown") == 1
    assert bench.rows(name) == before
    assert bench.leftovers(name) == []
    assert bench.ledger.open_intents(request.table_uuid) == ()


def test_a_snapshot_that_iceberg_does_not_make_is_no_unknown_outcome(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More rows would be added than are replaced; no request was sent."""
    name = _table(bench)
    fill = java_commit.filled_with

    def doubled(spark: Any, update: Any, operation: Any, base: int) -> Any:
        fill(spark, update, operation, base)
        spec, added = bench.table(name).spec(), operation.added[0]
        builder = spark._jvm.org.apache.iceberg.DataFiles.builder(spec).copy(added.entry)
        return update.addFile(builder.withPath(f"{added.path}-2").build())

    monkeypatch.setattr(java_commit, "filled_with", doubled)
    request = bench.request(name, bench.action(name, Cluster, "id"))
    with pytest.raises(InternalError) as caught:
        bench.run(request)
    assert not isinstance(caught.value, UnavailableError)
    assert bench.table(name).currentSnapshot().snapshotId() == request.base_snapshot_id
    assert bench.ledger.open_intents(request.table_uuid) == ()
    intact(bench, name)


def test_a_rolled_back_plan_is_not_done_again(bench: Bench) -> None:
    name = _table(bench)
    request = bench.request(name, bench.action(name, Cluster, "id"))
    bench.run(request)
    base = request.base_snapshot_id
    bench.sql(f"CALL rec.system.rollback_to_snapshot('jobs.{name}', {base})")
    with pytest.raises(BlockedError, match="RolledBack"):
        bench.run(request)


def test_a_plan_that_is_done_is_done_once(bench: Bench) -> None:
    name = _table(bench)
    request = bench.request(name, bench.action(name, Cluster, "id"))
    assert bench.run(request).commits == 1
    again = bench.run(request)
    assert (again.commits, again.done) == (0, True)


def test_stopping_drops_what_is_not_committed(bench: Bench) -> None:
    name = _table(bench)
    request = bench.request(name, bench.action(name, Cluster, "id"))
    head = bench.table(name).currentSnapshot().snapshotId()
    stop: list[int] = []
    result = bench.run(request, _once("start", lambda: stop.append(1)), lambda: bool(stop))
    assert result.stopped
    assert result.actions[0].state is Validity.PENDING
    assert bench.table(name).currentSnapshot().snapshotId() == head
    assert bench.leftovers(name) == []
    assert bench.ledger.open_intents(request.table_uuid) == ()


def test_stopping_also_keeps_jobs_from_starting(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write is of several jobs: one that is between two of them starts no other."""
    name = _table(bench)
    request = bench.request(name, bench.action(name, Cluster, "id"))
    cancel, cancelled, stop = RewriteExecutor._cancel_jobs, threading.Event(), []
    attempts: list[str] = []

    def cancelling(execution: Any, attempt: Any, running: list[int]) -> None:
        assert running == [0]
        cancel(execution, attempt, running)
        attempts.append(attempt.id)
        cancelled.set()

    def between_two_jobs() -> None:
        stop.append(1)
        assert cancelled.wait(60)

    monkeypatch.setattr(RewriteExecutor, "_cancel_jobs", cancelling)
    assert bench.run(request, _once("start", between_two_jobs), lambda: bool(stop)).stopped
    tracker = bench.spark.sparkContext.statusTracker()
    assert list(tracker.getJobIdsForGroup(f"{attempts[0]}/0/write")) == []
    assert bench.leftovers(name) == []


def test_a_second_attempt_on_the_table_is_blocked(bench: Bench) -> None:
    name = _table(bench)
    request = bench.request(name, bench.action(name, Cluster, "id"))
    bench.lease.acquire(request.table_uuid, "someone else")
    with pytest.raises(BlockedError, match="lease"):
        bench.run(request)


def test_a_budget_that_is_used_up_ends_the_attempts(bench: Bench) -> None:
    """What the conflict cost counts: nothing is read that the limit does not cover."""
    name = _table(bench)
    request = bench.request(name, bench.action(name, Cluster, "id"))
    size = bench.size(name)
    delete = f"DELETE FROM {bench.full(name)} WHERE id = 4"
    texts: list[str] = []
    once = _once("commit", lambda: bench.sql(delete))

    def on_event(event: Event) -> None:
        texts.append(event.text)
        once(event)

    result = bench.run(replace(request, bytes_limit=size), on_event)
    assert (result.commits, result.conflicts, len(result.attempts)) == (0, 1, 1)
    assert result.read_bytes <= size
    assert any("budget" in text for text in texts)
    assert sum(bench.rows(name).values()) == 199
