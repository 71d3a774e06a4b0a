"""The Job of an attempt on the test cluster: a driver pod, two executors, a rewritten table.

The short form is the first test of tests/operator/test_installed.py.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.documents import Driver, Engine, Executors, Jobs
from reconciler.api.pod_template import Reference
from reconciler.api.run_document import RunDocument
from reconciler.kube.api import Api
from reconciler.kube.kinds import JOB, POD
from reconciler.kube.names import job_name, table_layout_name
from reconciler.kube.pods import LAYOUT_LABEL
from reconciler.operator.job_record import JobRecord, Phase
from reconciler.operator.launch.job_manifest import JobAttempt, Owner, job
from reconciler.operator.settings import OperatorSettings
from reconciler.spark.session import class_archive
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import Kubectl, eventually
from tests.conftest import sqlite_catalog
from tests.loop.runs import Prepared, prepared
from tests.operator.scene import find_process

MIB = 1 << 20
ENGINE = Engine(Driver(1, 768 * MIB), Executors(2, 1, 512 * MIB), 1)
PLANTED = "planted-hunter2-value"
VERBS = "create,get,list,watch,delete,deletecollection"


@pytest.fixture
def made() -> Iterator[Prepared]:
    """Outside of /tmp, which every driver pod has to itself."""
    from pyiceberg.catalog.sql import SqlCatalog

    directory = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="layout-"))
    (directory / "warehouse").mkdir()
    config = sqlite_catalog(directory)
    catalog = SqlCatalog(config.name, **dict(config.properties))
    yield prepared(config, catalog, directory / "plans", partitions=2)
    shutil.rmtree(directory, ignore_errors=True)


def identity(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "serviceaccount", "layout-spark")
    kubectl("create", "role", "layout-spark", f"--verb={VERBS}", "--resource=pods")
    account = f"--serviceaccount={namespace}:layout-spark"
    kubectl("create", "rolebinding", "layout-spark", "--role=layout-spark", account)
    kubectl(
        "create", "secret", "generic", "credentials", f"--from-literal=gcs.oauth2.token={PLANTED}"
    )


def manifest(run: RunDocument, namespace: str, image: str) -> dict[str, Any]:
    layout = table_layout_name("test", run.table)
    name = job_name(layout, run.plan_id, run.attempt)
    made = job(
        JobAttempt(
            record=JobRecord(
                name, "", run.plan_id, run.plan_digest, run.attempt, Phase.PENDING,
                dt.datetime.now(dt.UTC), 0, 0,
            ),
            local=False,
            owner=Owner(namespace, layout, "00000000-0000-4000-8000-000000000000"),
            run=run.text(),
            engine=ENGINE,
            catalog=replace(run.catalog.spec, jobs=Jobs(), secret=Reference("credentials")),
            settings=OperatorSettings(
                image=image, driver_service_account="layout-spark", executor_service_account="",
                local_files=True,
            ),
        )
    )  # fmt: skip
    del made["metadata"]["ownerReferences"]  # there is no TableLayout: it would be collected
    return made


def sized(run: RunDocument) -> RunDocument:
    return replace(run, policy=replace(run.policy, spec=replace(run.policy.spec, engine=ENGINE)))


def files_of_the_executor(pod: str) -> dict[str, str]:
    """What its JVM has mapped into memory by now, by the pod's name; of no executor: nothing."""
    pid = find_process(f"SPARK_EXECUTOR_POD_NAME={pod}", "KubernetesExecutorBackend")
    try:
        return {pod: Path(f"/proc/{pid}/maps").read_text()} if pid else {}
    except OSError:  # it ended meanwhile
        return {}


@pytest.mark.soak
@pytest.mark.jvm
def test_a_job_rewrites_its_table_on_two_executors_and_says_what_it_did(
    made: Prepared, kubelet: Cluster, kubectl: Kubectl, namespace: str, spark_image: str
) -> None:
    before = made.rows()
    identity(kubectl, namespace)
    body = manifest(sized(made.run), namespace, spark_image)
    name = body["metadata"]["name"]
    kubectl("apply", "-f", "-", stdin=json.dumps(body))
    api = Api.from_environment(str(kubelet.kubeconfig))
    label = {LAYOUT_LABEL: body["metadata"]["labels"][LAYOUT_LABEL]}
    seen: dict[str, Any] = {}
    mapped: dict[str, str] = {}

    def ended() -> Any:
        for pod in api.list(POD, namespace, label):
            seen[pod["metadata"]["name"]] = pod
            mapped.update(files_of_the_executor(pod["metadata"]["name"]))
        return (api.get(JOB, namespace, name).get("status") or {}).get("conditions")

    eventually(ended, 800)
    log = kubectl("logs", f"job/{name}")
    pods = json.loads(kubectl("get", "pods", "-l", f"job-name={name}", "-o", "json"))["items"]
    (state,) = [pod["status"]["containerStatuses"][0]["state"]["terminated"] for pod in pods]
    assert state["exitCode"] == 0, log[-6000:]
    words = json.loads(state["message"])
    assert (words["planId"], words["attempt"]) == (made.plan.id, 1)
    assert words["commits"] >= 1
    assert made.rows() == before
    assert made.store.open_intents(made.plan.table_uuid) == ()
    executors = [p for n, p in seen.items() if p["metadata"]["labels"].get("spark-role")]
    assert len(executors) == 2
    archive = class_archive.archive()
    if archive is not None:
        assert [archive.name in files for files in mapped.values()] == [True, True]
    for pod in executors:
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert not [v for v in pod["spec"]["volumes"] if "secret" in v or "projected" in v]
        assert pod["metadata"]["ownerReferences"][0]["name"] == pods[0]["metadata"]["name"]
    assert PLANTED not in log + json.dumps(seen) + json.dumps(pods)
