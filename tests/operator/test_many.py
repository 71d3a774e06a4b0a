"""One policy over many tables on the test cluster: made, planned, summed up, run in order.

The catalog is simulated and a job's pod only waits a little; everything between is real.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from reconciler.kube.api import Api
from reconciler.kube.kinds import CATALOG, JOB, POLICY, TABLE_LAYOUT, Kind
from reconciler.operator.process.main import run
from reconciler.operator.process.reconcilers import build
from reconciler.operator.runtime import Runtime
from reconciler.operator.settings import OperatorSettings
from reconciler.operator.work import Reconcilers
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import Kubectl, eventually
from tests.operator.cluster_objects import catalog, settled
from tests.operator.simulated import SimulatedCatalogs, SimulatedLake

CAP = 3
WITH_WORK = 12
GIB = 1 << 30
ROOM = {"name": "daily", "per": "24h", "maxRewriteBytes": "500Gi"}


def lake(tables: int) -> dict[tuple[str, ...], int]:
    """Tables with the bytes that a rewrite of each would read: 0 for all but a few."""
    every = tables // WITH_WORK
    working = {1 + every * number for number in range(WITH_WORK)}
    return {
        ("sales", f"table_{number:03d}"): GIB if number in working else 0
        for number in range(tables)
    }


def saving(table: tuple[str, ...]) -> float:
    return 1.0 + int(table[1][-3:])


class Started:
    """Tables in the order in which their jobs were created, and the most that lived at once."""

    def __init__(self, api: Api, namespace: str, lake: dict[tuple[str, ...], int]):
        self.api, self.namespace, self.lake = api, namespace, lake
        self.tables: list[str] = []
        self.most = 0
        self.stop = threading.Event()

    def build(self, runtime: Runtime) -> Reconcilers:
        create = runtime.api.create

        def recorded(kind: Kind, namespace: str | None, body: Any) -> dict[str, Any]:
            answer = create(kind, namespace, body)
            if kind == JOB:
                owner = body["metadata"]["ownerReferences"][0]["name"]
                self.tables.append(owner.removeprefix("sales.table-")[:3])
            return answer

        runtime.api.create = recorded  # type: ignore[method-assign]
        lake = SimulatedLake(dict(self.lake), saving)
        return build(runtime, kind=SimulatedCatalogs, lake=lake)

    def look(self) -> None:
        while not self.stop.wait(0.2):
            jobs = self.api.list(JOB, self.namespace)
            living = [job for job in jobs if not (job.get("status") or {}).get("conditions")]
            self.most = max(self.most, len(living))


@contextmanager
def operator(cluster: Cluster, namespace: str, started: Started) -> Iterator[None]:
    stop = threading.Event()
    settings = OperatorSettings(
        namespaces=(namespace,), namespace=namespace, kubeconfig=str(cluster.kubeconfig),
        metrics_port=0, health_port=0, max_jobs=CAP,
    )  # fmt: skip
    threads = [
        threading.Thread(target=run, args=(settings, started.build, stop), daemon=True),
        threading.Thread(target=started.look, daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        started.stop.set()
        for thread in threads:
            thread.join(90)


@pytest.mark.parametrize("tables", [60, pytest.param(500, marks=pytest.mark.soak)])
def test_a_policy_over_many_tables(
    kubelet: Cluster, namespace: str, kubectl: Kubectl, tables: int
) -> None:
    kubelet.install_crds()
    kubelet.set_image("short", ["sh", "-c", "sleep 1"])
    for account in ("layout-spark", "layout-spark-executor"):
        kubectl("create", "serviceaccount", account)
    api = Api.from_environment(str(kubelet.kubeconfig))
    api.create(
        CATALOG, namespace, catalog(jobs={"serviceAccountName": "layout-spark", "image": "short"})
    )
    api.create(POLICY, namespace, facts({"mode": "Manual"}))
    started = Started(api, namespace, lake(tables))

    def status() -> dict[str, Any]:
        return dict(api.get(POLICY, namespace, "facts")["status"])

    def status_when(check: Callable[[dict[str, Any]], bool], seconds: float) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            time.sleep(0.5)
            now = status()
            return now if check(now) else None

        answer: dict[str, Any] = eventually(found, seconds)
        return answer

    with operator(kubelet, namespace, started):
        waiting = {
            "matched": tables, "converged": tables - WITH_WORK, "pending": WITH_WORK,
            "awaitingApproval": WITH_WORK, "stalled": 0, "conflicting": 0,
        }  # fmt: skip
        found = status_when(lambda now: now.get("tables") == waiting, 240)
        assert reason(found, "Converged") == "AwaitingApproval"
        assert reason(found, "Ready") == "Observed"
        assert found["summary"] == {
            "tables": f"{tables - WITH_WORK}/{tables}",
            "pendingBytes": f"{WITH_WORK}Gi",
        }
        assert len(found["attention"]) == 10 and not started.tables

        api.patch(POLICY, namespace, "facts", {"spec": {"approval": automatic()["approval"],
                                                       "budgets": [ROOM]}})  # fmt: skip
        done = status_when(lambda now: now["tables"]["converged"] == tables, 400)
        assert reason(done, "Converged") == "NothingToDo"
        versions = settled(lambda: resource_versions(api, namespace), 5)
        time.sleep(5)
        assert resource_versions(api, namespace) == versions, "written without a change"
    assert sorted(started.tables) == sorted(set(started.tables)), "one job a table"
    assert len(started.tables) == WITH_WORK
    assert 1 <= started.most <= CAP
    late = started.tables[WITH_WORK // 2 :]
    assert late == sorted(late, reverse=True), f"by saving per byte: {started.tables}"


def facts(approval: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": "facts"},
        "spec": {
            "catalogRef": {"name": "warehouse"},
            "tables": {"include": ["sales.*"]},
            "approval": approval,
            "engine": {
                "driver": {"cores": 1, "memory": "1Gi"},
                "executors": {"instances": 1, "cores": 1, "memory": "1Gi"},
                "maxConcurrentJobs": 8,
            },
        },
    }


def automatic() -> dict[str, Any]:
    return {"approval": {"mode": "Automatic"}}


def reason(status: dict[str, Any], kind: str) -> str:
    found = (item["reason"] for item in status["conditions"] if item["type"] == kind)
    return str(next(found, ""))


def resource_versions(api: Api, namespace: str) -> dict[str, str]:
    bodies = api.list(TABLE_LAYOUT, namespace, metadata_only=True)
    return {body["metadata"]["name"]: body["metadata"]["resourceVersion"] for body in bodies}
