"""How namespaces share the operator's slots and its cap, so that none of them starves.

Pure. Four rules, of which each has a number that an administrator can set:

1. A free slot goes to the waiting namespace that has the fewest jobs; of those without a job, to
   the one that has waited longest; of other equals, to the one that was served longest ago.
2. A part of the slots (`kept share`, at least one of several) is only for namespaces without a job,
   as long as there are such namespaces with a policy. So a newcomer starts at once.
3. A namespace without a job that has waited for a whole `turn` gets the slot of another: the job
   that started last, of the namespace with the most jobs, stops at its next commit boundary. It
   continues later. A job is not stopped before it has had a turn itself.
4. The same part of the cap is divided equally among all namespaces with a policy, and one that may
   come. What a namespace has not used of its part, no other may use.

So with n namespaces and S slots, n at most S, a namespace with work starts a job within one turn
and the time that a job takes to stop (at most 10 min), whatever the others do; with more namespaces
within as many turns as n / S rounded up.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reconciler.operator.index import ObjectName
from reconciler.operator.spending.charges import AdmittedJob, Book
from reconciler.operator.status_text import short_bytes
from reconciler.plan.budget import Budget, Spent

CAP = "cluster"
CAP_SECONDS = 86_400
CAP_TITLE = "the operator's cap on 24 h"


@dataclass(frozen=True, slots=True)
class Limits:
    """What all namespaces share."""

    slots: int
    """Most jobs at once."""
    cap_bytes: int
    """Most bytes that are rewritten in 24 h."""
    kept_share: float
    """The part of both that is kept for namespaces that have less than the others, 0 to 1."""
    turn: dt.timedelta
    """How long a job runs at least before it gives way to a namespace without one."""

    @property
    def kept_slots(self) -> int:
        """Slots that only namespaces without a job may take."""
        if not self.kept_share or self.slots < 2:
            return 0
        return min(self.slots - 1, max(1, int(self.slots * self.kept_share)))


@dataclass(frozen=True, slots=True)
class PolicyNamespaces:
    """The namespaces that share the operator's slots and its cap."""

    namespaces: frozenset[str]
    """Namespaces with a policy."""
    more: bool
    """Whether others are watched, which may get a policy at any time."""


@dataclass(frozen=True, slots=True)
class Slots:
    """Which slots are taken now."""

    taken: int
    """Number of slots that jobs take."""
    jobs: Mapping[str, int]
    """Jobs by namespace."""


def slots(book: Book, others: Iterable[ObjectName], now: dt.datetime) -> Slots:
    """Return the slots that are taken. others: Jobs that count although the book has
    none of them, because it was lost."""
    jobs = dict(book.jobs())
    lapsed = sum(job.lapsed(now) for job in book.admitted.values())
    for namespace, job in set(others):
        if (namespace, job) not in book.admitted:
            jobs[namespace] = jobs.get(namespace, 0) + 1
    return Slots(sum(jobs.values()) - lapsed, jobs)


def refusal(limits: Limits, found: Slots, namespace: str, known: PolicyNamespaces) -> str:
    """Return why a namespace may not start a job now, "" if it may."""
    free = limits.slots - found.taken
    if free <= 0:
        mine = found.jobs.get(namespace, 0)
        return (
            f"the operator runs {found.taken} jobs, as many as its limit allows; "
            f"{mine} of them in this namespace"
        )
    if not found.jobs.get(namespace):
        return ""
    others = known.namespaces - {namespace}
    without = sum(1 for other in others if not found.jobs.get(other))
    kept = min(limits.kept_slots, without)
    if free > kept:
        return ""
    return (
        f"this namespace runs {found.jobs[namespace]} jobs; the free slot is kept for "
        "namespaces without a job"
    )


def precedence(
    namespace: str,
    jobs: Mapping[str, int],
    starving: Mapping[str, dt.datetime],
    served: Mapping[str, int],
    now: dt.datetime,
) -> tuple[int, dt.datetime, int]:
    """Return the place of a namespace in the order in which free slots are given, smallest first.

    served: number of the launch in which each namespace was last served.
    """
    return jobs.get(namespace, 0), starving.get(namespace, now), served.get(namespace, 0)


def victims(
    limits: Limits, book: Book, starving: Mapping[str, dt.datetime], now: dt.datetime
) -> list[AdmittedJob]:
    """Return the jobs that give up their slots.

    starving: namespaces without a job whose work waits only for a slot, and since when.
    """
    claims = sum(1 for since in starving.values() if now - since >= limits.turn)
    stopping = sum(job.stopping is not None and not job.lapsed(now)
                   for job in book.admitted.values())  # fmt: skip
    jobs = dict(book.jobs())
    running = [job for job in book.admitted.values() if job.stopping is None]
    found: list[AdmittedJob] = []
    for _ in range(claims - stopping):
        ready = [job for job in running if now - job.since >= limits.turn]
        if not ready:
            break
        chosen = max(ready, key=lambda job: (jobs[job.namespace], job.since, job.key))
        running.remove(chosen)
        jobs[chosen.namespace] -= 1
        found.append(chosen)
    return found


def cap_of(
    limits: Limits, spent: Mapping[str, Sequence[Spent]], namespace: str,
    size: int, known: PolicyNamespaces, now: dt.datetime,
) -> Budget:  # fmt: skip
    """Return the cap as it applies to one namespace's next job of so many bytes."""
    everyone = {*known.namespaces, namespace}
    part = int(limits.cap_bytes * limits.kept_share) // (len(everyone) + known.more)
    used = {name: _used(spent.get(name, ()), now) for name in everyone}
    kept = sum(max(0, part - used[name]) for name in everyone if name != namespace)
    kept += part * known.more
    if used[namespace] + size <= part:
        kept = 0  # from its own part
    title = CAP_TITLE
    if kept:
        title += f", less {short_bytes(kept)} that are kept for other namespaces,"
    return Budget(
        CAP, per_seconds=CAP_SECONDS, title=title,
        max_rewrite_bytes=max(0, limits.cap_bytes - kept),
    )  # fmt: skip


def _used(charges: Sequence[Spent], now: dt.datetime) -> int:
    since = now - dt.timedelta(seconds=CAP_SECONDS)
    return sum(item.rewrite_bytes for item in charges if item.at > since)
