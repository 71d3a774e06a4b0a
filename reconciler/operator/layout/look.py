"""Looks at one table: makes the same proposal as `layoutctl plan`, and keeps little of it.

Calls the step's own `propose` with the cluster's I/O. A plan that people approved and published
becomes the plan if it is still valid; otherwise the difference is reported. Only what decisions and
status need is kept: input files and evidence stay in the plan store.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from reconciler.advisor.measure.credit import Credit
from reconciler.api.choices import EngineType
from reconciler.api.conditions import Reason
from reconciler.api.documents import TableLayoutPolicy
from reconciler.engines.choice import Machine, choose
from reconciler.errors import TableDamagedError
from reconciler.format import utc
from reconciler.loop.engines import CommitTarget, asked_engine, needs_of
from reconciler.loop.gating import forbidden_by
from reconciler.loop.operator_actor import ClusterActor
from reconciler.loop.ports import Target
from reconciler.loop.propose import Proposal, judged, with_standing
from reconciler.loop.step import Step, state_of
from reconciler.loop.waiting import ripens_ms
from reconciler.operator.layout.deletes_status import deletes_status
from reconciler.operator.layout.plan_status import plan_status, plan_summary
from reconciler.operator.ports import EXPIRED
from reconciler.operator.proposal_summary import (
    NOTHING_TO_DO,
    LapsedApproval,
    ProposalSummary,
    Rests,
)
from reconciler.operator.status_text import short_bytes
from reconciler.plan.money import plan_money, plan_money_text
from reconciler.plan.plan import Plan, PlannedAction
from reconciler.plan.prediction import total
from reconciler.plan.standing import Fallen, Judgement, head_of, judge
from reconciler.table.damage import damage_of
from reconciler.table.others import other_optimizer

MOST_SAVED = 10**18
"""Greatest number of bytes that status says were saved, or lost."""

POD_DISK = 20 << 30
"""Temporary space that a pod of any node has, as far as a plan may count on it."""

POLICIES_AGE = dt.timedelta(hours=1)
"""After this time it is asked again what a policy of the catalog forbids: nothing tells of a change
of one."""

MOST_APPROVED = 16
"""Maximum approved plans that are looked up for one table."""


def look_at(
    actor: ClusterActor,
    target: Target,
    policy: TableLayoutPolicy,
    fingerprint: str,
    approved: Sequence[str],
    now: dt.datetime,
) -> ProposalSummary:
    """Return what would be done; store a plan that has work. Raises what proposing raises."""
    step = Step(target, policy, policy.name, lambda: now, in_cluster=True)
    proposal = step.propose(actor)
    damage = damage_of(proposal.observation)
    if damage:
        raise TableDamagedError(damage)
    lapsed = None
    # What waits on a branch comes first, and an approved plan may be the one that put it there.
    free = proposal.settings.audited is None
    if free and approved and proposal.plan.id not in approved:
        found, lapsed = _approved_plan(actor, proposal, approved, now)
        if found is not None:
            actor.put_plan(found)
            proposal = with_standing(proposal, found, now)
        elif not proposal.pending:
            lapsed = None  # a table without work needs none of these plans
    uri = ""
    if proposal.pending:
        if not proposal.frozen:
            actor.put_plan(proposal.plan)
        uri = actor.plans.uri_of(proposal.plan)
    return _summary_of(proposal, fingerprint, uri, lapsed, now, engine_in_pod(step, proposal))


def engine_in_pod(step: Step, proposal: Proposal) -> EngineType:
    """Return who carries the plan out: one pod of spec.engine's executors alone, or Spark."""
    asked = asked_engine(
        None, step.policy.spec.engine.type, step.target.catalog.engine, EngineType.SPARK
    )
    executors = step.policy.spec.engine.executors
    pod = Machine(executors.cores, executors.memory_bytes, POD_DISK)
    place = CommitTarget.of(step.target.catalog, step.policy.spec.safety)
    return choose(asked, needs_of(place, proposal.observation, proposal.pending), pod).engine


def _approved_plan(
    actor: ClusterActor, proposal: Proposal, approved: Sequence[str], now: dt.datetime
) -> tuple[Plan | None, LapsedApproval | None]:
    """Return the approved plan that is still valid; else None, and the first approval that lapsed.

    Ids of other tables and of plans that were carried out are ignored.
    """
    head = head_of(proposal.observation)
    lapsed: LapsedApproval | None = None
    uuid = proposal.observation.uuid
    stored = actor.published_ids(uuid)
    own = [plan_id for plan_id in approved if plan_id in stored]
    for plan_id in own[:MOST_APPROVED]:
        plan = actor.published(uuid, plan_id)
        if plan is None:
            continue
        found = judge(plan, head, now)
        if found.fallen is Fallen.DONE:
            continue
        why = ""
        if plan.policy_hash != proposal.plan.policy_hash:
            why = "the policy asks for another layout now"
        elif found.fallen is not None:
            why = _fallen_text(found)
        else:
            _, pending = judged(plan, proposal.observation, now)
            why = forbidden_by(proposal.observation.metadata.bounds, pending, now)
        if not why:
            return plan, None
        lapsed = lapsed or LapsedApproval(plan_id, f"{why}; {_difference(plan, proposal)}")
    return None, lapsed


def _fallen_text(found: Judgement) -> str:
    if found.fallen is Fallen.TOO_OLD:
        return EXPIRED
    return found.why + (f": {found.details[0]}" if found.details else "")


