"""Decides the next step of one TableLayout from one frozen input.

The chain below is evaluated twice per reconcile: once about live jobs, pods and write-aheads, and,
if the answer is `Propose`, again with the proposal. The first checks prevent a second job on a
table; then come the reasons of Converged in the API's order. Pure: the reconciler in `layout`
gathers the input and carries the decision out.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence

from reconciler.api.conditions import Reason
from reconciler.kube.names import job_name
from reconciler.operator.layout.facts import JobSeen, LayoutInput
from reconciler.operator.layout.job_record import JobRecord, Phase
from reconciler.operator.layout.steps import (
    Adopt,
    CreateAgain,
    Decision,
    DropReservation,
    Launch,
    Propose,
    Recommend,
    Retire,
    Settle,
    Stall,
    StopJob,
    Wait,
)

FINALIZER_BOUND = dt.timedelta(minutes=10)
"""Maximum time that a deleted TableLayout waits for its job."""

START_DEADLINE = dt.timedelta(minutes=10)
"""A job whose pod has not started within this time is stopped, and counts as a failure to start."""

WRITE_AHEAD_BOUND = dt.timedelta(minutes=10)
"""A write-ahead older than this may have had a job: the table is observed."""

REFUSED_DEADLINE = dt.timedelta(minutes=1)
"""Likewise for a pod whose image or configuration is refused: a registry may recover."""

LONGEST_BACK_OFF = dt.timedelta(hours=1)
SOON = dt.timedelta(seconds=10)
CATALOG_CHANGED = "CatalogChanged"
"""Reason for stopping a job that cannot start: a change of its catalog may have corrected it."""
POD_PATIENCE = dt.timedelta(seconds=20)
"""Time in which the Job controller creates a pod, unless it may not."""


RECOMMEND_CPU_SECONDS = 600
"""What a recommend job reserves of CPU budgets; it ends when it has used so much."""

RECOMMENDS_BESIDE = frozenset(
    {
        Reason.NOTHING_TO_DO,
        Reason.OBJECTIVE_UNREACHABLE,
        Reason.AWAITING_APPROVAL,
        Reason.OVER_BUDGET,
        Reason.TABLES_PENDING,
        Reason.BACK_OFF,
    }
)
"""Reasons of a table without work that may start, in which a recommend job may run."""


def next_step(given: LayoutInput) -> Decision:
    """Return the first answer of the chain; a recommendation where it starts nothing."""
    answers = (check(given) for check in CHECKS)
    decision = next((answer for answer in answers if answer is not None), None) or _start(given)
    if isinstance(decision, Wait):
        return _recommend(given, decision) or decision
    if isinstance(decision, Launch) and (beside := _recommending(given)) is not None:
        text = f"waits for Job {beside.name}, which makes a recommendation"
        return Wait(min(given.due, given.now + 3 * SOON), Reason.TABLES_PENDING, text)
    return decision


def _recommend(given: LayoutInput, rests: Wait) -> Recommend | None:
    """Return the recommend job that is due, if the table has no job and nothing to settle.

    A cut-short attempt comes first: what settles it looks at the record of the failed job.
    """
    proposal, record = given.proposal, given.record
    free = not given.jobs_or_pods_live and (record is None or not record.unsettled)
    open_attempt = proposal is None or given.cut_short is not None
    if not given.recommendation or not free or open_attempt:
        return None
    if rests.reason not in RECOMMENDS_BESIDE:
        return None
    run_id = given.recommendation
    return Recommend(_new_job(given, run_id, run_id, 0, RECOMMEND_CPU_SECONDS), rests)


def _recommending(given: LayoutInput) -> JobSeen | None:
    """Return the live recommend job beside which the table is judged as without one."""
    living = _living(given)
    if given.deleting is not None or not living or not living[0].recommends:
        return None
    return None if living[0].deleting else living[0]


def another_operator_leads(given: LayoutInput) -> Decision | None:
    if given.leading:
        return None
    return Wait(given.now + SOON, "", "another operator holds the lease")


def deletion_is_overdue(given: LayoutInput) -> Decision | None:
    if given.deleting is None or given.now - given.deleting < FINALIZER_BOUND:
        return None
    return Retire()


def jobs_are_not_listed(given: LayoutInput) -> Decision | None:
    if given.jobs is not None and given.pods is not None:
        return None
    return Wait(given.now + SOON, Reason.BACK_OFF, "the API server did not list the table's jobs")


def job_is_foreign(given: LayoutInput) -> Decision | None:
    for job in _living(given):
        if job.owner_uid != given.uid:
            return Stall(
                Reason.FOREIGN_JOB,
                f"Job {job.name} carries this table's label and belongs to another object",
            )
        if not _is_of_record(job, given.record) and not _is_known(job, given):
            return Stall(
                Reason.FOREIGN_JOB, f"Job {job.name} runs a plan that is not one of this table's"
            )
    return None


def second_job_runs(given: LayoutInput) -> Decision | None:
    """Stop a second job: of several the recorded one stays; without a record, the oldest."""
    living = [job for job in _living(given) if not job.deleting]
    if not living:
        return None
    recorded = [job for job in living if _is_of_record(job, given.record)]
    keep = recorded[0] if recorded else min(living, key=lambda job: (job.created, job.name))
    for job in living:
        if job is not keep:
            return StopJob(job, Reason.FOREIGN_JOB, f"Job {keep.name} runs on this table already")
    return None


def job_must_stop(given: LayoutInput) -> Decision | None:
    running = [job for job in _living(given) if not job.deleting]
    if not running:
        return None
    job = running[0]
    if given.deleting is not None:
        return StopJob(job, "Deleted", "the TableLayout is being deleted")
    if given.suspended:
        return StopJob(job, Reason.SUSPENDED, given.suspended)
    if given.stop is not None:
        return StopJob(job, *given.stop)
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
    for job in _living(given):
        record = given.record
        named = record is not None and record.unsettled and record.name == job.name
        if not named or (record is not None and (record.uid, record.phase) != (job.uid, job.phase)):
            return None if job.deleting and named and record and record.uid else Adopt(job)
    return None


def job_is_still_running(given: LayoutInput) -> Decision | None:
    if _recommending(given) is not None:
        return None
    jobs = _living(given)
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
    record = given.record
    if record is None or not record.unsettled or _recommending(given) is not None:
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
    record = given.record
    if record is None or not record.unsettled or _recommending(given) is not None:
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


def layout_is_being_deleted(given: LayoutInput) -> Decision | None:
    return None if given.deleting is None else Retire()


def documents_are_invalid(given: LayoutInput) -> Decision | None:
    return None if given.invalid is None else Stall(*given.invalid)


def policy_is_suspended(given: LayoutInput) -> Decision | None:
    return Wait(given.due, Reason.SUSPENDED, given.suspended) if given.suspended else None


def catalog_is_down(given: LayoutInput) -> Decision | None:
    if not given.catalog_down:
        return None
    return Wait(given.due, Reason.CATALOG_UNAVAILABLE, given.catalog_down)


def table_is_stalled(given: LayoutInput) -> Decision | None:
    return None if given.trouble.conflict else _stall(given)


def conflicts_repeat(given: LayoutInput) -> Stall | None:
    """Stall after conflicts in a row; work that did not conflict, such as the maintenance of delete
    files, goes on."""
    return None if _plan_has_no_conflicting_work(given) else _stall(given)


def _stall(given: LayoutInput) -> Stall | None:
    return Stall(given.trouble.stall, given.trouble.message) if given.trouble.stall else None


def _plan_has_no_conflicting_work(given: LayoutInput) -> bool:
    """Whether the failures were conflicts of work that the plan does not contain."""
    proposal = given.proposal
    return given.trouble.conflict and proposal is not None and not proposal.conflicting


def table_is_claimed_elsewhere(given: LayoutInput) -> Decision | None:
    if not given.owner:
        return None
    return Stall(Reason.OWNED_ELSEWHERE, f"the table is claimed by {given.owner}")


def table_is_not_planned(given: LayoutInput) -> Decision | None:
    return Propose() if given.proposal is None else None


def attempt_was_cut_short(given: LayoutInput) -> Decision | None:
    """Settle what a dead driver left: an open attempt and its files.

    The next job settles them before its own work; if none may start, one more attempt at the same
    plan does only that.
    """
    proposal = given.proposal
    left = given.cut_short
    if proposal is None or left is None:
        return None
    if given.gate.count and workload_is_stale(given) is None:
        return None
    closed = given.stop is not None and given.stop[0] == Reason.OUTSIDE_WINDOW
    wait = _backing_off(given)
    if wait is not None:
        return None if proposal.pending else wait
    if closed:
        return None
    return Launch(_new_job(given, left.plan_id, left.digest, 0, 0), 0, 0.0)


def gate_refuses(given: LayoutInput) -> Decision | None:
    """Check approval, windows and budgets, only while something is pending."""
    answer = given.gate
    if not _has_pending(given) or not answer.reason or answer.count:
        return None
    until = min(given.due, given.reopens) if given.reopens else given.due
    return Wait(until, answer.reason, answer.message)


def table_backs_off(given: LayoutInput) -> Decision | None:
    return _backing_off(given) if _has_pending(given) else None


def _backing_off(given: LayoutInput) -> Wait | None:
    until = given.trouble.until
    if _plan_has_no_conflicting_work(given):
        return None
    if until is None or not given.now < until <= given.now + LONGEST_BACK_OFF:
        return None  # a later one was set before the clock was set back
    return Wait(until, Reason.BACK_OFF, given.trouble.message)


def workload_is_stale(given: LayoutInput) -> Decision | None:
    proposal = given.proposal
    if not given.workload_stale or proposal is None or not proposal.rests_on_workload:
        return None
    return (
        Wait(given.due, Reason.TABLES_PENDING, given.workload_stale) if proposal.pending else None
    )


def nothing_is_pending(given: LayoutInput) -> Decision | None:
    proposal = given.proposal
    if proposal is None or proposal.pending:
        return None
    return Wait(given.due, *proposal.rests)


def nothing_is_admitted(given: LayoutInput) -> Decision | None:
    proposal = given.proposal
    if proposal is None or given.gate.count > 0:
        return None
    return Wait(given.due, Reason.TABLES_PENDING, "nothing is admitted now")


def _start(given: LayoutInput) -> Launch:
    proposal = given.proposal
    assert proposal is not None  # table_is_not_planned answers without one
    admitted = proposal.charges[: given.gate.count]
    size = sum(charge.rewrite_bytes for charge in admitted)
    seconds = whole_seconds(sum(charge.cpu_seconds for charge in admitted))
    return Launch(
        _new_job(given, proposal.plan_id, proposal.digest, size, seconds),
        actions=len(admitted),
        saving_per_byte=proposal.saving_per_byte,
        memory_factor=given.trouble.memory_factor,
    )


def _new_job(
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


def next_attempt(given: LayoutInput, plan_id: str) -> int:
    """Return one more than any attempt at the plan that is recorded or still listed."""
    used = [job.attempt for job in given.jobs or () if job.plan_id == plan_id]
    if given.record is not None and given.record.plan_id == plan_id:
        used.append(given.record.attempt)
    return max(used, default=0) + 1


def whole_seconds(seconds: float) -> int:
    """Round up, so that a reservation is never too small."""
    return int(seconds) + (seconds > int(seconds))


def _living(given: LayoutInput) -> tuple[JobSeen, ...]:
    return tuple(job for job in given.jobs or () if job.lives)


def _is_of_record(job: JobSeen, record: JobRecord | None) -> bool:
    return (
        record is not None
        and record.unsettled
        and (job.name, job.plan_id, job.digest) == (record.name, record.plan_id, record.digest)
        and record.uid in ("", job.uid)
    )


def _is_known(job: JobSeen, given: LayoutInput) -> bool:
    return given.known_plans.get(job.plan_id) == job.digest


def _has_pending(given: LayoutInput) -> bool:
    return given.proposal is not None and bool(given.proposal.pending)


CHECKS: Sequence[Callable[[LayoutInput], Decision | None]] = (
    another_operator_leads,
    deletion_is_overdue,
    jobs_are_not_listed,
    job_is_foreign,
    second_job_runs,
    job_must_stop,
    job_is_not_recorded,
    job_is_still_running,
    job_has_ended,
    job_was_never_created,
    layout_is_being_deleted,
    documents_are_invalid,
    policy_is_suspended,
    catalog_is_down,
    table_is_claimed_elsewhere,
    table_is_stalled,
    table_is_not_planned,
    conflicts_repeat,
    attempt_was_cut_short,
    gate_refuses,
    table_backs_off,
    workload_is_stale,
    nothing_is_pending,
    nothing_is_admitted,
)
"""Live jobs and unsettled work first; then the reasons of Converged in the API's order."""
