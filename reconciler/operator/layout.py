"""The reconcile of one TableLayout: gather, decide, carry out, report.

Unsettled things come first (a job that ended, a write-ahead without a job), then the cheap check,
then a plan and its gate. What may start is offered to the launcher, which alone starts it;
everything else is done here. Level-triggered: it acts on what it finds, whatever event called it.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reconciler.api.conditions import ConditionType, Reason, stalled_by
from reconciler.api.documents import TableLayoutPolicy
from reconciler.api.identity import hash_inputs
from reconciler.errors import ReconcilerError, UnavailableError, UserError
from reconciler.kube.errors import ApiError, Conflict, NotFound
from reconciler.kube.kinds import JOB, POD, TABLE_LAYOUT
from reconciler.kube.names import table_layout_name
from reconciler.kube.pods import LAYOUT_LABEL
from reconciler.kube.termination_message import Cause, LastWords
from reconciler.loop.gating import Approvals, PendingWork, approved_ids, gate_input
from reconciler.loop.settings import budgets_of
from reconciler.operator import due, failures
from reconciler.operator.conditions import Body, condition_of, merged
from reconciler.operator.failures import Failures, Scopes, scope
from reconciler.operator.index import REQUESTED_AT, policy_of
from reconciler.operator.layout_facts import (
    JobSeen,
    LayoutInput,
    Phase,
    ProposalState,
    Record,
    Rests,
)
from reconciler.operator.layout_status import (
    Verdict,
    accepted,
    changed,
    job_status,
    layout_conditions,
    record_of,
    timed,
    transitions,
    with_history,
)
from reconciler.operator.layout_steps import (
    Adopt,
    CreateAgain,
    Decision,
    DropReservation,
    Launch,
    Propose,
    Retire,
    Settle,
    Startable,
    StopJob,
    Wait,
)
from reconciler.operator.next_step import next_step
from reconciler.operator.ports import (
    EXPIRED,
    CatalogHandle,
    CatalogProblem,
    Catalogs,
    CutShort,
    Glance,
    Look,
)
from reconciler.operator.runtime import Runtime
from reconciler.operator.seen import jobs_seen, pods_of, pods_seen
from reconciler.operator.status_text import parse_time, short_bytes, short_duration, utc
from reconciler.operator.stored import Refusal, StoredDocuments
from reconciler.operator.watch import GATHER_SECONDS
from reconciler.operator.work import Key, Result, Work
from reconciler.plan.budget import Budget, Spent
from reconciler.plan.gate import Gate, charge_of, gate
from reconciler.plan.ledger import Reservation
from reconciler.plan.plan import policy_hash

log = logging.getLogger(__name__)

FINALIZER = "layout.lakehouse.dev/running-job"
BUSY = dt.timedelta(seconds=15)
Offer = Callable[[Key, Startable | None], Wait | None]
"""Offers the launcher what a table could start; None withdraws the offer.

Returns why that cannot start now, None if it will be tried.
"""


@dataclass
class Subject:
    """One TableLayout with the objects it refers to, read once per reconcile.

    body is replaced by the server's answer to each write, so that the next write names the right
    version. cut_short: the plan of an attempt that a dead driver left open.
    """

    body: Body
    policy: TableLayoutPolicy | Refusal | None
    policy_body: Body | None
    handle: CatalogHandle | CatalogProblem
    now: dt.datetime
    look: Look | None = None
    glance: Glance | None = None
    gone: bool = False
    cut_short: CutShort | None = None
    gate: Gate | None = None
    budgets: tuple[Budget, ...] = ()

    @property
    def key(self) -> Key:
        meta = self.body["metadata"]
        return Key(Work.LAYOUT, meta["namespace"], meta["name"])

    @property
    def status(self) -> Body:
        found: Body = self.body.get("status") or {}
        return found

    @property
    def generation(self) -> int:
        return int(self.body["metadata"].get("generation") or 0)

    @property
    def table(self) -> tuple[str, ...]:
        table = self.body["spec"]["table"]
        return (*table["namespace"], table["name"])

    @property
    def policy_key(self) -> str:
        return f"{self.key.namespace}/{policy_of(self.body)}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the gate needs of a catalog's state, and what other jobs reserve. Implements
    `gating.GateFacts`."""

    handle: CatalogHandle
    reserved: tuple[Spent, ...]

    def approved(self, plan_id: str, policy: str) -> bool:
        return self.handle.approved(plan_id, policy)

    def spent(self, policy: str, table_uuid: str, besides: str = "") -> tuple[Spent, ...]:
        return (*self.reserved, *self.handle.spent(policy, table_uuid))

    def automatic_spent(
        self, table_uuid: str, since: dt.datetime, approved: Collection[str]
    ) -> int:
        return self.handle.automatic_spent(table_uuid, since, approved)


