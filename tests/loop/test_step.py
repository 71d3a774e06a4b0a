"""The step on real tables: propose, gate, rewrite, observe again, until nothing is left."""

from __future__ import annotations

import dataclasses
import datetime as dt
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.document_codec import from_document
from reconciler.api.documents import TableLayoutPolicy
from reconciler.errors import BlockedError
from reconciler.loop import advised as advised_module
from reconciler.loop.gating import Approvals, plan_policy_key, policy_key
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.measure import window_read
from reconciler.loop.ports import Target
from reconciler.loop.propose import place_plan
from reconciler.loop.step import (
    BLOCKED,
    CONVERGED,
    Step,
    judge_gate,
    run_step,
    run_until_converged,
)
from reconciler.plan.execution import CONFLICT, Intent, Outcome, Used
from reconciler.plan.ledger import Reservation
from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.predicate import TRUE, And, Comparison, Ref
from reconciler.queries.table_view import OPEN_BYTES
from reconciler.state.state import StateStore
from tests.loop.conftest import rows_of

NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
DAY_MS = 86_400_000
EVERYTHING = Approvals(everything=True)


def policy(name: str, **spec: Any) -> TableLayoutPolicy:
    document = from_document(
        {
            "apiVersion": "layout.lakehouse.dev/v1alpha1",
            "kind": "TableLayoutPolicy",
            "metadata": {"name": "test"},
            "spec": {
                "catalogRef": {"name": "rec"},
                "tables": {"include": [f"loop.{name}"]},
                **spec,
            },
        }
    )
    assert isinstance(document, TableLayoutPolicy)
    return document


def step_of(config: CatalogConfig, name: str, now: dt.datetime = NOW, **spec: Any) -> Step:
    made = policy(name, **spec)
    return Step(Target(config, ("loop", name)), made, "test", lambda: now)


DECLARED = {"layout": {"clustering": {"mode": "Declared", "keys": ["day"]}}}


@pytest.fixture
def actor(tmp_path: Path) -> LocalActor:
    """Without a session: what starts one anyway fails the test by a second JVM's catalog."""
    return LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")


def multiset(table: Any) -> Counter[tuple[Any, ...]]:
    rows = table.refresh().scan().to_arrow().to_pylist()
    return Counter(tuple(row.values()) for row in rows)


def queries_on(
    table: Any,
    column: str,
    count: int,
    width: int,
    highest: int,
    days: int = 7,
    now: dt.datetime = NOW,
    read: str = "pad",
) -> list[Fragment]:
    """BETWEEN queries over one column, evenly over `days` up to now, reading it and `read`."""
    random = np.random.default_rng(3)
    fields = {f.name: f.field_id for f in table.schema().fields}
    ref = Ref(fields[column])
    until = int(now.timestamp() * 1000)
    made = []
    for number in range(count):
        low = int(random.integers(0, highest - width))
        made.append(
            Fragment(
                source="log",
                position=number,
                table_uuid=str(table.metadata.table_uuid),
                predicate=And((Comparison(ref, ">=", 0), Comparison(ref, "<=", 1))),
                literals=(low, low + width),
                moving=(None, None),
                projection=tuple(sorted({fields[column], fields[read]})),
                weight=1.0,
                event_ms=until - (count - number) * days * DAY_MS // count,
                engine="test",
            )
        )
    return made


def quiet(*_: Any) -> None:
    return None


def never() -> bool:
    return False


@pytest.mark.spark
def test_a_declared_key_is_reached_and_then_nothing_is_left(
    spark, catalog_config, make_table, actor
):
    table = make_table("declared")
    before = multiset(table)
    actor.spark = spark
    step = step_of(catalog_config, "declared", **DECLARED)
    done = run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    assert done.state.state == CONVERGED
    assert multiset(table) == before
    again = step.propose(actor)
    assert again.plan.empty
    assert again.observation.snapshot_id == done.after.observation.snapshot_id
    days = again.observation.files.columns[2]
    order = np.argsort(days.lower)
    assert (days.upper[order][:-1] <= days.lower[order][1:]).all()
    ledger = actor.store.ledger(again.observation.uuid)
    assert sum(e.outcome.rows for e in ledger if e.committed) == sum(before.values())


