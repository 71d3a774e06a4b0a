"""One TableLayout from plan to Converged, and each way in which it waits, stops or stalls."""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
import re
from decimal import Decimal
from typing import Any

import pytest

from reconciler.api.conditions import ConditionType
from reconciler.api.prices import Prices
from reconciler.api.run_document import RunDocument, read_run
from reconciler.errors import UnavailableError
from reconciler.kube.errors import ApiUnavailable, Conflict, Forbidden, QuotaExceeded
from reconciler.kube.kinds import JOB, POD, POLICY, TABLE_LAYOUT, Kind
from reconciler.kube.termination_message import Cause, LastWords
from reconciler.operator.conditions import condition_of
from reconciler.operator.layout.endings import Achieved
from reconciler.operator.layout.subject import FINALIZER
from reconciler.operator.ports import Problem
from reconciler.operator.status_text import parse_time, utc
from reconciler.plan.execution import WAITING
from reconciler.plan.ledger import ReadCheck
from tests.operator.worlds import GIB, NAMESPACE, START, World, run_text
from tests.said import Said

HOUR = dt.timedelta(hours=1)


def run_of(job: dict[str, Any]) -> RunDocument:
    return read_run(run_text(job))


def test_a_table_is_planned_run_and_converges() -> None:
    world = World()
    name = world.table("orders", GIB, 2 * GIB)
    operator = world.operator()
    world.turn(operator)
    (job,) = world.jobs()
    assert FINALIZER in world.layout(name)["metadata"]["finalizers"]
    assert world.layout(name)["status"]["job"]["reserved"]["rewriteBytes"] == "3Gi"
    world.start(job)
    world.turn(operator, 2)
    assert world.layout(name)["status"]["job"]["phase"] == "Running"
    assert world.converged(name) == "RewriteRunning"
    world.end(job)
    world.turn(operator, 2)
    status = world.layout(name)["status"]
    assert world.converged(name) == "NothingToDo"
    assert status["job"]["phase"] == "Succeeded"
    assert status["lastAppliedPlan"] == status["history"][0]["planId"]
    assert not world.layout(name)["metadata"]["finalizers"]
    assert len(world.jobs()) == 1


def test_a_job_costs_one_planning_and_its_end_the_next() -> None:
    """Neither the launch nor the run plans again; `test_a_run_plans_nothing` has the driver."""
    world = World()
    name = world.table("orders", GIB, 2 * GIB)
    operator = world.operator()
    world.turn(operator, 2)
    (job,) = world.jobs()
    world.start(job)
    world.turn(operator, 2)
    assert world.catalog.looks == 1
    world.end(job)
    world.turn(operator, 3)
    assert world.converged(name) == "NothingToDo"
    assert world.catalog.looks == 2


def test_a_converged_table_costs_one_look_at_the_catalog_and_no_call_of_the_api() -> None:
    world = World()
    name = world.table("orders")
    operator = world.operator()
    world.turn(operator, 2)
    before, looks = sum(operator.api.counted.values()), world.catalog.looks
    glances = world.catalog.glances
    for _ in range(5):
        world.now += HOUR
        world.reconcile(operator, name)
    assert sum(operator.api.counted.values()) == before
    assert world.catalog.looks == looks
    assert world.catalog.glances == glances + 5


def test_after_a_restart_a_converged_table_is_not_planned_again() -> None:
    world = World()
    name = world.table("orders")
    world.turn(world.operator(), 2)
    looks = world.catalog.looks
    world.reconcile(world.operator(), name)
    assert world.catalog.looks == looks
    assert world.converged(name) == "NothingToDo"


def test_another_look_that_finds_the_same_writes_nothing_and_a_change_has_its_own_time() -> None:
    world = World(approval={"mode": "Manual"})
    name = world.table("orders", GIB)
    world.turn(world.operator(), 2)
    first, looks = copy.deepcopy(world.layout(name)), world.catalog.looks
    world.now += HOUR
    world.reconcile(world.operator(), name)
    assert world.catalog.looks == looks + 1
    assert world.layout(name) == first
    world.catalog.tables["sales", "orders"].pending = ()
    world.now += HOUR
    world.reconcile(world.operator(), name)
    assert first["status"]["observed"]["time"] == utc(START)
    assert world.layout(name)["status"]["observed"]["time"] == utc(world.now)


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_quiet_period_holds_back_is_reported_and_done_when_it_ends(
    restarts: bool, said: Said
) -> None:
    world = World()
    name = world.table("orders", GIB)
    table = world.catalog.tables["sales", "orders"]
    table.waits, table.revisit = "1 rewrite waits until 13:30", world.now + 1.5 * HOUR
    operator = world.operator()
    world.turn(operator, 2)
    converged = condition_of(world.layout(name)["status"], ConditionType.CONVERGED)
    assert (converged["status"], converged["reason"]) == ("True", "NothingToDo")
    said(converged["message"])
    assert world.layout(name)["status"]["observed"]["revisit"] == "2026-11-20T13:30:00Z"
    looks = world.catalog.looks
    world.now = table.revisit - HOUR / 20
    if restarts:
        operator = world.operator()
    assert world.reconcile(operator, name).due == table.revisit.timestamp()
    assert world.catalog.looks == looks and not world.jobs()
    world.now = table.revisit
    world.turn(operator)
    assert world.converged(name) == "RewriteRunning" and len(world.jobs()) == 1
    assert "revisit" not in world.layout(name)["status"]["observed"]


