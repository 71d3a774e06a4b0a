"""Two watched namespaces on the real API server: one that is taken away stops nothing in the other.

The operator has the rights of an installation; the catalogs are simulated, a job only waits a
little.
"""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from reconciler.kube.api import Api
from reconciler.kube.kinds import CATALOG, EVENT, JOB, POLICY
from reconciler.operator.process.main import run
from reconciler.operator.process.reconcilers import build
from reconciler.operator.runtime import Runtime
from reconciler.operator.settings import OperatorSettings
from reconciler.operator.work import Reconcilers
from tests.cluster import processes
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import Kubectl, eventually
from tests.operator.cluster_objects import catalog
from tests.operator.simulated import SimulatedCatalogs, SimulatedLake
from tests.operator.test_many import GIB, ROOM, automatic, facts, reason

RULES = Path(__file__).parents[2] / "manifests" / "base" / "rbac-operator.yaml"


class Place:
    """One watched namespace with a catalog and a policy; its lake has tables without work."""

    def __init__(self, cluster: Cluster, namespace: str, account: str) -> None:
        self.cluster, self.namespace, self.account = cluster, namespace, account
        self.api = Api.from_environment(str(cluster.kubeconfig))
        for name in ("layout-spark", "layout-spark-executor"):
            cluster.kubectl("-n", namespace, "create", "serviceaccount", name)
        jobs = {"serviceAccountName": "layout-spark", "image": "short"}
        self.api.create(CATALOG, namespace, catalog(jobs=jobs))
        policy = facts(automatic()["approval"])
        policy["spec"]["budgets"] = [ROOM]
        self.api.create(POLICY, namespace, policy)

    def bind(self, number: int = 0) -> None:
        """Give the operator one of the installation's roles here."""
        roles = [b for b in yaml.safe_load_all(RULES.read_text()) if b and b["kind"] == "Role"]
        body = {**roles[number], "metadata": {"name": f"op-{number}", "namespace": self.namespace}}
        self.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(body))
        self.cluster.kubectl(
            "-n", self.namespace, "create", "rolebinding", f"op-{number}",
            f"--role=op-{number}", f"--serviceaccount={self.account}",
        )  # fmt: skip

    def unbind(self) -> None:
        self.cluster.kubectl("-n", self.namespace, "delete", "rolebinding", "op-0")

    def status(self) -> dict[str, Any]:
        return dict(self.api.get(POLICY, self.namespace, "facts").get("status") or {})

    def converged(self, tables: int) -> bool:
        found = self.status()
        return bool(found.get("tables", {}).get("converged") == tables)


@contextmanager
def operator(cluster: Cluster, kubeconfig: Path, own: str, watched: tuple[str, ...],
             lake: SimulatedLake) -> Iterator[OperatorSettings]:  # fmt: skip
    stop = threading.Event()
    settings = OperatorSettings(
        namespaces=watched, namespace=own, kubeconfig=str(kubeconfig), secret_interval=1.0,
        metrics_port=processes.free_port(), health_port=processes.free_port(),
    )  # fmt: skip

    def wired(runtime: Runtime) -> Reconcilers:
        return build(runtime, kind=SimulatedCatalogs, lake=lake)

    thread = threading.Thread(target=run, args=(settings, wired, stop), daemon=True)
    thread.start()
    try:
        yield settings
    finally:
        stop.set()
        thread.join(90)


def page(port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.read().decode())
    except OSError as error:
        return str(error)


def test_a_namespace_without_rights_stops_no_other_at_the_start_and_later(
    kubelet: Cluster, namespace: str, kubectl: Kubectl
) -> None:
    kubelet.install_crds()
    kubelet.set_image("short", ["sh", "-c", "sleep 1"])
    own, account = f"{namespace}-ops", f"{namespace}-ops:operator"
    second = f"{namespace}-b"
    for name in (own, second):
        kubelet.kubectl("create", "namespace", name)
    kubelet.kubectl("-n", own, "create", "serviceaccount", "operator")
    good, bad = Place(kubelet, namespace, account), Place(kubelet, second, account)
    good.bind()
    leader = Place.__new__(Place)
    leader.cluster, leader.namespace, leader.account = kubelet, own, account
    leader.bind(1)
    lake = SimulatedLake({("sales", "one"): 0})
    kubeconfig = kubelet.user_kubeconfig(own, "operator")
    watched = (namespace, second, f"{namespace}-absent")
    with operator(kubelet, kubeconfig, own, watched, lake) as settings:

        def readable(name: str, number: int) -> bool:
            line = f'layout_namespace_readable{{namespace="{name}"}} {number}.0'
            return line in page(settings.metrics_port, "/metrics")

        eventually(lambda: good.converged(1), 90)
        eventually(lambda: page(settings.health_port, "/readyz").strip() == "ok", 60)
        assert readable(second, 0) and readable(f"{namespace}-absent", 0)
        assert readable(namespace, 1)
        assert "conditions" not in bad.status()
        bad.bind()
        eventually(lambda: bad.converged(1), 120)
        eventually(lambda: readable(second, 1), 30)

        bad.unbind()
        bad.api.patch(POLICY, second, "facts", {"spec": {"objectives": {"maxFileCount": 7}}})
        eventually(lambda: readable(second, 0), 90)
        lake.tables["sales", "two"] = GIB
        stamp = {"metadata": {"annotations": {"layout.lakehouse.dev/requestedAt": "now"}}}
        good.api.patch(CATALOG, namespace, "warehouse", stamp)
        eventually(lambda: good.api.list(JOB, namespace), 120)
        eventually(lambda: good.converged(2), 120)
        assert reason(good.status(), "Ready") == "Observed"
        assert not bad.api.list(JOB, second)
        assert page(settings.health_port, "/readyz").strip() == "ok"
        told = [event.get("note", "") for event in good.api.list(EVENT, own)
                if event.get("reason") == "NamespaceUnreadable"]  # fmt: skip
        assert any(second in note for note in told)
