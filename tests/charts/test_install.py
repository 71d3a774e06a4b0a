"""Installed into a real API server, by helm and by kubectl; each account may do what is listed."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts import sync
from reconciler.api.schema import spec_schema
from reconciler.api.version import API_VERSION
from reconciler.kube.api import Api
from reconciler.kube.errors import Forbidden
from reconciler.kube.kinds import POD, POLICY, SECRET, TABLE_LAYOUT
from reconciler.operator.index import REQUESTED_AT
from reconciler.operator.settings import from_environment
from tests.charts.conftest import Render, of_kind
from tests.charts.rights import Right, documented, granted
from tests.cluster.cluster import Cluster, KubectlError
from tests.cluster.fixtures import Kubectl, eventually
from tests.operator.cluster_objects import Recorder, operator, until

RELEASE = "chart-test"
OPERATOR = f"{RELEASE}-layout-reconciler"
LEASES = "coordination.k8s.io"

CATALOG = {
    "apiVersion": "layout.lakehouse.dev/v1alpha1",
    "kind": "IcebergCatalog",
    "metadata": {"name": "warehouse"},
    "spec": {"type": "rest", "catalogName": "warehouse", "properties": {"uri": "http://c:8181"}},
}
POLICY_BODY = {
    "apiVersion": "layout.lakehouse.dev/v1alpha1",
    "kind": "TableLayoutPolicy",
    "metadata": {"name": "sales"},
    "spec": {"catalogRef": {"name": "warehouse"}, "tables": {"include": ["sales.*"]}},
}
LAYOUT = {
    "metadata": {"name": "orders-aaaaaaaaaa"},
    "spec": {
        "catalogRef": {"name": "warehouse"},
        "table": {"namespace": ["sales"], "name": "orders"},
        "policyRef": {"name": "sales"},
    },
}
PLAN = "p-3f9a1c0b77de4c21a0be"


def run_helm(cluster: Cluster, helm: Path, *arguments: str) -> str:
    done = subprocess.run(
        [str(helm), *arguments],
        env=cluster.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(cluster: Cluster, helm: Path) -> Iterator[str]:
    """A namespace with the chart as it comes; --take-ownership, for other tests bring CRDs too."""
    namespace = "chart-install"
    run_helm(
        cluster, helm, "install", RELEASE, str(sync.CHART), "-n", namespace,
        "--create-namespace", "--take-ownership",
    )  # fmt: skip
    yield namespace
    run_helm(cluster, helm, "uninstall", RELEASE, "-n", namespace, "--ignore-not-found")
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.mark.parametrize("page", ["README.md", "docs/operations/install.md", "images/README.md"])
def test_the_pages_name_the_images_with_the_charts_version(page: str) -> None:
    """The operator's tag comes from the chart; the jobs' image is named in full."""
    root = sync.CHART.parents[1]
    version = yaml.safe_load((sync.CHART / "Chart.yaml").read_text())["appVersion"]
    text = (root / page).read_text()
    jobs = re.findall(r"layout-reconciler-job(\S*)", text)
    assert {tag.strip("`})") for tag in jobs} == {f":{version}"}
    for repository in re.findall(r"image\.repository=(\S+)", text):
        assert repository.endswith("/layout-reconciler")


def as_account(cluster: Cluster, namespace: str, account: str) -> Api:
    return Api.from_environment(str(cluster.user_kubeconfig(namespace, account)))


def rights_of(cluster: Cluster, namespace: str, account: str) -> set[Right]:
    """What the API server itself says that the account may do there, beyond what everyone may."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    answer = cluster.kubectl(
        "create", "--validate=false", "-f", "-", "-o", "json",
        stdin=json.dumps(review), kubeconfig=cluster.user_kubeconfig(namespace, account),
    )  # fmt: skip
    found = granted(json.loads(answer)["status"]["resourceRules"])
    return {right for right in found if right[0] not in EVERYONE}


EVERYONE = ("authorization.k8s.io", "authentication.k8s.io", "certificates.k8s.io")


def test_the_operators_account_may_do_what_is_listed_and_no_more(
    cluster: Cluster, installed: str
) -> None:
    assert rights_of(cluster, installed, OPERATOR) == documented("Operator")


def test_the_drivers_account_may_do_what_is_listed_and_no_more(
    cluster: Cluster, installed: str
) -> None:
    assert rights_of(cluster, installed, "layout-spark") == documented("Driver")


def test_an_executors_account_may_do_nothing(cluster: Cluster, installed: str) -> None:
    assert rights_of(cluster, installed, "layout-spark-executor") == set()


