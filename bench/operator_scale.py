"""What 10,000 policies over 10,000 tables cost the operator, its API server and their users.

Run with `python -m bench.operator_scale [OBJECTS]`: a real API server, the operator's own process
with its real reconciles, and a catalog that is simulated (nine of ten tables converged, one with a
plan that waits for a person). First everything is new to the operator; then it is restarted, people
edit policies while it is still looking at everything, and at last nobody does anything.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench.results import write_section
from reconciler.kube.api import Api
from reconciler.kube.kinds import CATALOG, NAMESPACE, POLICY, TABLE_LAYOUT
from reconciler.operator.process.main import run
from reconciler.operator.process.reconcilers import build
from reconciler.operator.settings import OperatorSettings
from tests.cluster import binaries
from tests.cluster.cluster import Cluster
from tests.cluster.processes import free_port
from tests.operator.cluster_objects import catalog
from tests.operator.simulated import SimulatedCatalogs, SimulatedLake

NAME = "scale"
OBJECTS, EDITS = 10_000, 200
RELIST, QUIET = 150.0, 165.0
"""A quarter of the usual time between two re-lists, so that a short stretch holds one."""
PLURALS = ("tablelayoutpolicies", "tablelayouts", "icebergcatalogs", "leases", "jobs", "pods")


def main(objects: int) -> None:
    programs = binaries.directory("kube")
    with (
        tempfile.TemporaryDirectory(prefix="scale-") as directory,
        Cluster(Path(directory), programs) as cluster,
    ):
        cluster.install_crds()
        api = Api.from_environment(str(cluster.kubeconfig))
        _populate(api, objects)
        bench = Bench(cluster, api, objects)
        bench.cold()
        bench.warm()
        version = json.loads(cluster.request("GET", "/version"))["gitVersion"]
        load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
        note = (
            f"{objects} policies over as many tables, one catalog; test cluster of Kubernetes "
            f"{version} on the same machine, whose load was {load} at the end. Ready: "
            "/readyz answers after the start of the process. Edits: a policy's spec is changed, "
            "then its status says Ready of that very generation; the first half while a restarted "
            "operator still looks at every object. Calls: what the API server counted in "
            f"{QUIET:.0f} s "
            f"without an edit, with a re-list every {RELIST:.0f} s instead of every 600 s, leases, "
            "jobs and pods of all clients included. CPU of the machine's other work is not in it."
        )
        head = ("what", "goal", "measured")
        command = f"python -m bench.operator_scale {objects}"
        name = "Operator at scale" if objects == OBJECTS else f"Operator at {objects:,} objects"
        print(write_section(name, command, [head, *bench.rows], note))


@dataclass
class Bench:
    cluster: Any
    api: Api
    objects: int
    rows: list[tuple[str, str, str]] = field(default_factory=list)
    health: int = field(default_factory=free_port)
    metrics: int = field(default_factory=free_port)

    def say(self, what: str, goal: str, measured: str) -> None:
        print(f"{what}: {measured} (goal: {goal})", flush=True)
        self.rows.append((what, goal, measured))

    def cold(self) -> None:
        """Nothing has a status yet, no table has its TableLayout."""
        started = time.monotonic()
        with self.operator() as pid:
            self.say("ready, everything new", "60 s", f"{time.monotonic() - started:.1f} s")
            _wait(lambda: _settled(self.metrics) >= self.objects, 3600, pause=5)
            seconds = time.monotonic() - started
            self.say("all tables planned, with conditions", "-", f"{seconds:.0f} s")
            _wait(lambda: _idle(self.metrics), 600, pause=5)
            self.say("memory, peak, everything new", "500 MB", f"{_rss(pid, 'VmHWM'):.0f} MB")
            self.cpu(pid, "everything new")

    def warm(self) -> None:
        """A restart over objects that are as they should be."""
        started = time.monotonic()
        with self.operator() as pid:
            self.say("ready, restarted", "60 s", f"{time.monotonic() - started:.1f} s")
            numbers = [n * self.objects // EDITS for n in range(EDITS)]
            busy = sorted(self.edit(number) for number in numbers[::2])
            self.latency("edit to accepted status, during the re-list", busy)
            _wait(lambda: _looked(self.metrics) >= self.objects, 1200, pause=5)
            self.say("every table looked at, restarted", "-", f"{time.monotonic() - started:.0f} s")
            quiet = sorted(self.edit(number) for number in numbers[1::2])
            self.latency("edit to accepted status, quiet", quiet)
            _wait(lambda: _idle(self.metrics), 600, pause=5)
            self.quiet(pid)
            self.say("memory, peak, restarted", "500 MB", f"{_rss(pid, 'VmHWM'):.0f} MB")
            self.say("memory at the end", "-", f"{_rss(pid):.0f} MB")
            self.cpu(pid, "restarted")
            page = _page(self.metrics, "/metrics")
            series = sum(not line.startswith("#") for line in page.splitlines())
            self.say("series on the metrics page", "bounded", str(series))

    def quiet(self, pid: int) -> None:
        """Nobody does anything: what is called and written all the same."""
        before = self.versions()
        calls, cpu = self.calls(), _cpu(pid)
        time.sleep(QUIET)
        hourly = (self.calls() - calls) * 3600 / QUIET / self.objects
        share = (_cpu(pid) - cpu) / QUIET
        after = self.versions()
        changed = sum(after[name] != version for name, version in before.items())
        self.say("API calls an hour for an idle table", "30", f"{hourly:.2f}")
        self.say("objects written without a change", "0", str(changed))
        self.say("operator's CPU while nothing happens", "-", f"{share:.1%} of a core")

    def latency(self, what: str, seconds: list[float]) -> None:
        p99 = seconds[max(0, int(len(seconds) * 0.99) - 1)]
        middle = seconds[len(seconds) // 2]
        self.say(f"{what}, median", "-", f"{middle:.2f} s")
        self.say(f"{what}, p99", "2 s", f"{p99:.2f} s")
        self.say(f"{what}, longest of {len(seconds)}", "-", f"{seconds[-1]:.2f} s")

    def edit(self, number: int) -> float:
        """Seconds from the server's answer to an edit until the status speaks of it."""
        name = f"policy-{number}"
        spec = {"spec": {"interval": f"{11 + int(time.time()) % 1000}m"}}
        edited = self.api.patch(POLICY, NAME, name, spec)
        started, generation = time.monotonic(), edited["metadata"]["generation"]
        _wait(lambda: _accepted(self.api.get(POLICY, NAME, name), generation), 300, pause=0.02)
        return time.monotonic() - started

    def cpu(self, pid: int, when: str) -> None:
        server, store = (self.cluster.processes[name].pid for name in ("kube-apiserver", "etcd"))
        text = f"{_cpu(pid):.0f} s, API server {_cpu(server):.0f} s, etcd {_cpu(store):.0f} s"
        self.say(f"CPU of the operator so far, {when}", "-", text)

    def versions(self) -> dict[str, str]:
        return {
            f"{kind.plural}/{body['metadata']['name']}": body["metadata"]["resourceVersion"]
            for kind in (POLICY, TABLE_LAYOUT, CATALOG)
            for body in self.api.list(kind, NAME, metadata_only=True)
        }

    def calls(self) -> float:
        """All requests for the kinds that the operator works with, whoever sent them."""
        metrics = self.cluster.request("GET", "/metrics").decode()
        pattern = re.compile(r'^apiserver_request_total\{.*resource="(\w+)".* ([\d.e+]+)$', re.M)
        found = pattern.findall(metrics)
        return sum(float(value) for resource, value in found if resource in PLURALS)

    @contextmanager
    def operator(self) -> Iterator[int]:
        with (self.cluster.directory / "operator.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "bench.operator_scale", "--operator",
                 str(self.cluster.kubeconfig), str(self.objects),
                 str(self.health), str(self.metrics)],
                stdout=log, stderr=log,
                env={**os.environ, "MALLOC_ARENA_MAX": "2"},  # as in the operator's image
            )  # fmt: skip
            try:
                _wait(lambda: _page(self.health, "/readyz") == "ok\n", 600, pause=0.1)
                yield process.pid
            finally:
                process.terminate()
                process.wait(120)


