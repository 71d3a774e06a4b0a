"""Builds the object that runs one admitted attempt: a Job, whose pod is the Spark driver or works
alone.

Pure. The operator creates what this returns and never edits it. Sizing comes from the policy;
image, identity and placement from the catalog's owner; everything that makes the pod safe is fixed
here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from reconciler.api.choices import EngineType
from reconciler.api.documents import CatalogSpec, Engine
from reconciler.api.run_document import RunDocument
from reconciler.api.task_memory import driver_pod, local_pod
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
from reconciler.operator.job_record import JobRecord
from reconciler.operator.launch.run_documents import run_document
from reconciler.operator.layout.subject import Subject, catalog_version
from reconciler.operator.settings import OperatorSettings

CONTAINER = "driver"

GRACE_SECONDS = 120
"""Time in which a driver stops at its next commit boundary."""
DEADLINE_SECONDS = 24 * 3600
TTL_SECONDS = 24 * 3600
"""After this time an ended Job is removed, even if no operator ran that settled it."""

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Owner:
    """The TableLayout that owns a Job."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class JobAttempt:
    """One attempt at one plan or recommendation, with what its Job is made of."""

    record: JobRecord
    """Its write-ahead."""
    owner: Owner
    """Its TableLayout."""
    run: str
    """Text of the run document, which the driver reads."""
    engine: Engine
    """Resources of driver and executors, by the policy."""
    catalog: CatalogSpec
    """Image and account of Jobs, their pod template and the Secret, by the catalog's owner."""
    local: bool
    """Whether its pod carries the plan out alone, without Spark."""
    settings: OperatorSettings
    """Image and accounts of a Job whose catalog names none; what a driver may reach."""
    catalog_version: str = ""
    """Hash of the version of the catalog's document and of its Secret."""
    memory_factor: float = 1.0
    """Factor of the memory of driver and executors; above 1 for the one retry after running out of
    memory."""


def attempt_of(
    settings: OperatorSettings, subject: Subject, record: JobRecord, memory_factor: float
) -> JobAttempt:
    """Return the attempt that the record of a TableLayout reserves."""
    policy, handle = subject.usable
    document = run_document(subject, record)
    return JobAttempt(
        record=record,
        owner=Owner(subject.key.namespace, subject.key.name, subject.body["metadata"]["uid"]),
        run=document.text(),
        local=isinstance(document, RunDocument) and document.engine is EngineType.LOCAL,
        engine=policy.spec.engine,
        catalog=handle.document.spec,
        settings=settings,
        catalog_version=catalog_version(handle),
        memory_factor=memory_factor,
    )


def job(attempt: JobAttempt) -> dict[str, Any]:
    """Return the batch/v1 Job: one pod, never started twice, gone before another is counted."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            **_metadata(attempt),
            "name": attempt.record.name,
            "namespace": attempt.owner.namespace,
            "ownerReferences": [_owner(attempt)],
        },
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "podReplacementPolicy": "Failed",
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "ttlSecondsAfterFinished": TTL_SECONDS,
            "template": {"metadata": _pod_metadata(attempt), "spec": _pod(attempt)},
        },
    }


def labels(attempt: JobAttempt) -> dict[str, str]:
    """Return the labels of the Job and its pod. Executors carry only LAYOUT_LABEL, by which live
    pods are found."""
    return {
        "app.kubernetes.io/name": "layout-job",
        "app.kubernetes.io/managed-by": "layout-reconciler",
        LAYOUT_LABEL: attempt.owner.name,
        PLAN_LABEL: attempt.record.plan_id,
        ATTEMPT_LABEL: str(attempt.record.attempt),
    }


def _metadata(attempt: JobAttempt) -> dict[str, Any]:
    return {
        "labels": labels(attempt),
        "annotations": {
            DIGEST_ANNOTATION: attempt.record.digest,
            CATALOG_ANNOTATION: attempt.catalog_version,
        },
    }


def _pod_metadata(attempt: JobAttempt) -> dict[str, Any]:
    """Ours win over the template's."""
    template, own = attempt.catalog.jobs.pod_template, _metadata(attempt)
    return {
        "labels": {**template_labels(template), **own["labels"]},
        "annotations": {**template_annotations(template), **own["annotations"]},
    }