@dataclass(frozen=True, slots=True)
class Resting:
    """What is kept of a look that found nothing to do, as for most of ten thousand tables.

    stands_until: when time alone may bring work, None for never.
    """

    fingerprint: str
    rests: Rests
    stands_until: dt.datetime | None


@dataclass
class Layouts:
    """Reconciles TableLayouts. looks: results of planning, by key, until something changes or they
    expire.

    resting: what is kept of a look that found nothing to do.
    """

    runtime: Runtime
    catalogs: Catalogs
    documents: StoredDocuments
    clock: Callable[[], dt.datetime]
    offer: Offer
    create: Callable[[Subject, Record, float], Result]
    looks: dict[Key, Look] = field(default_factory=dict)
    resting: dict[Key, Resting] = field(default_factory=dict)

    def reconcile(self, key: Key) -> Result:
        body = self.runtime.index.layout(key.namespace, key.name)
        if body is None:
            self._forget(key)
            self.offer(key, None)
            return Result()
        if not self.runtime.held():
            return Result(due=self.clock().timestamp() + 5)
        subject = self.subject(body)
        try:
            self._accept(subject)
            given, decision = self.decide(subject, fresh=self._needs_server(subject))
            return self._act(subject, given, decision)
        except Conflict:
            return Result(due=self.clock().timestamp() + 1)
        except NotFound:
            return Result()

    def subject(self, body: Body) -> Subject:
        namespace = body["metadata"]["namespace"]
        spec = body["spec"]
        stored = self.runtime.index.policy(namespace, policy_of(body))
        policy = None if stored is None else self.documents.read(stored, TableLayoutPolicy)
        subject = Subject(
            body=body,
            policy=policy,
            policy_body=stored,
            handle=self.catalogs.handle(namespace, spec["catalogRef"]["name"]),
            now=self.clock(),
        )
        if isinstance(policy, TableLayoutPolicy):
            subject.budgets = budgets_of(policy.spec)
        return subject

    # Deciding

    def decide(self, subject: Subject, *, fresh: bool) -> tuple[LayoutInput, Decision]:
        """Return the decision, with as much I/O as it needs. fresh: jobs and pods from the
        server."""
        given = self._gather(subject, fresh)
        decision = next_step(given)
        if isinstance(decision, Propose):
            given = self._propose(subject, given)
            decision = next_step(given)
        return given, decision

    def _needs_server(self, subject: Subject) -> bool:
        """Whether anything is live or unsettled, so that the server is asked; the index may be
        seconds old."""
        record = record_of(subject.status)
        key = subject.key
        meta = subject.body["metadata"]
        index = self.runtime.index
        return (
            (record is not None and record.unsettled)
            or FINALIZER in (meta.get("finalizers") or ())
            or bool(index.jobs(key.namespace, key.name))
            or bool(index.pods(key.namespace, key.name))
        )

    def listed(self, subject: Subject, fresh: bool) -> tuple[list[Body], list[Body]] | None:
        """Return jobs and pods of the table; None if the server does not list them."""
        key = subject.key
        if not fresh:
            index = self.runtime.index
            return index.jobs(key.namespace, key.name), index.pods(key.namespace, key.name)
        labels = {LAYOUT_LABEL: key.name}
        try:
            jobs = self.runtime.api.list(JOB, key.namespace, labels)
            return jobs, self.runtime.api.list(POD, key.namespace, labels)
        except ApiError as error:
            log.warning("jobs of %s/%s were not listed: %s", key.namespace, key.name, error.what)
            return None

    def _gather(self, subject: Subject, fresh: bool) -> LayoutInput:
        meta = subject.body["metadata"]
        listed = self.listed(subject, fresh)
        policy, handle = subject.policy, subject.handle
        interval = policy.spec.interval_seconds if isinstance(policy, TableLayoutPolicy) else 600
        known = failures.failures_of(subject.status)
        down = handle.message if isinstance(handle, CatalogProblem) and not handle.stalls else ""
        if not down and known is not None:
            down = self._glance(subject)
        return LayoutInput(
            now=subject.now,
            leading=self.runtime.held(),
            uid=meta["uid"],
            jobs=None if listed is None else jobs_seen(*listed),
            pods=None if listed is None else pods_seen(listed[1]),
            due=due.next_look(f"{subject.key.namespace}/{meta['name']}", interval, subject.now),
            record=record_of(subject.status),
            deleting=parse_time(meta.get("deletionTimestamp")),
            suspended=_suspended(subject),
            invalid=_invalid(subject),
            catalog_down=down,
            unreachable=_unreachable(handle),
            owner=self._foreign_owner(subject),
            stop=_stop(subject),
            known_plans=_known_plans(subject.status),
            workload_stale=self.catalogs.workload_stale(
                subject.key.namespace, subject.body["spec"]["catalogRef"]["name"]
            ),
            trouble=failures.trouble(known, self.scopes(subject), subject.now),
            catalog_version=catalog_version(handle),
        )

    def _glance(self, subject: Subject) -> str:
        """Load the table once; return "" or why the catalog does not answer."""
        handle = subject.handle
        if isinstance(handle, CatalogProblem) or subject.glance or subject.gone:
            return ""
        try:
            subject.glance = handle.glance(subject.table)
            subject.gone = subject.glance is None
        except UnavailableError as error:
            return error.what
        except UserError:
            return ""  # reported by the look, with its reason
        return ""

    def _foreign_owner(self, subject: Subject) -> str:
        if subject.glance is None or isinstance(subject.handle, CatalogProblem):
            return ""
        owner = subject.glance.owner
        return "" if owner in ("", subject.handle.owner()) else owner

    def scopes_now(self, subject: Subject) -> Scopes:
        """As `scopes`, for a failure that is being recorded: the table is observed first."""
        self._glance(subject)
        return self.scopes(subject)

    def scopes(self, subject: Subject) -> Scopes:
        """Return what must change before a stalled table is tried again."""
        meta = subject.body["metadata"]
        policy = (subject.policy_body or {}).get("metadata") or {}
        asked = [m.get("annotations", {}).get(REQUESTED_AT, "") for m in (meta, policy)]
        spec = scope(policy.get("uid"), policy.get("generation"), meta.get("generation"), *asked)
        version = "" if isinstance(subject.handle, CatalogProblem) else subject.handle.version
        location = subject.glance.metadata_location if subject.glance else ""
        return Scopes(spec, scope(spec, version), scope(location))

    def _propose(self, subject: Subject, given: LayoutInput) -> LayoutInput:
        """Return the input with the standing proposal, or why the table cannot be planned."""
        down = self._glance(subject)
        if down:
            return replace(given, catalog_down=down)
        if subject.gone:
            gone = (Reason.TABLE_NOT_FOUND.value, "the catalog has no such table")
            return replace(given, invalid=gone)
        given = replace(given, owner=self._foreign_owner(subject))
        if given.owner:
            return given
        try:
            subject.look = self.look(subject)
            subject.gate, state = self.gated(subject)
            subject.cut_short = self._cut_short(subject)
            if subject.cut_short is not None:
                left = (subject.cut_short.plan_id, subject.cut_short.digest)
                state = replace(state, cut_short=left)
        except UnavailableError as error:
            return replace(given, catalog_down=error.what)
        except UserError as error:
            return replace(given, invalid=(stalled_by(error).value, told(error)))
        return replace(given, proposal=state, stop=_stop(subject))

    def _cut_short(self, subject: Subject) -> CutShort | None:
        """Return the plan of an attempt that a dead driver left open.

        A job that succeeded has settled what others left. A failed one, or one under a deleted
        TableLayout (of which there is no record), may have left something.
        """
        record, look = record_of(subject.status), subject.look
        assert not isinstance(subject.handle, CatalogProblem)
        if look is None or (record is not None and record.phase is Phase.SUCCEEDED):
            return None
        return subject.handle.cut_short(look.uuid)

    def look(self, subject: Subject) -> Look | None:
        """Run the cheap check; look again only if something changed that the last look was made
        from."""
        policy, handle, glance = subject.policy, subject.handle, subject.glance
        assert isinstance(policy, TableLayoutPolicy) and glance is not None
        assert not isinstance(handle, CatalogProblem)
        approved = approved_ids(policy, self.approvals(subject).plan_id)
        fingerprint = scope(
            glance.uuid,
            glance.metadata_location,
            policy_hash(hash_inputs(policy)),
            handle.version,
            handle.evidence_version(glance.uuid, policy.spec.interval_seconds),
            *sorted(approved),
        )
        known = self.looks.get(subject.key)
        if known is not None and _stands(known, fingerprint, subject.now):
            return known
        resting = None if known is not None or _failed(subject) else self._resting(subject)
        if resting is not None and _stands(resting, fingerprint, subject.now):
            return None
        self._forget(subject.key)
        look = handle.look(subject.table, policy, fingerprint, approved, subject.now)
        self.looks[subject.key] = look
        return look

    def approvals(self, subject: Subject) -> Approvals:
        return Approvals(subject.body["spec"].get("approvedPlan") or "")

    def gated(self, subject: Subject) -> tuple[Gate | None, ProposalState]:
        """Return the gate's answer to the look's plan, under all known reservations."""
        look = subject.look
        if look is None:
            resting = self._resting(subject)
            assert resting is not None  # `look` has found it
            return None, ProposalState("", "", (), 0, rests=resting.rests)
        if not look.pending:
            return None, _state_of(look, None, None)
        policy, handle = subject.policy, subject.handle
        assert isinstance(policy, TableLayoutPolicy) and not isinstance(handle, CatalogProblem)
        work = PendingWork(
            plan=look.plan,
            actions=look.pending,
            table_uuid=look.uuid,
            owner=self._foreign_owner(subject),
            stale_workload=look.stale_workload,
        )
        facts = Recorded(handle, self.reserved(subject))
        given = gate_input(policy, work, facts, self.approvals(subject), subject.now)
        answer = gate(given)
        first = charge_of(look.pending[0])
        return answer, _state_of(
            look, answer, due.reopens(given.budgets, given.spent or (), first, subject.now)
        )

    def reserved(self, subject: Subject) -> tuple[Spent, ...]:
        """Return what other tables of the policy reserve, by the index."""
        namespace = subject.key.namespace
        name = policy_of(subject.body)
        others = [
            body
            for body in self.runtime.index.layouts_with_job()
            if body["metadata"]["namespace"] == namespace
            and body["metadata"]["name"] != subject.key.name
            and policy_of(body) == name
        ]
        records = unsettled(others)
        assert not isinstance(subject.handle, CatalogProblem)
        return held(records, subject.handle.open_reservations(), subject.now)

    # Acting

    def _act(self, subject: Subject, given: LayoutInput, decision: Decision) -> Result:
        if not isinstance(decision, Launch):
            self.offer(subject.key, None)
        match decision:
            case Adopt(job):
                return self._adopt(subject, job)
            case StopJob(job, why, message):
                return self._stop_job(subject, given, job, why, message)
            case Settle(record, job):
                return self.settle(subject, record, job)
            case CreateAgain(record, factor):
                return self.create(subject, record, factor)
            case DropReservation(record, why):
                return self.drop(subject, record, why)
            case Retire():
                return self._release(subject)
            case Launch(candidate):
                self.tell(subject, self.offer(subject.key, candidate) or decision)
                return Result(due=given.due.timestamp())
        self.tell(subject, decision)
        self._unhold(subject)
        return Result(due=self._next(subject, given, decision).timestamp())

    def _next(self, subject: Subject, given: LayoutInput, decision: Decision) -> dt.datetime:
        moments = [decision.until if isinstance(decision, Wait) else given.due]
        found = subject.look or self._resting(subject)
        if given.proposal is not None and found is not None and found.stands_until is not None:
            moments.append(max(found.stands_until, subject.now + BUSY))
        window = due.boundary(subject.budgets, subject.now)
        if window is not None and given.record is not None and given.record.unsettled:
            moments.append(window)
        return min(moments)

    def _accept(self, subject: Subject) -> None:
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
        look = subject.look
        status = {**subject.status, **changes}
        if look is not None:
            status["table"] = {"uuid": look.uuid, "formatVersion": look.format_version}
            status["observed"] = dict(look.observed)
            if subject.cut_short is None:  # with one there is work, whatever is planned
                status["observed"]["fingerprint"] = look.fingerprint
            if look.revisit is not None:
                status["observed"]["revisit"] = utc(look.revisit)
            status.pop("plan", None)
            if look.plan_status is not None:
                status["plan"] = dict(look.plan_status)
        known = bool(status.get("table"))
        conditions = layout_conditions(
            decision, self._verdict(subject), known=known, ready_now=_unready(subject)
        )
        status["conditions"] = merged(
            subject.status.get("conditions"), conditions, subject.generation, subject.now
        )
        status["observedGeneration"] = subject.generation
        before = subject.status
        self.put(subject, timed(before, status))
        for reason, message, kind in transitions(before, status):
            self.runtime.api.event(subject.body, reason, message, kind)
        self._rest(subject)

    def _rest(self, subject: Subject) -> None:
        """Drop the look if the status names the state for which nothing was to do.

        Not after a failed job: `look` needs one.
        """
        look = subject.look
        if look is None or look.pending or _failed(subject):
            return
        stored = _stored_rest(subject.status)
        if stored is not None and stored.fingerprint == look.fingerprint:
            self._forget(subject.key)
            self.resting[subject.key] = Resting(look.fingerprint, look.rests, look.revisit)

    def _forget(self, key: Key) -> None:
        self.looks.pop(key, None)
        self.resting.pop(key, None)

    def _resting(self, subject: Subject) -> Resting | None:
        """Return what is known of a state without work, from memory or from the status.

        The status loses it while the table is suspended or its catalog is unreachable, the memory
        when the operator starts. A TableLayout that was deleted and created again has no status,
        and the memory of the former one would leave it without.
        """
        known = self.resting.get(subject.key)
        observed = subject.status.get("observed") or {}
        if known is not None and known.fingerprint == observed.get("fingerprint"):
            return known
        return _stored_rest(subject.status)

    def _verdict(self, subject: Subject) -> Verdict:
        look, answer = subject.look, subject.gate
        record = record_of(subject.status)
        if look is None and record is not None and record.unsettled:
            return _stored_verdict(subject.status)
        if look is None or answer is None or not look.pending:
            return Verdict()
        return verdict(subject.body["spec"].get("approvedPlan"), subject.policy, look, answer)

    def put(self, subject: Subject, status: Body) -> None:
        """Write the status under the version that was read; no write if nothing changed."""
        if not changed(subject.status, status):
            return
        meta = subject.body["metadata"]
        answer = self.runtime.api.put_status(
            TABLE_LAYOUT, meta["namespace"], meta["name"], status, meta["resourceVersion"]
        )
        subject.body = answer
        self.runtime.index.put(TABLE_LAYOUT, answer)
        policy = Key(Work.POLICY, meta["namespace"], policy_of(subject.body))
        # Many tables change together: their policy summarises them once.
        self.runtime.enqueue(policy, self.clock().timestamp() + GATHER_SECONDS)

    def _adopt(self, subject: Subject, job: JobSeen) -> Result:
        """Record a live Job of ours, with what its write-ahead reserved."""
        record = record_of(subject.status)
        if record is None or record.name != job.name:
            look = self.looks.get(subject.key)
            pending = look.pending if look is not None and look.plan.id == job.plan_id else ()
            charges = [charge_of(item) for item in pending]
            record = Record(
                job.name, "", job.plan_id, job.digest, job.attempt, Phase.PENDING, job.created,
                sum(c.rewrite_bytes for c in charges), round(sum(c.cpu_seconds for c in charges)),
            )  # fmt: skip
        record = replace(record, uid=job.uid, phase=job.phase)
        running = Wait(subject.now + BUSY, Reason.REWRITE_RUNNING, f"Job {job.name} runs")
        self.hold(subject)
        self.tell(subject, running, job=_job_body(subject.status, record))
        return Result(due=(subject.now + BUSY).timestamp())

    def _stop_job(
        self, subject: Subject, given: LayoutInput, job: JobSeen, why: str, message: str
    ) -> Result:
        if not self.runtime.held():
            return Result(due=(subject.now + BUSY).timestamp())
        self.runtime.api.event(subject.body, "StopsJob", f"Job {job.name}: {message}")
        try:
            self.runtime.api.delete(JOB, subject.key.namespace, job.name, uid=job.uid)
        except NotFound:
            log.info("Job %s/%s is gone already", subject.key.namespace, job.name)
        if why == Reason.JOB_NOT_STARTED:
            cause = failures.CANNOT_START if job.refused else failures.NOT_STARTED
            self._fail(subject, cause, message)
        known = (Reason.SUSPENDED, Reason.OUTSIDE_WINDOW, Reason.JOB_NOT_STARTED)
        reason = why if why in known else Reason.REWRITE_RUNNING
        text = f"Job {job.name} is stopping: {message}"
        changes = {}
        if (subject.status.get("job") or {}).get("name") == job.name:
            changes["job"] = {**subject.status["job"], "stopped": why}
        self.tell(subject, Wait(subject.now + BUSY, reason, text), **changes)
        return Result(due=(subject.now + BUSY).timestamp())

    def _fail(self, subject: Subject, cause: str, message: str) -> None:
        known = failures.failures_of(subject.status)
        later = failures.after(known, cause, message, self.scopes_now(subject), subject.now)
        self.put(subject, {**subject.status, "failures": _failures_body(later)})

    def settle(self, subject: Subject, record: Record, job: JobSeen | None) -> Result:
        """Judge a job that has ended by ledger and table; only then is its reservation released.

        What a driver began without an outcome stays reserved in the ledger, in full.
        """
        succeeded = job is not None and job.phase is Phase.SUCCEEDED
        words = None if succeeded else self._words(subject, record)
        handle = subject.handle
        uuid = str((subject.status.get("table") or {}).get("uuid", ""))
        committed: set[str] = set()
        spent = (0, 0.0)
        if not isinstance(handle, CatalogProblem) and uuid:
            entries = handle.outcomes(uuid, record.plan_id, record.written)
            committed = {e.outcome.action_id for e in entries if e.committed}
            spent = (
                sum(e.outcome.read_bytes for e in entries),
                sum(e.outcome.cpu_seconds for e in entries),
            )
        self._told_end(subject, record, words, committed, spent, succeeded)
        self._forget(subject.key)
        self._unhold(subject)
        return Result(due=subject.now.timestamp())

    def _words(self, subject: Subject, record: Record) -> Any:
        """Return why the job ended. The message of a job that we stopped may be gone."""
        listed = self.listed(subject, fresh=True)
        jobs, pods = listed or ([], [])
        job = next((item for item in jobs if item["metadata"]["name"] == record.name), None)
        stopped = (subject.status.get("job") or {}).get("stopped")
        if job is None and stopped:
            return LastWords(Cause.STOPPED, f"stopped: {stopped}")
        return failures.cause_of([] if job is None else pods_of(job, pods), job)

    def _told_end(
        self,
        subject: Subject,
        record: Record,
        words: Any,
        committed: set[str],
        spent: tuple[int, float],
        succeeded: bool,
    ) -> None:
        """Write status.job, history and failures after a job, in one write."""
        known = failures.failures_of(subject.status)
        settles_only = (subject.status.get("job") or {}).get("actionsTotal") == 0
        if succeeded:
            result, message = "Succeeded", f"{len(committed)} actions committed"
            if settles_only:
                message = "what an attempt that was cut short had left is settled"
            idle = failures.after(
                known, failures.NO_EFFECT, "the job ended well and committed nothing",
                self.scopes_now(subject), subject.now,
            )  # fmt: skip
            later = None if committed or settles_only else idle
        else:
            stopped = words.cause is Cause.STOPPED
            result = "Stopped" if stopped else words.cause.value
            message = f"{words.message}. {words.do}".rstrip(". ")
            later = failures.after(
                known, words.cause, message, self.scopes_now(subject), subject.now
            )
        entry = {
            "planId": record.plan_id,
            "result": result,
            "finishedAt": utc(subject.now),
            "rewriteBytes": short_bytes(spent[0]),
            "cpuTime": short_duration(spent[1]),
            "message": message[:256],
        }
        ended = replace(record, phase=Phase.SUCCEEDED if succeeded else Phase.FAILED)
        status = {
            **subject.status,
            "job": {**_job_body(subject.status, ended), "actionsCommitted": len(committed)},
            "history": with_history(subject.status.get("history"), entry),
            "failures": _failures_body(later),
        }
        if succeeded and committed:
            status["lastAppliedPlan"] = record.plan_id
        self.put(subject, status)
        namespace = subject.key.namespace
        self.runtime.metrics.finished(namespace, "Succeeded" if succeeded else result)
        self.runtime.metrics.rewrote(namespace, spent[0])
        kind = "Normal" if succeeded or result == "Stopped" else "Warning"
        self.runtime.api.event(subject.body, f"Job{result}", f"{record.name}: {message}", kind)
        table = ".".join(subject.table)
        log.info("%s/%s: Job %s of table %s ended: %s, %s",
                 *subject.key[1:], record.name, table, result, message)  # fmt: skip

    def drop(self, subject: Subject, record: Record, why: str) -> Result:
        """Drop a write-ahead that never got its Job."""
        dropped = replace(record, phase=Phase.DROPPED)
        self.put(subject, {**subject.status, "job": _job_body(subject.status, dropped)})
        log.info("%s/%s: write-ahead dropped: %s", *subject.key[1:], why)
        self._unhold(subject)
        return Result(due=subject.now.timestamp())

    def hold(self, subject: Subject) -> None:
        """Set the finalizer while a job is live: a deletion then waits for its stop."""
        kept = subject.body["metadata"].get("finalizers") or []
        if FINALIZER not in kept and not subject.body["metadata"].get("deletionTimestamp"):
            self._finalizers(subject, [*kept, FINALIZER])

    def _unhold(self, subject: Subject) -> None:
        record = record_of(subject.status)
        kept = subject.body["metadata"].get("finalizers") or []
        if FINALIZER in kept and (record is None or not record.unsettled):
            self._finalizers(subject, [item for item in kept if item != FINALIZER])

    def _release(self, subject: Subject) -> Result:
        record = record_of(subject.status)
        if record is not None and record.unsettled:
            text = f"Job {record.name} has not ended in time; the deletion no longer waits for it"
            log.warning("%s/%s: %s", subject.key.namespace, subject.key.name, text)
            self.runtime.api.event(subject.body, "JobLeftBehind", text, "Warning")
        kept = subject.body["metadata"].get("finalizers") or []
        if FINALIZER in kept:
            self._finalizers(subject, [item for item in kept if item != FINALIZER])
        return Result()

    def _finalizers(self, subject: Subject, wanted: list[str]) -> None:
        meta = subject.body["metadata"]
        body = {"metadata": {"finalizers": wanted, "resourceVersion": meta["resourceVersion"]}}
        answer = self.runtime.api.patch(TABLE_LAYOUT, meta["namespace"], meta["name"], body)
        subject.body = answer


