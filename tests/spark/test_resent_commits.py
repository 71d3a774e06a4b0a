"""Commits that arrive although they are answered as if they had not: sent twice by a gateway, again
by the HTTP client, or by nobody after the connection was cut. Every one is done exactly once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reconciler.engines.commit import fence, history
from reconciler.engines.schedule import execute
from reconciler.errors import EXIT_UNAVAILABLE, BlockedError, RolledBackError
from reconciler.plan.actions.delete_maintenance import (
    CompactDeletes,
    ConvertDeletes,
    RemoveDanglingDeletes,
)
from reconciler.plan.actions.rewrite import ApplyDeletes, Cluster
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.actions.set_sort_order import SetSortOrder
from reconciler.plan.execution import COMMITTED
from reconciler.spark.commit.table import JavaTable
from reconciler.spark.session import iceberg
from reconciler.table.schema import SortColumn
from tests.gateway import DROPPED, HUNG, LATE, RETRY_AFTER, TWICE, Gateway, Recorded
from tests.spark.disturbed import expires_between
from tests.spark.equality import add_equality_delete, data_files, delete_paths
from tests.spark.tables import Bench, intact

pytestmark = [pytest.mark.spark, pytest.mark.rest, pytest.mark.second_session]

ARRIVES = (TWICE, RETRY_AFTER, DROPPED)
OURS = "layout.attempt-id"
"""Stands in the request of every commit of a batch."""


def _table(bench: Bench, properties: str = "") -> str:
    name = bench.create("id bigint, s string", properties)
    bench.write(name, 3, 40, "n * 3 + file, 'x'")
    return name


def _rewrite(bench: Bench, name: str) -> Any:
    return bench.request(name, bench.action(name, Cluster, "id"))


def _assert_committed_once(bench: Bench, name: str, result: Any) -> None:
    assert (result.commits, result.conflicts, result.done) == (1, 0, True)
    states = [outcome.state for outcome in bench.ledger.outcomes()]
    assert states.count(COMMITTED) == 1
    batches = [s for s in iceberg.each(bench.table(name).snapshots()) if s.summary().get(OURS)]
    assert len(batches) == 1
    assert "removed" not in {event.phase for event in bench.events}
    assert not any("Traceback" in event.text for event in bench.events)


@pytest.mark.parametrize("fault", ARRIVES)
def test_a_commit_that_arrives_is_done_once_whatever_is_answered(
    gateway_bench: Bench, gateway: Gateway, fault: str
) -> None:
    bench = gateway_bench
    name = _table(bench)
    request, before = _rewrite(bench, name), bench.rows(name)
    gateway.fails(fault, OURS)
    result = bench.run(request)
    assert gateway.faults == 1
    _assert_committed_once(bench, name, result)
    intact(bench, name, before)


@pytest.mark.parametrize(
    "retries", ["'commit.retry.num-retries'='0'", "'commit.retry.total-timeout-ms'='1'"]
)
def test_a_table_without_retries_keeps_the_commit_as_well(
    gateway_bench: Bench, gateway: Gateway, retries: str
) -> None:
    """Iceberg gives up and cleans up before any check of ours is called again."""
    bench = gateway_bench
    name = _table(bench, retries)
    request, before = _rewrite(bench, name), bench.rows(name)
    gateway.fails(TWICE, OURS)
    result = bench.run(request)
    _assert_committed_once(bench, name, result)
    intact(bench, name, before)


def test_deletes_that_come_between_do_not_hide_the_commit(
    gateway_bench: Bench, gateway: Gateway
) -> None:
    """Iceberg's own validation fails before ours is asked: a new delete for the partition."""
    bench = gateway_bench
    merge_on_read = (
        "'format-version'='2', 'write.delete.mode'='merge-on-read', "
        "'write.delete.granularity'='partition'"
    )
    name = _table(bench, merge_on_read)
    request = _rewrite(bench, name)

    def deletes() -> None:
        bench.sql(f"DELETE FROM {bench.full(name)} WHERE id IN (4, 5)")

    gateway.before_answer = deletes
    gateway.fails(TWICE, OURS)
    result = bench.run(request)
    assert result.commits == 1
    _assert_committed_once(bench, name, result)
    intact(bench, name)
    assert sum(bench.rows(name).values()) == 118


