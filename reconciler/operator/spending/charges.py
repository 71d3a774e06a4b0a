"""What the operator itself admitted: its live jobs, and the bytes charged to each namespace.

Pure. The limits that all namespaces share, jobs at once and bytes in 24 h, are computed from this
book alone. No tenant can write it, so nothing in a tenant's catalog changes what another may do.
A job is charged with what was admitted for it, in full, from its admission until a day after its
end: what it really read is known from the tenant's own ledger only.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from reconciler.operator.index import ObjectName
from reconciler.plan.budget import Spent

WINDOW = dt.timedelta(hours=24)
BUCKET_SECONDS = 600
COARSE = 6
"""Buckets that are merged when the book gets large: an hour."""
MOST_BUCKETS = 20_000
"""About 400 KiB of a ConfigMap, which holds 1 MiB."""
LAPSE = dt.timedelta(minutes=10)
"""After this time a job that was to stop takes no slot of others, wherever its pods are."""
VERSION = 1


@dataclass(frozen=True, slots=True)
class AdmittedJob:
    """One job that was admitted and has not ended."""

    namespace: str
    """Namespace of its table, policy and Job."""
    job: str
    """Name of the Job, a function of table, plan and attempt."""
    layout: str
    """Name of the TableLayout."""
    rewrite_bytes: int
    """What it may rewrite."""
    since: dt.datetime
    """When it was admitted."""
    stopping: dt.datetime | None = None
    """Since when it should give its slot to another namespace."""

    @property
    def key(self) -> ObjectName:
        return self.namespace, self.job

    def lapsed(self, now: dt.datetime) -> bool:
        """Whether its slot no longer counts against other namespaces."""
        return self.stopping is not None and now - self.stopping >= LAPSE


@dataclass(frozen=True)
class Book:
    """All that was admitted in the last day."""

    admitted: Mapping[ObjectName, AdmittedJob] = field(default_factory=dict)
    """Jobs that have not ended."""
    charged: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Bytes of jobs that have ended, by namespace and by the bucket in which they did."""

    def admit(self, job: AdmittedJob) -> Book:
        """Return the book with the job; one that is there already stays as it is."""
        return self if job.key in self.admitted else self._with({**self.admitted, job.key: job})

    def release(self, key: ObjectName) -> Book:
        """Return the book without a job that never ran: it cost nothing."""
        return self._with({name: job for name, job in self.admitted.items() if name != key})

    def end(self, key: ObjectName, now: dt.datetime) -> Book:
        """Return the book after the job's end: it is charged for another day."""
        job = self.admitted.get(key)
        if job is None:
            return self
        left = self.release(key)
        bucket = (job.namespace, int(now.timestamp()) // BUCKET_SECONDS)
        total = left.charged.get(bucket, 0) + job.rewrite_bytes
        return replace(left, charged={**left.charged, bucket: total} if total else left.charged)

    def stop(self, key: ObjectName, now: dt.datetime) -> Book:
        """Return the book in which the job is to give up its slot."""
        job = self.admitted.get(key)
        if job is None or job.stopping is not None:
            return self
        return self._with({**self.admitted, key: replace(job, stopping=now)})

    def current(self, now: dt.datetime) -> Book:
        """Return the book without what is older than a day, and small enough to be stored."""
        first = int((now - WINDOW).timestamp()) // BUCKET_SECONDS
        kept = {bucket: size for bucket, size in self.charged.items() if bucket[1] >= first}
        return replace(self, charged=kept if len(kept) <= MOST_BUCKETS else _coarser(kept))

    def spent(self, now: dt.datetime) -> dict[str, tuple[Spent, ...]]:
        """Return the charges by namespace. What has not ended is charged now; the rest at the end
        of its bucket, which is not before the job's end."""
        found: dict[str, list[Spent]] = {}
        for job in self.admitted.values():
            found.setdefault(job.namespace, []).append(Spent(now, job.rewrite_bytes, 0.0))
        for (namespace, bucket), size in self.charged.items():
            ended = dt.datetime.fromtimestamp((bucket + 1) * BUCKET_SECONDS, dt.UTC)
            found.setdefault(namespace, []).append(Spent(ended, size, 0.0))
        return {namespace: tuple(charges) for namespace, charges in found.items()}

    def jobs(self) -> Counter[str]:
        """Return the jobs by namespace."""
        return Counter(job.namespace for job in self.admitted.values())

    def _with(self, admitted: Mapping[ObjectName, AdmittedJob]) -> Book:
        return replace(self, admitted=admitted)


def _coarser(charged: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """Return the charges by the hour, each at the end of its hour: never earlier than it was."""
    found: Counter[tuple[str, int]] = Counter()
    for (namespace, bucket), size in charged.items():
        found[namespace, bucket // COARSE * COARSE + COARSE - 1] += size
    return dict(found)


def to_text(book: Book) -> str:
    """Return the book as it is stored."""
    admitted = [
        [
            job.namespace, job.job, job.layout, job.rewrite_bytes, int(job.since.timestamp()),
            None if job.stopping is None else int(job.stopping.timestamp()),
        ]
        for job in book.admitted.values()
    ]  # fmt: skip
    charged: dict[str, dict[str, int]] = {}
    for (namespace, bucket), size in sorted(book.charged.items()):
        charged.setdefault(namespace, {})[str(bucket)] = size
    body = {"version": VERSION, "admitted": admitted, "charged": charged}
    return json.dumps(body, separators=(",", ":"))


def from_text(text: str) -> Book:
    """Return a stored book. Raises ValueError if it is not one."""
    try:
        body = json.loads(text)
        if body["version"] != VERSION:
            raise ValueError(f"version {body['version']} is not {VERSION}")
        jobs = [_admitted(*item) for item in body["admitted"]]
        charged = {
            (str(namespace), int(bucket)): _size(size)
            for namespace, buckets in body["charged"].items()
            for bucket, size in buckets.items()
        }
    except (KeyError, TypeError, AttributeError, OverflowError, OSError) as error:
        raise ValueError(f"it is not a record of spending: {error}") from error
    return Book({job.key: job for job in jobs}, charged)


def _admitted(
    namespace: str, job: str, layout: str, size: Any, since: Any, stopping: Any
) -> AdmittedJob:
    return AdmittedJob(
        str(namespace), str(job), str(layout), _size(size), _moment(since),
        None if stopping is None else _moment(stopping),
    )  # fmt: skip


def _size(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a size")
    return value


def _moment(seconds: Any) -> dt.datetime:
    return dt.datetime.fromtimestamp(int(seconds), dt.UTC)
