"""The common parts of driver and executor pods: labels, security, writable places, placement.

Pure. `reconciler.kube` builds the driver's Job from it, and the driver its executors' pod template.
Both must agree, because live pods of a table are found by label.
"""

from __future__ import annotations

from typing import Any

from reconciler.api.documents import PodSpec, Toleration
from reconciler.api.version import GROUP

LAYOUT_LABEL = f"{GROUP}/layout"
"""Label on every object that works on a table; its value is the name of the TableLayout."""
PLAN_LABEL = f"{GROUP}/plan"
ATTEMPT_LABEL = f"{GROUP}/attempt"
DIGEST_ANNOTATION = f"{GROUP}/plan-digest"
CATALOG_ANNOTATION = f"{GROUP}/catalog-version"
"""On a Job: hash of the version of the catalog and its secret that it was made from."""

SECRET_DIRECTORY = "/etc/layout/catalog"
"""Where the catalog's secret is mounted in the driver, one file per property."""
WORK_DIRECTORY = "/scratch"
EXECUTOR = "executor"
USER = 185
"""The user of the job image, as in Spark's own images."""


def pod_security() -> dict[str, Any]:
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def work_volumes() -> list[dict[str, Any]]:
    """Return the volumes that a read-only container may write to."""
    return [{"name": "tmp", "emptyDir": {}}, {"name": "work", "emptyDir": {}}]


def work_mounts() -> list[dict[str, Any]]:
    return [
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "work", "mountPath": WORK_DIRECTORY},
    ]


def placement(spec: PodSpec | None) -> dict[str, Any]:
    """Return nodeSelector and tolerations of the catalog's pod template; absent if not set
    there."""
    placed: dict[str, Any] = {}
    if spec is not None and spec.node_selector:
        placed["nodeSelector"] = dict(spec.node_selector)
    if spec is not None and spec.tolerations:
        placed["tolerations"] = [_toleration(item) for item in spec.tolerations]
    return placed


def _toleration(item: Toleration) -> dict[str, Any]:
    body = {
        "key": item.key,
        "operator": item.operator,
        "value": item.value,
        "effect": item.effect,
        "tolerationSeconds": item.toleration_seconds,
    }
    return {key: value for key, value in body.items() if value is not None}


def executor_template(layout_name: str, placed: PodSpec | None) -> dict[str, Any]:
    """Return the pod that Spark completes for each executor: placed like the driver, without a
    token."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "labels": {
                "app.kubernetes.io/name": "layout-executor",
                "app.kubernetes.io/managed-by": "layout-reconciler",
                LAYOUT_LABEL: layout_name,
            }
        },
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": pod_security(),
            **placement(placed),
            "containers": [
                {
                    "name": EXECUTOR,
                    "securityContext": container_security(),
                    "volumeMounts": work_mounts(),
                }
            ],
            "volumes": work_volumes(),
        },
    }
