"""Asks the gate about the pending part of a plan: one way for `layoutctl`, operator and driver.

Whoever asks brings the policy, the pending work and what the state has recorded. The facts that the
gate decides on are gathered here and nowhere else.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from reconciler.api.documents import DEFAULT_NAMESPACE, TableLayoutPolicy
from reconciler.api.prices import Prices
from reconciler.api.support import not_acted_on, unheld
from reconciler.loop.decision_settings import budgets_of
from reconciler.plan.budget import Spent
from reconciler.plan.gate import AUTOMATIC_WINDOW, GateInput
from reconciler.plan.plan import Plan, PlannedAction
from reconciler.table.catalog_policies import CatalogBounds


class GateFacts(Protocol):
    """What is recorded about approvals and spending."""

    def approved(self, plan_id: str, policy: str) -> bool:
        """Return whether a person approved the plan while that policy (policy_key) governed the
        table."""
        ...

    def spent(self, policy: str, table_uuid: str, besides: str = "") -> tuple[Spent, ...] | None:
        """Return what this policy spent or reserved on all of its tables, and anything on this one.

        None: the ledger cannot be read, and no budget allows anything. besides: the id of a
        reservation that does not count.
        """
        ...

    def automatic_spent(
        self, table_uuid: str, since: dt.datetime, approved: Collection[str], besides: str = ""
    ) -> int:
        """Return the bytes rewritten without a person's approval since then.

        approved: plan ids that the documents or the caller approve; the state has other approvals.
        besides: the id of a reservation that does not count.
        """
        ...


@dataclass(frozen=True, slots=True)
class Approvals:
    """What the caller approves."""

    plan_id: str = ""
    """The plan that `--yes` or spec.approvedPlan names, "" for none."""
    everything: bool = False
    """Whether the caller approves every plan (`--auto-approve`)."""


@dataclass(frozen=True, slots=True)
class PendingWork:
    """The pending part of a plan on one table."""

    plan: Plan
    """The whole plan."""
    actions: tuple[PlannedAction, ...]
    """Its pending actions, in plan order."""
    table_uuid: str
    """UUID of the table."""
    paused: str
    """Why the table itself stops all work on it, "" if it does not."""
    owner: str
    """Who else claims the table, "" if no one does."""
    other: str
    """The evidence of another optimizer of the table, "" if there is none."""
    forbidden: str
    """Which policy of the catalog forbids one of the actions, "" if none does."""
    queries_too_old: bool
    """Whether the plan is based on queries that are too old to act on without a person."""
    prices: Prices | None = None
    """Prices of the table's catalog, by which messages say money; None without any."""


def gate_input(
    policy: TableLayoutPolicy,
    work: PendingWork,
    facts: GateFacts,
    approvals: Approvals,
    now: dt.datetime,
    besides: str = "",
) -> GateInput:
    """Return all that the gate decides on. besides: a reservation that does not count."""
    approval = policy.spec.approval
    automatic = approval.automatic_up_to
    listed = approved_ids(policy, approvals.plan_id)
    key, plan_id = policy_key(policy), work.plan.id
    unasked = 0
    if automatic is not None:
        since = now - AUTOMATIC_WINDOW
        unasked = facts.automatic_spent(work.table_uuid, since, listed, besides)
    return GateInput(
        plan=work.plan,
        remaining=work.actions,
        suspended=policy.spec.suspend,
        paused=work.paused,
        owner=work.owner,
        other="" if policy.spec.safety.allow_other_optimizers else work.other,
        forbidden=work.forbidden,
        mode=approval.mode.value,
        approved=plan_id in listed or facts.approved(plan_id, key),
        everything_approved=approvals.everything,
        automatic_up_to_bytes=None if automatic is None else automatic.rewrite_bytes,
        automatic_spent_bytes=unasked,
        queries_too_old=work.queries_too_old,
        doubtful_trial=doubtful_trial(work.plan),
        unacted_fields=tuple(unheld(not_acted_on(policy))),
        budgets=budgets_of(policy.spec),
        spent=facts.spent(key, work.table_uuid, besides),
        now=now,
        prices=work.prices,
    )


def forbidden_by(bounds: CatalogBounds, actions: Iterable[PlannedAction], now: dt.datetime) -> str:
    """Return which policy of the catalog forbids one of the actions, "" if none does."""
    every = tuple(actions)
    why = bounds.forbids(kind for item in every for kind in item.action.bound_by)
    now_ms = int(now.timestamp() * 1000)
    ages = (item.action.orphan_age_ms for item in every)
    kept = (bounds.keeps_orphans(age, now_ms) for age in ages if age is not None)
    return why or next(filter(None, kept), "")


def doubtful_trial(plan: Plan) -> str:
    """Return what the trial before the plan found, if that was not what was predicted."""
    found = plan.evidence.get("trial", {})
    return "" if found.get("held", True) else str(found["text"])


def approved_ids(policy: TableLayoutPolicy, own: str) -> tuple[str, ...]:
    """Return the plan ids that documents approve: `own` for this table, if any, then the policy's
    for any of its tables."""
    return (*((own,) if own else ()), *policy.spec.approval.approved_plans)


def policy_key(policy: TableLayoutPolicy) -> str:
    """Return the key of a policy's spending: its budgets apply to all of its tables together."""
    return f"{policy.namespace}/{policy.name}"


def plan_policy_key(plan: Plan) -> str | None:
    """Return the policy that a plan was made under; None if the plan does not name it."""
    metadata = plan.evidence.get("policyDocument", {}).get("metadata", {})
    name = metadata.get("name")
    return f"{metadata.get('namespace', DEFAULT_NAMESPACE)}/{name}" if name else None
