"""Work that a policy of the catalog forbids is not planned, and a plan of before does not run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.choices import EngineType
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.ports import Target
from reconciler.loop.step import BLOCKED, IDLE, run_step
from reconciler.plan import reasons
from reconciler.state.state import StateStore
from reconciler.table.catalog_policies import CatalogBounds, bounds_of
from reconciler.table.observation import Observation
from tests.conftest import sqlite_catalog
from tests.loop.conftest import rows_of
from tests.loop.test_maintenance import EXPIRE, LATER, NONE
from tests.loop.test_step import DECLARED, EVERYTHING, never, quiet, step_of

OFF = {"enable": False}


def bounds(kind: str, content: dict[str, Any]) -> CatalogBounds:
    return bounds_of([{"policy-type": f"system.{kind}", "name": "theirs", "content": content}])


class Bound(LocalActor):
    """Sees tables as of a catalog with these bounds."""

    bounds = bounds_of([])

    def observe(self, target: Target) -> Observation:
        seen = super().observe(target)
        return replace(seen, metadata=replace(seen.metadata, bounds=self.bounds))


@pytest.fixture
def actor(tmp_path: Path) -> Bound:
    made = Bound(StateStore(tmp_path / "state"), tmp_path / "cache")
    made.engine = EngineType.LOCAL
    return made


@pytest.fixture
def config(tmp_path: Path) -> CatalogConfig:
    (tmp_path / "warehouse").mkdir()
    return sqlite_catalog(tmp_path)


@pytest.fixture
def table(config: CatalogConfig) -> Any:
    catalog = SqlCatalog("rec", **config.properties)
    catalog.create_namespace("loop")
    made = catalog.create_table("loop.bound", rows_of(0, 9).schema)
    for number in range(4):
        made.append(rows_of(number, 50))
    return made


def test_a_table_that_may_not_be_compacted_is_left_alone(
    config: Any, table: Any, actor: Bound
) -> None:
    step, head = step_of(config, "bound", **DECLARED), table.metadata.current_snapshot_id
    actor.bounds = bounds("data-compaction", OFF)
    held = run_step(step, actor, EVERYTHING, quiet, never)
    assert (held.state.state, held.state.reason) == (IDLE, "CatalogPolicy")
    assert "theirs" in held.state.message
    assert not any(one.action.inputs for one in held.before.pending)
    assert reasons.CATALOG_POLICY in {one.reason for one in held.before.advice.rejected}
    assert table.refresh().metadata.current_snapshot_id == head


def test_a_plan_of_before_does_not_run(config: Any, table: Any, actor: Bound) -> None:
    step = step_of(config, "bound", **DECLARED)
    proposal = step.propose(actor)
    assert proposal.pending
    actor.put_plan(proposal.plan)
    seen = proposal.observation
    stricter = replace(seen.metadata, bounds=bounds("data-compaction", OFF))
    later = replace(proposal, observation=replace(seen, metadata=stricter))
    held = run_step(step, actor, EVERYTHING, quiet, never, later)
    assert (held.state.state, held.state.reason, held.result) == (BLOCKED, "CatalogPolicy", None)


def test_the_size_of_the_catalog_is_taken_where_the_policy_names_none(
    config: Any, table: Any, actor: Bound
) -> None:
    actor.bounds = bounds("data-compaction", {"enable": True, "target_file_size_bytes": 64 << 20})
    found = step_of(config, "bound", **DECLARED).propose(actor)
    assert found.settings.target_bytes == 64 << 20 and not found.settings.target_auto
    layout = {"layout": {**DECLARED["layout"], "files": {"targetSize": "32Mi"}}}
    found = step_of(config, "bound", **layout).propose(actor)
    assert found.settings.target_bytes == 32 << 20


@pytest.mark.parametrize(
    ("kind", "content"),
    [("snapshot-expiry", OFF),
     ("snapshot-expiry", {"enable": True, "config": {"min_snapshot_to_keep": 4}}),
     ("snapshot-expiry", {"enable": True, "config": {"max_snapshot_age_days": 900}})],
)  # fmt: skip
def test_no_snapshot_expires_that_the_catalog_keeps(
    config: Any, table: Any, actor: Bound, kind: str, content: dict[str, Any]
) -> None:
    step = step_of(config, "bound", LATER, maintenance=EXPIRE, **NONE)
    assert [one.action.kind for one in step.propose(actor).pending] == ["ExpireSnapshots"]
    actor.bounds = bounds(kind, content)
    assert step.propose(actor).pending == ()


def test_a_waiting_expiry_falls_once_the_catalog_keeps_more(
    config: Any, table: Any, actor: Bound
) -> None:
    step = step_of(config, "bound", LATER, maintenance=EXPIRE, **NONE)
    waiting = step.propose(actor)
    assert waiting.pending
    actor.put_plan(waiting.plan)
    actor.bounds = bounds("snapshot-expiry", {"enable": True, "max_snapshot_age_days": 900})
    assert step.propose(actor).pending == ()


def test_orphans_stay_that_the_catalog_keeps(config: Any, table: Any, actor: Bound) -> None:
    asked = {"removeOrphans": {"olderThan": "48h"}}
    step = step_of(config, "bound", maintenance=asked, **DECLARED)
    for content in (OFF, {"enable": True, "older_than": 1}):
        actor.bounds = bounds("orphan-file-removal", content)
        found = step.propose(actor)
        assert reasons.CATALOG_POLICY in {one.reason for one in found.advice.rejected}
    actor.bounds = bounds("orphan-file-removal",
                          {"enable": True, "max_orphan_file_age_in_days": 10})  # fmt: skip
    search = step.propose(actor).settings.remove_orphans
    assert search is not None and search.age_ms == 10 * 24 * 3_600_000
