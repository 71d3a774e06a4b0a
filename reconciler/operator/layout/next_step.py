"""Decides the next step of one TableLayout from one frozen input.

The chain below is evaluated twice per reconcile: once about live jobs, pods and write-aheads, and,
if the answer is `Propose`, again with the proposal. The first checks prevent a second job on a
table; then come the reasons of Converged in the API's order. Pure: `gathering` has
the input, and `reconcile` carries the decision out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reconciler.api.conditions import Reason
from reconciler.operator.layout.attempts import new_job, reserved_for
from reconciler.operator.layout.facts import LayoutInput
from reconciler.operator.layout.job_checks import (
    SOON,
    deletion_is_overdue,
    job_has_ended,
    job_is_foreign,
    job_is_not_recorded,
    job_is_still_running,
    job_must_stop,
    job_was_never_created,
    jobs_are_not_listed,
    recommend_job_of,
    second_job_runs,
)
from reconciler.operator.layout.steps import (
    Decision,
    Launch,
    Recommend,
    Wait,
)
from reconciler.operator.layout.table_checks import (
    attempt_was_cut_short,
    catalog_is_down,
    conflicts_repeat,
    documents_are_invalid,
    gate_refuses,
    layout_is_being_deleted,
    nothing_is_admitted,
    nothing_is_pending,
    policy_is_suspended,
    table_backs_off,
    table_is_claimed_elsewhere,
    table_is_not_planned,
    table_is_paused,
    table_is_stalled,
    workload_is_stale,
)

RECOMMEND_CPU_SECONDS = 600
"""What a recommend job reserves of CPU budgets; it ends when it has used so much."""

RECOMMENDS_BESIDE = frozenset(
    {
        Reason.NOTHING_TO_DO,
        Reason.CATALOG_POLICY,
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
    if isinstance(decision, Launch) and (beside := recommend_job_of(given)) is not None:
        text = f"waits for Job {beside.name}, which makes a recommendation"
        return Wait(min(given.due, given.now + 3 * SOON), Reason.TABLES_PENDING, text)
    return decision


def _recommend(given: LayoutInput, rests: Wait) -> Recommend | None:
    """Return the recommend job that is due, if the table has no job and nothing to settle.

    A cut-short attempt comes first: what settles it looks at the record of the failed job.
    """
    free = not given.jobs_or_pods_live and given.unsettled is None
    open_attempt = given.proposal is None or given.cut_short is not None
    if not given.recommendation or not free or open_attempt:
        return None
    if rests.reason not in RECOMMENDS_BESIDE:
        return None
    run_id = given.recommendation
    return Recommend(new_job(given, run_id, run_id, 0, RECOMMEND_CPU_SECONDS), rests)


def another_operator_leads(given: LayoutInput) -> Decision | None:
    if given.leading:
        return None
    return Wait(given.now + SOON, "", "another operator holds the lease")


def _start(given: LayoutInput) -> Launch:
    proposal = given.proposal
    assert proposal is not None  # table_is_not_planned answers without one
    admitted = proposal.charges[: given.gate.count]
    return Launch(
        new_job(given, proposal.plan_id, proposal.digest, *reserved_for(admitted)),
        actions=len(admitted),
        saving_per_byte=proposal.saving_per_byte,
        memory_factor=given.trouble.memory_factor,
    )


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
    table_is_paused,
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