def catalog_version(handle: CatalogHandle | CatalogProblem) -> str:
    """Return a hash of the catalog's and its secret's version, "" for a catalog that is not
    usable."""
    return "" if isinstance(handle, CatalogProblem) else scope(handle.version)


def unsettled(layouts: Sequence[Mapping[str, Any]]) -> list[tuple[str, Record]]:
    """Return (table uuid, record) of the TableLayouts whose job is not settled."""
    found = [(body.get("status") or {}, record_of(body.get("status"))) for body in layouts]
    return [
        (str((status.get("table") or {}).get("uuid", "")), record)
        for status, record in found
        if record is not None and record.unsettled
    ]


def held(
    records: Sequence[tuple[str, Record]], recorded: Sequence[Reservation], now: dt.datetime
) -> tuple[Spent, ...]:
    """Return what write-ahead records reserve, except those whose driver has since reserved in the
    ledger.

    The records must be read before the ledger: in between a driver may only add to it.
    """
    latest: dict[tuple[str, str], int] = {}
    for item in recorded:
        key = (item.table_uuid, item.plan_id)
        latest[key] = max(item.at_ms, latest.get(key, 0))
    return tuple(
        Spent(now, record.rewrite_bytes, float(record.cpu_seconds))
        for uuid, record in records
        if latest.get((uuid, record.plan_id), -1) < record.written.timestamp() * 1000
    )


