"""Makes one frozen plan for one table: observe, gather evidence, advise, freeze.

This half of the step writes nothing to the user's catalog. `plan`, `apply`, `explain` and `status`
all call it, so that a plan means the same everywhere. Its I/O is passed in as `Ports`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from reconciler.advisor.advice import Advice, Settings
from reconciler.api.documents import TableLayoutPolicy
from reconciler.loop.advised import Advised, advised, on_live_files, planned_row_groups
from reconciler.loop.decision_settings import row_group_size
from reconciler.loop.evidence import evidence_document
from reconciler.loop.file_checks import reads_one_of
from reconciler.loop.gating import forbidden_by
from reconciler.loop.history import History
from reconciler.loop.ports import Ports, RecordedQueries, Target
from reconciler.plan.actions.base import Consent
from reconciler.plan.actions.state import ActionState, Validity
from reconciler.plan.plan import Basis, Plan, PlannedAction, freeze
from reconciler.plan.standing import head_of, judge
from reconciler.queries.shape import Workload
from reconciler.queries.table_view import OPEN_BYTES
from reconciler.table.observation import Observation
from reconciler.table.sample import RowGroups
from reconciler.table.times import DAY_MS

NOTHING_MORE: Mapping[str, Any] = MappingProxyType({})


def open_bytes_of(plan: Plan | None) -> int:
    """Return the price of opening a file by which a plan was made; the preset where it is not known
    any more."""
    cost = plan.evidence.get("cost") if plan is not None else None
    return int((cost or {}).get("openBytes", OPEN_BYTES))


@dataclass(frozen=True, kw_only=True)
class PlanOnTable:
    """A plan, judged against a table as it was observed."""

    target: Target
    """The table, and the catalog that has it."""
    policy: TableLayoutPolicy
    """The policy that the plan was made by."""
    observation: Observation
    """The table as it is now."""
    queries: RecordedQueries
    """The known queries on the table."""
    row_group_bytes: int
    """Size of a row group that the policy or the table asks for."""
    plan: Plan
    """What is judged."""
    states: Mapping[str, ActionState]
    """How each action of the plan stands, by its id."""
    pending: tuple[PlannedAction, ...]
    """The actions that remain, in the plan's order."""
    row_groups: RowGroups | None = None
    """Row groups of the footers that the plan's readings are based on; None if no footer was
    read."""

    @property
    def open_bytes(self) -> int:
        """The price of opening a file by which the plan was made."""
        return open_bytes_of(self.plan)

    @property
    def by_person(self) -> bool:
        """Whether it must be a person who approves the plan, after a look at the result."""
        return any(item.action.consent is Consent.PERSON for item in self.pending)


