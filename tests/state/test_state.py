"""The state store: durable, shared by processes, small, and never the user's catalog."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reconciler.errors import BlockedError, StateError, UserError
from reconciler.plan.actions.rewrite import BinPack
from reconciler.plan.execution import COMMITTED, UNKNOWN_OUTCOME, Intent, Outcome
from reconciler.plan.ledger import ReadCheck
from reconciler.plan.plan import DeleteState, Plan, PlannedAction, plan_id
from reconciler.plan.prediction import Prediction
from reconciler.queries.fragments import Fragment
from reconciler.queries.predicate import Comparison, Ref
from reconciler.state import ledger_tables, refusals, state_commit, state_tables
from reconciler.state.lease import SqliteLease, is_dead, this_process
from reconciler.state.records import Records
from reconciler.state.state import StateStore, cache_directory, state_directory
from reconciler.state.store import RETENTION_SECONDS
from reconciler.table.refusals import DAMAGED, FAILED, PHYSICAL_SCHEMA, Refusal, circumstances
from reconciler.table.schema import Field
from reconciler.workload_log.skip_reasons import OWN_JOB
from tests.known_metadata import OF_PYICEBERG
from tests.queries.single import of_fragments, recorded
from tests.said import Said

UUID = "3f9a1c0b-77de-4c21-a0be-000000000001"
OTHER = "3f9a1c0b-77de-4c21-a0be-000000000002"


@pytest.fixture
def store(tmp_path: Path) -> StateStore:
    return StateStore(tmp_path / "state")


def fragment(position: int, uuid: str = UUID, literal: int = 7) -> Fragment:
    return Fragment(
        source="log.jsonl",
        position=position,
        table_uuid=uuid,
        predicate=Comparison(Ref(1), ">=", 0),
        literals=(literal,),
        moving=(None,),
        projection=(1, 2),
        weight=1.0,
        event_ms=1_700_000_000_000 + position,
        engine="trino",
        recorded_bytes=None,
    )


def intent(batch: int = 1, attempt: str = "a-1") -> Intent:
    return Intent(
        table_uuid=UUID,
        table=("sales", "lineitem"),
        plan_id="p-1",
        attempt_id=attempt,
        batch=batch,
        action_ids=("a01", "a02"),
        base_snapshot_id=5,
        prefix="file:///t/data/layout-a-1",
        inputs=("file:/t/data/x.parquet",),
        outputs=("file:/t/data/layout-a-1/y.parquet",),
    )


def outcome(state: str, action: str = "a01", batch: int = 1) -> Outcome:
    return Outcome("a-1", batch, action, state, 6, 100, 90, 10, 2, 1, 1.5, 2.5)


def test_fragments_come_back_as_they_were_stored_by_table_and_event_time(store: StateStore) -> None:
    items = [fragment(3), fragment(1), fragment(2, uuid="other")]
    store.append_fragments(items)
    assert recorded(store, UUID) == of_fragments([fragment(1), fragment(3)])
    assert recorded(store, "other") == of_fragments([fragment(2, uuid="other")])
    assert recorded(store, "unknown") == []


def test_a_table_of_an_older_version_gets_the_columns_that_it_lacks(store: StateStore) -> None:
    columns = (("number", "int"), ("text", "string?"))
    store._tables.append("t", columns[:1], [{"number": 1}])
    store._tables.append("t", columns, [{"number": 2, "text": "two"}])
    found = store._tables.scan("t", state_tables.matching({}), ["number", "text"])
    assert found is not None and found.sort_by("number").column("text").to_pylist() == [None, "two"]


def test_a_repeated_import_adds_nothing(store: StateStore) -> None:
    store.append_fragments([fragment(1), fragment(2)])
    store.append_fragments([fragment(1), fragment(2), fragment(3)])
    assert [item.position for item in recorded(store, UUID)] == [1, 2, 3]


def test_an_unwritten_state_reads_as_empty_and_writes_no_table(store: StateStore) -> None:
    assert recorded(store, UUID) == []
    assert store.open_intents(UUID) == ()
    assert store.ledger() == ()
    assert not (store.directory / "state").exists()


def test_small_files_are_merged_and_nothing_is_lost(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_tables, "MAX_FILES", 5)
    monkeypatch.setattr(state_tables, "KEEP_SNAPSHOTS", dt.timedelta(0))
    monkeypatch.setattr(state_tables, "ORPHAN_SECONDS", -1.0)
    for position in range(14):
        store.append_fragments([fragment(position)])
    assert [item.position for item in recorded(store, UUID)] == list(range(14))
    data = list((store.directory / "state" / "queries" / "data").rglob("*.parquet"))
    assert len(data) <= 6


def test_a_merge_drops_fragments_older_than_the_retention(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    import reconciler.state.store as module

    now = int(time.time() * 1000)
    monkeypatch.setattr(state_tables, "MAX_FILES", 2)
    monkeypatch.setattr(module, "_now_ms", lambda: now - 1000 * RETENTION_SECONDS - 1000)
    store.append_fragments([fragment(1)])
    monkeypatch.setattr(module, "_now_ms", lambda: now)
    assert recorded(store, UUID) == []
    store.append_fragments([fragment(2)])
    store.append_fragments([fragment(3)])
    monkeypatch.setattr(module, "_now_ms", lambda: now - 1000 * RETENTION_SECONDS)
    assert [item.position for item in recorded(store, UUID)] == [2, 3]


def test_a_merge_gives_way_to_a_concurrent_append_of_the_same_rows(
    store: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = StateStore(tmp_path / "state")
    store.append_fragments([fragment(1)])
    monkeypatch.setattr(state_tables, "MAX_FILES", 1)

    import reconciler.state.store as module

    original = module.distinct

    def slipped_in(rows):  # type: ignore[no-untyped-def]
        monkeypatch.setattr(state_tables, "MAX_FILES", 100)
        other.append_fragments([fragment(9)])
        return original(rows)

    monkeypatch.setattr(module, "distinct", slipped_in)
    store.append_fragments([fragment(2)])
    assert [item.position for item in recorded(store, UUID)] == [1, 2, 9]


def _append_many(directory: str, start: int) -> None:
    store = StateStore(Path(directory))
    for position in range(start, start + 4):
        store.append_fragments([fragment(position)])
        store.record_skips(UUID, {"unparsable": 1})


def test_concurrent_processes_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_append_many, args=(str(tmp_path / "state"), 100 * n))
        for n in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0, 0]
    store = StateStore(tmp_path / "state")
    assert len(recorded(store, UUID)) == 8
    assert store.skips(UUID) == {"unparsable": 8}


def test_a_killed_writer_leaves_a_usable_state(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    store = StateStore(tmp_path / "state")
    store.append_fragments([fragment(1)])
    victim = context.Process(target=_append_many, args=(str(tmp_path / "state"), 100))
    victim.start()
    while len(recorded(store, UUID)) < 3:
        time.sleep(0.05)
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    victim.join(30)
    before = recorded(store, UUID)
    store.append_fragments([fragment(2)])
    assert len(recorded(store, UUID)) == len(before) + 1


def test_intents_are_open_until_every_outcome_is_known(store: StateStore) -> None:
    first, second = intent(1), intent(2)
    store.record_intent(first)
    store.record_intent(second)
    assert store.open_intents(UUID) == (first, second)
    store.record_outcomes(first, (outcome(UNKNOWN_OUTCOME),))
    assert store.open_intents(UUID) == (first, second)
    store.record_outcomes(first, (outcome(COMMITTED),))
    assert store.open_intents(UUID) == (second,)
    assert store.open_intents("other") == ()
    assert [item.state for item in store.outcomes(UUID)] == [COMMITTED]


def test_ledger_entries_carry_their_prediction(store: StateStore) -> None:
    store.record_predictions("p-1", {"a01": Prediction(kind="Cluster", cpu_millis=1200)})
    store.record_outcomes(intent(), (outcome(COMMITTED), outcome(COMMITTED, "a02")))
    entries = {entry.outcome.action_id: entry for entry in store.ledger(UUID)}
    assert entries["a01"].predicted == Prediction(kind="Cluster", cpu_millis=1200)
    assert entries["a02"].predicted == Prediction()
    assert entries["a01"].plan_id == "p-1"
    assert store.ledger("other") == ()


def test_files_are_read_again_only_after_a_commit(store: StateStore) -> None:
    """A commit of any process: it asks the catalog each time."""
    store.record_outcomes(intent(), (outcome(COMMITTED),))
    other = StateStore(store.directory)
    before = other.outcomes(UUID)
    data = list(store.directory.rglob("*.parquet"))
    for path in data:
        path.rename(path.with_suffix(".away"))
    assert len(data) == 1 and other.outcomes(UUID) == before
    for path in data:
        path.with_suffix(".away").rename(path)
    store.record_outcomes(intent(batch=2), (outcome(COMMITTED, batch=2),))
    assert [one.batch for one in other.outcomes(UUID)] == [1, 2]


def test_read_checks_come_back_in_order(store: StateStore) -> None:
    checks = [ReadCheck("p-1", 5, 100, 50, 52, True, 96), ReadCheck("p-2", 6, 50, 40, 45, False)]
    for check in checks:
        store.record_read_check(UUID, check)
    assert store.read_checks(UUID) == tuple(checks)


def plan(number: int, policy: str = "hash") -> Plan:
    action = BinPack(inputs=(f"file:/t/x{number}.parquet",))
    return Plan(
        id=plan_id(UUID, policy, [action]),
        catalog="warehouse",
        table=("sales", "lineitem"),
        table_uuid=UUID,
        policy_hash=policy,
        policy="sales-facts",
        base_snapshot_id=2**60 + 1,
        created=dt.datetime(2026, 11, 20, tzinfo=dt.UTC),
        expires=dt.datetime(2026, 11, 27, tzinfo=dt.UTC),
        actions=(PlannedAction("a01", action, DeleteState(0, 0, 0), Prediction(bytes_in=5)),),
    )


def test_plans_are_found_by_id_and_the_last_one_by_policy(store: StateStore) -> None:
    first, second = plan(1), plan(2)
    for item in (first, second, plan(3, policy="another")):
        store.put_plan(item)
    assert store.get_plan(first.id) == first
    assert store.standing_plan(UUID, "hash") == second
    assert store.standing_plan(UUID, "unknown") is None


def test_an_approval_survives_storing_the_plan_again(store: StateStore, said: Said) -> None:
    first = plan(1)
    store.put_plan(first)
    assert not store.approved(first.id)
    store.approve(first.id, "default/one")
    store.put_plan(first)
    assert store.approved(first.id)
    assert store.approved(first.id, "default/one")
    assert not store.approved(first.id, "default/another")
    with pytest.raises(UserError) as refused:
        store.approve(f"p-{9:020x}", "default/one")
    said(refused.value)


def test_cursors_skips_and_notes_are_kept_per_key(store: StateStore) -> None:
    assert store.cursor("log") is None
    store.set_cursor("log", "120")
    store.set_cursor("log", "240")
    assert store.cursor("log") == "240"
    store.record_skips(None, {"not json": 2})
    store.record_skips(UUID, {"unparsable": 1, OWN_JOB: 3})
    store.record_skips(UUID, {"unparsable": 1})
    assert store.skips(UUID) == {OWN_JOB: 3, "unparsable": 2}
    assert store.skips(None) == {"not json": 2}
    assert store.note("rho") is None
    store.set_note("rho", {"ratio": 4.2})
    assert store.note("rho") == {"ratio": 4.2}


def refusal(path: str, detail: str = "timestamp in milliseconds") -> Refusal:
    return Refusal(path, PHYSICAL_SCHEMA, "at", detail)


def test_refused_files_are_kept_per_table_and_the_latest_reason_counts(store: StateStore) -> None:
    assert store.refusals(UUID) == {}
    store.record_refusals(UUID, [refusal("file:/a"), refusal("file:/b")])
    store.record_refusals(UUID, [refusal("file:/b", "INT96")])
    damaged = replace(refusal("file:/d"), reason=DAMAGED, changed_ms=7)
    of_run = replace(refusal("file:/e"), reason=FAILED, under=circumstances(FAILED, 7))
    store.record_refusals(UUID, [damaged, of_run])
    store.record_refusals("other", [refusal("file:/c")])
    again = StateStore(store.directory)
    assert again.refusals(UUID) == {
        "file:/a": refusal("file:/a"),
        "file:/b": refusal("file:/b", "INT96"),
        "file:/d": damaged,
        "file:/e": of_run,
    }


def test_refused_files_of_a_table_are_bounded(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "MOST_KEPT", 3)
    store.record_refusals(UUID, [refusal(f"file:/{number}") for number in range(3)])
    store.record_refusals(UUID, [refusal("file:/new")])
    assert set(store.refusals(UUID)) == {"file:/1", "file:/2", "file:/new"}


def test_sketches_accumulate_by_file(store: StateStore) -> None:
    store.put_sketches(UUID, {"file:/a": b"1", "file:/b": b"2"})
    store.put_sketches(UUID, {"file:/a": b"3"})
    assert store.sketches(UUID, ["file:/a", "file:/c"]) == {"file:/a": [b"1", b"3"]}


def test_one_attempt_holds_a_table_at_a_time(store: StateStore, said: Said) -> None:
    first, second = store.lease(), store.lease()
    first.acquire(UUID, "a-1")
    first.acquire(UUID, "a-2")
    with pytest.raises(BlockedError) as refused:
        second.acquire(UUID, "b-1")
    said(refused.value)
    second.acquire("another table", "b-1")
    first.renew()
    first.release()
    second.acquire(UUID, "b-2")
    with pytest.raises(BlockedError, match="lost"):
        first.renew()


def test_an_expired_lease_is_taken_over_and_its_holder_learns_of_it(tmp_path: Path) -> None:
    now = [1000.0]
    records = Records(tmp_path / "state.db")
    first = SqliteLease(records, lambda: now[0])
    second = SqliteLease(records, lambda: now[0])
    first.acquire(UUID, "a-1")
    now[0] += 59.0
    with pytest.raises(BlockedError):
        second.acquire(UUID, "b-1")
    now[0] += 2.0
    second.acquire(UUID, "b-1")
    with pytest.raises(BlockedError, match="lost"):
        first.renew()
    first.release()
    second.renew()


def _hold(directory: str) -> None:
    StateStore(Path(directory)).lease().acquire(UUID, "victim-1")
    time.sleep(600)


def test_the_lease_of_a_killed_process_is_taken_over_at_once(
    store: StateStore, tmp_path: Path
) -> None:
    victim = multiprocessing.get_context("spawn").Process(
        target=_hold, args=(str(tmp_path / "state"),)
    )
    victim.start()
    lease = store.lease()
    records = Records(store.directory / "state.db")
    held = False
    while not held:
        time.sleep(0.05)
        with records.transaction() as db:
            held = db.execute("SELECT COUNT(*) FROM leases").fetchone()[0] == 1
    assert not lease.writer_is_dead(UUID, "victim-1")
    with pytest.raises(BlockedError):
        lease.acquire(UUID, "b-1")
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    victim.join(30)
    assert lease.writer_is_dead(UUID, "victim-1")
    assert not lease.writer_is_dead(UUID, "never seen")
    lease.acquire(UUID, "b-1")


def test_a_process_of_another_boot_or_host_is_not_known_to_be_dead() -> None:
    from dataclasses import replace

    me = this_process()
    assert not is_dead(me)
    assert is_dead(replace(me, started="1"))
    assert not is_dead(replace(me, started="1", boot_id="another"))
    assert not is_dead(replace(me, started="1", host="another"))
    done = subprocess.Popen([sys.executable, "-c", "pass"])
    done.wait()
    assert is_dead(replace(me, pid=done.pid))


def test_directories_follow_the_variables_and_the_xdg_convention() -> None:
    assert state_directory({"LAYOUTCTL_STATE": "/s"}) == Path("/s")
    assert state_directory({"XDG_STATE_HOME": "/x", "HOME": "/h"}) == Path("/x/layoutctl")
    assert state_directory({"HOME": "/h"}) == Path("/h/.local/state/layoutctl")
    assert cache_directory({"LAYOUTCTL_CACHE": "/c"}) == Path("/c")
    assert cache_directory({"HOME": "/h"}) == Path("/h/.cache/layoutctl")


def test_an_unusable_directory_is_one_clear_message(tmp_path: Path, said: Said) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError) as raised:
        StateStore(tmp_path / "file" / "state").cursor("log")
    said(raised.value)
    assert "LAYOUTCTL_STATE" in raised.value.render()


def test_zone_maps_that_are_too_large_are_not_kept(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.catalog.tables import small_file_table

    files = small_file_table()
    monkeypatch.setattr(ledger_tables, "MOST_BOUNDS", len(files) * len(files.columns) - 1)
    store.record_old_zone_maps("p-1", [("a01", files)])
    assert store.old_zone_maps("p-1", "a01") is None
    assert store.old_zone_maps_of(["p-1"]) == {}


def test_old_zone_maps_come_back_equal(store: StateStore) -> None:
    from tests.catalog.tables import small_file_table

    files = small_file_table()
    dotted = Field(99, "a.b", "long", levels=("a.b",))  # one name, not a struct's field
    schema = replace(files.schema, fields=(*files.schema.fields, dotted))
    files = replace(files, schema=schema)
    store.record_old_zone_maps("p-1", [("a01", files)])
    back = store.old_zone_maps("p-1", "a01")
    assert back is not None
    assert store.old_zone_maps("p-1", "a02") is None
    assert back.schema == files.schema
    assert back.specs == files.specs
    assert back.path.tolist() == files.path.tolist()
    assert back.groups()[0][:2] == files.groups()[0][:2]
    for key, column in files.columns.items():
        assert np.array_equal(back.columns[key].lower, column.lower)
        assert np.array_equal(back.columns[key].truncated, column.truncated)


def test_a_full_disk_is_reported_though_it_ended_the_transaction(
    tmp_path: Path, said: Said
) -> None:
    """SQLite rolls back by itself then, and refuses to be asked for it."""
    records = Records(tmp_path / "state.db")
    with pytest.raises(StateError) as caught, records.transaction() as db:
        db.execute("ROLLBACK")
        raise sqlite3.OperationalError("database or disk is full")
    said(caught.value.details[0])


def test_the_tables_with_queries_are_known_by_one_scan(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    assert store.queried() == frozenset()
    store.append_fragments([fragment(1), fragment(2), fragment(3, uuid=OTHER)])
    assert store.queried() == {UUID, OTHER}
    assert all(store.shapes(uuid) for uuid in (UUID, OTHER)) and not store.shapes("none")


def test_an_append_copies_the_metadata_a_few_times(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyiceberg does so for each look at it: twenty times, each copy as long as the history."""
    from pyiceberg import table

    store.record_predictions("p-1", {"a01": Prediction()})
    monkeypatch.setattr(table.Transaction, "table_metadata", OF_PYICEBERG)
    copies, update = list[object](), table.update_table_metadata
    monkeypatch.setattr(
        table, "update_table_metadata", lambda *given: copies.append(given) or update(*given)
    )
    store.record_predictions("p-2", {"a01": Prediction()})
    assert 1 <= len(copies) <= 2


