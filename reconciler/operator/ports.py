"""What reconciles need of a catalog, as values and one protocol; `handles` implements it.

A reconcile sees tables only through a `CatalogHandle`, so that its decisions can be tested with
catalogs that fail, disappear and come back, without a real one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from reconciler.api.documents import IcebergCatalog, TableLayoutPolicy
from reconciler.catalog.pointer import Pointer
from reconciler.operator.job_record import JobRecord
from reconciler.operator.proposal_summary import ProposalSummary
from reconciler.plan.budget import Spent
from reconciler.plan.ledger import LedgerEntry, ReadCheck, Reservation

Identifier = tuple[str, ...]
Run = tuple[tuple[LedgerEntry, ...], ReadCheck | None]
"""The ledger's entries of a Job's run, with those that it settled for earlier runs of its plan; and
what the recorded queries read afterwards, None if that was not measured."""

EXPIRED = "it is older than spec.approval.planTTL"
"""Beginning of the difference of an approved plan that only time has voided."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What keeps a catalog, a policy or a namespace from being Ready."""

    reason: str
    """Reason of the condition."""
    message: str
    """Message of the condition."""
    stalls: bool
    """Whether somebody must correct something first."""


@dataclass(frozen=True, slots=True)
class CutShort:
    """The published plan of an attempt that a dead driver left open."""

    plan_id: str
    """Id of the plan."""
    digest: str
    """Digest of its document."""
    uri: str
    """Location of its document."""


class CatalogHandle(Protocol):
    """One reachable catalog with its shared state.

    Calls raise ReconcilerError, UnavailableError if the catalog does not answer; none returns a
    secret.
    """

    @property
    def document(self) -> IcebergCatalog: ...

    @property
    def version(self) -> str:
        """Version that changes with the catalog's spec and its secret."""
        ...

    def listing(self) -> list[Identifier]:
        """Return every table except the reconciler's own, or raise an error: never a partial
        list."""
        ...

    def glance(self, table: Identifier) -> Pointer | None:
        """Load the table once; None if it does not exist."""
        ...

    def evidence_version(self, uuid: str, max_age: float) -> str:
        """Return a version that changes with the workload and the calibration of the table."""
        ...

    def look(
        self,
        table: Identifier,
        policy: TableLayoutPolicy,
        fingerprint: str,
        approved: Sequence[str],
        now: dt.datetime,
    ) -> ProposalSummary:
        """Observe and propose.

        approved: plan ids that people approved; one that was published for this table and is still
        valid becomes the plan.
        """
        ...

    def approved(self, plan_id: str, policy: str) -> bool:
        """Return whether a person approved it by `layoutctl`, in the shared state, under that
        policy."""
        ...

    def owner(self) -> str:
        """Return this operator's owner name for tables of this catalog."""
        ...

    def claim(self, table: Identifier, uuid: str) -> str:
        """Claim the table unless another owns it; return who owns it now: `owner` if it is ours."""
        ...

    def spent(self, policy: str, uuid: str) -> tuple[Spent, ...]: ...

    def automatic_spent(self, uuid: str, since: dt.datetime, approved: Collection[str]) -> int:
        """Return the bytes rewritten without a person's approval since then.

        approved: plan ids that objects approve; the shared state has other approvals.
        """
        ...

    def end_run(self, uuid: str, record: JobRecord) -> Run:
        """Return what the run of the record did. If it left its reservation open, record its end:
        the reservation counts in full, from now on as of that end."""
        ...

    def cut_short(self, uuid: str) -> CutShort | None:
        """Return the plan of a driver that died and left an attempt on the table open, if any.

        Cheap if every driver has settled what it reserved, else one more scan of the state.
        """
        ...

    def open_reservations(self) -> tuple[Reservation, ...]:
        """Return the unsettled reservations of drivers in the ledger; `spent` includes them."""
        ...


class Catalogs(Protocol):
    """The handles of the catalogs that are usable now."""

    def handle(self, namespace: str, name: str) -> CatalogHandle | Problem: ...

    def workload_stale(self, namespace: str, name: str) -> str:
        """Return why evidence of queries must not be used, "" if it may."""
        ...
