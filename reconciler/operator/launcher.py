"""Admission and launch: the only place that starts jobs, one table at a time.

Candidates come from the layouts' reconciles and are taken by saving per byte, which grows with each
hour of waiting. Each launch is decided again from the API server's objects, written ahead into
status.job under the version that was read, checked once more against every other reservation, and
only then becomes a Job. Two operators that both believe they lead may both give up a reservation.
They never both keep reservations that together exceed a budget, because each lists the others'
after writing its own.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reconciler.api.conditions import Reason
from reconciler.api.documents import IcebergCatalog, TableLayoutPolicy
from reconciler.api.identity import hash_inputs
from reconciler.api.reach import Reach
from reconciler.api.run_document import RunDocument
from reconciler.catalog.calls import patience
from reconciler.errors import ReconcilerError, UnavailableError
from reconciler.kube.errors import (
    AlreadyExists,
    ApiError,
    ApiUnavailable,
    Conflict,
    NotFound,
)
from reconciler.kube.kinds import JOB, TABLE_LAYOUT
from reconciler.kube.manifests import JobRequest, job
from reconciler.kube.names import job_name
from reconciler.kube.pods import DIGEST_ANNOTATION
from reconciler.operator import due, failures
from reconciler.operator.index import policy_of
from reconciler.operator.layout import Layouts
from reconciler.operator.layout_facts import Phase, Record
from reconciler.operator.layout_status import job_status, record_of
from reconciler.operator.layout_steps import CreateAgain, Launch, Stall, Startable, Wait
from reconciler.operator.ports import CatalogProblem
from reconciler.operator.reservations import held, unsettled
from reconciler.operator.seen import owner_uid
from reconciler.operator.status_text import utc
from reconciler.operator.subject import Subject, catalog_version
from reconciler.operator.work import LAUNCH_KEY, Key, Result
from reconciler.plan.budget import Budget, Charge, Spent, admit
from reconciler.plan.ledger import Reservation
from reconciler.plan.plan import policy_hash

log = logging.getLogger(__name__)

LEAST_SAVING = 0.01
"""Saving per byte of declared work, so that its priority grows like any other's."""
RETRY = dt.timedelta(seconds=30)
REFUSED = dt.timedelta(minutes=10)
"""Maximum time a budget refusal is cached while no job ends: each new check costs calls per waiting
table."""
FULL = "as many jobs of this policy run as spec.engine.maxConcurrentJobs allows"
FULL_EVERYWHERE = "as many jobs run as the operator's limit allows"
PATIENCE_SECONDS = 10.0
"""For the ledger of each catalog, when another's job is to start."""
CAP = "cluster"
CAP_TITLE = "the operator's cap on 24 h"
CAP_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Waiting:
    """An offer. refused: by a budget or the cap, while the jobs `among` were live."""

    candidate: Startable
    since: dt.datetime
    policy: str
    limit: int
    refused: Wait | None = None
    among: frozenset[str] = frozenset()


