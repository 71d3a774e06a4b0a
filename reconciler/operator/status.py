"""Builds the status documents of the three kinds from decisions; pure, and without needless change.

Conditions follow kstatus: Ready always, Reconciling and Stalled only while true, each with the
generation that it describes. Numbers are rounded so that a status changes only with a real change.
No value of a table, literal of a query or secret is put here; callers redact error texts. A query
is shown only as its shape, with `?` for every literal.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.api.conditions import EXPLANATIONS, ConditionType, Reason, first_reason
from reconciler.api.conditions import Status as Truth
from reconciler.api.quantities import (
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration,
)
from reconciler.operator.decide import Decision, Launch, Phase, Propose, Record, Retire, Stall, Wait
from reconciler.plan.budget import BudgetState
from reconciler.plan.plan import Plan, PlannedAction
from reconciler.plan.prediction import total
from reconciler.table.schema import Schema

Body = dict[str, Any]

MOST_MESSAGE = 1024
MOST_ATTENTION = 10
MOST_ATTENTION_MESSAGE = 256
MOST_LINES = 10
MOST_SLOWER = 3
MOST_TEXTS = 3
MOST_TEXT = 256
MOST_HISTORY = 5


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition, without the fields that only the clock and the stored object give."""

    type: ConditionType
    status: Truth
    reason: str
    message: str


def utc(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str | None) -> dt.datetime | None:
    """Return a time as the API server prints it, with or without fractions; None for none."""
    return None if not text else dt.datetime.fromisoformat(text.replace("Z", "+00:00"))


def short_bytes(value: float) -> str:
    """Return a size with two or three digits: 3.4Ti, 42Gi, 412Gi; never 0 for something."""
    size, unit = float(value), ""
    for larger in ("Ki", "Mi", "Gi", "Ti", "Pi"):
        if size < 1023.5:
            break
        size, unit = size / 1024, larger
    if unit and size < 9.95:
        return f"{size:.1f}".removesuffix(".0") + unit
    return f"{size:.0f}{unit}"


def short_duration(seconds: float) -> str:
    """Return a duration in its two largest units: 12h, 3h5m, 40s."""
    whole = round(seconds)
    if whole >= 36_000:
        whole = round(whole / 3600) * 3600
    elif whole >= 600:
        whole = round(whole / 60) * 60
    return format_duration(whole)


def cut(text: str, length: int) -> str:
    """Return one line of at most `length` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"


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


def merged(
    old: Iterable[Mapping[str, Any]] | None,
    new: Sequence[Condition],
    generation: int,
    now: dt.datetime,
) -> list[Body]:
    """Return the conditions as stored: lastTransitionTime changes only with the status."""
    before = {item.get("type"): item for item in old or ()}
    out = []
    for item in new:
        known = before.get(item.type.value, {})
        same = known.get("status") == item.status.value and known.get("lastTransitionTime")
        out.append(
            {
                "type": item.type.value,
                "status": item.status.value,
                "observedGeneration": generation,
                "lastTransitionTime": known["lastTransitionTime"] if same else utc(now),
                "reason": str(item.reason),
                "message": cut(item.message, MOST_MESSAGE),
            }
        )
    return out


def condition_of(status: Mapping[str, Any] | None, kind: ConditionType) -> Body:
    """Return the stored condition of a type, {} if there is none."""
    stored: list[Body] = (status or {}).get("conditions") or []
    for item in stored:
        if item.get("type") == kind.value:
            return item
    return {}


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
    stored = merged(old.get("conditions"), conditions, generation, now)
    return {**old, "observedGeneration": generation, "conditions": stored}


def explained(reason: str, message: str = "") -> str:
    """Return a message with the remedy of the reason."""
    entry = next((e for r, e in EXPLANATIONS.items() if r.value == reason), None)
    if entry is None:
        return message
    text = message or entry.cause
    return f"{text.rstrip('.')}. {entry.remedy}" if entry.remedy else text


# One table


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of approval and budgets for the pending work; None if nothing is pending."""

    approved: tuple[bool, str, str] | None = None
    within_budget: tuple[bool, str, str] | None = None