def test_a_failed_job_does_not_make_a_converged_table_be_planned_again_and_again() -> None:
    world = World()
    name = world.table("orders", GIB)
    operator = world.operator()
    world.turn(operator)
    (job,) = world.jobs()
    world.start(job)
    world.end(job, words=LastWords(Cause.UNAVAILABLE, "the catalog went away after the commit"))
    world.turn(operator, 3)
    assert world.layout(name)["status"]["job"]["phase"] == "Failed"
    assert world.converged(name) == "NothingToDo"
    looks = world.catalog.looks
    for _ in range(5):
        world.now += HOUR
        world.reconcile(operator, name)
    assert world.catalog.looks == looks


def test_an_outage_of_the_catalog_does_not_make_converged_tables_be_planned_again() -> None:
    world = World()
    name = world.table("orders")
    operator = world.operator()
    world.turn(operator, 2)
    looks = world.catalog.looks
    world.catalog.error = UnavailableError("the catalog does not answer")
    world.reconcile(operator, name)
    assert world.converged(name) == "CatalogUnavailable"
    world.catalog.error = None
    world.reconcile(operator, name)
    assert world.converged(name) == "NothingToDo"
    assert world.catalog.looks == looks


def test_new_queries_or_a_new_snapshot_are_looked_at() -> None:
    world = World()
    name = world.table("orders")
    operator = world.operator()
    world.turn(operator, 2)
    looks = world.catalog.looks
    world.catalog.workload += 1
    world.reconcile(operator, name)
    world.catalog.tables["sales", "orders"].version += 1
    world.reconcile(operator, name)
    assert world.catalog.looks == looks + 2


def test_without_approval_nothing_starts_and_each_approval_starts_it() -> None:
    for way in ("person", "document", "shared state"):
        world = World(approval={"mode": "Manual"})
        name = world.table("orders", GIB)
        operator = world.operator()
        world.turn(operator, 2)
        assert world.converged(name) == "AwaitingApproval" and not world.jobs()
        plan = world.layout(name)["status"]["plan"]["id"]
        if way == "person":
            world.layout(name)["spec"]["approvedPlan"] = plan
            world.layout(name)["metadata"]["generation"] += 1
            world.server.bump(world.layout(name))
        elif way == "document":
            world.policy(approval={"mode": "Manual", "approvedPlans": [plan]})
        else:
            world.catalog.approvals.add(plan)
        world.turn(operator, 2)
        assert len(world.jobs()) == 1, way
        approved = next(
            c for c in world.layout(name)["status"]["conditions"] if c["type"] == "Approved"
        )
        assert approved["status"] == "True"


def test_a_budget_admits_a_prefix_and_the_rest_when_it_refills() -> None:
    world = World(budgets=[{"name": "daily", "per": "24h", "maxRewriteBytes": "3Gi"}])
    name = world.table("orders", 2 * GIB, 2 * GIB)
    operator = world.operator()
    world.turn(operator)
    (job,) = world.jobs()
    assert world.layout(name)["status"]["job"]["reserved"]["rewriteBytes"] == "2Gi"
    world.start(job)
    world.end(job)
    world.turn(operator, 2)
    assert world.converged(name) == "OverBudget"
    result = world.reconcile(operator, name)
    assert result.due <= (world.now + 24 * HOUR).timestamp()
    world.now += 25 * HOUR
    world.turn(operator, 2)
    assert len(world.jobs()) == 2


def test_an_unreadable_ledger_admits_nothing() -> None:
    world = World(budgets=[{"name": "daily", "per": "24h", "maxRewriteBytes": "3Gi"}])
    name = world.table("orders", GIB)
    operator = world.operator()
    world.catalog.spent = _unavailable  # type: ignore[method-assign]
    world.turn(operator, 2)
    assert not world.jobs()
    assert world.converged(name) == "CatalogUnavailable"


def _unavailable(*_: object) -> tuple:
    raise UnavailableError("the ledger cannot be read")


def test_two_tables_of_one_budget_do_not_exceed_it_together() -> None:
    world = World(budgets=[{"name": "daily", "per": "24h", "maxRewriteBytes": "3Gi"}])
    names = [world.table(n, 2 * GIB) for n in ("a", "b")]
    operator = world.operator()
    world.turn(operator, 3)
    assert len(world.jobs()) == 1
    assert sorted(world.converged(n) for n in names) == ["OverBudget", "RewriteRunning"]


def test_concurrency_is_limited_by_policy_and_by_operator() -> None:
    for limits, most in (({"engine": {"maxConcurrentJobs": 1}}, 1), ({}, 2)):
        world = World(**limits)
        world.max_jobs = 2 if most == 2 else 9
        if most == 2:
            world.policy(engine={"maxConcurrentJobs": 8})
        names = [world.table(n, GIB) for n in "abc"]
        operator = world.operator()
        world.turn(operator, 2)
        assert len(world.jobs()) == most
        assert "ConcurrencyLimit" in {world.converged(n) for n in names}