@dataclass
class Launcher:
    """offers: what each table could start, and since when. Thread-safe."""

    layouts: Layouts
    offers: dict[Key, Waiting] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    admission: threading.Lock = field(default_factory=threading.Lock)
    last_known: dict[str, tuple[Spent, ...]] = field(default_factory=dict)

    def offer(self, key: Key, candidate: Startable | None) -> Wait | None:
        """Offer what a table could start; None withdraws an offer.

        Returns why it cannot start now, as far as that is known without a call.
        """
        if candidate is None:
            with self.lock:
                self.offers.pop(key, None)
            return None
        policy, limit = self._policy(key)
        with self.lock:
            known = self.offers.get(key)
            if known is None:
                known = Waiting(candidate, self.layouts.clock(), policy, limit)
            elif known.candidate != candidate:
                known = replace(known, refused=None)
            offered = replace(known, candidate=candidate, policy=policy, limit=limit)
            self.offers[key] = offered
        refusal = self._standing(offered, self._living())
        if refusal is None:
            self.layouts.runtime.enqueue(LAUNCH_KEY, None)
        return refusal or offered.refused  # until the next try, nothing newer is known

    def _policy(self, key: Key) -> tuple[str, int]:
        """Return (key of the table's policy, its maxConcurrentJobs)."""
        body = self.layouts.runtime.index.layout(key.namespace, key.name)
        policy = None if body is None else self.layouts.facts.subject(body).policy
        if body is None or not isinstance(policy, TableLayoutPolicy):
            return "", 0
        return _policy_of(body), policy.spec.engine.max_concurrent_jobs

    def reconcile(self, key: Key) -> Result:
        """Start what may start now, best first.

        Offers for which the limits leave no room cost nothing until a job has ended.
        """
        runtime = self.layouts.runtime
        retry = False
        living = self._living()
        for offered in self.in_order():
            if not runtime.held() or runtime.stopping():
                break
            waiting = self.offers.get(offered)
            if waiting is None:
                continue
            if self._standing(waiting, living) is not None:
                retry = True
                continue
            try:
                retry = not self._launch(offered) or retry
            except Conflict:
                runtime.enqueue(offered, None)
            except NotFound:
                self.offer(offered, None)
            except (ApiError, ReconcilerError) as error:
                log.warning("%s/%s was not started: %s", offered.namespace, offered.name, error)
                retry = True
            living = self._living()
        return Result(due=(self.layouts.clock() + RETRY).timestamp() if retry else None)

    def _living(self) -> list[tuple[str, str]]:
        """Return (policy, job) of the tables whose job is not settled, by the index."""
        found = self.layouts.runtime.index.layouts_with_job()
        records = [(body, record_of(body.get("status"))) for body in found]
        return [
            (_policy_of(body), record.name)
            for body, record in records
            if record is not None and record.unsettled
        ]

    def _standing(self, waiting: Waiting, living: list[tuple[str, str]]) -> Wait | None:
        """Return the refusal that still applies: the limits on jobs at once, or a recent answer."""
        later = self.layouts.clock() + RETRY
        if sum(policy == waiting.policy for policy, _ in living) >= waiting.limit:
            return Wait(later, Reason.CONCURRENCY_LIMIT, FULL)
        if len(living) >= self.layouts.runtime.settings.max_jobs:
            return Wait(later, Reason.CONCURRENCY_LIMIT, FULL_EVERYWHERE)
        same = waiting.among == frozenset(name for _, name in living)
        refused = waiting.refused
        now = self.layouts.clock()
        # Not longer than intended: a clock may have been set back since.
        stands = refused is not None and same and now < refused.until <= now + REFUSED
        return refused if stands else None

    def _remember(self, key: Key, refusal: Wait) -> None:
        among = frozenset(name for _, name in self._living())
        with self.lock:
            known = self.offers.get(key)
            if known is not None and refusal.reason != Reason.CONCURRENCY_LIMIT:
                self.offers[key] = replace(known, refused=refusal, among=among)

    def in_order(self) -> list[Key]:
        """Return the keys by saving per byte, which grows with each hour of waiting; names break
        ties."""
        now = self.layouts.clock()
        with self.lock:
            found = list(self.offers.items())

        def rank(item: tuple[Key, Waiting]) -> tuple[float, Key]:
            waited = max(0.0, (now - item[1].since).total_seconds() / 3600)
            return -max(item[1].candidate.saving_per_byte, LEAST_SAVING) * (1 + waited), item[0]

        return [key for key, _ in sorted(found, key=rank)]

    def _launch(self, key: Key) -> bool:
        """Try to launch; return whether the offer is finished, False keeps it for later."""
        with self.admission:
            body = self.layouts.runtime.api.get(TABLE_LAYOUT, key.namespace, key.name)
            self.layouts.runtime.index.put(TABLE_LAYOUT, body)
            subject = self.layouts.facts.subject(body)
            _, decision = self.layouts.decide(subject, fresh=True)
            if not isinstance(decision, Launch):
                self.offer(key, None)
                self.layouts.runtime.enqueue(key, None)
                return True
            refusal = self._refused(subject, decision.candidate)
            if refusal is not None:
                self._remember(key, refusal)
                self.layouts.writer.tell(subject, refusal)
                return False
            owner = self._claimed(subject)
            if owner:
                text = f"the table is claimed by {owner}"
                self.layouts.writer.tell(subject, Stall(Reason.OWNED_ELSEWHERE, text))
                self.offer(key, None)
                return True
            record = self._write_ahead(subject, decision.candidate)
            self.offer(key, None)
            self._create(subject, record, decision.candidate.memory_factor)
            return True

    def create_again(self, subject: Subject, record: Record, memory_factor: float) -> Result:
        """Continue a launch whose write-ahead has no Job, as found by a reconcile."""
        with self.admission:
            body = self.layouts.runtime.api.get(
                TABLE_LAYOUT, subject.key.namespace, subject.key.name
            )
            fresh = self.layouts.facts.subject(body)
            _, decision = self.layouts.decide(fresh, fresh=True)
            if isinstance(decision, CreateAgain) and decision.record == record:
                self._create(fresh, record, memory_factor)
        return Result(due=(subject.now + dt.timedelta(seconds=2)).timestamp())

    # Admission

    def _refused(self, subject: Subject, candidate: Startable) -> Wait | None:
        """Check by the index: cheap, and enough for a reason; `_over` decides after the write."""
        others = [
            body
            for body in self.layouts.runtime.index.layouts_with_job()
            if body["metadata"]["uid"] != subject.body["metadata"]["uid"]
        ]
        charge = Charge(candidate.rewrite_bytes, float(candidate.cpu_seconds))
        return self._over(subject, charge, others)

    def _over(
        self, subject: Subject, charge: Charge, others: Sequence[dict[str, Any]]
    ) -> Wait | None:
        """Return why the charge may not be added to what the others hold and the ledger has."""
        runtime = self.layouts.runtime
        policy, handle = subject.policy, subject.handle
        assert isinstance(policy, TableLayoutPolicy) and not isinstance(handle, CatalogProblem)
        later = subject.now + RETRY
        same = [body for body in others if _policy_of(body) == subject.policy_key]
        everywhere, own = unsettled(others), unsettled(same)
        uuid = (
            subject.look.uuid if subject.look else str(subject.status.get("table", {}).get("uuid"))
        )
        for table, record in everywhere:
            if table == uuid:  # e.g. renamed under a running job
                text = f"Job {record.name} runs on this table under another name"
                return Wait(later, Reason.REWRITE_RUNNING, text)
        if len(own) >= policy.spec.engine.max_concurrent_jobs:
            return Wait(later, Reason.CONCURRENCY_LIMIT, FULL)
        if len(everywhere) >= runtime.settings.max_jobs:
            return Wait(later, Reason.CONCURRENCY_LIMIT, FULL_EVERYWHERE)
        reserved = held(own, handle.open_reservations(), subject.now)
        spent = (*reserved, *handle.spent(subject.policy_key, uuid))
        admission = admit([charge], subject.budgets, spent, subject.now)
        if not admission.count:
            again = _again(subject.budgets, spent, charge, subject.now)
            return Wait(again, admission.reason, admission.message)
        return self._over_cap(charge, everywhere, subject.now)

    def _over_cap(
        self, charge: Charge, records: Sequence[tuple[str, Record]], now: dt.datetime
    ) -> Wait | None:
        """Check the cluster-wide cap, one more budget over everything that was spent anywhere.

        The last known spending of an unreachable catalog counts: what a job does meanwhile is under
        its reservation, which is not released before the catalog is read again.
        """
        cap = Budget(
            CAP, per_seconds=CAP_SECONDS, title=CAP_TITLE,
            max_rewrite_bytes=self.layouts.runtime.settings.max_rewrite_bytes,
        )  # fmt: skip
        spent = list(held(records, self._recorded(), now))
        for name, known in self._spent_by_catalog().items():
            if known is None:
                text = f"what was spent in catalog {name} cannot be read"
                return Wait(now + RETRY, Reason.OVER_BUDGET, text)
            spent += known
        admission = admit([charge], [cap], spent, now)
        if admission.count:
            return None
        again = _again([cap], spent, charge, now)
        return Wait(again, Reason.OVER_BUDGET, admission.message)

    def _recorded(self) -> list[Reservation]:
        """Return the open reservations of every readable ledger; for the others the records
        count."""
        found: list[Reservation] = []
        for name, handle in self.layouts.facts.catalogs.known():
            if not isinstance(handle, CatalogProblem):
                try:
                    with patience(PATIENCE_SECONDS):
                        found += handle.open_reservations()
                except UnavailableError as error:
                    log.warning("the ledger of catalog %s was not read: %s", name, error.what)
        return found

    def _spent_by_catalog(self) -> dict[str, tuple[Spent, ...] | None]:
        """Return the spending by catalog; None: unknown. That of a deleted catalog object still
        counts. A catalog in which no table was ever found has spent nothing: one that never
        answers must not stop all jobs."""
        found: dict[str, tuple[Spent, ...] | None] = dict(self.last_known)
        for name, handle in self.layouts.facts.catalogs.known():
            try:
                if not isinstance(handle, CatalogProblem):
                    with patience(PATIENCE_SECONDS):
                        self.last_known[name] = handle.spent_everywhere()
            except UnavailableError as error:
                log.warning("the ledger of catalog %s was not read: %s", name, error.what)
            stalled = isinstance(handle, CatalogProblem) and handle.stalls
            nothing_began = stalled or not self.layouts.runtime.index.layouts_of_catalog(
                *name.split("/")
            )
            if name in self.last_known or not nothing_began:
                found[name] = self.last_known.get(name)
        return found

    def _claimed(self, subject: Subject) -> str:
        handle = subject.handle
        assert not isinstance(handle, CatalogProblem) and subject.look is not None
        owner = handle.claim(subject.table, subject.look.uuid)
        return "" if owner == handle.owner() else owner

    # Write-ahead and creation

    def _write_ahead(self, subject: Subject, candidate: Startable) -> Record:
        """Reserve under the version that was read: if two operators write, one gets a conflict."""
        self.layouts.writer.hold(subject)
        record = Record(
            name=job_name(subject.key.name, candidate.plan_id, candidate.attempt),
            uid="",
            plan_id=candidate.plan_id,
            digest=candidate.digest,
            attempt=candidate.attempt,
            phase=Phase.PENDING,
            written=subject.now.replace(microsecond=0),
            rewrite_bytes=candidate.rewrite_bytes,
            cpu_seconds=candidate.cpu_seconds,
        )
        body = {
            **job_status(record, 0, candidate.actions),
            "layoutHash": layout_hash(subject.policy),
        }
        text = f"Job {record.name} is being created"
        running = Wait(subject.now + RETRY, Reason.REWRITE_RUNNING, text)
        self.layouts.writer.tell(subject, running, job=body, lastAttemptedPlan=record.plan_id)
        return record

    def _create(self, subject: Subject, record: Record, memory_factor: float) -> None:
        """Create the Job of a write-ahead, if it still fits beside all others'."""
        runtime = self.layouts.runtime
        charge = Charge(record.rewrite_bytes, float(record.cpu_seconds))
        refusal = self._over(subject, charge, self._listed(subject))
        if refusal is not None:
            self.layouts.endings.drop(subject, record, refusal.message)
            self.layouts.writer.tell(subject, refusal)
            return
        if not runtime.held():
            return  # the write-ahead stays: the next leader finds it
        self._send(subject, record, memory_factor)

    def _listed(self, subject: Subject) -> list[dict[str, Any]]:
        """Return all other TableLayouts of the watched namespaces, from the API server."""
        settings, api = self.layouts.runtime.settings, self.layouts.runtime.api
        watched = {*(settings.namespaces or (settings.namespace,)), subject.key.namespace} - {""}
        places: list[str | None] = [None] if settings.cluster_wide else [*sorted(watched)]
        uid = subject.body["metadata"]["uid"]
        return [
            body
            for namespace in places
            for body in api.list(TABLE_LAYOUT, namespace)
            if body["metadata"]["uid"] != uid
        ]

    def _send(self, subject: Subject, record: Record, memory_factor: float) -> None:
        runtime = self.layouts.runtime
        manifest = self.manifest(subject, record, memory_factor)
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
        running = replace(record, uid=created["metadata"]["uid"])
        job_body = {**(subject.status.get("job") or {}), **job_status(running)}
        text = f"Job {record.name} was created {utc(subject.now)}"
        self.layouts.writer.tell(
            subject, Wait(subject.now + RETRY, Reason.REWRITE_RUNNING, text), job=job_body
        )
        runtime.metrics.launched(subject.key.namespace)
        runtime.api.event(subject.body, "JobCreated", f"{record.name} runs {record.plan_id}")
        log.info(
            "%s/%s: Job %s of table %s runs %s",
            *subject.key[1:], record.name, ".".join(subject.table), record.plan_id,
        )  # fmt: skip

    def _existing(self, subject: Subject, record: Record) -> dict[str, Any]:
        """Return the Job of that name, if it is ours for exactly this plan; else the table
        stalls."""
        found = self.layouts.runtime.api.get(JOB, subject.key.namespace, record.name)
        digest = (found["metadata"].get("annotations") or {}).get(DIGEST_ANNOTATION)
        ours = owner_uid(found) == subject.body["metadata"]["uid"]
        if ours and digest == record.digest:
            return found
        message = f"Job {record.name} exists and is not this table's"
        self._fail(subject, record, failures.FOREIGN_JOB, message)
        return {}

    def _not_created(self, subject: Subject, record: Record, error: ApiError) -> None:
        """Handle a certain refusal of the server: nothing was created, nothing is reserved."""
        message = ". ".join((error.what, *error.details[:1]))
        self._fail(subject, record, failures.NOT_CREATED, message)
        self.layouts.runtime.api.event(subject.body, "JobRefused", message, "Warning")

    def _fail(self, subject: Subject, record: Record, cause: str, message: str) -> None:
        known = failures.failures_of(subject.status)
        scopes = self.layouts.facts.scopes_now(subject)
        later = failures.after(known, cause, message, scopes, subject.now)
        assert later is not None
        dropped = replace(record, phase=Phase.DROPPED)
        job_body = {**(subject.status.get("job") or {}), **job_status(dropped)}
        self.layouts.writer.put(
            subject, {**subject.status, "job": job_body, "failures": later.status()}
        )
        self.layouts.runtime.enqueue(subject.key, None)

    def manifest(self, subject: Subject, record: Record, memory_factor: float) -> dict[str, Any]:
        """Return the Job of the record: its plan by place and digest, its limits, its sizing."""
        policy, handle, look = subject.policy, subject.handle, subject.look
        assert isinstance(policy, TableLayoutPolicy) and not isinstance(handle, CatalogProblem)
        assert look is not None
        document: IcebergCatalog = handle.document
        total = (subject.status.get("job") or {}).get("actionsTotal", len(look.pending))
        left = subject.cut_short if total == 0 else None
        limited = bool(subject.budgets)
        settings = self.layouts.runtime.settings
        run = RunDocument(
            catalog=document,
            policy=policy,
            table=subject.table,
            plan_uri=look.uri if left is None else left.uri,
            plan_digest=record.digest,
            plan_id=record.plan_id,
            attempt=record.attempt,
            action_ids=tuple(item.id for item in look.pending[:total]),
            bytes_limit=record.rewrite_bytes if limited else None,
            cpu_limit_seconds=record.cpu_seconds if limited else None,
            policy_key=subject.policy_key,
            owner=handle.owner(),
        )
        return job(
            JobRequest(
                name=record.name,
                namespace=subject.key.namespace,
                layout_name=subject.key.name,
                layout_uid=subject.body["metadata"]["uid"],
                plan_id=record.plan_id,
                plan_digest=record.digest,
                attempt=record.attempt,
                run=run.text(),
                engine=policy.spec.engine,
                jobs=document.spec.jobs,
                image=settings.image,
                catalog_version=catalog_version(handle),
                service_account=settings.driver_service_account,
                executor_service_account=settings.executor_service_account,
                secret=document.spec.secret.name if document.spec.secret else "",
                memory_factor=memory_factor,
                reach=Reach(settings.allowed_networks, settings.local_files),
            )
        )


def _again(
    budgets: Sequence[Budget], spent: Sequence[Spent], charge: Charge, now: dt.datetime
) -> dt.datetime:
    """Return when a refusing budget is checked again: when its answer may change, or after a
    while."""
    moment = due.reopens(budgets, spent, charge, now)
    return now + REFUSED if moment is None else min(moment, now + REFUSED)


def layout_hash(policy: Any) -> str:
    return "sha256:" + policy_hash(hash_inputs(policy))


def _policy_of(body: dict[str, Any]) -> str:
    return f"{body['metadata']['namespace']}/{policy_of(body)}"


def assemble(layouts_of: Callable[[Any, Any], Layouts]) -> tuple[Layouts, Launcher]:
    """Return layouts and launcher, each with a reference to the other."""
    launcher: list[Launcher] = []
    layouts = layouts_of(
        lambda key, candidate: launcher[0].offer(key, candidate),
        lambda subject, record, factor: launcher[0].create_again(subject, record, factor),
    )
    launcher.append(Launcher(layouts))
    return layouts, launcher[0]
