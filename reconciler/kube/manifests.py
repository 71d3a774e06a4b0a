"""Builds the object that runs one admitted attempt: a Job, whose pod is the Spark driver.

Pure. The operator creates what this returns and never edits it. Sizing comes from the policy;
image, identity and placement from the catalog's owner; everything that makes the pod safe is fixed
here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from reconciler.api.documents import Engine, Jobs
from reconciler.api.reach import STRICT, Reach
from reconciler.api.task_memory import driver_pod
from reconciler.api.version import API_VERSION
from reconciler.kube.pods import (
    ATTEMPT_LABEL,
    CATALOG_ANNOTATION,
    DIGEST_ANNOTATION,
    LAYOUT_LABEL,
    PLAN_LABEL,
    SECRET_DIRECTORY,
    container_security,
    literal,
    placement,
    pod_security,
    template_annotations,
    template_environment,
    template_labels,
    template_mounts,
    template_volumes,
    work_mounts,
    work_volumes,
)

CONTAINER = "driver"

GRACE_SECONDS = 120
"""Time in which a driver stops at its next commit boundary."""
DEADLINE_SECONDS = 24 * 3600
TTL_SECONDS = 24 * 3600
"""After this time an ended Job is removed, even if no operator ran that settled it."""

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class JobRequest:
    """One attempt at one plan on one table, as a Job of Kubernetes."""

    name: str
    """Name of the Job."""
    namespace: str
    """Namespace of the Job."""
    layout_name: str
    """Name of the TableLayout that owns the Job."""
    layout_uid: str
    """UID of the TableLayout that owns the Job."""
    plan_id: str
    """The plan's id."""
    plan_digest: str
    """"sha256:" and the hexadecimal hash of the plan's document."""
    attempt: int
    """Number of this attempt at the plan."""
    run: str
    """Text of the run document, which the driver reads."""
    engine: Engine
    """Resources of driver and executors, by the policy."""
    jobs: Jobs
    """Image and account of Jobs, by the catalog."""
    image: str
    """Image of a Job whose catalog names none."""
    service_account: str
    """Service account of a driver whose catalog names none."""
    executor_service_account: str = ""
    """Service account of every executor; "" for the namespace's default one."""
    secret: str = ""
    """Name of the Secret with the catalog's credentials, "" for none."""
    catalog_version: str = ""
    """Hash of the version of the catalog's document and of its Secret."""
    memory_factor: float = 1.0
    """Factor of the memory of driver and executors; above 1 for the one retry after running out of
    memory."""
    reach: Reach = STRICT
    """What the driver may reach for the catalog."""
    deadline_seconds: int = DEADLINE_SECONDS
    """Seconds after which Kubernetes ends the Job."""
    ttl_seconds: int = TTL_SECONDS
    """Seconds after its end for which the Job is kept."""


def job(request: JobRequest) -> dict[str, Any]:
    """Return the batch/v1 Job: one pod, never started twice, gone before another is counted."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            **_metadata(request),
            "name": request.name,
            "namespace": request.namespace,
            "ownerReferences": [_owner(request)],
        },
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "podReplacementPolicy": "Failed",
            "activeDeadlineSeconds": request.deadline_seconds,
            "ttlSecondsAfterFinished": request.ttl_seconds,
            "template": {"metadata": _pod_metadata(request), "spec": _pod(request)},
        },
    }


def labels(request: JobRequest) -> dict[str, str]:
    """Return the labels of the Job and its pod. Executors carry only LAYOUT_LABEL, by which live
    pods are found."""
    return {
        "app.kubernetes.io/name": "layout-job",
        "app.kubernetes.io/managed-by": "layout-reconciler",
        LAYOUT_LABEL: request.layout_name,
        PLAN_LABEL: request.plan_id,
        ATTEMPT_LABEL: str(request.attempt),
    }


def _metadata(request: JobRequest) -> dict[str, Any]:
    return {
        "labels": labels(request),
        "annotations": {
            DIGEST_ANNOTATION: request.plan_digest,
            CATALOG_ANNOTATION: request.catalog_version,
        },
    }


def _pod_metadata(request: JobRequest) -> dict[str, Any]:
    """Ours win over the template's."""
    template, own = request.jobs.pod_template, _metadata(request)
    return {
        "labels": {**template_labels(template), **own["labels"]},
        "annotations": {**template_annotations(template), **own["annotations"]},
    }


def _owner(request: JobRequest) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "TableLayout",
        "name": request.layout_name,
        "uid": request.layout_uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _pod(request: JobRequest) -> dict[str, Any]:
    template = request.jobs.pod_template
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "serviceAccountName": _service_account(request),
        "automountServiceAccountToken": True,  # the driver needs it to create its executors
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        **placement(template),
        "containers": [_driver(request)],
        "volumes": _volumes(request),
    }


def _service_account(request: JobRequest) -> str:
    return request.jobs.service_account_name or request.service_account


def _driver(request: JobRequest) -> dict[str, Any]:
    driver = request.engine.driver
    size = driver_pod(driver.memory_bytes, driver.cores)
    memory = _mebibytes(size * request.memory_factor)
    return {
        "name": CONTAINER,
        "image": _image(request),
        "args": ["driver"],
        "env": _environment(request),
        "resources": {
            "requests": {"cpu": str(driver.cores), "memory": memory},
            "limits": {"memory": memory},
        },
        "securityContext": container_security(),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": _mounts(request),
    }


def _image(request: JobRequest) -> str:
    return request.jobs.image or request.image


def _environment(request: JobRequest) -> list[dict[str, Any]]:
    """Return the driver's input. It holds no secret: credentials are files of the mounted
    secret."""
    return [
        *template_environment(request.jobs.pod_template),
        {"name": "LAYOUT_RUN", "value": literal(request.run)},
        {"name": "LAYOUT_IMAGE", "value": literal(_image(request))},
        {
            "name": "LAYOUT_EXECUTOR_SERVICE_ACCOUNT",
            "value": literal(request.executor_service_account),
        },
        {"name": "LAYOUT_MEMORY_PERCENT", "value": str(round(request.memory_factor * 100))},
        {"name": "LAYOUT_ALLOWED_NETWORKS", "value": ",".join(map(str, request.reach.allowed))},
        {"name": "LAYOUT_LOCAL_FILES", "value": str(request.reach.local_files).lower()},
        _field("LAYOUT_NAME", f"metadata.labels['{LAYOUT_LABEL}']"),
        _field("POD_NAME", "metadata.name"),
        _field("POD_NAMESPACE", "metadata.namespace"),
        _field("POD_IP", "status.podIP"),
    ]


def _field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _mebibytes(size: float) -> str:
    return f"{math.ceil(size / MIB)}Mi"


def _volumes(request: JobRequest) -> list[dict[str, Any]]:
    return [*work_volumes(), *_secret_volume(request), *template_volumes(request.jobs.pod_template)]


def _mounts(request: JobRequest) -> list[dict[str, Any]]:
    return [*work_mounts(), *_secret_mount(request), *template_mounts(request.jobs.pod_template)]


def _secret_volume(request: JobRequest) -> list[dict[str, Any]]:
    if not request.secret:
        return []
    secret = {"secretName": request.secret, "defaultMode": 0o440}
    return [{"name": "catalog", "secret": secret}]


def _secret_mount(request: JobRequest) -> list[dict[str, Any]]:
    if not request.secret:
        return []
    return [{"name": "catalog", "mountPath": SECRET_DIRECTORY, "readOnly": True}]
