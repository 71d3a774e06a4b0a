"""The next attempt at a plan: its number, and the record of its job with what that reserves."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reconciler.kube.names import job_name
from reconciler.operator.job_record import JobRecord, Phase
from reconciler.operator.layout.facts import JobSeen, LayoutInput
from reconciler.plan.budget import Charge


def new_job(
    given: LayoutInput, plan_id: str, digest: str, rewrite_bytes: int, cpu_seconds: int
) -> JobRecord:
    """Return the record of the next attempt at a plan, with what it reserves."""
    attempt = next_attempt(given, plan_id)
    return JobRecord(
        name=job_name(given.name, plan_id, attempt),
        uid="",
        plan_id=plan_id,
        digest=digest,
        attempt=attempt,
        phase=Phase.PENDING,
        written=given.now.replace(microsecond=0),
        rewrite_bytes=rewrite_bytes,
        cpu_seconds=cpu_seconds,
    )


def adopted(job: JobSeen, rewrite_bytes: int, cpu_seconds: int) -> JobRecord:
    """Return the record of a live Job of ours that status.job does not have."""
    return JobRecord(
        name=job.name,
        uid=job.uid,
        plan_id=job.plan_id,
        digest=job.digest,
        attempt=job.attempt,
        phase=job.phase,
        written=job.created,
        rewrite_bytes=rewrite_bytes,
        cpu_seconds=cpu_seconds,
    )


def next_attempt(given: LayoutInput, plan_id: str) -> int:
    """Return one more than any attempt at the plan that is recorded or still listed."""
    used = [job.attempt for job in given.jobs or () if job.plan_id == plan_id]
    if given.record is not None and given.record.plan_id == plan_id:
        used.append(given.record.attempt)
    return max(used, default=0) + 1


def reserved_for(charges: Sequence[Charge]) -> tuple[int, int]:
    """Return the bytes and the CPU seconds that a job with these charges reserves: whole seconds,
    rounded up, so that a reservation is never too small."""
    size = sum(charge.rewrite_bytes for charge in charges)
    return size, math.ceil(sum(charge.cpu_seconds for charge in charges))