def told(error: ReconcilerError) -> str:
    """Return an error as one line of a condition."""
    return ". ".join(
        part.rstrip(".") for part in (error.what, *error.details[:2], error.do or "") if part
    )


def verdict(own_approval: str | None, policy: Any, look: Look, answer: Gate) -> Verdict:
    """Return Approved and WithinBudget, from the gate's answer to pending work."""
    reason, message = answer.reason, answer.message
    budget = (True, Reason.FITS.value, "the plan fits all active budgets")
    if reason in (Reason.OUTSIDE_WINDOW, Reason.OVER_BUDGET):
        invalid = any(state.error for state in answer.budgets)
        budget = (False, Reason.INVALID_BUDGET.value if invalid else reason, message)
    if reason == Reason.AWAITING_APPROVAL:
        if look.changed_from is not None:
            old, difference = look.changed_from
            text = f"{old} no longer stands; {look.plan.id} is proposed: {difference}"
            expired = difference.startswith(EXPIRED)
            voided = Reason.PLAN_EXPIRED if expired else Reason.PLAN_CHANGED
            return Verdict((False, voided.value, text), budget)
        return Verdict((False, Reason.AWAITING_APPROVAL.value, message), budget)
    approval = policy.spec.approval
    plan = look.plan.id
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
    return Verdict((True, why[0].value, why[1]), budget)


