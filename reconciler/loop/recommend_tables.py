"""Ranks the recommendations of several tables under the budgets of their policies: which first.

Rewriting is what budgets limit, so tables are ranked by net saving per byte of rewriting: the cost
of reading that the layout saves over the horizon, less the cost of all rewriting, per byte of the
first rewrite. Down this order, a table fits if the gate would admit its rewrite beside those before
it; a smaller one may fit after one that does not. Pure.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.api.version import API_VERSION
from reconciler.errors import ReconcilerError
from reconciler.format import cpu, iec, part_of
from reconciler.plan.budget import Budget, BudgetState, Charge, Spent, admit, budget_state

KIND = "TableRecommendationList"


@dataclass(frozen=True, slots=True)
class Answer:
    """A table's recommendation and the limits of the policy that governs it."""

    document: Mapping[str, Any]
    """The recommendation as a TableRecommendation document."""
    policy: str
    """The policy's name as plans print it."""
    policy_key: str
    """Key of the policy's spending: tables of one key share the budgets."""
    budgets: tuple[Budget, ...]
    """The policy's budgets."""
    spent: tuple[Spent, ...] | None
    """What the budgets charge already; None if that cannot be read."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A table for which no layout can be recommended."""

    table: str
    """Name of the table."""
    error: ReconcilerError
    """Why there is no recommendation."""


def ranked(answers: Sequence[Answer], failed: Sequence[Failed], now: dt.datetime) -> dict[str, Any]:
    """Return the document.

    Tables to change come first, by rank; then those to keep, by name.
    """
    better = sorted((a for a in answers if a.document["chosen"] is not None), key=_order)
    kept = sorted(
        (a for a in answers if a.document["chosen"] is None), key=lambda a: a.document["table"]
    )
    admitted: dict[str, list[Charge]] = {}
    items = [_ranked(answer, number, admitted, now) for number, answer in enumerate(better, 1)]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "items": [*items, *(_item(answer) for answer in kept)],
        "budgets": _budgets(answers, admitted, now),
        "errors": [
            {"table": item.table, "error": item.error.what, "do": item.error.do or ""}
            for item in sorted(failed, key=lambda item: item.table)
        ],
    }


def _order(answer: Answer) -> tuple[float, float, str]:
    """Return the sort key: saving per byte, then the larger saving, then the name."""
    saving, size = _net_saving(answer.document), _charge(answer).rewrite_bytes
    return (-(saving / size if size else math.inf), -saving, answer.document["table"])


