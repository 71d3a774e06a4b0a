"""What a crash leaves is settled before anything else: committed or fenced, then cleaned."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.engines.commit import cleanup, commit, fence, history
from reconciler.engines.schedule import execute, lease, processes, write
from reconciler.engines.schedule.written import Written
from reconciler.errors import BlockedError, UnavailableError, UnknownCommitError, VerificationError
from reconciler.plan.actions.rewrite import Cluster
from reconciler.plan.execution import ExecutionRequest, Intent
from reconciler.spark.commit.table import JavaTable
from tests.conftest import rest_spark_conf
from tests.rest_server import RestServer
from tests.spark.tables import Bench, dead_writer

pytestmark = pytest.mark.spark


def _request(bench: Bench) -> ExecutionRequest:
    name = bench.create("id bigint")
    bench.write(name, 3, 10, "n * 3 + file")
    return bench.request(name, bench.action(name, Cluster, "id"))


def _crash(
    bench: Bench,
    request: ExecutionRequest,
    monkeypatch: pytest.MonkeyPatch,
    send: Callable[..., commit.Sent],
    raised: type[BaseException] = UnknownCommitError,
) -> None:
    """Runs until the commit, which `send` replaces, and leaves everything as a dead JVM would."""
    writer = dead_writer()
    with monkeypatch.context() as patch:
        patch.setattr(commit, "send", send)
        patch.setattr(processes, "own_identity", lambda jvm: writer)
        with pytest.raises(raised):
            bench.run(request)


def _lost_after(act: Callable[..., Any]) -> Callable[..., commit.Sent]:
    def send(*arguments: Any) -> commit.Sent:
        act(*arguments)
        return commit.Unknown("connection lost", lost=True)

    return send


def _resume(bench: Bench, request: ExecutionRequest) -> int:
    return execute.resume(
        bench.config, request.table, bench.engine, bench.ledger, bench.lease, bench.events.append
    )


def test_a_commit_that_never_arrived_is_cleaned_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = _request(bench)
    _crash(bench, request, monkeypatch, _lost_after(lambda *arguments: None))
    name = request.table[-1]
    assert bench.leftovers(name) != []
    assert _resume(bench, request) == 1
    assert bench.leftovers(name) == []
    assert [outcome.state for outcome in bench.ledger.outcomes()] == ["failed"]
    assert bench.run(request).done
    assert _resume(bench, request) == 0


def test_a_commit_that_did_arrive_is_kept_and_not_repeated(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = _request(bench)
    before = bench.rows(request.table[-1])
    _crash(bench, request, monkeypatch, _lost_after(commit.send))
    result = bench.run(request)
    assert (result.commits, result.done) == (0, True)
    (outcome,) = bench.ledger.outcomes()
    assert (outcome.state, outcome.rows, outcome.files_in, outcome.files_out) == (
        "committed", 30, 3, 1,
    )  # fmt: skip
    assert bench.rows(request.table[-1]) == before
    assert bench.leftovers(request.table[-1]) == []


@pytest.mark.parametrize("raised", [KeyboardInterrupt, UnavailableError])
def test_a_commit_that_was_given_up_on_may_still_arrive(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    request = _request(bench)
    before = bench.rows(request.table[-1])
    sent: list[tuple[Any, ...]] = []

    def send(*arguments: Any) -> commit.Sent:
        sent.append(arguments)
        raise raised("Ctrl-C, or a catalog that does not take the fence")

    _crash(bench, request, monkeypatch, send, raised)
    assert bench.leftovers(request.table[-1]) != []
    assert isinstance(commit.send(*sent[0]), commit.Committed)
    assert bench.rows(request.table[-1]) == before
    result = bench.run(request)
    assert (result.commits, result.done) == (0, True)
    assert bench.leftovers(request.table[-1]) == []


def test_an_attempt_whose_process_lives_is_not_touched(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = _request(bench)
    _crash(bench, request, monkeypatch, _lost_after(lambda *arguments: None))
    monkeypatch.setattr(fence, "JVM_EXIT_SECONDS", 0.3)
    monkeypatch.setattr(processes, "is_dead", lambda writer: False)
    with pytest.raises(BlockedError, match="still running"):
        fence.resolve(
            bench.config, request.table,
            JavaTable(bench.spark, "x", bench.table(request.table[-1])),
            bench.ledger, bench.lease, bench.events.append,
        )  # fmt: skip
    assert bench.leftovers(request.table[-1]) != []


def _elsewhere(writer: str, **place: str) -> str:
    return json.dumps({**json.loads(writer), **place})


@pytest.mark.parametrize("place", [{"host": "another"}, {"boot": "another"}])
def test_who_ran_elsewhere_is_never_known_to_be_dead(place: dict[str, str]) -> None:
    """Two machines may have one name; one after a restart looks just like another."""
    writer = dead_writer()
    assert processes.is_dead(writer) and processes.is_local(writer)
    assert not processes.is_dead(_elsewhere(writer, **place))
    assert not processes.is_local(_elsewhere(writer, **place))


@pytest.mark.parametrize("moment", ["before its first commit", "between two commits"])
def test_an_attempt_that_lives_elsewhere_cannot_commit_files_that_are_gone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Nobody here can tell whether it is dead. Whatever it was about to send must fail."""
    name = bench.create("id bigint")
    bench.write(name, 4, 10, "n * 4 + file")
    paths = bench.paths(name)
    halves = (tuple(paths[:2]), tuple(paths[2:]))
    actions = [bench.action(name, Cluster, "id", inputs=half) for half in halves]
    request = bench.request(name, *actions)
    before, sends = bench.rows(name), itertools.count(1)
    settling = 1 if moment == "before its first commit" else 2
    real = commit.send

    def send(*arguments: Any) -> commit.Sent:
        if next(sends) == settling:
            table = bench.table(name)
            opened = bench.ledger.open_intents(request.table_uuid)
            unsent = [intent for intent in opened if intent.batch == 0]
            with monkeypatch.context() as patch:
                patch.setattr(bench.ledger, "open_intents", lambda uuid: tuple(unsent))
                fence.resolve(
                    bench.config, request.table,
                    JavaTable(bench.spark, bench.full(name), table),
                    bench.ledger, bench.lease, bench.events.append,
                )  # fmt: skip
            assert bench.leftovers(name) == [], "it was taken for dead, and its files removed"
        return real(*arguments)

    elsewhere = _elsewhere(processes.own_identity(None), host="another")
    with monkeypatch.context() as patch:
        patch.setattr(commit, "send", send)
        patch.setattr(processes, "own_identity", lambda jvm: elsewhere)
        with pytest.raises(BlockedError, match="dead"):
            bench.run(request)
    assert bench.rows(name) == before
    result = bench.run(request)
    assert result.done and bench.rows(name) == before
    assert result.commits == 3 - settling
    assert bench.leftovers(name) == []


