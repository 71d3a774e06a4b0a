"""Results that a person approves: from the policy to the branch, to main, or to the end."""

from __future__ import annotations

import datetime as dt

from reconciler.api.choices import EngineType
from reconciler.loop.driver_job import Driven, shortfall
from reconciler.loop.gating import Approvals
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.step import BLOCKED, CONVERGED, PENDING, CarriedOut, run_step
from reconciler.plan.budget import Gate
from reconciler.plan.execution import WAITING
from reconciler.state.state import StateStore
from tests.loop.conftest import rows_of
from tests.loop.test_step import DECLARED, EVERYTHING, multiset, never, quiet, step_of

CANDIDATE = {"branch": "candidate", "approval": "Required"}
NOW = dt.datetime.now(dt.UTC)
LATER = NOW + dt.timedelta(days=30)


def test_results_wait_for_a_person_and_nobody_else(catalog_config, make_table, tmp_path):
    table = make_table("waits", files=4, rows=500)
    rows, head = multiset(table), table.metadata.current_snapshot_id
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    actor.engine = EngineType.LOCAL
    step = step_of(catalog_config, "waits", NOW, safety=CANDIDATE, **DECLARED)

    def kinds(found):
        return [item.action.kind for item in found.pending]

    held = run_step(step, actor, EVERYTHING, quiet, never)
    assert held.result is not None and held.result.waiting == 1 and not held.result.done
    assert (held.state.state, held.state.reason) == (BLOCKED, "AwaitingApproval")
    assert kinds(held.after) == ["Publish"] and held.after.by_person
    driven = Driven(held.before.plan, CarriedOut(Gate(1, "", ""), held.result, held.after), 0)
    assert shortfall(driven) is None  # a job that did all that it may do has succeeded
    (entry,) = [e for e in actor.store.ledger(held.after.observation.uuid) if e.outcome.batch]
    assert entry.outcome.state == WAITING and entry.outcome.read_bytes > 0
    assert table.refresh().metadata.current_snapshot_id == head and multiset(table) == rows

    seen = held.after.observation
    assert seen.published is not None and set(seen.waiting[0].inputs) == set(seen.files.path)
    assert set(seen.waiting[0].outputs) == set(seen.published.path)
    effect = held.after.advice
    assert (effect.files_now, effect.files_after.mid) == (4, len(seen.published))
    assert effect.storage_after == effect.storage_now + seen.published.total_bytes

    plan = held.after.plan
    again = run_step(step, actor, EVERYTHING, quiet, never)
    assert again.result is None and again.before.plan.id == plan.id
    assert again.gate.reason == "AwaitingApproval"
    assert plan.base_snapshot_id == head
    (batch,) = again.before.observation.waiting
    at = dt.datetime.fromtimestamp(batch.at_ms / 1000, dt.UTC)
    assert abs(plan.expires - at - dt.timedelta(days=7)) < dt.timedelta(seconds=2)

    other = step_of(catalog_config, "waits", NOW, safety=CANDIDATE, layout={
        "clustering": {"mode": "Declared", "keys": ["k"]}})  # fmt: skip
    without = step_of(catalog_config, "waits", NOW, **DECLARED)
    late = step_of(catalog_config, "waits", LATER, safety=CANDIDATE, **DECLARED)
    for changed in (other, without, late):
        found = changed.propose(actor)
        assert kinds(found) == ["Discard"] and not found.by_person

    approved = Approvals(plan.id)
    done = run_step(step, actor, approved, quiet, never)
    assert done.result is not None and (done.result.commits, done.result.done) == (1, True)
    assert (done.state.state, kinds(done.after)) == (CONVERGED, [])
    assert multiset(table) == rows and set(table.refresh().metadata.refs) == {"main"}
    assert len(table.inspect.files()) == effect.files_after.mid < 4


def test_what_nobody_approves_in_time_is_dropped_and_planned_again(
    catalog_config, make_table, tmp_path
):
    table = make_table("expires", files=4, rows=500)
    rows = multiset(table)
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    actor.engine = EngineType.LOCAL
    step = step_of(catalog_config, "expires", NOW, safety=CANDIDATE, **DECLARED)
    first = run_step(step, actor, EVERYTHING, quiet, never)
    table.refresh().append(rows_of(9, 500))
    (batch,) = first.after.observation.waiting
    beside = step.propose(actor).observation.published
    assert beside is not None and len(beside) == len(batch.outputs) + 1
    rows = multiset(table)

    late = step_of(catalog_config, "expires", LATER, safety=CANDIDATE, **DECLARED)
    done = run_step(late, actor, Approvals(), quiet, never)  # needs nobody's approval
    assert done.result is not None and done.result.done
    assert set(table.refresh().metadata.refs) == {"main"} and multiset(table) == rows
    assert done.state.state in (PENDING, BLOCKED)
    (planned,), (again,) = first.before.pending, done.after.pending
    assert again.action.kind == planned.action.kind
    assert set(again.action.inputs) > set(planned.action.inputs), "the appended file as well"
