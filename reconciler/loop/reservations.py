"""Reservations: what an execution is predicted to cost counts as spent while it runs."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from typing import Protocol

from reconciler.loop.propose import PlanOnTable
from reconciler.plan.ledger import Reservation
from reconciler.plan.plan import PlannedAction
from reconciler.plan.prediction import total


class Reserving(Protocol):
    """The I/O of a reservation."""

    def reserve(self, reservation: Reservation) -> None:
        """Record before the work: the predicted cost of the execution counts as spent from now
        on."""
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