def test_no_account_reaches_another_namespace(
    cluster: Cluster, installed: str, namespace: str
) -> None:
    for account in (OPERATOR, "layout-spark"):
        api = as_account(cluster, installed, account)
        for kind in (POD, POLICY, SECRET):
            with pytest.raises(Forbidden):
                api.list(kind, namespace)


@dataclasses.dataclass
class Steward:
    """Somebody with the approver's role, and a TableLayout that the operator made."""

    cluster: Cluster
    api: Api
    operator: Api
    namespace: str
    name: str = str(LAYOUT["metadata"]["name"])

    def patch(self, body: dict[str, Any], manager: str = "kubectl-patch") -> dict[str, Any]:
        return self.api.patch(TABLE_LAYOUT, self.namespace, self.name, body, manager)

    def kubectl(self, *words: str) -> str:
        config = self.cluster.user_kubeconfig(self.namespace, "steward")
        return self.cluster.kubectl("-n", self.namespace, *words, kubeconfig=config)

    def stored(self) -> dict[str, Any]:
        return self.operator.get(TABLE_LAYOUT, self.namespace, self.name)


@pytest.fixture(scope="module")
def steward(cluster: Cluster, installed: str) -> Steward:
    def admin(*words: str, stdin: str | None = None) -> str:
        return cluster.kubectl("-n", installed, *words, stdin=stdin)

    for body in (CATALOG, POLICY_BODY):
        admin("apply", "-f", "-", stdin=json.dumps(body))
    owner = json.loads(admin("get", "tlp", "sales", "-o", "json"))["metadata"]["uid"]
    operator = as_account(cluster, installed, OPERATOR)
    operator.apply(TABLE_LAYOUT, installed, layout(owner))
    admin("create", "serviceaccount", "steward")
    admin(
        "create", "rolebinding", "stewards",
        f"--clusterrole={OPERATOR}-approver", f"--serviceaccount={installed}:steward",
    )  # fmt: skip
    return Steward(cluster, as_account(cluster, installed, "steward"), operator, installed)


