"""Status documents: valid under the CRDs, written only on change, never of the old generation."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.api.conditions import ConditionType, Reason
from reconciler.api.conditions import Status as Truth
from reconciler.api.schema import CATALOG, POLICY, TABLE_LAYOUT, structural_schema
from reconciler.operator.catalog.status import CatalogView, catalog_status
from reconciler.operator.conditions import Condition, condition_of, merged
from reconciler.operator.job_record import JobRecord, Phase, job_status, record_of
from reconciler.operator.layout.plan_status import plan_lines, plan_status
from reconciler.operator.layout.status import (
    accepted,
    changed,
    layout_conditions,
    transitions,
    with_history,
)
from reconciler.operator.layout.steps import Stall, Wait
from reconciler.operator.policy.status import PolicyView, policy_status
from reconciler.operator.ports import Problem
from reconciler.operator.status_text import parse_time, short_bytes, short_duration
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.rewrite import Recluster
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.actions.set_sort_order import SetSortOrder
from reconciler.plan.budget import Budget, BudgetState
from reconciler.plan.ordering import Lexicographic
from reconciler.plan.plan import DeleteState, Plan, PlannedAction
from reconciler.plan.prediction import Prediction
from reconciler.table.schema import Field, Schema, SortColumn
from tests.examples import examples
from tests.said import Said

NOW = dt.datetime(2026, 3, 29, 12, tzinfo=dt.UTC)
LATER = NOW + dt.timedelta(hours=1)
PLAN, DIGEST = "p-" + "0" * 20, "sha256:" + "a" * 64
RECORD = JobRecord("tl-x-1", "u", PLAN, DIGEST, 2, Phase.RUNNING, NOW, 12345678901, 3601)


def check(value: Any, schema: dict[str, Any], path: str = "status") -> None:
    """Every field is one of the CRD's and within its bounds: the server would prune or refuse."""
    if isinstance(value, dict):
        for name, item in value.items():
            assert name in schema["properties"], f"{path}.{name} is not in the CRD"
            check(item, schema["properties"][name], f"{path}.{name}")
    elif isinstance(value, list):
        assert len(value) <= schema["maxItems"], path
        for item in value:
            check(item, schema["items"], path + "[]")
    elif isinstance(value, str):
        assert len(value) <= schema.get("maxLength", 10**9), path
        assert value in schema.get("enum", [value]), path


def status_schema(kind: str) -> dict[str, Any]:
    return structural_schema(kind)["properties"]["status"]


def layout(name: str, status: dict[str, Any], generation: int = 1) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "generation": generation},
        "spec": {"table": {"namespace": ["sales"], "name": name}},
        "status": {"observedGeneration": generation, **status},
    }


def layout_of(name: str, decision: Any, **status: Any) -> dict[str, Any]:
    conditions = merged((), layout_conditions(decision, (), known=True), 1, NOW)
    return layout(name, {"conditions": conditions, **status})


def test_a_transition_time_moves_with_the_status_only() -> None:
    first = merged((), [Condition(ConditionType.CONVERGED, Truth.FALSE, "OverBudget", "a")], 1, NOW)
    again = merged(
        first, [Condition(ConditionType.CONVERGED, Truth.FALSE, "BackOff", "b")], 2, LATER
    )
    flipped = merged(
        again, [Condition(ConditionType.CONVERGED, Truth.TRUE, "NothingToDo", "c")], 2, LATER
    )
    assert again[0]["lastTransitionTime"] == first[0]["lastTransitionTime"]
    assert (again[0]["reason"], again[0]["observedGeneration"]) == ("BackOff", 2)
    assert flipped[0]["lastTransitionTime"] != first[0]["lastTransitionTime"]


def test_a_new_generation_makes_converged_unknown_in_the_same_write() -> None:
    decision = Wait(LATER, Reason.NOTHING_TO_DO, "nothing")
    old = layout_of("t", decision)["status"] | {"lastAppliedPlan": "p-1"}
    new = accepted(old, 2, LATER)
    assert new["observedGeneration"] == 2
    assert condition_of(new, ConditionType.CONVERGED)["status"] == "Unknown"
    assert condition_of(new, ConditionType.RECONCILING)["status"] == "True"
    assert condition_of(new, ConditionType.READY)["status"] == "True"
    assert new["lastAppliedPlan"] == "p-1"
    check(new, status_schema(TABLE_LAYOUT))


