"""Budgets and windows: how much work may start now, and which actions the gate admits.

A budget is either a rolling window (`per`) or a schedule (cron, time zone, duration) during which
its limits apply. All active budgets apply; an invalid one allows nothing. Spending is what the
ledger settled plus what live attempts reserved; an unreadable ledger allows nothing (the caller
passes None). A plan is ordered by net saving per cost, and the gate admits the longest prefix that
fits.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSimError

from reconciler.api.prices import Prices
from reconciler.format import iec
from reconciler.plan.money import Usage, beside, cost_text
from reconciler.plan.schedule import last_start, next_start

ACTION, JOB = "the next action", "the whole job"
"""What refusals call one charge: an action of a plan, or all that a job of the operator may do."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on what may be rewritten: either over a rolling window, or while a schedule is
    open."""

    name: str
    """The budget's name, unique within the policy."""
    per_seconds: int | None = None
    """Length of the rolling window in seconds; None for a scheduled budget."""
    schedule: str | None = None
    """Cron expression of the times at which the budget opens; None for a rolling window."""
    time_zone: str = "UTC"
    """IANA name of the time zone of the schedule."""
    duration_seconds: int | None = None
    """Seconds that a scheduled budget stays open; None for a rolling window."""
    max_rewrite_bytes: int | None = None
    """Most bytes of input files that may be rewritten; None for no limit."""
    max_cpu_seconds: int | None = None
    """Most CPU seconds that rewrites may use; None for no limit."""
    title: str = ""
    """What messages call the budget; "" for its name."""

    @property
    def text(self) -> str:
        return self.title or f'budget "{self.name}"'


@dataclass(frozen=True, slots=True)
class Spent:
    """One charge to a budget, settled or reserved."""

    at: dt.datetime
    """When the work ended, or now for a reservation."""
    rewrite_bytes: int
    """Bytes of input files."""
    cpu_seconds: float
    """CPU seconds of the work."""
    held: bool = False
    """Whether it belongs to a run that recorded no end of its work: it continues, or was killed."""
    ends: dt.datetime | None = None
    """When such a run has certainly ended, or was seen to have ended; None for other charges."""


@dataclass(frozen=True, slots=True)
class BudgetState:
    """The state of a budget at one moment."""

    budget: Budget
    """The budget."""
    active: bool
    """Whether its limits apply now."""
    spent_bytes: int
    """Bytes charged in the present window."""
    spent_cpu_seconds: float
    """CPU seconds charged in the present window."""
    remaining_bytes: int | None
    """Bytes that may still be rewritten; None if the budget does not limit bytes."""
    remaining_cpu_seconds: float | None
    """CPU seconds that may still be used; None if the budget does not limit them."""
    boundary: dt.datetime | None
    """When a scheduled budget next opens or closes; None for a rolling window."""
    error: str = ""
    """Why the budget is invalid, "" if it is valid."""
    held_bytes: int = 0
    """Part of `spent_bytes` that runs hold which recorded no end of their work."""
    held_cpu_seconds: float = 0.0
    """Part of `spent_cpu_seconds` that the same runs hold."""
    held_until: dt.datetime | None = None
    """When all of that is free again at the latest; None if no run holds any."""
    may_go_on: bool = False
    """Whether one of these runs may still work: nobody saw its end."""

    @property
    def closed(self) -> bool:
        scheduled = self.budget.schedule is not None
        return (
            self.active
            and scheduled
            and 0
            in (
                self.budget.max_rewrite_bytes,
                self.budget.max_cpu_seconds,
            )
        )


@dataclass(frozen=True, slots=True)
class Charge:
    """The predicted cost of one action."""

    rewrite_bytes: int
    """Bytes of its input files."""
    cpu_seconds: float
    """CPU seconds that it takes."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The answer of the gate to the pending actions of a plan."""

    count: int
    """Number of leading actions that may start now."""
    reason: str
    """Condition reason of a refusal, "" without one."""
    message: str
    """Message of the reason."""
    budgets: tuple[BudgetState, ...] = ()
    """The state of every budget, whichever check decided."""

    @property
    def open(self) -> bool:
        return self.count > 0


def budget_state(budget: Budget, spent: Sequence[Spent], now: dt.datetime) -> BudgetState:
    """Return the state of the budget at `now`; an invalid schedule or zone is reported in
    `error`."""
    try:
        since, boundary = _window(budget, now)
    except (CronSimError, ZoneInfoNotFoundError, ValueError, StopIteration) as error:
        why = "its schedule never occurs" if isinstance(error, StopIteration) else error
        return BudgetState(budget, True, 0, 0.0, 0, 0.0, None, f"invalid budget: {why}")
    if since is None:
        return BudgetState(budget, False, 0, 0.0, None, None, boundary)
    charged = [charge for charge in spent if charge.at > since]
    ends = [charge.ends for charge in charged if charge.held and charge.ends is not None]
    used = sum(charge.rewrite_bytes for charge in charged)
    cpu = sum(charge.cpu_seconds for charge in charged)
    return BudgetState(
        budget,
        True,
        used,
        cpu,
        None if budget.max_rewrite_bytes is None else max(0, budget.max_rewrite_bytes - used),
        None if budget.max_cpu_seconds is None else max(0.0, budget.max_cpu_seconds - cpu),
        boundary,
        held_bytes=sum(charge.rewrite_bytes for charge in charged if charge.held),
        held_cpu_seconds=sum(charge.cpu_seconds for charge in charged if charge.held),
        held_until=_free(max(ends), budget, boundary) if ends else None,
        may_go_on=any(one > now for one in ends),
    )