@dataclass(frozen=True, kw_only=True)
class Proposal(PlanOnTable):
    """A plan with everything it was made from."""

    settings: Settings
    """Settings of the decision, from the policy and the ledger."""
    history: History
    """What the state store has of the table."""
    advice: Advice
    """What would be decided now."""
    frozen: bool
    """Whether the plan was not made now but is a standing one."""
    newer: Plan | None
    """The plan that would be made now, if it differs from the frozen one."""

    @property
    def queries_too_old(self) -> bool:
        return bool(self.plan.evidence.get("workload", {}).get("warning"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What a plan is made for."""

    target: Target
    """The table."""
    policy: TableLayoutPolicy
    """The policy that governs it."""
    policy_hash: str
    """Hash of the part of the policy that determines a plan."""
    policy_name: str
    """Name of the policy in plans."""
    not_acted_on: Sequence[str]
    """The fields of the policy that this release does not act on."""
    cores: int
    """Number of cores that would carry it out."""
    show_literals: bool = False
    """Whether queries are shown with their literals."""


def propose(
    wanted: PlanRequest, ports: Ports, now: dt.datetime, *, refresh: bool = False
) -> Proposal:
    """Return the standing frozen plan of (table, policy), or a new one from present evidence."""
    target = looked_at(wanted)
    found = advised(target, wanted.policy, ports, now)
    seen = found.observation
    fresh = freeze_advice(wanted, found, now)
    standing = None if refresh else _standing(ports, target, seen, wanted.policy_hash, now)
    if found.settings.audited is not None and standing is not None and standing.id != fresh.id:
        standing = None  # what waits on a branch comes first
    made = proposal_of(wanted, found, fresh, now)
    return made if standing is None else with_standing(made, standing, now)


def looked_at(wanted: PlanRequest) -> Target:
    """Return the target, with other writers' changes of the whole quiet period."""
    quiet_ms = wanted.policy.spec.layout.files.quiet_period_seconds * 1000
    return replace(wanted.target, recent_ms=max(wanted.target.recent_ms, quiet_ms))


def proposal_of(wanted: PlanRequest, found: Advised, plan: Plan, now: dt.datetime) -> Proposal:
    """Return a plan that is made now with everything it was made from."""
    states, pending = judged(plan, found.observation, now)
    return Proposal(
        target=looked_at(wanted),
        policy=wanted.policy,
        observation=found.observation,
        queries=found.queries,
        row_group_bytes=found.settings.row_group_bytes,
        settings=found.settings,
        history=found.history,
        advice=found.advice,
        plan=plan,
        frozen=False,
        newer=None,
        states=states,
        pending=pending,
        row_groups=found.row_groups,
    )


def with_standing(proposal: Proposal, plan: Plan, now: dt.datetime) -> Proposal:
    """Return the proposal with another plan that stands in place of the one that was made now."""
    states, pending = judged(plan, proposal.observation, now)
    newer = _newer(proposal.plan, plan, pending)
    return replace(proposal, plan=plan, frozen=True, newer=newer, states=states, pending=pending)


def _newer(fresh: Plan, plan: Plan, pending: Sequence[PlannedAction]) -> Plan | None:
    """Return the plan that would be made now, if it differs from one of which nothing is done."""
    untouched = len(pending) == len(plan.actions)
    return fresh if plan.id != fresh.id and untouched else None


def judged(
    plan: Plan, seen: Observation, now: dt.datetime
) -> tuple[Mapping[str, ActionState], tuple[PlannedAction, ...]]:
    """Return how each action of the plan stands, and those that remain."""
    states = judge(plan, head_of(seen), now).states
    return states, tuple(a for a in plan.actions if states[a.id].validity is Validity.PENDING)


def place_plan(
    plan: Plan, target: Target, policy: TableLayoutPolicy, ports: Ports, now: dt.datetime
) -> PlanOnTable:
    """Return a frozen plan on the table as it is now. Nothing is planned again."""

    def on(seen: Observation) -> PlanOnTable:
        queries = ports.recorded_queries(seen)
        states, pending = judged(plan, seen, now)
        return PlanOnTable(
            target=target,
            policy=policy,
            observation=seen,
            queries=queries,
            row_group_bytes=row_group_size(policy, seen),
            plan=plan,
            states=states,
            pending=pending,
            row_groups=planned_row_groups(target, policy, seen, queries, ports, now),
        )

    return on_live_files(target, ports, on)


def observed_again(placed: PlanOnTable, ports: Ports, now: dt.datetime) -> PlanOnTable:
    """Return the plan on the table as it is after the execution; no footer is read yet."""
    seen = ports.observe(placed.target)
    states, pending = judged(placed.plan, seen, now)
    return replace(placed, observation=seen, states=states, pending=pending, row_groups=None)


def _standing(
    ports: Ports,
    target: Target,
    observation: Observation,
    policy_hash: str,
    now: dt.datetime,
) -> Plan | None:
    """Return the plan that was proposed before, if it may still be carried out: a file that an
    earlier run refused would fail it again."""
    plan = ports.standing_plan(observation.uuid, policy_hash)
    if plan is None or plan.empty or judge(plan, head_of(observation), now).fallen is not None:
        return None
    _, pending = judged(plan, observation, now)
    if forbidden_by(observation.metadata.bounds, pending, now):
        return None  # another plan may do the rest
    refused = ports.refusals(target, observation)
    return None if reads_one_of(observation, (a.action for a in pending), refused) else plan


def freeze_advice(
    wanted: PlanRequest, found: Advised, now: dt.datetime, more: Mapping[str, Any] = NOTHING_MORE
) -> Plan:
    """Return the frozen plan of an advice. more: evidence in place of what the advice gives."""
    policy, observation, settings = wanted.policy, found.observation, found.settings
    document = evidence_document(
        found,
        policy,
        cores=wanted.cores,
        not_acted_on=wanted.not_acted_on,
        show_literals=wanted.show_literals,
    )
    document |= more
    _warn_if_stale(document, found.queries.workload, now)
    lifetime = dt.timedelta(seconds=policy.spec.approval.plan_ttl_seconds)
    base = observation.snapshot_id
    if settings.audited is not None:
        base = settings.audited.base
        left = settings.audited.until_ms - int(now.timestamp() * 1000)
        lifetime = dt.timedelta(milliseconds=left) if left > 0 else lifetime
    return freeze(
        Basis(
            catalog=wanted.target.catalog.name,
            table=wanted.target.identifier,
            table_uuid=observation.uuid,
            policy_hash=wanted.policy_hash,
            policy=wanted.policy_name,
            base_snapshot_id=base,
        ),
        created=now,
        time_to_live=lifetime,
        actions=[(item.action, item.predicted) for item in found.advice.actions],
        files=observation.files,
        evidence=document,
    )


def _warn_if_stale(document: dict[str, Any], workload: Workload, now: dt.datetime) -> None:
    """Add a warning to the plan if the log is old; Automatic approval then waits."""
    now_ms = int(now.timestamp() * 1000)
    if workload.stale(now_ms):
        days = (now_ms - workload.until_ms) // DAY_MS
        document["workload"]["warning"] = f"its last query is {days} days old"