def test_an_expiry_that_comes_between_does_not_hide_the_commit(
    gateway_bench: Bench, gateway: Gateway
) -> None:
    """The snapshot that the rows were read at is gone when Iceberg validates again, and so is the
    one that carries the batch: only the files show that it arrived."""
    bench = gateway_bench
    name = _table(bench)
    request, before = _rewrite(bench, name), bench.rows(name)

    expires_between(bench, gateway, request, lambda: bench.table(name).newFastAppend().commit())
    intact(bench, name, before)


def test_a_rollback_that_comes_between_is_kept(gateway_bench: Bench, gateway: Gateway) -> None:
    """Iceberg would move the branch back to a snapshot of its own that it finds again."""
    bench = gateway_bench
    name = _table(bench)
    request, before = _rewrite(bench, name), bench.rows(name)

    def rolls_back() -> None:
        bench.table(name).manageSnapshots().rollbackTo(request.base_snapshot_id).commit()
        bench.sql(f"INSERT INTO {bench.full(name)} VALUES (1000, 'new')")

    gateway.before_answer = rolls_back
    gateway.fails(TWICE, OURS)
    bench.run(request)
    with pytest.raises(RolledBackError):
        bench.run(request)
    assert sum((bench.rows(name) - before).values()) == 1
    intact(bench, name)