def test_the_cap_over_all_policies_holds() -> None:
    world = World(engine={"maxConcurrentJobs": 8})
    world.cap = 3 * GIB
    names = [world.table(n, 2 * GIB) for n in "ab"]
    world.turn(world.operator(), 2)
    assert len(world.jobs()) == 1
    assert "OverBudget" in {world.converged(n) for n in names}


def test_the_cap_counts_jobs_whose_table_layout_and_ledger_are_gone() -> None:
    world = World()
    world.cap = 3 * GIB
    name = world.table("orders", 2 * GIB)
    operator = world.operator()
    job = world.started(operator)
    world.end(job)
    world.turn(operator, 2)
    assert world.converged(name) == "NothingToDo"
    world.server.remove(TABLE_LAYOUT, NAMESPACE, name)
    world.catalog.ledger.clear()
    world.catalog.reserved.clear()
    other = world.table("items", 2 * GIB)
    for restarted in (operator, world.operator()):
        world.turn(restarted, 2)
        assert world.converged(other) == "OverBudget" and len(world.living()) == 0
    world.now += 24 * HOUR + dt.timedelta(minutes=10)
    world.turn(operator, 2)
    assert len(world.living()) == 1


@pytest.mark.parametrize("why", ["suspend", "window", "policy", "deleted policy", "deleted"])
def test_a_running_job_is_stopped_and_its_reservation_settled(why: str) -> None:
    closing = {"name": "night", "schedule": "0 13 * * *", "duration": "1h", "maxRewriteBytes": "0"}
    world = World(budgets=[closing])
    name = world.table("orders", GIB, GIB)
    operator = world.operator()
    job = world.started(operator)
    world.turn(operator)
    result = world.reconcile(operator, name)
    assert result.due <= (world.now + HOUR).timestamp()
    if why == "suspend":
        world.policy(budgets=[closing], suspend=True)
    elif why == "window":
        world.now += HOUR + dt.timedelta(seconds=1)
    elif why == "policy":
        world.policy(budgets=[closing], objectives={"maxFileCount": 7})
    elif why == "deleted policy":
        world.server.remove(POLICY, NAMESPACE, "facts")
    else:
        operator.api.delete(TABLE_LAYOUT, NAMESPACE, name)
    world.turn(operator)
    stored = world.server.objects[(JOB.plural, NAMESPACE, job["metadata"]["name"])]
    assert stored["metadata"].get("deletionTimestamp"), why
    world.end(job, 1, LastWords(Cause.STOPPED, "stopped at its commit boundary"))
    world.turn(operator, 2)
    if why == "deleted":
        assert (TABLE_LAYOUT.plural, NAMESPACE, name) not in world.server.objects
    else:
        status = world.layout(name)["status"]
        assert status["history"][0]["result"] == "Stopped"
        assert status["failures"] == {"count": 0}
        assert len(world.living()) == (1 if why == "policy" else 0)
        if why != "policy":
            assert status["job"]["phase"] == "Failed"
            assert not world.layout(name)["metadata"]["finalizers"]
    assert sum(e.outcome.read_bytes for e in world.catalog.ledger) == GIB


def test_a_job_that_is_stopped_before_it_was_adopted_is_settled() -> None:
    """Its driver may have committed: its end is judged by the ledger and kept in the history."""
    world = World()
    name = world.table("orders", GIB, GIB)
    operator = world.operator()
    job = world.started(operator)
    body = world.layout(name)
    del body["status"]["job"]["uid"]  # the write after the creation was lost
    world.server.put(TABLE_LAYOUT, body)
    world.policy(suspend=True)
    world.turn(operator)
    assert world.layout(name)["status"]["job"]["stopped"] == "Suspended"
    world.end(job, 1, LastWords(Cause.STOPPED, "stopped at its commit boundary"))
    world.server.remove(JOB, NAMESPACE, job["metadata"]["name"])
    world.turn(operator, 2)
    status = world.layout(name)["status"]
    assert [entry["result"] for entry in status["history"]] == ["Stopped"]
    assert (status["job"]["phase"], status["job"]["actionsCommitted"]) == ("Failed", 1)
    assert not world.layout(name)["metadata"]["finalizers"]


