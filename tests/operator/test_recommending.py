"""Recommend jobs of one TableLayout: when one runs, what it leaves in the status, and that the
table's own work never waits for more than one that runs."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from reconciler.api.conditions import ConditionType
from reconciler.api.run_document import read_recommend_run, read_run
from reconciler.kube.names import RECOMMENDATION
from reconciler.kube.pods import PLAN_LABEL
from reconciler.kube.termination_message import Cause, LastWords
from reconciler.operator.conditions import condition_of
from reconciler.operator.layout.next_step import RECOMMEND_CPU_SECONDS
from reconciler.operator.layout.subject import FINALIZER
from tests.operator.worlds import GIB, World, run_text

HOUR = dt.timedelta(hours=1)
WEEKLY = {"interval": "168h"}
FOUND: dict[str, Any] = {
    "time": "2026-11-20T12:00:00Z", "snapshotId": "1", "method": "simulation", "better": True,
    "summary": "sorted by day", "savesPercent": 90, "digest": "sha256:0", "uri": "mem:///r",
    "rewriteBytes": GIB, "cpuSeconds": 71.0,
    "sample": {"rows": 1000, "files": 3, "bytesRead": 1 << 20, "rowsPerRowGroup": 100},
    "reading": {"now": 10 * GIB, "after": GIB, "low": GIB // 2, "high": 2 * GIB, "queries": 300},
    "layout": {
        "clustering": {"mode": "Declared", "keys": ["day"], "curve": "Lexicographic"},
        "files": {"targetSize": "512Mi", "rowGroupSize": "16Mi"},
    },
}  # fmt: skip


def asked(*sizes: int, **policy: Any) -> tuple[World, str]:
    """A world whose one table has recorded queries."""
    world = World(**{"recommend": WEEKLY, **policy})
    name = world.table("orders", *sizes)
    world.catalog.tables["sales", "orders"].queries = 300
    return world, name


def known(world: World, name: str) -> tuple[str, str]:
    found = condition_of(world.layout(name)["status"], ConditionType.BETTER_LAYOUT_KNOWN)
    return found.get("status", ""), found.get("reason", "")


def recommends(job: dict[str, Any]) -> bool:
    return str(job["metadata"]["labels"][PLAN_LABEL]).startswith(RECOMMENDATION)


def test_a_converged_table_stays_converged_while_its_job_runs_and_then_tells_the_layout() -> None:
    world, name = asked()
    operator = world.operator()
    job = world.started(operator, 2)
    assert recommends(job)
    assert job["metadata"]["ownerReferences"][0]["kind"] == "TableLayout"
    assert read_recommend_run(run_text(job)).cpu_limit_seconds == RECOMMEND_CPU_SECONDS
    world.turn(operator, 2)
    assert world.converged(name) == "NothingToDo"
    assert known(world, name) == ("Unknown", "NotRecommendedYet")
    assert world.layout(name)["metadata"]["finalizers"] == [FINALIZER]
    assert len(world.living()) == 1
    world.recommends(job, **FOUND)
    world.turn(operator, 2)
    status = world.layout(name)["status"]
    assert known(world, name) == ("True", "LayoutRecommended")
    assert status["recommendation"]["layout"] == FOUND["layout"]
    assert status["recommendation"]["rewriteBytes"] == "1Gi"
    assert status["recommendation"]["reading"]["after"] == "1Gi"
    assert (status["job"]["phase"], status.get("history")) == ("Succeeded", None)
    assert status["job"]["reserved"] == {"rewriteBytes": "0", "cpuTime": "10m"}
    assert not world.layout(name)["metadata"]["finalizers"]
    events = [reason for reason, _ in operator.api.events]
    assert events.count("BetterLayoutKnown") == 1 and "RecommendationSucceeded" in events


def test_it_comes_again_after_its_interval_and_only_if_something_changed() -> None:
    world, name = asked()
    operator = world.operator()
    world.recommends(world.started(operator, 2), **FOUND)
    world.turn(operator, 2)
    world.now += 200 * HOUR
    world.turn(operator, 2)
    assert not world.living()
    world.catalog.tables["sales", "orders"].version += 1
    world.now -= 100 * HOUR
    world.turn(operator, 2)
    assert not world.living()
    world.now += 100 * HOUR
    world.turn(operator, 2)
    assert len(world.living()) == 1
    assert known(world, name) == ("True", "LayoutRecommended")


def test_a_layout_that_the_policy_declares_is_not_recommended_again() -> None:
    world, name = asked()
    operator = world.operator()
    world.recommends(world.started(operator, 2), **FOUND)
    world.turn(operator, 2)
    world.policy(recommend=WEEKLY, layout=FOUND["layout"])
    world.turn(operator, 2)
    assert known(world, name) == ("False", "LayoutDeclared")
    world.policy()
    world.turn(operator, 2)
    assert known(world, name) == ("", "")
    assert "recommendation" not in world.layout(name)["status"]


def test_a_layout_that_is_kept_is_not_recommended_as_better() -> None:
    world, name = asked()
    operator = world.operator()
    kept = {k: FOUND[k] for k in ("time", "snapshotId", "method", "sample", "digest", "uri")}
    world.recommends(world.started(operator, 2), **kept, better=False, summary="nothing pays")
    world.turn(operator, 2)
    assert known(world, name) == ("False", "LayoutKept")


def test_without_queries_nothing_is_recommended_and_the_reason_is_told() -> None:
    world, name = asked()
    world.catalog.tables["sales", "orders"].queries = 0
    world.turn(world.operator(), 3)
    assert not world.jobs()
    assert known(world, name) == ("Unknown", "NoQueries")


def test_queries_that_must_not_be_used_make_no_recommendation() -> None:
    world, name = asked()
    world.stale = "the last import failed"
    world.turn(world.operator(), 3)
    assert not world.jobs()
    found = condition_of(world.layout(name)["status"], ConditionType.BETTER_LAYOUT_KNOWN)
    assert (found["reason"], found["message"]) == ("NotRecommendedYet", world.stale)
    world.stale = ""
    world.turn(world.operator(), 2)
    assert recommends(world.jobs()[0])


def test_admitted_work_comes_first_and_work_that_waits_for_approval_does_not_hold_it_back() -> None:
    world, _ = asked(GIB)
    operator = world.operator()
    first = world.started(operator, 2)
    assert not recommends(first)
    world.end(first)
    world.turn(operator, 2)
    (second,) = world.living()
    assert recommends(second)
    manual, name = asked(GIB, approval={"mode": "Manual"})
    assert recommends(manual.started(manual.operator(), 2))
    assert manual.converged(name) == "AwaitingApproval"


def test_work_waits_for_the_job_that_runs_and_starts_when_it_ends() -> None:
    world, name = asked()
    operator = world.operator()
    job = world.started(operator, 2)
    table = world.catalog.tables["sales", "orders"]
    table.pending, table.version = [("a1", GIB)], 2
    world.turn(operator, 2)
    assert world.converged(name) == "TablesPending" and len(world.living()) == 1
    world.recommends(job, **FOUND)
    world.turn(operator, 3)
    (work,) = world.living()
    assert read_run(run_text(work)).action_ids == ("a1",)


@pytest.mark.parametrize("cause", [Cause.UNKNOWN, Cause.UNAVAILABLE, Cause.USER_ERROR])
def test_a_job_that_fails_holds_nothing_up_and_is_tried_again_later(cause: Cause) -> None:
    world, name = asked()
    operator = world.operator()
    world.end(world.started(operator, 2), words=LastWords(cause, "it ended so"))
    world.turn(operator, 2)
    status = world.layout(name)["status"]
    assert world.converged(name) == "NothingToDo"
    assert known(world, name) == ("Unknown", "RecommendationFailed")
    assert status["recommendation"]["failures"]["count"] == 1
    assert not status.get("failures", {}).get("count") and not status.get("history")
    assert not world.living()
    world.now += dt.timedelta(minutes=6)
    world.turn(operator, 2)
    retried = cause is not Cause.USER_ERROR
    assert bool(world.living()) == retried
    if not retried:
        world.catalog.tables["sales", "orders"].version += 1
        world.turn(operator, 2)
    (again,) = world.living()
    world.start(again)
    world.end(again, words=LastWords(cause, "it ended so"))
    world.turn(operator, 2)
    assert world.layout(name)["status"]["recommendation"]["failures"]["count"] == 2
    world.catalog.tables["sales", "orders"].pending = [("a1", GIB)]
    world.catalog.tables["sales", "orders"].version += 1
    world.turn(operator, 2)
    (work,) = world.living()
    assert not recommends(work)


def test_a_job_that_does_not_start_is_stopped_and_does_not_stall_the_table() -> None:
    world, name = asked()
    operator = world.operator()
    world.turn(operator, 2)
    world.now += dt.timedelta(minutes=11)
    world.turn(operator)
    assert not world.living()
    world.turn(operator, 2)
    status = world.layout(name)["status"]
    assert status["recommendation"]["failures"]["count"] == 1
    assert not world.living()
    assert not condition_of(status, ConditionType.STALLED)


def test_a_suspended_policy_or_one_without_the_field_stops_the_job() -> None:
    for change in ({"suspend": True, "recommend": WEEKLY}, {}):
        world, _ = asked()
        operator = world.operator()
        world.started(operator, 2)
        world.policy(**change)
        world.turn(operator)
        (job,) = world.jobs()
        assert job["metadata"]["deletionTimestamp"]


def test_a_budget_of_cpu_time_below_what_it_reserves_holds_it_back() -> None:
    budget = {"name": "daily", "per": "24h", "maxCpuTime": "5m"}
    world, name = asked(budgets=[budget])
    world.turn(world.operator(), 3)
    assert not world.jobs()
    assert known(world, name) == ("Unknown", "NotRecommendedYet")
    found = condition_of(world.layout(name)["status"], ConditionType.BETTER_LAYOUT_KNOWN)
    assert "daily" in found["message"]


def test_a_write_ahead_without_a_job_is_continued_by_the_next_operator() -> None:
    world, _ = asked()
    operator = world.operator()
    create = operator.api.create

    def dies(kind: Any, *rest: Any) -> Any:
        if kind.kind == "Job":
            raise ConnectionError
        return create(kind, *rest)

    operator.api.create = dies  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        world.turn(operator, 2)
    assert not world.jobs()
    world.turn(world.operator(), 2)
    (job,) = world.jobs()
    assert recommends(job)
