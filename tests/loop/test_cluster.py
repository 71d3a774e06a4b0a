"""The operator's I/O: one table looked at cheaply, proposals without Spark, failures closed."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.claim import claim
from reconciler.catalog.load import connect
from reconciler.errors import UnavailableError
from reconciler.loop import advised as advised_module
from reconciler.loop.gating import Approvals, PendingWork, gate_input, policy_key
from reconciler.loop.operator_actor import ClusterActor
from reconciler.loop.ports import Target
from reconciler.loop.propose import Proposal
from reconciler.loop.step import Step
from reconciler.operator.layout.look import look_at
from reconciler.plan.budget import Gate, Spent
from reconciler.plan.gate import gate
from reconciler.state.shared_state import SharedStore
from tests.loop.test_step import DECLARED, step_of
from tests.state.test_shared_state import new_catalog

OURS = "cluster-a/analytics"


@pytest.fixture
def config(tmp_path: Path) -> CatalogConfig:
    return new_catalog(tmp_path)


@pytest.fixture
def table(config: CatalogConfig) -> Any:
    catalog = connect(config)
    catalog.create_namespace("loop")
    made = None
    for number in range(6):
        random = np.random.default_rng(number)
        batch = pa.table({"id": np.arange(1_000), "day": random.integers(0, 400, 1_000)})
        made = made or catalog.create_table("loop.events", batch.schema)
        made.append(batch)
    return made


class World:
    """The operator's actor, and what its objects and its state record for the gate."""

    def __init__(self, config: CatalogConfig, cache: Path):
        self.store = SharedStore(config)
        self.readable = True
        self.actor = ClusterActor(
            store=self.store,
            cache=cache,
            timeout=10.0,
            claims_as=OURS,
            plans=self.store.plans,
        )

    def approved(self, plan_id: str, policy: str) -> bool:
        return self.store.approved(plan_id, policy)

    def spent(self, policy: str, table_uuid: str, besides: str = "") -> tuple[Spent, ...] | None:
        return self.store.spent(policy, table_uuid) if self.readable else None

    def automatic_spent(
        self, table_uuid: str, since: dt.datetime, approved: Collection[str], besides: str = ""
    ) -> int:
        return self.actor.automatic_spent(table_uuid, since, approved)

    def ask(self, step: Step, proposal: Proposal, own: str = "") -> Gate:
        """The gate's answer, as the operator asks it. own: the TableLayout's approvedPlan."""
        seen = proposal.observation
        stale = proposal.queries_too_old
        work = PendingWork(proposal.plan, proposal.pending, seen.uuid, "", "", "", "", stale)
        return gate(gate_input(step.policy, work, self, Approvals(own), step.clock()))


@pytest.fixture
def world(config: CatalogConfig, tmp_path: Path) -> World:
    return World(config, tmp_path / "cache")


def test_a_plan_is_proposed_published_and_passes_the_gate_once_approved(
    world: World, config: CatalogConfig, table: Any
) -> None:
    step = step_of(config, "events", **DECLARED)
    proposal = step.propose(world.actor)
    assert proposal.pending
    assert world.ask(step, proposal).reason == "AwaitingApproval"
    world.actor.put_plan(proposal.plan)
    found = world.actor.published(proposal.observation.uuid, proposal.plan.id)
    assert found == proposal.plan
    table.append(pa.table({"id": [1], "day": [1]}))
    assert step.propose(world.actor).frozen
    assert world.ask(step, proposal, own=proposal.plan.id).open
    world.store.approve(proposal.plan.id, policy_key(step.policy))
    assert world.ask(step, proposal).open


def test_a_look_plans_once_although_an_older_approved_plan_stands(
    world: World, config: CatalogConfig, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = step_of(config, "events", **DECLARED)
    approved = step.propose(world.actor).plan
    world.actor.put_plan(approved)
    table.append(pa.table({"id": [1], "day": [1]}))
    monkeypatch.setattr(world.store, "standing_plan", lambda *_: None)
    decisions: list[Any] = []
    decided = advised_module.decide
    monkeypatch.setattr(
        advised_module, "decide", lambda given: decisions.append(given) or decided(given)
    )
    look = look_at(world.actor, step.target, step.policy, "f", [approved.id], step.clock())
    assert look.plan.id == approved.id
    assert look.pending and look.lapsed is None
    assert len(decisions) == 1


def test_an_unreadable_ledger_admits_nothing(
    world: World, config: CatalogConfig, table: Any
) -> None:
    budgets = [{"name": "daily", "per": "24h", "maxRewriteBytes": "1Ti"}]
    step = step_of(config, "events", budgets=budgets, **DECLARED)
    proposal = step.propose(world.actor)
    assert world.ask(step, proposal, own=proposal.plan.id).open
    world.readable = False
    closed = world.ask(step, proposal, own=proposal.plan.id)
    assert (closed.open, closed.reason) == (False, "OverBudget")


def test_our_own_claim_allows_the_work_and_a_foreign_one_prevents_it(
    world: World, config: CatalogConfig, table: Any
) -> None:
    target = Target(config, ("loop", "events"))
    claim(config, target.identifier, OURS)
    assert world.actor.owner(world.actor.observe(target)) == ""
    claim(config, target.identifier, "another", expected=OURS)
    assert world.actor.owner(world.actor.observe(target)) == "another"


def test_a_pointer_costs_one_catalog_call_and_moves_with_the_table(
    world: World, config: CatalogConfig, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.manifest import ManifestFile

    target = Target(config, ("loop", "events"))
    first = world.actor.pointer(target)
    assert first is not None
    assert first.uuid == str(table.metadata.table_uuid)
    calls = []
    original = SqlCatalog.load_table
    monkeypatch.setattr(
        SqlCatalog, "load_table", lambda self, name: calls.append(name) or original(self, name)
    )
    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", None)
    assert world.actor.pointer(target) == first
    assert len(calls) == 1
    table.append(pa.table({"id": [1], "day": [1]}))
    later = world.actor.pointer(target)
    assert later is not None
    assert later.metadata_location != first.metadata_location
    assert world.actor.pointer(Target(config, ("loop", "missing"))) is None
    assert world.actor.pointer(Target(config, ("missing", "events"))) is None


def test_a_catalog_that_fails_is_connected_anew(
    world: World, config: CatalogConfig, table: Any
) -> None:
    target = Target(config, ("loop", "events"))
    database = Path(config.properties["uri"].removeprefix("sqlite:///").split("?")[0])
    body = database.read_bytes()
    assert world.actor.pointer(target) is not None
    database.write_bytes(b"broken")
    with pytest.raises(UnavailableError):
        world.actor.pointer(target)
    database.write_bytes(body)
    assert world.actor.pointer(target) is not None


def test_the_operator_s_part_imports_no_spark() -> None:
    import subprocess

    module = "reconciler.loop.operator_actor"
    code = f"import sys, {module}; print(any('pyspark' in m for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