@pytest.mark.parametrize(
    ("decision", "ready", "converged", "stalled"),
    [
        (Wait(LATER, Reason.NOTHING_TO_DO, ""), "True", "True", ""),
        (Wait(LATER, Reason.AWAITING_APPROVAL, ""), "True", "False", ""),
        (Wait(LATER, Reason.OVER_BUDGET, ""), "True", "False", ""),
        (Wait(LATER, Reason.CATALOG_UNAVAILABLE, ""), "False", "Unknown", ""),
        (Stall(Reason.VERIFICATION_FAILED, "x"), "True", "False", "VerificationFailed"),
        (Stall(Reason.CATALOG_NOT_FOUND, "x"), "False", "False", "CatalogNotFound"),
        (Stall(Reason.OWNED_ELSEWHERE, "x"), "True", "False", "OwnedElsewhere"),
        (Wait(LATER, Reason.JOB_NOT_STARTED, "x"), "True", "False", ""),
    ],
)
def test_ready_is_not_about_waiting_and_stalled_only_about_what_must_change(
    decision, ready, converged, stalled
) -> None:
    status = layout_of("t", decision)["status"]
    assert condition_of(status, ConditionType.READY)["status"] == ready
    assert condition_of(status, ConditionType.CONVERGED)["status"] == converged
    assert condition_of(status, ConditionType.STALLED).get("reason", "") == stalled
    assert condition_of(status, ConditionType.CONVERGED)["reason"] == decision.reason
    assert not condition_of(status, ConditionType.RECONCILING)
    check(status, status_schema(TABLE_LAYOUT))


def test_the_job_record_survives_its_status() -> None:
    launched = replace(RECORD, total=15, committed=3, layout_hash="sha256:1", stopped="Suspended")
    status = {"job": job_status(launched)}
    assert record_of(status) == launched
    check(status, status_schema(TABLE_LAYOUT))
    ahead = replace(RECORD, uid="", phase=Phase.PENDING)
    assert record_of({"job": job_status(ahead)}) == ahead


def test_a_phase_of_a_newer_version_counts_as_unsettled() -> None:
    body = job_status(RECORD) | {"phase": "Rewinding"}
    record = record_of({"job": body})
    assert record is not None and record.unsettled


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 2**62), st.integers(0, 10**9))
def test_a_reservation_is_read_back_to_the_byte_and_second(size: int, cpu: int) -> None:
    record = replace(RECORD, rewrite_bytes=size, cpu_seconds=cpu)
    assert record_of({"job": job_status(record)}) == record


def test_a_policy_counts_its_tables_and_gives_the_first_reason() -> None:
    layouts = [
        layout_of("a", Wait(LATER, Reason.NOTHING_TO_DO, "")),
        layout_of("b", Wait(LATER, Reason.BACK_OFF, ""), plan={"rewriteBytes": "1.5Ti"}),
        layout_of("c", Wait(LATER, Reason.AWAITING_APPROVAL, "p"), plan={"rewriteBytes": "512Gi"}),
        layout_of("d", Stall(Reason.CONFLICT_LOOP, "five in a row")),
    ]
    state = BudgetState(Budget("daily"), True, 400 << 30, 7200.0, 0, 0.0, None)
    view = PolicyView(layouts, 4, {"other": 1}, False, None, (state,), (100 << 30, 3600), "now")
    status = policy_status(None, view, 7, NOW)
    check(status, status_schema(POLICY))
    assert status["tables"] == {
        "matched": 4,
        "converged": 1,
        "pending": 2,
        "awaitingApproval": 1,
        "stalled": 1,
        "conflicting": 1,
    }
    assert status["summary"] == {"tables": "1/4", "pendingBytes": "2Ti"}
    assert condition_of(status, ConditionType.CONVERGED)["reason"] == "ConflictLoop"
    assert condition_of(status, ConditionType.READY)["status"] == "True"
    assert [item["reason"] for item in status["attention"]] == ["ConflictLoop", "AwaitingApproval"]
    assert status["budgets"][0]["rewriteBytes"] == {"spent": "300Gi", "reserved": "100Gi"}
    assert not changed(status, policy_status(status, view, 7, LATER))


