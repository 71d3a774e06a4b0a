"""Work that waits for a slot, and by what it is ordered."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace

from reconciler.api.conditions import Reason
from reconciler.operator.job_record import JobRecord
from reconciler.operator.launch.admission import FULL, REFUSED, RETRY
from reconciler.operator.layout.steps import Launch, Recommend, Wait
from reconciler.operator.spending.shares import Limits, PolicyNamespaces, Slots, refusal

LEAST_SAVING = 0.01
"""Least saving per byte of work, such as declared work and files that are put back, so that its
priority grows like any other's; a hundredth of it for a recommendation, which comes after all
work."""


@dataclass(frozen=True, slots=True)
class Queued:
    """Work that a table could start, and how long it has waited."""

    work: Launch | Recommend
    """The work."""
    since: dt.datetime
    """Since when it is offered."""
    policy: str
    """Key of the table's policy."""
    limit: int
    """How many jobs the policy runs at once."""
    refused: Wait | None = None
    """Why a budget or the cap refused it."""
    among: frozenset[str] = frozenset()
    """The jobs that ran then."""


@dataclass(frozen=True)
class Running:
    """What runs at one moment."""

    jobs: frozenset[str]
    """Names of the jobs that are not settled."""
    by_policy: Mapping[str, int]
    """Number of them by the key of their policy."""
    slots: Slots
    """Which of the operator's slots are taken."""
    sharing: PolicyNamespaces
    """Which namespaces share the slots."""


def still_refused(
    offer: Queued, namespace: str, running: Running, limits: Limits, now: dt.datetime
) -> Wait | None:
    """Return the refusal that still applies: the limits on jobs at once, or a recent answer."""
    later = now + RETRY
    if running.by_policy.get(offer.policy, 0) >= offer.limit:
        return Wait(later, Reason.CONCURRENCY_LIMIT, FULL)
    refused = offer.refused
    # Not longer than intended: a clock may have been set back since.
    fresh = refused is not None and now < refused.until <= now + REFUSED
    if fresh and offer.among == running.jobs:
        return refused
    full = refusal(limits, running.slots, namespace, running.sharing)
    return Wait(later, Reason.CONCURRENCY_LIMIT, full) if full else None


def reserves_the_same(one: JobRecord, other: JobRecord) -> bool:
    """Whether a refusal of one is one of the other: they may differ in the time of the decision."""
    return replace(one, written=other.written) == other


def saving_of(work: Launch | Recommend) -> float:
    """Return the saving per byte by which work is ordered, which is never 0."""
    if isinstance(work, Recommend):
        return LEAST_SAVING / 100
    return max(work.saving_per_byte, LEAST_SAVING)
