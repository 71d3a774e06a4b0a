"""A plan after which the queries cost more: predicted, measured and named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli import apply_result
from reconciler.cli.history import plans_of
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.step import run_step
from reconciler.plan.actions.state import Validity
from reconciler.plan.execution import (
    COMMITTED,
    ActionResult,
    Event,
    ExecutionRequest,
    ExecutionResult,
    Intent,
    Outcome,
)
from reconciler.plan.totals import harm_of
from reconciler.state.state import StateStore
from tests.loop.test_step import DECLARED, EVERYTHING, multiset, never, queries_on, quiet, step_of


class Sorting(LocalActor):
    """Carries out a plan of one rewrite by pyiceberg, without Spark: the rows sorted by `by`."""

    table: Any
    by: str

    def execute(
        self,
        request: ExecutionRequest,
        on_event: Callable[[Event], None],
        should_stop: Callable[[], bool],
    ) -> ExecutionResult:
        self.table.overwrite(self.table.refresh().scan().to_arrow().sort_by(self.by))
        snapshot = self.table.refresh().metadata.current_snapshot_id
        (key,) = request.action_ids
        (action,) = request.actions
        outcome = Outcome(
            "attempt", 1, key, COMMITTED, snapshot, 1 << 20, 1 << 20, 1, len(action.inputs), 1, 1.0,
            1.0,
        )  # fmt: skip
        intent = Intent(
            request.table_uuid, request.table, request.plan_id, "attempt", 1, (key,), 1, "",
            action.inputs, (),
        )  # fmt: skip
        self.store.record_intent(intent)
        self.store.record_outcomes(intent, (outcome,))
        done = (ActionResult(key, Validity.DONE),)
        return ExecutionResult(("attempt",), done, (outcome,), 1, 0, False, 1.0)


@pytest.mark.parametrize(("asked", "harm"), [("id", True), ("day", False)])
def test_a_declared_key_that_nobody_asks_for_is_named_as_harm(
    catalog_config: Any, make_table: Any, tmp_path: Path, asked: str, harm: bool
) -> None:
    """Rows lie in the order of `id`; the policy declares `day`. Where queries ask for `id`, each
    file then holds all of its values; where they ask for `day`, the same plan pays."""
    table = make_table(f"harm_{asked}", files=8, rows=3_000, target=1 << 19)
    with table.transaction() as change:  # row groups as the engine would cut them
        change.set_properties({"write.parquet.row-group-limit": "5400"})
    rows = multiset(table)
    actor = Sorting(StateStore(tmp_path / "state"), tmp_path / "cache")
    actor.table, actor.by = table, "day"
    highest = 24_000 if asked == "id" else 400
    actor.store.append_fragments(queries_on(table, asked, 300, highest // 100, highest))
    step = step_of(catalog_config, f"harm_{asked}", **DECLARED)
    done = run_step(step, actor, EVERYTHING, quiet, never)
    assert multiset(table) == rows
    check = done.check
    assert check is not None and check.complete
    assert bool(harm_of(done.before.plan.evidence)) is harm
    assert check.harm is harm is (check.saving < 0)
    assert (check.actual > check.before) is harm
    assert check.cost_actual is not None and check.cost_before is not None
    assert check.saving == pytest.approx(check.cost_before - check.cost_actual, abs=1)
    assert check.actual == pytest.approx(check.predicted, rel=0.35)
    document = apply_result.report_document([done], done)
    assert document["steps"][0]["read"]["harm"] is harm
    (past,) = plans_of(actor, done.after.observation)
    assert past.harm is harm