@pytest.mark.spark
def test_a_workload_is_served_as_predicted_and_then_nothing_is_left(
    spark, catalog_config, make_table, actor
):
    table = make_table("served", files=12, rows=6_000)
    before = multiset(table)
    actor.store.append_fragments(queries_on(table, "day", 400, 10, 400))
    actor.spark = spark
    step = step_of(catalog_config, "served")
    done = run_until_converged(step, actor, EVERYTHING, quiet, never, steps := _Steps())
    first = steps.seen[0]
    assert first.check is not None
    assert first.check.actual < 0.5 * first.check.before
    assert first.check.actual == pytest.approx(first.check.predicted, rel=0.25)
    predicted = first.before.advice.files_after
    assert predicted.low <= len(first.after.observation.files) <= predicted.high
    assert done.state.state == CONVERGED
    assert multiset(table) == before
    following = step.propose(actor)
    assert following.plan.empty
    assert _last_check(steps).actual == round(following.advice.read_now)
    measured = actor.history(done.after.observation.uuid).rho
    runs = sum(s.result is not None for s in steps.seen)
    assert len(measured) in (0, runs), "nothing is measured where Spark did not start"
    assert all(ratio > 0 for ratio in measured)
    label = step.propose(actor).settings.rho.label
    assert (label == "measured") == bool(measured)


@pytest.mark.spark
@pytest.mark.parametrize("few", [128, 4])
def test_what_a_plan_achieved_is_measured_as_it_was_predicted(
    spark, catalog_config, make_table, actor, monkeypatch, few
):
    """A table of few files is planned by all footers, and the next plan starts where this ended."""
    monkeypatch.setattr(advised_module, "FEW_FILES", few)
    table = make_table(f"measured_{few}", files=10, rows=6_000, target=1 << 19)
    asked = queries_on(table, "day", 300, 10, 400)
    actor.store.append_fragments(asked)
    actor.spark = spark
    step = step_of(catalog_config, f"measured_{few}")
    done = run_step(step, actor, EVERYTHING, quiet, never)
    check, files = done.check, done.after.observation.files
    assert check is not None and len(files) > 4
    exact = actor.footers(step.target, done.after.observation, np.arange(len(files)))
    size = done.before.settings.row_group_bytes
    found = window_read(files, workload_of_fragments(asked), exact, size)
    assert check.actual == round(found.bytes)
    assert check.actual == pytest.approx(check.predicted, rel=0.35)
    given = done.before
    was = window_read(given.observation.files, given.queries.workload, given.row_groups, size)
    assert check.saving == pytest.approx(was.cost - found.cost, abs=1)
    assert abs(check.saving - (check.before - check.actual)) > OPEN_BYTES  # opening counts too
    following = step.propose(actor)
    if few >= len(files):
        assert check.actual == round(following.advice.read_now)
    else:  # by bounds, but for the files that it sketched
        assert check.actual <= round(following.advice.read_now)


def test_the_footers_of_a_table_of_few_files_are_all_read_and_of_others_the_sketched_ones(
    catalog_config, make_table, actor, monkeypatch
):
    table = make_table("footers", files=6)
    step = step_of(catalog_config, "footers")
    assert step.propose(actor).row_groups is None, "no query, nothing to read"
    rare = [
        dataclasses.replace(query, weight=1e-3) for query in queries_on(table, "day", 5, 9, 400)
    ]
    actor.store.append_fragments(rare)
    few = step.propose(actor)
    assert few.row_groups is not None and few.row_groups.has_footer.all()
    monkeypatch.setattr(advised_module, "FEW_FILES", 5)
    many = step.propose(actor)
    assert not len(many.advice.wanted_sketches)
    assert many.row_groups is None
    assert few.advice.read_now <= many.advice.read_now * 1.1
    by_id = {"layout": {"clustering": {"mode": "Declared", "keys": ["id"]}}}
    wanted = step_of(catalog_config, "footers", **by_id)
    made = wanted.propose(actor)
    assert made.row_groups is not None, "only footers show whether a file follows the key inside"
    placed = place_plan(made.plan, wanted.target, wanted.policy, actor, NOW)
    assert placed.row_groups is not None
    assert (placed.row_groups.has_footer == made.row_groups.has_footer).all()


