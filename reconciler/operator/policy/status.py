"""Builds the status of a policy from its tables and its budgets; pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.api.conditions import ConditionType, Reason, first_reason
from reconciler.api.conditions import Status as Truth
from reconciler.api.quantities import parse_bytes
from reconciler.format import plural
from reconciler.operator.conditions import Body, Condition, condition_of, explained, merged
from reconciler.operator.index import table_of
from reconciler.operator.ports import Problem
from reconciler.operator.status_text import cut, short_bytes, short_duration
from reconciler.plan.budget import BudgetState

MOST_ATTENTION = 10
MOST_ATTENTION_MESSAGE = 256
MOST_HOLDERS = 5
"""Other policies that are named; the number of the rest is given."""


@dataclass(frozen=True, slots=True)
class PolicyView:
    """What a policy's status is made from."""

    layouts: Sequence[Mapping[str, Any]]
    """Its TableLayouts as stored."""
    matched: int
    """Number of tables that it selects."""
    held_by: Mapping[str, int]
    """Number of these that belong to another policy, by that policy's name."""
    suspended: bool
    """Whether the policy is suspended."""
    problem: Problem | None
    """What prevents the policy itself from being Ready; None if nothing does."""
    budgets: Sequence[BudgetState] = ()
    """The state of its budgets."""
    reserved: tuple[int, int] = (0, 0)
    """(bytes, CPU seconds) that running jobs reserve now."""
    handled_request: str = ""
    """Value of the annotation requestedAt that was handled last."""


def policy_status(
    old: Mapping[str, Any] | None, view: PolicyView, generation: int, now: dt.datetime
) -> Body:
    found = [_seen(item) for item in view.layouts]
    converged = sum(seen.converged is Truth.TRUE for seen in found)
    body: Body = {
        "observedGeneration": generation,
        "tables": {
            "matched": view.matched,
            "converged": converged,
            "pending": sum(seen.pending_bytes is not None for seen in found),
            "awaitingApproval": sum(seen.reason == Reason.AWAITING_APPROVAL for seen in found),
            "stalled": sum(seen.stalled for seen in found),
            "conflicting": sum(view.held_by.values()),
        },
        "summary": {
            "tables": f"{converged}/{view.matched}",
            "pendingBytes": short_bytes(sum(seen.pending_bytes or 0 for seen in found)),
        },
        "attention": attention(found),
        "conditions": merged(
            (old or {}).get("conditions"), _policy_conditions(view, found), generation, now
        ),
    }
    if view.budgets:
        body["budgets"] = [_budget(state, view.reserved) for state in view.budgets]
    if view.handled_request:
        body["lastHandledReconcileAt"] = cut(view.handled_request, 64)
    return body


@dataclass(frozen=True, slots=True)
class _Seen:
    """One TableLayout as its policy sees it."""

    table: str
    """Name of the table."""
    converged: Truth
    """Status of its condition Converged."""
    reason: str
    """Reason of Converged."""
    message: str
    """Message of Converged."""
    stalled: bool
    """Whether its condition Stalled is true."""
    stall_reason: str
    """Reason of Stalled, "" without it."""
    pending_bytes: int | None
    """Bytes that its plan would rewrite; None if nothing is planned."""


def _seen(layout: Mapping[str, Any]) -> _Seen:
    status = layout.get("status") or {}
    current = status.get("observedGeneration") == layout["metadata"].get("generation")
    converged = condition_of(status, ConditionType.CONVERGED) if current else {}
    stalled = condition_of(status, ConditionType.STALLED)
    planned = (status.get("plan") or {}).get("rewriteBytes")
    return _Seen(
        table=".".join(table_of(layout)),
        converged=Truth(converged.get("status", Truth.UNKNOWN.value)),
        reason=converged.get("reason", Reason.NEW_GENERATION.value),
        message=(stalled or converged).get("message", ""),
        stalled=bool(stalled),
        stall_reason=stalled.get("reason", ""),
        pending_bytes=None if planned is None else _roughly(planned),
    )


def _roughly(text: str) -> int:
    """Return the bytes of a rounded size such as "3.4Ti"."""
    number = text.rstrip("KMGTPi")
    return int(float(number) * parse_bytes("1" + text[len(number) :]))


def attention(found: Sequence[_Seen]) -> list[Body]:
    """Return tables that need a person: stalled ones first, then those that wait for approval."""
    needing = [seen for seen in found if seen.stalled] + [
        seen for seen in found if not seen.stalled and seen.reason == Reason.AWAITING_APPROVAL
    ]
    return [
        {
            "table": cut(seen.table, 512),
            "reason": seen.stall_reason or seen.reason,
            "message": cut(seen.message, MOST_ATTENTION_MESSAGE),
        }
        for seen in needing[:MOST_ATTENTION]
    ]


