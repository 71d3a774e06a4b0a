"""Catalogs that hang, drip and redirect for ever, beside one that answers: real sockets.

Nothing here is measured by a clock: a good catalog's turns are counted while the others still hang.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.reach import Reach, networks
from reconciler.catalog.calls import Lane, allowed, in_lane, patience
from reconciler.catalog.load import within
from reconciler.errors import ReconcilerError, UnavailableError
from reconciler.operator.catalog.handles import LiveCatalogs, LiveHandle
from reconciler.operator.catalog.reconcile import CatalogReconciler
from reconciler.operator.catalog.turns import Turns
from reconciler.operator.index import Index
from reconciler.operator.process.queue import DueQueue
from reconciler.operator.process.schedule import STUCK_RUN_SECONDS, STUCK_SECONDS, Schedule
from reconciler.operator.stored import StoredDocuments
from reconciler.operator.work import LAUNCH_KEY, Key, Result, Work
from tests.catalog.silent import Answer, Silent, drip, hang, redirecting, saying, serving
from tests.cluster.fixtures import eventually
from tests.said import Said

REACH = Reach(networks(["127.0.0.1"]))


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    """What they take to be imported is no catalog's fault."""
    with serving(saying(EMPTY)) as server:
        opened(server, "warm", deadline=120.0, timeout="2m").listing()


EMPTY = '{"defaults": {}, "overrides": {}, "namespaces": [], "identifiers": []}'


def opened(server: Silent, name: str, *, timeout: str = "1m", deadline: float = 1.0) -> LiveHandle:
    body = {
        "apiVersion": "layout.lakehouse.dev/v1alpha1", "kind": "IcebergCatalog",
        "metadata": {"name": name, "namespace": "n", "uid": name, "generation": 1},
        "spec": {"type": "rest", "catalogName": name, "properties": {"uri": server.uri},
                 "timeout": timeout},
    }  # fmt: skip
    catalogs = LiveCatalogs(
        SimpleNamespace(), Index(), SimpleNamespace(), StoredDocuments(), REACH, deadline  # type: ignore[arg-type]
    )  # fmt: skip
    handle = catalogs.open("n", name, body)
    assert isinstance(handle, LiveHandle), handle
    return handle


@pytest.mark.parametrize("answer", [hang, drip, redirecting("")])
def test_a_listing_ends_and_leaves_nothing_behind(answer: Answer) -> None:
    with serving(answer) as server:
        handle = opened(server, "bad")
        with pytest.raises(UnavailableError):
            handle.listing()
        assert server.requests
        eventually(lambda: handle.lane.hanging() == 0, 30)  # its sockets were cut


@pytest.mark.parametrize(
    "astray",
    [redirecting("http://169.254.169.254/latest"), redirecting("ftp://127.0.0.1/"),
     redirecting("/elsewhere"), saying("<html>we are moving</html>"), saying('{"defaults": 7}'),
     saying("{}", "307 Temporary Redirect"), saying("{}", "502 Bad Gateway")],
)  # fmt: skip
def test_a_catalog_that_was_led_astray_once_is_asked_again_soon(astray: Answer) -> None:
    """Nothing in its document is wrong, so it is not Stalled."""
    answer = [astray]
    with serving(lambda *given: answer[0](*given)) as server:
        handle = opened(server, "moved", deadline=60.0)
        own: Any = SimpleNamespace(
            catalogs=SimpleNamespace(open=lambda *where: handle), listings={},
            _governed=lambda where: [], _policies=lambda where: None,
        )  # fmt: skip
        problem = CatalogReconciler._looked(own, ("n", "moved"), {})
        assert problem is not None
        assert (problem.reason, problem.stalls) == ("CatalogUnavailable", False), problem
        answer[0] = saying(EMPTY)
        assert CatalogReconciler._looked(own, ("n", "moved"), {}) is None


def test_the_deadline_is_for_the_sum_of_the_calls() -> None:
    """Each call is quick enough; together they never end."""
    answers = iter(range(10_000))

    def endless(connection: Any, line: str, server: Silent) -> None:
        threading.Event().wait(0.02)
        names = f'[["n{next(answers)}"]]' if "parent" not in line else "[]"
        more = f'{{"namespaces": {names}, "next-page-token": "more"}}'
        saying(EMPTY if "config" in line else more)(connection, line, server)

    with serving(endless) as server:
        handle = opened(server, "bad", timeout="5m", deadline=1.0)
        with pytest.raises(UnavailableError) as ended:
            handle.listing()
        assert len(server.requests) > 3
        assert "n/bad" in ended.value.render()


