"""What calls of the API server cost: through `kube.api`, and through the kubernetes client's APIs.

Run with `python -m bench.kube_client`. The server is a stand-in in another process, so that CPU and
memory are the client's alone. Each way runs in a process of its own: it starts, lists objects, and
patches one of them. CustomObjectsApi and DynamicClient do so with TableLayouts, BatchV1Api with
Jobs, and kube.api with both.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.results import write_section
from reconciler.api.version import GROUP, VERSION

CALLS, OBJECTS, ROUNDS = 1_000, 20, 3
WAYS = ("kube.api", "CustomObjectsApi", "DynamicClient", "kube.api, Jobs", "BatchV1Api")
PLACE = {"group": GROUP, "version": VERSION, "namespace": "lake", "plural": "tablelayouts"}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="kube-client-") as directory:
        port: Any = multiprocessing.Queue()
        server = multiprocessing.Process(target=_serve, args=(port,), daemon=True)
        server.start()
        config = _kubeconfig(Path(directory), port.get())
        found = {way: [_measured(way, config) for _ in range(ROUNDS)] for way in WAYS}
        server.terminate()
    rows = [("way", "start, CPU s", "start, MB", f"{CALLS:,} lists, CPU s",
             f"{CALLS:,} patches, CPU s", "memory at the end, MB")]  # fmt: skip
    for way, runs in found.items():
        best = {name: min(run[name] for run in runs) for name in runs[0]}
        seconds = [f"{best[name]:.2f}" for name in ("list", "patch")]
        rows.append((way, f"{best['start']:.2f}", f"{best['start_mb']:.0f}", *seconds,
                     f"{best['mb']:.0f}"))  # fmt: skip
    note = (
        f"Best of {ROUNDS} runs in turns, each in a new process; a list has {OBJECTS} objects "
        "with a status. Start: imports and the configuration, until the first call can be sent."
    )
    print(write_section("Calls of the API server", "python -m bench.kube_client", rows, note))


def _measured(way: str, config: str) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.kube_client", way, config]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def _client(way: str, config: str) -> None:
    """The process that is measured."""
    empty = time.process_time()
    lister, patcher = _calls(way, config)
    found = {"start": time.process_time() - empty, "start_mb": _rss()}
    for name, call in (("list", lister), ("patch", patcher)):
        call()
        began = time.process_time()
        for _ in range(CALLS):
            call()
        found[name] = time.process_time() - began
    print(json.dumps({**found, "mb": _rss()}))


def _calls(way: str, config: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    body = {"status": {"observedGeneration": 2}}
    if way.startswith("kube.api"):
        from reconciler.kube.api import Api
        from reconciler.kube.kinds import JOB, TABLE_LAYOUT

        api, kind = Api.from_environment(config), JOB if "Jobs" in way else TABLE_LAYOUT
        return lambda: api.list(kind, "lake"), lambda: api.patch(kind, "lake", "t0", body)
    from kubernetes import client
    from kubernetes.config import new_client_from_config

    connected: Any = new_client_from_config(config)
    if way == "DynamicClient":
        from kubernetes.dynamic import DynamicClient

        dynamic = DynamicClient(connected).resources.get(
            api_version=f"{GROUP}/{VERSION}", kind="TableLayout"
        )
        return (
            lambda: dynamic.get(namespace="lake", limit=500),
            lambda: dynamic.patch(
                name="t0", namespace="lake", body=body, content_type="application/merge-patch+json"
            ),
        )
    if way == "BatchV1Api":
        jobs: Any = client.BatchV1Api(connected)
        return (
            lambda: jobs.list_namespaced_job("lake", limit=500),
            lambda: jobs.patch_namespaced_job("t0", "lake", body),
        )
    objects: Any = client.CustomObjectsApi(connected)
    merge = "application/merge-patch+json"
    return (
        lambda: objects.list_namespaced_custom_object(**PLACE, limit=500),
        lambda: objects.patch_namespaced_custom_object(
            **PLACE, name="t0", body=body, _content_type=merge
        ),
    )


def _rss() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _kubeconfig(directory: Path, port: int) -> str:
    named = {"name": "stand-in"}
    path = directory / "kubeconfig"
    body = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "stand-in",
        "clusters": [{**named, "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{**named, "user": {"token": "x"}}],
        "contexts": [{**named, "context": {"cluster": "stand-in", "user": "stand-in"}}],
    }
    path.write_text(json.dumps(body), encoding="utf-8")
    return str(path)


def _serve(port: Any) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    port.put(server.server_address[1])
    server.serve_forever()


class _Answers(BaseHTTPRequestHandler):
    """Lists OBJECTS TableLayouts, answers a patch with one, and describes its resources."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        jobs = "/batch/" in self.path
        self._answer(_discovery(self.path) or (_JOBS if jobs else _LIST))

    def do_PATCH(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(_JOBS["items"][0] if "/batch/" in self.path else _LIST["items"][0])

    def _answer(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _object(number: int) -> dict[str, Any]:
    condition = {
        "type": "Converged", "status": "True", "reason": "NothingToDo", "observedGeneration": 2,
        "lastTransitionTime": "2026-11-01T00:00:00Z", "message": "nothing above threshold",
    }  # fmt: skip
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "TableLayout",
        "metadata": {
            "name": f"t{number}", "namespace": "lake", "uid": f"u{number}", "generation": 2,
            "resourceVersion": "17", "creationTimestamp": "2026-11-01T00:00:00Z",
        },
        "spec": {"policyRef": {"name": "p"}, "catalogRef": {"name": "w"},
                 "table": {"namespace": ["sales"], "name": f"table_{number}"}},
        "status": {"observedGeneration": 2, "conditions": [condition] * 4,
                   "observed": {"files": 48_211, "bytes": "3.4Ti"}},
    }  # fmt: skip


def _job(number: int) -> dict[str, Any]:
    container = {"name": "driver", "image": "layout:1", "env": [{"name": "A", "value": "b"}] * 8}
    pod = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    meta = _object(number)["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**meta, "labels": {"layout": f"t{number}"}},
        "spec": {"backoffLimit": 0, "template": pod},
        "status": {"startTime": "2026-11-01T00:00:00Z", "active": 1},
    }


_JOBS: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "JobList",
    "metadata": {"resourceVersion": "17"},
    "items": [_job(number) for number in range(OBJECTS)],
}
_LIST: dict[str, Any] = {
    "apiVersion": f"{GROUP}/{VERSION}",
    "kind": "TableLayoutList",
    "metadata": {"resourceVersion": "17"},
    "items": [_object(number) for number in range(OBJECTS)],
}


def _discovery(path: str) -> dict[str, Any] | None:
    """What a dynamic client asks for before its first call."""
    path = path.partition("?")[0].rstrip("/")
    version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    if path == "/version":
        return {"major": "1", "minor": "35", "gitVersion": "v1.35.4"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        group = {"name": GROUP, "versions": [version], "preferredVersion": version}
        return {"kind": "APIGroupList", "groups": [group]}
    names = [("TableLayout", "tablelayouts"), ("TableLayout", "tablelayouts/status")]
    if path == f"/apis/{GROUP}/{VERSION}":
        resources = [
            {"name": plural, "kind": kind, "singularName": "", "namespaced": True,
             "verbs": ["get", "list", "patch"]}
            for kind, plural in names
        ]  # fmt: skip
        return {"kind": "APIResourceList", "groupVersion": f"{GROUP}/{VERSION}",
                "resources": resources}  # fmt: skip
    if path == "/api/v1":
        return {"kind": "APIResourceList", "groupVersion": "v1", "resources": []}
    return None


if __name__ == "__main__":
    if len(sys.argv) == 3:
        _client(*sys.argv[1:])
    else:
        main()
