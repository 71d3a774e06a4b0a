"""Builds the status of a TableLayout from decisions, and reads it back; pure.

Nothing is written that did not change.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.api.conditions import EXPLANATIONS, ConditionType, Reason
from reconciler.api.conditions import Status as Truth
from reconciler.format import plural
from reconciler.operator.conditions import (
    Body,
    Condition,
    condition_of,
    explained,
    explanation_of,
    known_condition,
    merged,
)
from reconciler.operator.layout.failures import Failures
from reconciler.operator.layout.steps import Decision, Launch, Propose, Retire, Stall, Wait
from reconciler.operator.stored import Refusal

MOST_HISTORY = 5


def changed(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> bool:
    """Whether a write is needed: by equality, because `merged` keeps what did not change."""
    return dict(old or {}) != dict(new)


def timed(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> Body:
    """Return the new status of a TableLayout; if only observed.time differs, with the old one.

    Otherwise every look at an unchanged table would write to the API server.
    """
    was = dict((old or {}).get("observed") or {})
    now = dict(new.get("observed") or {})
    if "time" not in was or "time" not in now:
        return dict(new)
    kept = {**new, "observed": {**now, "time": was["time"]}}
    return dict(new) if changed(old, kept) else kept


def accepted(status: Mapping[str, Any] | None, generation: int, now: dt.datetime) -> Body:
    """Return the first status of a new generation: accepted, and nothing known of it yet.

    Converged is Unknown in this very write, so that no one reads the old generation's answer. What
    is known of the table (plan, job, history) stays.
    """
    old = dict(status or {})
    reason, message = Reason.NEW_GENERATION, EXPLANATIONS[Reason.NEW_GENERATION].cause
    ready = condition_of(old, ConditionType.READY)
    conditions = [
        Condition(
            ConditionType.READY,
            Truth.TRUE if ready.get("status") == Truth.TRUE.value else Truth.UNKNOWN,
            ready.get("reason") or reason,
            ready.get("message") or message,
        ),
        Condition(ConditionType.RECONCILING, Truth.TRUE, reason, message),
        Condition(ConditionType.CONVERGED, Truth.UNKNOWN, reason, message),
    ]
    better = known_condition(old, ConditionType.BETTER_LAYOUT_KNOWN)
    # A recommendation is of the table, not of the generation.
    conditions += [] if better is None else [better]
    stored = merged(old.get("conditions"), conditions, generation, now)
    return {**old, "observedGeneration": generation, "conditions": stored}


# One table


def layout_conditions(
    decision: Decision,
    verdict: Sequence[Condition],
    *,
    known: bool,
    ready_now: Refusal | None = None,
) -> list[Condition]:
    """Return the conditions of a TableLayout. known: the table was observed at some time. verdict:
    Approved and WithinBudget.

    ready_now: what prevents Ready although it does not stall.
    """
    conditions = [_layout_ready(decision, known, ready_now)]
    if isinstance(decision, Stall):
        text = explained(decision.reason, decision.message)
        conditions.append(Condition(ConditionType.STALLED, Truth.TRUE, decision.reason, text))
    return [*conditions, _layout_converged(decision), *verdict]


def _layout_ready(decision: Decision, known: bool, ready_now: Refusal | None) -> Condition:
    kind = ConditionType.READY
    if isinstance(decision, Stall) and (not known or _prevents_ready(decision.reason)):
        return Condition(kind, Truth.FALSE, decision.reason, decision.message)
    if isinstance(decision, Wait) and decision.reason == Reason.CATALOG_UNAVAILABLE:
        return Condition(kind, Truth.FALSE, decision.reason, decision.message)
    if ready_now is not None:
        return Condition(kind, Truth.FALSE, *ready_now)
    if not known:
        text = "the table has not been observed yet"
        return Condition(kind, Truth.UNKNOWN, Reason.NEW_GENERATION, text)
    return Condition(kind, Truth.TRUE, Reason.OBSERVED, "the table is observed")


def _prevents_ready(reason: str) -> bool:
    """Whether a reason of Stalled makes Ready false too, also for a table that was observed."""
    entry = explanation_of(reason)
    gone = reason == Reason.TABLE_NOT_FOUND
    return gone or (entry is not None and ConditionType.READY in entry.types)


def _layout_converged(decision: Decision) -> Condition:
    kind = ConditionType.CONVERGED
    if isinstance(decision, Stall):
        return Condition(kind, Truth.FALSE, decision.reason, decision.message)
    if isinstance(decision, Wait):
        truth = {
            Reason.NOTHING_TO_DO: Truth.TRUE,
            Reason.CATALOG_UNAVAILABLE: Truth.UNKNOWN,
        }.get(Reason(decision.reason), Truth.FALSE)
        return Condition(kind, truth, decision.reason, decision.message)
    if isinstance(decision, Launch):
        text = plural(decision.actions, "action waits", "actions wait") + " to start"
        return Condition(kind, Truth.FALSE, Reason.TABLES_PENDING, text)
    if isinstance(decision, (Propose, Retire)):
        return Condition(kind, Truth.UNKNOWN, Reason.NEW_GENERATION, "the table is being observed")
    return Condition(kind, Truth.FALSE, Reason.REWRITE_RUNNING, "a rewrite is in progress")


def transitions(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Events of one status write as (reason, message, type): a plan is proposed, the table stalls
    or converges. A write that changes none of these has none."""
    found = []
    plan = new.get("plan") or {}
    if plan.get("id") and plan["id"] != (old.get("plan") or {}).get("id"):
        found.append(("PlanProposed", f"{plan['id']}: {plan.get('summary', '')}", "Normal"))
    stalled = condition_of(new, ConditionType.STALLED)
    if stalled and stalled["reason"] != condition_of(old, ConditionType.STALLED).get("reason"):
        found.append(("Stalled", f"{stalled['reason']}: {stalled['message']}", "Warning"))
    was, now = (condition_of(each, ConditionType.CONVERGED) for each in (old, new))
    if now.get("status") == Truth.TRUE.value and was.get("status") == Truth.FALSE.value:
        found.append(("Converged", now["message"], "Normal"))
    was, now = (condition_of(each, ConditionType.BETTER_LAYOUT_KNOWN) for each in (old, new))
    if now.get("status") == Truth.TRUE.value and was.get("message") != now["message"]:
        found.append(("BetterLayoutKnown", now["message"], "Normal"))
    return found


def with_history(
    history: Sequence[Mapping[str, Any]] | None, entry: Mapping[str, Any]
) -> list[Body]:
    """Return the last five entries, the newest first."""
    return [dict(entry), *(dict(item) for item in history or ())][:MOST_HISTORY]


def failures_body(known: Failures | None) -> Body:
    return {"count": 0} if known is None else known.status()
