"""The reconcile of one TableLayout: gather, decide, carry out, report.

Unsettled things come first (a job that ended, a write-ahead without a job), then the cheap check,
then a plan and its gate. What may start is offered to the launcher, which alone starts it;
everything else is done here. Level-triggered: it acts on what it finds, whatever event called it.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from reconciler.api.conditions import Reason
from reconciler.kube.errors import Conflict, NotFound
from reconciler.kube.kinds import JOB
from reconciler.operator import due
from reconciler.operator.job_record import JobRecord, job_status, record_of
from reconciler.operator.layout.attempts import adopted, reserved_for
from reconciler.operator.layout.endings import Endings
from reconciler.operator.layout.facts import JobSeen, LayoutInput
from reconciler.operator.layout.next_step import RECOMMEND_CPU_SECONDS
from reconciler.operator.layout.steps import (
    Adopt,
    CreateAgain,
    Decision,
    DropReservation,
    Launch,
    Recommend,
    Retire,
    Settle,
    StopJob,
    Wait,
)
from reconciler.operator.layout.subject import Subject
from reconciler.operator.work import Key, Result

log = logging.getLogger(__name__)

BUSY = dt.timedelta(seconds=15)
SHOWN = (
    Reason.SUSPENDED,
    Reason.OUTSIDE_WINDOW,
    Reason.JOB_NOT_STARTED,
    Reason.CONCURRENCY_LIMIT,
)
"""Why a job is stopped, if that is a reason of Converged as well."""
Offer = Callable[[Key, Launch | Recommend | None], Wait | None]
"""Offers the launcher what a table could start; None withdraws the offer.

Returns why that cannot start now, None if it will be tried.
"""


@dataclass
class Layouts:
    """Reconciles TableLayouts."""

    endings: Endings
    """Settles jobs that have ended."""
    offer: Offer
    """Offers work to the launcher; None withdraws it. Returns why it cannot start now."""
    create: Callable[[Subject, JobRecord, float], Result]
    """Creates the Job of a record again, with the given factor of memory."""

    def __post_init__(self) -> None:
        self.writer, self.gatherer = self.endings.writer, self.endings.gatherer
        self.runtime, self.clock = self.gatherer.runtime, self.gatherer.clock

    def reconcile(self, key: Key) -> Result:
        body = self.runtime.index.layout(key.namespace, key.name)
        if body is None:
            self.gatherer.forget(key)
            self.offer(key, None)
            return Result()
        if not self.runtime.held():
            return Result(due=self.clock().timestamp() + 5)
        subject = self.gatherer.subject(body)
        try:
            self.writer.accept(subject)
            fresh = self.gatherer.needs_server(subject)
            given, decision = self.gatherer.decide(subject, fresh=fresh)
            return self._act(subject, given, decision)
        except Conflict:
            return Result(due=self.clock().timestamp() + 1)
        except NotFound:
            return Result()

    def _act(self, subject: Subject, given: LayoutInput, decision: Decision) -> Result:
        if not isinstance(decision, (Launch, Recommend)):
            self.offer(subject.key, None)
        match decision:
            case Wait(until, ""):  # the lease was lost meanwhile: its next holder reports
                return Result(due=until.timestamp())
            case Adopt(job):
                return self._adopt(subject, job)
            case StopJob(job, why, message):
                return self._stop_job(subject, job, why, message)
            case Settle(record, job):
                return self.endings.settle(subject, record, job)
            case CreateAgain(record, factor):
                return self.create(subject, record, factor)
            case DropReservation(record, why):
                return self.endings.drop(subject, record, why)
            case Retire():
                return self.writer.release(subject)
            case Recommend(_, meanwhile):
                refused = self.offer(subject.key, decision)
                subject.held_back = "" if refused is None else refused.message
                self.writer.tell(subject, meanwhile)
                return Result(due=self._next(subject, given, meanwhile).timestamp())
            case Launch():
                self.writer.tell(subject, self.offer(subject.key, decision) or decision)
                return Result(due=given.due.timestamp())
        self.writer.tell(subject, decision)
        self.writer.unhold(subject)
        return Result(due=self._next(subject, given, decision).timestamp())

    def _next(self, subject: Subject, given: LayoutInput, decision: Decision) -> dt.datetime:
        moments = [decision.until if isinstance(decision, Wait) else given.due]
        found = subject.proposal or self.gatherer.resting_of(subject)
        if given.proposal is not None and found is not None and found.stands_until is not None:
            moments.append(max(found.stands_until, subject.now + BUSY))
        if given.unsettled is not None:
            moments.append(subject.now + 2 * BUSY)  # a recommend job beside which the table rests
        window = due.boundary(subject.budgets, subject.now)
        if window is not None and given.unsettled is not None:
            moments.append(window)
        return min(moments)

    def _adopt(self, subject: Subject, job: JobSeen) -> Result:
        """Record a live Job of ours, with what its write-ahead reserved."""
        record = record_of(subject.status)
        if record is not None and record.name == job.name:
            record = replace(record, uid=job.uid, phase=job.phase)
        elif job.recommends:
            record = adopted(job, 0, RECOMMEND_CPU_SECONDS)
        else:
            known = self.gatherer.proposals.get(subject.key)
            charges = known.charges if known is not None and known.plan_id == job.plan_id else ()
            record = adopted(job, *reserved_for(charges))
        running = Wait(subject.now + BUSY, Reason.REWRITE_RUNNING, f"Job {job.name} runs")
        self.writer.hold(subject)
        self.writer.tell_job(subject, record, running)
        return Result(due=(subject.now + BUSY).timestamp())

    def _stop_job(self, subject: Subject, job: JobSeen, why: str, message: str) -> Result:
        """Stop a Job. Why is recorded first: a Job that is gone cannot say that it was stopped, and
        the write is refused where something else changed the table meanwhile."""
        until = subject.now + BUSY
        if not self.runtime.held():
            return Result(due=until.timestamp())
        self._record_stop(subject, job, why, message)
        self.runtime.api.event(subject.body, "StopsJob", f"Job {job.name}: {message}")
        try:
            self.runtime.api.delete(JOB, subject.key.namespace, job.name, uid=job.uid)
        except NotFound:
            log.info("Job %s/%s is gone already", subject.key.namespace, job.name)
        return Result(due=until.timestamp())

    def _record_stop(self, subject: Subject, job: JobSeen, why: str, message: str) -> None:
        """Write why a Job is stopped, in one write with the failure that this is, if it is one: a
        stop that has to be tried again counts once."""
        changes, record = {}, record_of(subject.status)
        known = record is not None and record.name == job.name and record.stopped == why
        if why == Reason.JOB_NOT_STARTED and not known:
            changes = self.endings.never_started(subject, job, message)
        if record is not None and record.name == job.name:
            # With its uid: a Job that is stopped before it was adopted has to be settled, too. With
            # its phase: its pod may have started since an earlier attempt to stop it.
            stopped = replace(record, uid=job.uid, phase=job.phase, stopped=why)
            changes["job"] = job_status(stopped)
        if job.recommends:
            self.writer.note(subject, **changes)
            return
        reason = why if why in SHOWN else Reason.REWRITE_RUNNING
        text = f"Job {job.name} is stopping: {message}"
        self.writer.tell(subject, Wait(subject.now + BUSY, reason, text), **changes)
