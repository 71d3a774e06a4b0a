"""A kubelet that runs pods as local processes: one node, and the scheduler that fills it.

Run as the init process of its own PID namespace (Cluster.start_kubelet does so): when it ends, by
whatever signal, the kernel ends all pods with it. An image is an entry in images.json.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from tests.cluster.api_client import Api, Refused
from tests.cluster.container import Image, Node, Object, Setting, quantity
from tests.cluster.pod import Pod, now

_NAME = "test-node"
_MOST_PODS = "1000"
_RETRY_SECONDS = 0.3


class Children:
    """Exits of child processes. As init of its namespace the kubelet collects orphans too."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[int]] = {}

    def exit_of(self, pid: int) -> asyncio.Future[int]:
        """Its wait status, some day. Call it right after the start, before it can be collected."""
        future = self._waiting[pid] = asyncio.get_running_loop().create_future()
        return future

    def collect(self) -> None:
        """Takes the status of every child that has ended."""
        while True:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid:
                    self._ended(pid, status)
                    continue
            return

    def _ended(self, pid: int, status: int) -> None:
        future = self._waiting.pop(pid, None)
        if future is not None and not future.done():
            future.set_result(status)


class Kubelet:
    """Follows all pods; those without a node are bound to this one while they fit."""

    def __init__(self, api: Api, node: Node, directory: Path, network: str) -> None:
        self._api, self._node, self._directory, self._network = api, node, directory, network
        self._pods: dict[str, Pod] = {}
        self._unbound: dict[str, Object] = {}
        self._used: dict[str, tuple[float, float]] = {}
        self._addresses = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.children = Children()

    async def run(self, port: int) -> None:
        await self._register(port)
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                await self._follow()
            await asyncio.sleep(_RETRY_SECONDS)

    def find(self, namespace: str, name: str) -> Pod | None:
        for pod in self._pods.values():
            metadata = pod.body["metadata"]
            if (metadata["namespace"], metadata["name"]) == (namespace, name):
                return pod
        return None

    async def _register(self, port: int) -> None:
        labels = {"kubernetes.io/hostname": self._node.name, "kubernetes.io/os": "linux"}
        await self._api.post("/api/v1/nodes", {"metadata": {"name": _NAME, "labels": labels}})
        capacity = {"cpu": self._node.cpu, "memory": self._node.memory, "pods": _MOST_PODS}
        ready = {
            "type": "Ready", "status": "True", "reason": "KubeletReady",
            "lastHeartbeatTime": now(), "lastTransitionTime": now(),
        }  # fmt: skip
        status = {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [{"type": "InternalIP", "address": self._node.address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "conditions": [ready],
        }
        await self._api.patch(f"/api/v1/nodes/{_NAME}/status", {"status": status})

    async def _follow(self) -> None:
        """All pods as they are, then their changes until the watch ends."""
        listed = await self._api.get("/api/v1/pods")
        present = {body["metadata"]["uid"] for body in listed["items"]}
        for uid in (self._pods.keys() | self._unbound.keys()) - present:
            self._gone(uid)
        for body in listed["items"]:
            self._sync(body)
        async for kind, body in self._api.watch(
            "/api/v1/pods", listed["metadata"]["resourceVersion"]
        ):
            if kind == "DELETED":
                self._gone(body["metadata"]["uid"])
            else:
                self._sync(body)

    def _sync(self, body: Object) -> None:
        uid = body["metadata"]["uid"]
        if uid in self._pods:
            self._pods[uid].update(body)
        elif body["spec"].get("nodeName") == _NAME:
            self._unbound.pop(uid, None)
            self._start(body)
        elif not body["spec"].get("nodeName") and not body["spec"].get("schedulingGates"):
            known = uid in self._unbound
            self._unbound[uid] = body
            if not known:
                self._spawn(self._schedule(body))

    def _gone(self, uid: str) -> None:
        self._unbound.pop(uid, None)
        self._release(uid)
        pod = self._pods.pop(uid, None)
        if pod is not None:
            pod.vanish()

    def _start(self, body: Object) -> None:
        uid = body["metadata"]["uid"]
        self._used[uid] = requests(body)
        self._addresses += 1
        third, fourth = divmod(self._addresses, 250)
        setting = Setting(
            self._node,
            f"{self._network}.{third % 250}.{fourth + 1}",
            self._directory / "pods" / uid,
        )
        pod = Pod(body, setting, self._api, self._images, self.children.exit_of)
        self._pods[uid] = pod
        self._spawn(self._live(uid, pod))

    async def _live(self, uid: str, pod: Pod) -> None:
        try:
            await pod.live()
        finally:
            self._release(uid)
        await pod.remove()

    def _images(self) -> Mapping[str, Image]:
        """Read anew for each pod: a test may add one at any time."""
        known = json.loads((self._directory / "images.json").read_text())
        return {name: Image(item["entrypoint"], item["env"]) for name, item in known.items()}

    # Scheduling

    async def _schedule(self, body: Object) -> None:
        """Binds the pod, or says why it cannot be."""
        metadata = body["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        obstacle = self._obstacle(body)
        if obstacle:
            condition = {
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": f"0/1 nodes are available: {obstacle}.", "lastTransitionTime": now(),
            }  # fmt: skip
            change = {"metadata": {"uid": metadata["uid"]}, "status": {"conditions": [condition]}}
            await self._api.patch(f"{path}/status", change)
            return
        self._used[metadata["uid"]] = requests(body)
        target = {"apiVersion": "v1", "kind": "Node", "name": _NAME}
        binding = {"metadata": {"name": metadata["name"], "uid": metadata["uid"]}, "target": target}
        await self._api.post(f"{path}/binding", binding)

    def _obstacle(self, body: Object) -> str:
        selector = body["spec"].get("nodeSelector", {})
        labels = {"kubernetes.io/hostname": _NAME, "kubernetes.io/os": "linux"}
        if any(labels.get(key) != value for key, value in selector.items()):
            return "1 node(s) didn't match Pod's node affinity/selector"
        wanted = requests(body)
        limits = (quantity(self._node.cpu), quantity(self._node.memory))
        for what, index in (("cpu", 0), ("memory", 1)):
            if sum(used[index] for used in self._used.values()) + wanted[index] > limits[index]:
                return f"1 Insufficient {what}"
        return ""

    def _release(self, uid: str) -> None:
        """What the pod used is free again, and those that wait are tried anew."""
        if self._used.pop(uid, None) is not None:
            for body in self._unbound.values():
                self._spawn(self._schedule(body))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Refused):  # the namespace is going, or RBAC changed: said, not fatal
            print(error, flush=True)
        elif error is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a pod's task failed", "exception": error, "task": task}
            )


def requests(body: Object) -> tuple[float, float]:
    """Cores and bytes that the pod's containers ask for."""
    asked = [c.get("resources", {}).get("requests", {}) for c in body["spec"]["containers"]]
    cores = sum(quantity(item.get("cpu", 0)) for item in asked)
    return cores, sum(quantity(item.get("memory", 0)) for item in asked)


class Logs:
    """What `kubectl logs` reads: GET /containerLogs/NAMESPACE/POD/CONTAINER."""

    def __init__(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet

    async def serve(self, address: str, certificate: Path, key: Path) -> int:
        """Starts the HTTPS server; its port."""
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self.logs)
        runner = web.AppRunner(app)
        await runner.setup()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        await web.TCPSite(runner, address, 0, ssl_context=context).start()
        return int(runner.addresses[0][1])

    async def logs(self, request: web.Request) -> web.StreamResponse:
        pod = self._kubelet.find(request.match_info["namespace"], request.match_info["pod"])
        if pod is None:
            raise web.HTTPNotFound(text="no such pod on this node")
        path = pod.previous_log() if "previous" in request.query else pod.log()
        if not path.exists():
            raise web.HTTPNotFound(text="the container has no log")
        answer = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await answer.prepare(request)
        with path.open("rb") as file:
            await answer.write(_tail(file.read(), int(request.query.get("tailLines", -1))))
            while "follow" in request.query:
                ended = pod.ended  # asked before reading, so that the last lines are not missed
                await answer.write(file.read())
                if ended:
                    break
                await asyncio.sleep(0.1)
        await answer.write_eof()
        return answer


def _tail(content: bytes, lines: int) -> bytes:
    if lines < 0:
        return content
    return b"".join(content.splitlines(keepends=True)[-lines:]) if lines else b""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="the cluster's files")
    parser.add_argument("--network", required=True, help="two octets: pods are NETWORK.x.y")
    parser.add_argument("--cpu", required=True, help="cores that the node has to give")
    parser.add_argument("--memory", required=True, help="memory that the node has to give")
    return parser.parse_args()


async def main() -> None:
    arguments = _arguments()
    directory: Path = arguments.directory
    config = json.loads((directory / "kubelet.kubeconfig").read_text())
    server = config["clusters"][0]["cluster"]["server"]
    api = Api(server, directory / "ca.crt", config["users"][0]["user"]["token"])
    node = Node(_NAME, "127.0.0.1", arguments.cpu, arguments.memory)
    kubelet = Kubelet(api, node, directory, arguments.network)
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGCHLD, kubelet.children.collect)
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    port = await Logs(kubelet).serve(
        node.address, directory / "kubelet.crt", directory / "kubelet.key"
    )
    following = asyncio.create_task(kubelet.run(port))
    stopping = asyncio.create_task(stopped.wait())
    await asyncio.wait({following, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if following.done():
        following.result()  # it ends by an error only
    await api.close()


if __name__ == "__main__":
    asyncio.run(main())
