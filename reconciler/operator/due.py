"""Computes when to look again: intervals with jitter, and the times at which a budget's answer
changes.

Pure: due times are computed instead of polling. A schedule opens and closes at known times, a
rolling window refills when past work leaves it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable, Sequence

from reconciler.plan.budget import Budget, BudgetState, Charge, Spent, budget_state

JITTER = 0.1
LEAST_INTERVAL = 30
"""Minimum interval in seconds: with `1s` the catalog would be called without a pause."""


def next_look(name: str, interval_seconds: int, now: dt.datetime) -> dt.datetime:
    """Return the time one interval later, up to a tenth more or less; the same for one name at one
    time."""
    interval_seconds = max(LEAST_INTERVAL, interval_seconds)
    epoch = int(now.timestamp()) // interval_seconds
    digest = hashlib.sha256(f"{name}\x00{epoch}".encode()).digest()
    share = int.from_bytes(digest[:4], "big") / 2**32  # uniform in [0, 1)
    return now + dt.timedelta(seconds=interval_seconds * (1 + JITTER * (2 * share - 1)))


def reopens(
    budgets: Sequence[Budget], spent: Sequence[Spent], charge: Charge, now: dt.datetime
) -> dt.datetime | None:
    """Return the earliest time after now at which the budgets' answer to the next action may
    change.

    None if only a change of the policy can change it.
    """
    moments = [_refill(budget, spent, charge, now) for budget in budgets]
    moments += [state.boundary for state in states(budgets, spent, now)]
    return _earliest(moments, now)


def boundary(budgets: Sequence[Budget], now: dt.datetime) -> dt.datetime | None:
    """Return when a scheduled budget next opens or closes: a running job is checked then."""
    return _earliest((state.boundary for state in states(budgets, (), now)), now)


def states(
    budgets: Sequence[Budget], spent: Sequence[Spent], now: dt.datetime
) -> tuple[BudgetState, ...]:
    return tuple(budget_state(budget, spent, now) for budget in budgets)


def _refill(
    budget: Budget, spent: Sequence[Spent], charge: Charge, now: dt.datetime
) -> dt.datetime | None:
    """Return when a rolling window has room for the charge; None if time alone cannot help."""
    if not budget.per_seconds:
        return None
    window = dt.timedelta(seconds=budget.per_seconds)
    left = sorted((item for item in spent if item.at > now - window), key=lambda item: item.at)
    used_bytes = sum(item.rewrite_bytes for item in left)
    used_cpu = sum(item.cpu_seconds for item in left)
    for item in left:
        used_bytes -= item.rewrite_bytes
        used_cpu -= item.cpu_seconds
        if _fits(used_bytes + charge.rewrite_bytes, budget.max_rewrite_bytes) and _fits(
            used_cpu + charge.cpu_seconds, budget.max_cpu_seconds
        ):
            return item.at + window
    return None


def _fits(value: float, limit: int | None) -> bool:
    return limit is None or value <= limit


def _earliest(moments: Iterable[dt.datetime | None], now: dt.datetime) -> dt.datetime | None:
    return min((moment for moment in moments if moment is not None and moment > now), default=None)
