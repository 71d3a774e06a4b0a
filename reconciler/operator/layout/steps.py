"""The steps that a TableLayout may take next, as values: `next_step` chooses, `reconcile` acts."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from reconciler.operator.job_record import JobRecord
from reconciler.operator.layout.facts import JobSeen


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before `until`; reason: of Converged, "" for an operator that does not lead."""

    until: dt.datetime
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Launch:
    """The first pending actions of a plan may start as this job."""

    record: JobRecord
    """The job with what it reserves."""
    actions: int
    """Number of pending actions to start, from the first."""
    saving_per_byte: float
    """Predicted saving per byte rewritten, by which tables are ordered."""
    memory_factor: float = 1.0
    """Factor of the memory of driver and executors."""


@dataclass(frozen=True, slots=True)
class Recommend:
    """The table has no work that may start, and a recommendation is due. meanwhile: its state."""

    record: JobRecord
    meanwhile: Wait


@dataclass(frozen=True, slots=True)
class StopJob:
    """Delete the Job; it stops at its next commit boundary. why: a reason, also shown to people."""

    job: JobSeen
    why: str
    message: str


@dataclass(frozen=True, slots=True)
class Settle:
    """The job of the record has ended: judge it by the table. job: None if it is gone."""

    record: JobRecord
    job: JobSeen | None


@dataclass(frozen=True, slots=True)
class Adopt:
    """One of our Jobs is live that the record does not have yet, or has with other values."""

    job: JobSeen


@dataclass(frozen=True, slots=True)
class CreateAgain:
    """The write-ahead has no Job, and its work is still admitted."""

    record: JobRecord
    memory_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class DropReservation:
    """The write-ahead has no Job, and its work is no longer admitted."""

    record: JobRecord
    why: str


@dataclass(frozen=True, slots=True)
class Retire:
    """The object is being deleted and nothing holds it: remove the finalizer."""


@dataclass(frozen=True, slots=True)
class Stall:
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Propose:
    """Nothing is live and nothing prevents planning: observe the table."""


Decision = (
    Wait
    | Launch
    | Recommend
    | StopJob
    | Settle
    | Adopt
    | CreateAgain
    | DropReservation
    | Retire
    | Stall
    | Propose
)
