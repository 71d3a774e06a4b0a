"""Admission and launch: the only place that starts jobs, one table at a time.

Candidates come from the layouts' reconciles. The next slot goes to the namespace with the fewest
jobs (`shares`), there to the table with the most saving per byte, which grows with each hour of
waiting. Each launch is decided again from the API server's objects, written ahead into status.job
under the version that was read, checked once more against the namespace's other reservations,
written into the operator's own book (`stored_book`), and only then becomes a Job. Of two operators
that both believe they lead one gets a conflict there.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import Any

from reconciler.api.conditions import Reason
from reconciler.api.documents import TableLayoutPolicy
from reconciler.errors import ReconcilerError, UserError
from reconciler.kube.errors import AlreadyExists, ApiError, ApiUnavailable, Conflict, NotFound
from reconciler.kube.kinds import JOB, POLICY, TABLE_LAYOUT
from reconciler.kube.pods import DIGEST_ANNOTATION
from reconciler.kube.termination_message import Cause
from reconciler.operator.index import policy_key_of, policy_of
from reconciler.operator.job_record import JobRecord, job_status, unsettled_of
from reconciler.operator.launch.admission import FULL, RETRY, Admission
from reconciler.operator.launch.job_manifest import attempt_of, job
from reconciler.operator.launch.queued import (
    Queued,
    Running,
    reserves_the_same,
    saving_of,
    still_refused,
)
from reconciler.operator.layout import failures
from reconciler.operator.layout.endings import Endings
from reconciler.operator.layout.seen import owner_uid
from reconciler.operator.layout.steps import CreateAgain, Launch, Recommend, Stall, Wait
from reconciler.operator.layout.subject import Subject, layout_hash, shown_error
from reconciler.operator.spending import shares
from reconciler.operator.spending.charges import Book
from reconciler.operator.spending.stored_book import admitted
from reconciler.operator.status_text import utc
from reconciler.operator.work import LAUNCH_KEY, Key, Result, Work
from reconciler.plan.budget import Charge

log = logging.getLogger(__name__)


@dataclass
class Launcher:
    """Starts what may start. Thread-safe."""

    endings: Endings
    """Drops write-aheads, and counts failures to start."""
    offers: dict[Key, Queued] = field(default_factory=dict)
    """What each table could start, and since when."""
    served: dict[str, int] = field(default_factory=dict)
    """Number of the launch in which each namespace was last served."""
    starving: dict[str, dt.datetime] = field(default_factory=dict)
    """Namespaces without a job whose work waits only for a slot, and since when."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Guards the dictionaries."""
    admitting: threading.Lock = field(default_factory=threading.Lock)
    """Held while a job is admitted, so that no two use the same room of a budget."""

    def __post_init__(self) -> None:
        self.writer, self.gatherer = self.endings.writer, self.endings.gatherer
        self.runtime, self.clock = self.gatherer.runtime, self.gatherer.clock
        self.spending = self.gatherer.spending
        self.admission = Admission(self.runtime, self.gatherer)

    def offer(self, key: Key, work: Launch | Recommend | None) -> Wait | None:
        """Offer what a table could start; None withdraws an offer.

        Returns why it cannot start now, as far as that is known without a call.
        """
        if work is None:
            with self.lock:
                self.offers.pop(key, None)
            return None
        policy, limit = self._policy(key)
        with self.lock:
            known = self.offers.get(key)
            if known is None:
                known = Queued(work, self.clock(), policy, limit)
            elif not reserves_the_same(known.work.record, work.record):
                known = replace(known, refused=None)
            offered = replace(known, work=work, policy=policy, limit=limit)
            self.offers[key] = offered
        refusal = self._still_refused(key, offered, self._running())
        if refusal is None:
            self.runtime.enqueue(LAUNCH_KEY, None)
        return refusal or offered.refused  # until the next try, nothing newer is known

    def _policy(self, key: Key) -> tuple[str, int]:
        """Return (key of the table's policy, its maxConcurrentJobs)."""
        body = self.runtime.index.layout(key.namespace, key.name)
        policy = None if body is None else self.gatherer.subject(body).policy
        if body is None or not isinstance(policy, TableLayoutPolicy):
            return "", 0
        return policy_key_of(body), policy.spec.engine.max_concurrent_jobs

    def reconcile(self, key: Key) -> Result:
        """Start what may start now, best first.

        Offers for which the limits leave no room cost nothing until a job has ended.
        """
        try:
            if self.runtime.held():
                self.spending.sweep()
        except ApiError as error:
            log.warning("the record of spending was not written: %s", error.what)
        retry = self._walk()
        retry = self._make_room() or retry
        return Result(due=(self.clock() + RETRY).timestamp() if retry else None)

    def _walk(self) -> bool:
        """Try the offers, best first, until none is left or no slot is; return whether one is to be
        tried again. Only an attempt changes what runs, and so the order."""
        runtime, tried, retry = self.runtime, set[Key](), False
        found, waiting = self._running(), deque(self.in_order())
        while waiting and runtime.held() and not runtime.stopping():
            if found.slots.taken >= self.spending.limits.slots:
                return True
            key = waiting.popleft()
            offer = self.offers.get(key)
            if key in tried or offer is None:
                continue
            tried.add(key)
            if self._still_refused(key, offer, found) is not None:
                retry = True
                continue
            retry = not self._tried(key) or retry
            before, found = found, self._running()
            if found != before:
                waiting = deque(self.in_order())
        return retry

    def _tried(self, key: Key) -> bool:
        """Start the offer if it may start; return whether it is finished. One that fails, whatever
        the reason, does not keep others from starting."""
        try:
            return self._launch(key)
        except Conflict:
            self.runtime.enqueue(key, None)
            return True
        except NotFound:
            self.offer(key, None)
            return True
        except (ApiError, ReconcilerError) as error:
            log.warning("%s/%s was not started: %s", key.namespace, key.name, error)
        except Exception:
            log.exception("%s/%s was not started", key.namespace, key.name)
        return False

    def _make_room(self) -> bool:
        """Let jobs stop for namespaces that have waited too long for their first; return whether
        any namespace waits."""
        now, running = self.clock(), self._running()
        with self.lock:
            offers = list(self.offers.items())
        waiting = {
            key.namespace
            for key, offer in offers
            if not running.slots.jobs.get(key.namespace)
            and self._waits_for_a_slot(key, offer, running)
        }
        self.starving = {name: self.starving.get(name, now) for name in sorted(waiting)}
        found = shares.victims(self.spending.limits, self.spending.known, self.starving, now)
        if found and self.runtime.held():
            try:
                self.spending.stop(found)
            except ApiError as error:
                log.warning("no job gives way: %s", error.what)
                return True
            for job in found:
                log.info("%s/%s gives its slot to another namespace", job.namespace, job.job)
                self.runtime.enqueue(Key(Work.LAYOUT, job.namespace, job.layout), None)
        return bool(waiting)

    def _waits_for_a_slot(self, key: Key, offer: Queued, running: Running) -> bool:
        found = self._still_refused(key, offer, running)
        return (
            found is not None
            and found.reason == Reason.CONCURRENCY_LIMIT
            and (found.message != FULL)
        )

    def _running(self) -> Running:
        """Return what runs now, by the index and the book."""
        found = self.runtime.index.layouts_with_job()
        live = [
            (policy_key_of(body), record.name)
            for body in found
            if (record := unsettled_of(body.get("status"))) is not None
        ]
        return Running(
            jobs=frozenset(name for _, name in live),
            by_policy=Counter(policy for policy, _ in live),
            slots=self.admission.slots(self.spending.known, self.clock()),
            sharing=self.spending.sharing(),
        )

    def _still_refused(self, key: Key, offer: Queued, found: Running) -> Wait | None:
        return still_refused(offer, key.namespace, found, self.spending.limits, self.clock())

    def _remember(self, key: Key, refusal: Wait) -> None:
        among = self._running().jobs
        with self.lock:
            known = self.offers.get(key)
            if known is not None and refusal.reason != Reason.CONCURRENCY_LIMIT:
                self.offers[key] = replace(known, refused=refusal, among=among)

    def in_order(self) -> list[Key]:
        """Return the keys in the order in which they are served: by the place of their
        namespace; in a namespace by saving per byte, which grows with each hour of waiting; names
        break ties."""
        now = self.clock()
        with self.lock:
            found = list(self.offers.items())
        jobs = self.admission.slots(self.spending.known, now).jobs

        def rank(item: tuple[Key, Queued]) -> tuple[tuple[int, dt.datetime, int], float, Key]:
            namespace = item[0].namespace
            waited = max(0.0, (now - item[1].since).total_seconds() / 3600)
            saving = -saving_of(item[1].work) * (1 + waited)
            place = shares.precedence(namespace, jobs, self.starving, self.served, now)
            return place, saving, item[0]

        return [key for key, _ in sorted(found, key=rank)]

    def _launch(self, key: Key) -> bool:
        """Try to launch; return whether the offer is finished, False keeps it for later."""
        with self.admitting:
            subject = self._asked(key)
            _, decision = self.gatherer.decide(subject, fresh=True)
            if not isinstance(decision, (Launch, Recommend)):
                self.offer(key, None)
                self.runtime.enqueue(key, None)
                return True
            refusal = self.admission.refused(subject, decision)
            if refusal is not None:
                self._remember(key, refusal)
                if isinstance(decision, Recommend):
                    subject.held_back = refusal.message
                    self.writer.tell(subject, decision.meanwhile)
                else:
                    self.writer.tell(subject, refusal)
                return False
            if isinstance(decision, Recommend):  # it only reads: the table needs no claim
                self._reserve(subject, decision.record)
                return True
            owner = self._claimed(subject)
            if owner:
                text = f"the table is claimed by {owner}"
                self.writer.tell(subject, Stall(Reason.OWNED_ELSEWHERE, text))
                self.offer(key, None)
                return True
            record = self._write_ahead(subject, decision)
            self.offer(key, None)
            self._create(subject, record, decision.memory_factor)
            return True

    def _asked(self, key: Key) -> Subject:
        """Return the subject by the API server's TableLayout and policy: the index may not yet know
        that the policy was suspended, changed or deleted. Raises NotFound without a TableLayout."""
        runtime = self.runtime
        body = runtime.api.get(TABLE_LAYOUT, key.namespace, key.name)
        runtime.index.put(TABLE_LAYOUT, body)
        name = policy_of(body)
        known = runtime.index.policy(key.namespace, name)
        try:
            runtime.index.put(POLICY, runtime.api.get(POLICY, key.namespace, name))
        except NotFound:
            if known is not None:
                runtime.index.remove(POLICY, known)
        return self.gatherer.subject(body)

    def _reserve(self, subject: Subject, record: JobRecord) -> None:
        """Write a recommend job ahead and create it; the table's conditions stay as they are."""
        self.writer.hold(subject)
        self.writer.note(subject, job=job_status(record))
        self.offer(subject.key, None)
        self._create(subject, record, 1.0)

    def create_again(self, subject: Subject, record: JobRecord, memory_factor: float) -> Result:
        """Continue a launch whose write-ahead has no Job, as found by a reconcile."""
        with self.admitting:
            fresh = self._asked(subject.key)
            _, decision = self.gatherer.decide(fresh, fresh=True)
            if isinstance(decision, CreateAgain) and decision.record == record:
                self._create(fresh, record, memory_factor)
        return Result(due=(subject.now + dt.timedelta(seconds=2)).timestamp())

    def _claimed(self, subject: Subject) -> str:
        _, handle = subject.usable
        assert subject.proposal is not None
        owner = handle.claim(subject.table, subject.proposal.uuid)
        return "" if owner == handle.owner() else owner

    # Write-ahead and creation

    def _write_ahead(self, subject: Subject, work: Launch) -> JobRecord:
        """Reserve under the version that was read: if two operators write, one gets a conflict."""
        self.writer.hold(subject)
        under = layout_hash(subject.usable[0])
        record = replace(work.record, total=work.actions, committed=0, layout_hash=under)
        text = f"Job {record.name} is being created"
        running = Wait(subject.now + RETRY, Reason.REWRITE_RUNNING, text)
        self.writer.tell(subject, running, job=job_status(record), lastAttemptedPlan=record.plan_id)
        return record

    def _create(self, subject: Subject, record: JobRecord, memory_factor: float) -> None:
        """Create the Job of a write-ahead, if it still fits beside all others'."""
        runtime = self.runtime
        charge = Charge(record.rewrite_bytes, float(record.cpu_seconds))
        try:
            manifest = job(attempt_of(runtime.settings, subject, record, memory_factor))
        except UserError as error:  # for example too large a policy: a person must change it
            self._fail(subject, record, Cause.USER_ERROR, shown_error(error))
            return
        refusal = self.admission.by_own_limits(subject, charge, self.admission.listed(subject))
        refusal = refusal or self._admitted(subject, record)
        if refusal is not None:
            self.endings.drop(subject, record, refusal.message)
            if not record.recommends:
                self.writer.tell(subject, refusal)
            return
        if not runtime.held():
            return  # the write-ahead stays: the next leader finds it
        self._send(subject, record, manifest)

    def _admitted(self, subject: Subject, record: JobRecord) -> Wait | None:
        """Write the job into the operator's book; return why that may not be."""
        now, namespace = subject.now, subject.key.namespace
        found: list[Wait] = []

        def refused(book: Book) -> str:
            answer = self.admission.by_shared_limits(book, namespace, record.rewrite_bytes, now)
            found[:] = [] if answer is None else [answer]
            return "" if answer is None else answer.message

        job = admitted(namespace, subject.key.name, record)
        try:
            if self.spending.admit(job, refused):
                return found[0]
        except (ApiUnavailable, Conflict):
            raise  # it may have been written: the write-ahead stays, and is tried again
        except ApiError as error:
            text = f"the operator's own record of its jobs cannot be written: {error.what}"
            return Wait(now + RETRY, Reason.OVER_BUDGET, text)
        self.served[namespace] = max(self.served.values(), default=0) + 1
        return None

    def _send(self, subject: Subject, record: JobRecord, manifest: dict[str, Any]) -> None:
        runtime = self.runtime
        try:
            created = runtime.api.create(JOB, subject.key.namespace, manifest)
        except AlreadyExists:
            created = self._existing(subject, record)
        except (ApiUnavailable, Conflict):
            raise  # it may have been created: the next reconcile looks it up by name
        except ApiError as error:
            self._not_created(subject, record, error)
            return
        if not created:
            return
        text = f"Job {record.name} was created {utc(subject.now)}"
        waits = Wait(subject.now + RETRY, Reason.REWRITE_RUNNING, text)
        self.writer.tell_job(subject, replace(record, uid=created["metadata"]["uid"]), waits)
        runtime.metrics.launched(subject.key.namespace)
        runtime.api.event(subject.body, "JobCreated", f"{record.name} runs {record.plan_id}")
        log.info(
            "%s/%s: Job %s of table %s runs %s",
            *subject.key[1:], record.name, ".".join(subject.table), record.plan_id,
        )  # fmt: skip

    def _existing(self, subject: Subject, record: JobRecord) -> dict[str, Any]:
        """Return the Job of that name, if it is ours for exactly this plan; else the table
        stalls."""
        found = self.runtime.api.get(JOB, subject.key.namespace, record.name)
        digest = (found["metadata"].get("annotations") or {}).get(DIGEST_ANNOTATION)
        ours = owner_uid(found) == subject.body["metadata"]["uid"]
        if ours and digest == record.digest:
            return found
        message = f"Job {record.name} exists but was not created for this table"
        self._fail(subject, record, failures.FOREIGN_JOB, message)
        return {}

    def _not_created(self, subject: Subject, record: JobRecord, error: ApiError) -> None:
        """Handle a certain refusal of the server: nothing was created, nothing is reserved."""
        message = ". ".join((error.what, *error.details[:1]))
        self._fail(subject, record, failures.NOT_CREATED, message)
        self.runtime.api.event(subject.body, "JobRefused", message, "Warning")

    def _fail(self, subject: Subject, record: JobRecord, cause: str, message: str) -> None:
        self.endings.drop(subject, record, message, cause)
        self.runtime.enqueue(subject.key, None)
