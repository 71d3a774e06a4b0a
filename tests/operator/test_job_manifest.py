"""Manifests: golden files, and what holds for every attempt."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.documents import Engine, Jobs
from reconciler.api.pod_template import (
    ConfigMapKey,
    PodMetadata,
    PodSpec,
    PodTemplate,
    Reference,
    Toleration,
    Variable,
    VariableSource,
)
from reconciler.api.task_memory import driver_pod
from reconciler.kube.names import job_name, table_layout_name
from reconciler.kube.pods import LAYOUT_LABEL, executor_template
from reconciler.operator.job_record import JobRecord, Phase
from reconciler.operator.launch.job_manifest import JobAttempt, Owner, job
from reconciler.operator.settings import OperatorSettings
from tests.api.test_run_document import document, run_document
from tests.said import WRITING


def golden(name: str) -> Path:
    return Path(__file__).parent / "golden" / f"{name}.yaml"


RUN = run_document()


LAYOUT = table_layout_name("warehouse", RUN.table)


def attempt(
    jobs: Jobs | None = None, secret: str = "", number: int = 1, **changes: Any
) -> JobAttempt:
    engine = RUN.policy.spec.engine
    assert isinstance(engine, Engine)
    written = dt.datetime(2026, 3, 29, 12, tzinfo=dt.UTC)
    record = JobRecord(
        job_name(LAYOUT, RUN.plan_id, RUN.attempt), "", RUN.plan_id, RUN.plan_digest, number,
        Phase.PENDING, written, 0, 0,
    )  # fmt: skip
    made = JobAttempt(
        record=record,
        owner=Owner("analytics", LAYOUT, "6f0f6d8e-0000-4000-8000-000000000001"),
        run=RUN.text(),
        local=False,
        engine=engine,
        catalog=replace(
            RUN.catalog.spec, jobs=jobs or Jobs(), secret=Reference(secret) if secret else None
        ),
        settings=OperatorSettings(
            image="layout-reconciler/job:0.1.0",
            driver_service_account="layout-driver",
            executor_service_account="layout-executor",
        ),
    )
    return replace(made, **changes)


PLACED = Jobs(
    service_account_name="layout-spark",
    image="registry.example/job@sha256:" + "b" * 64,
    spark_conf={"spark.sql.shuffle.partitions": "64"},
    pod_template=PodTemplate(
        PodSpec({"pool": "batch"}, (Toleration(key="batch", operator="Exists"),))
    ),
)
TEMPLATE = PodTemplate(
    PodSpec(
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "arch", "operator": "Exists"}]}]
        }}},
        priority_class_name="batch-low",
        image_pull_secrets=(Reference("registry"),),
    ),
    PodMetadata({"team": "data", LAYOUT_LABEL: "another"}, {"example.com/mesh": "off"}),
    (
        Variable("HTTPS_PROXY", "http://proxy:3128/$(POD_IP)"),
        Variable("NO_PROXY", None, VariableSource(ConfigMapKey("proxy", "no-proxy"))),
        Variable("LAYOUT_RUN", "another"),
    ),
    ConfigMapKey("corporate-ca", "ca.pem"),
)  # fmt: skip
CASES = {
    "job-plain": job(attempt()),
    "job-placed-with-secret": job(attempt(jobs=PLACED, secret="warehouse-credentials")),
    "job-with-a-pod-template": job(attempt(jobs=Jobs(pod_template=TEMPLATE))),
    "executor-with-a-pod-template": executor_template("orders", "layout-executor", TEMPLATE),
    "job-after-out-of-memory": job(attempt(memory_factor=1.5, number=2)),
    "job-without-spark": job(attempt(local=True)),
}


def test_a_job_without_spark_has_an_image_of_its_own_unless_the_catalog_names_one() -> None:
    made = attempt(local=True)
    made = replace(made, settings=replace(made.settings, local_image="layout-reconciler/local:1"))
    placed = replace(made, catalog=replace(made.catalog, jobs=PLACED))
    other = replace(made, local=False)
    images = [job(one)["spec"]["template"]["spec"]["containers"][0]["image"]
              for one in (made, placed, other)]  # fmt: skip
    assert images == ["layout-reconciler/local:1", PLACED.image, "layout-reconciler/job:0.1.0"]


@pytest.mark.parametrize("name", CASES)
def test_manifests_are_as_reviewed(name: str) -> None:
    """`make golden` writes them anew; then read the difference."""
    path = golden(name)
    if WRITING:
        path.write_text(yaml.safe_dump(CASES[name], sort_keys=False), encoding="utf-8")
    assert yaml.safe_load(path.read_text(encoding="utf-8")) == CASES[name]


def pod(manifest: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return spec


@given(st.text("$(){}PODNAME_a", max_size=40))
def test_no_text_of_a_policy_is_expanded_by_kubernetes(text: str) -> None:
    container = pod(job(attempt(run=text)))["containers"][0]
    value = next(item["value"] for item in container["env"] if item["name"] == "LAYOUT_RUN")
    assert value.replace("$$", "").count("$") == 0
    assert value.replace("$$", "$") == text


def test_a_job_runs_once_and_waits_for_its_pod_to_be_gone() -> None:
    spec = job(attempt())["spec"]
    assert (spec["backoffLimit"], spec["podReplacementPolicy"]) == (0, "Failed")
    assert pod(job(attempt()))["restartPolicy"] == "Never"
    assert pod(job(attempt()))["terminationGracePeriodSeconds"] == 120


def test_credentials_are_files_of_a_read_only_mount_and_nothing_else() -> None:
    made = pod(job(attempt(secret="warehouse-credentials")))
    names = [item["name"] for item in made["containers"][0]["env"]]
    assert not [name for name in names if "SECRET" in name or "TOKEN" in name]
    mount = next(m for m in made["containers"][0]["volumeMounts"] if m["name"] == "catalog")
    assert mount == {"name": "catalog", "mountPath": "/etc/layout/catalog", "readOnly": True}
    assert "secretKeyRef" not in str(made)


def test_the_job_and_its_pod_carry_the_label_that_liveness_is_asked_by() -> None:
    made = job(attempt())
    assert made["metadata"]["labels"][LAYOUT_LABEL] == LAYOUT
    assert made["spec"]["template"]["metadata"]["labels"][LAYOUT_LABEL] == LAYOUT


@given(st.integers(1 << 20, 1 << 42), st.integers(1, 16))
def test_the_container_is_larger_than_the_heap(heap: int, cores: int) -> None:
    """By Spark's own figures, and by 128 MiB at least for each thread that compares small work."""
    assert driver_pod(heap, cores) >= heap + ((384 + 128 * cores) << 20)


