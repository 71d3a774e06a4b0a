"""Failures on the test cluster: each has its own reason, and the operator recovers by itself.

The drivers are stand-ins that work until they are stopped. The tests are about what the operator
does about objects, rights, quotas and catalogs. Real drivers run in test_installed.

What is marked `soak` has a shorter form elsewhere: a new token in test_process, a claim of another
namespace in the case of another owner here, a renamed table in test_policy, a plan that no longer
stands in test_live, and a catalog that goes down in test_live and test_layout.
"""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from reconciler.catalog.claim import OWNER_PROPERTY
from reconciler.kube.kinds import CATALOG, POLICY, TABLE_LAYOUT
from reconciler.kube.pods import PLAN_LABEL
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import Kubectl
from tests.operator.scene import (
    ACCOUNT,
    RECONCILES,
    SCHEMA,
    STAND_IN,
    Lake,
    Operator,
    Scene,
    documents,
    eventually,
    make_account,
    metric,
    scene,
)
from tests.rest_server import RestServer

IMAGE = "driver:stand-in"
KINDS = {"tl": TABLE_LAYOUT, "tlp": POLICY, "icat": CATALOG}
OBJECTS = 4
MOST_RECONCILES = 12
"""Of one table in trouble, its policy, its catalog and the launcher, in ten seconds."""


@pytest.fixture
def lake() -> Iterator[Lake]:
    directory = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="layout-"))
    yield Lake(directory, regions=1, rows=1_000)
    shutil.rmtree(directory, ignore_errors=True)


@dataclass
class Stage:
    """A scene, its one operator, and what people type."""

    scene: Scene
    operator: Operator

    def reconciles(self) -> int:
        """How many the operator has made, by its metrics."""
        return round(metric(self.operator.port, RECONCILES))

    def is_calm(self, seconds: float = 3, relists: int = 0) -> None:
        """It lives and does not spin. relists: of all its objects, in that time."""
        before = self.reconciles()
        time.sleep(seconds)
        made = self.reconciles() - before
        most = MOST_RECONCILES * max(seconds, 5) / 10 + relists * OBJECTS
        assert made <= most, f"{made} reconciles in {seconds} s"
        assert self.operator.process.poll() is None
        assert "Traceback" not in self.operator.log.read_text(errors="replace")

    def change(self, resource: str, **spec: Any) -> None:
        self.scene.kubectl(
            "patch", *resource.split("/"), "--type=merge", "-p", json.dumps({"spec": spec})
        )

    def conditions(self, resource: str) -> dict[str, dict[str, Any]]:
        short, name = resource.split("/")
        body = self.scene.api.get(KINDS[short], self.scene.namespace, name)
        found = (body.get("status") or {}).get("conditions") or ()
        return {item["type"]: item for item in found}

    def says(self, resource: str, kind: str, reason: str, seconds: float = 90) -> dict[str, Any]:
        """Waits for the condition to have the reason; the condition."""

        def check() -> dict[str, Any] | None:
            found = self.conditions(resource).get(kind, {})
            return found if found.get("reason") == reason else None

        try:
            found: dict[str, Any] = eventually(check, seconds, f"{resource} {kind} {reason}")
        except TimeoutError as error:
            now = json.dumps(self.conditions(resource), indent=1)
            raise AssertionError(f"{error}\n{now}\n{self.scene.describe()}") from error
        return found

    def job_runs(self, besides: tuple[str, ...] = (), seconds: float = 90) -> dict[str, Any]:
        """The one Job, once its driver runs."""
        driver = self.scene.driver(besides, seconds)
        return next(job for job in self.scene.jobs() if job["metadata"]["name"] == driver.job)

    def nothing_is_held(self) -> None:
        eventually(lambda: not self.scene.living(), 60, "no job lives")
        eventually(
            lambda: not self.scene.layout().get("metadata", {}).get("finalizers"), 60, "let go"
        )


@pytest.fixture
def stage(kubelet: Cluster, namespace: str, lake: Lake) -> Iterator[Callable[..., Stage]]:
    """Starts the operator; settings are its flags."""
    kubelet.set_image(IMAGE, ["sh", "-c", STAND_IN])
    with scene(kubelet, namespace, lake) as made:

        def start(**settings: str) -> Stage:
            flags = {"image": IMAGE, "secret-interval": "2s"}
            return Stage(made, made.operator(**{**flags, **settings}))

        yield start
        assert not made.watchman.problems, made.watchman.problems


