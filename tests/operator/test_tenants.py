"""What one namespace writes or loses never stops, slows or starves another one."""

from __future__ import annotations

import contextlib
import datetime as dt
import random
from typing import Any

import pytest

from reconciler.api.run_document import RunDocument, read_job
from reconciler.kube.errors import ApiError, ApiUnavailable, Conflict, Forbidden
from reconciler.kube.kinds import CONFIG_MAP, JOB, TABLE_LAYOUT
from reconciler.kube.termination_message import Cause, LastWords
from reconciler.operator.catalog.plan_retention import plans_in_use
from reconciler.operator.job_record import record_of
from reconciler.operator.spending import charges
from reconciler.operator.status_text import most_bytes, short_bytes, utc
from reconciler.operator.work import LAUNCH_KEY
from reconciler.plan.ledger import Reservation
from tests.examples import seeds
from tests.operator.fake_api import FakeApi, nothing
from tests.operator.worlds import GIB, NAMESPACE, World, run_text
from tests.said import Said

HOUR = dt.timedelta(hours=1)
OTHER = "team-b"
DAILY = [{"name": "daily", "per": "24h", "maxRewriteBytes": "100Gi"}]


def two_tenants(**policy: Any) -> tuple[World, str, str]:
    """A world in which either namespace has a table with work; names of the TableLayouts."""
    world = World(budgets=DAILY, **policy)
    world.tenant(OTHER, budgets=DAILY, **policy)
    return world, world.table("orders", GIB), world.table("items", GIB, namespace=OTHER)


def book(world: World) -> charges.Book:
    stored = world.server.objects[(CONFIG_MAP.plural, NAMESPACE, "lease")]
    return charges.from_text(stored["data"]["spending"])


def namespaces(jobs: list[dict[str, Any]]) -> set[str]:
    return {job["metadata"]["namespace"] for job in jobs}


@pytest.mark.parametrize(
    "error", [ValueError("garbage"), KeyError("id"), RecursionError(), MemoryError()]
)
def test_a_ledger_of_garbage_stops_its_own_namespace_only(error: Exception) -> None:
    world, mine, _ = two_tenants()

    def garbage(*_: Any) -> Any:
        raise error

    bad = world.catalogs[OTHER]
    bad.spent = bad.open_reservations = garbage  # type: ignore[method-assign, assignment]
    operator = world.operator()
    for _ in range(3):
        world.relist(operator)
        world.reconcile(operator, mine)
        operator.launcher.reconcile(LAUNCH_KEY)
    assert namespaces(world.jobs()) == {NAMESPACE}


@pytest.mark.parametrize("field", ["rewriteBytes", "cpuTime"])
def test_a_record_of_a_job_that_somebody_edited_stops_nobody(field: str) -> None:
    world, mine, theirs = two_tenants()
    forged = {"name": "tl-x", "planId": "p-x", "uid": "u", "reserved": {field: "lots"}}
    world.layout(theirs, OTHER)["status"]["job"] = forged
    assert "p-x" in plans_in_use([world.layout(theirs, OTHER)], ()), "its plan is not removed"
    world.turn(world.operator(), 2)
    assert namespaces(world.jobs()) == {NAMESPACE, OTHER}
    for layout, namespace in ((mine, NAMESPACE), (theirs, OTHER)):
        job = world.layout(layout, namespace)["status"]["job"]
        assert job["reserved"]["rewriteBytes"] == "1Gi"


@pytest.mark.parametrize(
    "forged",
    [{"reserved": "lots"}, {"reserved": {"rewriteBytes": ["1Gi"]}}, {"attempt": "x"},
     {"attempt": None}, {"startedAt": "yesterday"}, {"reserved": {"rewriteBytes": "-1Gi"}}],
)  # fmt: skip
def test_a_record_of_a_job_of_any_other_shape_is_none(forged: dict[str, Any]) -> None:
    good = {"name": "tl-x", "planId": "p-x", "uid": "u", "phase": "Running"}
    assert record_of({"job": good}) is not None
    assert record_of({"job": good | forged}) is None


@pytest.mark.parametrize("kept", [True, False], ids=["book kept", "book lost"])
@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_a_status_that_claims_more_than_a_namespace_may_have_stops_nobody(
    kept: bool, phase: str
) -> None:
    world, _, theirs = two_tenants()
    if kept:
        world.operator().launcher.spending.read()  # later jobs of statuses are not in the book
    for layout in (theirs, world.table("more", GIB, namespace=OTHER)):
        world.layout(layout, OTHER)["status"]["job"] = {
            "name": f"job-{layout}", "planId": "p-x", "uid": "u", "phase": phase,
            "startedAt": utc(world.now), "reserved": {"rewriteBytes": "8191Pi"},
        }  # fmt: skip
    operator = world.operator()
    spending = operator.launcher.spending
    spending.sweep()
    claimed = sum(c.rewrite_bytes for c in spending.known.spent(world.now).get(OTHER, ()))
    assert claimed < world.cap
    assert (claimed > 0) == (phase == "Running" or not kept), "an old end is in a kept book already"
    world.turn(operator, 2)
    assert NAMESPACE in namespaces(world.jobs())