def test_a_table_of_an_older_generation_is_not_counted_as_converged() -> None:
    old = layout_of("a", Wait(LATER, Reason.NOTHING_TO_DO, ""))
    old["metadata"]["generation"] = 2
    status = policy_status(None, PolicyView([old], 1, {}, False, None), 1, NOW)
    assert condition_of(status, ConditionType.CONVERGED)["status"] == "Unknown"


def test_a_dead_catalog_leaves_nothing_true() -> None:
    view = PolicyView([], 3, {}, False, Problem(Reason.CATALOG_UNAVAILABLE, "refused", False))
    status = policy_status(None, view, 1, NOW)
    assert condition_of(status, ConditionType.READY)["status"] == "False"
    assert condition_of(status, ConditionType.CONVERGED)["status"] == "Unknown"
    assert not condition_of(status, ConditionType.STALLED)


def test_attention_names_ten_tables_at_most_in_short_lines() -> None:
    layouts = [layout_of(f"t{n}", Stall(Reason.CONFLICT_LOOP, "x" * 900)) for n in range(30)]
    status = policy_status(None, PolicyView(layouts, 30, {}, False, None), 1, NOW)
    assert len(status["attention"]) == 10
    check(status, status_schema(POLICY))


def test_a_catalog_says_whether_its_queries_are_fresh() -> None:
    view = CatalogView(None, 14, (Truth.FALSE, Reason.STALE, "the last query is 40 days old"), 3)
    status = catalog_status(None, view, 1, NOW)
    check(status, status_schema(CATALOG))
    assert condition_of(status, ConditionType.READY)["status"] == "True"
    assert condition_of(status, ConditionType.WORKLOAD_FRESH)["reason"] == "Stale"
    assert not changed(status, catalog_status(status, view, 1, LATER))


SCHEMA = Schema(0, (Field(1, "day", "date"), Field(2, "region", "string")))
DAY, REGION = SortColumn(1, "asc"), SortColumn(2, "desc")


def planned(action: Action, size: int = 0, reason: str = "") -> PlannedAction:
    label = "recluster by day, day=2026-10-01"
    predicted = Prediction(bytes_in=size, label=label, reason=reason)
    return PlannedAction("a", action, DeleteState(0, 0, 0), predicted)


def recluster(files: int, key: tuple[SortColumn, ...] = ()) -> Recluster:
    inputs = tuple(f"f{n}" for n in range(files))
    return Recluster(ordering=Lexicographic(key), inputs=inputs)


def test_plan_lines_are_aggregated_by_type_with_keys_and_reasons() -> None:
    lines = plan_lines(
        [
            planned(recluster(3, (DAY,)), 1 << 30, "saves 3x"),
            planned(recluster(4, (DAY, REGION)), 2 << 30, "saves 3x"),
            planned(SetProperties(), reason="declared"),
            planned(SetSortOrder(key=(REGION,))),
        ],
        SCHEMA,
    )
    assert lines == [
        {
            "type": "Recluster", "count": 2, "files": 7, "rewriteBytes": "3Gi",
            "key": "day; day, region desc", "reason": "saves 3x",
        },
        {"type": "SetProperties", "count": 1, "reason": "declared"},
        {"type": "SetSortOrder", "count": 1, "key": "region desc"},
    ]  # fmt: skip
    check(lines, schema_of_plan()["actions"], "actions")


def schema_of_plan() -> dict[str, Any]:
    status = structural_schema(TABLE_LAYOUT)["properties"]["status"]["properties"]
    return dict(status["plan"]["properties"])


def a_plan(items: Sequence[PlannedAction], shapes: Sequence[dict[str, Any]]) -> Plan:
    return Plan(
        id=PLAN, catalog="c", table=("sales", "orders"), table_uuid="u", policy_hash="0",
        policy="p", base_snapshot_id=1, created=NOW, expires=LATER, actions=tuple(items),
        evidence={"shapes": list(shapes), "totals": []},
    )  # fmt: skip