def layoutctl(stage: Stage, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    from reconciler.cli import main

    monkeypatch.setenv("KUBECONFIG", str(stage.scene.cluster.kubeconfig))
    monkeypatch.setattr("sys.argv", ["layoutctl", *words, "--namespace", stage.scene.namespace])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 0


def test_suspend_cancel_change_and_delete_each_stop_the_job(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    on = stage()
    on.scene.apply()
    first = on.job_runs()
    layout = on.scene.layout()["metadata"]["name"]
    assert on.scene.layout()["metadata"]["finalizers"] == ["layout.lakehouse.dev/running-job"]

    on.change(f"tl/{layout}", suspend=True)
    on.says(f"tl/{layout}", "Converged", "Suspended")
    on.nothing_is_held()
    assert on.scene.status()["history"][0]["result"] == "Stopped"
    on.is_calm()
    assert on.scene.status()["job"]["name"] == first["metadata"]["name"]
    layoutctl(on, monkeypatch, "resume", "sales.orders")
    second = on.job_runs((first["metadata"]["name"],))

    layoutctl(on, monkeypatch, "cancel", "sales.orders")
    names = (first["metadata"]["name"], second["metadata"]["name"])
    third = on.job_runs(names)
    assert third["metadata"]["labels"][PLAN_LABEL] == first["metadata"]["labels"][PLAN_LABEL]

    by_city = {"clustering": {"mode": "Declared", "keys": ["city"]}}
    on.change("tlp/facts", layout=by_city)
    names = (*names, third["metadata"]["name"])
    fourth = on.job_runs(names)
    assert fourth["metadata"]["labels"][PLAN_LABEL] != first["metadata"]["labels"][PLAN_LABEL]
    assert on.scene.status()["history"][0]["message"].startswith("stopped")

    layoutctl(on, monkeypatch, "suspend", "facts")
    on.says("tlp/facts", "Converged", "Suspended")
    on.nothing_is_held()
    layoutctl(on, monkeypatch, "resume", "facts")
    on.job_runs((*names, fourth["metadata"]["name"]))

    on.scene.kubectl("delete", "tlp", "facts", "--wait=false")
    eventually(lambda: not on.scene.layout(), 90, "the TableLayout is gone")
    assert not on.scene.living()
    on.scene.lake.check_rows()
    on.is_calm()


def test_a_missing_object_is_reported_and_used_as_soon_as_it_exists(
    stage: Callable[..., Stage],
) -> None:
    on = stage()
    catalog, policy = documents(on.scene.lake, on.scene.namespace)
    catalog["spec"]["secretRef"] = {"name": "credentials"}
    catalog["spec"]["jobs"] = {"image": "nowhere:1"}

    on.scene.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(policy))
    on.says("tlp/facts", "Ready", "CatalogNotFound")
    assert on.conditions("tlp/facts")["Stalled"]["status"] == "True"
    unknown = on.conditions("tlp/facts")["Converged"]
    assert (unknown["status"], unknown["reason"]) == ("Unknown", "CatalogNotFound")
    on.is_calm()

    on.scene.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(catalog))
    on.says("icat/warehouse", "Ready", "SecretNotFound")
    on.says("tlp/facts", "Ready", "SecretNotFound")
    on.is_calm()

    secret = ("credentials", "--from-literal=gcs.oauth2.token=x")
    on.scene.kubectl("create", "secret", "generic", *secret)
    on.says("icat/warehouse", "Ready", "CatalogReachable")
    on.says("tlp/facts", "Ready", "Observed")
    layout = on.scene.layout()["metadata"]["name"]

    condition = on.says(f"tl/{layout}", "Converged", "JobNotStarted")
    assert "ErrImagePull" in condition["message"]
    on.says("tlp/facts", "Converged", "JobNotStarted")
    on.is_calm()
    (refused,) = on.scene.jobs()
    on.change("icat/warehouse", jobs={"image": IMAGE})
    on.job_runs((refused["metadata"]["name"],))
    assert not on.scene.status()["failures"]["count"]

    on.scene.kubectl("delete", "secret", "credentials")
    on.says("icat/warehouse", "Ready", "SecretNotFound")
    on.says(f"tl/{layout}", "Ready", "SecretNotFound")
    on.scene.kubectl("create", "secret", "generic", *secret)
    on.says(f"tl/{layout}", "Ready", "Observed")
    assert len(on.scene.jobs()) == 1