def test_what_went_wrong_is_reported_though_the_files_cannot_be_removed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = _request(bench)
    name = request.table[-1]

    def failing(*arguments: Any, **named: Any) -> Any:
        raise UnavailableError("unanswered")

    def differs(*arguments: Any) -> Written:
        raise VerificationError("rows differ")

    writer = dead_writer()
    with monkeypatch.context() as patch:
        patch.setattr(cleanup, "remove_leftovers", failing)
        patch.setattr(write, "rewrite_group", differs)
        patch.setattr(processes, "own_identity", lambda jvm: writer)
        with pytest.raises(VerificationError):
            bench.run(request)
    assert "unanswered" in bench.events[-1].text
    assert bench.ledger.open_intents(request.table_uuid)
    assert bench.run(request).done
    assert bench.leftovers(name) == []


def test_an_attempt_that_left_nothing_does_not_search_all_snapshots(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = _request(bench)
    monkeypatch.setattr(JavaTable, "referenced", lambda *arguments: pytest.fail("searched"))
    assert bench.run(request).done


@pytest.mark.parametrize("error", [RuntimeError("a bug"), UnavailableError("no answer")])
def test_a_lease_that_cannot_be_renewed_is_lost_whatever_the_error(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    request = _request(bench)

    def renew() -> None:
        raise error

    lost = threading.Event()

    def waits(*arguments: Any) -> Written:
        lost.wait(10)
        return real(*arguments)

    real = write.rewrite_group
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.1)
    monkeypatch.setattr(bench.lease, "renew", renew)
    threading.Timer(1.0, lost.set).start()
    monkeypatch.setattr(write, "rewrite_group", waits)
    with pytest.raises(BlockedError, match="renewed"):
        bench.run(request)
    assert bench.leftovers(request.table[-1]) == []


def test_files_that_a_branch_references_are_not_leftovers(bench: Bench) -> None:
    request = _request(bench)
    name = request.table[-1]
    result = bench.run(request)
    bench.sql(f"ALTER TABLE {bench.full(name)} CREATE BRANCH kept")
    bench.sql(f"CALL rec.system.rollback_to_snapshot('jobs.{name}', {request.base_snapshot_id})")
    prefix = f"{bench.table(name).location()}/data/layout-{result.attempts[0]}"
    removed = cleanup.remove_leftovers(bench.live(name), prefix)
    assert removed == cleanup.Removed()
    assert len(bench.sql(f"SELECT * FROM {bench.full(name)}.branch_kept")) == 30


def test_a_directory_that_is_not_ours_is_never_cleaned(bench: Bench) -> None:
    request = _request(bench)
    name = request.table[-1]
    table = bench.table(name)
    data = f"{table.location()}/data"
    assert cleanup.remove_leftovers(bench.live(name), data) == (0, 0, "")
    assert cleanup.remove_leftovers(bench.live(name), "") == (0, 0, "")
    assert len(bench.rows(name)) == 30


def _intent(bench: Bench, request: ExecutionRequest, prefix: str) -> Intent:
    return Intent(
        request.table_uuid, request.table, "p-x", "p-x-1", 1, ("a01",),
        int(request.base_snapshot_id or 0), prefix, (), (), "",
    )  # fmt: skip


def _live(bench: Bench, name: str) -> JavaTable:
    return JavaTable(bench.spark, bench.full(name), bench.table(name))


def _head(bench: Bench, name: str) -> int:
    return int(bench.table(name).currentSnapshot().snapshotId())


def _settle_elsewhere(bench: Bench, request: ExecutionRequest, asserted: int | None) -> list[str]:
    """States of a batch that a catalog of another kind than local SQLite may still work on."""
    remote = CatalogConfig("rec", "rest", {"uri": "http://elsewhere"})
    outcomes = fence.settle(
        remote, _live(bench, request.table[-1]), _intent(bench, request, ""), True,
        bench.events.append, asserted,
    )  # fmt: skip
    return [outcome.state for outcome in outcomes]


def test_a_head_that_moved_on_since_the_request_is_a_fence_everywhere(bench: Bench) -> None:
    request = _request(bench)
    name = request.table[-1]
    asserted = _head(bench, name)
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES (100)")
    moved = _head(bench, name)
    assert _settle_elsewhere(bench, request, asserted) == ["failed"]
    assert _head(bench, name) == moved
    assert bench.events == []


@pytest.mark.parametrize("known", [True, False])
def test_a_head_that_had_moved_before_the_request_is_not_a_fence(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """The rows were read at the base; the request was made on top of a later append."""
    request = _request(bench)
    name = request.table[-1]
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES (100)")
    asserted = _head(bench, name)
    monkeypatch.setattr(history, "REQUEST_TIMEOUT_SECONDS", 0.1)
    assert _settle_elsewhere(bench, request, asserted if known else None) == ["failed"]
    assert [event.phase for event in bench.events] == ["fence"]
    assert _head(bench, name) != asserted


def test_without_any_fence_an_empty_append_is_made_and_said(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = _request(bench)
    name = request.table[-1]
    before = bench.rows(name)
    monkeypatch.setattr(history, "REQUEST_TIMEOUT_SECONDS", 0.1)
    remote = CatalogConfig("rec", "rest", {"uri": "http://elsewhere"})
    outcomes = fence.settle(
        remote, _live(bench, name), _intent(bench, request, ""), False, bench.events.append
    )
    assert [outcome.state for outcome in outcomes] == ["failed"]
    summary = dict(bench.table(name).currentSnapshot().summary())
    assert summary["layout.fence"] == "p-x-1/1"
    assert bench.rows(name) == before
    assert [event.phase for event in bench.events] == ["fence"]


@pytest.mark.rest
def test_a_rewrite_over_rest_is_exact_and_settles_a_lost_commit(
    spark: Any,
    rest_server: RestServer,
    rest_catalog: CatalogConfig,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark.open_catalogs(rest_spark_conf(rest_server, "over_rest"))
    config = CatalogConfig("over_rest", "rest", rest_catalog.properties)
    bench = Bench(spark, config, tmp_path)
    request = _request(bench)
    before = bench.rows(request.table[-1])
    monkeypatch.setattr(history, "REQUEST_TIMEOUT_SECONDS", 0.1)
    _crash(bench, request, monkeypatch, _lost_after(lambda *arguments: None))
    result = bench.run(request)
    assert (result.commits, result.done) == (1, True)
    assert bench.rows(request.table[-1]) == before
    assert "fence" in [event.phase for event in bench.events]
    assert bench.leftovers(request.table[-1]) == []
