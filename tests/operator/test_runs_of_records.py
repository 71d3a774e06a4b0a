"""What a run did and holds is found by its own reservation, whatever clocks and Jobs are left."""

from __future__ import annotations

import datetime as dt

import pytest

from reconciler.api.run_document import RunDocument, read_job
from reconciler.kube.kinds import JOB, POD, POLICY
from reconciler.kube.termination_message import Cause, LastWords
from reconciler.operator.job_record import JobRecord, Phase, began
from reconciler.operator.policy.reconcile import Policies
from reconciler.operator.spending.reservations import held
from reconciler.operator.work import LAUNCH_KEY, Key, Work
from reconciler.plan.budget import Budget, Charge, admit
from reconciler.plan.ledger import Reservation, charged
from reconciler.plan.run_ids import run_reservation
from tests.operator.worlds import GIB, NAMESPACE, START, World, run_text

HOURLY = Budget("hourly", per_seconds=3_600, max_rewrite_bytes=100 * GIB)
OFFICE = Budget(
    "office", schedule="0 13 * * *", duration_seconds=8 * 3_600, max_rewrite_bytes=100 * GIB
)
RECORD = JobRecord("j", "uid", "p-1", "d", 1, Phase.RUNNING, START, 100 * GIB, 1)


def reserved(after: dt.timedelta, attempt: int = 1) -> Reservation:
    moment = START + after
    number = run_reservation("p-1", attempt, int(moment.timestamp() * 1e6))
    at_ms = int(moment.timestamp() * 1000)
    return Reservation(number, "u", "p-1", "ns/p", 100 * GIB, 1.0, at_ms)


@pytest.mark.parametrize("budget", [HOURLY, OFFICE])
@pytest.mark.parametrize("minutes", [10, 59, 61, 300])
def test_no_window_forgets_a_job_that_still_runs(budget: Budget, minutes: int) -> None:
    """It moves on, or opens, while a job of before runs that holds all of it."""
    own, now = reserved(dt.timedelta(seconds=30)), START + dt.timedelta(minutes=minutes)
    spent = [*held([("u", RECORD)], [own], now), *(item.at(now) for item in charged([], [own]))]
    opened = budget is HOURLY or minutes >= 60
    assert admit([Charge(GIB, 0.0)], [budget], spent, now).count == (0 if opened else 1)


@pytest.mark.parametrize("behind", [0, 60, 300])
def test_a_write_ahead_whose_driver_reserved_by_a_late_clock_counts_once(behind: int) -> None:
    own = reserved(dt.timedelta(seconds=5 - behind))
    assert held([("u", RECORD)], [own], START) == ()
    assert began(RECORD, [own]) == own.at_ms
    for other in (reserved(dt.timedelta(hours=-1)), reserved(dt.timedelta(0), attempt=2)):
        (counted,) = held([("u", RECORD)], [other], START)
        assert counted.rewrite_bytes == RECORD.rewrite_bytes


def test_a_job_on_a_node_whose_clock_is_behind_is_judged_by_what_it_did() -> None:
    world = World()
    name = world.table("orders", GIB, GIB)
    operator = world.operator()
    world.turn(operator, 2)
    (job,) = world.jobs()
    real, node = world.now, dt.timedelta(seconds=60)
    world.now = real - node
    world.start(job)
    world.now += dt.timedelta(seconds=10)
    world.end(job)
    world.now = real + dt.timedelta(seconds=20)
    world.turn(operator, 1)
    status = world.layout(name)["status"]
    assert status["job"]["actionsCommitted"] == 2 and not status["failures"]["count"]
    assert status["history"][0]["result"] == "Succeeded"


@pytest.mark.parametrize(("actions", "result"), [(99, "Succeeded"), (1, "Unknown")])
def test_a_job_that_is_gone_is_judged_by_what_it_did(actions: int, result: str) -> None:
    world = World()
    name = world.table("orders", GIB, GIB)
    operator = world.operator()
    job = world.started(operator, 2)
    world.turn(operator)
    world.end(job, actions)
    for kind in (JOB, POD):
        for body in world.server.all(kind):
            world.server.remove(kind, NAMESPACE, body["metadata"]["name"])
    world.relist(operator)
    world.reconcile(operator, name)
    status = world.layout(name)["status"]
    assert status["history"][0]["result"] == result
    assert bool(status.get("failures", {}).get("count")) is (result == "Unknown")
    assert ("lastAppliedPlan" in status) is (result == "Succeeded")