@pytest.mark.parametrize("lost", ["status", "delete"])
def test_why_a_job_was_stopped_survives_a_request_that_is_refused(lost: str) -> None:
    """Its pod is gone before it could say why it ended, and people still learn that it was not a
    failure."""
    world = World()
    name = world.table("orders", GIB, GIB)
    operator = world.operator()
    job = world.started(operator)
    world.turn(operator)
    calm, refused = operator.api.before, []

    def before(verb: str, kind: Kind, of: str) -> None:
        calm(verb, kind, of)
        if (verb, kind) == (lost, TABLE_LAYOUT if lost == "status" else JOB) and not refused:
            refused.append(of)
            raise Conflict("changed meanwhile") if lost == "status" else ApiUnavailable("503")

    world.policy(suspend=True)
    operator.api.before = before
    with contextlib.suppress(ApiUnavailable):
        world.turn(operator)
    world.policy(suspend=False)  # what was begun is done, whatever is wanted now
    world.turn(operator)
    world.policy(suspend=True)
    world.turn(operator)
    stored = world.server.objects[(JOB.plural, NAMESPACE, job["metadata"]["name"])]
    assert refused and stored["metadata"].get("deletionTimestamp")
    world.server.remove(POD, NAMESPACE, f"{job['metadata']['name']}-pod")
    world.server.remove(JOB, NAMESPACE, job["metadata"]["name"])
    world.turn(operator, 2)
    status = world.layout(name)["status"]
    assert [entry["result"] for entry in status["history"]] == ["Stopped"]
    assert status["failures"] == {"count": 0}


def test_a_job_whose_record_was_lost_is_adopted_with_what_it_reserved() -> None:
    world = World()
    name = world.table("orders", GIB, GIB)
    operator = world.operator()
    world.started(operator)
    launched = world.layout(name)["status"].pop("job")
    operator.index.remove(TABLE_LAYOUT, world.layout(name))
    world.turn(operator)
    found = world.layout(name)["status"]["job"]
    assert found["reserved"] == launched["reserved"] == {"rewriteBytes": "2Gi", "cpuTime": "3s"}


def test_a_deletion_leaves_a_job_behind_that_does_not_end_in_ten_minutes() -> None:
    world = World()
    name = world.table("orders", GIB)
    operator = world.operator()
    world.started(operator)
    world.turn(operator)
    operator.api.delete(TABLE_LAYOUT, NAMESPACE, name)
    world.turn(operator)
    deleting = parse_time(world.layout(name)["metadata"]["deletionTimestamp"])
    assert deleting is not None
    world.now = deleting + dt.timedelta(minutes=9)
    result = world.reconcile(operator, name)
    world.now += dt.timedelta(minutes=1)
    assert result.due <= world.now.timestamp()
    assert world.layout(name)["metadata"]["finalizers"] == [FINALIZER]
    assert not [message for reason, message in operator.api.events if reason == "JobLeftBehind"]
    world.reconcile(operator, name)
    assert (TABLE_LAYOUT.plural, NAMESPACE, name) not in world.server.objects
    (message,) = [message for reason, message in operator.api.events if reason == "JobLeftBehind"]
    assert world.living()[0]["metadata"]["name"] in message


def test_a_job_killed_without_a_termination_message_is_charged_in_full() -> None:
    world = World(budgets=[{"name": "daily", "per": "24h", "maxRewriteBytes": "10Gi"}])
    name = world.table("orders", 2 * GIB, 3 * GIB)
    operator = world.operator()
    job = world.started(operator)
    world.end(job, 1, LastWords(Cause.UNKNOWN, ""))
    world.turn(operator)
    assert sum(s.rewrite_bytes for s in world.catalog.spent("", "uuid-orders")) == 5 * GIB
    assert world.converged(name) in ("BackOff", "RewriteRunning", "OverBudget")
    assert world.layout(name)["status"]["failures"]["count"] == 1


def test_what_a_killed_driver_left_open_is_settled_although_nothing_is_left_to_do() -> None:
    world = World(budgets=[{"name": "daily", "per": "24h", "maxRewriteBytes": "10Gi"}])
    name = world.table("orders", 2 * GIB)
    operator = world.operator()
    world.turn(operator)
    (first,) = world.jobs()
    world.start(first)
    world.end(first, 1, LastWords(Cause.UNKNOWN, ""))
    assert world.catalog.open_attempts and not world.catalog.tables["sales", "orders"].pending
    world.turn(operator, 2)
    assert world.converged(name) == "BackOff"
    world.now += dt.timedelta(minutes=1)
    world.turn(world.operator(), 2)
    (settling,) = world.living()
    run = run_of(settling)
    assert run.action_ids == () and run.bytes_limit == 0
    assert (run.plan_id, run.attempt) == (run_of(first).plan_id, 2)
    assert run.plan_digest == run_of(first).plan_digest
    world.start(settling)
    world.end(settling)
    world.turn(operator, 3)
    assert world.converged(name) == "NothingToDo"
    status = world.layout(name)["status"]
    assert status["job"]["phase"] == "Succeeded" and not status["failures"]["count"]
    assert len(world.jobs()) == 2 and not world.living()