def test_all_calls_of_one_reconcile_share_its_time() -> None:
    lane, config = Lane("n/bad"), CatalogConfig("c", "rest", {"uri": "http://10.0.0.1"})
    waits = threading.Event()
    calls: list[int] = []

    def slow() -> None:
        calls.append(1)
        within(lambda: waits.wait(0.1), 5, config)

    with allowed(0.35), pytest.raises(UnavailableError):
        for _ in range(100):
            in_lane(lane, None, 60, slow)
    assert 1 < len(calls) < 10
    waits.set()


def test_after_its_time_a_catalog_is_left_alone_for_a_while() -> None:
    with serving(hang) as server:
        handle = opened(server, "bad")
        with pytest.raises(UnavailableError):
            handle.listing()
        asked = len(server.requests)
        for _ in range(20):
            with pytest.raises(UnavailableError) as refused:
                handle.glance(("db", "t"))
        assert len(server.requests) == asked
        assert re.search(r"again in \d+ s", refused.value.render())


def test_threads_that_cannot_be_ended_are_bounded_and_then_refused(said: Said) -> None:
    """Such as those of a client in C++, whose sockets nobody here can cut."""
    lane, waits, started = (
        Lane("n/bad", most_hanging=3, pause=0.0),
        threading.Event(),
        Counter[str](),
    )

    def stuck() -> None:
        started["calls"] += 1
        waits.wait()

    for _ in range(20):
        with pytest.raises(UnavailableError) as refused:
            in_lane(lane, None, 0.02, stuck)
    assert started["calls"] == lane.hanging() == 3
    said(refused.value)
    waits.set()


def test_a_changed_document_does_not_get_new_threads_for_those_that_hang() -> None:
    with serving(hang) as server:
        first = opened(server, "bad")
        catalogs = LiveCatalogs(SimpleNamespace(), Index(), SimpleNamespace(), StoredDocuments())  # type: ignore[arg-type]
        assert catalogs.lane("n", "bad") is catalogs.lane("n", "bad")
        assert catalogs.lane("n", "bad") is not catalogs.lane("m", "bad")
        assert first.lane.name == "n/bad"


def test_who_asks_many_catalogs_waits_for_none_of_them_long() -> None:
    with serving(hang) as server:
        handle = opened(server, "bad", deadline=60.0)
        for _ in range(3):
            with patience(1.0), pytest.raises(UnavailableError):
                handle.listing()
        assert len(server.held) == 1, "asked once; then it was known to be silent"


def test_a_maximum_holds_for_objects_that_were_stored_before_there_was_one() -> None:
    with (
        serving(saying(EMPTY)) as server,
        pytest.raises(AssertionError, match=r"timeout .* 5m"),
    ):
        opened(server, "old", timeout="100h")


# The queue


def lane_of(key: Key) -> str:
    return key.name.partition(".")[0] if key.kind is not Work.LAUNCH else ""


def queue(patience: float) -> DueQueue:
    return DueQueue(
        4, {Work.LAYOUT: 2, Work.POLICY: 2, Work.LAUNCH: 1}, lane_of=lane_of, free=(Work.CATALOG,),
        patience=patience,
    )  # fmt: skip


def test_a_good_catalog_is_served_while_any_number_of_others_hang() -> None:
    """Eight catalogs hang on real sockets in all their reconciles; the good one's go on."""
    served: Counter[Key] = Counter()
    enough = threading.Event()
    good = [Key(Work.CATALOG, "n", "good"), *(Key(Work.LAYOUT, "n", f"good.{i}") for i in range(6))]
    bad = [Key(Work.CATALOG, "n", f"bad{i}") for i in range(8)]
    bad += [Key(Work.LAYOUT, "n", f"bad{i}.{table}") for i in range(8) for table in range(3)]
    with ExitStack() as stack:
        silent = [stack.enter_context(serving(answer)) for answer in (hang, drip)]
        well = stack.enter_context(serving(saying(EMPTY)))
        handles = {
            f"bad{i}": opened(silent[i % 2], f"bad{i}", deadline=60.0, timeout="30s")
            for i in range(8)
        }
        handles["good"] = opened(well, "good", deadline=60.0, timeout="30s")

        def reconcile(key: Key) -> Result:
            try:
                handles[lane_of(key)].listing()
            except ReconcilerError:
                return Result(failed=True)
            served[key] += 1
            if all(served[item] for item in good):
                enough.set()
            return Result()

        due = queue(patience=0.05)
        for key in [*bad, *good]:
            due.add(key)
        run(due, reconcile, enough)
        assert all(served[key] == 1 for key in good)
        assert not any(served[key] for key in bad)
        assert due.stuck() == []
        assert sum(len(server.held) for server in silent) <= 8 * (1 + 2)
        for server in silent:
            for sock in server.held:
                sock.close()


