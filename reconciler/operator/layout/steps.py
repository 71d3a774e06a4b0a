"""The steps that a TableLayout may take next, as values: `next_step` chooses, `reconcile` acts."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from reconciler.operator.job_record import JobRecord
from reconciler.operator.layout.facts import JobSeen


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing before a time."""

    until: dt.datetime
    """The time."""
    reason: str
    """Reason of Converged, "" for an operator that does not lead."""
    message: str
    """Message of Converged."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Offer the first pending actions of a plan, to start as a job."""

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
    """Offer a recommend job: the table has no work that may start, and a recommendation is due."""

    record: JobRecord
    """The job with what it reserves."""
    meanwhile: Wait
    """The state that the table shows meanwhile."""


@dataclass(frozen=True, slots=True)
class StopJob:
    """Delete a Job, which stops at its next commit boundary."""

    job: JobSeen
    """The Job."""
    why: str
    """A reason, which is also shown to people."""
    message: str
    """The reason with its details."""


@dataclass(frozen=True, slots=True)
class Settle:
    """Judge by the table how the recorded job ended."""

    record: JobRecord
    """The record of the job."""
    job: JobSeen | None
    """The Job; None if it is gone."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """Record a live Job of ours that the record lacks, or has with other values."""

    job: JobSeen
    """The Job."""


@dataclass(frozen=True, slots=True)
class CreateAgain:
    """Create the Job of a write-ahead that has none, because its work is still admitted."""

    record: JobRecord
    """The write-ahead."""
    memory_factor: float = 1.0
    """Factor of the memory of driver and executors."""


@dataclass(frozen=True, slots=True)
class DropReservation:
    """Drop a write-ahead that has no Job, because its work is no longer admitted."""

    record: JobRecord
    """The write-ahead."""
    why: str
    """Why the work is no longer admitted."""


@dataclass(frozen=True, slots=True)
class Retire:
    """Remove the finalizer: the object is being deleted, and nothing of it runs."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Report that somebody must correct something first."""

    reason: str
    """Reason of Stalled."""
    message: str
    """Message of Stalled."""


@dataclass(frozen=True, slots=True)
class Propose:
    """Observe and plan the table: nothing runs, and nothing prevents planning."""


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
