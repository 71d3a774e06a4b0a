"""The driver: exactly what was admitted, on the table that was planned and reports causes."""

from __future__ import annotations

import datetime as dt
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reconciler import errors
from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.claim import claim
from reconciler.engines.schedule import processes
from reconciler.kube.termination_message import Cause
from reconciler.loop import advised as advised_module
from reconciler.loop.driver_job import (
    Driven,
    claim_check,
    drive,
    last_words,
    load_plan,
    shortfall,
    summary,
)
from reconciler.loop.measure import window_read
from reconciler.loop.ports import Target
from reconciler.loop.step import Step
from reconciler.plan.conflicts import NO_CONFLICTS, Conflicts
from reconciler.plan.execution import Intent
from reconciler.plan.ledger import Reservation
from reconciler.state.plan_store import PlanStore
from reconciler.table.summary_keys import PLAN_ID
from tests.loop.runs import OWNER, Prepared, prepared

pytestmark = pytest.mark.spark


def actor_clock() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@pytest.fixture
def made(catalog_config: CatalogConfig, iceberg_catalog: Any, tmp_path: Path) -> Prepared:
    return prepared(catalog_config, iceberg_catalog, tmp_path / "plans")


def go(made: Prepared, spark: Any, should_stop: Any = lambda: False, **changes: Any) -> Driven:
    run = replace(made.run, **changes)
    return drive(
        run, made.config, made.actor(spark, run), lambda event: None, should_stop,
        lambda: dt.datetime.now(dt.UTC),
    )  # fmt: skip


def commits(made: Prepared) -> list[str]:
    snapshots = made.table.refresh().metadata.snapshots
    found = (snapshot.summary.additional_properties.get(PLAN_ID) for snapshot in snapshots)
    return [plan for plan in found if plan]


def test_a_run_does_the_plan_records_it_and_leaves_nothing_open(made: Prepared, spark: Any) -> None:
    before, uuid = made.rows(), made.plan.table_uuid
    made.actor(spark).record_conflicts(uuid, [made.plan.actions[0].action], ())
    driven = go(made, spark)
    assert made.rows() == before
    assert shortfall(driven) is None
    assert made.actor(spark).history(uuid).conflicts == NO_CONFLICTS
    assert driven.execution is not None and driven.execution.done
    assert commits(made) == [made.plan.id] * driven.execution.commits
    assert made.store.open_intents(uuid) == ()
    (reservation,) = made.store.reservations(uuid)
    assert reservation.settled and reservation.id.startswith(f"{made.plan.id}-1-")
    assert reservation.policy == made.run.policy_key
    done = [entry.outcome.action_id for entry in made.store.ledger(uuid) if entry.committed]
    assert done == list(made.run.action_ids)
    document = summary(made.run, driven)
    assert document["commits"] == driven.execution.commits
    assert document["state"] == "Done"


def test_a_run_of_housekeeping_is_carried_out_as_it_was_admitted(
    catalog_config: CatalogConfig, iceberg_catalog: Any, tmp_path: Path, spark: Any
) -> None:
    made = prepared(
        catalog_config, iceberg_catalog, tmp_path / "plans",
        layout={"clustering": {"mode": "None"}, "files": {"minInputFiles": 100}},
        maintenance={
            "rewriteManifests": "Auto", "expireSnapshots": {"olderThan": "0s", "retainLast": 1},
        },
    )  # fmt: skip
    kinds = [item.action.kind for item in made.plan.actions]
    assert kinds == ["RewriteManifests", "ExpireSnapshots"]
    before, files = made.rows(), made.files()
    snapshots = len(made.table.refresh().metadata.snapshots)
    driven = go(made, spark)
    assert shortfall(driven) is None
    assert driven.execution is not None and driven.execution.done
    table = made.table.refresh()
    assert len(table.metadata.current_snapshot().manifests(table.io)) == 1
    assert len(table.metadata.snapshots) < snapshots
    assert (made.rows(), made.files()) == (before, files)
    ledger = made.store.ledger(made.plan.table_uuid)
    done = [entry.outcome.action_id for entry in ledger if entry.committed]
    assert done == list(made.run.action_ids)