def _owner(attempt: JobAttempt) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "TableLayout",
        "name": attempt.owner.name,
        "uid": attempt.owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _pod(attempt: JobAttempt) -> dict[str, Any]:
    template = attempt.catalog.jobs.pod_template
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "serviceAccountName": _service_account(attempt),
        # A Spark driver creates its executors; a pod that works alone calls no API server.
        "automountServiceAccountToken": not attempt.local,
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        **placement(template),
        "containers": [_driver(attempt)],
        "volumes": _volumes(attempt),
    }


def _service_account(attempt: JobAttempt) -> str:
    return attempt.catalog.jobs.service_account_name or attempt.settings.driver_service_account


def _driver(attempt: JobAttempt) -> dict[str, Any]:
    cores, size = _size(attempt)
    memory = _mebibytes(size * attempt.memory_factor)
    return {
        "name": CONTAINER,
        "image": _image(attempt),
        "args": ["driver"],
        "env": _environment(attempt),
        "resources": {
            "requests": {"cpu": str(cores), "memory": memory},
            "limits": {"memory": memory},
        },
        "securityContext": container_security(),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": _mounts(attempt),
    }


def _size(attempt: JobAttempt) -> tuple[int, int]:
    """Return the cores and the memory of the pod."""
    driver, executors = attempt.engine.driver, attempt.engine.executors
    if attempt.local:
        return executors.cores, local_pod(executors.memory_bytes, executors.cores)
    return driver.cores, driver_pod(driver.memory_bytes, driver.cores)


def _image(attempt: JobAttempt) -> str:
    if attempt.local and attempt.settings.local_image and not attempt.catalog.jobs.image:
        return attempt.settings.local_image
    return attempt.catalog.jobs.image or attempt.settings.image


def _environment(attempt: JobAttempt) -> list[dict[str, Any]]:
    """Return the driver's input. It holds no secret: credentials are files of the mounted
    secret."""
    settings = attempt.settings
    return [
        *template_environment(attempt.catalog.jobs.pod_template),
        {"name": "LAYOUT_RUN", "value": literal(attempt.run)},
        {"name": "LAYOUT_IMAGE", "value": literal(_image(attempt))},
        {
            "name": "LAYOUT_EXECUTOR_SERVICE_ACCOUNT",
            "value": literal(attempt.settings.executor_service_account),
        },
        {"name": "LAYOUT_MEMORY_PERCENT", "value": str(round(attempt.memory_factor * 100))},
        {
            "name": "LAYOUT_ALLOWED_NETWORKS",
            "value": ",".join(map(str, settings.allowed_networks)),
        },
        {"name": "LAYOUT_LOCAL_FILES", "value": str(settings.local_files).lower()},
        _field("LAYOUT_NAME", f"metadata.labels['{LAYOUT_LABEL}']"),
        _field("POD_NAME", "metadata.name"),
        _field("POD_NAMESPACE", "metadata.namespace"),
        _field("POD_IP", "status.podIP"),
    ]


def _field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _mebibytes(size: float) -> str:
    return f"{math.ceil(size / MIB)}Mi"


def _volumes(attempt: JobAttempt) -> list[dict[str, Any]]:
    return [
        *work_volumes(),
        *_secret_volume(attempt),
        *template_volumes(attempt.catalog.jobs.pod_template),
    ]


def _mounts(attempt: JobAttempt) -> list[dict[str, Any]]:
    return [
        *work_mounts(),
        *_secret_mount(attempt),
        *template_mounts(attempt.catalog.jobs.pod_template),
    ]


def _secret_volume(attempt: JobAttempt) -> list[dict[str, Any]]:
    if attempt.catalog.secret is None:
        return []
    secret = {"secretName": attempt.catalog.secret.name, "defaultMode": 0o440}
    return [{"name": "catalog", "secret": secret}]


def _secret_mount(attempt: JobAttempt) -> list[dict[str, Any]]:
    if attempt.catalog.secret is None:
        return []
    return [{"name": "catalog", "mountPath": SECRET_DIRECTORY, "readOnly": True}]
