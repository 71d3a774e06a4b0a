"""Whether pending work is approved and within the budgets, as conditions show it; pure."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.api.conditions import ConditionType, Reason
from reconciler.api.documents import TableLayoutPolicy
from reconciler.operator.catalog.ports import EXPIRED
from reconciler.operator.conditions import Body, condition_of
from reconciler.operator.layout.proposal_summary import ProposalSummary
from reconciler.operator.layout.steps import Decision, Wait
from reconciler.plan.actions.base import Consent
from reconciler.plan.budget import admitted_by
from reconciler.plan.gate import Gate

BUDGETS = (Reason.OUTSIDE_WINDOW, Reason.OVER_BUDGET)

Answer = tuple[bool, str, str]
"""Whether it holds, with a condition's reason and message."""


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """The result of approval and budgets for the pending work; None if nothing is pending.

    approved is None, too, if another check refused first, or if the work needs no approval.
    """

    approved: Answer | None = None
    within_budget: Answer | None = None


def verdict(
    own_approval: str | None,
    policy: TableLayoutPolicy,
    proposal: ProposalSummary,
    answer: Gate,
    decision: Decision,
) -> GateVerdict:
    """Return Approved and WithinBudget, from the gate's answer to pending work.

    decision: what becomes of it; a launch may have been refused by what other jobs hold since.
    """
    approved = _approved(own_approval, policy, proposal, answer)
    return GateVerdict(approved, _within_budget(proposal, answer, decision))


def _within_budget(proposal: ProposalSummary, answer: Gate, decision: Decision) -> Answer:
    """Return whether all of the work fits the budgets, whatever check of the gate decided."""
    found = admitted_by(proposal.charges, answer.budgets)
    if found.reason:
        invalid = any(state.error for state in answer.budgets)
        return False, Reason.INVALID_BUDGET.value if invalid else found.reason, found.message
    if isinstance(decision, Wait) and decision.reason in BUDGETS:
        return False, decision.reason, decision.message
    return True, Reason.FITS.value, "the plan fits all active budgets"


def _approved(
    own_approval: str | None, policy: TableLayoutPolicy, proposal: ProposalSummary, answer: Gate
) -> Answer | None:
    approval, plan = policy.spec.approval, proposal.plan_id
    if answer.reason == Reason.AWAITING_APPROVAL:
        return _unapproved(proposal, answer)
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
    return True, why[0].value, why[1]


def _unapproved(proposal: ProposalSummary, answer: Gate) -> Answer:
    if proposal.changed_from is None:
        return False, Reason.AWAITING_APPROVAL.value, answer.message
    old, difference = proposal.changed_from
    text = f"{old} is no longer valid; {proposal.plan_id} is proposed: {difference}"
    expired = difference.startswith(EXPIRED)
    return False, (Reason.PLAN_EXPIRED if expired else Reason.PLAN_CHANGED).value, text


def stored_verdict(status: Body) -> GateVerdict:
    """Return the verdict stored when the job was started; it applies while the job runs."""

    def answer(kind: ConditionType) -> Answer | None:
        found = condition_of(status, kind)
        return (found["status"] == "True", found["reason"], found["message"]) if found else None

    return GateVerdict(answer(ConditionType.APPROVED), answer(ConditionType.WITHIN_BUDGET))