def quota(name: str, **hard: str) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": name},
            "spec": {"hard": hard},
        }
    )


def test_a_quota_makes_it_wait_and_say_so(stage: Callable[..., Stage]) -> None:
    on = stage()
    kubectl = on.scene.kubectl
    kubectl("apply", "-f", "-", stdin=quota("jobs", **{"count/jobs.batch": "0"}))
    eventually(
        lambda: json.loads(kubectl("get", "resourcequota", "jobs", "-o", "json"))["status"], 60
    )
    on.scene.apply()
    eventually(on.scene.layout, 90, "a TableLayout")
    layout = on.scene.layout()["metadata"]["name"]
    condition = on.says(f"tl/{layout}", "Converged", "BackOff")
    assert "exceeded quota" in condition["message"]
    # The finalizer goes and the event comes after the status.
    eventually(lambda: not on.scene.layout()["metadata"].get("finalizers"), 60, "let go")
    eventually(
        lambda: "exceeded quota" in kubectl("get", "events.events.k8s.io", "-o", "yaml"), 60, "told"
    )
    on.is_calm()

    kubectl("apply", "-f", "-", stdin=quota("pods", pods="0"))
    kubectl("delete", "resourcequota", "jobs")

    def has_no_pod() -> bool:
        message = on.scene.condition("Converged").get("message", "")
        return "has no pod" in message and "kubectl describe job" in message

    eventually(has_no_pod, 150, "the Job is there and no pod")
    on.is_calm()
    kubectl("delete", "resourcequota", "pods")
    on.job_runs(seconds=120)


def test_rights_that_are_revoked_stop_it_and_their_return_starts_it(
    stage: Callable[..., Stage], kubelet: Cluster, kubectl: Kubectl, namespace: str
) -> None:
    make_account(kubelet, namespace)
    kubeconfig = kubelet.user_kubeconfig(namespace, ACCOUNT)
    on = stage(kubeconfig=str(kubeconfig), relist="5s")
    on.scene.apply(approval={"mode": "Manual"})
    on.scene.waits_for("AwaitingApproval")
    bindings = [
        name for name in kubectl("get", "rolebindings", "-o", "name").split()
        if "/operator-" in name
    ]  # fmt: skip
    kept = [json.loads(kubectl("get", name, "-o", "json")) for name in bindings]
    kubectl("delete", *bindings)
    eventually(lambda: on.operator.said("forbidden"), 90, "it is refused")
    on.scene.approve()  # nobody may act on it now
    on.is_calm(10, relists=3)
    assert not on.scene.jobs()
    for body in kept:
        body["metadata"] = {"name": body["metadata"]["name"]}
        kubectl("create", "-f", "-", stdin=json.dumps(body))
    on.job_runs(seconds=180)


@pytest.mark.soak
def test_a_token_that_expired_is_read_again(
    stage: Callable[..., Stage], kubelet: Cluster, kubectl: Kubectl, namespace: str
) -> None:
    make_account(kubelet, namespace)
    kubeconfig = kubelet.user_kubeconfig(namespace, ACCOUNT)
    kubectl("create", "secret", "generic", "bound")

    def token() -> str:
        return kubectl(
            "create", "token", ACCOUNT, "--bound-object-kind=Secret",
            "--bound-object-name=bound",
        ).strip()  # fmt: skip

    def write(text: str) -> None:
        body = yaml.safe_load(kubeconfig.read_text())
        body["users"][0]["user"] = {"token": text}
        kubeconfig.write_text(yaml.safe_dump(body))

    write(token())
    on = stage(kubeconfig=str(kubeconfig), relist="5s")
    on.scene.apply(approval={"mode": "Manual"})
    on.scene.waits_for("AwaitingApproval")
    # A token ends with what it is bound to, as it would with its time.
    kubectl("delete", "secret", "bound")
    eventually(lambda: on.operator.said("does not accept the credentials"), 120, "refused")
    on.is_calm(relists=2)
    kubectl("create", "secret", "generic", "bound")
    write(token())
    on.scene.approve()
    on.job_runs(seconds=180)