def _accepted(body: dict[str, Any], generation: int) -> bool:
    status = body.get("status") or {}
    return status.get("observedGeneration") == generation and any(
        item["type"] == "Ready"
        and item["status"] == "True"
        and item["observedGeneration"] == generation
        for item in status.get("conditions", ())
    )


def _settled(port: int) -> float:
    """Tables with a verdict of their own."""
    pattern = r'^layout_tables\{converged="(?:True|False)".* ([\d.e+]+)$'
    found = re.findall(pattern, _page(port, "/metrics"), re.M)
    return sum(float(value) for value in found)


def _idle(port: int) -> bool:
    """Whether keys find a worker as soon as they are due."""
    page = _page(port, "/metrics")
    depths = re.findall(r"^layout_queue_depth.* ([\d.e+]+)$", page, re.M)
    return bool(depths) and sum(float(depth) for depth in depths) <= 20


def _looked(port: int) -> float:
    """Reconciles of tables since the start of the process."""
    pattern = r'^layout_reconcile_duration_seconds_count\{kind="layout".* ([\d.e+]+)$'
    return sum(float(value) for value in re.findall(pattern, _page(port, "/metrics"), re.M))


def _page(port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def _wait(check: Callable[[], Any], seconds: float, pause: float) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = check()
        if found:
            return found
        time.sleep(pause)
    raise TimeoutError


def _rss(pid: int, what: str = "VmRSS") -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _cpu(pid: int) -> float:
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def _populate(api: Api, objects: int) -> None:
    api.create(NAMESPACE, None, {"metadata": {"name": NAME}})
    api.create(CATALOG, NAME, catalog())
    started = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: api.create(POLICY, NAME, _policy(number)), range(objects)))
    print(f"made {objects} policies in {time.monotonic() - started:.0f} s", flush=True)


def _operator(kubeconfig: str, objects: int, health: int, metrics: int) -> None:
    """The process that is measured."""
    settings = OperatorSettings(
        namespaces=(NAME,),
        namespace=NAME,
        kubeconfig=kubeconfig,
        health_port=health,
        metrics_port=metrics,
        relist=RELIST,
    )
    tables = {
        ("sales", f"table_{number}"): (400 << 30) if number % 10 == 0 else 0
        for number in range(objects)
    }
    run(settings, partial(build, kind=SimulatedCatalogs, lake=SimulatedLake(tables)))


def _policy(number: int) -> dict[str, Any]:
    return {
        "metadata": {"name": f"policy-{number}", "labels": {"team": "sales"}},
        "spec": {
            "catalogRef": {"name": "warehouse"},
            "tables": {"include": [f"sales.table_{number}"]},
            "objectives": {"maxScanAmplification": "1.5", "maxSmallFilePercent": 10},
            "budgets": [{"name": "daily", "per": "24h", "maxRewriteBytes": "500Gi"}],
        },
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--operator"]:
        _operator(sys.argv[2], *(int(text) for text in sys.argv[3:]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else OBJECTS)