def run(due: DueQueue, reconcile: Callable[[Key], Result], enough: threading.Event) -> None:
    """Until enough happened; what still hangs then is left."""

    async def main() -> None:
        executor = ThreadPoolExecutor(256)
        task = asyncio.create_task(due.run(reconcile, executor))
        assert await asyncio.to_thread(enough.wait, 60)
        due.stop()
        await asyncio.wait({task}, timeout=0.1)
        task.cancel()
        executor.shutdown(wait=False, cancel_futures=True)

    asyncio.run(main())


LIMITS = {Work.LAYOUT: 2, Work.LAUNCH: 1}


def started(schedule: Schedule, now: float) -> list[str]:
    found = []
    while (key := schedule.pop(now)) is not None:
        found.append(key.name)
    return found


def test_a_run_that_takes_long_gives_its_place_back() -> None:
    schedule = Schedule(LIMITS, lane_of=lane_of, patience=10)
    for name in ("bad.1", "bad.2", "bad.3", "bad.4", "bad.5", "good.1", "good.2", "good.3"):
        schedule.add(Key(Work.LAYOUT, "n", name), 0, 0)
    assert started(schedule, 0) == ["bad.1", "bad.2"]
    schedule.set_slow_aside(9)
    assert started(schedule, 9) == []
    schedule.set_slow_aside(11)
    assert started(schedule, 11) == ["good.1", "good.2"], "the slow one has its own line by now"
    schedule.done(Key(Work.LAYOUT, "n", "good.1"), 12)
    schedule.done(Key(Work.LAYOUT, "n", "bad.1"), 12, due=13)
    assert started(schedule, 12) == ["bad.3", "good.3"]


def test_a_catalog_that_was_slow_long_ago_is_one_like_all_others() -> None:
    schedule = Schedule(LIMITS, lane_of=lane_of, patience=10)
    key = Key(Work.LAYOUT, "n", "bad.1")
    schedule.add(key, 0, 0)
    assert schedule.pop(0) == key
    schedule.set_slow_aside(20)
    schedule.done(key, 20)
    for number in range(2, 6):
        schedule.add(Key(Work.LAYOUT, "n", f"bad.{number}"), 3000, 3000)
    assert len(started(schedule, 3000)) == 2
    schedule.set_slow_aside(3011)
    assert len(started(schedule, 3011)) == 0, "its own two places are taken by those that hang"


def test_health_knows_a_queue_that_does_not_move_from_a_catalog_that_does_not(
    said: Said,
) -> None:
    schedule = Schedule(LIMITS, lane_of=lane_of, patience=10)
    for number in range(5):
        schedule.add(Key(Work.LAYOUT, "n", f"bad.{number}"), 0, 0)
    assert len(started(schedule, 0)) == 2
    schedule.set_slow_aside(20)
    later = 20 + 10 * STUCK_SECONDS
    assert schedule.stuck(later) == [], "one silent catalog: a restart heals nothing"
    schedule.add(Key(Work.LAYOUT, "n", "good.1"), 20, 20)
    assert schedule.stuck(20 + STUCK_SECONDS / 2) == []
    said(schedule.stuck(later))
    assert started(schedule, later) == ["good.1"]
    assert schedule.stuck(later) == []


def test_health_knows_a_launch_that_does_not_end(said: Said) -> None:
    schedule = Schedule(LIMITS, lane_of=lane_of, patience=10)
    schedule.add(LAUNCH_KEY, 0, 0)
    assert schedule.pop(0) == LAUNCH_KEY
    schedule.set_slow_aside(100)
    assert schedule.stuck(100) == []
    said(schedule.stuck(STUCK_RUN_SECONDS + 1))


def test_an_import_that_waits_for_the_network_does_not_delay_others() -> None:
    turns, hangs, ended = Turns(1, patience=0.05), threading.Event(), threading.Event()

    def waits() -> None:
        with turns.taken():
            hangs.wait()

    def works() -> None:
        with turns.taken():
            ended.set()

    threads = [threading.Thread(target=work, daemon=True) for work in (waits, works)]
    for thread in threads:
        thread.start()
    assert ended.wait(30)
    hangs.set()
    for thread in threads:
        thread.join()
    with turns.taken():
        pass  # given back once, not twice