def test_a_table_of_another_owner_is_left_alone_until_it_is_taken_over(
    stage: Callable[..., Stage],
) -> None:
    on = stage()
    lake = on.scene.lake
    with lake.catalog.load_table("sales.orders").transaction() as change:
        change.set_properties({OWNER_PROPERTY: "elsewhere/warehouse/uid-1"})
    on.scene.apply()
    eventually(on.scene.layout, 90, "a TableLayout")
    layout = on.scene.layout()["metadata"]["name"]
    condition = on.says(f"tl/{layout}", "Stalled", "OwnedElsewhere")
    assert "elsewhere/warehouse/uid-1" in condition["message"]
    assert on.conditions(f"tl/{layout}")["Converged"]["reason"] == "OwnedElsewhere"
    on.is_calm()
    assert not on.scene.jobs()
    # Somebody else's claim is not the one that is taken over.
    take = "layout.lakehouse.dev/takeOver"
    on.scene.kubectl("annotate", "icat", "warehouse", f"{take}=other/warehouse/uid-9")
    on.is_calm()
    assert on.conditions(f"tl/{layout}")["Stalled"]["reason"] == "OwnedElsewhere"
    on.scene.kubectl(
        "annotate", "icat", "warehouse", "--overwrite", f"{take}=elsewhere/warehouse/uid-1"
    )
    on.job_runs(seconds=120)
    catalog = json.loads(on.scene.kubectl("get", "icat", "warehouse", "-o", "json"))
    owner = lake.catalog.load_table("sales.orders").properties[OWNER_PROPERTY]
    assert owner == f"{on.scene.namespace}/warehouse/{catalog['metadata']['uid']}"


@pytest.mark.soak
def test_of_two_namespaces_one_has_the_table(
    stage: Callable[..., Stage], kubelet: Cluster, namespace: str
) -> None:
    other = f"{namespace}-b"
    kubelet.kubectl("create", "namespace", other)
    try:
        on = stage(namespaces=f"{namespace},{other}")
        on.scene.apply()
        on.job_runs()
        second = documents(on.scene.lake, other)
        kubelet.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(second))

        def theirs() -> dict[str, Any]:
            items = on.scene.api.list(TABLE_LAYOUT, other)
            conditions = items[0].get("status", {}).get("conditions", ()) if items else ()
            return {item["type"]: item for item in conditions}

        eventually(lambda: theirs().get("Stalled", {}).get("reason") == "OwnedElsewhere", 120)
        assert f"{namespace}/warehouse/" in theirs()["Stalled"]["message"]
        assert not kubelet.get("jobs", namespace=other)["items"]

        def counted() -> Any:
            (policy,) = on.scene.api.list(POLICY, other)
            return policy.get("status", {}).get("tables", {}).get("stalled")

        # Its policy is the last that a stalled table concerns; until then there is work to do.
        eventually(lambda: counted() == 1, 60, "the other policy counts its stalled table")
        on.is_calm()
    finally:
        kubelet.kubectl("delete", "namespace", other, "--wait=false")


@pytest.mark.soak
def test_a_table_that_is_renamed_retires_and_state_tables_are_skipped(
    stage: Callable[..., Stage],
) -> None:
    """While no operator looks: the next one has never seen it listed. To a listing, a rename is a
    dropped table and a new one; the operator that looks all the time is in test_policy."""
    on = stage()
    catalog, policy = documents(on.scene.lake, on.scene.namespace, approval={"mode": "Manual"})
    catalog["spec"]["interval"] = "2s"
    policy["spec"]["tables"] = {"include": ["**"]}
    on.scene.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([catalog, policy]))
    on.scene.waits_for("AwaitingApproval")
    names = eventually(lambda: on.scene.lake.catalog.list_tables("layout_state"), 60, "state")

    def tables() -> list[str]:
        items = on.scene.api.list(TABLE_LAYOUT, on.scene.namespace)
        return sorted(item["spec"]["table"]["name"] for item in items)

    assert names and tables() == ["orders"]
    on.operator.signal(signal.SIGTERM)
    on.operator.process.wait(60)
    on.scene.lake.catalog.rename_table("sales.orders", "sales.invoices")
    stage()
    eventually(lambda: tables() == ["invoices", "orders"], 120, "the new name appears")
    eventually(lambda: tables() == ["invoices"], 300, "the old name retires")