def test_metadata_is_read_once_per_commit(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reconciler.catalog.border import FromInputFile

    read, parse = list[str](), FromInputFile.table_metadata
    monkeypatch.setattr(
        FromInputFile, "table_metadata", lambda file: read.append(file.location) or parse(file)
    )
    for number in range(3):
        store.record_predictions(f"p-{number}", {"a01": Prediction()})
        store.record_outcomes(intent(attempt=f"a-{number}"), (outcome(COMMITTED),))
    for _ in range(3):
        assert len(store.ledger(UUID)) == 3
    assert 1 <= len(read) == len(set(read)) <= 7


def test_a_commit_of_another_store_is_seen(store: StateStore, tmp_path: Path) -> None:
    other = StateStore(tmp_path / "state")
    for one in (store, other, store):
        one.record_predictions("p-1", {"a01": Prediction(cpu_millis=1)})
        one.record_outcomes(intent(), (outcome(COMMITTED),))
    assert store.ledger(UUID) == other.ledger(UUID)


def test_inputs_of_many_actions_are_one_commit(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.catalog.tables import small_file_table

    files, commits = small_file_table(), list[object]()
    own = state_commit.append
    monkeypatch.setattr(state_tables, "append", lambda *given: commits.append(given) or own(*given))
    keys = [f"a{number:02d}" for number in range(5)]
    store.record_predictions("p-1", dict.fromkeys(keys, Prediction()))
    store.record_old_zone_maps("p-1", ((key, files) for key in keys))
    assert len(commits) == 2
    assert {key for _, key in store.old_zone_maps_of(["p-1"])} == set(keys)
    monkeypatch.setattr(ledger_tables, "MOST_BOUNDS", 2 * len(files) * len(files.columns))
    store.record_old_zone_maps("p-2", ((key, files) for key in keys))
    assert len(commits) == 5
    assert {key for _, key in store.old_zone_maps_of(["p-2"])} == set(keys)
