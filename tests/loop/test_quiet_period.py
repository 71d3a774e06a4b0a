"""How far back other writers' changes are looked for: as far as the quiet period reaches."""

from __future__ import annotations

import datetime as dt
import time
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.catalog import observe
from reconciler.loop.waiting import waiting
from tests.loop.test_step import DECLARED, actor, step_of

__all__ = ["actor"]

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
