"""What the operator keeps of a proposal, in memory and in the status of its TableLayout.

`look` makes it of the proposal of one table; `at_rest_by` reads back from a status what is kept of
a table without work, as most of ten thousand tables are.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from reconciler.api.choices import EngineType
from reconciler.api.conditions import ConditionType, Reason
from reconciler.operator.conditions import condition_of
from reconciler.operator.status_text import parse_time
from reconciler.plan.budget import Charge
from reconciler.plan.gate import charge_of
from reconciler.plan.plan import Plan, PlannedAction

Rests = tuple[Reason, str]
"""Reason and message of Converged for a table with nothing to do."""

NOTHING_TO_DO: Rests = (Reason.NOTHING_TO_DO, "nothing above threshold")


class LapsedApproval(NamedTuple):
    """An approved plan that is no longer valid."""

    plan_id: str
    """Id of the plan."""
    why: str
    """Why it is not valid, and how the new plan differs."""


@dataclass(frozen=True, slots=True)
class ProposalSummary:
    """What would be done to one table, as far as decisions and status need it."""

    fingerprint: str
    """Hash of what was planned from. While it is the same, nothing is planned."""
    rests: Rests = NOTHING_TO_DO
    """What a table without work reports."""
    revisit: dt.datetime | None = None
    """When to plan again without a change of the table; None if time alone brings no work."""
    uuid: str = ""
    """UUID of the table."""
    format_version: int = 0
    """Version of Apache Iceberg's table specification."""
    plan: Plan | None = None
    """The plan without input files and evidence, which only the plan store has; None if the table
    rests."""
    pending: tuple[PlannedAction, ...] = ()
    """Its pending actions, likewise without input files."""
    digest: str = ""
    """"sha256:" and the hexadecimal hash of the stored plan; "" for an empty one."""
    uri: str = ""
    """Place of the stored plan; "" for an empty one."""
    observed: Mapping[str, Any] = field(default_factory=dict)
    """status.observed."""
    plan_status: Mapping[str, Any] | None = None
    """status.plan; None for an empty plan."""
    queries_too_old: bool = False
    """Whether the plan is based on queries that are too old to act on without a person."""
    other: str = ""
    """The evidence of another optimizer of the table, "" if there is none."""
    forbidden: str = ""
    """Which policy of the catalog forbids one of the pending actions, "" if none does."""
    rests_on_workload: bool = False
    """Whether an action depends on the recorded queries."""
    saving_per_byte: float = 0.0
    """Predicted saving per byte rewritten, by which tables are ordered."""
    lapsed: LapsedApproval | None = None
    """An approval of an earlier plan that lapsed; None without one."""
    conflicting: bool = True
    """Whether the plan has work of a class that other writers won last (`plan.conflicts`)."""
    engine: EngineType = EngineType.SPARK
    """Who carries the plan out: Local or Spark."""
    deletes: Mapping[str, Any] | None = None
    """status.deletes; None if the table has none."""

    @property
    def plan_id(self) -> str:
        """The plan's id, "" for a table that rests."""
        return "" if self.plan is None else self.plan.id

    @property
    def charges(self) -> tuple[Charge, ...]:
        """The charges of the pending actions, in plan order."""
        return tuple(charge_of(item) for item in self.pending)

    @property
    def stands_until(self) -> dt.datetime | None:
        """Time from which another look is needed although nothing has changed; None for never."""
        expires = self.plan.expires if self.plan is not None and self.pending else None
        return min((one for one in (expires, self.revisit) if one is not None), default=None)

    def stands(self, fingerprint: str, now: dt.datetime) -> bool:
        """Whether another look now would give the same result."""
        ends = self.stands_until
        return self.fingerprint == fingerprint and (ends is None or now < ends)

    def at_rest(self) -> ProposalSummary:
        """Return what is kept of it if nothing is to do."""
        return ProposalSummary(self.fingerprint, self.rests, self.revisit)


def at_rest_by(status: Mapping[str, Any]) -> ProposalSummary | None:
    """Return what the status records of a state without work; None if it records none."""
    observed = status.get("observed") or {}
    found = condition_of(status, ConditionType.CONVERGED)
    for reason in (Reason.NOTHING_TO_DO, Reason.OBJECTIVE_UNREACHABLE, Reason.CATALOG_POLICY):
        if found.get("reason") == reason and observed.get("fingerprint") and not status.get("plan"):
            rests = (reason, str(found.get("message", "")))
            revisit = parse_time(observed.get("revisit"))
            return ProposalSummary(observed["fingerprint"], rests, revisit)
    return None