def layout_conditions(
    decision: Decision, verdict: Verdict, *, known: bool, ready_now: tuple[str, str] | None = None
) -> list[Condition]:
    """Return the conditions of a TableLayout. known: the table was observed at some time.

    ready_now: (reason, message) of what prevents Ready although it does not stall.
    """
    conditions = [_layout_ready(decision, known, ready_now)]
    if isinstance(decision, Stall):
        text = explained(decision.reason, decision.message)
        conditions.append(Condition(ConditionType.STALLED, Truth.TRUE, decision.reason, text))
    conditions.append(_layout_converged(decision))
    for kind, answer in (
        (ConditionType.APPROVED, verdict.approved),
        (ConditionType.WITHIN_BUDGET, verdict.within_budget),
    ):
        if answer is not None:
            good, reason, message = answer
            truth = Truth.TRUE if good else Truth.FALSE
            conditions.append(Condition(kind, truth, reason, message))
    return conditions


def _layout_ready(decision: Decision, known: bool, ready_now: tuple[str, str] | None) -> Condition:
    kind = ConditionType.READY
    if isinstance(decision, Stall) and (not known or _bears_ready(decision.reason)):
        return Condition(kind, Truth.FALSE, decision.reason, decision.message)
    if isinstance(decision, Wait) and decision.reason == Reason.CATALOG_UNAVAILABLE:
        return Condition(kind, Truth.FALSE, decision.reason, decision.message)
    if ready_now is not None:
        return Condition(kind, Truth.FALSE, *ready_now)
    if not known:
        text = "the table has not been observed yet"
        return Condition(kind, Truth.UNKNOWN, Reason.NEW_GENERATION, text)
    return Condition(kind, Truth.TRUE, Reason.OBSERVED, "the table is observed")


def _bears_ready(reason: str) -> bool:
    entry = next((e for r, e in EXPLANATIONS.items() if r.value == reason), None)
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
        count = decision.candidate.actions
        text = f"{count} {'action waits' if count == 1 else 'actions wait'} to be started"
        return Condition(kind, Truth.FALSE, Reason.TABLES_PENDING, text)
    if isinstance(decision, (Propose, Retire)):
        return Condition(kind, Truth.UNKNOWN, Reason.NEW_GENERATION, "the table is being looked at")
    return Condition(kind, Truth.FALSE, Reason.REWRITE_RUNNING, "a rewrite is being taken care of")


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
    return found


def job_status(record: Record, committed: int | None = None, total: int | None = None) -> Body:
    """Return status.job. Reserved amounts are exact, because admission counts them."""
    body: Body = {
        "kind": "Job",
        "name": record.name,
        "planId": record.plan_id,
        "digest": record.digest,
        "attempt": record.attempt,
        "phase": record.phase.value,
        "startedAt": utc(record.written),
        "reserved": {
            "rewriteBytes": format_bytes(record.rewrite_bytes),
            "cpuTime": format_duration(record.cpu_seconds),
        },
    }
    if record.uid:
        body["uid"] = record.uid
    if committed is not None:
        body["actionsCommitted"] = committed
    if total is not None:
        body["actionsTotal"] = total
    return body


def plan_status(
    plan: Plan, pending: Sequence[PlannedAction], digest: str, uri: str, schema: Schema
) -> Body:
    """Return status.plan of a plan with work: aggregated by type, at most ten lines, and the
    recorded shapes that read more afterwards, at most three. schema: names the key's columns."""
    amplification = _total(plan, "scan amplification")
    predicted = total(item.predicted for item in pending)
    body: Body = {
        "id": plan.id,
        "digest": digest,
        "createdAt": utc(plan.created),
        "expiresAt": utc(plan.expires),
        "rewriteBytes": short_bytes(predicted.bytes_in),
        "cpuTime": short_duration(predicted.cpu_seconds),
        "actions": plan_lines(pending, schema),
        "summary": cut(plan_summary(pending), 256),
    }
    slower = plan_slower(plan)
    if slower:
        body["slower"] = slower
    if uri:
        body["uri"] = uri
    if plan.base_snapshot_id is not None:
        body["baseSnapshotId"] = str(plan.base_snapshot_id)
    if amplification is not None:
        body["predictedScanAmplification"] = f"{amplification:.2f}"
    return body