def layout(owner: str) -> dict[str, Any]:
    """As the operator applies it."""
    reference = {
        "apiVersion": API_VERSION, "kind": "TableLayoutPolicy", "name": "sales", "uid": owner,
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    spec = {**LAYOUT["spec"], "layoutHash": "sha256:" + "0" * 64}
    return {"metadata": {**LAYOUT["metadata"], "ownerReferences": [reference]}, "spec": spec}


def test_an_approver_approves_and_edits_no_policy(steward: Steward) -> None:
    steward.patch({"spec": {"approvedPlan": PLAN, "suspend": True}})
    steward.patch({"metadata": {"annotations": {REQUESTED_AT: "now"}}})
    # The operator's next apply says nothing of it, and so leaves it alone.
    before = steward.stored()
    owner = before["metadata"]["ownerReferences"][0]["uid"]
    steward.operator.apply(TABLE_LAYOUT, steward.namespace, layout(owner))
    assert steward.stored()["spec"]["approvedPlan"] == PLAN
    with pytest.raises(Forbidden):
        steward.api.patch(POLICY, steward.namespace, "sales", {"spec": {"suspend": True}})
    with pytest.raises(Forbidden):
        steward.api.delete(TABLE_LAYOUT, steward.namespace, steward.name)
    with pytest.raises(Forbidden):
        steward.api.list(SECRET, steward.namespace)


GONE = {
    "apiVersion": "v1", "kind": "ConfigMap", "name": "gone",
    "uid": "00000000-0000-0000-0000-000000000000",
}  # fmt: skip
"""An owner that does not exist: the garbage collector would delete what it owns."""

FOREIGN_EDITS: dict[str, dict[str, Any]] = {
    "policy": {"spec": {"policyRef": {"name": "another"}}},
    "generation": {"spec": {"policyRef": {"generation": 99}}},
    "layout hash": {"spec": {"layoutHash": "sha256:" + "1" * 64}},
    "no layout hash": {"spec": {"layoutHash": None}},
    "another owner": {"metadata": {"ownerReferences": [GONE]}},
    "no owner": {"metadata": {"ownerReferences": None}},
    "a finalizer that nobody removes": {"metadata": {"finalizers": ["example.com/stays"]}},
    "beside an approval": {"spec": {"approvedPlan": PLAN, "policyRef": {"name": "another"}}},
}


@pytest.mark.parametrize("edit", FOREIGN_EDITS)
def test_an_approver_can_not_hand_a_table_to_another_policy_or_have_it_deleted(
    steward: Steward, edit: str
) -> None:
    before = steward.stored()
    body = FOREIGN_EDITS[edit]

    def refused() -> bool:
        """A new admission policy takes the API server a moment to read: dry runs until then."""
        words = ("--type=merge", "--dry-run=server", "-p", json.dumps(body))
        try:
            steward.kubectl("patch", "tl", steward.name, *words)
        except KubectlError as error:
            return "forbidden" in str(error)
        return False

    assert eventually(refused)
    with pytest.raises(Forbidden):
        steward.patch(body)
    after = steward.stored()
    assert (after["spec"], after["metadata"]) == (before["spec"], before["metadata"])


def test_every_field_of_a_table_layout_is_peoples_or_guarded(render: Render) -> None:
    """A field that joins the CRD must join the admission policy, or the list of people's."""
    (admission,) = of_kind(render(), "ValidatingAdmissionPolicy")
    text = " ".join(item["expression"] for item in admission["spec"]["validations"])
    guarded = set(re.findall(r"object\.spec\.\??(\w+)", text))
    assert guarded | {"approvedPlan", "suspend"} == set(spec_schema("TableLayout")["properties"])


def test_the_operator_works_under_its_account_and_is_refused_nothing(
    cluster: Cluster, installed: str
) -> None:
    """Its settings are the Deployment's, its token the account's; every call is in the metrics."""
    deployment = cluster.get("deployment", OPERATOR, namespace=installed)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    environment = {item["name"]: item["value"] for item in container["env"] if "value" in item}
    settings = dataclasses.replace(
        from_environment(environment),
        namespace=installed,
        kubeconfig=str(cluster.user_kubeconfig(installed, OPERATOR)),
        metrics_port=0,
        health_port=0,
        secret_interval=1.0,
    )
    secret = {**CATALOG, "spec": {**CATALOG["spec"], "secretRef": {"name": "credentials"}}}
    for body in (secret, POLICY_BODY):
        cluster.kubectl("-n", installed, "apply", "-f", "-", stdin=json.dumps(body))
    cluster.kubectl(
        "-n", installed, "create", "secret", "generic", "credentials", "--from-literal=token=x"
    )
    recorder = Recorder()
    with operator(settings, recorder):
        until(lambda: recorder.count("policy", "sales") and recorder.count("catalog"))
        runtime = recorder.runtime
        until(lambda: runtime.index.secret_version(installed, "credentials"))
        assert runtime.held()
        calls, page = recorder.calls(), runtime.metrics.text().decode()
    assert {"leases", "secrets", "tablelayoutpolicies"} <= {plural for _, plural in calls}
    assert 'code="403"' not in page


def test_view_and_edit_of_the_cluster_reach_the_kinds(cluster: Cluster, installed: str) -> None:
    """Aggregation is the controller manager's work; it takes a moment."""

    def aggregated(role: str) -> set[tuple[str, str]]:
        rules = json.loads(cluster.kubectl("get", "clusterrole", role, "-o", "json"))["rules"]
        return {(r, v) for g, r, v in granted(rules) if g == "layout.lakehouse.dev"}

    def joined() -> bool:
        view, edit = aggregated("view"), aggregated("edit")
        assert ("tablelayouts", "list") in view
        assert ("tablelayoutpolicies", "patch") in edit
        assert ("tablelayouts", "patch") not in edit
        assert not {verb for _, verb in view} - {"get", "list", "watch"}
        return True

    assert eventually(joined)


DRIVER = """
import os, tempfile
from pyspark.sql import functions as F
from reconciler.api import documents as d
from reconciler.spark.session import session
from reconciler.spark.session.kubernetes import driver_pod, kubernetes_conf

engine = d.Engine(
    d.Driver(1, 512 << 20), d.Executors(2, 1, 512 << 20), 1
)
jobs = d.Jobs(service_account_name="layout-spark")
with tempfile.TemporaryDirectory() as scratch:
    template = scratch + "/executor.yaml"
    with open(template, "w") as file:
        file.write('{"kind": "Pod", "spec": {"serviceAccountName": "layout-spark-executor"}}')
    conf = kubernetes_conf(driver_pod(os.environ), engine, jobs, template)
    conf |= {
        "spark.local.dir": scratch,
        "spark.kubernetes.driver.requestTimeout": "60000",
        "spark.kubernetes.driver.connectionTimeout": "60000",
    }
    conf |= {
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.sql.shuffle.partitions": "4",
    }
    started = session.start(conf, "driver")  # its JVMs read the archive of Spark's classes
    spark = started.spark
    rows = spark.range(0, 100000, numPartitions=8).groupBy((F.col("id") % 10).alias("k"))
    print("sum", rows.agg(F.sum("id").alias("s")).agg(F.sum("s")).first()[0])
    workers = spark.sparkContext.parallelize(range(8), 8)
    names = workers.map(lambda _: os.environ["SPARK_EXECUTOR_POD_NAME"]).distinct().collect()
    print("executors", len(names))
    session.stop(started)
"""


@pytest.mark.soak
@pytest.mark.jvm
def test_a_spark_driver_shuffles_on_two_executors_under_its_account_and_is_refused_nothing(
    kubelet: Cluster, spark_image: str, installed: str
) -> None:
    """In the short form, the first test of operator/test_installed.py, no rows are exchanged."""

    def field(name: str, path: str) -> dict[str, Any]:
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}

    environment = [
        {"name": "LAYOUT_IMAGE", "value": spark_image},
        {"name": "LAYOUT_NAME", "value": "orders-aaaaaaaaaa"},
        field("POD_NAME", "metadata.name"),
        field("POD_NAMESPACE", "metadata.namespace"),
        field("POD_IP", "status.podIP"),
    ]
    container = {
        "name": "driver",
        "image": spark_image,
        "args": [sys.executable, "-c", DRIVER],
        "env": environment,
    }
    pod = {
        "restartPolicy": "Never",
        "serviceAccountName": "layout-spark",
        "containers": [container],
    }
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "driver"},
        "spec": {"backoffLimit": 0, "template": {"spec": pod}},
    }
    kubelet.kubectl("-n", installed, "apply", "-f", "-", stdin=json.dumps(body))

    def ended() -> bool:
        status = kubelet.get("job", "driver", namespace=installed)["status"]
        return bool(status.get("succeeded") or status.get("failed"))

    until(ended, 600)
    said = kubelet.kubectl("-n", installed, "logs", "job/driver")
    assert "sum 4999950000" in said and "executors 2" in said, said[-4000:]
    assert "forbidden" not in said.lower()
    executors = ("get", "pods", "-l", "spark-role=executor", "-o", "name")
    assert until(lambda: not kubelet.kubectl("-n", installed, *executors).strip())