def test_what_a_driver_left_whose_table_layout_is_gone_is_settled_under_the_next_one() -> None:
    world = World()
    name = world.table("orders", 2 * GIB)
    operator = world.operator()
    job = world.started(operator)
    world.end(job, 1, LastWords(Cause.UNKNOWN, ""))
    for kind in (TABLE_LAYOUT, JOB, POD):
        for body in world.server.all(kind):
            world.server.remove(kind, NAMESPACE, body["metadata"]["name"])
    world.table_layout("orders")
    operator = world.operator()
    world.turn(operator)
    (settling,) = world.living()
    assert run_of(settling).action_ids == () and run_of(settling).plan_id == run_of(job).plan_id
    world.start(settling)
    world.end(settling)
    world.turn(operator, 2)
    assert world.converged(name) == "NothingToDo" and not world.catalog.open_attempts
    assert not world.living()


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_driver_left_is_not_forgotten_while_nothing_may_start(restarts: bool) -> None:
    closed = {"name": "closed", "schedule": "0 11 * * *", "duration": "4h", "maxRewriteBytes": "0"}
    world = World()
    name = world.table("orders", 2 * GIB)
    operator = world.operator()
    job = world.started(operator)
    world.end(job, 1, LastWords(Cause.UNKNOWN, ""))
    for kind in (TABLE_LAYOUT, JOB, POD):
        for body in world.server.all(kind):
            world.server.remove(kind, NAMESPACE, body["metadata"]["name"])
    world.table_layout("orders")
    world.policy(budgets=[closed])
    operator = world.operator()
    world.turn(operator, 3)
    assert not world.jobs()
    world.now += 4 * HOUR
    world.turn(world.operator() if restarts else operator, 2)
    (settling,) = world.living()
    assert run_of(settling).action_ids == ()
    world.start(settling)
    world.end(settling)
    world.turn(operator, 3)
    assert world.converged(name) == "NothingToDo" and not world.catalog.open_attempts
    looks = world.catalog.looks
    world.turn(operator, 2)
    assert world.catalog.looks == looks


def test_a_layout_that_is_deleted_and_made_anew_between_two_looks_is_observed() -> None:
    world = World()
    name = world.table("orders")
    operator = world.operator()
    world.turn(operator, 2)
    first = world.layout(name)["status"]
    world.server.remove(TABLE_LAYOUT, NAMESPACE, name)
    world.table_layout("orders")
    world.turn(operator, 2)
    again = world.layout(name)["status"]
    assert again["table"] == first["table"] and again["observed"] == first["observed"]
    ready = next(c for c in again["conditions"] if c["type"] == "Ready")
    assert ready["status"] == "True"


def test_a_table_that_is_renamed_under_its_job_gets_no_second_one() -> None:
    world = World(engine={"maxConcurrentJobs": 4})
    world.table("orders", GIB, GIB)
    operator = world.operator()
    job = world.started(operator)
    world.catalog.tables["sales", "renamed"] = world.catalog.tables["sales", "orders"]
    name = world.table_layout("renamed")
    for _ in range(3):
        world.turn(operator)
        world.now += dt.timedelta(minutes=1)
    assert [item["metadata"]["name"] for item in world.living()] == [job["metadata"]["name"]]
    assert world.converged(name) == "RewriteRunning"
    world.end(job, 1)
    world.catalog.tables.pop(("sales", "orders"))
    world.turn(operator, 3)
    assert len(world.living()) == 1


def test_a_job_that_ends_while_its_catalog_has_no_secret_is_judged_when_it_has_one(
    said: Said,
) -> None:
    world = World()
    name = world.table("orders", GIB)
    operator = world.operator()
    job = world.started(operator)
    world.problem = Problem("SecretNotFound", "there is no Secret x", True)
    world.end(job)
    world.turn(operator, 3)
    status = world.layout(name)["status"]
    assert status["job"]["phase"] in ("Pending", "Running"), "its reservation stands"
    stalled = next(c for c in status["conditions"] if c["type"] == "Stalled")
    assert stalled["reason"] == "SecretNotFound"
    world.problem = None
    world.turn(operator, 3)
    status = world.layout(name)["status"]
    said(status["history"][0]["message"])
    assert world.converged(name) == "NothingToDo" and not status["failures"]["count"]


def test_a_job_whose_results_wait_on_a_branch_has_succeeded_and_its_history_says_so(
    said: Said,
) -> None:
    world = World()
    name = world.table("orders", GIB, GIB)
    operator = world.operator()
    world.end(world.started(operator), state=WAITING)
    world.turn(operator, 2)
    status = world.layout(name)["status"]
    (entry,) = status["history"]
    assert (entry["result"], status["job"]["actionsCommitted"]) == ("Succeeded", 2)
    assert status["lastAppliedPlan"] == entry["planId"]
    assert not status["failures"]["count"]
    said(entry["message"])


def read_check(job: dict[str, Any], saved: int, complete: bool = True) -> ReadCheck:
    """10 GiB were read by the recorded queries before the plan of this job, 9 GiB predicted."""
    return ReadCheck(
        run_of(job).plan_id, 0, 10 * GIB, 9 * GIB, 10 * GIB - saved, complete=complete, saved=saved
    )


@pytest.mark.parametrize("words", [None, LastWords(Cause.CONFLICT, "x" * 300)])
def test_a_plan_after_which_queries_cost_more_is_named_in_history_and_by_an_event(
    words: LastWords | None, said: Said
) -> None:
    """However the job ended, and however long its message is."""
    world = World()
    name = world.table("orders", GIB, GIB)
    operator = world.operator()
    job = world.started(operator)
    world.catalog.checks.append(read_check(job, -3 * GIB, complete=words is None))
    world.end(job, words=words)
    world.turn(operator, 2)
    (entry,) = world.layout(name)["status"]["history"]
    assert entry["result"] == ("Succeeded" if words is None else "Conflict")
    assert "HARM" in entry["message"] and "3Gi more" in entry["message"]
    assert len(entry["message"]) <= 256
    (event,) = [text for reason, text in operator.api.events if reason == "ReadingWorse"]
    assert job["metadata"]["name"] in event and "13Gi" in event
    said(entry["message"])
    said(event.removeprefix(job["metadata"]["name"]))


