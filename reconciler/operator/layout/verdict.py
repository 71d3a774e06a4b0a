"""Whether pending work is approved and within the budgets, as conditions show it; pure."""

from __future__ import annotations

from reconciler.api.conditions import ConditionType, Reason
from reconciler.api.conditions import Status as Truth
from reconciler.api.documents import TableLayoutPolicy
from reconciler.api.prices import Prices
from reconciler.operator.conditions import Body, Condition, known_condition
from reconciler.operator.layout.steps import Decision, Wait
from reconciler.operator.ports import EXPIRED
from reconciler.operator.proposal_summary import ProposalSummary
from reconciler.plan.actions.base import Consent
from reconciler.plan.budget import Gate, admitted_by

BUDGETS = (Reason.OUTSIDE_WINDOW, Reason.OVER_BUDGET)


def verdict(
    own_approval: str | None,
    policy: TableLayoutPolicy,
    proposal: ProposalSummary,
    answer: Gate,
    decision: Decision,
    prices: Prices | None = None,
) -> list[Condition]:
    """Return Approved and WithinBudget, from the gate's answer to pending work.

    There is no Approved if another check refused first, or if the work needs no approval.
    decision: what becomes of it; a launch may have been refused by what other jobs hold since.
    prices: of the table's catalog.
    """
    approved = _approved(own_approval, policy, proposal, answer)
    within = _within_budget(proposal, answer, decision, prices)
    return [within] if approved is None else [approved, within]


def _within_budget(
    proposal: ProposalSummary, answer: Gate, decision: Decision, prices: Prices | None
) -> Condition:
    """Return whether all of the work fits the budgets, whatever check of the gate decided."""
    kind = ConditionType.WITHIN_BUDGET
    found = admitted_by(proposal.charges, answer.budgets, prices)
    if found.reason:
        invalid = any(state.error for state in answer.budgets)
        reason = Reason.INVALID_BUDGET if invalid else found.reason
        return Condition(kind, Truth.FALSE, reason, found.message)
    if isinstance(decision, Wait) and decision.reason in BUDGETS:
        return Condition(kind, Truth.FALSE, decision.reason, decision.message)
    return Condition(kind, Truth.TRUE, Reason.FITS, "the plan fits all active budgets")


def _approved(
    own_approval: str | None, policy: TableLayoutPolicy, proposal: ProposalSummary, answer: Gate
) -> Condition | None:
    approval, plan = policy.spec.approval, proposal.plan_id
    if answer.reason == Reason.AWAITING_APPROVAL:
        return Condition(ConditionType.APPROVED, Truth.FALSE, *_unapproved(proposal, answer))
    asked = answer.reason == "" or answer.reason in BUDGETS
    if not asked or {item.action.consent for item in proposal.pending} == {Consent.NOBODY}:
        return None
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
    return Condition(ConditionType.APPROVED, Truth.TRUE, *why)


def _unapproved(proposal: ProposalSummary, answer: Gate) -> tuple[Reason, str]:
    """Return the reason and the message of work that waits for its approval."""
    if proposal.lapsed is None:
        return Reason.AWAITING_APPROVAL, answer.message
    old, why = proposal.lapsed
    text = f"{old} is no longer valid; {proposal.plan_id} is proposed: {why}"
    expired = why.startswith(EXPIRED)
    return Reason.PLAN_EXPIRED if expired else Reason.PLAN_CHANGED, text


def stored_verdict(status: Body) -> list[Condition]:
    """Return the verdict stored when the job was started; it applies while the job runs."""
    kinds = (ConditionType.APPROVED, ConditionType.WITHIN_BUDGET)
    return [found for kind in kinds if (found := known_condition(status, kind)) is not None]