@pytest.mark.soak
def test_an_approved_plan_that_no_longer_stands_is_reported_with_the_difference(
    stage: Callable[..., Stage],
) -> None:
    on = stage()
    on.scene.apply(approval={"mode": "Manual"})
    on.scene.waits_for("AwaitingApproval")
    layout = on.scene.layout()["metadata"]["name"]
    reviewed = on.scene.status()["plan"]["id"]
    # Another writer replaces inputs of the plan while it is being read.
    on.scene.lake.catalog.load_table("sales.orders").delete("id > 500000")
    on.scene.approve()
    condition = on.says(f"tl/{layout}", "Approved", "PlanChanged", 120)
    standing = on.scene.status()["plan"]["id"]
    assert standing != reviewed
    assert condition["message"].startswith(f"{reviewed} ") and standing in condition["message"]
    assert on.conditions(f"tl/{layout}")["Converged"]["reason"] == "AwaitingApproval"
    assert not on.scene.jobs()
    on.scene.approve()
    job = on.job_runs()
    assert job["metadata"]["labels"][PLAN_LABEL] == standing


@pytest.fixture
def rest_lake() -> Iterator[tuple[Path, list[RestServer]]]:
    """A REST catalog with one table; the servers that run, for tests that stop them."""
    directory = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="layout-"))
    servers = [RestServer(directory, "lake")]
    yield directory, servers
    for server in servers:
        server.stop()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.rest
def test_a_catalog_that_goes_down_is_unknown_and_comes_back(
    stage: Callable[..., Stage], rest_lake: tuple[Path, list[RestServer]]
) -> None:
    from pyiceberg.catalog import load_catalog

    directory, servers = rest_lake
    uri, port = servers[0].uri, servers[0].port
    made = load_catalog("lake", type="rest", uri=uri)
    made.create_namespace("sales")
    table = made.create_table("sales.orders", SCHEMA)
    for start in range(6):
        ids = list(range(start, 6_000, 6))
        rows = {"id": ids, "region": ["r"] * len(ids), "city": ["c"] * len(ids)}
        table.append(pa.table(rows, schema=SCHEMA))
    on = stage(**{"allowed-networks": "127.0.0.1/32"})
    catalog, policy = documents(on.scene.lake, on.scene.namespace, approval={"mode": "Manual"})
    catalog["spec"] |= {"type": "rest", "properties": {"uri": uri}, "interval": "5s"}
    catalog["spec"]["timeout"] = "5s"
    on.scene.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([catalog, policy]))
    on.scene.waits_for("AwaitingApproval")
    layout = on.scene.layout()["metadata"]["name"]
    before = on.scene.status()

    servers.pop().stop()
    on.says("icat/warehouse", "Ready", "CatalogUnavailable")
    on.says("tlp/facts", "Ready", "CatalogUnavailable")
    down = on.says(f"tl/{layout}", "Ready", "CatalogUnavailable")
    assert down["status"] == "False"
    assert on.conditions(f"tl/{layout}")["Converged"]["status"] == "Unknown"
    eventually(
        lambda: on.conditions("tlp/facts")["Converged"]["status"] == "Unknown",
        60, "the policy has counted its table",
    )  # fmt: skip
    on.scene.approve()
    on.is_calm(10)
    assert on.scene.status()["plan"] == before["plan"]
    assert not on.scene.jobs()

    servers.append(RestServer(directory, "lake", port))
    on.says("icat/warehouse", "Ready", "CatalogReachable", 120)
    on.says("tlp/facts", "Ready", "Observed", 120)
    job = on.job_runs(seconds=120)
    assert job["metadata"]["labels"][PLAN_LABEL] == before["plan"]["id"]