def _last_check(steps: _Steps) -> Any:
    return [result.check for result in steps.seen if result.check is not None][-1]


class _Steps:
    """Collects the results of steps."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, result: Any) -> None:
        self.seen.append(result)


@pytest.mark.spark
def test_an_approved_plan_runs_although_appends_keep_landing(
    spark, catalog_config, make_table, actor
):
    """The frozen plan is carried out whole; what was appended meanwhile is left as it landed."""
    table = make_table("busy", files=8)
    actor.spark = spark
    step = step_of(catalog_config, "busy", **DECLARED)
    plan = step.propose(actor).plan
    actor.put_plan(plan)
    actor.store.approve(plan.id, policy_key(step.policy))
    ended = threading.Event()
    appended = [0]

    def append() -> None:
        writer = table.catalog.load_table(table.name())
        while not ended.is_set():
            writer.refresh().append(rows_of(1_000 + appended[0], 10))
            appended[0] += 1
            ended.wait(0.5)

    appender = threading.Thread(target=append)
    appender.start()
    try:
        result = run_step(step, actor, Approvals(), quiet, never)
    finally:
        ended.set()
        appender.join()
    assert appended[0] > 1
    assert result.before.plan.id == plan.id
    assert result.result is not None
    assert result.result.done
    live = set(step.propose(actor).observation.files.path)
    assert not live & {path for item in plan.actions for path in item.action.inputs}
    assert table.refresh().scan().to_arrow().num_rows == 8 * 2_000 + 10 * appended[0]


def test_without_approval_nothing_is_touched(catalog_config, make_table, actor):
    table = make_table("unapproved", files=6)
    step = step_of(catalog_config, "unapproved", **DECLARED)
    result = run_step(step, actor, Approvals(), quiet, never)
    assert result.state.state == BLOCKED
    assert result.state.reason == "AwaitingApproval"
    assert table.refresh().metadata.current_snapshot_id == result.before.observation.snapshot_id
    assert actor.spark is None


def test_an_approval_does_not_hold_under_another_policy_that_plans_the_same(
    catalog_config, make_table, actor
):
    """Budgets, windows and suspension are not in a plan's id: who approved it went by them."""
    make_table("governed", files=6)
    budgets = [{"name": "daily", "per": "24h", "maxRewriteBytes": "0"}]
    governed = step_of(catalog_config, "governed", budgets=budgets, **DECLARED)
    plan = governed.propose(actor).plan
    actor.put_plan(plan)
    actor.store.approve(plan.id, policy_key(governed.policy))
    other = replace(governed, policy=replace(policy("governed", **DECLARED), name="another"))
    proposal = other.propose(actor)
    assert proposal.plan.id == plan.id
    assert plan_policy_key(proposal.plan) == policy_key(governed.policy)
    assert judge_gate(governed, proposal, actor, Approvals()).reason == "OverBudget"
    assert judge_gate(other, proposal, actor, Approvals()).reason == "AwaitingApproval"
    assert judge_gate(other, proposal, actor, Approvals(plan.id)).open


def test_a_zero_budget_blocks_and_says_so(catalog_config, make_table, actor):
    make_table("broke", files=6)
    budgets = [{"name": "none", "per": "24h", "maxRewriteBytes": "0"}]
    step = step_of(catalog_config, "broke", budgets=budgets, **DECLARED)
    result = run_step(step, actor, EVERYTHING, quiet, never)
    assert (result.state.state, result.state.reason) == (BLOCKED, "OverBudget")
    assert "none" in result.state.message
    assert actor.spark is None


