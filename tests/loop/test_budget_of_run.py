"""A driver asks the budgets again after it has reserved, and ends when a schedule closes them."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.kube.termination_message import Cause
from reconciler.loop.driver_job import Driven, shortfall, still_admitted, stop_when_closed
from reconciler.loop.step import AdmittedWork, CarriedOut
from reconciler.plan.budget import Budget, BudgetState, Gate, Spent
from reconciler.plan.prediction import Prediction
from tests.loop.runs import document

GIB = 1 << 30
NOW = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
DAILY = {"name": "daily", "per": "24h", "maxRewriteBytes": "100Gi"}
NIGHT = {"name": "day", "schedule": "0 9 * * *", "duration": "8h", "maxRewriteBytes": "0"}
LEFT = BudgetState(Budget("admitted"), True, 0, 0.0, 200 * GIB, None, None)
"""What the operator left for repeated work."""
ADMITTED = Gate(1, "", "admitted by the operator", (LEFT,))


def run_of(*budgets: dict[str, Any]) -> Any:
    spec = {"catalogRef": {"name": "c"}, "tables": {"include": ["a.*"]}, "budgets": list(budgets)}
    return SimpleNamespace(
        policy=document("TableLayoutPolicy", spec), policy_key="analytics/test"
    )  # fmt: skip


def asked(run: Any, others: int, now: dt.datetime = NOW) -> Gate:
    """The answer to 80 GiB beside what others reserved, without the run's own reservation."""

    def spent(policy: str, uuid: str, besides: str) -> tuple[Spent, ...]:
        assert (policy, uuid, besides) == ("analytics/test", "u", "p-1-1-ff")
        return (Spent(now, others, 0.0),)

    actor: Any = SimpleNamespace(
        spent=spent, reservation_id="p-1-1-ff", plan=SimpleNamespace(table_uuid="u")
    )
    action: Any = SimpleNamespace(predicted=Prediction(bytes_in=80 * GIB, cpu_millis=1))
    work: Any = AdmittedWork(None, [action], ADMITTED)  # type: ignore[type-var]
    return still_admitted(run, work, actor, now)


def test_two_that_fit_alone_do_not_run_together() -> None:
    admitted = asked(run_of(DAILY), 20 * GIB)
    assert admitted.count == 1
    refused = asked(run_of(DAILY), 21 * GIB)
    assert (refused.count, refused.reason) == (0, "OverBudget")
    assert asked(run_of(), 1 << 60) is ADMITTED
    assert [one.remaining_bytes for one in admitted.budgets] == [200 * GIB, 80 * GIB]


def test_a_run_that_began_nothing_was_stopped_and_did_not_fail() -> None:
    refused = asked(run_of(DAILY), 90 * GIB)
    plan: Any = None
    words = shortfall(Driven(plan, CarriedOut(refused, None, plan), 0))
    assert words is not None and words.cause is Cause.STOPPED
    assert refused.message in words.message
    assert shortfall(Driven(plan, None, 1)) is None


@pytest.mark.parametrize(("hour", "closed"), [(8, False), (9, True), (16, True), (17, False)])
def test_a_run_ends_when_a_schedule_closes_whoever_is_there_to_stop_it(
    hour: int, closed: bool
) -> None:
    now = [NOW.replace(hour=hour)]
    assert stop_when_closed(run_of(NIGHT), lambda: False, lambda: now[0])() is closed
    assert stop_when_closed(run_of(NIGHT), lambda: True, lambda: now[0])()
    assert not stop_when_closed(run_of(DAILY), lambda: False, lambda: now[0])()
    assert asked(run_of(NIGHT), 0, now[0]).reason == ("OutsideWindow" if closed else "")