def effect(text: str, now: int, after: int | None) -> dict[str, Any]:
    worse = after is not None and after > now
    return {
        "shapeId": text, "text": text, "queries": 4, "bytesNow": now, "bytesAfter": after,
        "worse": worse,
    }  # fmt: skip


def test_a_plan_says_which_shapes_get_slower_the_worst_first() -> None:
    shapes = [
        effect("better = ?", 10 << 30, 1 << 30), effect("little = ?", 100, 140),
        effect("most = ?", 1 << 30, 3 << 30), effect("fresh = ?", 0, 5 << 20),
        effect("least = ?", 100, 101), effect("unknown = ?", 100, None),
    ]  # fmt: skip
    plan = a_plan([planned(recluster(2, (DAY,)), 1)], shapes)
    body = plan_status(plan, plan.actions, DIGEST, "", SCHEMA)
    assert body["slower"] == [
        {"shape": "most = ?", "queries": 4, "factor": "3.00"},
        {"shape": "fresh = ?", "queries": 4},
        {"shape": "little = ?", "queries": 4, "factor": "1.40"},
    ]
    check(body, {"properties": schema_of_plan()}, "plan")
    money = "0.12 EUR to carry out; saves 3.40 EUR in 7 days"
    summary = plan_status(plan, plan.actions, DIGEST, "", SCHEMA, money)["summary"]
    assert summary == f"{body['summary']}; {money}"
    none = a_plan(plan.actions, shapes[:1])
    assert "slower" not in plan_status(none, none.actions, DIGEST, "", SCHEMA)


def test_a_plans_status_is_bounded_and_shows_no_value_of_a_partition() -> None:
    columns = tuple(Field(number, f"column_{number}" * 9, "int") for number in range(400))
    keys = [tuple(SortColumn(n, "asc") for n in range(k, k + 30)) for k in range(300)]
    items = [planned(recluster(1, key), 1, "why " * 900 + str(key)) for key in keys]
    plan = a_plan(items, [effect("x" * 5_000 + str(n), 1, 2) for n in range(50)])
    body = plan_status(plan, items, DIGEST, "", Schema(0, columns))
    check(body, {"properties": schema_of_plan()}, "plan")
    assert len(str(body)) < 4_000
    assert "2026-10-01" not in str(body)


def test_history_keeps_five() -> None:
    history: list[dict[str, Any]] = []
    for number in range(8):
        history = with_history(history, {"planId": str(number)})
    assert [item["planId"] for item in history] == ["7", "6", "5", "4", "3"]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0"), (1023, "1023"), (1024, "1Ki"), (3.42 * 2**40, "3.4Ti"), (412.3 * 2**30, "412Gi")],
)
def test_sizes_have_two_or_three_digits(size: float, text: str) -> None:
    assert short_bytes(size) == text


def test_durations_lose_what_does_not_matter() -> None:
    assert [short_duration(s) for s in (5, 725, 11_111, 100_000)] == ["5s", "12m", "3h5m", "28h"]


def test_times_of_the_server_are_read_with_and_without_fractions() -> None:
    assert parse_time("2026-03-29T12:00:00Z") == NOW
    assert parse_time("2026-03-29T12:00:00.000000Z") == NOW
    assert parse_time(None) is None


def policy_conditions(*layouts: dict[str, Any], matched: int = 0) -> dict[str, Any]:
    view = PolicyView(layouts, matched or len(layouts), {}, False, None)
    return {item["type"]: item for item in policy_status({}, view, 1, NOW)["conditions"]}


def test_one_stalled_table_stalls_its_policy_with_its_reason_and_leaves_it_ready(
    said: Said,
) -> None:
    denied = layout_of("a", Stall(Reason.ACCESS_DENIED, "the storage refused the key"))
    rest = [layout_of(f"t{n}", Wait(LATER, Reason.AWAITING_APPROVAL, "")) for n in range(499)]
    found = policy_conditions(denied, *rest)
    assert found["Ready"]["status"] == "True"
    assert (found["Stalled"]["status"], found["Stalled"]["reason"]) == ("True", "AccessDenied")
    assert "sales.a" in found["Stalled"]["message"]
    said(found["Stalled"]["message"])
    assert (found["Converged"]["status"], found["Converged"]["reason"]) == ("False", "AccessDenied")
    assert "Stalled" not in policy_conditions(*rest)