def test_a_budget_holds_over_all_tables_of_its_policy(catalog_config, make_table, actor):
    make_table("first", files=6)
    make_table("second", files=6)
    budgets = [{"name": "daily", "per": "24h", "maxRewriteBytes": "100Mi"}]
    steps = {
        name: step_of(catalog_config, name, budgets=budgets, **DECLARED)
        for name in ("first", "second")
    }
    proposal = steps["first"].propose(actor)
    action = proposal.plan.actions[0]
    files = proposal.observation.files
    actor.record_start(proposal.plan, [action], files, policy_key(steps["first"].policy))
    intent = Intent(
        proposal.observation.uuid, ("loop", "first"), proposal.plan.id, "attempt", 1, (action.id,),
        1, "", (), (),
    )  # fmt: skip
    spent = Outcome("attempt", 1, action.id, "conflict", None, 100 << 20, 0, 0, 1, 0, 1.0, 1.0)
    actor.store.record_outcomes(intent, (spent,))
    later = dt.datetime.now(dt.UTC)
    step = dataclasses.replace(steps["second"], clock=lambda: later)
    result = run_step(step, actor, EVERYTHING, quiet, never)
    assert (result.state.state, result.state.reason) == (BLOCKED, "OverBudget")
    assert actor.spark is None


class _Killed(LocalActor):
    """Dies as a process does that is killed while it reads: nothing more is recorded."""

    def execute(self, request: Any, on_event: Any, should_stop: Any) -> Any:
        began = f"{request.plan_id}-{time.time_ns() // 1000:x}-1"
        self.store.record_intent(
            Intent(request.table_uuid, request.table, request.plan_id, began, 0,
                   request.action_ids, 1, "", (), ())
        )  # fmt: skip
        os.kill(os.getpid(), signal.SIGKILL)


def _killed_while_reading(step_arguments: Any, state: str, cache: str) -> None:
    config, name, budgets = step_arguments
    step = step_of(config, name, budgets=budgets, **DECLARED)
    step = dataclasses.replace(step, clock=lambda: dt.datetime.now(dt.UTC))
    run_step(step, _Killed(StateStore(Path(state)), Path(cache)), EVERYTHING, quiet, never)


def test_work_that_a_kill_cut_short_counts_in_full_until_its_window_has_passed(
    catalog_config, make_table, actor, tmp_path
):
    make_table("killed", files=6)
    now = dt.datetime.now(dt.UTC)
    clock = {"clock": lambda: now + dt.timedelta(minutes=1)}
    step = dataclasses.replace(step_of(catalog_config, "killed", **DECLARED), **clock)
    planned = step.propose(actor).plan
    size = planned.predicted.bytes_in
    assert size > 0

    def allowed(limit: int, hours: float = 0.0) -> str:
        budgets = [{"name": "daily", "per": "24h", "maxRewriteBytes": str(limit)}]
        made = step_of(catalog_config, "killed", budgets=budgets, **DECLARED)
        made = dataclasses.replace(made, clock=lambda: now + dt.timedelta(hours=hours, minutes=1))
        proposal = made.propose(actor)
        return judge_gate(made, proposal, actor, EVERYTHING).reason

    assert allowed(size) == ""
    budgets = [{"name": "daily", "per": "24h", "maxRewriteBytes": str(size)}]
    child = multiprocessing.get_context("spawn").Process(
        target=_killed_while_reading,
        args=((catalog_config, "killed", budgets), str(actor.store.directory), str(actor.cache)),
    )
    child.start()
    child.join(120)
    assert child.exitcode == -signal.SIGKILL
    (held,) = actor.store.reservations(planned.table_uuid)
    assert (held.settled, held.rewrite_bytes, held.plan_id) == (False, size, planned.id)
    assert allowed(2 * size - 1) == "OverBudget"
    assert allowed(2 * size) == ""
    assert allowed(size, hours=25) == ""