def test_harm_is_said_in_money_where_the_catalog_has_prices() -> None:
    check = ReadCheck("p-1", 0, 10 * GIB, 9 * GIB, 13 * GIB, complete=True, saved=-3 * GIB)
    done, prices = Achieved(reading=check), Prices("EUR", tib_read=Decimal(1024))
    text = done.harm(prices)
    assert re.findall(r"(\d+)Gi \((\S+) EUR\)", text) == [("13", "13.00"), ("10", "10.00")]
    assert "EUR" not in done.harm(None) and "3Gi" in done.harm(None)


def test_a_plan_that_saves_raises_no_alarm() -> None:
    world = World()
    name = world.table("orders", GIB)
    operator = world.operator()
    job = world.started(operator)
    world.catalog.checks.append(read_check(job, 3 * GIB))
    world.end(job)
    world.turn(operator, 2)
    (entry,) = world.layout(name)["status"]["history"]
    assert "HARM" not in entry["message"]
    assert not [reason for reason, _ in operator.api.events if reason == "ReadingWorse"]


def test_what_a_person_approved_does_not_use_up_what_needs_no_approval() -> None:
    approval = {"mode": "Manual", "automaticUpTo": {"rewriteBytes": "2Gi"}}
    world = World(approval=approval)
    name = world.table("orders", 5 * GIB)
    operator = world.operator()
    world.turn(operator, 2)
    assert world.converged(name) == "AwaitingApproval"
    plan = world.layout(name)["status"]["plan"]["id"]
    world.policy(approval={**approval, "approvedPlans": [plan]})
    world.end(world.started(operator, 2))
    world.turn(operator, 2)
    assert world.converged(name) == "NothingToDo"
    orders = world.catalog.tables["sales", "orders"]
    for number, starts in ((2, True), (3, False)):
        orders.pending, orders.version = [(f"a0{number}", GIB + 1)], 10 * number
        world.turn(operator, 2)
        assert bool(world.living()) is starts
        for job in world.living():
            world.start(job)
            world.end(job)
            world.turn(operator, 2)
    assert world.converged(name) == "AwaitingApproval"


def test_a_cut_short_attempt_is_settled_while_new_work_awaits_approval() -> None:
    world = World(approval={"mode": "Manual"})
    name = world.table("orders", 2 * GIB, GIB)
    operator = world.operator()
    world.turn(operator)
    plan = world.layout(name)["status"]["plan"]["id"]
    world.policy(approval={"mode": "Manual", "approvedPlans": [plan]})
    world.turn(operator)
    world.start(world.jobs()[0])
    world.end(world.jobs()[0], 1, LastWords(Cause.UNKNOWN, ""))
    world.policy(approval={"mode": "Manual"})
    world.turn(operator, 2)
    assert world.converged(name) == "AwaitingApproval"
    world.now += dt.timedelta(minutes=1)
    world.turn(operator, 2)
    (settling,) = world.living()
    assert run_of(settling).action_ids == ()
    world.start(settling)
    world.end(settling)
    world.turn(operator, 2)
    assert world.converged(name) == "AwaitingApproval"
    assert not world.living() and not world.catalog.open_attempts


def test_a_dead_catalog_makes_converged_unknown_and_keeps_the_reservation() -> None:
    world = World()
    name = world.table("orders", GIB)
    idle = world.table("idle")
    operator = world.operator()
    job = world.started(operator, 2)
    world.problem = Problem("CatalogUnavailable", "no answer", False)
    world.turn(operator, 2)
    found = {c["type"]: c for c in world.layout(name)["status"]["conditions"]}
    assert (found["Ready"]["status"], found["Ready"]["reason"]) == ("False", "CatalogUnavailable")
    assert found["Converged"]["status"] == "Unknown"
    assert world.living()
    world.problem = Problem("SecretNotFound", "there is no Secret x", True)
    world.turn(operator)
    found = {c["type"]: c for c in world.layout(name)["status"]["conditions"]}
    assert (found["Ready"]["status"], found["Ready"]["reason"]) == ("False", "SecretNotFound")
    assert found["Converged"]["reason"] == "RewriteRunning"
    world.problem = Problem("CatalogUnavailable", "no answer", False)
    world.end(job)
    world.turn(operator, 2)
    status = world.layout(name)["status"]
    assert status["job"]["phase"] in ("Pending", "Running")
    assert world.converged(name) == world.converged(idle) == "CatalogUnavailable"
    unknown = next(c for c in status["conditions"] if c["type"] == "Converged")
    assert unknown["status"] == "Unknown"
    world.problem = None
    world.turn(operator, 2)
    assert world.converged(name) == world.converged(idle) == "NothingToDo"