def test_a_run_plans_nothing(made: Prepared, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored plan is carried out; what is left is planned by the operator's next look."""
    planned: list[Any] = []
    monkeypatch.setattr(advised_module, "decide", planned.append)
    assert shortfall(go(made, spark)) is None
    assert planned == []


@pytest.mark.parametrize("few", [4, 128])
def test_what_a_plan_achieved_is_measured_on_the_files_that_it_was_based_on(
    catalog_config: CatalogConfig,
    iceberg_catalog: Any,
    tmp_path: Path,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
    few: int,
) -> None:
    """As measured by a step that proposed the plan itself: a run only has the stored plan."""
    monkeypatch.setattr(advised_module, "FEW_FILES", few)
    made = prepared(catalog_config, iceberg_catalog, tmp_path / "plans", 10, workload=True)
    actor = made.actor(spark)
    step = Step(Target(made.config, made.run.table), made.run.policy, "test", actor_clock)
    proposal = step.propose(actor)
    assert proposal.plan.id == made.plan.id and proposal.row_groups is not None
    driven = go(made, spark)
    assert driven.result is not None and driven.result.check is not None
    check, size = driven.result.check, proposal.row_group_bytes
    queries = proposal.queries.workload
    was = window_read(proposal.observation.files, queries, proposal.row_groups, size)
    assert check.before == round(was.bytes)
    files = driven.result.after.observation.files
    exact = actor.footers(step.target, driven.result.after.observation, np.arange(len(files)))
    assert check.actual == round(window_read(files, queries, exact, size).bytes)
    assert made.store.read_checks(made.plan.table_uuid) == (check,)


def test_a_run_that_was_done_already_is_a_success_without_work(made: Prepared, spark: Any) -> None:
    go(made, spark)
    files = made.files()
    again = go(made, spark, attempt=2)
    assert again.execution is None and shortfall(again) is None
    assert made.files() == files


def test_a_run_without_actions_only_settles_what_a_dead_driver_left(
    made: Prepared, spark: Any
) -> None:
    uuid = made.plan.table_uuid
    dead = subprocess.Popen(["true"])
    writer = processes.identity(dead.pid)
    dead.wait()
    opened = Intent(
        uuid, made.run.table, made.plan.id, f"{made.plan.id}-1", 0, made.run.action_ids,
        made.plan.base_snapshot_id or 0, "layout-1", (), (), writer,
    )  # fmt: skip
    made.store.record_intent(opened)
    made.store.record_intent(replace(opened, batch=1, action_ids=made.run.action_ids[:1]))
    made.table.append(made.table.scan(limit=1).to_arrow())
    files = made.files()
    driven = go(made, spark, action_ids=(), attempt=2, bytes_limit=0, cpu_limit_seconds=0)
    assert driven.settled == 1 and driven.execution is None and shortfall(driven) is None
    assert made.store.open_intents(uuid) == ()
    assert made.files() == files and commits(made) == []
    assert go(made, spark, attempt=3).execution is not None


def test_a_first_attempt_after_a_dead_one_of_that_number_reserves_for_itself(
    made: Prepared, spark: Any
) -> None:
    """A TableLayout that is deleted and made anew counts from one; what a driver that died under
    the old one had reserved stays charged."""
    uuid = made.plan.table_uuid
    dead = Reservation("", uuid, made.plan.id, made.run.policy_key, 1 << 20, 60.0)
    made.actor(spark).reserve(dead)
    driven = go(made, spark)
    assert driven.execution is not None
    first, second = made.store.reservations(uuid)
    assert first.id != second.id
    assert (first.settled, second.settled) == (False, True)
    of_table_alone = made.store.spent("no policy", uuid)
    spent = sum(item.rewrite_bytes for item in of_table_alone)
    assert spent == first.rewrite_bytes + second.rewrite_bytes


def test_only_the_admitted_actions_run(
    catalog_config: CatalogConfig, iceberg_catalog: Any, tmp_path: Path, spark: Any
) -> None:
    made = prepared(catalog_config, iceberg_catalog, tmp_path / "plans", partitions=3)
    assert len(made.plan.actions) == 3
    kept = {path for action in made.plan.actions[1:] for path in action.action.inputs}
    driven = go(made, spark, action_ids=(made.plan.actions[0].id,))
    assert shortfall(driven) is None
    assert kept <= set(made.files())
    assert not set(made.plan.actions[0].action.inputs) & set(made.files())


def test_no_work_begins_that_exceeds_what_was_reserved(made: Prepared, spark: Any) -> None:
    files = made.files()
    driven = go(made, spark, bytes_limit=1)
    words = shortfall(driven)
    assert words is not None and words.cause is Cause.CONFLICT
    assert made.files() == files


def test_a_stop_before_the_work_leaves_the_table_and_says_so(made: Prepared, spark: Any) -> None:
    files = made.files()
    with pytest.raises(errors.InterruptedByUser) as raised:
        go(made, spark, should_stop=lambda: True)
    assert last_words(raised.value).cause is Cause.STOPPED
    assert made.files() == files


def test_a_stop_during_the_work_ends_at_a_boundary(made: Prepared, spark: Any) -> None:
    before, asked = made.rows(), []

    def on_event(event: Any) -> None:
        asked.append(event.phase)

    driven = drive(
        made.run, made.config, made.actor(spark), on_event, lambda: "start" in asked,
        lambda: dt.datetime.now(dt.UTC),
    )  # fmt: skip
    words = shortfall(driven)
    assert words is not None and words.cause is Cause.STOPPED and words.retry
    assert made.rows() == before
    assert made.store.open_intents(made.plan.table_uuid) == ()


def test_a_table_that_others_claim_is_left_alone(made: Prepared, spark: Any) -> None:
    claim(made.config, made.run.table, "elsewhere", expected=OWNER)
    files = made.files()
    with pytest.raises(errors.VetoError, match="elsewhere") as raised:
        go(made, spark)
    assert last_words(raised.value).cause is Cause.USER_ERROR
    assert made.files() == files


def test_a_claim_that_is_lost_meanwhile_ends_the_attempt(made: Prepared) -> None:
    check = claim_check(made.run, lambda: "elsewhere")
    with pytest.raises(errors.VetoError, match="OwnedElsewhere"):
        check()

    def down() -> str:
        raise errors.UnavailableError("the catalog is down")

    claim_check(made.run, down)()
    claim_check(made.run, lambda: OWNER)()


def test_a_plan_that_lost_an_action_is_a_conflict(made: Prepared, spark: Any) -> None:
    made.table.refresh().delete("id < 10")
    files = made.files()
    with pytest.raises(errors.StalePlanError) as raised:
        go(made, spark)
    words = last_words(raised.value)
    assert words.cause is Cause.CONFLICT and words.retry
    assert made.files() == files
    assert made.actor(spark).history(made.plan.table_uuid).conflicts == Conflicts(data=1)


def test_an_expired_plan_is_not_begun(made: Prepared, spark: Any) -> None:
    with pytest.raises(errors.StalePlanError, match="expired"):
        drive(
            made.run, made.config, made.actor(spark), lambda event: None, lambda: False,
            lambda: made.plan.expires,
        )  # fmt: skip


def test_a_table_made_again_is_another_table(
    made: Prepared, iceberg_catalog: Any, spark: Any
) -> None:
    name = ".".join(made.run.table)
    schema = made.table.schema()
    iceberg_catalog.drop_table(name)
    iceberg_catalog.create_table(name, schema=schema)
    with pytest.raises(errors.StalePlanError, match="created again"):
        go(made, spark)


def test_the_stored_plan_must_be_the_admitted_one(made: Prepared) -> None:
    plans = PlanStore(made.config, made.store.plans._base)
    assert load_plan(made.run, plans) == made.plan
    with pytest.raises(errors.UserError, match="changed after"):
        load_plan(replace(made.run, plan_digest="sha256:" + "0" * 64), plans)
    for differs, changes in (
        ("its id", {"plan_id": "p-" + "0" * 20}),
        ("its table", {"table": ("driven", "other")}),
        ("action a99", {"action_ids": ("a99",)}),
    ):
        with pytest.raises(errors.UserError, match=f": {differs}$"):
            load_plan(replace(made.run, **changes), plans)


def test_a_plan_made_under_another_policy_is_refused(made: Prepared) -> None:
    spec = made.run.policy.spec
    changed = replace(
        made.run.policy,
        spec=replace(spec, objectives=replace(spec.objectives, max_file_count=7)),
    )
    plans = PlanStore(made.config, made.store.plans._base)
    with pytest.raises(errors.UserError, match="its policy"):
        load_plan(replace(made.run, policy=changed), plans)
    settling = replace(made.run, policy=changed, action_ids=())
    assert load_plan(settling, plans) == made.plan