def test_a_ledger_that_gets_bad_between_look_and_launch_stops_nobody_else() -> None:
    world, _, theirs = two_tenants()
    operator = world.operator()
    world.relist(operator)
    world.reconcile(operator, theirs, OTHER)  # it is offered first

    def garbage(*_: Any) -> Any:
        raise TypeError("unsupported operand")

    world.catalogs[OTHER].spent = garbage  # type: ignore[method-assign, assignment]
    world.reconcile(operator, world.table("orders", GIB))
    operator.launcher.reconcile(LAUNCH_KEY)
    assert namespaces(world.jobs()) == {NAMESPACE}


def test_a_forged_reservation_counts_against_its_own_budgets_only() -> None:
    world, mine, theirs = two_tenants()
    forged = Reservation("r-1", "uuid-items", "p-1", f"{OTHER}/facts", 2 << 40, 0.0, 1 << 41)
    world.catalogs[OTHER].reserved.append(forged)
    operator = world.operator()
    world.turn(operator, 3)
    assert namespaces(world.jobs()) == {NAMESPACE}
    assert world.converged(mine) == "RewriteRunning"
    assert world.converged(theirs, OTHER) == "OverBudget"
    assert world.condition(theirs, "WithinBudget", OTHER)["status"] == "False"


def test_what_the_cap_refuses_is_not_within_budget(said: Said) -> None:
    world = World()
    world.cap = GIB
    name = world.table("orders", 2 * GIB)
    world.turn(world.operator(), 3)
    assert world.converged(name) == "OverBudget"
    found = world.condition(name, "WithinBudget")
    assert (found["status"], found["reason"]) == ("False", "OverBudget")
    assert found["message"] == world.condition(name, "Converged")["message"]
    said(found["message"])


@pytest.mark.parametrize("lost", ["", "ConfigMap", "garbage"])
def test_what_was_admitted_is_known_after_a_restart(lost: str) -> None:
    """Also without the record: the live and the last job of each table are in its status."""
    world, _, theirs = two_tenants()
    world.cap = 10 * GIB
    world.turn(world.operator(), 3)
    jobs = {job["metadata"]["namespace"]: job for job in world.jobs()}
    world.start(jobs[OTHER])
    world.end(jobs[OTHER])
    world.turn(world.operator(), 2)
    assert world.converged(theirs, OTHER) == "NothingToDo"
    before = book(world).spent(world.now)
    key = (CONFIG_MAP.plural, NAMESPACE, "lease")
    if lost == "ConfigMap":
        del world.server.objects[key]
    elif lost:
        world.server.objects[key]["data"] = {"spending": "{]"}
    world.turn(world.operator(), 1)
    after = book(world).spent(world.now)
    assert (
        {n: sum(c.rewrite_bytes for c in held) for n, held in after.items()}
        == {n: sum(c.rewrite_bytes for c in held) for n, held in before.items()}
        == {NAMESPACE: GIB, OTHER: GIB}
    )


def test_a_lost_record_counts_earlier_jobs_of_the_day() -> None:
    """By the history in the status, where what a job read is rounded: up."""
    world, _, theirs = two_tenants()
    world.cap = 100 * GIB
    world.turn(world.operator(), 3)
    (job,) = (one for one in world.jobs() if one["metadata"]["namespace"] == OTHER)
    world.start(job)
    world.end(job)
    world.turn(world.operator(), 2)
    status = world.layout(theirs, OTHER)["status"]
    (last,) = status["history"]
    for size, hours in ((3 * GIB + (50 << 20), 1), (1 << 40, 25)):
        at = utc(world.now - dt.timedelta(hours=hours))
        earlier = {"finishedAt": at, "rewriteBytes": short_bytes(size)}
        status["history"] += [last | earlier, last | earlier | {"planId": "p-0"}]
    del world.server.objects[(CONFIG_MAP.plural, NAMESPACE, "lease")]
    world.turn(world.operator(), 1)
    counted = sum(one.rewrite_bytes for one in book(world).spent(world.now)[OTHER])
    assert 7 * GIB + (100 << 20) <= counted < 7.4 * GIB