def _stored_verdict(status: Body) -> Verdict:
    """Return the verdict stored when the job was started; it applies while the job runs."""

    def answer(kind: ConditionType) -> tuple[bool, str, str] | None:
        found = condition_of(status, kind)
        return (found["status"] == "True", found["reason"], found["message"]) if found else None

    return Verdict(answer(ConditionType.APPROVED), answer(ConditionType.WITHIN_BUDGET))


def _suspended(subject: Subject) -> str:
    if subject.body["spec"].get("suspend"):
        return "spec.suspend of the TableLayout is set"
    policy = subject.policy
    if isinstance(policy, TableLayoutPolicy) and policy.spec.suspend:
        return f"spec.suspend of the policy {policy.name} is set"
    return ""


def _invalid(subject: Subject) -> tuple[str, str] | None:
    spec = subject.body["spec"]
    name = table_layout_name(spec["catalogRef"]["name"], subject.table)
    if subject.key.name != name:  # two objects would start two jobs
        text = f"the TableLayout of this table is called {name}; the operator makes it"
        return Reason.INVALID_SPEC.value, text
    if subject.policy is None:
        name = policy_of(subject.body)
        return Reason.INVALID_SPEC.value, f"there is no TableLayoutPolicy {name}"
    if isinstance(subject.policy, Refusal):
        return subject.policy.reason, f"policy: {subject.policy.message}"
    return _unreachable(subject.handle)


