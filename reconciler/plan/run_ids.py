"""The ids of what the runs of Jobs reserve: each names its plan, its attempt and its start."""

from __future__ import annotations


def run_reservation(plan_id: str, attempt: int, begun_us: int) -> str:
    """Return the id of what a run of a Job reserves. begun_us: its start in epoch microseconds."""
    return f"{plan_id}-{attempt}-{begun_us:x}"


def begun_ms(reservation: str, plan_id: str, attempt: int) -> int | None:
    """Return when the run that made a reservation began, in epoch milliseconds by its own clock;
    None if it is not of that attempt at the plan."""
    prefix = f"{plan_id}-{attempt}-"
    try:
        found = int(reservation.removeprefix(prefix), 16) // 1000
    except ValueError:
        return None
    return found if reservation.startswith(prefix) else None
