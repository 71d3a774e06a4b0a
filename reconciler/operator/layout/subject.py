"""One TableLayout with the objects it refers to, and what follows from these documents alone."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from reconciler.api.conditions import Reason
from reconciler.api.documents import TableLayoutPolicy
from reconciler.api.prices import Prices
from reconciler.catalog.pointer import Pointer
from reconciler.errors import ReconcilerError
from reconciler.kube.names import table_layout_name
from reconciler.operator.conditions import Body
from reconciler.operator.index import policy_key_of, policy_of, table_of
from reconciler.operator.job_record import Phase, record_of
from reconciler.operator.layout.failures import scope
from reconciler.operator.ports import CatalogHandle, CutShort, Problem
from reconciler.operator.proposal_summary import ProposalSummary
from reconciler.operator.stored import Refusal
from reconciler.operator.work import Key, Work
from reconciler.plan.budget import Budget, Gate, closed_by
from reconciler.plan.plan import policy_hash

FINALIZER = "layout.lakehouse.dev/running-job"


@dataclass
class Subject:
    """One TableLayout with the objects it refers to, read once per reconcile."""

    body: Body
    """The object. The server's answer to each write replaces it, so that the next write names the
    right version."""
    policy: TableLayoutPolicy | Refusal | None
    """Its policy, why that cannot be used, or None if there is no such policy."""
    policy_body: Body | None
    """The policy as stored; None if there is none."""
    handle: CatalogHandle | Problem
    """Its catalog, or why that cannot be used."""
    now: dt.datetime
    """Time of the reconcile."""
    proposal: ProposalSummary | None = None
    """The result of planning; None if the table was not planned."""
    glance: Pointer | None = None
    """What the catalog says of the table without reading its metadata; None if it was not asked."""
    gone: bool = False
    """Whether the table has gone from the catalog."""
    cut_short: CutShort | None = None
    """The plan of an attempt that a dead driver left open; None without one."""
    held_back: str = ""
    """Why a recommend job that is due does not start, "" if it may."""
    gate: Gate | None = None
    """The gate's answer; None if it was not asked."""
    budgets: tuple[Budget, ...] = ()
    """The budgets of its policy."""

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
    def usable(self) -> tuple[TableLayoutPolicy, CatalogHandle]:
        """The policy and the catalog of a table for which the checks of both found no fault."""
        assert isinstance(self.policy, TableLayoutPolicy)
        assert not isinstance(self.handle, Problem)
        return self.policy, self.handle

    @property
    def prices(self) -> Prices | None:
        """The prices of its catalog; None without any, or while the catalog cannot be used."""
        handle = self.handle
        return None if isinstance(handle, Problem) else handle.document.spec.prices

    @property
    def table(self) -> tuple[str, ...]:
        return table_of(self.body)

    @property
    def policy_key(self) -> str:
        return policy_key_of(self.body)


def catalog_version(handle: CatalogHandle | Problem) -> str:
    """Return a hash of the catalog's and its secret's version, "" for a catalog that is not
    usable."""
    return "" if isinstance(handle, Problem) else scope(handle.version)


def shown_error(error: ReconcilerError) -> str:
    """Return an error as one line of a condition."""
    return ". ".join(
        part.rstrip(".") for part in (error.what, *error.details[:2], error.do or "") if part
    )


def layout_hash(policy: TableLayoutPolicy) -> str:
    """Return spec.layoutHash of the tables of a policy, which changes with what it asks for."""
    return "sha256:" + policy_hash(policy)


def suspended_by(subject: Subject) -> str:
    """Return which suspension applies, "" for none."""
    if subject.body["spec"].get("suspend"):
        return "spec.suspend of the TableLayout is set"
    policy = subject.policy
    if isinstance(policy, TableLayoutPolicy) and policy.spec.suspend:
        return f"spec.suspend of the policy {policy.name} is set"
    return ""


def invalid_because(subject: Subject) -> Refusal | None:
    """Return what must be corrected in the documents or the catalog before the table is planned."""
    spec = subject.body["spec"]
    name = table_layout_name(spec["catalogRef"]["name"], subject.table)
    if subject.key.name != name:  # two objects would start two jobs
        text = f"the TableLayout of this table must be called {name}; the operator creates it"
        return Refusal(Reason.INVALID_SPEC.value, text)
    if subject.policy is None:
        name = policy_of(subject.body)
        return Refusal(Reason.INVALID_SPEC.value, f"there is no TableLayoutPolicy {name}")
    if isinstance(subject.policy, Refusal):
        return Refusal(subject.policy.reason, f"policy: {subject.policy.message}")
    return unreachable_because(subject.handle)


def unreachable_because(handle: CatalogHandle | Problem) -> Refusal | None:
    """Return what must be corrected in the catalog before it can be called."""
    if isinstance(handle, Problem) and handle.stalls:
        return Refusal(handle.reason, handle.message)
    return None


def unready_because(subject: Subject) -> Refusal | None:
    """Return what its references lack; a running job or a suspension does not hide it."""
    handle = subject.handle
    if isinstance(handle, Problem):
        return Refusal(handle.reason, handle.message)
    return invalid_because(subject)


def stop_because(subject: Subject) -> Refusal | None:
    """Return why a running job may not continue, from the documents and the clock alone."""
    if subject.policy is None:
        return Refusal("PolicyDeleted", "its policy was deleted")
    if isinstance(subject.policy, Refusal):
        return Refusal(subject.policy.reason, f"its policy is not valid: {subject.policy.message}")
    closed = closed_by(subject.budgets, subject.now)
    if closed:
        return Refusal(Reason.OUTSIDE_WINDOW.value, f'budget "{closed}" allows nothing now')
    wanted = layout_hash(subject.policy)
    record = record_of(subject.status)
    if record is not None and record.recommends and subject.policy.spec.recommend is None:
        return Refusal("PolicyChanged", "the policy asks for no recommendations now")
    if record is not None and record.layout_hash not in ("", wanted):
        return Refusal("PolicyChanged", "the policy asks for another layout now")
    return None


def known_plans_of(status: Body) -> dict[str, str]:
    plan, record = status.get("plan") or {}, record_of(status)
    found = {str(plan.get("id", "")): str(plan.get("digest", ""))}
    if record is not None:
        found[record.plan_id] = record.digest
    return {plan_id: digest for plan_id, digest in found.items() if plan_id and digest}


def last_job_failed(subject: Subject) -> bool:
    """Whether the table's last job failed, so that an attempt may have been cut short.

    A recommend job begins none.
    """
    record = record_of(subject.status)
    return record is not None and record.phase is Phase.FAILED and not record.recommends