def test_a_foreign_claim_stalls() -> None:
    world = World()
    name = world.table("orders", GIB)
    world.catalog.tables["sales", "orders"].owner = "another cluster"
    world.turn(world.operator(), 2)
    assert world.converged(name) == "OwnedElsewhere" and not world.jobs()


def test_a_table_that_is_paused_waits_and_starts_nothing_until_it_is_not() -> None:
    world = World()
    name = world.table("orders", GIB)
    orders, operator = world.catalog.tables["sales", "orders"], world.operator()
    orders.paused = "the table property layout.paused is set"
    world.turn(operator, 2)
    assert world.converged(name) == "Paused" and not world.jobs()
    assert world.catalog.looks == 0
    orders.paused, orders.version = "", 2
    world.turn(operator, 2)
    assert world.jobs()


def test_a_table_of_another_optimizer_waits_until_the_policy_allows_it() -> None:
    world = World()
    name = world.table("orders", GIB)
    world.catalog.tables["sales", "orders"].other = "2 commits of another writer"
    operator = world.operator()
    world.turn(operator, 2)
    assert world.converged(name) == "OtherOptimizer" and not world.jobs()
    world.policy(safety={"allowOtherOptimizers": True})
    world.turn(operator, 2)
    assert world.jobs()


@pytest.mark.parametrize("most", [None, "1Mi"])
def test_no_plan_counts_as_approved_that_another_check_refused_first(most: str | None) -> None:
    by_size = {"automaticUpTo": {"rewriteBytes": most}} if most else {}
    world = World(approval={"mode": "Manual", **by_size})
    name = world.table("orders", GIB)
    world.catalog.tables["sales", "orders"].other = "2 commits of another writer"
    world.turn(world.operator(), 2)
    assert world.converged(name) == "OtherOptimizer"
    assert not world.condition(name, "Approved")


def test_a_plan_that_exceeds_a_budget_does_so_before_it_is_approved() -> None:
    budget = {"name": "daily", "per": "24h", "maxRewriteBytes": "1Mi"}
    world = World(approval={"mode": "Manual"}, budgets=[budget])
    name = world.table("orders", GIB)
    world.turn(world.operator(), 2)
    assert world.converged(name) == "AwaitingApproval"
    within = world.condition(name, "WithinBudget")
    assert (within["status"], within["reason"]) == ("False", "OverBudget")


def test_a_job_of_that_name_that_is_not_ours_stalls() -> None:
    world = World()
    name = world.table("orders", GIB)
    operator = world.operator()
    world.turn(operator)
    (job,) = world.jobs()
    world.server.remove(JOB, NAMESPACE, job["metadata"]["name"])
    world.layout(name)["status"].pop("job")
    world.layout(name)["metadata"]["finalizers"] = []
    foreign = {**job, "metadata": {"name": job["metadata"]["name"], "namespace": NAMESPACE}}
    world.server.put(JOB, foreign)
    world.server.bump(world.layout(name))
    world.turn(world.operator(), 3)
    stalled = [c for c in world.layout(name)["status"]["conditions"] if c["type"] == "Stalled"]
    assert stalled and stalled[0]["reason"] == "ForeignJob"
    assert len(world.jobs()) == 1


@pytest.mark.parametrize("error", [Forbidden, QuotaExceeded])
def test_a_job_that_the_server_refuses_backs_off_and_holds_nothing(error: type) -> None:
    world = World()
    name = world.table("orders", GIB)
    operator = world.operator()
    operator.api.refusing(error, "create", JOB)
    world.turn(operator, 3)
    assert world.converged(name) == "BackOff"
    assert world.layout(name)["status"]["job"]["phase"] == "Dropped"
    assert not world.layout(name)["metadata"]["finalizers"]


def test_out_of_memory_is_tried_with_more_then_stalls() -> None:
    world = World()
    name = world.table("orders", GIB)
    operator = world.operator()
    limits = []
    for _ in range(2):
        world.turn(operator, 2)
        (job,) = world.living()
        pod = job["spec"]["template"]["spec"]["containers"][0]
        limits.append(int(pod["resources"]["limits"]["memory"].removesuffix("Mi")))
        world.start(job)
        world.end(job, 0, LastWords(Cause.OUT_OF_MEMORY, "Java heap space"))
        world.turn(operator)
        world.now += HOUR
    world.turn(operator, 2)
    assert limits[1] > 1.4 * limits[0]
    stalled = [c for c in world.layout(name)["status"]["conditions"] if c["type"] == "Stalled"]
    assert stalled[0]["reason"] == "OutOfMemory"
    assert len(world.jobs()) == 2


def test_a_users_error_stalls_until_the_table_or_the_secret_changes() -> None:
    world = World()
    name = world.table("orders", GIB)
    operator = world.operator()
    job = world.started(operator)
    world.end(job, 0, LastWords(Cause.USER_ERROR, "no such key"))
    for _ in range(3):
        world.turn(operator, 2)
        world.now += HOUR
    assert len(world.jobs()) == 1
    stalled = [c for c in world.layout(name)["status"]["conditions"] if c["type"] == "Stalled"]
    assert stalled[0]["reason"] == "JobFailed"
    world.catalog.tables["sales", "orders"].version += 1
    world.turn(operator, 2)
    assert len(world.jobs()) == 2