def test_an_upgrade_changes_what_was_asked_and_nothing_else(
    cluster: Cluster, helm: Path, installed: str
) -> None:
    def pod() -> Any:
        deployment = cluster.get("deployment", OPERATOR, namespace=installed)
        return deployment["spec"]["template"]["spec"]["containers"][0]

    before = pod()
    run_helm(
        cluster, helm, "upgrade", RELEASE, str(sync.CHART), "-n", installed, "--reuse-values",
        "--set", "caps.concurrentJobs=9",
    )  # fmt: skip
    after = pod()
    assert {"name": "LAYOUTCTL_OPERATOR_MAX_JOBS", "value": "9"} in after["env"]
    assert {**before, "env": []} == {**after, "env": []}


def test_removing_the_release_leaves_the_crds_and_every_policy(
    cluster: Cluster, helm: Path, installed: str
) -> None:
    cluster.kubectl("-n", installed, "apply", "-f", "-", stdin=json.dumps(POLICY_BODY))
    run_helm(cluster, helm, "uninstall", RELEASE, "-n", installed)
    assert cluster.get("tlp", "sales", namespace=installed)["metadata"]["name"] == "sales"
    remaining = cluster.kubectl(
        "get", "deployment,role,networkpolicy", "-n", installed, "-o", "name"
    )
    assert remaining == ""


def test_kubectl_installs_the_base(cluster: Cluster) -> None:
    cluster.kubectl(
        "apply", "--server-side", "--force-conflicts", "-k", str(sync.MANIFESTS / "base")
    )
    try:
        found = cluster.get("deployment", "layout-reconciler", namespace=sync.NAMESPACE)
        assert found["spec"]["replicas"] == 1
        assert rights_of(cluster, sync.NAMESPACE, "layout-reconciler") == documented("Operator")
    finally:
        cluster.kubectl("delete", "namespace", sync.NAMESPACE, "--wait=false")


def test_the_api_server_accepts_every_object_with_all_options_on(
    cluster: Cluster, kubectl: Kubectl, helm: Path, namespace: str
) -> None:
    """Strict field validation: a misspelt field of Deployment or NetworkPolicy is an error."""
    values = ["--set", "crds.install=false,ambientCredentials=true,metrics.perTable=true"]
    rendered = run_helm(cluster, helm, "template", "x", str(sync.CHART), "-n", namespace, *values)
    kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=rendered)
