"""How far back other writers' changes are looked for: as far as the quiet period reaches."""

from __future__ import annotations

import datetime as dt
import time
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.catalog import observe
from reconciler.loop.step import _record_conflicts
from reconciler.loop.waiting import waiting
from reconciler.plan.actions.delete_maintenance import CompactDeletes
from reconciler.plan.actions.rewrite import BinPack
from reconciler.plan.actions.state import Validity
from reconciler.plan.conflicts import Conflicts
from reconciler.plan.execution import COMMITTED, CONFLICT
from tests.loop.test_step import DECLARED, actor, step_of

__all__ = ["actor"]

REWRITE, MAINTENANCE = BinPack(inputs=("a",)), CompactDeletes(inputs=("d",))

HOURS = 3_600


@pytest.mark.parametrize(("period", "held"), [("15m", False), ("2h", False), ("6h", True)])
def test_a_quiet_period_of_hours_holds_back_what_was_changed_hours_ago(
    catalog_config: Any, make_table: Any, actor: Any, monkeypatch: pytest.MonkeyPatch,
    period: str, held: bool,
) -> None:  # fmt: skip
    name = f"hours_{period}"
    make_table(name, files=6).delete("id < 10")
    later = time.time() + 3 * HOURS
    clock = SimpleNamespace(time=lambda: later, perf_counter=time.perf_counter)
    monkeypatch.setattr(observe, "time", clock)
    layout = {**DECLARED["layout"], "files": {"quietPeriod": period}}
    now = dt.datetime.fromtimestamp(later, dt.UTC)
    proposal = step_of(catalog_config, name, now, layout=layout).propose(actor)
    assert bool(proposal.pending) is not held
    waits = waiting(proposal.advice, proposal.observation, proposal.settings)
    assert (waits is not None) is held


@pytest.mark.parametrize(
    ("rewrite", "maintenance", "left", "found"),
    [
        ([COMMITTED], [COMMITTED], Validity.DONE, Conflicts()),
        ([CONFLICT, COMMITTED], [], Validity.LOST, Conflicts(rest=1)),
        ([CONFLICT], [COMMITTED], Validity.PENDING, Conflicts(data=2)),
        ([], [COMMITTED], Validity.LOST, Conflicts(data=2)),
        ([], [CONFLICT], Validity.PENDING, Conflicts(data=1, rest=2)),
    ],
)
def test_an_execution_counts_by_what_was_refused_or_lost_and_by_what_it_committed(
    actor: Any, rewrite: list[str], maintenance: list[str], left: Validity, found: Conflicts
) -> None:
    """left: the state of the rewrite when the execution ends."""
    actor.record_conflicts("uuid", [REWRITE, MAINTENANCE], ())
    admitted: Any = [SimpleNamespace(id="a01", action=REWRITE)]
    admitted += [SimpleNamespace(id="a02", action=MAINTENANCE)]
    outcomes = [SimpleNamespace(action_id="a01", state=state) for state in rewrite]
    outcomes += [SimpleNamespace(action_id="a02", state=state) for state in maintenance]
    actions = [SimpleNamespace(action_id="a01", state=left)]
    result: Any = SimpleNamespace(outcomes=outcomes, actions=actions)
    before: Any = SimpleNamespace(observation=SimpleNamespace(uuid="uuid"))
    _record_conflicts(before, admitted, result, actor)
    assert actor.history("uuid").conflicts == found
