"""The operator on a real API server and a real catalog: planned, approved, run, converged."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from reconciler.api.schema import API_VERSION
from reconciler.controller.operator import run
from reconciler.controller.reconcilers import build
from reconciler.controller.settings import Settings
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import Kubectl, eventually

CRDS = Path(__file__).parents[2] / "crds"

DRIVER = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: layout-spark}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: layout-spark-executor}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: driver}
rules:
- {apiGroups: [""], resources: [pods], verbs: [create, get, list, watch, delete, deletecollection]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: driver}
subjects: [{kind: ServiceAccount, name: layout-spark}]
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: driver}
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that pods see too: their /tmp is their own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        yield Path(directory)


@pytest.fixture
def warehouse(shared: Path) -> Any:
    """A catalog that pyiceberg made, with one table whose files all overlap."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog(
        "lake", uri=f"sqlite:///{shared}/lake.db?timeout=30", warehouse=f"file://{shared}/wh"
    )
    catalog.create_namespace("sales")
    schema = pa.schema([("id", pa.int64()), ("city", pa.string())])
    table = catalog.create_table("sales.orders", schema)
    for start in range(8):
        ids = list(range(start, 40_000, 8))
        table.append(pa.table({"id": ids, "city": [f"c{n % 97}" for n in ids]}, schema=schema))
    return catalog


@pytest.fixture
def operator(cluster: Cluster, namespace: str) -> Iterator[Callable[[], None]]:
    """Starts the operator in this process; it ends with the test."""
    cluster.kubectl("apply", "--server-side", "-f", str(CRDS))
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    stop = threading.Event()
    settings = Settings(
        namespace=namespace,
        namespaces=(namespace,),
        kubeconfig=str(cluster.kubeconfig),
        image="spark:test",
        local_files=True,
        metrics_port=18_080,
        health_port=18_081,
    )
    threads: list[threading.Thread] = []

    def start() -> None:
        threads.append(threading.Thread(target=run, args=(settings, build, stop), daemon=True))
        threads[-1].start()

    yield start
    stop.set()
    for thread in threads:
        thread.join(60)


def documents(shared: Path, namespace: str) -> str:
    catalog = {
        "apiVersion": API_VERSION,
        "kind": "IcebergCatalog",
        "metadata": {"name": "warehouse", "namespace": namespace},
        "spec": {
            "type": "sql",
            "catalogName": "lake",
            "properties": {
                "uri": f"sqlite:///{shared}/lake.db",
                "warehouse": f"file://{shared}/wh",
            },
        },
    }
    policy = {
        "apiVersion": API_VERSION,
        "kind": "TableLayoutPolicy",
        "metadata": {"name": "facts", "namespace": namespace},
        "spec": {
            "catalogRef": {"name": "warehouse"},
            "tables": {"include": ["sales.*"]},
            "layout": {"clustering": {"mode": "Declared", "keys": ["id"]}},
            "budgets": [{"name": "daily", "per": "24h", "maxRewriteBytes": "10Gi"}],
            "engine": {
                "driver": {"cores": 1, "memory": "1Gi"},
                "executors": {"instances": 1, "cores": 1, "memory": "1Gi"},
            },
        },
    }
    return yaml.safe_dump_all([catalog, policy])


def test_a_policy_is_planned_approved_run_and_converges(
    spark_image: str,
    kubectl: Kubectl,
    namespace: str,
    warehouse: Any,
    operator: Callable[[], None],
    shared: Path,
) -> None:
    kubectl("apply", "-f", "-", stdin=DRIVER)
    operator()
    kubectl("apply", "-f", "-", stdin=documents(shared, namespace))

    def layout() -> dict[str, Any]:
        items = json.loads(kubectl("get", "tl", "-o", "json"))["items"]
        assert items, kubectl("get", "tlp,icat", "-o", "yaml")
        return dict(items[0])

    def reason() -> str:
        conditions = layout().get("status", {}).get("conditions", ())
        return next((c["reason"] for c in conditions if c["type"] == "Converged"), "")

    eventually(lambda: reason() == "AwaitingApproval", 120)
    status = layout()["status"]
    patch = json.dumps({"spec": {"approvedPlan": status["plan"]["id"]}})
    kubectl("patch", "tl", layout()["metadata"]["name"], "--type=merge", "-p", patch)
    job = eventually(lambda: json.loads(kubectl("get", "jobs", "-o", "json"))["items"], 60)[0]
    assert job["metadata"]["ownerReferences"][0]["kind"] == "TableLayout"
    before = warehouse.load_table("sales.orders").scan().to_arrow().num_rows
    eventually(lambda: reason() == "NothingToDo", 420)
    table = warehouse.load_table("sales.orders")
    assert table.scan().to_arrow().num_rows == before
    assert table.current_snapshot().summary["layout.plan-id"] == status["plan"]["id"]
    done = layout()["status"]
    assert done["lastAppliedPlan"] == status["plan"]["id"]
    assert done["job"]["phase"] == "Succeeded"
    assert len(json.loads(kubectl("get", "jobs", "-o", "json"))["items"]) == 1
    kubectl("wait", "tlp/facts", "--for=condition=Converged", "--timeout=60s")
