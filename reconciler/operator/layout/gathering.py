"""The facts about a TableLayout: its documents, its jobs, its table, a look at it, the gate.

Unsettled things are asked of the API server, all else of the index. A table is planned only if
something changed that its last look was made from.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from reconciler.api.conditions import Reason, stalled_by
from reconciler.api.documents import TableLayoutPolicy
from reconciler.errors import RedirectedError, UnavailableError, UserError
from reconciler.kube.errors import ApiError
from reconciler.kube.kinds import JOB, POD
from reconciler.kube.pods import LAYOUT_LABEL
from reconciler.loop.decision_settings import budgets_of
from reconciler.loop.gating import Approvals, PendingWork, approved_ids, gate_input
from reconciler.operator import due
from reconciler.operator.conditions import Body
from reconciler.operator.index import REQUESTED_AT, policy_of
from reconciler.operator.job_record import Phase, record_of, unsettled_of
from reconciler.operator.layout import failures, recommending
from reconciler.operator.layout.facts import LayoutInput
from reconciler.operator.layout.failures import Scopes, scope
from reconciler.operator.layout.next_step import next_step
from reconciler.operator.layout.seen import jobs_seen, pods_seen
from reconciler.operator.layout.steps import Decision, Propose
from reconciler.operator.layout.subject import (
    FINALIZER,
    Subject,
    catalog_version,
    invalid_because,
    known_plans_of,
    last_job_failed,
    shown_error,
    stop_because,
    suspended_by,
    unreachable_because,
)
from reconciler.operator.ports import Catalogs, CutShort, Problem
from reconciler.operator.proposal_summary import ProposalSummary, at_rest_by
from reconciler.operator.runtime import Runtime
from reconciler.operator.spending.reservations import Recorded, held, unsettled
from reconciler.operator.spending.stored_book import Spending
from reconciler.operator.status_text import parse_time
from reconciler.operator.stored import Refusal, StoredDocuments
from reconciler.operator.work import Key
from reconciler.plan.budget import Spent
from reconciler.plan.gate import gate
from reconciler.plan.plan import policy_hash

log = logging.getLogger(__name__)


@dataclass
class Gatherer:
    """Gathers what a decision on a TableLayout needs, with as few calls as possible."""

    runtime: Runtime
    """The services of the operator."""
    catalogs: Catalogs
    """The handles of all catalogs."""
    documents: StoredDocuments
    """Parses stored objects."""
    clock: Callable[[], dt.datetime]
    """Returns the time."""
    spending: Spending
    """What the operator itself admitted."""
    proposals: dict[Key, ProposalSummary] = field(default_factory=dict)
    """Results of planning, until something changes or they expire."""
    resting: dict[Key, ProposalSummary] = field(default_factory=dict)
    """What is kept where nothing was to do."""

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

    def needs_server(self, subject: Subject) -> bool:
        """Whether anything is live or unsettled, so that the server is asked; the index may be
        seconds old."""
        key = subject.key
        meta = subject.body["metadata"]
        index = self.runtime.index
        return (
            unsettled_of(subject.status) is not None
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

    def decide(self, subject: Subject, *, fresh: bool) -> tuple[LayoutInput, Decision]:
        """Return the decision and its facts, with as much I/O as it needs. fresh: jobs and pods
        from the server."""
        given = self.gather(subject, fresh)
        decision = next_step(given)
        if isinstance(decision, Propose):
            given = self.propose(subject, given)
            decision = next_step(given)
        return given, decision

    def gather(self, subject: Subject, fresh: bool) -> LayoutInput:
        meta = subject.body["metadata"]
        listed = self.listed(subject, fresh)
        policy, handle = subject.policy, subject.handle
        interval = policy.spec.interval_seconds if isinstance(policy, TableLayoutPolicy) else 600
        known = failures.failures_of(subject.status)
        down = handle.message if isinstance(handle, Problem) and not handle.stalls else ""
        if not down and known is not None:
            down = self._glance(subject)
        return LayoutInput(
            now=subject.now,
            leading=self.runtime.held(),
            name=meta["name"],
            uid=meta["uid"],
            jobs=None if listed is None else jobs_seen(*listed),
            pods=None if listed is None else pods_seen(listed[1]),
            due=due.next_look(f"{subject.key.namespace}/{meta['name']}", interval, subject.now),
            record=record_of(subject.status),
            deleting=parse_time(meta.get("deletionTimestamp")),
            suspended=suspended_by(subject),
            invalid=invalid_because(subject),
            catalog_down=down,
            unreachable=unreachable_because(handle),
            paused=_paused(subject),
            owner=self._foreign_owner(subject),
            stop=self._why_to_stop(subject),
            known_plans=known_plans_of(subject.status),
            workload_stale=self.catalogs.workload_stale(
                subject.key.namespace, subject.body["spec"]["catalogRef"]["name"]
            ),
            trouble=failures.trouble(known, self.scopes(subject), subject.now),
            catalog_version=catalog_version(handle),
        )

    def _why_to_stop(self, subject: Subject) -> Refusal | None:
        """Return why a running job may not continue."""
        record = record_of(subject.status)
        if record is not None and self.spending.gives_way(subject.key.namespace, record.name):
            text = "another namespace has waited for a slot for a whole turn; this job goes on"
            return Refusal(Reason.CONCURRENCY_LIMIT.value, text)
        return stop_because(subject)

    def _glance(self, subject: Subject) -> str:
        """Load the table once; return "" or why the catalog does not answer."""
        handle = subject.handle
        if isinstance(handle, Problem) or subject.glance or subject.gone:
            return ""
        try:
            subject.glance = handle.glance(subject.table)
            subject.gone = subject.glance is None
        except (UnavailableError, RedirectedError) as error:
            return error.what
        except UserError:
            return ""  # reported by the look, with its reason
        return ""

    def _foreign_owner(self, subject: Subject) -> str:
        if subject.glance is None or isinstance(subject.handle, Problem):
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
        version = "" if isinstance(subject.handle, Problem) else subject.handle.version
        location = subject.glance.metadata_location if subject.glance else ""
        return Scopes(spec, scope(spec, version), scope(location))

    def propose(self, subject: Subject, given: LayoutInput) -> LayoutInput:
        """Return the input with the standing proposal, or why the table cannot be planned."""
        down = self._glance(subject)
        if down:
            return replace(given, catalog_down=down)
        if subject.gone:
            gone = Refusal(Reason.TABLE_NOT_FOUND.value, "the catalog has no such table")
            return replace(given, invalid=gone)
        given = replace(given, paused=_paused(subject), owner=self._foreign_owner(subject))
        if given.paused or given.owner:
            return given
        try:
            subject.proposal = self.look(subject)
            given = self.gated(subject, given)
            subject.cut_short = self._cut_short(subject)
            wished = self._recommendation(subject, given.workload_stale)
        except (UnavailableError, RedirectedError) as error:
            return replace(given, catalog_down=error.what)
        except UserError as error:
            return replace(given, invalid=Refusal(stalled_by(error).value, shown_error(error)))
        stop = self._why_to_stop(subject)
        return replace(given, cut_short=subject.cut_short, stop=stop, recommendation=wished)

    def _recommendation(self, subject: Subject, stale: str) -> str:
        """Return the id of the recommendation that is due, "" if none is.

        stale: why evidence of queries must not be used now.
        """
        (policy, _), glance = subject.usable, subject.glance
        assert glance is not None
        wanted = policy.spec.recommend
        stored = subject.status.get("observed") or {}
        observed = subject.proposal.observed if subject.proposal else stored
        name = f"{subject.key.namespace}/{subject.key.name}"
        if wanted is None or not recommending.queries_of(observed):
            return ""
        if not recommending.due_now(name, wanted, subject.status, subject.now):
            return ""
        if stale:
            subject.held_back = stale
            return ""
        return recommending.wanted_id(
            wanted, subject.status, glance.uuid, glance.metadata_location, observed["workload"]
        )

    def _cut_short(self, subject: Subject) -> CutShort | None:
        """Return the plan of an attempt that a dead driver left open.

        A job that succeeded has settled what others left. A failed one, or one under a deleted
        TableLayout (of which there is no record), may have left something.
        """
        record, proposal = record_of(subject.status), subject.proposal
        if proposal is None or (record is not None and record.phase is Phase.SUCCEEDED):
            return None
        return subject.usable[1].cut_short(proposal.uuid)

    def look(self, subject: Subject) -> ProposalSummary | None:
        """Run the cheap check; look again only if something changed that the last look was made
        from."""
        (policy, handle), glance = subject.usable, subject.glance
        assert glance is not None
        approved = approved_ids(policy, self.approvals(subject).plan_id)
        fingerprint = scope(
            glance.uuid,
            glance.metadata_location,
            policy_hash(policy),
            policy.spec.engine,
            policy.spec.safety,
            handle.version,
            handle.evidence_version(glance.uuid, policy.spec.interval_seconds),
            *sorted(approved),
        )
        known = self.proposals.get(subject.key)
        if known is not None and known.stands(fingerprint, subject.now):
            return known
        resting = (
            None if known is not None or last_job_failed(subject) else self.resting_of(subject)
        )
        if resting is not None and resting.stands(fingerprint, subject.now):
            return None
        self.forget(subject.key)
        proposal = handle.look(subject.table, policy, fingerprint, approved, subject.now)
        self.proposals[subject.key] = proposal
        return proposal

    def approvals(self, subject: Subject) -> Approvals:
        return Approvals(subject.body["spec"].get("approvedPlan") or "")

    def gated(self, subject: Subject, given: LayoutInput) -> LayoutInput:
        """Return the input with the proposal, or with the state in which the table rests, and the
        gate's answer under all known reservations."""
        proposal = subject.proposal or self.resting_of(subject)
        assert proposal is not None  # `look` has found one of them
        if not proposal.pending:
            return replace(given, proposal=proposal)
        policy, handle = subject.usable
        assert proposal.plan is not None
        work = PendingWork(
            plan=proposal.plan,
            actions=proposal.pending,
            table_uuid=proposal.uuid,
            paused=given.paused,
            owner=given.owner,
            other=proposal.other,
            forbidden=proposal.forbidden,
            queries_too_old=proposal.queries_too_old,
        )
        recorded = Recorded(handle, self.reserved(subject))
        asked = gate_input(policy, work, recorded, self.approvals(subject), subject.now)
        subject.gate = gate(asked)
        first = proposal.charges[0]
        reopens = due.reopens(asked.budgets, asked.spent or (), first, subject.now)
        return replace(given, proposal=proposal, gate=subject.gate, reopens=reopens)

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
        return held(records, subject.usable[1].open_reservations(), subject.now)

    def forget(self, key: Key) -> None:
        self.proposals.pop(key, None)
        self.resting.pop(key, None)

    def resting_of(self, subject: Subject) -> ProposalSummary | None:
        """Return what is known of a state without work, from memory or from the status.

        The status loses it while the table is suspended or its catalog is unreachable, the memory
        when the operator starts. A TableLayout that was deleted and created again has no status,
        and the memory of the former one would leave it without.
        """
        known = self.resting.get(subject.key)
        observed = subject.status.get("observed") or {}
        if known is not None and known.fingerprint == observed.get("fingerprint"):
            return known
        return at_rest_by(subject.status)

    def rest(self, subject: Subject) -> None:
        """Drop the look if the status names the state for which nothing was to do.

        Not after a failed job: `look` needs one.
        """
        proposal = subject.proposal
        if proposal is None or proposal.pending or last_job_failed(subject):
            return
        stored = at_rest_by(subject.status)
        if stored is not None and stored.fingerprint == proposal.fingerprint:
            self.forget(subject.key)
            self.resting[subject.key] = proposal.at_rest()


def _paused(subject: Subject) -> str:
    return "" if subject.glance is None else subject.glance.paused
