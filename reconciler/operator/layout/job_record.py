"""The record of one attempt as a Job: what may start, its write-ahead in status.job, and its end.

`attempts` makes it where work may start, and the launcher writes it into status.job before the Job
is created. Only this module knows how it looks there; pure.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from reconciler.api.quantities import format_bytes, format_duration, parse_bytes, parse_duration
from reconciler.kube.names import RECOMMENDATION
from reconciler.operator.conditions import Body
from reconciler.operator.status_text import parse_time, utc
from reconciler.plan.ledger import Reservation
from reconciler.plan.run_ids import begun_ms

CLOCKS = dt.timedelta(minutes=10)
"""By so much the clock of a node may be behind that of the operator."""


class Phase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DROPPED = "Dropped"


OPEN = frozenset({Phase.PENDING, Phase.RUNNING})


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One attempt at a plan or a recommendation as a Job: what may start, and status.job from its
    write-ahead on."""

    name: str
    """Name of the Job."""
    uid: str
    """UID of the Job; "" until the Job was seen."""
    plan_id: str
    """The plan's id."""
    digest: str
    """"sha256:" and the hexadecimal hash of the plan's document."""
    attempt: int
    """Number of the attempt at the plan."""
    phase: Phase
    """What is known of the Job."""
    written: dt.datetime
    """Time of the write-ahead; of the decision before it is written."""
    rewrite_bytes: int
    """Bytes that the Job reserves of the budgets."""
    cpu_seconds: int
    """CPU seconds that the Job reserves of the budgets."""

    @property
    def unsettled(self) -> bool:
        return self.phase in OPEN

    @property
    def recommends(self) -> bool:
        """Whether its job makes a recommendation; plan_id and digest are then of its inputs."""
        return self.plan_id.startswith(RECOMMENDATION)


def job_status(record: JobRecord, committed: int | None = None, total: int | None = None) -> Body:
    """Return status.job. Reserved amounts are exact, because admission counts them."""
    body: Body = {
        "kind": "Job",
        "name": record.name,
        "planId": record.plan_id,
        "digest": record.digest,
        "attempt": record.attempt,
        "phase": record.phase.value,
        "startedAt": utc(record.written),
        "reserved": {
            "rewriteBytes": format_bytes(record.rewrite_bytes),
            "cpuTime": format_duration(record.cpu_seconds),
        },
    }
    if record.uid:
        body["uid"] = record.uid
    if committed is not None:
        body["actionsCommitted"] = committed
    if total is not None:
        body["actionsTotal"] = total
    return body


def record_of(status: Mapping[str, Any] | None) -> JobRecord | None:
    """Return status.job as a value; None if there is none. An unknown phase counts as unsettled."""
    body = (status or {}).get("job")
    if not body or not body.get("name") or not body.get("planId"):
        return None
    reserved = body.get("reserved") or {}
    known = {phase.value for phase in Phase}
    phase = Phase(body["phase"]) if body.get("phase") in known else Phase.RUNNING
    written = parse_time(body.get("startedAt")) or dt.datetime.fromtimestamp(0, dt.UTC)
    return JobRecord(
        name=body["name"],
        uid=body.get("uid", ""),
        plan_id=body["planId"],
        digest=body.get("digest", ""),
        attempt=int(body.get("attempt", 1)),
        phase=phase,
        written=written,
        rewrite_bytes=parse_bytes(reserved.get("rewriteBytes", "0")),
        cpu_seconds=parse_duration(reserved.get("cpuTime", "0s")),
    )


def unsettled_of(status: Mapping[str, Any] | None) -> JobRecord | None:
    """Return status.job of a job that is not settled; None if there is none."""
    record = record_of(status)
    return record if record is not None and record.unsettled else None


def uuid_of(status: Mapping[str, Any] | None) -> str:
    """Return the UUID of the table that a status is of, "" if it names none yet."""
    return str(((status or {}).get("table") or {}).get("uuid", ""))


def updated_job(status: Body, record: JobRecord) -> Body:
    """Return status.job as the record is now, with the values that only the launch knew."""
    old = status.get("job") or {}
    kept = {}
    if old.get("name") == record.name:
        kept = {k: old[k] for k in ("actionsTotal", "layoutHash", "actionsCommitted") if k in old}
    return {**kept, **job_status(record)}


def own_reservation(record: JobRecord, recorded: Iterable[Reservation]) -> Reservation | None:
    """Return what the driver of the record reserved on its table, None if it has not yet.

    Its id names plan and attempt. A TableLayout that is made anew counts attempts from 1 again, so
    that a run long before the write-ahead is another one. Both times are of different clocks.
    """
    since = (record.written - CLOCKS).timestamp() * 1000
    found = [
        (start, item)
        for item in recorded
        if (start := begun_ms(item.id, record.plan_id, record.attempt)) is not None
        and start >= since
    ]
    return max(found, key=lambda one: one[0])[1] if found else None


def began(record: JobRecord, recorded: Iterable[Reservation]) -> int:
    """Return since when rows of the ledger are of the record's run, in epoch milliseconds: the
    start of the run by the clock that dates its rows. A run that reserved nothing settled at most
    what others left; then it is the time of the write-ahead."""
    own = own_reservation(record, recorded)
    start = None if own is None else begun_ms(own.id, record.plan_id, record.attempt)
    return int(record.written.timestamp() * 1000) if start is None else start