@pytest.mark.parametrize("size", [0, 7, 1023, 1024, 9_990, 10_189, 10_190, 5 << 20, 1023.4 * 2**30])
def test_a_rounded_size_is_at_most_what_it_is_read_as(size: float) -> None:
    assert size <= most_bytes(short_bytes(size)) <= 1.06 * size


def test_a_record_that_cannot_be_written_starts_nothing() -> None:
    world, mine, theirs = two_tenants()
    operator = world.operator()
    operator.api.refusing(Forbidden, "create", CONFIG_MAP)
    world.turn(operator, 3)
    assert not world.jobs()
    assert {world.converged(mine), world.converged(theirs, OTHER)} == {"OverBudget"}
    assert "record" in world.condition(mine, "WithinBudget")["message"]


def test_jobs_of_a_deleted_table_count_until_they_are_really_gone() -> None:
    world, _, _ = two_tenants()
    world.max_jobs = 1
    operator = world.operator()
    world.turn(operator, 3)
    (job,) = world.jobs()
    namespace = job["metadata"]["namespace"]
    world.start(job)
    layout = next(b for b in world.server.all(TABLE_LAYOUT)
                  if b["metadata"]["namespace"] == namespace)  # fmt: skip
    world.server.remove(TABLE_LAYOUT, namespace, layout["metadata"]["name"])
    world.now += dt.timedelta(minutes=5)
    world.turn(operator, 2)
    assert len(world.living()) == 1 == len(book(world).admitted), "its pod still runs"
    world.end(job)
    world.server.remove(JOB, namespace, job["metadata"]["name"])
    world.turn(operator, 3)
    (next_job,) = world.living()
    assert next_job["metadata"]["namespace"] != namespace


def test_a_namespace_whose_lists_are_refused_holds_no_slot_for_ever() -> None:
    world, mine, _ = two_tenants()
    world.max_jobs = 1
    world.table("second", GIB, namespace=OTHER)
    operator = world.operator()
    world.server.remove(TABLE_LAYOUT, NAMESPACE, mine)
    world.turn(operator, 2)
    (job,) = world.jobs()
    world.start(job)
    api = operator.api
    listing = api.list

    def refused(kind: Any, namespace: str | None = None, *rest: Any, **more: Any) -> Any:
        if namespace == OTHER:
            raise Forbidden("lists are refused")
        return listing(kind, namespace, *rest, **more)

    api.list = refused  # type: ignore[method-assign, assignment]
    for body in world.server.all(TABLE_LAYOUT):
        world.server.remove(TABLE_LAYOUT, OTHER, body["metadata"]["name"])
    world.table("orders", GIB)
    for _ in range(3):
        world.turn(operator, 1)
        assert namespaces(world.living()) == {OTHER}
        world.now += dt.timedelta(minutes=5)
    world.now += HOUR
    world.turn(operator, 1)  # the job is asked to give way
    world.now += dt.timedelta(minutes=11)
    world.turn(operator, 1)
    assert namespaces(world.living()) == {OTHER, NAMESPACE}


def test_a_job_gives_way_after_its_turn_and_goes_on_later() -> None:
    world = World(engine={"maxConcurrentJobs": 9})
    world.max_jobs = 2
    names = [world.table(f"t{number}", GIB, GIB) for number in range(4)]
    operator = world.operator()
    world.turn(operator, 3)
    assert len(world.living()) == 2
    for job in world.living():
        world.start(job)
    world.tenant(OTHER)
    theirs = world.table("items", GIB, namespace=OTHER)
    world.turn(operator, 2)
    assert world.converged(theirs, OTHER) == "ConcurrencyLimit"
    world.now += HOUR - dt.timedelta(minutes=1)
    world.turn(operator, 2)
    assert not [job for job in world.living() if job["metadata"].get("deletionTimestamp")]
    world.now += dt.timedelta(minutes=1)
    world.turn(operator, 3)
    (stopped,) = [job for job in world.living() if job["metadata"].get("deletionTimestamp")]
    world.end(stopped, 1, LastWords(Cause.STOPPED, "stopped at its commit boundary"))
    world.turn(operator, 3)
    assert world.converged(theirs, OTHER) == "RewriteRunning"
    status = next(s for name in names if (s := world.layout(name)["status"]).get("history"))
    assert status["history"][0]["result"] == "Stopped"
    assert status["failures"] == {"count": 0}
    assert len(world.living()) == 2