def test_a_policy_whose_own_job_runs_says_so_and_how_many_tables_wait() -> None:
    running = layout_of("a", Wait(LATER, Reason.REWRITE_RUNNING, "Job j runs"))
    rest = [layout_of(f"t{n}", Wait(LATER, Reason.CONCURRENCY_LIMIT, "full")) for n in range(4)]
    found = policy_conditions(running, *rest)["Converged"]
    assert found["reason"] == "RewriteRunning"
    assert "sales.a" in found["message"]
    assert re.findall(r"\d+", found["message"]) == ["5", "5", "4"]
    assert policy_conditions(*rest)["Converged"]["reason"] == "ConcurrencyLimit"


@pytest.mark.parametrize("own", [0, 1])
def test_tables_of_other_policies_are_counted_and_their_holders_named(own: int) -> None:
    layouts = [layout_of("a", Wait(LATER, Reason.NOTHING_TO_DO, ""))] * own
    held = {"first": 30, "second": 2, **{f"p{n}": 1 for n in range(9)}}
    status = policy_status({}, PolicyView(layouts, own, held, False, None), 1, NOW)
    (ready,) = [item for item in status["conditions"] if item["type"] == "Ready"]
    assert ready["reason"] == "Observed" and status["tables"]["conflicting"] == 41
    shown = re.findall(r"(\w+) \((\d+)\)", ready["message"])
    assert shown == [("first", "30"), ("second", "2"), ("p0", "1"), ("p1", "1"), ("p2", "1")]
    assert "41" in re.findall(r"\b\d+\b", ready["message"])
    assert ready["message"].endswith("6 more")


def test_why_and_stalled_agree_whatever_the_order_of_the_tables() -> None:
    decisions = [Stall(Reason.JOB_NOT_STARTED, "image"), Stall(Reason.ACCESS_DENIED, "key")]
    for order in (decisions, decisions[::-1]):
        found = policy_conditions(*(layout_of(f"t{n}", d) for n, d in enumerate(order)))
        assert found["Stalled"]["reason"] == found["Converged"]["reason"] == "AccessDenied"


def test_a_stall_of_a_newer_version_is_passed_on_as_it_is() -> None:
    layout = layout_of("a", Stall(Reason.ACCESS_DENIED, "x"))
    for item in layout["status"]["conditions"]:
        if item["type"] == "Stalled":
            item["reason"] = "OutOfOrbit"
    assert policy_conditions(layout)["Stalled"]["reason"] == "OutOfOrbit"


@pytest.mark.parametrize("reason", [Reason.CATALOG_NOT_FOUND, Reason.CATALOG_UNAVAILABLE])
def test_what_a_policy_lacks_is_the_reason_of_converged_too(reason: Reason) -> None:
    view = PolicyView((), 0, {}, False, Problem(reason, "m", reason is Reason.CATALOG_NOT_FOUND))
    found = {item["type"]: item for item in policy_status({}, view, 1, NOW)["conditions"]}
    assert (found["Converged"]["status"], found["Converged"]["reason"]) == ("Unknown", reason)


def test_an_event_marks_a_plan_a_stall_and_a_convergence_once() -> None:
    def status(decision: Any, **more: Any) -> dict[str, Any]:
        return layout_of("t", decision, **more)["status"]

    waits = Wait(LATER, Reason.AWAITING_APPROVAL, "p")
    planned = status(waits, plan={"id": PLAN, "summary": "2 Recluster"})
    stalled = status(Stall(Reason.ACCESS_DENIED, "key"))
    done = status(Wait(LATER, Reason.NOTHING_TO_DO, "nothing"))
    story = [{}, planned, planned, stalled, stalled, done, done]
    steps = pairwise(story)
    found = [event for old, new in steps for event in transitions(old, new)]
    assert [(reason, kind) for reason, _, kind in found] == [
        ("PlanProposed", "Normal"),
        ("Stalled", "Warning"),
        ("Converged", "Normal"),
    ]
    assert PLAN in found[0][1] and "AccessDenied" in found[1][1]
