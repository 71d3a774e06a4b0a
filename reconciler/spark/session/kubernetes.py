"""Configures Spark in client mode on Kubernetes: the driver is a pod of a Job, executors are its
pods.

Pure: computes the session's configuration from the policy's sizing, the catalog's platform settings
and the pod's own name and address. Executors die with the driver, because its pod owns them. They
carry the table's label, because live pods of a table are found by label.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.api.documents import Engine, Jobs
from reconciler.api.spark_settings import refused_settings
from reconciler.api.task_memory import executor_heap, executor_overhead
from reconciler.errors import UserError
from reconciler.kube.pods import EXECUTOR, WORK_DIRECTORY

TOKEN_DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"
DRIVER_PORT, BLOCK_MANAGER_PORT = 7078, 7079
"""Fixed, so that a network policy can name them; every pod has its own address."""
PREFIX_LENGTH = 47
"""Spark's limit for the prefix of an executor pod's name."""
PATIENCE_MS = 60_000
"""Timeout for an answer of the API server: Spark's own ten seconds are too short for a busy one."""
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class DriverPod:
    """The pod that this process runs in."""

    name: str
    """Name of the pod."""
    namespace: str
    """Its namespace."""
    address: str
    """Its IP address, at which executors reach it."""
    server: str
    """host:port of the API server."""
    image: str
    """Its image, which executors run too."""
    layout: str
    """Value of the label that names the table's layout."""
    memory_factor: float = 1.0
    """Above 1 for the retry after running out of memory."""
    executor_service_account: str = ""
    """Service account of executors, "" for the namespace's default."""


def driver_pod(environ: Mapping[str, str]) -> DriverPod | None:
    """Return the pod as its environment describes it; None outside of Kubernetes.

    Raises UserError for a pod without the settings that the operator's Jobs have.
    """
    if "KUBERNETES_SERVICE_HOST" not in environ:
        return None
    needed = ("POD_NAME", "POD_NAMESPACE", "POD_IP", "LAYOUT_IMAGE", "LAYOUT_NAME")
    missing = [name for name in needed if not environ.get(name)]
    if missing:
        raise UserError(
            f"the driver's pod lacks {', '.join(missing)} in its environment",
            details=("The operator's Jobs set them; this pod was created by something else.",),
            do="let the operator start jobs, or run layoutctl apply outside of the cluster",
        )
    host = _bracketed(environ["KUBERNETES_SERVICE_HOST"])
    return DriverPod(
        name=environ["POD_NAME"],
        namespace=environ["POD_NAMESPACE"],
        address=_bracketed(environ["POD_IP"]),
        server=f"{host}:{environ.get('KUBERNETES_SERVICE_PORT', '443')}",
        image=environ["LAYOUT_IMAGE"],
        layout=environ["LAYOUT_NAME"],
        memory_factor=int(environ.get("LAYOUT_MEMORY_PERCENT", "100")) / 100,
        executor_service_account=environ.get("LAYOUT_EXECUTOR_SERVICE_ACCOUNT", ""),
    )


def _bracketed(address: str) -> str:
    """Return the address, IPv6 in brackets as Spark and URLs require."""
    return f"[{address}]" if ":" in address and not address.startswith("[") else address


def kubernetes_conf(pod: DriverPod, engine: Engine, jobs: Jobs, template: str) -> dict[str, str]:
    """Return the settings of the session. template: path of the executors' pod template.

    Raises UserError for settings of the catalog's sparkConf that are not allowed.
    """
    refused = refused_settings(jobs.spark_conf)
    if refused:
        raise UserError(
            f"spec.jobs.sparkConf of the catalog sets {next(iter(refused))}, which is not allowed",
            details=tuple(f"{name}: {why}" for name, why in list(refused.items())[:5]),
            do="remove it from the IcebergCatalog",
        )
    return {
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        **_overhead(pod, engine, jobs),
        **jobs.spark_conf,
        **_identity(pod),
        **_addresses(pod),
        **_sizes(pod, engine),
        **_executors(pod, template),
    }


def _identity(pod: DriverPod) -> dict[str, str]:
    return {
        "spark.master": f"k8s://https://{pod.server}",
        "spark.kubernetes.namespace": pod.namespace,
        "spark.kubernetes.authenticate.caCertFile": f"{TOKEN_DIRECTORY}/ca.crt",
        "spark.kubernetes.authenticate.oauthTokenFile": f"{TOKEN_DIRECTORY}/token",
        "spark.kubernetes.driver.pod.name": pod.name,
        "spark.kubernetes.driver.connectionTimeout": str(PATIENCE_MS),
        "spark.kubernetes.driver.requestTimeout": str(PATIENCE_MS),
    }


def _addresses(pod: DriverPod) -> dict[str, str]:
    return {
        "spark.driver.host": pod.address,
        "spark.driver.bindAddress": pod.address,
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCK_MANAGER_PORT),
    }


def _sizes(pod: DriverPod, engine: Engine) -> dict[str, str]:
    """Return the sizes: spec.engine's memory of the driver is its heap, that of executors is for
    Python; the pods get what else they need on top."""
    executors = engine.executors
    slots = executors.instances * executors.cores
    return {
        "spark.driver.memory": _memory(engine.driver.memory_bytes, pod),
        "spark.driver.cores": str(engine.driver.cores),
        "spark.executor.instances": str(executors.instances),
        "spark.executor.cores": str(executors.cores),
        "spark.executor.memory": _memory(executor_heap(executors.cores), pod),
        "spark.default.parallelism": str(slots),
        "spark.dynamicAllocation.enabled": "false",
        "spark.local.dir": f"{WORK_DIRECTORY}/spark",
        # A driver that is out of memory must end, with a cause, instead of running on half its
        # threads.
        "spark.driver.extraJavaOptions": "-XX:+ExitOnOutOfMemoryError",
    }


def _overhead(pod: DriverPod, engine: Engine, jobs: Jobs) -> dict[str, str]:
    """Return the setting, unless the catalog's owner has a factor of their own."""
    if "spark.executor.memoryOverheadFactor" in jobs.spark_conf:
        return {}
    executors = engine.executors
    size = executor_overhead(executors.memory_bytes, executors.cores)
    return {"spark.executor.memoryOverhead": _memory(size, pod)}


def _memory(size: int, pod: DriverPod) -> str:
    return f"{math.ceil(size * pod.memory_factor / MIB)}m"


def _executors(pod: DriverPod, template: str) -> dict[str, str]:
    """Return the executors' settings; the API server is asked for pods only, no config maps,
    services or volume claims."""
    found = {
        "spark.kubernetes.container.image": pod.image,
        "spark.kubernetes.executor.podTemplateFile": template,
        "spark.kubernetes.executor.podTemplateContainerName": EXECUTOR,
        "spark.kubernetes.executor.deleteOnTermination": "true",
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
    }
    if len(pod.name) <= PREFIX_LENGTH:
        found["spark.kubernetes.executor.podNamePrefix"] = pod.name
    return found