def _difference(old: Plan, proposal: Proposal) -> str:
    """Return what the new plan does in addition to the approved one, in bytes and by type."""
    new = total(item.predicted for item in proposal.pending).bytes_in
    was, now = plan_summary(old.actions), plan_summary(proposal.pending)
    sizes = f"{short_bytes(old.predicted.bytes_in)} -> {short_bytes(new)}"
    return f"was {was}; is {now}; rewrites {sizes}"


def _money(proposal: Proposal) -> str:
    """Return what the rest of the plan costs and saves, as printed; "" without prices."""
    prices = proposal.target.catalog.prices
    if prices is None:
        return ""
    left = total(item.predicted for item in proposal.pending)
    return plan_money_text(plan_money(prices, left, proposal.open_bytes))


def _summary_of(
    proposal: Proposal,
    fingerprint: str,
    uri: str,
    lapsed: LapsedApproval | None,
    now: dt.datetime,
    engine: EngineType,
) -> ProposalSummary:
    seen = proposal.observation
    pending = tuple(_stripped(item) for item in proposal.pending)
    plan, predicted = proposal.plan, total(item.predicted for item in pending)
    digest = plan.digest() if pending else ""
    return ProposalSummary(
        fingerprint=fingerprint,
        uuid=seen.uuid,
        format_version=seen.format_version,
        plan=replace(plan, actions=pending, evidence={}),
        pending=pending,
        digest=digest,
        uri=uri,
        observed=_observed(proposal, now),
        plan_status=(
            plan_status(plan, proposal.pending, digest, uri, seen.schema, _money(proposal))
            if pending
            else None
        ),
        queries_too_old=proposal.queries_too_old,
        other=other_optimizer(seen, int(now.timestamp() * 1000)),
        forbidden=forbidden_by(seen.metadata.bounds, pending, now),
        rests_on_workload=any(i.action.rests_on_workload for i in pending),
        rests=NOTHING_TO_DO if pending else _rests(proposal),
        revisit=_revisit(proposal, now),
        saving_per_byte=predicted.saving / predicted.bytes_in if predicted.bytes_in else 0.0,
        lapsed=lapsed,
        conflicting=proposal.history.conflicts.concern([item.action for item in pending]),
        engine=engine,
        deletes=deletes_status(seen),
    )


def _stripped(item: PlannedAction) -> PlannedAction:
    """Return the action with what decisions use: a process keeps many of them for long."""
    return replace(item, action=item.action.without_files(), predicted=item.predicted.charged())


def _rests(proposal: Proposal) -> Rests:
    """Return the content of Converged for a table without work, in the words of `layoutctl
    status`."""
    state = state_of(proposal, None)
    return Reason(state.reason or Reason.NOTHING_TO_DO), state.message


def _revisit(proposal: Proposal, now: dt.datetime) -> dt.datetime | None:
    """Return when another look may find work although the table has not changed; None for never."""
    moment = None
    if not proposal.pending:
        moment = ripens_ms(proposal.advice, proposal.observation, proposal.settings)
    found = [] if moment is None else [dt.datetime.fromtimestamp(moment / 1000, dt.UTC)]
    if proposal.observation.metadata.bounds.forbidden:
        found.append(now + POLICIES_AGE)
    return min(found, default=None)


def _observed(proposal: Proposal, now: dt.datetime) -> dict[str, Any]:
    """Return status.observed. now: the time of this look, which alone is not a change."""
    seen, workload = proposal.observation, proposal.queries.workload
    body: dict[str, Any] = {"time": utc(int(now.timestamp() * 1000))}
    body |= {"files": len(seen.files), "bytes": short_bytes(seen.files.total_bytes)}
    if seen.snapshot_id is not None:
        body["snapshotId"] = str(seen.snapshot_id)
        body["snapshotTime"] = utc(seen.snapshot_ms)
    for judgement in proposal.advice.objectives:
        if judgement.name == "maxSmallFilePercent":
            body["smallFilePercent"] = min(100, max(0, round(judgement.now)))
        if judgement.name == "maxDeletedRowsPercent" and not judgement.at_least:
            body["deletedRowsPercent"] = min(100, max(0, round(judgement.now)))
    saved = _saved(proposal)
    if saved is not None:
        body["saved"] = saved
    if not workload.empty:
        body["scanAmplification"] = f"{proposal.advice.amplification_now:.2f}"
        body["workload"] = {"queries": round(workload.queries), "until": utc(workload.until_ms)}
    return body


def _saved(proposal: Proposal) -> dict[str, Any] | None:
    """Return what past rewrites have saved, None without any. There are no bytes while no query
    has run since the first of them: that is not a saving of 0. queries: since the first."""
    credits = list(proposal.history.credits.values())
    if not credits:
        return None
    total = reduce(Credit.plus, credits)
    body: dict[str, Any] = {
        "since": utc(total.since_ms), "queries": round(max(one.queries for one in credits)),
    }  # fmt: skip
    if total.none_ran:
        return body
    return body | {
        "atLeastBytes": _bounded(total.table_least), "atMostBytes": _bounded(total.table_most),
        "until": utc(total.until_ms),
    }  # fmt: skip


def _bounded(size: float) -> int:
    """Return the bytes as status may hold them."""
    return max(-MOST_SAVED, min(MOST_SAVED, round(size)))