def test_a_reservation_is_settled_when_all_of_its_work_is_recorded(
    catalog_config, make_table, actor, monkeypatch
):
    make_table("settled", files=6)
    step = step_of(catalog_config, "settled", **DECLARED)
    during: list[int] = []

    def refuses(request: Any, on_event: Any, should_stop: Any) -> Any:
        spent = actor.spent(policy_key(step.policy), request.table_uuid)
        during.append(sum(charge.rewrite_bytes for charge in spent))
        raise BlockedError("another attempt holds the table")

    monkeypatch.setattr(actor, "execute", refuses)
    with pytest.raises(BlockedError):
        run_step(step, actor, EVERYTHING, quiet, never)
    uuid = step.propose(actor).observation.uuid
    (held,) = actor.store.reservations(uuid)
    assert held.settled
    assert during == [held.rewrite_bytes]
    assert actor.spent(policy_key(step.policy), uuid) == ()


def test_what_another_process_reserved_meanwhile_is_not_spent_twice(
    catalog_config, make_table, actor, monkeypatch
):
    make_table("raced", files=6)
    budgets = [{"name": "daily", "per": "24h", "maxRewriteBytes": "1Mi"}]
    now = dt.datetime.now(dt.UTC)
    step = dataclasses.replace(
        step_of(catalog_config, "raced", budgets=budgets, **DECLARED), clock=lambda: now
    )
    original = actor.reserve

    def reserve_after_another(reservation: Reservation) -> None:
        other = dataclasses.replace(
            reservation, id="other", table_uuid="another table", rewrite_bytes=1 << 20
        )
        original(other)
        original(reservation)

    monkeypatch.setattr(actor, "reserve", reserve_after_another)
    result = run_step(step, actor, EVERYTHING, quiet, never)
    assert result.result is None
    assert (result.state.state, result.state.reason) == (BLOCKED, "OverBudget")
    assert {r.id for r in actor.store.reservations(None) if not r.settled} == {"other"}
    assert actor.spark is None


def test_what_another_process_reserved_meanwhile_is_not_left_for_repeated_work(
    catalog_config, make_table, actor, monkeypatch
):
    make_table("raced_in_part", files=6)
    budgets = [{"name": "daily", "per": "24h", "maxRewriteBytes": "8Mi"}]
    step = step_of(catalog_config, "raced_in_part", budgets=budgets, **DECLARED)
    reserve, limits = actor.reserve, []

    def reserve_after_another(reservation: Reservation) -> None:
        other = dataclasses.replace(
            reservation, id="other", table_uuid="another table", rewrite_bytes=7 << 20
        )
        reserve(other)
        reserve(reservation)

    def refuses(request, on_event, should_stop):
        limits.append(request.bytes_limit)
        raise BlockedError("not today")

    monkeypatch.setattr(actor, "reserve", reserve_after_another)
    monkeypatch.setattr(actor, "execute", refuses)
    with pytest.raises(BlockedError):
        run_step(step, actor, EVERYTHING, quiet, never)
    assert limits == [1 << 20]


@pytest.mark.parametrize("limit", [[{"name": "d", "per": "24h", "maxRewriteBytes": "1Gi"}], []])
@pytest.mark.parametrize(("up_to", "runs"), [("1Mi", True), ("500Ki", False)])
def test_what_a_run_reserves_itself_is_not_beyond_its_approval(
    catalog_config, make_table, actor, monkeypatch, limit, up_to, runs
):
    """The table has 556 KiB: more than half of what may run without approval, or more."""
    make_table("unasked", files=6)
    approval = {"mode": "Manual", "automaticUpTo": {"rewriteBytes": up_to}}
    step = step_of(catalog_config, "unasked", budgets=limit, approval=approval, **DECLARED)

    def refuses(request, on_event, should_stop):
        size = sum(request.planned_bytes)
        assert not request.reserve(Used(), size)
        name = f"{request.plan_id}-{time.time_ns() // 1000:x}-1"
        intent = Intent(
            request.table_uuid, request.table, request.plan_id, name, 1, ("a01",), 1, "", (), ()
        )
        lost = Outcome(name, 1, "a01", CONFLICT, None, size, 0, 0, 0, 0, 1.0, 0.0)
        actor.store.record_outcomes(intent, (lost,))
        assert request.reserve(Used(size, 1.0), 2 * size)
        raise BlockedError("not today")

    monkeypatch.setattr(actor, "execute", refuses)
    if runs:
        with pytest.raises(BlockedError):
            run_step(step, actor, Approvals(), quiet, never)
    else:
        assert run_step(step, actor, Approvals(), quiet, never).gate.reason == "AwaitingApproval"