def plan_lines(pending: Sequence[PlannedAction], schema: Schema) -> list[Body]:
    """Return a line per type of action: how many, by which keys, and why."""
    lines: list[Body] = []
    for kind, items in _by_type(pending).items():
        line: Body = {"type": kind, "count": len(items), **_extent(items)}
        keys = _distinct(item.action.key_text(schema) for item in items)
        reasons = _distinct(item.predicted.reason or "" for item in items)
        line |= {"key": keys} if keys else {}
        line |= {"reason": reasons} if reasons else {}
        lines.append(line)
    return lines[:MOST_LINES]


def plan_slower(plan: Plan) -> list[Body]:
    """Return the recorded shapes that read more after the plan, those that lose most bytes first.

    factor: bytes read after over bytes read now; absent where a shape reads nothing now.
    """
    worse = [
        shape
        for shape in plan.evidence.get("shapes", ())
        if shape.get("worse") and shape.get("bytesAfter") is not None
    ]
    worse.sort(key=lambda shape: (shape["bytesNow"] - shape["bytesAfter"], shape["shapeId"]))
    found: list[Body] = []
    for shape in worse[:MOST_SLOWER]:
        line: Body = {"shape": cut(shape["text"], MOST_TEXT), "queries": shape["queries"]}
        if shape["bytesNow"]:
            line["factor"] = f"{shape['bytesAfter'] / shape['bytesNow']:.2f}"
        found.append(line)
    return found


def plan_summary(pending: Sequence[PlannedAction]) -> str:
    """Return '2 Recluster (6400 files, 400Gi), 1 SetProperties'."""
    parts = []
    for kind, items in _by_type(pending).items():
        line = _extent(items)
        extent = f" ({line['files']} files, {line['rewriteBytes']})" if line else ""
        parts.append(f"{len(items)} {kind}{extent}")
    return ", ".join(parts)


def _by_type(pending: Sequence[PlannedAction]) -> dict[str, list[PlannedAction]]:
    by_type: dict[str, list[PlannedAction]] = {}
    for item in pending:
        by_type.setdefault(item.action.kind, []).append(item)
    return by_type


def _extent(items: Sequence[PlannedAction]) -> Body:
    """Return the input files of actions of one type and their size, {} for metadata changes."""
    files = sum(len(item.action.inputs) for item in items)
    if not files:
        return {}
    return {
        "files": files,
        "rewriteBytes": short_bytes(total(item.predicted for item in items).bytes_in),
    }


def _distinct(texts: Iterable[str]) -> str:
    """Return the first different texts, and how many more there are."""
    every = [text for text in dict.fromkeys(texts) if text]
    more = [f"{len(every) - MOST_TEXTS} more"] if len(every) > MOST_TEXTS else []
    return cut("; ".join([*every[:MOST_TEXTS], *more]), MOST_TEXT)


def _total(plan: Plan, name: str) -> float | None:
    for line in plan.evidence.get("totals", ()):
        if line.get("name") == name and line.get("after") is not None:
            return float(line["after"]) / 1000
    return None


def with_history(
    history: Sequence[Mapping[str, Any]] | None, entry: Mapping[str, Any]
) -> list[Body]:
    """Return the last five entries, the newest first."""
    return [dict(entry), *(dict(item) for item in history or ())][:MOST_HISTORY]


# A policy over its tables


@dataclass(frozen=True, slots=True)
class PolicyView:
    """The content of a policy's status. layouts: its TableLayouts as stored; matched: its tables.

    conflicting: tables that belong to another policy. failure: (reason, message, stalled) of what
    prevents the policy itself from being Ready. budgets: with (bytes, CPU seconds) reserved now.
    """

    layouts: Sequence[Mapping[str, Any]]
    matched: int
    conflicting: int
    suspended: bool
    failure: tuple[str, str, bool] | None
    budgets: Sequence[BudgetState] = ()
    reserved: tuple[int, int] = (0, 0)
    handled_request: str = ""


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
            "conflicting": view.conflicting,
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
    """One TableLayout as its policy sees it. pending_bytes: None if nothing is planned."""

    table: str
    converged: Truth
    reason: str
    message: str
    stalled: bool
    stall_reason: str
    pending_bytes: int | None


