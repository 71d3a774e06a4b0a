"""The facts about one TableLayout that its next step is decided from, as values."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from enum import StrEnum

from reconciler.api.conditions import Reason
from reconciler.kube.names import RECOMMENDATION
from reconciler.plan.budget import Charge

Rests = tuple[Reason, str]
"""Reason and message of Converged for a table with nothing to do."""


NOTHING_TO_DO: Rests = (Reason.NOTHING_TO_DO, "nothing above threshold")


class Phase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DROPPED = "Dropped"


OPEN = frozenset({Phase.PENDING, Phase.RUNNING})


@dataclass(frozen=True, slots=True)
class Record:
    """status.job. Written before the Job is created; uid is "" until the Job was seen.

    digest: of the plan document. rewrite_bytes, cpu_seconds: what it reserves of the budgets.
    written: time of the write-ahead.
    """

    name: str
    uid: str
    plan_id: str
    digest: str
    attempt: int
    phase: Phase
    written: dt.datetime
    rewrite_bytes: int
    cpu_seconds: int

    @property
    def unsettled(self) -> bool:
        return self.phase in OPEN

    @property
    def recommends(self) -> bool:
        """Whether its job makes a recommendation; plan_id and digest are then of its inputs."""
        return self.plan_id.startswith(RECOMMENDATION)


@dataclass(frozen=True, slots=True)
class JobSeen:
    """A Job with the layout's label, as the API server lists it.

    created: creation time. trouble: why its pod does not start, "" if unknown. pods: number of its
    pods. refused: the trouble is its image or its configuration. catalog: version of the catalog
    that it was made from, "" if unknown.
    """

    name: str
    uid: str
    owner_uid: str
    plan_id: str
    digest: str
    attempt: int
    phase: Phase
    created: dt.datetime
    deleting: bool = False
    trouble: str = ""
    pods: int = 1
    refused: bool = False
    catalog: str = ""

    @property
    def lives(self) -> bool:
        return self.deleting or self.phase in OPEN

    @property
    def recommends(self) -> bool:
        return self.plan_id.startswith(RECOMMENDATION)


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod with the layout's label. ended: its containers have ended and will not restart."""

    name: str
    ended: bool


@dataclass(frozen=True, slots=True)
class ProposalState:
    """The parts of a proposal and of the gate's answer that decisions need.

    pending: charges of the remaining actions, in plan order; admitted: how many may start now.
    reason, message: the gate's refusal, "" if it admits. reopens: when that may change.
    rests_on_workload: an admitted action depends on the recorded queries. rests: what a table
    without work reports. saving_per_byte: predicted saving per byte rewritten, for the order
    between tables. cut_short: (id, digest) of a plan with an open attempt whose driver is gone.
    conflicting: it contains work of a class that other writers won last (plan.conflicts).
    """

    plan_id: str
    digest: str
    pending: tuple[Charge, ...]
    admitted: int
    reason: str = ""
    message: str = ""
    reopens: dt.datetime | None = None
    rests_on_workload: bool = False
    rests: Rests = NOTHING_TO_DO
    saving_per_byte: float = 0.0
    cut_short: tuple[str, str] | None = None
    conflicting: bool = True


@dataclass(frozen=True, slots=True)
class Trouble:
    """The present effect of past failures. stall: a reason of Stalled, "" if none; until: back-off.

    memory_factor: factor of the next attempt's memory. conflict: they were conflicts, which do not
    concern a plan without work of that class.
    """

    stall: str = ""
    message: str = ""
    until: dt.datetime | None = None
    memory_factor: float = 1.0
    conflict: bool = False


@dataclass(frozen=True, slots=True)
class LayoutInput:
    """All facts that a decision uses, gathered once.

    jobs, pods: from the API server, None if it could not list them. leading: the Lease is held.
    deleting: since when the object is being deleted. suspended: by whom, "" if not.
    invalid: (reason, message) of what must be corrected first. catalog_down: why, "" if it is
    reachable.
    unreachable: (reason, message) of a catalog that must be corrected first; it is also in invalid.
    owner: who else claims the table. stop: (reason, message) why a running job may not continue
    (its policy changed, a window closed). known_plans: digest by plan id, of our plans.
    workload_stale: why evidence of queries must not be used now. due: the next regular look.
    catalog_version: of the present catalog, "" if it is not usable. recommendation: id of the
    recommendation that is due, "" if none is.
    """

    now: dt.datetime
    leading: bool
    uid: str
    jobs: tuple[JobSeen, ...] | None
    pods: tuple[PodSeen, ...] | None
    due: dt.datetime
    record: Record | None = None
    deleting: dt.datetime | None = None
    suspended: str = ""
    invalid: tuple[str, str] | None = None
    catalog_down: str = ""
    unreachable: tuple[str, str] | None = None
    owner: str = ""
    stop: tuple[str, str] | None = None
    known_plans: dict[str, str] = field(default_factory=dict)
    workload_stale: str = ""
    trouble: Trouble = Trouble()
    catalog_version: str = ""
    proposal: ProposalState | None = None
    recommendation: str = ""

    @property
    def jobs_or_pods_live(self) -> bool:
        """Whether a job or a pod of the table lives, or the server did not list them."""
        if self.jobs is None or self.pods is None:
            return True
        return any(job.lives for job in self.jobs) or any(not pod.ended for pod in self.pods)
