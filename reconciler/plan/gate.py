"""The gate between a plan and its execution: suspension, owner, others, approval, windows, budgets.

An ordered chain of pure checks, each returning a condition reason and a message; the first check
that objects decides. The gate admits the longest prefix of the plan's actions that the budgets
allow.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from reconciler.api.prices import Prices
from reconciler.format import iec
from reconciler.plan.actions.base import Consent
from reconciler.plan.budget import Budget, Charge, Gate, Spent, admit, charge_text
from reconciler.plan.plan import Plan, PlannedAction

AUTOMATIC_WINDOW = dt.timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class GateInput:
    """All facts that the gate decides on, gathered once."""

    plan: Plan
    """The plan."""
    remaining: tuple[PlannedAction, ...]
    """Its actions that are still pending, in plan order."""
    suspended: bool
    """Whether the policy or the table is suspended."""
    paused: str
    """Why the table itself stops all work on it, "" if it does not."""
    owner: str
    """Who claims the table, "" if no one else does."""
    other: str
    """The evidence of another optimizer, "" if there is none or the policy allows it."""
    forbidden: str
    """Which policy of the catalog forbids one of the pending actions, "" if none does."""
    mode: str
    """spec.approval.mode: "Manual" or "Automatic"."""
    approved: bool
    """Whether a person approved this very plan."""
    everything_approved: bool
    """Whether the caller approves every plan (`--auto-approve`)."""
    automatic_up_to_bytes: int | None
    """Bytes per table and 24 h up to which no approval is needed; None without such a rule."""
    automatic_spent_bytes: int
    """Bytes that were rewritten without approval in the last 24 h."""
    queries_too_old: bool
    """Whether the plan is based on queries that are too old to act on without a person."""
    doubtful_trial: str
    """What a trial found, if the rest of its migration must not follow without a person; ""
    otherwise."""
    unacted_fields: tuple[str, ...]
    """Fields of the policy that this version does not act on. Automatic approval refuses them."""
    budgets: tuple[Budget, ...]
    """The policy's budgets."""
    spent: tuple[Spent, ...] | None
    """What was charged to the budgets; None if the ledger cannot be read."""
    now: dt.datetime
    """The time of the decision."""
    prices: Prices | None = None
    """Prices by which a message says money beside bytes; None without any."""


def gate(given: GateInput) -> Gate:
    """Return the decision. A plan without remaining actions passes with count 0 and no reason."""
    charges = [charge_of(item) for item in given.remaining]
    admission = admit(charges, given.budgets, given.spent, given.now, given.prices)
    if not given.remaining:
        return Gate(0, "", "no action is left", admission.budgets)
    for check in CHECKS:
        refusal = check(given)
        if refusal is not None:
            return replace(refusal, budgets=admission.budgets)
    return admission


def charge_of(item: PlannedAction) -> Charge:
    return Charge(item.predicted.rewrite_bytes, item.predicted.cpu_seconds)


def _suspended(given: GateInput) -> Gate | None:
    if not given.suspended:
        return None
    return Gate(0, "Suspended", "the policy sets suspend: true")


def _paused(given: GateInput) -> Gate | None:
    return Gate(0, "Paused", given.paused) if given.paused else None


def _owned(given: GateInput) -> Gate | None:
    if not given.owner:
        return None
    return Gate(0, "OwnedElsewhere", f"the table is claimed by {given.owner}")


def _other(given: GateInput) -> Gate | None:
    if not given.other:
        return None
    remedy = "switch it off for this table, or set spec.safety.allowOtherOptimizers: true"
    return Gate(0, "OtherOptimizer", f"{given.other}; {remedy}")


def _forbidden(given: GateInput) -> Gate | None:
    return Gate(0, "CatalogPolicy", given.forbidden) if given.forbidden else None


def _approval(given: GateInput) -> Gate | None:
    wanted = {item.action.consent for item in given.remaining}
    if given.approved or wanted == {Consent.NOBODY}:
        return None
    if Consent.PERSON in wanted:
        return Gate(
            0,
            "AwaitingApproval",
            f"nobody has approved {given.plan.id} yet, which spec.safety.approval asks for",
        )
    if given.everything_approved:
        return None
    if given.mode == "Automatic":
        return _automatic(given)
    return _manual(given)


def _automatic(given: GateInput) -> Gate | None:
    if not given.budgets:
        return Gate(0, "AwaitingApproval", "Automatic approval needs at least one budget")
    if given.unacted_fields:
        fields = ", ".join(given.unacted_fields)
        return Gate(0, "AwaitingApproval", f"Automatic refuses fields not acted on yet: {fields}")
    if given.queries_too_old:
        return Gate(0, "AwaitingApproval", "the workload is older than 30 days")
    if given.doubtful_trial:
        return Gate(0, "AwaitingApproval", given.doubtful_trial)
    return None


def _manual(given: GateInput) -> Gate | None:
    charges = [charge_of(item) for item in given.remaining]
    asked = Charge(sum(c.rewrite_bytes for c in charges), sum(c.cpu_seconds for c in charges))
    limit = given.automatic_up_to_bytes
    if limit is None:
        return Gate(0, "AwaitingApproval", f"nobody has approved {given.plan.id} yet")
    if given.queries_too_old:
        return Gate(0, "AwaitingApproval", "the workload is older than 30 days")
    if given.doubtful_trial:
        return Gate(0, "AwaitingApproval", given.doubtful_trial)
    if asked.rewrite_bytes + given.automatic_spent_bytes > limit:
        cost, spent = charge_text(asked, given.prices), iec(given.automatic_spent_bytes)
        return Gate(
            0,
            "AwaitingApproval",
            f"{cost} asked, {spent} spent in 24 h, automaticUpTo is {iec(limit)}",
        )
    return None


CHECKS: Sequence[Callable[[GateInput], Gate | None]] = (
    _suspended, _paused, _owned, _other, _forbidden, _approval,
)  # fmt: skip
"""In the order of Converged's reasons; windows and budgets come last, because they admit a
prefix."""