def _seen(layout: Mapping[str, Any]) -> _Seen:
    status = layout.get("status") or {}
    current = status.get("observedGeneration") == layout["metadata"].get("generation")
    converged = condition_of(status, ConditionType.CONVERGED) if current else {}
    stalled = condition_of(status, ConditionType.STALLED)
    table = layout["spec"]["table"]
    planned = (status.get("plan") or {}).get("rewriteBytes")
    return _Seen(
        table=".".join((*table["namespace"], table["name"])),
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
    if view.failure is not None:
        reason, message, stalls = view.failure
        text = explained(reason, message)
        out = [Condition(ConditionType.READY, Truth.FALSE, reason, text)]
        if stalls:
            out.append(Condition(ConditionType.STALLED, Truth.TRUE, reason, text))
        return [*out, Condition(ConditionType.CONVERGED, Truth.UNKNOWN, reason, message)]
    if not view.matched:
        empty = explained(Reason.NO_TABLE_MATCHES)
        ready = Condition(ConditionType.READY, Truth.TRUE, Reason.NO_TABLE_MATCHES, empty)
    else:
        unobserved = sum(s.converged is Truth.UNKNOWN for s in found)
        text = f"{view.matched} {'table' if view.matched == 1 else 'tables'}"
        text += f", {unobserved} not known yet" if unobserved else ""
        ready = Condition(ConditionType.READY, Truth.TRUE, Reason.OBSERVED, text)
    return [ready, *_policy_stalled(view, found), _policy_converged(view, found)]


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
        those = [seen for seen in waiting if seen.reason == reason]
        text = f"{len(waiting)} of {view.matched} not converged; {reason}: {_named(those)}"
        return Condition(kind, Truth.FALSE, reason, text)
    unknown = [seen for seen in found if seen.converged is Truth.UNKNOWN]
    if unknown or len(found) < view.matched:
        down = any(seen.reason == Reason.CATALOG_UNAVAILABLE for seen in unknown)
        reason = Reason.CATALOG_UNAVAILABLE if down else Reason.NEW_GENERATION
        number = view.matched - len(found) + len(unknown)
        text = f"{number} of {view.matched} tables are not known yet"
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


# A catalog


@dataclass(frozen=True, slots=True)
class CatalogView:
    """failure: (reason, message, stalled) of Ready. tables: listed, None while unknown.

    workload: (status, reason, message) of WorkloadFresh.
    """

    failure: tuple[str, str, bool] | None
    tables: int | None
    workload: tuple[Truth, str, str]
    workload_version: int = 0


def catalog_status(
    old: Mapping[str, Any] | None, view: CatalogView, generation: int, now: dt.datetime
) -> Body:
    conditions = []
    if view.failure is None:
        text = EXPLANATIONS[Reason.CATALOG_REACHABLE].cause.rstrip(".")
        conditions.append(
            Condition(ConditionType.READY, Truth.TRUE, Reason.CATALOG_REACHABLE, text)
        )
    else:
        reason, message, stalls = view.failure
        text = explained(reason, message)
        conditions.append(Condition(ConditionType.READY, Truth.FALSE, reason, text))
        if stalls:
            conditions.append(Condition(ConditionType.STALLED, Truth.TRUE, reason, text))
    conditions.append(Condition(ConditionType.WORKLOAD_FRESH, *view.workload))
    body: Body = {
        "observedGeneration": generation,
        "conditions": merged((old or {}).get("conditions"), conditions, generation, now),
    }
    if view.tables is not None:
        body["tables"] = view.tables
    if view.workload_version:
        body["workload"] = {"version": view.workload_version}
    return body


def record_of(status: Mapping[str, Any] | None) -> Record | None:
    """Return status.job as a value; None if there is none. An unknown phase counts as unsettled."""
    body = (status or {}).get("job")
    if not body or not body.get("name") or not body.get("planId"):
        return None
    reserved = body.get("reserved") or {}
    known = {phase.value for phase in Phase}
    phase = Phase(body["phase"]) if body.get("phase") in known else Phase.RUNNING
    written = parse_time(body.get("startedAt")) or dt.datetime.fromtimestamp(0, dt.UTC)
    return Record(
        name=body["name"],
        uid=body.get("uid", ""),
        plan_id=body["planId"],
        digest=body.get("digest", ""),
        attempt=int(body.get("attempt", 1)),
        phase=phase,
        written=written,
        rewrite_bytes=parse_bytes(reserved.get("rewriteBytes", "0")),
        cpu_seconds=parse_duration(reserved.get("cpuTime", "0s")),
    )
