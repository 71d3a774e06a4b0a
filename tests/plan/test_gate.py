"""The gate: which refusal comes first, and what passes."""

import dataclasses
import datetime as dt
from decimal import Decimal

import pytest

from reconciler.api.prices import Prices
from reconciler.plan.actions.audited import Discard, Publish
from reconciler.plan.actions.rewrite import Recluster
from reconciler.plan.budget import Budget, Spent
from reconciler.plan.gate import GateInput, gate
from reconciler.plan.plan import DeleteState, Plan, PlannedAction
from reconciler.plan.prediction import Prediction

NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
DAILY = Budget("daily", per_seconds=86_400, max_rewrite_bytes=250)


def action(number: int, size: int) -> PlannedAction:
    body = Recluster(inputs=(f"f{number}",))
    return PlannedAction(
        f"a{number:02d}", body, DeleteState(0, 0, 0), Prediction(bytes_in=size, cpu_millis=1000)
    )


ACTIONS = tuple(action(n, 100) for n in range(1, 4))
PLAN = Plan("p-" + "0" * 20, "rec", ("db", "t"), "u", "h", "built-in", 1, NOW, NOW, ACTIONS)
OPEN = GateInput(
    plan=PLAN, remaining=ACTIONS, suspended=False, paused="", owner="", other="", forbidden="",
    mode="Manual", approved=True, everything_approved=False,
    automatic_up_to_bytes=None, automatic_spent_bytes=0,
    queries_too_old=False, doubtful_trial="", unacted_fields=(), budgets=(), spent=(), now=NOW,
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "count", "reason"),
    [
        ({}, 3, ""),
        ({"remaining": ()}, 0, ""),
        ({"suspended": True, "owner": "them"}, 0, "Suspended"),
        ({"owner": "them"}, 0, "OwnedElsewhere"),
        ({"paused": "a test", "owner": "them", "everything_approved": True}, 0, "Paused"),
        ({"owner": "them", "other": "evidence"}, 0, "OwnedElsewhere"),
        ({"other": "evidence", "approved": False}, 0, "OtherOptimizer"),
        ({"other": "evidence", "everything_approved": True}, 0, "OtherOptimizer"),
        ({"forbidden": "a policy", "everything_approved": True}, 0, "CatalogPolicy"),
        ({"approved": False}, 0, "AwaitingApproval"),
        ({"approved": False, "everything_approved": True}, 3, ""),
        ({"approved": False, "automatic_up_to_bytes": 300}, 3, ""),
        ({"approved": False, "automatic_up_to_bytes": 299}, 0, "AwaitingApproval"),
        ({"approved": False, "automatic_up_to_bytes": 300, "automatic_spent_bytes": 1}, 0,
         "AwaitingApproval"),
        ({"approved": False, "automatic_up_to_bytes": 300, "queries_too_old": True}, 0,
         "AwaitingApproval"),
        ({"approved": False, "mode": "Automatic"}, 0, "AwaitingApproval"),
        ({"approved": False, "mode": "Automatic", "budgets": (DAILY,)}, 2, "OverBudget"),
        ({"approved": False, "mode": "Automatic", "budgets": (DAILY,),
          "unacted_fields": ("spec.deletes.mode",)}, 0, "AwaitingApproval"),
        ({"approved": False, "mode": "Automatic", "budgets": (DAILY,), "queries_too_old": True}, 0,
         "AwaitingApproval"),
        ({"approved": False, "mode": "Automatic", "budgets": (DAILY,), "doubtful_trial": "why"}, 0,
         "AwaitingApproval"),
        ({"approved": False, "automatic_up_to_bytes": 300, "doubtful_trial": "why"}, 0,
         "AwaitingApproval"),
        ({"doubtful_trial": "why"}, 3, ""),
        ({"budgets": (DAILY,)}, 2, "OverBudget"),
        ({"budgets": (DAILY,), "spent": (Spent(NOW, 200, 0.0),)}, 0, "OverBudget"),
        ({"budgets": (DAILY,), "spent": None}, 0, "OverBudget"),
    ],
)  # fmt: skip
def test_the_first_objection_decides(changes, count, reason):
    decision = gate(dataclasses.replace(OPEN, **changes))
    assert (decision.count, decision.reason) == (count, reason)


@pytest.mark.parametrize(
    ("kind", "changes", "count"),
    [
        (Publish, {}, 1),
        (Publish, {"approved": False, "everything_approved": True}, 0),
        (Publish, {"approved": False, "mode": "Automatic", "budgets": (DAILY,)}, 0),
        (Publish, {"approved": False, "automatic_up_to_bytes": 300}, 0),
        (Publish, {"suspended": True}, 0),
        (Discard, {"approved": False}, 1),
        (Discard, {"suspended": True}, 0),
    ],
)
def test_a_person_publishes_and_nobody_is_asked_to_drop(kind, changes, count):
    item = PlannedAction("a01", kind(), DeleteState(0, 0, 0), Prediction())
    assert gate(dataclasses.replace(OPEN, remaining=(item,), **changes)).count == count


def test_every_refusal_says_something():
    for changes in ({"suspended": True}, {"owner": "x"}, {"approved": False}):
        assert gate(dataclasses.replace(OPEN, **changes)).message


def test_a_refusal_says_money_where_the_catalog_has_prices():
    prices = Prices("EUR", cpu_hour=Decimal(3600))
    over = dataclasses.replace(OPEN, budgets=(DAILY,), prices=prices)
    small = dataclasses.replace(OPEN, approved=False, automatic_up_to_bytes=100, prices=prices)
    for given, cost in ((over, "1.00 EUR"), (small, "3.00 EUR")):
        assert cost in gate(given).message
        assert "EUR" not in gate(dataclasses.replace(given, prices=None)).message
