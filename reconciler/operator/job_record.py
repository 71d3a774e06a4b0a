"""The record of one attempt as a Job: what may start, its write-ahead in status.job, and its end.

`attempts` makes it where work may start, and the launcher writes it into status.job before the Job
is created. Only this module knows how it looks there; pure.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from reconciler.api.quantities import format_bytes, format_duration, parse_bytes, parse_duration
from reconciler.kube.names import RECOMMENDATION
from reconciler.operator.conditions import Body
from reconciler.operator.status_text import parse_time, utc
from reconciler.plan.ledger import Reservation
from reconciler.plan.run_ids import begun_ms

CLOCKS = dt.timedelta(minutes=10)
"""Time by which the clock of a node may be behind that of the operator."""


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
    total: int | None = None
    """Number of actions that it was launched for, 0 to settle only what earlier attempts left; None
    before the launch, and for a recommendation."""
    committed: int | None = None
    """Number of them that are committed, by the ledger when it ended; None as `total`."""
    layout_hash: str = ""
    """spec.layoutHash under which it was launched, "" as `total`."""
    stopped: str = ""
    """Why the operator stopped the Job, "" if it did not."""

    @property
    def unsettled(self) -> bool:
        return self.phase in OPEN

    @property
    def recommends(self) -> bool:
        """Whether its job makes a recommendation; plan_id and digest are then of its inputs."""
        return self.plan_id.startswith(RECOMMENDATION)


def job_status(record: JobRecord) -> Body:
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
    counts = {"actionsCommitted": record.committed, "actionsTotal": record.total}
    texts = {"uid": record.uid, "layoutHash": record.layout_hash, "stopped": record.stopped}
    body |= {name: count for name, count in counts.items() if count is not None}
    return body | {name: text for name, text in texts.items() if text}


def ended(record: JobRecord, phase: Phase, committed: int | None = None) -> JobRecord:
    """Return the record of the same attempt after its end. committed: None if nothing says more."""
    known = record.committed if committed is None else committed
    return replace(record, phase=phase, committed=known, stopped="")


def phase_of(status: Mapping[str, Any] | None) -> Phase | None:
    """Return the phase of status.job, None if there is none. An unknown one counts as Running."""
    body = (status or {}).get("job")
    if not isinstance(body, Mapping) or not body:
        return None
    known = {phase.value for phase in Phase}
    return Phase(body["phase"]) if body.get("phase") in known else Phase.RUNNING


def plan_in(status: Mapping[str, Any]) -> str:
    """Return the id of the plan that a status says a job runs, "" if it names none; also where the
    rest of the record cannot be read."""
    job = status.get("job")
    return str(job.get("planId") or "") if isinstance(job, Mapping) else ""


def record_of(status: Mapping[str, Any] | None) -> JobRecord | None:
    """Return status.job as a value; None if there is none, or somebody else made it unreadable: a
    Job that lives is then adopted, and nothing that all namespaces share waits for one of them."""
    body, phase = (status or {}).get("job"), phase_of(status)
    if not body or phase is None or not body.get("name") or not body.get("planId"):
        return None
    try:
        reserved = body.get("reserved") or {}
        size = parse_bytes(reserved.get("rewriteBytes", "0"))
        seconds = parse_duration(reserved.get("cpuTime", "0s"))
        written = parse_time(body.get("startedAt")) or dt.datetime.fromtimestamp(0, dt.UTC)
        attempt = int(body.get("attempt", 1))
    except (ValueError, TypeError, AttributeError):
        return None
    return JobRecord(
        name=body["name"],
        uid=body.get("uid", ""),
        plan_id=body["planId"],
        digest=body.get("digest", ""),
        attempt=attempt,
        phase=phase,
        written=written,
        rewrite_bytes=size,
        cpu_seconds=seconds,
        total=body.get("actionsTotal"),
        committed=body.get("actionsCommitted"),
        layout_hash=body.get("layoutHash", ""),
        stopped=body.get("stopped", ""),
    )


def unsettled_of(status: Mapping[str, Any] | None) -> JobRecord | None:
    """Return status.job of a job that is not settled; None if there is none."""
    record = record_of(status)
    return record if record is not None and record.unsettled else None


def uuid_of(status: Mapping[str, Any] | None) -> str:
    """Return the UUID of the table that a status is of, "" if it names none yet."""
    return str(((status or {}).get("table") or {}).get("uuid", ""))


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