def _free(end: dt.datetime, budget: Budget, boundary: dt.datetime | None) -> dt.datetime:
    """Return when what a run holds that ended then does not count any more."""
    if boundary is not None:
        return boundary
    return end + dt.timedelta(seconds=budget.per_seconds or 0)


def closed_by(budgets: Sequence[Budget], now: dt.datetime) -> str:
    """Return the name of a schedule that allows nothing now, "" if none does."""
    states = (budget_state(budget, (), now) for budget in budgets)
    return next((state.budget.name for state in states if state.closed), "")


def _window(budget: Budget, now: dt.datetime) -> tuple[dt.datetime | None, dt.datetime | None]:
    """Return (start of the counted window or None if inactive, next boundary)."""
    if budget.max_rewrite_bytes is None and budget.max_cpu_seconds is None:
        raise ValueError(f"{budget.name} has no limit")
    if budget.schedule is None:
        if not budget.per_seconds:
            raise ValueError(f"{budget.name} has neither per nor schedule")
        return now - dt.timedelta(seconds=budget.per_seconds), None
    if not budget.duration_seconds:
        raise ValueError(f"{budget.name} has a schedule without a duration")
    zone = ZoneInfo(budget.time_zone)
    duration = dt.timedelta(seconds=budget.duration_seconds)
    upcoming = next_start(budget.schedule, zone, now)
    start = last_start(budget.schedule, zone, now)
    if now < start + duration:
        return start - dt.timedelta(microseconds=1), min(start + duration, upcoming)
    return None, upcoming


def admit(
    charges: Sequence[Charge],
    budgets: Sequence[Budget],
    spent: Sequence[Spent] | None,
    now: dt.datetime,
    prices: Prices | None = None,
    what: str = ACTION,
) -> Gate:
    """Return the longest prefix of `charges` that fits every active budget. prices: what a refusal
    says in money; None to say it in bytes alone. what: what it calls one charge."""
    if spent is None and budgets:
        return Gate(0, "OverBudget", "the ledger of past spending cannot be read", ())
    states = tuple(budget_state(one, spent or (), now) for one in budgets)
    return admitted_by(charges, states, prices, what)


def admitted_by(
    charges: Sequence[Charge],
    states: tuple[BudgetState, ...],
    prices: Prices | None,
    what: str = ACTION,
) -> Gate:
    """Return the longest prefix of `charges` that fits every active budget in its present state.
    prices, what: as of `admit`."""
    count, limiting = len(charges), None
    for state in states:
        fits = _prefix(charges, state)
        if fits < count:
            count, limiting = fits, state
    if limiting is None:
        return Gate(count, "", "", states)
    return Gate(count, *_why(limiting, charges[count], prices, what), states)


def charge_text(charge: Charge, prices: Prices | None) -> str:
    """Return the bytes that work rewrites, with the money that it costs if there are prices."""
    used = Usage(charge.rewrite_bytes, 0.0, charge.cpu_seconds)
    return beside(iec(charge.rewrite_bytes), "" if prices is None else cost_text(prices, used))


def _prefix(charges: Sequence[Charge], state: BudgetState) -> int:
    size, cpu = 0, 0.0
    for number, charge in enumerate(charges):
        size += charge.rewrite_bytes
        cpu += charge.cpu_seconds
        costs_nothing = charge.rewrite_bytes == 0 and charge.cpu_seconds == 0
        over_bytes = state.remaining_bytes is not None and size > state.remaining_bytes
        over_cpu = state.remaining_cpu_seconds is not None and cpu > state.remaining_cpu_seconds
        if (over_bytes or over_cpu) and not costs_nothing:
            return number
        if state.closed or state.error:
            return number
    return len(charges)


def _why(state: BudgetState, refused: Charge, prices: Prices | None, what: str) -> tuple[str, str]:
    """Return reason and message. They say no spent or remaining amount, which would change with
    each charge: the message is part of a status, which would be written as often. What is refused
    rewrites an amount that changes with the plan only."""
    name = state.budget.text
    if state.error:
        return "OverBudget", f"{name}: {state.error}"
    if state.closed:
        until = (
            state.boundary.strftime("%Y-%m-%dT%H:%M:%SZ") if state.boundary else "further notice"
        )
        return "OutsideWindow", f"{name} allows nothing until {until}"
    asked, limits = charge_text(refused, prices), state.budget
    most_bytes, most_cpu = limits.max_rewrite_bytes, limits.max_cpu_seconds
    if (most_bytes is not None and refused.rewrite_bytes > most_bytes) or (
        most_cpu is not None and refused.cpu_seconds > most_cpu
    ):
        why = f"{name} is too small for {what} even when nothing of it is spent"
        return "OverBudget", f"{why}: it rewrites {asked}, and waiting does not help"
    why = f"{name} has too little left for {what}, which rewrites {asked}"
    holds_bytes = limits.max_rewrite_bytes is not None and state.held_bytes
    if holds_bytes or (limits.max_cpu_seconds is not None and state.held_cpu_seconds):
        why += f"; {held_text(state, 'a part of it')}"
    return "OverBudget", why


def held_text(state: BudgetState, what: str) -> str:
    """Return who holds a part of a budget, until when, and how it gets free earlier."""
    who = "a run that goes on, or whose end nobody recorded,"
    if state.held_until is None:
        return f"{who} holds {what}"
    until = f"until {state.held_until:%Y-%m-%dT%H:%M:%SZ}"
    if not state.may_go_on:
        return f"a run that was killed holds {what} {until}"
    return (
        f"{who} holds {what} {until} at the latest; "
        "if it was killed, apply on its table from the same machine records its end, and with "
        "--machine-gone from any other one"
    )
