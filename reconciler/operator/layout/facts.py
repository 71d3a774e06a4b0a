"""The facts about one TableLayout that its next step is decided from, as values."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

from reconciler.kube.names import RECOMMENDATION
from reconciler.operator.job_record import OPEN, JobRecord, Phase
from reconciler.operator.ports import CutShort
from reconciler.operator.proposal_summary import ProposalSummary
from reconciler.operator.stored import Refusal
from reconciler.plan.budget import Gate


@dataclass(frozen=True, slots=True)
class JobSeen:
    """A Job with the layout's label, as the API server lists it."""

    name: str
    """Name of the Job."""
    uid: str
    """UID of the Job."""
    owner_uid: str
    """UID of the TableLayout that owns it."""
    plan_id: str
    """The plan's id."""
    digest: str
    """"sha256:" and the hexadecimal hash of the plan's document."""
    attempt: int
    """Number of the attempt at the plan."""
    phase: Phase
    """Whether the Job is pending, runs or has ended, and how."""
    created: dt.datetime
    """When it was created."""
    deleting: bool = False
    """Whether it is being deleted."""
    trouble: str = ""
    """Why its pod does not start, "" if it does or if that is unknown."""
    pods: int = 1
    """Number of its pods."""
    refused: bool = False
    """Whether `trouble` is its image or its configuration."""
    catalog: str = ""
    """Version of the catalog that it was made from, "" if unknown."""

    @property
    def lives(self) -> bool:
        return self.deleting or self.phase in OPEN

    @property
    def recommends(self) -> bool:
        return self.plan_id.startswith(RECOMMENDATION)


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod with the layout's label."""

    name: str
    """Name of the pod."""
    ended: bool
    """Whether its containers have ended and will not restart."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """The present effect of past failures."""

    stall: str = ""
    """Reason of Stalled, "" if the table is not stalled."""
    message: str = ""
    """What went wrong."""
    until: dt.datetime | None = None
    """End of the back-off; None without one."""
    memory_factor: float = 1.0
    """Factor of the next attempt's memory."""
    conflict: bool = False
    """Whether the failures were conflicts, which do not concern a plan without work of that
    class."""


NOT_ASKED = Gate(0, "", "")
"""The answer of a gate that was not asked, since nothing is pending."""


@dataclass(frozen=True, slots=True)
class LayoutInput:
    """All facts that a decision uses, gathered once."""

    now: dt.datetime
    """Time of the decision."""
    leading: bool
    """Whether this process holds the Lease."""
    name: str
    """Name of the TableLayout."""
    uid: str
    """UID of the TableLayout."""
    jobs: tuple[JobSeen, ...] | None
    """Its Jobs by the API server; None if they could not be listed."""
    pods: tuple[PodSeen, ...] | None
    """Its pods by the API server; None if they could not be listed."""
    due: dt.datetime
    """Time of the next regular look."""
    record: JobRecord | None = None
    """status.job; None without one."""
    deleting: dt.datetime | None = None
    """Since when the object is being deleted; None if it is not."""
    suspended: str = ""
    """Which suspension applies, "" for none."""
    invalid: Refusal | None = None
    """What must be corrected first; None if nothing must."""
    catalog_down: str = ""
    """Why the catalog is not reachable, "" if it is."""
    unreachable: Refusal | None = None
    """What must be corrected in the catalog first, which is then also in `invalid`."""
    paused: str = ""
    """Why the table itself stops all work on it, "" if it does not."""
    owner: str = ""
    """Who else claims the table, "" if no one does."""
    stop: Refusal | None = None
    """Why a running job may not continue, such as a changed policy or a closed window; None if it
    may."""
    known_plans: dict[str, str] = field(default_factory=dict)
    """Digest of each of our plans, by its id."""
    workload_stale: str = ""
    """Why the recorded queries must not be used now, "" if they may."""
    trouble: Trouble = Trouble()
    """The present effect of past failures."""
    catalog_version: str = ""
    """Version of the present catalog, "" if it is not usable."""
    proposal: ProposalSummary | None = None
    """What would be done; None if the table was not planned."""
    gate: Gate = NOT_ASKED
    """The gate's answer to its pending actions."""
    reopens: dt.datetime | None = None
    """When the gate's refusal may end by itself; None if time does not end it."""
    cut_short: CutShort | None = None
    """The plan of an attempt that a dead driver left open; None without one."""
    recommendation: str = ""
    """Id of the recommendation that is due, "" if none is."""

    @property
    def unsettled(self) -> JobRecord | None:
        """The record, if its job is not settled."""
        return self.record if self.record is not None and self.record.unsettled else None

    @property
    def jobs_or_pods_live(self) -> bool:
        """Whether a job or a pod of the table lives, or the server did not list them."""
        if self.jobs is None or self.pods is None:
            return True
        return any(job.lives for job in self.jobs) or any(not pod.ended for pod in self.pods)
