"""What follows when a job of a TableLayout has ended: outcomes, history, failures, release."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from reconciler.api.conditions import Reason
from reconciler.api.prices import Prices
from reconciler.format import plural
from reconciler.kube.termination_message import Cause, LastWords
from reconciler.operator.conditions import Body
from reconciler.operator.job_record import JobRecord, Phase, ended, job_status, uuid_of
from reconciler.operator.layout import failures, recommending
from reconciler.operator.layout.facts import JobSeen
from reconciler.operator.layout.failures import Failures
from reconciler.operator.layout.job_checks import CATALOG_CHANGED
from reconciler.operator.layout.seen import Object, pods_of
from reconciler.operator.layout.status import failures_body, with_history
from reconciler.operator.layout.subject import Subject
from reconciler.operator.layout.writer import LayoutWriter
from reconciler.operator.ports import Problem
from reconciler.operator.status_text import short_bytes, short_duration, utc
from reconciler.operator.work import Result
from reconciler.plan.execution import WAITING
from reconciler.plan.ledger import LedgerEntry, ReadCheck
from reconciler.plan.money import Usage, beside, read_money
from reconciler.queries.rewrite_cost import PRIOR_RHO

log = logging.getLogger(__name__)

MOST_CHARACTERS = 256
"""Most characters of a message in status.history (CRD)."""
NEVER_STARTED = (Reason.JOB_NOT_STARTED, CATALOG_CHANGED)
"""Why a job is stopped whose pod does not start."""


@dataclass(frozen=True, slots=True)
class Achieved:
    """What an attempt did, by the ledger."""

    committed: frozenset[str] = frozenset()
    """Ids of the actions whose results are in the table or on a branch."""
    waiting: frozenset[str] = frozenset()
    """Ids of the committed actions that a person has to approve on the branch."""
    read_bytes: int = 0
    """Bytes of the content files read."""
    cpu_seconds: float = 0.0
    """CPU seconds used."""
    cost: float = 0.0
    """What it cost, in bytes of reading."""
    reading: ReadCheck | None = None
    """What the recorded queries read afterwards; None if there are none or nothing was
    committed."""

    def harm(self, prices: Prices | None) -> str:
        """Return how much more the recorded queries cost than before, "" if they do not. prices:
        those of the catalog, None without any."""
        found = self.reading
        if found is None or not found.harm:
            return ""
        read, was = (
            beside(short_bytes(size), read_money(prices, size))
            for size in (found.actual, found.before)
        )
        predicted = f"{short_bytes(found.predicted)} predicted, " if found.complete else ""
        return (
            f"HARM: the recorded queries cost {short_bytes(-found.saving)} more, opened files "
            f"counted: they read {read}, {predicted}{was} before"
        )

    def text(self) -> str:
        text = f"{plural(len(self.committed), 'action')} committed"
        if not self.waiting:
            return text
        return f"{text}, {len(self.waiting)} of them to a branch until a person approves the result"


def _with_harm(message: str, harm: str) -> str:
    """Return the outcome in one line of history. Harm is never cut away."""
    if not harm:
        return message[:MOST_CHARACTERS]
    return f"{message[: MOST_CHARACTERS - len(harm) - 2]}. {harm}"


@dataclass(frozen=True, slots=True)
class End:
    """How a job ended, as it is reported."""

    result: str
    """Result in status.history."""
    message: str
    """Message in status.history."""
    failures: Failures | None
    """Failures in a row after it; None after a success."""


def achieved(entries: Sequence[LedgerEntry], reading: ReadCheck | None = None) -> Achieved:
    return Achieved(
        frozenset(e.outcome.action_id for e in entries if e.written),
        frozenset(e.outcome.action_id for e in entries if e.outcome.state == WAITING),
        sum(e.outcome.read_bytes for e in entries),
        sum(e.outcome.cpu_seconds for e in entries),
        sum(map(_cost, entries)),
        reading,
    )


def _cost(entry: LedgerEntry) -> float:
    """Return rho x bytes read, by the rho of the plan; by the prior where the plan says none."""
    cost, size = entry.predicted.cost, entry.predicted.bytes_in
    rho = cost / size if cost is not None and size else PRIOR_RHO.value
    return rho * entry.outcome.read_bytes


def _did_all(record: JobRecord, done: Achieved) -> bool:
    """Whether all that was admitted is in the table: then a Job that is gone was not needed."""
    return 0 < (record.total or 0) <= len(done.committed)


@dataclass
class Endings:
    """Settles jobs that have ended, and write-aheads that never had one."""

    writer: LayoutWriter

    def __post_init__(self) -> None:
        self.gatherer, self.runtime = self.writer.gatherer, self.writer.runtime

    def settle(self, subject: Subject, record: JobRecord, job: JobSeen | None) -> Result:
        """Judge a job that has ended by ledger and table; only then is its reservation released.

        What a driver began without an outcome stays reserved in the ledger, in full.
        """
        if record.recommends:
            return self._settle_recommending(subject, record, job)
        handle = subject.handle
        uuid = uuid_of(subject.status)
        done = Achieved()
        if not isinstance(handle, Problem) and uuid:
            done = achieved(*handle.end_run(uuid, record))
        succeeded = job is not None and job.phase is Phase.SUCCEEDED
        succeeded = succeeded or (job is None and _did_all(record, done))
        words = None if succeeded else self._words(subject, record)
        self._charge(subject, record, job, done)
        self._report_end(subject, record, words, done)
        self.gatherer.forget(subject.key)
        self.writer.unhold(subject)
        return Result(due=subject.now.timestamp())

    def _settle_recommending(
        self, subject: Subject, record: JobRecord, job: JobSeen | None
    ) -> Result:
        """Record what a recommend job found, or why it failed; the table's own state stays."""
        self._charge(subject, record, job, Achieved())
        found = None
        if job is not None and job.phase is Phase.SUCCEEDED:
            found = recommending.result_of(self._listed(subject, record)[1])
        if found is not None:
            body = recommending.recommendation_status(found)
            self._end_recommending(subject, record, Phase.SUCCEEDED, body, "Succeeded", "")
            return Result(due=subject.now.timestamp())
        succeeded = job is not None and job.phase is Phase.SUCCEEDED
        words = recommending.UNREADABLE if succeeded else self._words(subject, record)
        body = recommending.after_failure(subject.status, record.plan_id, words, subject.now)
        self._end_recommending(
            subject, record, Phase.FAILED, body, words.cause.value, words.message
        )
        return Result(due=subject.now.timestamp())

    def _charge(
        self, subject: Subject, record: JobRecord, job: JobSeen | None, done: Achieved
    ) -> None:
        """Charge the job to its namespace, before its end is reported: a crash in between repeats
        this. One that was stopped because its pod did not start has cost nothing, and neither
        has a write-ahead of whose Job nothing was ever seen."""
        key = (subject.key.namespace, record.name)
        phase = record.phase if job is None else job.phase
        unseen = job is None and not record.uid
        never = record.stopped in NEVER_STARTED and phase is Phase.PENDING
        if not done.read_bytes and (unseen or never):
            self.gatherer.spending.release(key)
        else:
            self.gatherer.spending.end(key)

    def _end_recommending(
        self,
        subject: Subject,
        record: JobRecord,
        phase: Phase,
        body: Body,
        result: str,
        message: str,
    ) -> None:
        self.writer.note(subject, job=job_status(ended(record, phase)), recommendation=body)
        self._announce(subject, record, result, message or body.get("summary", ""))
        self.writer.unhold(subject)

    def never_started(self, subject: Subject, job: JobSeen, message: str) -> Body:
        """Return what changes in the status because a job did not start: a failure of the table, or
        of its recommendation, which is counted apart."""
        if job.recommends:
            return self._failed_recommendation(subject, job.plan_id, message)
        cause = failures.CANNOT_START if job.refused else failures.NOT_STARTED
        return {"failures": failures_body(self._after(subject, cause, message))}

    def _failed_recommendation(self, subject: Subject, run_id: str, message: str) -> Body:
        words = LastWords(Cause.UNKNOWN, message)
        body = recommending.after_failure(subject.status, run_id, words, subject.now)
        return {"recommendation": body}

    def _listed(
        self, subject: Subject, record: JobRecord
    ) -> tuple[Object | None, Sequence[Object]]:
        """Return the Job of the record, None if it is gone, and its pods."""
        jobs, pods = self.gatherer.listed(subject, fresh=True) or ([], [])
        job = next((item for item in jobs if item["metadata"]["name"] == record.name), None)
        return job, [] if job is None else pods_of(job, pods)

    def _words(self, subject: Subject, record: JobRecord) -> LastWords:
        """Return why the job ended."""
        job, pods = self._listed(subject, record)
        return failures.cause_of(pods, job, record.stopped)

    def _report_end(
        self, subject: Subject, record: JobRecord, words: LastWords | None, done: Achieved
    ) -> None:
        """Write status.job, history and failures after a job, in one write. words: None if it
        succeeded."""
        end = (
            self._succeeded(subject, record, done)
            if words is None
            else self._failed(subject, words)
        )
        phase = Phase.SUCCEEDED if words is None else Phase.FAILED
        entry = {
            "planId": record.plan_id,
            "result": end.result,
            "finishedAt": utc(subject.now),
            "rewriteBytes": short_bytes(done.read_bytes),
            "cpuTime": short_duration(done.cpu_seconds),
            "message": _with_harm(end.message, done.harm(subject.prices)),
        }
        status = {
            **subject.status,
            "job": job_status(ended(record, phase, len(done.committed))),
            "history": with_history(subject.status.get("history"), entry),
            "failures": failures_body(end.failures),
        }
        if words is None and done.committed:
            status["lastAppliedPlan"] = record.plan_id
        self.writer.put(subject, status)
        self._announce(subject, record, end.result, end.message)
        self._count(subject, record, done)

    def _succeeded(self, subject: Subject, record: JobRecord, done: Achieved) -> End:
        settles_only = record.total == 0
        text = "cleaned up after an interrupted attempt" if settles_only else done.text()
        idle = self._after(subject, failures.NO_EFFECT, "the job succeeded without a commit")
        return End("Succeeded", text, None if done.committed or settles_only else idle)

    def _failed(self, subject: Subject, words: LastWords) -> End:
        result = "Stopped" if words.cause is Cause.STOPPED else words.cause.value
        message = f"{words.message}. {words.do}".rstrip(". ")
        return End(result, message, self._after(subject, words.cause, message))

    def _after(self, subject: Subject, cause: str, message: str) -> Failures | None:
        """Return the failures in a row after this one."""
        known = failures.failures_of(subject.status)
        return failures.after(known, cause, message, self.gatherer.scopes_now(subject), subject.now)

    def _announce(self, subject: Subject, record: JobRecord, result: str, message: str) -> None:
        """Count the end, and tell people of it."""
        self.runtime.metrics.finished(subject.key.namespace, result)
        what = "Recommendation" if record.recommends else "Job"
        kind = "Normal" if result in ("Succeeded", Cause.STOPPED) else "Warning"
        self.runtime.api.event(subject.body, what + result, f"{record.name}: {message}", kind)
        name, table = record.name, ".".join(subject.table)
        text = "%s/%s: Job %s of table %s ended: %s, %s"
        log.info(text, *subject.key[1:], name, table, result, message)

    def _count(self, subject: Subject, record: JobRecord, done: Achieved) -> None:
        """Count what the job did, and warn of a plan after which queries cost more."""
        namespace, metrics = subject.key.namespace, self.runtime.metrics
        metrics.rewrote(namespace, done.read_bytes)
        used = Usage(read_bytes=done.read_bytes, cpu_seconds=done.cpu_seconds)
        metrics.spent(namespace, done.cost, used, subject.prices)
        harm = done.harm(subject.prices)
        if harm:
            text = f"{record.name}: {harm}"
            self.runtime.api.event(subject.body, "ReadingWorse", text, "Warning")
            log.info("%s/%s: %s", *subject.key[1:], text)

    def drop(self, subject: Subject, record: JobRecord, why: str, cause: str = "") -> Result:
        """Drop a write-ahead that never got its Job. cause: of the failure that this is, "" if it
        is none."""
        self.gatherer.spending.release((subject.key.namespace, record.name))
        status = {**subject.status, "job": job_status(ended(record, Phase.DROPPED))}
        if cause and record.recommends:
            status |= self._failed_recommendation(subject, record.plan_id, why)
        elif cause:
            status["failures"] = failures_body(self._after(subject, cause, why))
        self.writer.put(subject, status)
        log.info("%s/%s: write-ahead dropped: %s", *subject.key[1:], why)
        self.writer.unhold(subject)
        return Result(due=subject.now.timestamp())