def _unreachable(handle: CatalogHandle | CatalogProblem) -> tuple[str, str] | None:
    """Return what must be corrected in the catalog before it can be called."""
    if isinstance(handle, CatalogProblem) and handle.stalls:
        return handle.reason, handle.message
    return None


def _unready(subject: Subject) -> tuple[str, str] | None:
    """Return what its references lack; a running job or a suspension does not hide it."""
    handle = subject.handle
    if isinstance(handle, CatalogProblem):
        return handle.reason, handle.message
    return _invalid(subject)


def _stop(subject: Subject) -> tuple[str, str] | None:
    """Return why a running job may not continue, from the documents and the clock alone."""
    if subject.policy is None:
        return "PolicyDeleted", "its policy was deleted"
    if isinstance(subject.policy, Refusal):
        return subject.policy.reason, f"its policy is not valid: {subject.policy.message}"
    closed = due.closed_by(subject.budgets, subject.now)
    if closed:
        return Reason.OUTSIDE_WINDOW.value, f'budget "{closed}" allows nothing now'
    wanted = "sha256:" + policy_hash(hash_inputs(subject.policy))
    planned = (subject.status.get("job") or {}).get("layoutHash", wanted)
    if planned != wanted:
        return "PolicyChanged", "the policy asks for another layout now"
    return None


