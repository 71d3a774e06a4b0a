"""The common parts of driver and executor pods: labels, security, writable places, placement.

Pure. The operator builds the driver's Job from it, and the driver its executors' pod template.
Both must agree, because live pods of a table are found by label.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.api.pod_template import PodMetadata, PodSpec, PodTemplate, Toleration, Variable
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
CA_DIRECTORY = "/etc/layout/ca"
CA_FILE = "ca.crt"
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")
WORK_DIRECTORY = "/scratch"
EXECUTOR = "executor"
USER = 185
"""The user of the job image, as in Spark's own images."""


def ended(pod: Mapping[str, Any]) -> bool:
    """Whether a pod's containers have ended and will not restart."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def container_states(pod: Mapping[str, Any], state: str) -> Iterator[Mapping[str, Any]]:
    """Yield, for each container of the pod, what is said of that state (waiting, terminated), {} if
    it is in another."""
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        yield (container.get("state") or {}).get(state) or {}


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


def placement(template: PodTemplate | None) -> dict[str, Any]:
    """Where the catalog's pod template lets pods run and how they get their image; absent where it
    says nothing."""
    spec = (template.spec if template else None) or PodSpec()
    placed: dict[str, Any] = {
        "nodeSelector": dict(spec.node_selector),
        "tolerations": [_toleration(item) for item in spec.tolerations],
        "affinity": dict(spec.affinity),
        "priorityClassName": spec.priority_class_name,
        "imagePullSecrets": [{"name": item.name} for item in spec.image_pull_secrets],
    }
    return {key: value for key, value in placed.items() if value}


def template_labels(template: PodTemplate | None) -> dict[str, str]:
    return dict(_metadata(template).labels)


def template_annotations(template: PodTemplate | None) -> dict[str, str]:
    return dict(_metadata(template).annotations)


def _metadata(template: PodTemplate | None) -> PodMetadata:
    return (template.metadata if template else None) or PodMetadata()


def template_environment(template: PodTemplate | None) -> list[dict[str, Any]]:
    """Variables of the catalog's pod template, and those by which Python's clients find its CAs."""
    if template is None:
        return []
    found = [_variable(item) for item in template.env]
    if template.ca_bundle is not None:
        path = f"{CA_DIRECTORY}/{CA_FILE}"
        found += [{"name": name, "value": path} for name in CA_VARIABLES]
    return found


def _variable(item: Variable) -> dict[str, Any]:
    if item.value_from is None:
        return {"name": item.name, "value": literal(item.value or "")}
    source = item.value_from.config_map_key
    reference = {"name": source.name, "key": source.key}
    return {"name": item.name, "valueFrom": {"configMapKeyRef": reference}}


def literal(text: str) -> str:
    """Kubernetes expands $(NAME) in values; $$ is a dollar sign."""
    return text.replace("$", "$$")


def template_volumes(template: PodTemplate | None) -> list[dict[str, Any]]:
    if template is None or template.ca_bundle is None:
        return []
    bundle = template.ca_bundle
    items = [{"key": bundle.key, "path": CA_FILE}]
    return [{"name": "ca", "configMap": {"name": bundle.name, "items": items}}]


def template_mounts(template: PodTemplate | None) -> list[dict[str, Any]]:
    if template is None or template.ca_bundle is None:
        return []
    return [{"name": "ca", "mountPath": CA_DIRECTORY, "readOnly": True}]


def _toleration(item: Toleration) -> dict[str, Any]:
    body = {
        "key": item.key,
        "operator": item.operator,
        "value": item.value,
        "effect": item.effect,
        "tolerationSeconds": item.toleration_seconds,
    }
    return {key: value for key, value in body.items() if value is not None}


def executor_template(
    layout_name: str, service_account: str, template: PodTemplate | None
) -> dict[str, Any]:
    """Return the pod that Spark completes for each executor: placed like the driver, without a
    token.

    service_account: "" for the namespace's default one.
    """
    identity = {"serviceAccountName": service_account} if service_account else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "labels": {
                **template_labels(template),
                "app.kubernetes.io/name": "layout-executor",
                "app.kubernetes.io/managed-by": "layout-reconciler",
                LAYOUT_LABEL: layout_name,
            },
            "annotations": template_annotations(template),
        },
        "spec": {
            **identity,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": pod_security(),
            **placement(template),
            "containers": [
                {
                    "name": EXECUTOR,
                    "env": template_environment(template),
                    "securityContext": container_security(),
                    "volumeMounts": [*work_mounts(), *template_mounts(template)],
                }
            ],
            "volumes": [*work_volumes(), *template_volumes(template)],
        },
    }
