"""Writes what was decided on a TableLayout: its status, its events, its finalizer."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from reconciler.kube.kinds import TABLE_LAYOUT
from reconciler.operator.conditions import Body, Condition, merged
from reconciler.operator.index import policy_of
from reconciler.operator.job_record import JobRecord, job_status, unsettled_of
from reconciler.operator.layout.gathering import Gatherer
from reconciler.operator.layout.recommending import better_layout_known
from reconciler.operator.layout.status import (
    accepted,
    changed,
    layout_conditions,
    timed,
    transitions,
)
from reconciler.operator.layout.steps import Decision, Wait
from reconciler.operator.layout.subject import FINALIZER, Subject, unready_because
from reconciler.operator.layout.verdict import stored_verdict, verdict
from reconciler.operator.status_text import utc
from reconciler.operator.work import GATHER_SECONDS, LAUNCH_KEY, Key, Result, Work

log = logging.getLogger(__name__)


@dataclass
class LayoutWriter:
    """Writes status and finalizer of TableLayouts, each under the version that was read."""

    gatherer: Gatherer

    def __post_init__(self) -> None:
        self.runtime, self.clock = self.gatherer.runtime, self.gatherer.clock

    def accept(self, subject: Subject) -> None:
        """Record a new generation before anything slow; otherwise an old answer would be shown
        meanwhile.

        A table that was never looked at has no old answer.
        """
        seen = subject.status.get("observedGeneration") == subject.generation
        if seen or not subject.status.get("conditions"):
            return
        self.put(subject, accepted(subject.status, subject.generation, subject.now))

    def tell(self, subject: Subject, decision: Decision, **changes: Any) -> None:
        """Write the decision's status, if it differs from what is stored."""
        proposal = subject.proposal
        status = {**subject.status, **changes}
        if proposal is not None:
            status["table"] = {"uuid": proposal.uuid, "formatVersion": proposal.format_version}
            status["observed"] = dict(proposal.observed)
            if subject.cut_short is None:  # with one there is work, whatever is planned
                status["observed"]["fingerprint"] = proposal.fingerprint
            if proposal.revisit is not None:
                status["observed"]["revisit"] = utc(proposal.revisit)
            status.pop("deletes", None)
            if proposal.deletes is not None:
                status["deletes"] = dict(proposal.deletes)
            status.pop("plan", None)
            if proposal.plan_status is not None:
                status["plan"] = dict(proposal.plan_status)
        known = bool(status.get("table"))
        better = better_layout_known(
            subject.policy, status, status.get("observed") or {}, subject.held_back
        )
        if better is None:
            status.pop("recommendation", None)
        conditions = layout_conditions(
            decision,
            self._verdict(subject, decision),
            known=known,
            ready_now=unready_because(subject),
        )
        conditions += [] if better is None else [better]
        status["conditions"] = merged(
            subject.status.get("conditions"), conditions, subject.generation, subject.now
        )
        status["observedGeneration"] = subject.generation
        before = subject.status
        self.put(subject, timed(before, status))
        for reason, message, kind in transitions(before, status):
            self.runtime.api.event(subject.body, reason, message, kind)
        self.gatherer.rest(subject)

    def tell_job(self, subject: Subject, record: JobRecord, meanwhile: Wait) -> None:
        """Write status.job. A rewrite is the table's state; beside a recommend job that stays."""
        if record.recommends:
            self.note(subject, job=job_status(record))
        else:
            self.tell(subject, meanwhile, job=job_status(record))

    def note(self, subject: Subject, **changes: Any) -> None:
        """Write parts of the status that say nothing of the table's state; conditions stay."""
        self.put(subject, {**subject.status, **changes})

    def _verdict(self, subject: Subject, decision: Decision) -> list[Condition]:
        proposal, answer = subject.proposal, subject.gate
        if proposal is None and unsettled_of(subject.status) is not None:
            return stored_verdict(subject.status)
        if proposal is None or answer is None or not proposal.pending:
            return []
        approved, (policy, _) = subject.body["spec"].get("approvedPlan"), subject.usable
        return verdict(approved, policy, proposal, answer, decision, subject.prices)

    def put(self, subject: Subject, status: Body) -> None:
        """Write the status under the version that was read; no write if nothing changed."""
        counted, saved = counted_of(subject.status), saved_of(status)
        if saved is not None:
            status = {**status, "countedSavedBytes": saved}
        if not changed(subject.status, status):
            return
        meta = subject.body["metadata"]
        answer = self.runtime.api.put_status(
            TABLE_LAYOUT, meta["namespace"], meta["name"], status, meta["resourceVersion"]
        )
        if saved is not None and saved != counted:
            self.runtime.metrics.saved(meta["namespace"], saved - counted, subject.prices)
        was, subject.body = unsettled_of(subject.status), answer
        self.runtime.index.put(TABLE_LAYOUT, answer)
        if was is not None and unsettled_of(status) is None:
            self.runtime.enqueue(LAUNCH_KEY, None)  # its slot is free now
        policy = Key(Work.POLICY, meta["namespace"], policy_of(subject.body))
        # Many tables change together: their policy summarises them once.
        self.runtime.enqueue(policy, self.clock().timestamp() + GATHER_SECONDS)

    def hold(self, subject: Subject) -> None:
        """Set the finalizer while a job is live: a deletion then waits for its stop."""
        kept = subject.body["metadata"].get("finalizers") or []
        if FINALIZER not in kept and not subject.body["metadata"].get("deletionTimestamp"):
            self._finalizers(subject, [*kept, FINALIZER])

    def unhold(self, subject: Subject) -> None:
        if unsettled_of(subject.status) is None:
            self._remove_finalizer(subject)

    def release(self, subject: Subject) -> Result:
        record = unsettled_of(subject.status)
        if record is not None:
            text = f"Job {record.name} has not ended in time; the deletion no longer waits for it"
            log.warning("%s/%s: %s", subject.key.namespace, subject.key.name, text)
            self.runtime.api.event(subject.body, "JobLeftBehind", text, "Warning")
        self._remove_finalizer(subject)
        return Result()

    def _remove_finalizer(self, subject: Subject) -> None:
        kept = subject.body["metadata"].get("finalizers") or []
        if FINALIZER in kept:
            self._finalizers(subject, [item for item in kept if item != FINALIZER])

    def _finalizers(self, subject: Subject, wanted: list[str]) -> None:
        meta = subject.body["metadata"]
        body = {"metadata": {"finalizers": wanted, "resourceVersion": meta["resourceVersion"]}}
        answer = self.runtime.api.patch(TABLE_LAYOUT, meta["namespace"], meta["name"], body)
        subject.body = answer


def saved_of(status: Body) -> int | None:
    """Return the bytes that past rewrites have saved at least, by a status; None while unknown."""
    found = ((status.get("observed") or {}).get("saved") or {}).get("atLeastBytes")
    return None if found is None else int(found)


def counted_of(status: Body) -> int:
    """Return what the counters have counted of the table. A saving that is unknown for a while is
    neither lost then nor saved again afterwards."""
    counted = status.get("countedSavedBytes")
    return int((saved_of(status) if counted is None else counted) or 0)
