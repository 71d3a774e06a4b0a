"""What is done about live jobs, and about write-aheads whose job ended or never was; pure."""

from __future__ import annotations

import datetime as dt

from reconciler.api.conditions import Reason
from reconciler.operator.job_record import JobRecord, Phase
from reconciler.operator.layout.facts import JobSeen, LayoutInput
from reconciler.operator.layout.steps import (
    Adopt,
    CreateAgain,
    Decision,
    DropReservation,
    Propose,
    Retire,
    Settle,
    Stall,
    StopJob,
    Wait,
)
from reconciler.operator.layout.table_checks import conflicts_repeat

FINALIZER_BOUND = dt.timedelta(minutes=10)
"""Maximum time that a deleted TableLayout waits for its job."""

START_DEADLINE = dt.timedelta(minutes=10)
"""A job whose pod has not started within this time is stopped, and counts as a failure to start."""

WRITE_AHEAD_BOUND = dt.timedelta(minutes=10)
"""A write-ahead older than this may have had a job: the table is observed."""

REFUSED_DEADLINE = dt.timedelta(minutes=1)
"""The same for a pod whose image or configuration is refused: a registry may recover."""

SOON = dt.timedelta(seconds=10)

CATALOG_CHANGED = "CatalogChanged"
"""Reason for stopping a job that cannot start: a change of its catalog may have corrected it."""

POD_PATIENCE = dt.timedelta(seconds=20)
"""Time in which the Job controller creates a pod, unless it may not."""


def recommend_job_of(given: LayoutInput) -> JobSeen | None:
    """Return the live recommend job beside which the table is judged as without one."""
    living = living_jobs(given)
    if given.deleting is not None or not living or not living[0].recommends:
        return None
    return None if living[0].deleting else living[0]


def deletion_is_overdue(given: LayoutInput) -> Decision | None:
    if given.deleting is None or given.now - given.deleting < FINALIZER_BOUND:
        return None
    return Retire()


def jobs_are_not_listed(given: LayoutInput) -> Decision | None:
    if given.jobs is not None and given.pods is not None:
        return None
    return Wait(given.now + SOON, Reason.BACK_OFF, "the API server did not list the table's jobs")


def job_is_foreign(given: LayoutInput) -> Decision | None:
    for job in living_jobs(given):
        if job.owner_uid != given.uid:
            return Stall(
                Reason.FOREIGN_JOB,
                f"Job {job.name} carries this table's label and belongs to another object",
            )
        if not _is_of_record(job, given.unsettled) and not _is_known(job, given):
            return Stall(
                Reason.FOREIGN_JOB, f"Job {job.name} runs a plan that is not one of this table's"
            )
    return None


def second_job_runs(given: LayoutInput) -> Decision | None:
    """Stop a second job: of several the recorded one stays; without a record, the oldest."""
    living = [job for job in living_jobs(given) if not job.deleting]
    if not living:
        return None
    recorded = [job for job in living if _is_of_record(job, given.unsettled)]
    keep = recorded[0] if recorded else min(living, key=lambda job: (job.created, job.name))
    for job in living:
        if job is not keep:
            return StopJob(job, Reason.FOREIGN_JOB, f"Job {keep.name} runs on this table already")
    return None


def job_must_stop(given: LayoutInput) -> Decision | None:
    running = [job for job in living_jobs(given) if not job.deleting]
    if not running:
        return None
    job = running[0]
    if given.deleting is not None:
        return StopJob(job, "Deleted", "the TableLayout is being deleted")
    if given.suspended:
        return StopJob(job, Reason.SUSPENDED, given.suspended)
    if given.stop is not None:
        return StopJob(job, *given.stop)
    record = given.unsettled
    if record is not None and record.stopped and _is_of_record(job, record):
        return StopJob(job, record.stopped, "its stop was begun earlier")
    return job_does_not_start(job, given) if job.phase is Phase.PENDING else None


def job_does_not_start(job: JobSeen, given: LayoutInput) -> StopJob | None:
    """Stop a job that cannot start, to free its slot; after a change of its catalog, at once."""
    if job.refused and job.catalog and given.catalog_version not in ("", job.catalog):
        return StopJob(job, CATALOG_CHANGED, f"{job.trouble}; its catalog has changed since")
    deadline = REFUSED_DEADLINE if job.refused else START_DEADLINE
    if given.now - job.created <= deadline:
        return None
    why = _trouble(job, given.now) or "no pod of it was started"
    return StopJob(job, Reason.JOB_NOT_STARTED, f"Job {job.name} did not start: {why}")