def test_a_retry_after_out_of_memory_has_half_as_much_again() -> None:
    def limit(made: dict[str, Any]) -> int:
        text = pod(made)["containers"][0]["resources"]["limits"]["memory"]
        return int(text.removesuffix("Mi"))

    assert limit(job(attempt(memory_factor=1.5))) == pytest.approx(
        1.5 * limit(job(attempt())), abs=2
    )


def test_the_policy_sizes_the_driver() -> None:
    policy = document(
        "TableLayoutPolicy",
        catalogRef={"name": "warehouse"},
        tables={"include": ["sales.*"]},
        engine={"driver": {"cores": 3, "memory": "8Gi"}},
    )
    resources = pod(job(attempt(engine=policy.spec.engine)))["containers"][0]["resources"]
    assert resources["requests"]["cpu"] == "3"
    assert resources["limits"]["memory"] == f"{-(-8192 * 14 // 10) + 3 * 512}Mi"


def test_a_pod_template_can_not_replace_what_the_reconciler_sets() -> None:
    """Even where the document was not checked: a later variable wins, and so do our labels."""
    pod = CASES["job-with-a-pod-template"]["spec"]["template"]
    assert pod["metadata"]["labels"][LAYOUT_LABEL] == LAYOUT
    (driver,) = pod["spec"]["containers"]
    values = [item["value"] for item in driver["env"] if item["name"] == "LAYOUT_RUN"]
    assert values[-1] == RUN.text().replace("$", "$$")
    executor = CASES["executor-with-a-pod-template"]
    assert executor["metadata"]["labels"][LAYOUT_LABEL] == "orders"
    assert executor["spec"]["automountServiceAccountToken"] is False


def test_driver_and_executors_get_the_same_environment_and_certificates() -> None:
    driver = CASES["job-with-a-pod-template"]["spec"]["template"]["spec"]
    executor = CASES["executor-with-a-pod-template"]["spec"]
    environment = executor["containers"][0]["env"]
    assert all(item in driver["containers"][0]["env"] for item in environment)
    assert executor["volumes"][-1] == driver["volumes"][-1]
    assert executor["containers"][0]["volumeMounts"][-1]["name"] == "ca"