def _layout(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(it for it in document["layouts"] if it["name"] == name)
    return found


def _net_saving(document: Mapping[str, Any]) -> int:
    """Return the bytes of reading that the chosen layout saves over the horizon, rewriting paid."""
    today, chosen = (_layout(document, name) for name in ("today", document["chosen"]))
    return int(today["totalCostBytes"] - chosen["totalCostBytes"])


def _charge(answer: Answer) -> Charge:
    rewrite = _layout(answer.document, answer.document["chosen"])["rewrite"]
    return Charge(rewrite["firstBytes"], rewrite["cpuSeconds"])


def _item(answer: Answer) -> dict[str, Any]:
    """Return the entry of a table that keeps its layout."""
    return {
        "rank": None,
        "table": answer.document["table"],
        "policy": answer.policy,
        "what": "",
        "netSavingBytes": 0,
        "rewriteBytes": 0,
        "cpuSeconds": 0.0,
        "savingPerByte": None,
        "fits": None,
        "waits": "",
        "recommendation": answer.document,
    }


def _ranked(
    answer: Answer, rank: int, admitted: dict[str, list[Charge]], now: dt.datetime
) -> dict[str, Any]:
    """Return the entry of a table to change; if it fits, its charge is added to `admitted`."""
    charge, saving = _charge(answer), _net_saving(answer.document)
    before = admitted.setdefault(answer.policy_key, [])
    found = admit([*before, charge], answer.budgets, answer.spent, now)
    fits = found.count > len(before)
    waits = "" if fits else _waits(charge, before, found.budgets) or found.message
    if fits:
        before.append(charge)
    size = charge.rewrite_bytes
    return {
        **_item(answer),
        "rank": rank,
        "what": _layout(answer.document, answer.document["chosen"])["what"],
        "netSavingBytes": saving,
        "rewriteBytes": size,
        "cpuSeconds": charge.cpu_seconds,
        "savingPerByte": round(saving / size, 2) if size else None,
        "fits": fits,
        "waits": waits,
        **_money(answer.document),
    }


def _money(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the chosen layout saves over the horizon and what its first rewrite costs; {}
    without prices."""
    today, chosen = (_layout(document, name).get("money") for name in ("today", document["chosen"]))
    if today is None or chosen is None:
        return {}
    saved = today["readAhead"] - chosen["readAhead"] - chosen["rewrite"]
    return {
        "money": {
            "currency": chosen["currency"],
            "netSaving": round(saved, 6),
            "rewrite": chosen["firstRewrite"],
        }
    }


def _waits(charge: Charge, before: Sequence[Charge], states: Sequence[BudgetState]) -> str:
    """Return what the tightest budget lacks; "" if no limit is the reason."""
    if any(state.error or state.closed for state in states):
        return ""
    size, seconds = sum(c.rewrite_bytes for c in before), sum(c.cpu_seconds for c in before)
    short: list[tuple[float, str]] = []
    for state in states:
        budget = state.budget
        limits = (
            (budget.max_rewrite_bytes, state.remaining_bytes, size, charge.rewrite_bytes, iec),
            (budget.max_cpu_seconds, state.remaining_cpu_seconds, seconds, charge.cpu_seconds, cpu),
        )
        for limit, remaining, used, asked, shown in limits:
            left = 0.0 if remaining is None else max(0, remaining - used)
            if limit and remaining is not None and asked > left:
                text = part_of(shown(left), shown(limit))
                needs = f"needs {shown(asked)}, {budget.text} has {text} left"
                short.append((left / asked, needs + _windows(charge, budget)))
    return min(short)[1] if short else ""


def _windows(charge: Charge, budget: Budget) -> str:
    """Return in how many windows of the budget the rewrite can be done, if one is too few."""
    most = (budget.max_rewrite_bytes, budget.max_cpu_seconds)
    asked = (charge.rewrite_bytes, charge.cpu_seconds)
    windows = max(math.ceil(a / m) for a, m in zip(asked, most, strict=True) if m)
    return f"; it takes at least {windows} of its windows" if windows > 1 else ""


def _budgets(
    answers: Sequence[Answer], admitted: Mapping[str, Sequence[Charge]], now: dt.datetime
) -> list[dict[str, Any]]:
    """Return the active budgets of the policies, with what is left and what fitting tables use.

    Work of other policies on a table counts for that table alone: what is left is shown for the
    table with the least.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for answer in sorted(answers, key=lambda a: (a.policy, a.document["table"])):
        charges = admitted.get(answer.policy_key, ())
        for budget in answer.budgets:
            state = budget_state(budget, answer.spent or (), now)
            if not state.active:
                continue
            key = (answer.policy_key, budget.name)
            entry = found.setdefault(
                key,
                {
                    "policy": answer.policy,
                    "name": budget.name,
                    "maxRewriteBytes": budget.max_rewrite_bytes,
                    "leftBytes": state.remaining_bytes,
                    "plannedBytes": sum(charge.rewrite_bytes for charge in charges),
                    "maxCpuSeconds": budget.max_cpu_seconds,
                    "leftCpuSeconds": state.remaining_cpu_seconds,
                    "plannedCpuSeconds": round(sum(charge.cpu_seconds for charge in charges), 1),
                    "error": state.error,
                },
            )
            entry["leftBytes"] = _least(entry["leftBytes"], state.remaining_bytes)
            entry["leftCpuSeconds"] = _least(entry["leftCpuSeconds"], state.remaining_cpu_seconds)
    return list(found.values())


def _least(one: float | None, other: float | None) -> float | None:
    return one if other is None else other if one is None else min(one, other)
