"""The step over shared state: what one machine did, another and the operator's budgets see."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.loop.gating import policy_key
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.step import CONVERGED, run_until_converged
from reconciler.state.shared_state import SharedStore
from tests.loop.test_step import (
    DECLARED,
    EVERYTHING,
    multiset,
    never,
    quiet,
    step_of,
)


@pytest.mark.spark
def test_a_plan_carried_out_over_shared_state_is_known_to_all(
    spark,
    catalog_config,
    make_table,
    tmp_path: Path,
):
    namespace = ("state_of_shared_step",)
    table = make_table("shared")
    before = multiset(table)
    actor = LocalActor(SharedStore(catalog_config, namespace), tmp_path / "cache")
    actor.spark = spark
    step = step_of(catalog_config, "shared", **DECLARED)
    done = run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    assert done.state.state == CONVERGED
    assert multiset(table) == before
    other = SharedStore(catalog_config, namespace)
    uuid = done.after.observation.uuid
    rewritten = sum(e.outcome.read_bytes for e in other.ledger(uuid))
    assert rewritten > 0
    spent = other.spent(policy_key(step.policy), "another table")
    assert sum(charge.rewrite_bytes for charge in spent) == rewritten
    assert other.open_intents(uuid) == ()
    assert all(held.settled for held in other.reservations(uuid))
    plan_id = other.ledger(uuid)[0].plan_id
    plan = other.get_plan(plan_id)
    assert plan is not None
    assert plan.table_uuid == uuid
    assert LocalActor(other, tmp_path / "cache").outputs(uuid, plan_id)
