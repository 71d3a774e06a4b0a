"""Whether more work fits beside all that runs: jobs at once, budgets, the operator's cap on 24 h.

What others hold is read after the own write-ahead was written, so that of two operators that both
believe they lead at least one sees the other's.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.conditions import Reason
from reconciler.api.documents import TableLayoutPolicy
from reconciler.catalog.calls import patience
from reconciler.errors import UnavailableError
from reconciler.kube.kinds import TABLE_LAYOUT
from reconciler.operator import due
from reconciler.operator.gathering import Facts
from reconciler.operator.index import policy_of
from reconciler.operator.layout_facts import Record
from reconciler.operator.layout_steps import Startable, Wait
from reconciler.operator.ports import CatalogProblem
from reconciler.operator.reservations import held, unsettled
from reconciler.operator.runtime import Runtime
from reconciler.operator.subject import Subject
from reconciler.plan.budget import Budget, Charge, Spent, admit
from reconciler.plan.ledger import Reservation

log = logging.getLogger(__name__)

CAP = "cluster"
CAP_SECONDS = 86_400
CAP_TITLE = "the operator's cap on 24 h"
FULL = "this policy runs as many jobs as spec.engine.maxConcurrentJobs allows"
FULL_EVERYWHERE = "the operator runs as many jobs as its limit allows"
PATIENCE_SECONDS = 10.0
"""For the ledger of each catalog, when another's job is to start."""
RETRY = dt.timedelta(seconds=30)
REFUSED = dt.timedelta(minutes=10)
"""Maximum time a budget refusal is cached while no job ends: each new check costs calls per waiting
table."""


@dataclass
class Admission:
    """last_known: what was spent in each catalog when it was last read."""

    runtime: Runtime
    facts: Facts
    last_known: dict[str, tuple[Spent, ...]] = field(default_factory=dict)

    def refused(self, subject: Subject, candidate: Startable) -> Wait | None:
        """Check by the index: cheap, and enough for a reason; `over` decides after the write."""
        others = [
            body
            for body in self.runtime.index.layouts_with_job()
            if body["metadata"]["uid"] != subject.body["metadata"]["uid"]
        ]
        charge = Charge(candidate.rewrite_bytes, float(candidate.cpu_seconds))
        return self.over(subject, charge, others)

    def over(
        self, subject: Subject, charge: Charge, others: Sequence[dict[str, Any]]
    ) -> Wait | None:
        """Return why the charge may not be added to what the others hold and the ledger has."""
        runtime = self.runtime
        policy, handle = subject.policy, subject.handle
        assert isinstance(policy, TableLayoutPolicy) and not isinstance(handle, CatalogProblem)
        later = subject.now + RETRY
        same = [body for body in others if policy_key_of(body) == subject.policy_key]
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
            max_rewrite_bytes=self.runtime.settings.max_rewrite_bytes,
        )  # fmt: skip
        spent = list(held(records, self._recorded(), now))
        for name, known in self._spent_by_catalog().items():
            if known is None:
                text = f"the budget spent in catalog {name} cannot be read"
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
        for name, handle in self.facts.catalogs.known():
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
        for name, handle in self.facts.catalogs.known():
            try:
                if not isinstance(handle, CatalogProblem):
                    with patience(PATIENCE_SECONDS):
                        self.last_known[name] = handle.spent_everywhere()
            except UnavailableError as error:
                log.warning("the ledger of catalog %s was not read: %s", name, error.what)
            stalled = isinstance(handle, CatalogProblem) and handle.stalls
            nothing_began = stalled or not self.runtime.index.layouts_of_catalog(*name.split("/"))
            if name in self.last_known or not nothing_began:
                found[name] = self.last_known.get(name)
        return found

    def listed(self, subject: Subject) -> list[dict[str, Any]]:
        """Return all other TableLayouts of the watched namespaces, from the API server."""
        settings, api = self.runtime.settings, self.runtime.api
        watched = {*(settings.namespaces or (settings.namespace,)), subject.key.namespace} - {""}
        places: list[str | None] = [None] if settings.cluster_wide else [*sorted(watched)]
        uid = subject.body["metadata"]["uid"]
        return [
            body
            for namespace in places
            for body in api.list(TABLE_LAYOUT, namespace)
            if body["metadata"]["uid"] != uid
        ]


def _again(
    budgets: Sequence[Budget], spent: Sequence[Spent], charge: Charge, now: dt.datetime
) -> dt.datetime:
    """Return when a refusing budget is checked again: when its answer may change, or after a
    while."""
    moment = due.reopens(budgets, spent, charge, now)
    return now + REFUSED if moment is None else min(moment, now + REFUSED)


def policy_key_of(body: dict[str, Any]) -> str:
    return f"{body['metadata']['namespace']}/{policy_of(body)}"
