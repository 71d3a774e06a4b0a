"""Why a table without a live job waits, stalls or is planned: the reasons of Converged; pure."""

from __future__ import annotations

import datetime as dt

from reconciler.api.conditions import Reason
from reconciler.operator.layout.attempts import new_job
from reconciler.operator.layout.facts import LayoutInput
from reconciler.operator.layout.steps import (
    Decision,
    Launch,
    Propose,
    Retire,
    Stall,
    Wait,
)

LONGEST_BACK_OFF = dt.timedelta(hours=1)


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


def table_is_paused(given: LayoutInput) -> Decision | None:
    return Wait(given.due, Reason.PAUSED, given.paused) if given.paused else None


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
    closed = given.stop is not None and given.stop.reason == Reason.OUTSIDE_WINDOW
    wait = _backing_off(given)
    if wait is not None:
        return None if proposal.pending else wait
    if closed:
        return None
    return Launch(new_job(given, left.plan_id, left.digest, 0, 0), 0, 0.0)


def gate_refuses(given: LayoutInput) -> Decision | None:
    """Check approval, windows and budgets, only while something is pending."""
    answer = given.gate
    if not has_pending(given) or not answer.reason or answer.count:
        return None
    until = min(given.due, given.reopens) if given.reopens else given.due
    return Wait(until, answer.reason, answer.message)


def table_backs_off(given: LayoutInput) -> Decision | None:
    return _backing_off(given) if has_pending(given) else None


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


def has_pending(given: LayoutInput) -> bool:
    return given.proposal is not None and bool(given.proposal.pending)
