"""The store in the user's own catalog: shared by processes, cached by snapshot, fails closed."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import os
import shutil
import signal
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.errors import BlockedError, UnavailableError, UserError
from reconciler.plan.execution import COMMITTED
from reconciler.plan.ledger import ReadCheck, Reservation
from reconciler.plan.prediction import Prediction
from reconciler.state import shared_records, state_tables
from reconciler.state.shared_state import JobLease, SharedStore
from reconciler.table.refusals import PHYSICAL_SCHEMA, Refusal
from reconciler.workload_log.skip_reasons import OWN_JOB
from tests.conftest import sqlite_catalog
from tests.queries.single import of_fragments, recorded
from tests.said import Said
from tests.state.test_state import UUID, fragment, intent, outcome, plan

NAMESPACE = ("layout_reconciler",)


def new_catalog(directory: Path) -> CatalogConfig:
    """An embedded catalog that exists and is empty."""
    from pyiceberg.catalog.sql import SqlCatalog

    (directory / "warehouse").mkdir()
    config = sqlite_catalog(directory)
    SqlCatalog(config.name, **dict(config.properties))
    return config


@pytest.fixture
def config(tmp_path: Path) -> CatalogConfig:
    return new_catalog(tmp_path)


@pytest.fixture(params=["sql", pytest.param("rest", marks=pytest.mark.rest)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SharedStore:
    """On an embedded catalog, and on a REST server in a nested namespace of its own."""
    if request.param == "sql":
        return SharedStore(new_catalog(tmp_path), NAMESPACE)
    served = request.getfixturevalue("rest_catalog")
    return SharedStore(served, ("layout", f"n{uuid.uuid4().hex[:8]}"))


def planned(number: int = 1, policy: str = "a" * 64) -> Any:
    """A plan whose id is that of its content; `number` makes another one."""
    return plan(number, policy)


def test_an_unwritten_state_reads_as_empty_and_makes_nothing(store: SharedStore) -> None:
    from reconciler.catalog.load import connect

    assert recorded(store, UUID) == []
    assert store.ledger() == ()
    assert store.spent("team/facts", UUID) == ()
    assert store.note("x") is None
    assert store.plans.find(UUID, planned().id) is None
    assert not connect(store.config).namespace_exists(store.namespace)


def test_everything_comes_back_in_another_process_s_store(store: SharedStore) -> None:
    store.append_fragments([fragment(3), fragment(1), fragment(2, uuid="other")])
    store.put_sketches(UUID, {"file:/a": b"1"})
    store.record_predictions("p-1", {"a01": Prediction(kind="Cluster", policy="team/facts")})
    first = intent()
    store.record_intent(first)
    store.record_read_check(UUID, ReadCheck("p-1", 5, 100, 50, 52, True))
    refused = Refusal("file:/a", PHYSICAL_SCHEMA, "at", "timestamp in milliseconds")
    store.record_refusals(UUID, [refused])
    other = SharedStore(store.config, store.namespace)
    assert recorded(other, UUID) == of_fragments([fragment(1), fragment(3)])
    assert other.sketches(UUID, ["file:/a"]) == {"file:/a": [b"1"]}
    assert other.open_intents(UUID) == (first,)
    assert other.read_checks(UUID) == (ReadCheck("p-1", 5, 100, 50, 52, True),)
    assert other.refusals(UUID) == {"file:/a": refused}
    other.record_outcomes(first, (outcome(COMMITTED), outcome(COMMITTED, "a02")))
    assert store.open_intents(UUID) == ()
    entries = {entry.outcome.action_id: entry for entry in store.ledger(UUID)}
    assert entries["a01"].predicted == Prediction(kind="Cluster", policy="team/facts")
    assert entries["a02"].predicted == Prediction()
    assert store.ledger("other") == ()
    assert store.ledger() == store.ledger(UUID)


def test_records_are_latest_wins_and_counts_add_up(store: SharedStore) -> None:
    other = SharedStore(store.config, store.namespace)
    store.set_cursor("log", "120")
    other.set_cursor("log", "240")
    assert store.cursor("log") == "240"
    store.record_skips(UUID, {"unparsable": 1, OWN_JOB: 3})
    other.record_skips(UUID, {"unparsable": 1})
    other.record_skips(None, {"not json": 2})
    assert store.skips(UUID) == {OWN_JOB: 3, "unparsable": 2}
    assert store.skips(None) == {"not json": 2}
    store.set_note("rho", [4.2])
    store.set_note("rho", [4.2, 5.0])
    assert other.note("rho") == [4.2, 5.0]


def test_a_writer_whose_clock_is_behind_still_writes_the_latest_record(
    config: CatalogConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SharedStore(config)
    store.set_note("state", "old")
    now = time.time()
    monkeypatch.setattr(shared_records.time, "time", lambda: now - 3600)
    SharedStore(config).set_note("state", "new")
    assert store.note("state") == "new"


def test_records_are_merged_and_mean_the_same(
    config: CatalogConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_tables, "MAX_FILES", 4)
    monkeypatch.setattr(state_tables, "KEEP_SNAPSHOTS", dt.timedelta(0))
    store = SharedStore(config)
    for number in range(7):
        store.set_cursor("log", str(number))
        store.record_skips(UUID, {"unparsable": 1})
    store.set_note("gone", 1)
    store.set_note("gone", None)
    store.set_cursor("log", "8")
    store.set_cursor("log", "9")
    assert store.cursor("log") == "9"
    assert store.skips(UUID) == {"unparsable": 7}
    assert store.note("gone") is None
    warehouse = Path(config.properties["warehouse"].removeprefix("file://"))
    assert len(list(warehouse.rglob("records/data/*.parquet"))) <= 6


def test_a_merge_forgets_old_plans_but_no_cursor() -> None:
    import pyarrow as pa

    old = int(time.time() * 1000) - shared_records.RETENTION_MS - 1
    rows = [
        {"kind": kind, "key": "k", "at_ms": old, "body": '"x"'}
        for kind in (shared_records.PLAN, shared_records.APPROVAL, shared_records.CURSOR)
    ]
    kept = shared_records.merged(pa.Table.from_pylist(rows))
    assert kept.column("kind").to_pylist() == [shared_records.CURSOR]


def test_the_first_write_is_announced_once(config: CatalogConfig) -> None:
    created: list[str] = []
    store = SharedStore(config, on_created=created.append)
    store.set_cursor("log", "1")
    store.append_fragments([fragment(1)])
    assert len(created) == 1
    assert "layout_reconciler" in created[0]
    SharedStore(config, on_created=created.append).set_cursor("log", "2")
    assert len(created) == 1


def test_another_process_that_makes_the_next_table_does_not_announce_it_again(
    config: CatalogConfig,
) -> None:
    created: list[str] = []
    SharedStore(config, on_created=created.append).set_cursor("log", "1")
    SharedStore(config, on_created=created.append).append_fragments([fragment(1)])
    assert len(created) == 1


def test_a_standing_plan_and_its_approval_are_shared(store: SharedStore, said: Said) -> None:
    other = SharedStore(store.config, store.namespace)
    first, second = planned(1), planned(2)
    with pytest.raises(UserError) as refused:
        other.approve(first.id, "default/one")
    said(refused.value)
    store.put_plan(first)
    store.put_plan(second)
    assert other.get_plan(first.id) == first
    assert other.standing_plan(UUID, "a" * 64) == second
    assert other.standing_plan(UUID, "b" * 64) is None
    other.approve(first.id, "default/one")
    store.put_plan(first)
    assert store.approved(first.id)
    assert store.approved(first.id, "default/one")
    assert not store.approved(first.id, "default/another")
    assert not store.approved(second.id)


def test_nothing_is_written_again_that_is_known(config: CatalogConfig) -> None:
    from reconciler.catalog.load import connect

    store = SharedStore(config)
    store.put_plan(planned())
    store.set_note("rho", [1.0])
    before = connect(config).load_table((*NAMESPACE, "records")).metadata_location
    store.put_plan(planned())
    store.set_note("rho", [1.0])
    assert connect(config).load_table((*NAMESPACE, "records")).metadata_location == before


def test_the_ledger_is_read_once_while_its_snapshot_stands(
    config: CatalogConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SharedStore(config)
    store.record_predictions("p-1", {"a01": Prediction(policy="team/facts")})
    store.record_outcomes(intent(), (outcome(COMMITTED),))
    reads = [0]
    original = state_tables.StateTables.rows_of

    def counted(self: Any, *arguments: Any) -> Any:
        reads[0] += 1
        return original(self, *arguments)

    monkeypatch.setattr(state_tables.StateTables, "rows_of", counted)
    for _ in range(5):
        assert len(store.ledger(None)) == 1
        assert len(store.spent("team/facts", "another table")) == 1
        assert len(store.spent("team/other", UUID)) == 1
        assert store.spent("team/other", "another table") == ()
    assert reads[0] == 1
    store.record_outcomes(intent(2), (outcome(COMMITTED, batch=2),))
    assert len(store.spent("team/facts", UUID)) == 2
    assert reads[0] == 2


def test_versions_change_with_what_was_recorded_for_the_table_only(config: CatalogConfig) -> None:
    store = SharedStore(config)
    assert store.workload_version(UUID) == store.ledger_version(UUID) == ""
    store.append_fragments([fragment(1)])
    store.record_outcomes(intent(), (outcome(COMMITTED),))
    workload, ledger = store.workload_version(UUID, 0), store.ledger_version(UUID, 0)
    assert workload
    assert ledger
    store.append_fragments([fragment(2, uuid="other")])
    assert store.workload_version(UUID, 0) == workload
    assert store.workload_version("other", 0)
    store.append_fragments([fragment(2)])
    store.record_read_check(UUID, ReadCheck("p-1", 5, 100, 50, 52, True))
    assert store.workload_version(UUID, 0) != workload
    assert store.ledger_version(UUID, 0) != ledger


def _append_many(config: CatalogConfig, start: int) -> None:
    store = SharedStore(config)
    for position in range(start, start + 4):
        store.append_fragments([fragment(position)])
        store.record_skips(UUID, {"unparsable": 1})
        store.record_outcomes(intent(position), (outcome(COMMITTED, batch=position),))


def _config(values: dict[str, str]) -> CatalogConfig:
    return CatalogConfig("rec", values["type"], values)


def _worker(values: dict[str, str], start: int) -> None:
    _append_many(_config(values), start)


@pytest.mark.parametrize("kind", ["sql", pytest.param("rest", marks=pytest.mark.rest)])
def test_writers_that_begin_at_once_lose_nothing(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    chosen = new_catalog(tmp_path) if kind == "sql" else request.getfixturevalue("rest_catalog")
    namespace_of_this_test = SharedStore(chosen)
    before = len(recorded(namespace_of_this_test, UUID)) if kind == "rest" else 0
    assert before == 0
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_worker, args=(dict(chosen.properties), 100 * n)) for n in (1, 2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(240)
    assert [worker.exitcode for worker in workers] == [0, 0]
    store = SharedStore(chosen)
    assert len(recorded(store, UUID)) == 8
    assert store.skips(UUID) == {"unparsable": 8}
    assert len(store.ledger(UUID)) == 8
    assert sum(charge.rewrite_bytes for charge in store.spent("any", UUID)) == 800


def test_a_writer_killed_while_it_appends_leaves_the_state_readable(config: CatalogConfig) -> None:
    store = SharedStore(config)
    for kill in range(2):
        before = len(store.ledger(UUID))
        victim = multiprocessing.get_context("spawn").Process(
            target=_worker, args=(dict(config.properties), 1000 * (kill + 1))
        )
        victim.start()
        while len(store.ledger(UUID)) < before + 2:
            time.sleep(0.02)
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        victim.join(30)
    reader = SharedStore(config)
    held = reader.ledger(UUID)
    assert len(recorded(reader, UUID)) >= len(held)
    assert sum(c.rewrite_bytes for c in reader.spent("any", UUID)) == 100 * len(held)
    reader.record_outcomes(intent(9), (outcome(COMMITTED, batch=9),))
    assert len(reader.ledger(UUID)) == len(held) + 1


def test_a_ledger_that_cannot_be_read_allows_nothing(config: CatalogConfig, said: Said) -> None:
    store = SharedStore(config, timeout=5)
    store.record_outcomes(intent(), (outcome(COMMITTED),))
    assert store.spent("team/facts", UUID)
    warehouse = Path(config.properties["warehouse"].removeprefix("file://"))
    data = next(warehouse.rglob("ledger/data"))
    shutil.rmtree(data)
    fresh = SharedStore(config, timeout=5)
    with pytest.raises(UnavailableError) as refused:
        fresh.spent("team/facts", UUID)
    said(refused.value)
    with pytest.raises(UnavailableError) as refused:
        fresh.ledger(None)
    said(refused.value)
    Path(config.properties["uri"].removeprefix("sqlite:///").split("?")[0]).write_bytes(b"broken")
    with pytest.raises(UnavailableError):
        store.spent("team/facts", UUID)


def test_a_ledger_that_was_dropped_is_not_an_empty_one(config: CatalogConfig, said: Said) -> None:
    from reconciler.catalog.load import connect

    store = SharedStore(config)
    store.record_outcomes(intent(), (outcome(COMMITTED),))
    connect(config).drop_table((*NAMESPACE, "ledger"))
    for reader in (store, SharedStore(config)):
        with pytest.raises(UnavailableError) as refused:
            reader.spent("team/facts", UUID)
        said(refused.value)


def test_a_catalog_that_does_not_answer_is_unavailable() -> None:
    config = CatalogConfig("rec", "rest", {"type": "rest", "uri": "http://127.0.0.1:9"})
    store = SharedStore(config, timeout=5)
    with pytest.raises(UnavailableError):
        store.spent("team/facts", UUID)
    with pytest.raises(UnavailableError):
        store.set_note("rho", 1)


def test_a_job_s_lease_goes_on_only_while_its_check_passes(said: Said) -> None:
    ours = [True]

    def check() -> None:
        if not ours[0]:
            raise BlockedError("the table is claimed by another owner")

    lease = JobLease(check)
    lease.acquire(UUID, "a-1")
    lease.acquire(UUID, "a-2")
    with pytest.raises(BlockedError) as refused:
        lease.acquire("another", "b-1")
    said(refused.value)
    lease.renew()
    assert not lease.writer_is_dead(UUID, "a-1")
    ours[0] = False
    with pytest.raises(BlockedError) as refused:
        lease.renew()
    said(refused.value)
    lease.release()
    ours[0] = True
    lease.acquire("another", "b-1")


def test_what_is_reserved_counts_at_once_for_everyone_until_it_is_settled(
    config: CatalogConfig,
) -> None:
    store, other = SharedStore(config), SharedStore(config)
    held = Reservation("r-1", UUID, "p-1", "team/facts", 1_000, 5.0)
    store.reserve(held)
    for policy, table in (("team/facts", "another table"), ("team/other", UUID)):
        assert [c.rewrite_bytes for c in other.spent(policy, table)] == [1_000]
    assert other.spent("team/other", "another table") == ()
    other.settle(held)
    assert store.spent("team/facts", UUID) == ()


def test_a_thread_that_looked_earlier_does_not_bring_the_past_back(config: CatalogConfig) -> None:
    store = SharedStore(config)
    store.record_outcomes(intent(), (outcome(COMMITTED),))
    past = store._tables.snapshot("ledger")
    store.record_outcomes(intent(2), (outcome(COMMITTED, batch=2),))
    assert len(store.ledger(None)) == 2
    store._tables.snapshot = lambda name: past  # type: ignore[method-assign,assignment]
    assert len(store.ledger(None)) == 2


def test_what_is_older_than_the_retention_is_removed_and_its_files_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import reconciler.state.store as module

    now, hour = int(time.time() * 1000), 3_600_000
    monkeypatch.setattr(state_tables, "KEEP_SNAPSHOTS", dt.timedelta(0))
    config = new_catalog(tmp_path)
    brief, long, unknown = (
        SharedStore(config, retention_seconds=seconds) for seconds in (3600, 7200, None)
    )
    monkeypatch.setattr(module, "_now_ms", lambda: now - hour - 1000)
    brief.append_fragments([fragment(1)])
    brief.put_sketches(UUID, {"x": b"old"})
    monkeypatch.setattr(module, "_now_ms", lambda: now)
    brief.append_fragments([fragment(2)])
    brief.put_sketches(UUID, {"x": b"new"})
    for store in (unknown, long):
        store.remove_expired()
        assert [item.position for item in recorded(store, UUID)] == [1, 2]
        assert store.sketches(UUID, ["x"]) == {"x": [b"old", b"new"]}
    before = {path.name for path in tmp_path.rglob("data/**/*.parquet")}
    brief.remove_expired()
    for store in (brief, unknown):
        assert [item.position for item in recorded(store, UUID)] == [2]
        assert store.sketches(UUID, ["x"]) == {"x": [b"new"]}
    assert len(before - {path.name for path in tmp_path.rglob("data/**/*.parquet")}) == 2
