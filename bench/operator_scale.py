"""What 10,000 policies and tables cost the operator before any reconcile does work.

Run with `python -m bench.operator_scale [OBJECTS]`: a real API server, realistic objects, the
operator's own process with reconciles that return at once. Prints seconds until ready, the
process's memory, and the time from a policy's change to its reconcile.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from reconciler.controller.operator import run
from reconciler.controller.settings import Settings
from reconciler.controller.work import Key, Reconcilers, Result, Runtime, Work
from reconciler.kube.api import CATALOG, NAMESPACE, POLICY, TABLE_LAYOUT, Api

CRDS = Path(__file__).parents[1] / "crds"
NAME = "scale"
HEALTH, METRICS = 18091, 18090


def main(objects: int) -> None:
    from tests.cluster import binaries
    from tests.cluster.cluster import Cluster

    programs = binaries.directories(["kube"])["kube"]
    with (
        tempfile.TemporaryDirectory(prefix="scale-") as directory,
        Cluster(Path(directory), programs) as cluster,
    ):
        cluster.kubectl("apply", "--server-side", "-f", str(CRDS))
        cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        api = Api.from_environment(str(cluster.kubeconfig))
        _populate(api, objects)
        _measure(api, str(cluster.kubeconfig), objects)


def _populate(api: Api, objects: int) -> None:
    api.create(NAMESPACE, None, {"metadata": {"name": NAME}})
    api.create(CATALOG, NAME, _catalog())
    started = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: _make(api, i), range(objects)))
    print(f"made {2 * objects} objects in {time.monotonic() - started:.0f} s", flush=True)


def _make(api: Api, number: int) -> None:
    api.create(POLICY, NAME, _policy(number))
    made = api.create(TABLE_LAYOUT, NAME, _layout(number))
    version = made["metadata"]["resourceVersion"]
    api.put_status(TABLE_LAYOUT, NAME, made["metadata"]["name"], _status(), version)


def _measure(api: Api, kubeconfig: str, objects: int) -> None:
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.operator_scale", "--operator", kubeconfig],
        stdout=subprocess.PIPE,
        text=True,
    )
    lines: list[dict[str, float | str]] = []
    threading.Thread(target=_read, args=(process, lines), daemon=True).start()
    try:
        _wait(lambda: any(line["event"] == "ready" for line in lines), 300)
        print(f"ready after {time.monotonic() - started:.1f} s, RSS {_rss(process.pid):.0f} MB")
        # kopf lists everything once more; until it is through, changes wait behind that.
        _reaction(api, lines, 1, patience=900)
        print(f"settled: RSS {_rss(process.pid):.0f} MB, peak {_rss(process.pid, 'VmHWM'):.0f} MB")
        seconds = [_reaction(api, lines, number) for number in range(0, objects, objects // 100)]
        seconds.sort()
        print(
            f"policy change to reconcile: median {statistics.median(seconds):.2f} s, "
            f"p99 {seconds[int(len(seconds) * 0.99) - 1]:.2f} s"
        )
        print(f"at the end: RSS {_rss(process.pid):.0f} MB, peak {_rss(process.pid, 'VmHWM'):.0f}")
    finally:
        process.terminate()
        process.wait(60)


def _reaction(
    api: Api, lines: list[dict[str, float | str]], number: int, patience: float = 60
) -> float:
    """Seconds from the accepted write of a policy to its next reconcile."""
    name = f"policy-{number}"
    interval = {"spec": {"interval": f"{11 + int(time.time()) % 1000}m"}}
    started = time.time()
    api.patch(POLICY, NAME, name, interval)
    found = _wait(
        lambda: [x for x in lines if x.get("name") == name and float(x["time"]) >= started],
        patience,
    )
    return float(found[0]["time"]) - started


def _wait(check, seconds: float):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = check()
        if found:
            return found
        time.sleep(0.01)
    raise TimeoutError


def _read(process: subprocess.Popen[str], lines: list[dict[str, float | str]]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(json.loads(line))


def _rss(pid: int, what: str = "VmRSS") -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _operator(kubeconfig: str) -> None:
    """The process that is measured: says when it is ready and which policies it reconciles."""
    settings = Settings(
        namespaces=(NAME,),
        namespace=NAME,
        kubeconfig=kubeconfig,
        health_port=HEALTH,
        metrics_port=METRICS,
    )

    def say(**fields: object) -> None:
        os.write(1, (json.dumps({"time": time.time(), **fields}) + "\n").encode())

    def policy(key: Key) -> Result:
        say(event=Work.POLICY, name=key.name)
        return Result()

    def build(_: Runtime) -> Reconcilers:
        say(event="ready")
        return Reconcilers(policy, *([lambda key: Result()] * 3))

    run(settings, build)


def _catalog() -> dict:
    return {
        "metadata": {"name": "warehouse"},
        "spec": {
            "type": "sql",
            "catalogName": "rec",
            "properties": {"uri": "postgresql://db:5432/c", "warehouse": "s3://lake/wh"},
            "system": {"plans": {"uri": "s3://lake/plans"}},
            "jobs": {"serviceAccountName": "layout-spark", "image": "spark"},
        },
    }


def _policy(number: int) -> dict:
    return {
        "metadata": {"name": f"policy-{number}", "labels": {"team": "sales"}},
        "spec": {
            "catalogRef": {"name": "warehouse"},
            "tables": {"include": [f"sales.table_{number}"]},
            "objectives": {"maxScanAmplification": "1.5", "maxSmallFilePercent": 10},
            "budgets": [{"name": "daily", "per": "24h", "maxRewriteBytes": "500Gi"}],
        },
    }


def _layout(number: int) -> dict:
    return {
        "metadata": {"name": f"sales.table-{number}-{number:010d}"},
        "spec": {
            "catalogRef": {"name": "warehouse"},
            "table": {"namespace": ["sales"], "name": f"table_{number}"},
            "policyRef": {"name": f"policy-{number}", "generation": 1},
        },
    }


def _status() -> dict:
    """A table with a plan that waits, the longest usual status."""
    condition = {
        "observedGeneration": 1,
        "lastTransitionTime": "2026-11-20T10:00:00Z",
        "message": "A plan stands and waits for a person. " * 3,
    }
    kinds = (
        ("Ready", "True", "Observed"),
        ("Converged", "False", "AwaitingApproval"),
        ("Approved", "False", "AwaitingApproval"),
        ("WithinBudget", "True", "Fits"),
    )
    return {
        "observedGeneration": 1,
        "table": {"uuid": "3f9a1c0b-77de-4c21-a0be-3f9a1c0b77de", "formatVersion": 2},
        "observed": {
            "snapshotId": "7312984123412341234",
            "time": "2026-11-20T10:00:00Z",
            "files": 48211,
            "bytes": "3.4Ti",
            "scanAmplification": "3.42",
            "workload": {"queries": 8120, "until": "2026-11-20T09:00:00Z"},
        },
        "plan": {
            "id": "p-3f9a1c0b77de4c21a0be",
            "digest": "sha256:" + "0" * 64,
            "uri": "s3://lake/plans/sha256/" + "0" * 64 + ".json",
            "rewriteBytes": "412Gi",
            "actions": [{"type": "Recluster", "count": 12, "files": 6400, "rewriteBytes": "400Gi"}],
            "summary": "12 Recluster (6400 files, 400Gi)",
        },
        "conditions": [
            {"type": kind, "status": status, "reason": reason, **condition}
            for kind, status, reason in kinds
        ],
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--operator"]:
        _operator(sys.argv[2])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