def test_the_same_inputs_give_the_same_bytes(catalog_config, make_table, actor):
    table = make_table("same", files=6)
    actor.store.append_fragments(queries_on(table, "day", 200, 10, 400))
    step = step_of(catalog_config, "same")
    assert step.propose(actor).plan.digest() == step.propose(actor).plan.digest()


def test_an_append_does_not_change_a_frozen_plan(catalog_config, make_table, actor):
    table = make_table("appended", files=6)
    step = step_of(catalog_config, "appended", **DECLARED)
    plan = step.propose(actor).plan
    actor.put_plan(plan)
    table.append(rows_of(99, 2_000))
    proposal = step.propose(actor)
    assert proposal.frozen
    assert proposal.plan.id == plan.id
    assert len(proposal.pending) == len(plan.actions)
    assert step.propose(actor, refresh=True).plan.id != plan.id


def test_an_expired_plan_does_not_stand(catalog_config, make_table, actor):
    make_table("expired", files=6)
    step = step_of(catalog_config, "expired", **DECLARED)
    actor.put_plan(step.propose(actor).plan)
    later = dataclasses.replace(step, clock=lambda: NOW + dt.timedelta(days=8))
    assert not later.propose(actor).frozen


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        ("matches_all", "NotPrunable"),
        ("too_rare", "BelowCost"),
        ("no_predicate", ""),
        ("window_past", "WindowMovedPast"),
    ],
)
def test_a_workload_that_no_layout_helps_gives_an_empty_plan(
    catalog_config, make_table, actor, scenario, reason
):
    table = make_table(scenario, files=6, rows=20_000)
    # Files of this size are not small: the workload alone decides.
    table.transaction().set_properties(
        {"write.target-file-size-bytes": str(1 << 19)}
    ).commit_transaction()
    actor.store.append_fragments(SCENARIOS[scenario](table))
    proposal = step_of(catalog_config, scenario).propose(actor)
    assert proposal.plan.empty
    reasons = {item.reason for item in proposal.advice.rejected}
    assert not reason or reason in reasons
    assert proposal.plan.evidence["emptyBecause"]


def _matches_all(table: Any) -> list[Fragment]:
    return [
        dataclasses.replace(fragment, literals=(-1, 10**6))
        for fragment in queries_on(table, "day", 300, 10, 400)
    ]


def _too_rare(table: Any) -> list[Fragment]:
    return queries_on(table, "day", 2, 10, 400)


def _no_predicate(table: Any) -> list[Fragment]:
    return [
        dataclasses.replace(fragment, predicate=TRUE, literals=(), moving=())
        for fragment in queries_on(table, "day", 300, 10, 400)
    ]


def _window_past(table: Any) -> list[Fragment]:
    """The last 7 days, asked for 40 days; all rows are of the first three weeks of October."""
    return [
        dataclasses.replace(
            fragment,
            literals=(fragment.event_ms // DAY_MS - 7, fragment.event_ms // DAY_MS),
        )
        for fragment in queries_on(table, "date", 300, 10, 400, days=40)
    ]


SCENARIOS: dict[str, Callable[[Any], list[Fragment]]] = {
    "matches_all": _matches_all,
    "too_rare": _too_rare,
    "no_predicate": _no_predicate,
    "window_past": _window_past,
}
