"""Plans that take plans back, carried out without a JVM: rows by DuckDB, files by pyiceberg.

Nothing here asks the code under test which rows a table has.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from reconciler.errors import StalePlanError, UserError
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.measure import window_read
from reconciler.loop.propose import Proposal
from reconciler.loop.step import Step, StepResult, run_step, run_until_converged
from reconciler.loop.undo import propose_undo
from reconciler.plan import reasons
from reconciler.plan.plan import plan_from_document
from reconciler.plan.totals import Quantity, total_of
from tests.delete_commits import delete_equal
from tests.loop.conftest import rows_of
from tests.loop.test_local_engine import data_files, live_rows, sorted_by_day
from tests.loop.test_step import (
    EVERYTHING,
    never,
    queries_on,
    quiet,
    step_of,
)

DECLARED: dict[str, Any] = {"layout": {"clustering": {"mode": "Declared", "keys": ["day"]}}}


def clustered(config: Any, table: Any, actor: LocalActor, name: str, **spec: Any) -> Step:
    """A step on the table after its plan under the declared key."""
    step = step_of(config, name, **{**DECLARED, **spec})
    run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    assert sorted_by_day(table)
    return step


def undo(step: Step, actor: LocalActor, plan_id: str | None = None) -> Proposal:
    return propose_undo(step.wanted(), actor, step.clock(), plan_id)


def carried_out(
    step: Step, actor: LocalActor, proposal: Proposal, on_event: Callable[[Any], Any] = quiet
) -> StepResult:
    actor.put_plan(proposal.plan)
    return run_step(step, actor, EVERYTHING, on_event, never, proposal)


def kinds(proposal: Proposal) -> set[str]:
    return {item.action.kind for item in proposal.plan.actions}


def ids_in_order(table: Any) -> bool:
    """Whether the files follow each other by id, as they did when they were appended."""
    spans = sorted(
        duckdb.sql(f"select min(id), max(id) from '{path.removeprefix('file://')}'").fetchall()[0]
        for path in data_files(table)
    )
    return all(one[1] < two[0] for one, two in pairwise(spans))


def test_a_plan_is_rolled_back_and_not_made_again_until_the_policy_changes(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor
) -> None:
    table = make_table("undo_rollback", files=5, rows=600)
    rows, files, head = live_rows(table), data_files(table), table.current_snapshot().snapshot_id
    actor.store.append_fragments(queries_on(table, "day", 60, 10, 400))
    step = step_of(catalog_config, "undo_rollback", **DECLARED)
    with pytest.raises(UserError):
        undo(step, actor)
    seen = actor.observe(step.target)
    before = window_read(seen.files, actor.recorded_queries(seen).workload, None, 1 << 18)
    step = clustered(catalog_config, table, actor, "undo_rollback")
    made = undo(step, actor)
    assert kinds(made) == {"RollBack"}
    read = total_of(made.plan.evidence, Quantity.READ)
    assert read is not None and read.after == round(before.bytes) != read.now
    seen = actor.observe(step.target)
    footers = actor.footers(step.target, seen, np.arange(len(seen.files)))
    queries = actor.recorded_queries(seen).workload
    assert read.now == round(window_read(seen.files, queries, footers, 1 << 18).bytes)
    assert total_of(made.plan.evidence, Quantity.FILES).after == len(files)  # type: ignore[union-attr]
    assert plan_from_document(made.plan.document()).id == made.plan.id
    done = carried_out(step, actor, made)
    assert done.result is not None and done.result.done
    assert live_rows(table) == rows
    assert sorted(data_files(table)) == sorted(files)
    assert table.current_snapshot().snapshot_id == head
    assert done.after.plan.empty
    assert reasons.UNDONE in {one.reason for one in done.after.advice.rejected}
    for plan in (None, made.plan.id, str(made.plan.evidence["undo"]["plan"]), "p-" + "0" * 20):
        with pytest.raises(UserError):
            undo(step, actor, plan)
    changed: dict[str, Any] = {"layout": {"clustering": {"mode": "Declared", "keys": ["k"]}}}
    other = step_of(catalog_config, "undo_rollback", **changed)
    assert not other.propose(actor).plan.empty


def test_savings_are_taken_back_from_when_it_is_rolled_back(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor
) -> None:
    table = make_table("undo_savings", files=5, rows=600)
    step = clustered(catalog_config, table, actor, "undo_savings")
    (plan,) = {entry.plan_id for entry in actor.store.ledger()}
    now = dt.datetime.now(dt.UTC)
    actor.store.append_fragments(
        queries_on(table, "day", 40, 10, 400, days=1, now=now + dt.timedelta(days=2))
    )
    seen = actor.observe(step.target)
    before = actor.credits(seen, actor.recorded_queries(seen), actor.history(seen.uuid))
    assert before[plan].table_least > 0
    made = undo(step, actor)
    carried_out(step, actor, made)
    seen = actor.observe(step.target)
    after = actor.credits(seen, actor.recorded_queries(seen), actor.history(seen.uuid))
    assert sum(one.table_least for one in after.values()) == pytest.approx(0.0, abs=1.0)
    assert sum(one.table_most for one in after.values()) == pytest.approx(0.0, abs=1.0)
    assert after[made.plan.id].table_most < 0


def test_an_append_since_makes_it_a_rewrite_by_the_older_order(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor
) -> None:
    table = make_table("undo_rewrite", files=5, rows=600)
    files = len(data_files(table))
    step = clustered(catalog_config, table, actor, "undo_rewrite")
    table.refresh().append(rows_of(40, 200))
    appended = set(data_files(table))
    delete_equal(table.refresh(), "id", list(range(100, 300)))
    rows = live_rows(table)
    made = undo(step, actor)
    assert kinds(made) == {"Restore"}
    (item,) = made.plan.actions
    assert [column.field_id for column in item.action.ordering.key] == [1]  # type: ignore[attr-defined]
    assert item.predicted.cost and item.predicted.rewrite_bytes
    tight = [{"name": "small", "per": "1h", "maxRewriteBytes": "1Ki"}]
    poor = step_of(catalog_config, "undo_rewrite", **DECLARED, budgets=tight)
    refused = carried_out(poor, actor, undo(poor, actor))
    assert refused.result is None and refused.gate.reason == "OverBudget"
    done = carried_out(step, actor, made)
    assert done.result is not None and done.result.done
    assert live_rows(table) == rows
    assert ids_in_order(table)
    assert len(appended & set(data_files(table))) == 1
    assert abs(len(data_files(table)) - 1 - files) <= 1
    held = {p for one in done.after.advice.rejected if one.reason == reasons.UNDONE
            for p in one.inputs}  # fmt: skip
    assert held == set(data_files(table)) - appended
    planned = {p for item in done.after.plan.actions for p in item.action.inputs}
    assert held.isdisjoint(planned)
    assert reasons.NOT_REWRITABLE not in {one.reason for one in done.after.advice.rejected}


def test_a_commit_that_comes_before_the_rollback_is_kept(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor, monkeypatch: Any
) -> None:
    """The request names the snapshot that has to be current: it is refused, and judged again."""
    from reconciler.commit.metadata_changes import LocalMetadataChange

    table = make_table("undo_race", files=5, rows=600)
    step = clustered(catalog_config, table, actor, "undo_race")
    made = undo(step, actor)
    send, came = LocalMetadataChange.send, list[int]()

    def late(change: LocalMetadataChange) -> Any:
        if not came:
            came.append(1)
            table.refresh().append(rows_of(31, 100))
        return send(change)

    monkeypatch.setattr(LocalMetadataChange, "send", late)
    rows = live_rows(table)
    done = carried_out(step, actor, made)
    assert came
    assert done.result is not None and not done.result.done
    assert sum(live_rows(table).values()) == sum(rows.values()) + 100
    assert kinds(undo(step, actor)) == {"Restore"}


def test_a_snapshot_that_expires_in_between_is_not_rolled_back_to(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor
) -> None:
    table = make_table("undo_expired", files=5, rows=600)
    head = table.current_snapshot().snapshot_id
    step = clustered(catalog_config, table, actor, "undo_expired")
    made = undo(step, actor)
    table.refresh().maintenance.expire_snapshots().by_id(head).commit()
    rows = live_rows(table)
    with pytest.raises(StalePlanError):
        carried_out(step, actor, made)
    assert live_rows(table) == rows
    assert kinds(undo(step, actor)) == {"Restore"}


def test_files_that_others_deleted_are_not_rolled_back_to(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor, iceberg_catalog: Any
) -> None:
    table = iceberg_catalog.create_table("loop.undo_gone", rows_of(0, 10).schema)
    for number in range(5):
        table.append(rows_of(number, 600))
    old = data_files(table)
    step = clustered(catalog_config, table, actor, "undo_gone")
    made = undo(step, actor)
    assert kinds(made) == {"RollBack"}
    Path(old[0].removeprefix("file://")).unlink()
    rows = live_rows(table)
    with pytest.raises(StalePlanError):
        carried_out(step, actor, made)
    assert live_rows(table) == rows
    assert kinds(undo(step, actor)) == {"Restore"}