def job_is_not_recorded(given: LayoutInput) -> Decision | None:
    for job in living_jobs(given):
        record = given.unsettled
        if record is None or record.name != job.name:
            return Adopt(job)
        if (record.uid, record.phase) != (job.uid, job.phase):
            return None if job.deleting and record.uid else Adopt(job)
    return None


def job_is_still_running(given: LayoutInput) -> Decision | None:
    if recommend_job_of(given) is not None:
        return None
    jobs = living_jobs(given)
    pods = [pod for pod in given.pods or () if not pod.ended]
    if not jobs and not pods:
        return None
    reason = Reason.SUSPENDED if given.suspended else Reason.REWRITE_RUNNING
    if jobs and (trouble := _trouble(jobs[0], given.now)):
        reason = reason if given.suspended else Reason.JOB_NOT_STARTED
        message = f"Job {jobs[0].name} waits: {trouble}"
    elif jobs:
        message = f"Job {jobs[0].name} {'is stopping' if jobs[0].deleting else 'runs'}"
    else:
        message = f"pod {pods[0].name} has not ended"
    if given.catalog_down and not given.suspended:
        reason, message = Reason.CATALOG_UNAVAILABLE, f"{given.catalog_down}; {message}"
    return Wait(min(given.due, given.now + 3 * SOON, _bound(given)), reason, message)


def _bound(given: LayoutInput) -> dt.datetime:
    """Return when a deletion no longer waits for a job that does not end."""
    return given.due if given.deleting is None else given.deleting + FINALIZER_BOUND


def _trouble(job: JobSeen, now: dt.datetime) -> str:
    """Return why no driver runs yet, "" if one does or it is too early to judge."""
    if job.trouble or job.pods or job.phase is not Phase.PENDING:
        return job.trouble
    if now - job.created < POD_PATIENCE:
        return ""
    return f"it has no pod; kubectl describe job {job.name} shows why, for example a quota"


def job_has_ended(given: LayoutInput) -> Decision | None:
    """Settle an open record whose Job ended, or was seen once and is gone."""
    record = given.unsettled
    if record is None or recommend_job_of(given) is not None:
        return None
    job = next((job for job in given.jobs or () if job.name == record.name), None)
    abandoned = job is None and not record.uid and given.now - record.written > WRITE_AHEAD_BOUND
    if job is None and not record.uid and not abandoned:
        return None
    if given.catalog_down and given.deleting is None:
        return Wait(given.now + 3 * SOON, Reason.CATALOG_UNAVAILABLE, given.catalog_down)
    if given.unreachable is not None and given.deleting is None:
        return Stall(*given.unreachable)
    return Settle(record, job)


def job_was_never_created(given: LayoutInput) -> Decision | None:
    """Handle an open record without a Job: create the Job now, or drop the record."""
    record = given.unsettled
    if record is None or recommend_job_of(given) is not None:
        return None
    refusal = _refusal(given)
    if refusal:
        return DropReservation(record, refusal)
    if given.catalog_down:
        return Wait(given.now + 3 * SOON, Reason.CATALOG_UNAVAILABLE, given.catalog_down)
    proposal = given.proposal
    if proposal is None:
        return Propose()
    looping = conflicts_repeat(given)
    if looping is not None:
        return DropReservation(record, looping.message)
    if record.recommends:
        due = given.recommendation == record.plan_id
        return CreateAgain(record) if due else DropReservation(record, "it is no longer due")
    if (proposal.plan_id, proposal.digest) != (record.plan_id, record.digest):
        return DropReservation(record, "another plan is current now")
    admitted = proposal.charges[: given.gate.count]
    too_little = sum(c.rewrite_bytes for c in admitted) < record.rewrite_bytes
    if given.gate.reason or not admitted or too_little:
        return DropReservation(
            record, given.gate.message or "the gate admits less than was reserved"
        )
    return CreateAgain(record, given.trouble.memory_factor)


def _refusal(given: LayoutInput) -> str:
    if given.deleting is not None:
        return "the TableLayout is being deleted"
    if given.suspended:
        return given.suspended
    for refused in (given.invalid, given.stop):
        if refused is not None:
            return refused[1]
    if given.trouble.stall and not given.trouble.conflict:
        return given.trouble.message
    return f"the table is claimed by {given.owner}" if given.owner else ""


def living_jobs(given: LayoutInput) -> tuple[JobSeen, ...]:
    return tuple(job for job in given.jobs or () if job.lives)


def _is_of_record(job: JobSeen, record: JobRecord | None) -> bool:
    return (
        record is not None
        and (job.name, job.plan_id, job.digest) == (record.name, record.plan_id, record.digest)
        and record.uid in ("", job.uid)
    )


def _is_known(job: JobSeen, given: LayoutInput) -> bool:
    return given.known_plans.get(job.plan_id) == job.digest
