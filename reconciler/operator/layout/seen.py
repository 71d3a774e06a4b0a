"""Converts Kubernetes objects to the values that decisions use."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reconciler.kube.pods import (
    ATTEMPT_LABEL,
    CATALOG_ANNOTATION,
    DIGEST_ANNOTATION,
    PLAN_LABEL,
    ended,
)
from reconciler.operator.job_record import Phase
from reconciler.operator.layout.facts import JobSeen, PodSeen
from reconciler.operator.layout.failures import refused, waiting_for
from reconciler.operator.status_text import parse_time

Object = Mapping[str, Any]
_START = dt.datetime.fromtimestamp(0, dt.UTC)


def jobs_seen(jobs: Iterable[Object], pods: Sequence[Object]) -> tuple[JobSeen, ...]:
    return tuple(_job(job, pods) for job in jobs)


def pods_seen(pods: Iterable[Object]) -> tuple[PodSeen, ...]:
    return tuple(PodSeen(pod["metadata"]["name"], ended(pod)) for pod in pods)


def _job(job: Object, pods: Sequence[Object]) -> JobSeen:
    meta = job["metadata"]
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    own = pods_of(job, pods)
    attempt = str(labels.get(ATTEMPT_LABEL, ""))
    return JobSeen(
        name=meta["name"],
        uid=meta.get("uid", ""),
        owner_uid=owner_uid(job),
        plan_id=labels.get(PLAN_LABEL, ""),
        digest=annotations.get(DIGEST_ANNOTATION, ""),
        attempt=int(attempt) if attempt.isdigit() else 0,
        phase=_phase(job, own),
        created=parse_time(meta.get("creationTimestamp")) or _START,
        deleting=bool(meta.get("deletionTimestamp")),
        trouble=waiting_for(own),
        pods=len(own),
        refused=refused(own),
        catalog=annotations.get(CATALOG_ANNOTATION, ""),
    )


def owner_uid(body: Object) -> str:
    """Return the uid of the TableLayout that owns it, "" if none does."""
    owners = body["metadata"].get("ownerReferences") or ()
    return next((o.get("uid", "") for o in owners if o.get("kind") == "TableLayout"), "")


def pods_of(job: Object, pods: Sequence[Object]) -> list[Object]:
    uid = job["metadata"].get("uid")
    return [
        pod
        for pod in pods
        if any(o.get("uid") == uid for o in pod["metadata"].get("ownerReferences") or ())
    ]


def _phase(job: Object, pods: Sequence[Object]) -> Phase:
    """Return the phase; a Job has ended only if its own condition says so, after its pods ended."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            return Phase.SUCCEEDED if condition["type"] == "Complete" else Phase.FAILED
    started = any((pod.get("status") or {}).get("phase") not in (None, "Pending") for pod in pods)
    return Phase.RUNNING if started else Phase.PENDING