def test_a_late_commit_is_fenced(
    gateway_bench: Bench, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answered with a 504 and not there: the fence makes sure that it cannot arrive, and nothing
    of it stays, neither data nor metadata."""
    monkeypatch.setattr(history, "REQUEST_TIMEOUT_SECONDS", 0.1)
    bench = gateway_bench
    name = _table(bench)
    request, before = _rewrite(bench, name), bench.rows(name)
    gateway.fails(LATE, OURS)
    result = bench.run(request)
    gateway.release()
    assert (result.commits, result.done) == (1, True)
    states = [outcome.state for outcome in bench.ledger.outcomes()]
    assert states == ["unknown", "failed", "committed"]
    intact(bench, name, before)


def _with_deletes(bench: Bench, kind: str) -> tuple[str, Any]:
    """A table, and the maintenance of its deletes; three of its 120 rows are deleted."""
    version = 3 if kind == "drop" else 2
    name = _table(
        bench,
        f"'format-version'='{version}', 'write.delete.mode'='merge-on-read', "
        "'write.delete.granularity'='partition'",
    )
    if kind == "compact":
        for key in (4, 5, 61):
            bench.sql(f"DELETE FROM {bench.full(name)} WHERE id = {key}")
        return name, CompactDeletes(inputs=delete_paths(bench, name))
    add_equality_delete(bench, name, {"id": pa.array([4, 5, 61], pa.int64())})
    deletes = delete_paths(bench, name)
    if kind == "convert":
        return name, ConvertDeletes(inputs=deletes)
    applied = ApplyDeletes(inputs=tuple(data_files(bench, name)))
    assert bench.run(bench.request(name, applied, plan="p-0")).done
    return name, RemoveDanglingDeletes(inputs=deletes)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("compact", TWICE),
        ("convert", LATE),
        ("drop", TWICE),
        pytest.param("compact", LATE, marks=pytest.mark.soak),
        pytest.param("convert", TWICE, marks=pytest.mark.soak),
        pytest.param("drop", LATE, marks=pytest.mark.soak),
    ],
)
def test_maintenance_of_deletes_is_done_once_whenever_it_arrives(
    gateway_bench: Bench,
    gateway: Gateway,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    fault: str,
) -> None:
    """A late one is fenced: it may not remove delete files that were replaced meanwhile."""
    monkeypatch.setattr(history, "REQUEST_TIMEOUT_SECONDS", 0.1)
    bench = gateway_bench
    name, action = _with_deletes(bench, kind)
    before = bench.rows(name)
    request = bench.request(name, action)
    gateway.fails(fault, OURS)
    result = bench.run(request)
    assert gateway.faults == 1
    if fault == LATE:
        gateway.release()
    assert (result.commits, result.done) == (1, True)
    of_plan = [one for one in _snapshots(bench, name) if one.get("layout.plan-id") == "p-1"]
    assert len(of_plan) == 1
    assert bench.rows(name) == before and sum(before.values()) == 117
    assert bench.leftovers(name) == []
    assert delete_paths(bench, name, 2) == ()


def _snapshots(bench: Bench, name: str) -> list[Any]:
    return [one.summary() for one in iceberg.each(bench.table(name).snapshots())]


@pytest.mark.parametrize(
    "fault", [TWICE, *(pytest.param(f, marks=pytest.mark.soak) for f in ARRIVES[1:])]
)
def test_changed_metadata_is_committed_and_recorded_once(
    gateway_bench: Bench, gateway: Gateway, fault: str
) -> None:
    bench = gateway_bench
    name = bench.create("id bigint, s string")
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES (1, 'x')")
    properties = SetProperties(old=(("a.b", None),), new=(("a.b", "1"),))
    order = SetSortOrder(key=(SortColumn(2, "desc"),))
    gateway.fails(fault, times=2)
    result = bench.run(bench.request(name, properties, order))
    assert result.done
    outcomes = bench.ledger.outcomes()
    assert [outcome.state for outcome in outcomes] == [COMMITTED, COMMITTED]
    assert [outcome.detail.partition(": ")[2] for outcome in outcomes] == [
        "(unset) -> 1", "unsorted -> s desc",
    ]  # fmt: skip
    assert [event.phase for event in bench.events] == ["property", "property"]


@pytest.mark.parametrize(
    ("fault", "retries"), [pytest.param(TWICE, 4, marks=pytest.mark.soak), (TWICE, 0), (DROPPED, 4)]
)
def test_a_fence_that_is_sent_again_keeps_what_others_committed(
    gateway_bench: Bench, gateway: Gateway, fault: str, retries: int
) -> None:
    """Iceberg takes its own snapshot, found again, for the target of a rollback."""
    bench = gateway_bench
    name = _table(bench, f"'commit.retry.num-retries'='{retries}'")
    before = bench.rows(name)
    attempt = f"p-{uuid.uuid4().hex}-1"
    gateway.before_answer = lambda: bench.sql(
        f"INSERT INTO {bench.full(name)} VALUES (1000, 'new')"
    )
    gateway.fails(fault, "layout.fence")
    live = JavaTable(bench.spark, bench.full(name), bench.table(name))
    fence.append_mark(live, attempt, 1)
    assert gateway.faults == 1
    marks = [s.summary().get("layout.fence") for s in iceberg.each(bench.table(name).snapshots())]
    assert marks.count(f"{attempt}/1") == 1
    assert sum((bench.rows(name) - before).values()) == 1
    intact(bench, name)


@pytest.mark.jvm
def test_a_jvm_that_is_killed_while_its_request_hangs_leaves_nothing(
    gateway_bench: Bench, gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its metadata files are written and the catalog has not seen the request."""
    monkeypatch.setattr(history, "REQUEST_TIMEOUT_SECONDS", 0.1)
    bench = gateway_bench
    name = _table(bench)
    before = bench.rows(name)
    gateway.fails(HUNG, OURS)
    command = [
        sys.executable, "-m", "tests.spark.driver", str(tmp_path), name, "id", "3", gateway.uri,
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        jvm = next(line for line in process.stdout if line.startswith("jvm")).split()[1]
        assert gateway.held.wait(300)
        os.kill(int(jvm), signal.SIGKILL)
        process.stdout.read()
    assert process.returncode == EXIT_UNAVAILABLE
    settled = execute.resume(
        bench.config, ("jobs", name), bench.engine, bench.ledger, bench.lease, bench.events.append
    )
    assert settled == 1
    assert [outcome.state for outcome in bench.ledger.outcomes()] == ["failed"]
    intact(bench, name, before)


def test_a_commit_that_displaced_another_one_is_taken_back(
    gateway_bench: Bench, gateway: Gateway
) -> None:
    """The catalog checks no requirement; a table of format 1 has no sequence numbers, which would
    refuse the commit."""
    bench = gateway_bench
    name = bench.create("id bigint", "'format-version'='1'")
    bench.write(name, 2, 1, "file")
    request = bench.request(name, bench.action(name, Cluster, "id"))

    def first_another(_: Recorded) -> None:
        gateway.before_commit = None
        bench.append(name, {"id": [9]})

    gateway.careless, gateway.before_commit = True, first_another
    with pytest.raises(BlockedError, match="displaced snapshot"):
        bench.run(request)
    assert bench.ids(name) == [0, 1, 9]
    assert not bench.ledger.open_intents(request.table_uuid)