def test_jobs_that_change_nothing_stop_being_started() -> None:
    world = World()
    name = world.table("orders", GIB)
    operator = world.operator()
    for _ in range(6):
        world.turn(operator, 2)
        for job in world.living():
            world.start(job)
            world.end(job, 0)
        world.now += 2 * HOUR
    assert len(world.jobs()) == 2
    stalled = [c for c in world.layout(name)["status"]["conditions"] if c["type"] == "Stalled"]
    assert stalled[0]["reason"] == "NoEffect"


def test_a_job_that_never_starts_is_stopped_and_reported() -> None:
    world = World()
    name = world.table("orders", GIB)
    operator = world.operator()
    world.turn(operator)
    world.now += dt.timedelta(minutes=11)
    world.turn(operator)
    assert not world.jobs() or world.jobs()[0]["metadata"].get("deletionTimestamp")
    world.turn(operator, 2)
    assert world.layout(name)["status"]["failures"]["cause"] == "NotStarted"


def test_a_job_whose_image_was_refused_costs_nothing_when_its_catalog_changes() -> None:
    world = World()
    world.table("orders", GIB)
    operator = world.operator()
    world.turn(operator)
    (job,) = world.jobs()
    world.start(job)
    pod = world.server.objects[POD.plural, NAMESPACE, f"{job['metadata']['name']}-pod"]
    waiting = {"state": {"waiting": {"reason": "ErrImagePull"}}}
    pod["status"] = {"phase": "Pending", "containerStatuses": [waiting]}
    world.catalog.version = "2"
    world.turn(operator)
    world.server.remove(POD, NAMESPACE, pod["metadata"]["name"])
    world.server.remove(JOB, NAMESPACE, job["metadata"]["name"])
    world.turn(operator)
    book = operator.launcher.spending.known
    assert not book.charged and (NAMESPACE, job["metadata"]["name"]) not in book.admitted


def test_a_job_that_started_while_its_stop_was_refused_is_charged_and_counts_once() -> None:
    world = World()
    name = world.table("orders", GIB, GIB)
    operator = world.operator()
    world.turn(operator, 2)
    (job,) = world.jobs()
    calm, refused = operator.api.before, []

    def before(verb: str, kind: Kind, of: str) -> None:
        calm(verb, kind, of)
        if (verb, kind) == ("delete", JOB) and not refused:
            refused.append(of)
            raise ApiUnavailable("503")

    world.now += dt.timedelta(minutes=11)
    operator.api.before = before
    with contextlib.suppress(ApiUnavailable):
        world.turn(operator)
    assert refused and world.layout(name)["status"]["job"]["stopped"] == "JobNotStarted"
    world.start(job)
    world.turn(operator)
    world.server.remove(POD, NAMESPACE, f"{job['metadata']['name']}-pod")
    world.server.remove(JOB, NAMESPACE, job["metadata"]["name"])
    world.turn(operator)
    assert world.layout(name)["status"]["failures"]["count"] == 1
    book = operator.launcher.spending.known
    assert sum(book.charged.values()) == 2 * GIB and not book.admitted


def test_a_dropped_table_stalls_and_is_not_planned() -> None:
    world = World()
    name = world.table("orders", GIB)
    del world.catalog.tables["sales", "orders"]
    world.turn(world.operator(), 2)
    stalled = [c for c in world.layout(name)["status"]["conditions"] if c["type"] == "Stalled"]
    assert stalled[0]["reason"] == "TableNotFound"


def test_one_that_does_not_lead_does_nothing() -> None:
    world = World()
    world.table("orders", GIB)
    operator = world.operator()
    operator.leads = False
    world.turn(operator, 2)
    assert not world.jobs() and not operator.api.counted


def test_one_that_loses_the_lease_during_a_reconcile_writes_nothing_and_does_not_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    name = world.table("orders", GIB)
    operator = world.operator()

    def lost(subject: object) -> bool:
        operator.leads = False
        return False

    monkeypatch.setattr(operator.layouts.gatherer, "needs_server", lost)
    before = copy.deepcopy(world.layout(name))
    result = world.reconcile(operator, name)
    assert result.due is not None and not result.failed
    assert world.layout(name) == before and not world.jobs()


def test_a_second_object_of_one_table_is_refused_and_starts_nothing() -> None:
    world = World()
    name = world.table("orders", GIB)
    body = world.layout(name)
    world.server.put(
        TABLE_LAYOUT,
        {"metadata": {"name": "by-hand", "namespace": NAMESPACE}, "spec": body["spec"]},
    )
    operator = world.operator()
    world.turn(operator, 3)
    assert len(world.jobs()) == 1
    stalled = [c for c in world.layout("by-hand")["status"]["conditions"] if c["type"] == "Stalled"]
    assert stalled[0]["reason"] == "InvalidSpec" and name in stalled[0]["message"]
