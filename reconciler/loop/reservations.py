"""Reservations: what an execution is predicted to cost counts as spent while it runs."""

from __future__ import annotations

import contextlib
import datetime as dt
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from reconciler.loop.propose import PlanOnTable
from reconciler.plan.budget import Charge, Gate, admitted_by
from reconciler.plan.execution import Used, attempt_started_ms
from reconciler.plan.ledger import LedgerEntry, Reservation, may_live
from reconciler.plan.plan import PlannedAction
from reconciler.plan.prediction import total


class Reserving(Protocol):
    """The I/O of a reservation."""

    def reserve(self, reservation: Reservation) -> None:
        """Record before the work: the predicted cost of the execution counts as spent from now on.
        A reservation that is recorded once more with a higher cost counts with that."""
        ...

    def settle(self, reservation: Reservation) -> bool:
        """Record the end: the execution's outcomes count instead, if they cover all of its work.
        Return whether they do."""
        ...


@contextlib.contextmanager
def reserved(actor: Reserving, reservation: Reservation) -> Iterator[None]:
    """Reserve, and settle afterwards.

    If the body raises, that error propagates and a failure to settle is suppressed: what is not
    settled counts in full.
    """
    actor.reserve(reservation)
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            actor.settle(reservation)
        raise
    actor.settle(reservation)


def extending(
    actor: Reserving, reservation: Reservation, still: Callable[[], Gate]
) -> Callable[[Used, int], str]:
    """Return how a run reserves what repeated work reads (`ExecutionRequest.reserve`).

    still: the gate now; its budgets count the run's outcomes, but not its reservation. They are
    asked before, and once more afterwards, because another process may have reserved meanwhile.
    What is refused afterwards stays reserved until the run ends.
    """
    held = reservation

    def reserve(used: Used, size: int) -> str:
        nonlocal held
        if size <= held.rewrite_bytes:
            return ""
        seconds = max(
            held.cpu_seconds / max(held.rewrite_bytes, 1),
            used.cpu_seconds / max(used.read_bytes, 1),
        )
        more = replace(held, rewrite_bytes=size, cpu_seconds=seconds * size)
        left = size - used.read_bytes
        asked = Charge(left, seconds * left)
        why = _refused(still(), asked)
        if not why:
            actor.reserve(more)
            held = more
            why = _refused(still(), asked)
        return why

    return reserve


def _refused(gate: Gate, asked: Charge) -> str:
    """Return why a gate's answer does not leave what is asked, "" if it does. A prefix of the plan
    may be over budget, because a part of it has been carried out."""
    if gate.reason and (gate.reason != "OverBudget" or not gate.budgets):
        return gate.message
    return admitted_by((asked,), gate.budgets, None, "repeated work").message


def reservation_for(
    proposal: PlanOnTable, admitted: Sequence[PlannedAction], policy: str
) -> Reservation:
    """Return what the admitted actions are predicted to read and to compute."""
    predicted = total(item.predicted for item in admitted)
    return Reservation(
        id=uuid.uuid4().hex,
        table_uuid=proposal.observation.uuid,
        plan_id=proposal.plan.id,
        policy=policy,
        rewrite_bytes=predicted.bytes_in,
        cpu_seconds=predicted.cpu_seconds,
    )


def fenced_runs(
    reservations: Sequence[Reservation], entries: Sequence[LedgerEntry], now: dt.datetime
) -> list[Reservation]:
    """Return the open reservations of a table whose run may live, and can commit nothing that it
    had begun. Call it after every open attempt on the table was settled.

    A run that has begun no attempt is not among them, because nothing fences it. Nor is that of a
    Job, whose end the operator sees. entries: of the table.
    """
    begun = [(entry.plan_id, attempt_started_ms(entry.outcome.attempt_id)) for entry in entries]
    return [
        held
        for held in reservations
        if not held.settled
        and may_live(held, now)
        and not held.id.startswith(held.plan_id)
        and any(plan == held.plan_id and at is not None and at >= held.at_ms for plan, at in begun)
    ]