def test_the_slot_of_a_failed_job_is_free_at_once() -> None:
    """The launcher is asked when the job is settled, not half a minute later."""
    world = World(engine={"maxConcurrentJobs": 9})
    world.max_jobs = 1
    names = [world.table(name, GIB) for name in ("a", "b")]
    operator = world.operator()
    world.turn(operator, 3)
    (job,) = world.living()
    world.start(job)
    world.end(job, 0, LastWords(Cause.UNAVAILABLE, "the catalog does not answer"))
    world.relist(operator)
    operator.launcher.reconcile(LAUNCH_KEY)  # the end of the Job is an event for both
    failed = next(n for n in names if world.layout(n)["status"].get("job"))
    operator.asked.clear()
    world.reconcile(operator, failed)
    assert LAUNCH_KEY in operator.asked
    operator.launcher.reconcile(LAUNCH_KEY)
    assert len(world.living()) == 1


def test_a_job_whose_pod_never_started_costs_nothing() -> None:
    world = World()
    name = world.table("orders", GIB)
    operator = world.operator()
    world.turn(operator, 3)
    assert book(world).jobs() == {NAMESPACE: 1}
    for _ in range(3):
        world.now += dt.timedelta(minutes=11)
        world.turn(operator, 2)
    assert world.layout(name)["status"]["failures"]["count"] >= 1
    spent = book(world).spent(world.now).get(NAMESPACE, ())
    assert sum(item.rewrite_bytes for item in spent) <= GIB * len(world.living())


@pytest.mark.parametrize("minutes", [9, 40])
def test_a_job_that_cannot_be_created_is_not_charged_again_and_again(minutes: int) -> None:
    """A webhook that fails at each creation: nothing runs, so the cap is not used up by it."""
    world = World()
    name = world.table("orders", GIB)
    api = FakeApi(world.server)
    api.refusing(ApiUnavailable, "create", JOB)
    operator = world.operator(api)
    for _ in range(minutes):
        world.now += dt.timedelta(minutes=1)
        world.relist(operator)
        with contextlib.suppress(ApiUnavailable):
            world.reconcile(operator, name)
        operator.launcher.reconcile(LAUNCH_KEY)
    assert not world.jobs()
    kept = book(world)
    assert not kept.charged and len(kept.admitted) <= 1
    api.before = nothing
    while not world.living():
        world.now += dt.timedelta(minutes=1)
        world.turn(operator)
    spent = book(world).spent(world.now)[NAMESPACE]
    assert sum(item.rewrite_bytes for item in spent) == GIB


def test_a_job_of_a_policy_without_budgets_reads_no_more_than_the_cap_is_charged_with() -> None:
    world = World()
    world.table("orders", GIB, GIB)
    world.turn(world.operator(), 2)
    (job,) = world.jobs()
    run = read_job(run_text(job))
    assert isinstance(run, RunDocument)
    (admitted,) = book(world).admitted.values()
    assert run.bytes_limit == admitted.rewrite_bytes == 2 * GIB
    assert run.cpu_limit_seconds is None


@pytest.mark.parametrize("seed", seeds(6))
def test_two_operators_and_crashes_never_exceed_cap_or_slots(seed: int) -> None:
    """Whatever call fails or is lost, and whoever believes to lead: against the test's own list of
    all Jobs that ever ran, each with the bytes of the plan that it was given."""
    draw = random.Random(seed)
    world = World(engine={"maxConcurrentJobs": 9}, budgets=DAILY)
    for namespace in ("b", "c"):
        world.tenant(namespace, engine={"maxConcurrentJobs": 9}, budgets=DAILY)
    world.max_jobs, world.cap = 3, 12 * GIB
    for number, namespace in enumerate((NAMESPACE, "b", "c") * 3):
        world.table(f"t{number}", draw.randint(1, 4) * GIB, GIB, namespace=namespace)
    operators = [world.operator(_failing(world, draw)) for _ in range(2)]
    begun: list[tuple[dt.datetime, int]] = []
    for _ in range(60):
        for operator in operators:
            try:
                world.turn(operator)
            except ApiError:
                continue
        assert len(world.living()) <= world.max_jobs
        for job in world.living():
            if draw.random() < 0.5:
                begun.append((world.now, _bytes_of(job)))
                world.start(job)
                world.end(job)
        assert sum(size for at, size in begun if at > world.now - 24 * HOUR) <= world.cap
        if draw.random() < 0.2:
            operators[draw.randint(0, 1)] = world.operator(_failing(world, draw))
        world.now += dt.timedelta(minutes=draw.choice([1, 10, 60, 400]))
    assert len(begun) > 5


def _bytes_of(job: dict[str, Any]) -> int:
    run = read_job(run_text(job))
    assert isinstance(run, RunDocument)
    return int(run.bytes_limit or 0)


def _failing(world: World, draw: random.Random) -> FakeApi:
    def fail(verb: str, kind: Any, name: str) -> None:
        if verb != "get" and draw.random() < 0.08:
            raise Conflict(f"{verb} {kind.plural} {name}")

    return FakeApi(world.server, fail, fail)
