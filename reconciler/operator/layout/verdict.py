"""Whether pending work is approved and within the budgets, as conditions show it; pure."""

from __future__ import annotations

from typing import Any

from reconciler.api.conditions import ConditionType, Reason
from reconciler.operator.catalog.ports import EXPIRED
from reconciler.operator.conditions import Body, condition_of
from reconciler.operator.layout.proposal_summary import ProposalSummary
from reconciler.operator.layout.status import GateVerdict
from reconciler.operator.layout.steps import Decision, Wait
from reconciler.plan.gate import Gate

BUDGETS = (Reason.OUTSIDE_WINDOW, Reason.OVER_BUDGET)


def verdict(
    own_approval: str | None,
    policy: Any,
    proposal: ProposalSummary,
    answer: Gate,
    decision: Decision,
) -> GateVerdict:
    """Return Approved and WithinBudget, from the gate's answer to pending work.

    decision: what becomes of it; a launch may have been refused by what other jobs hold since.
    """
    reason, message = answer.reason, answer.message
    budget = (True, Reason.FITS.value, "the plan fits all active budgets")
    if isinstance(decision, Wait) and decision.reason in BUDGETS:
        budget = (False, decision.reason, decision.message)
    if reason in BUDGETS:
        invalid = any(state.error for state in answer.budgets)
        budget = (False, Reason.INVALID_BUDGET.value if invalid else reason, message)
    if reason == Reason.AWAITING_APPROVAL:
        if proposal.changed_from is not None:
            old, difference = proposal.changed_from
            text = f"{old} is no longer valid; {proposal.plan_id} is proposed: {difference}"
            expired = difference.startswith(EXPIRED)
            voided = Reason.PLAN_EXPIRED if expired else Reason.PLAN_CHANGED
            return GateVerdict((False, voided.value, text), budget)
        return GateVerdict((False, Reason.AWAITING_APPROVAL.value, message), budget)
    approval = policy.spec.approval
    plan = proposal.plan_id
    if plan == own_approval:
        why = (Reason.APPROVED_BY_PERSON, f"spec.approvedPlan is {plan}")
    elif plan in approval.approved_plans:
        why = (Reason.APPROVED_BY_DOCUMENT, f"spec.approval.approvedPlans holds {plan}")
    elif approval.mode.value == "Automatic":
        why = (Reason.AUTOMATIC, "spec.approval.mode is Automatic")
    elif approval.automatic_up_to is not None:
        why = (Reason.APPROVED_BY_SIZE, f"{plan} is below spec.approval.automaticUpTo")
    else:
        why = (Reason.APPROVED_BY_PERSON, f"{plan} was approved in the shared state")
    return GateVerdict((True, why[0].value, why[1]), budget)


def stored_verdict(status: Body) -> GateVerdict:
    """Return the verdict stored when the job was started; it applies while the job runs."""

    def answer(kind: ConditionType) -> tuple[bool, str, str] | None:
        found = condition_of(status, kind)
        return (found["status"] == "True", found["reason"], found["message"]) if found else None

    return GateVerdict(answer(ConditionType.APPROVED), answer(ConditionType.WITHIN_BUDGET))
