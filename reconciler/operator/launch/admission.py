"""Whether more work fits beside all that runs: jobs at once, budgets, the operator's cap on 24 h.

Budgets and jobs of one policy are compared with the TableLayouts of its own namespace and with the
ledger of its own catalog. What all namespaces share is decided from the operator's own book
(`stored_book`), so that what a tenant writes counts for that tenant only.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.api.conditions import Reason
from reconciler.kube.kinds import TABLE_LAYOUT
from reconciler.operator import due
from reconciler.operator.index import ObjectName, policy_key_of
from reconciler.operator.job_record import unsettled_of, uuid_of
from reconciler.operator.layout.gathering import Gatherer
from reconciler.operator.layout.steps import Launch, Recommend, Wait
from reconciler.operator.layout.subject import Subject
from reconciler.operator.runtime import Runtime
from reconciler.operator.spending import shares
from reconciler.operator.spending.charges import Book
from reconciler.operator.spending.reservations import held, unsettled
from reconciler.operator.spending.shares import Slots
from reconciler.plan.budget import JOB, Budget, Charge, Spent, admit

FULL = "this policy runs as many jobs as spec.engine.maxConcurrentJobs allows"
RETRY = dt.timedelta(seconds=30)
REFUSED = dt.timedelta(minutes=10)
"""Maximum time a budget refusal is cached while no job ends: each new check costs calls per waiting
table."""


@dataclass
class Admission:
    """Decides about one subject at a time."""

    runtime: Runtime
    gatherer: Gatherer

    def refused(self, subject: Subject, work: Launch | Recommend) -> Wait | None:
        """Check by the index: cheap, and enough for a reason. What decides is asked later, of the
        API server and the book."""
        others = [
            body
            for body in self.runtime.index.layouts_with_job()
            if body["metadata"]["uid"] != subject.body["metadata"]["uid"]
        ]
        size, now = work.record.rewrite_bytes, subject.now
        charge = Charge(size, float(work.record.cpu_seconds))
        shared = self.by_shared_limits(
            self.gatherer.spending.known, subject.key.namespace, size, now
        )
        return shared or self.by_own_limits(subject, charge, others)

    def by_own_limits(
        self, subject: Subject, charge: Charge, others: Sequence[dict[str, Any]]
    ) -> Wait | None:
        """Return why the charge may not be added to what the namespace holds and its ledger has."""
        policy, handle = subject.usable
        later = subject.now + RETRY
        here = [b for b in others if b["metadata"]["namespace"] == subject.key.namespace]
        own = unsettled([body for body in here if policy_key_of(body) == subject.policy_key])
        uuid = subject.proposal.uuid if subject.proposal else uuid_of(subject.status)
        for table, record in unsettled(here):
            if table and table == uuid:  # e.g. renamed under a running job
                text = f"Job {record.name} runs on this table under another name"
                return Wait(later, Reason.REWRITE_RUNNING, text)
        if len(own) >= policy.spec.engine.max_concurrent_jobs:
            return Wait(later, Reason.CONCURRENCY_LIMIT, FULL)
        reserved = held(own, handle.open_reservations(), subject.now)
        spent = (*reserved, *handle.spent(subject.policy_key, uuid))
        admission = admit([charge], subject.budgets, spent, subject.now, subject.prices, JOB)
        if not admission.count:
            again = _again(subject.budgets, spent, charge, subject.now)
            return Wait(again, admission.reason, admission.message)
        return None

    def by_shared_limits(
        self, book: Book, namespace: str, size: int, now: dt.datetime
    ) -> Wait | None:
        """Return why the namespace may not start a job of so many bytes beside the book's."""
        spending = self.gatherer.spending
        limits, known = spending.limits, spending.sharing()
        full = shares.refusal(limits, self.slots(book, now), namespace, known)
        if full:
            return Wait(now + RETRY, Reason.CONCURRENCY_LIMIT, full)
        spent = book.spent(now)
        charge = Charge(size, 0.0)
        cap = shares.cap_of(limits, spent, namespace, size, known, now)
        everything = [item for charges in spent.values() for item in charges]
        admission = admit([charge], [cap], everything, now, what=JOB)
        if admission.count:
            return None
        again = _again([cap], everything, charge, now)
        return Wait(again, Reason.OVER_BUDGET, admission.message)

    def slots(self, book: Book, now: dt.datetime) -> Slots:
        return shares.slots(book, self.living(), now)

    def living(self) -> list[ObjectName]:
        """Return (namespace, job) of the Jobs that are not settled, by the index."""
        return [
            (body["metadata"]["namespace"], record.name)
            for body in self.runtime.index.layouts_with_job()
            if (record := unsettled_of(body.get("status"))) is not None and record.uid
        ]

    def listed(self, subject: Subject) -> list[dict[str, Any]]:
        """Return all other TableLayouts of the namespace, from the API server."""
        uid = subject.body["metadata"]["uid"]
        found = self.runtime.api.list(TABLE_LAYOUT, subject.key.namespace)
        return [body for body in found if body["metadata"]["uid"] != uid]


def _again(
    budgets: Sequence[Budget], spent: Sequence[Spent], charge: Charge, now: dt.datetime
) -> dt.datetime:
    """Return when a refusing budget is checked again: when its answer may change, or after a
    while."""
    moment = due.reopens(budgets, spent, charge, now)
    return now + REFUSED if moment is None else min(moment, now + REFUSED)