def test_a_killed_driver_counts_as_of_its_end_and_not_for_another_day() -> None:
    world = World()
    world.table("orders", GIB, GIB)
    operator = world.operator()
    job = world.started(operator, 2)
    world.turn(operator)
    world.now += dt.timedelta(minutes=50)
    world.end(job, 1, LastWords(Cause.UNKNOWN, ""))
    world.turn(operator)
    (left,) = world.catalog.open_reservations()
    ended = world.now
    assert left.ended_ms == int(ended.timestamp() * 1000)
    for minutes in (0, 40, 65, 1_500):
        world.now = ended + dt.timedelta(minutes=minutes)
        assert {item.at for item in world.catalog.spent("analytics/facts", "")} == {ended}


@pytest.mark.parametrize("change", ["suspended", "deleted"])
def test_a_launch_is_decided_by_the_policy_of_the_api_server(change: str) -> None:
    """The watch has not told the index yet."""
    world = World()
    name = world.table("orders", GIB)
    operator = world.operator()
    world.reconcile(operator, name)
    if change == "suspended":
        world.policy(suspend=True)
    else:
        world.server.remove(POLICY, NAMESPACE, "facts")
    operator.launcher.reconcile(LAUNCH_KEY)
    assert not world.jobs()


def test_the_launcher_asks_what_runs_once_for_all_that_waits() -> None:
    """Not once for each table that waits behind full slots, or behind its policy's limit."""
    world = World(engine={"maxConcurrentJobs": 2})
    for number in range(30):
        world.table(f"t{number}", GIB)
    operator = world.operator()
    world.turn(operator)
    assert len(world.living()) == 2 and len(operator.launcher.offers) == 28
    asked = []
    index, found = operator.index, operator.index.layouts_with_job
    index.layouts_with_job = lambda: (asked.append(1), found())[1]  # type: ignore[method-assign]
    operator.launcher.reconcile(LAUNCH_KEY)
    assert len(world.living()) == 2 and len(asked) <= 8


def test_what_is_too_large_for_a_job_stalls_with_the_reason_and_costs_nothing() -> None:
    world = World()
    body = world.catalog_body
    conf = {f"spark.hadoop.x{number}": "v" * 2_000 for number in range(70)}
    body["spec"]["jobs"]["sparkConf"] = conf
    world.catalog.document = world.documents.read(body, type(world.catalog.document))
    name = world.table("orders", GIB)
    operator = world.operator()
    for _ in range(15):
        world.now += dt.timedelta(minutes=1)
        world.turn(operator)
    stalled = world.condition(name, "Stalled")
    assert stalled["reason"] == "JobFailed" and "too large" in stalled["message"]
    book = operator.layouts.gatherer.spending.known
    assert not book.charged and not book.admitted and not world.jobs()


def test_a_policy_shows_what_was_spent_beside_what_a_pending_job_reserves() -> None:
    budget = {"name": "daily", "per": "24h", "maxRewriteBytes": "100Gi"}
    world = World(budgets=[budget])
    world.table("done", 40 * GIB)
    operator = world.operator()
    job = world.started(operator, 2)
    world.end(job)
    world.turn(operator, 2)
    world.table("next", 30 * GIB)
    world.turn(operator, 2)
    assert len(world.living()) == 1
    policies = Policies(
        operator.layouts.runtime, world, world.documents, lambda: world.now,
        lambda namespace, name: frozenset(world.catalog.tables),
        lambda namespace, name, table: False,
    )  # fmt: skip
    policies.reconcile(Key(Work.POLICY, NAMESPACE, "facts"))
    (shown,) = world.server.objects[(POLICY.plural, NAMESPACE, "facts")]["status"]["budgets"]
    assert shown["rewriteBytes"] == {"spent": "40Gi", "reserved": "30Gi"}
    run = read_job(run_text(world.living()[0]))
    assert isinstance(run, RunDocument) and run.bytes_limit == 30 * GIB
