"""Spark's configuration in a driver pod: sized by the policy, bound to the pod, pods only."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.documents import Driver, Engine, Executors, Jobs
from reconciler.api.task_memory import (
    LEAST_TASK,
    PYTHON,
    Limits,
    executor_heap,
    executor_overhead,
    of_task,
    outside_heap,
)
from reconciler.errors import UserError
from reconciler.kube.pods import executor_template
from reconciler.spark.session.kubernetes import DriverPod, driver_pod, kubernetes_conf

GIB = 1 << 30
ENGINE = Engine(Driver(1, 2 * GIB), Executors(4, 2, 4 * GIB), 2)
ENVIRON = {
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "KUBERNETES_SERVICE_PORT": "6443",
    "POD_NAME": "tl-7k2m5qd4xz-3f9a1c0b77de-1-x7k2p",
    "POD_NAMESPACE": "analytics",
    "POD_IP": "10.1.2.3",
    "LAYOUT_IMAGE": "layout-reconciler/job:0.1.0",
    "LAYOUT_NAME": "sales.lineitem-7k2m5qd4xz",
}


def pod(**changes: str) -> DriverPod:
    found = driver_pod({**ENVIRON, **changes})
    assert found is not None
    return found


def conf(of: DriverPod, jobs: Jobs = Jobs()) -> dict[str, str]:
    return kubernetes_conf(of, ENGINE, jobs, "/work/executor.yaml")


def test_outside_of_a_cluster_there_is_no_pod() -> None:
    assert driver_pod({}) is None


def test_a_pod_of_someone_else_is_refused() -> None:
    with pytest.raises(UserError, match="POD_IP"):
        driver_pod({**ENVIRON, "POD_IP": ""})


def test_the_driver_speaks_to_its_own_api_server_as_itself() -> None:
    made = conf(pod())
    assert made["spark.master"] == "k8s://https://10.0.0.1:6443"
    assert made["spark.kubernetes.namespace"] == "analytics"
    assert made["spark.kubernetes.driver.pod.name"] == ENVIRON["POD_NAME"]
    assert made["spark.driver.host"] == made["spark.driver.bindAddress"] == "10.1.2.3"
    assert made["spark.kubernetes.authenticate.oauthTokenFile"].endswith("/token")


def test_addresses_of_ipv6_are_in_brackets() -> None:
    made = conf(pod(POD_IP="fd00::7", KUBERNETES_SERVICE_HOST="fd00::1"))
    assert made["spark.driver.host"] == "[fd00::7]"
    assert made["spark.master"] == "k8s://https://[fd00::1]:6443"


def test_the_policy_sizes_driver_and_executors() -> None:
    made = conf(pod())
    assert made["spark.executor.instances"] == "4"
    assert made["spark.executor.cores"] == "2"
    assert made["spark.executor.memory"] == "1024m"
    assert made["spark.driver.memory"] == "2048m"
    assert made["spark.default.parallelism"] == "8"


def test_a_retry_after_out_of_memory_raises_both() -> None:
    made = conf(pod(LAYOUT_MEMORY_PERCENT="150"))
    assert made["spark.executor.memory"] == "1536m"
    assert made["spark.driver.memory"] == "3072m"


def test_pods_of_executors_give_their_memory_to_python() -> None:
    """Of 4 GiB and two cores: all of it, beside a small heap and what its JVM takes besides."""
    assert conf(pod())["spark.executor.memoryOverhead"] == f"{384 + 4096}m"
    own = Jobs(spark_conf={"spark.executor.memoryOverhead": "1g"})
    assert conf(pod(), own)["spark.executor.memoryOverhead"] == "1g"
    factor = Jobs(spark_conf={"spark.executor.memoryOverheadFactor": "0.5"})
    assert "spark.executor.memoryOverhead" not in conf(pod(), factor)


@given(st.integers(1 << 20, 1 << 42), st.integers(1, 64))
def test_no_task_gets_memory_that_its_pod_does_not_have(memory: int, cores: int) -> None:
    heap, beside = executor_heap(cores), executor_overhead(memory, cores)
    task = of_task(beside, heap, cores)
    assert outside_heap(heap) + cores * (PYTHON + task) <= beside
    assert Limits.within(task).memory_bytes <= task
    wanted = memory // cores - PYTHON
    assert task == max(LEAST_TASK, wanted)


@given(st.integers(2 << 30, 1 << 42), st.integers(1, 8))
def test_a_pod_is_no_larger_than_with_the_heap_that_spark_needed_to_sort(
    memory: int, cores: int
) -> None:
    """Of at least 512 MiB for each core, without which Python had too little."""
    memory = max(memory, cores << 29)
    by_spark = memory + max(384 << 20, memory // 10) + cores * (256 << 20)
    by_spark += cores * min(512 << 20, max(128 << 20, memory // (4 * cores)))
    assert executor_heap(cores) + executor_overhead(memory, cores) <= by_spark + (1 << 20)


def test_the_catalog_may_tune_but_not_override() -> None:
    tuned = conf(pod(), Jobs(spark_conf={"spark.network.timeout": "300s"}))
    assert tuned["spark.network.timeout"] == "300s"
    with pytest.raises(UserError, match=r"spark\.executor\.memory"):
        conf(pod(), Jobs(spark_conf={"spark.executor.memory": "900g"}))
    with pytest.raises(UserError, match=r"spark\.plugins"):
        conf(pod(), Jobs(spark_conf={"spark.plugins": "org.example.Plugin"}))


def test_the_api_server_is_asked_for_pods_only() -> None:
    made = conf(pod())
    assert made["spark.kubernetes.executor.disableConfigMap"] == "true"
    assert made["spark.kubernetes.driver.ownPersistentVolumeClaim"] == "false"


@given(st.text("abc-0123456789", min_size=1, max_size=63))
def test_a_prefix_is_given_only_where_spark_takes_it(name: str) -> None:
    prefix = conf(replace(pod(), name=name)).get("spark.kubernetes.executor.podNamePrefix")
    assert prefix == (name if len(name) <= 47 else None)


def test_executors_run_as_the_account_that_the_operator_names() -> None:
    asked = pod(LAYOUT_EXECUTOR_SERVICE_ACCOUNT="layout-executor")
    assert asked.executor_service_account == "layout-executor"
    spec = executor_template(asked.layout, asked.executor_service_account, None)["spec"]
    assert spec["serviceAccountName"] == "layout-executor"
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in executor_template("orders", "", None)["spec"]
