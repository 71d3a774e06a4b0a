"""Housekeeping from the policy to Converged, on a real table."""

from __future__ import annotations

import datetime as dt

import pytest

from reconciler.loop.local_actor import LocalActor
from reconciler.loop.step import CONVERGED, run_until_converged
from reconciler.state.state import StateStore
from tests.loop.conftest import rows_of
from tests.loop.test_step import EVERYTHING, multiset, never, quiet, step_of

LATER = dt.datetime.now(dt.UTC) + dt.timedelta(hours=2)
NONE = {"layout": {"clustering": {"mode": "None"}, "files": {"minInputFiles": 100}}}
EXPIRE = {"expireSnapshots": {"olderThan": "0s", "retainLast": 2}}


@pytest.fixture
def appended(iceberg_catalog):
    """Six appends; the third is tagged."""
    iceberg_catalog.create_namespace_if_not_exists("loop")
    table = iceberg_catalog.create_table("loop.upkeep", schema=rows_of(0, 10).schema)
    for number in range(6):
        table.append(rows_of(number, 10))
        if number == 2:
            table.manage_snapshots().create_tag(
                table.metadata.current_snapshot_id, "release"
            ).commit()
    return table


@pytest.mark.spark
def test_snapshots_expire_by_the_policy_and_the_table_converges(
    spark, catalog_config, appended, tmp_path
):
    rows, refs = multiset(appended), dict(appended.metadata.refs)
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    actor.spark = spark
    left = step_of(catalog_config, "upkeep", LATER, **NONE)
    assert left.propose(actor).plan.empty
    step, steps = step_of(catalog_config, "upkeep", LATER, maintenance=EXPIRE, **NONE), []
    done = run_until_converged(step, actor, EVERYTHING, quiet, never, steps.append)
    assert done.state.state == CONVERGED, done.state
    (planned,) = steps[0].before.plan.actions
    assert (planned.action.kind, len(planned.action.snapshots)) == ("ExpireSnapshots", 3)
    assert multiset(appended) == rows
    assert dict(appended.metadata.refs) == refs
    assert len(appended.metadata.snapshots) == 3
    assert appended.scan(snapshot_id=refs["release"].snapshot_id).to_arrow().num_rows == 30
    (entry,) = actor.store.ledger(done.after.observation.uuid)
    assert entry.outcome.detail.startswith("snapshots: 6 -> 3; ")


def test_a_standing_plan_keeps_the_snapshot_that_it_was_made_on(
    catalog_config, make_table, tmp_path
):
    table = make_table("upkeep_needed", files=6, rows=200)
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    declared = {"layout": {"clustering": {"mode": "Declared", "keys": ["day"]}}}
    first = step_of(catalog_config, "upkeep_needed", LATER, **declared).propose(actor)
    actor.put_plan(first.plan)
    for number in range(6, 9):
        table.refresh().append(rows_of(number, 200))
    step = step_of(catalog_config, "upkeep_needed", LATER, maintenance=EXPIRE, **NONE)
    (planned,) = step.propose(actor).plan.actions
    assert first.plan.base_snapshot_id not in planned.action.snapshots
    assert len(planned.action.snapshots) == 5