def _known_plans(status: Body) -> dict[str, str]:
    found = {}
    for part in (status.get("plan") or {}, status.get("job") or {}):
        plan_id = part.get("id") or part.get("planId")
        if plan_id and part.get("digest"):
            found[plan_id] = part["digest"]
    return found


def _job_body(status: Body, record: Record) -> Body:
    """Return status.job of the record, with the values that only the launch knew."""
    old = status.get("job") or {}
    kept = {}
    if old.get("name") == record.name:
        kept = {k: old[k] for k in ("actionsTotal", "layoutHash", "actionsCommitted") if k in old}
    return {**kept, **job_status(record)}


def _failures_body(known: Failures | None) -> Body:
    return {"count": 0} if known is None else known.status()


def _failed(subject: Subject) -> bool:
    """Whether the table's last job failed, so that an attempt may have been cut short."""
    record = record_of(subject.status)
    return record is not None and record.phase is Phase.FAILED


def _stands(found: Look | Resting, fingerprint: str, now: dt.datetime) -> bool:
    """Whether another look now would give the same result."""
    ends = found.stands_until
    return found.fingerprint == fingerprint and (ends is None or now < ends)


def _stored_rest(status: Body) -> Resting | None:
    """Return what the status records of a state without work; None if it records none."""
    observed = status.get("observed") or {}
    found = condition_of(status, ConditionType.CONVERGED)
    for reason in (Reason.NOTHING_TO_DO, Reason.OBJECTIVE_UNREACHABLE):
        if found.get("reason") == reason and observed.get("fingerprint") and not status.get("plan"):
            rests = (reason, str(found.get("message", "")))
            return Resting(observed["fingerprint"], rests, parse_time(observed.get("revisit")))
    return None


def _state_of(look: Look, answer: Gate | None, reopens: dt.datetime | None) -> ProposalState:
    charges = [charge_of(item) for item in look.pending]
    return ProposalState(
        plan_id=look.plan.id,
        digest=look.digest,
        pending=tuple(charges),
        admitted=0 if answer is None else answer.count,
        reason="" if answer is None else answer.reason,
        message="" if answer is None else answer.message,
        reopens=reopens,
        rests_on_workload=look.rests_on_workload,
        rests=look.rests,
        saving_per_byte=look.saving_per_byte,
    )