def _policy_conditions(view: PolicyView, found: Sequence[_Seen]) -> list[Condition]:
    if view.problem is not None:
        reason, message = view.problem.reason, view.problem.message
        text = explained(reason, message)
        out = [Condition(ConditionType.READY, Truth.FALSE, reason, text)]
        if view.problem.stalls:
            out.append(Condition(ConditionType.STALLED, Truth.TRUE, reason, text))
        return [*out, Condition(ConditionType.CONVERGED, Truth.UNKNOWN, reason, message)]
    if not view.matched and view.held_by:
        text = f"no table{_elsewhere(view.held_by)}"
        ready = Condition(ConditionType.READY, Truth.TRUE, Reason.OBSERVED, text)
    elif not view.matched:
        empty = explained(Reason.NO_TABLE_MATCHES)
        ready = Condition(ConditionType.READY, Truth.TRUE, Reason.NO_TABLE_MATCHES, empty)
    else:
        unobserved = sum(s.converged is Truth.UNKNOWN for s in found)
        text = plural(view.matched, "table")
        text += f", {unobserved} not known yet" if unobserved else ""
        text += _elsewhere(view.held_by)
        ready = Condition(ConditionType.READY, Truth.TRUE, Reason.OBSERVED, text)
    return [ready, *_policy_stalled(view, found), _policy_converged(view, found)]


def _elsewhere(held_by: Mapping[str, int]) -> str:
    """Return how many matching tables belong to other policies, and to which ones most of them."""
    if not held_by:
        return ""
    most = sorted(held_by.items(), key=lambda item: (-item[1], item[0]))
    named = ", ".join(f"{name} ({number})" for name, number in most[:MOST_HOLDERS])
    more = f" and {len(most) - MOST_HOLDERS} more" if len(most) > MOST_HOLDERS else ""
    number = plural(sum(held_by.values()), "matching table belongs", "matching tables belong")
    return f"; {number} to other policies: {named}{more}"


def _policy_stalled(view: PolicyView, found: Sequence[_Seen]) -> list[Condition]:
    """Return Stalled with the reason of the policy's stalled tables; of several the first in
    order."""
    stalled = [seen for seen in found if seen.stalled]
    if not stalled:
        return []
    known = set(Reason)
    first = first_reason({Reason(s.stall_reason) for s in stalled if s.stall_reason in known})
    unknown = first is Reason.NOTHING_TO_DO  # a reason of another version
    reason = stalled[0].stall_reason if unknown else first.value
    those = [seen for seen in stalled if seen.stall_reason == reason]
    text = f"{len(stalled)} of {view.matched} stalled; {reason}: {_named(those)}"
    return [Condition(ConditionType.STALLED, Truth.TRUE, reason, f"{text}. {those[0].message}")]


def _named(those: Sequence[_Seen]) -> str:
    """Return the first three tables, and how many more."""
    names = ", ".join(seen.table for seen in those[:3])
    return names + (f" and {len(those) - 3} more" if len(those) > 3 else "")


def _policy_converged(view: PolicyView, found: Sequence[_Seen]) -> Condition:
    kind = ConditionType.CONVERGED
    if view.suspended:
        text = "spec.suspend is set: nothing new starts"
        return Condition(kind, Truth.FALSE, Reason.SUSPENDED, text)
    waiting = [seen for seen in found if seen.converged is Truth.FALSE]
    if waiting:
        reasons = {Reason(s.reason) for s in waiting if s.reason in set(Reason)}
        first = first_reason(reasons)
        reason = first if first is not Reason.NOTHING_TO_DO else Reason.TABLES_PENDING
        queued = ""
        if reason is Reason.CONCURRENCY_LIMIT and Reason.REWRITE_RUNNING in reasons:
            limited = sum(seen.reason == Reason.CONCURRENCY_LIMIT for seen in waiting)
            reason, queued = Reason.REWRITE_RUNNING, f"; {limited} wait for a slot"
        those = [seen for seen in waiting if seen.reason == reason]
        text = f"{len(waiting)} of {view.matched} not converged; {reason}: {_named(those)}{queued}"
        return Condition(kind, Truth.FALSE, reason, text)
    unknown = [seen for seen in found if seen.converged is Truth.UNKNOWN]
    if unknown or len(found) < view.matched:
        down = any(seen.reason == Reason.CATALOG_UNAVAILABLE for seen in unknown)
        reason = Reason.CATALOG_UNAVAILABLE if down else Reason.NEW_GENERATION
        number = view.matched - len(found) + len(unknown)
        text = f"{number} of {plural(view.matched, 'table')} not known yet"
        return Condition(kind, Truth.UNKNOWN, reason, text)
    text = "nothing above threshold" if view.matched else "no table matches"
    return Condition(kind, Truth.TRUE, Reason.NOTHING_TO_DO, text)


def _budget(state: BudgetState, reserved: tuple[int, int]) -> Body:
    held_bytes, held_cpu = reserved if state.active else (0, 0)
    return {
        "name": state.budget.name,
        "active": state.active and not state.error,
        "rewriteBytes": {
            "spent": short_bytes(max(0, state.spent_bytes - held_bytes)),
            "reserved": short_bytes(held_bytes),
        },
        "cpuTime": {
            "spent": short_duration(max(0.0, state.spent_cpu_seconds - held_cpu)),
            "reserved": short_duration(held_cpu),
        },
    }
