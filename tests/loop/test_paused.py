"""A paused table and one of another optimizer: nothing is done, before or during a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.status import since
from reconciler.errors import PausedError
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.step import BLOCKED, run_step
from reconciler.plan.execution import Event
from tests.loop.test_local_engine import live_rows
from tests.loop.test_step import DECLARED, EVERYTHING, never, quiet, step_of


def set_property(table: Any, name: str, value: str | None) -> None:
    change = table.refresh().transaction()
    change = (
        change.remove_properties(name) if value is None else change.set_properties({name: value})
    )
    change.commit_transaction()


def test_a_paused_table_is_left_alone_until_the_property_is_gone(
    catalog_config: Any, make_table: Any, actor: LocalActor
) -> None:
    table = make_table("paused", files=6)
    set_property(table, "layout.paused", "restore-until-friday")
    step = step_of(catalog_config, "paused", **DECLARED)
    head = table.metadata.current_snapshot_id
    held = run_step(step, actor, EVERYTHING, quiet, never)
    assert (held.state.state, held.state.reason) == (BLOCKED, "Paused")
    assert "restore-until-friday" in held.state.message and held.before.pending
    assert since(held.before, held.state) is None
    assert table.refresh().metadata.current_snapshot_id == head
    set_property(table, "layout.paused", None)
    assert run_step(step, actor, EVERYTHING, quiet, never).result is not None


def test_a_table_that_is_paused_during_a_run_takes_no_commit_of_it(
    catalog_config: Any, make_table: Any, actor: LocalActor
) -> None:
    table = make_table("paused_meanwhile", files=6)
    step = step_of(catalog_config, "paused_meanwhile", **DECLARED)
    head, rows = table.metadata.current_snapshot_id, live_rows(table)
    files = set(Path(table.location().removeprefix("file://")).rglob("*.parquet"))

    def pausing(event: Event) -> None:
        if event.phase == "commit":
            set_property(table, "layout.paused", "true")

    with pytest.raises(PausedError):
        run_step(step, actor, EVERYTHING, pausing, never)
    assert table.refresh().metadata.current_snapshot_id == head and live_rows(table) == rows
    left = set(Path(table.location().removeprefix("file://")).rglob("*.parquet"))
    assert left == files


def test_another_optimizer_blocks_until_the_policy_allows_it(
    catalog_config: Any, make_table: Any, actor: LocalActor
) -> None:
    table = make_table("optimized", files=6)
    set_property(table, "self-optimizing.enabled", "true")
    held = run_step(
        step_of(catalog_config, "optimized", **DECLARED), actor, EVERYTHING, quiet, never
    )
    assert (held.state.state, held.state.reason) == (BLOCKED, "OtherOptimizer")
    assert "self-optimizing.enabled" in held.state.message and held.before.pending
    allowing = step_of(
        catalog_config, "optimized", safety={"allowOtherOptimizers": True}, **DECLARED
    )
    assert run_step(allowing, actor, EVERYTHING, quiet, never).result is not None
