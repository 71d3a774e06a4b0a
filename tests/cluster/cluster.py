"""A Kubernetes control plane as processes: etcd, kube-apiserver, kube-controller-manager.

For the tests of everything that talks to Kubernetes. RBAC, admission, custom resources, garbage
collection, Jobs and their clean-up are the real programs'; pods run when a test kubelet is started
beside it (tests/cluster/kubelet.py). docs/design/test-cluster.md says what is real and what is not.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.cluster import pki, processes

CRDS = Path(__file__).parents[2] / "crds"
API_SERVER, CONTROLLERS, ETCD, KUBELET = (
    "kube-apiserver",
    "kube-controller-manager",
    "etcd",
    "kubelet",
)

ACCOUNTS = {
    "admin": ("admin", "system:masters"),
    "controllers": ("system:kube-controller-manager", ""),
    "kubelet": ("test-kubelet", "system:masters"),
}
"""Static tokens: kubeconfig name -> (user, group). All others are service accounts."""

_CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "deployment-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "ttl-after-finished-controller",
)
_AUDIT = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, userGroups: ["system:authenticated"]}
- {level: Metadata}
"""
"""Kept are the requests whose credentials were refused, and nothing else."""
_START_SECONDS = 120
_GRACE = {KUBELET: 15.0}
"""Seconds that a program has to end; the others are killed at once. The API server would take all
of them while anybody watches, and nobody reads what the others would still write."""


class KubectlError(Exception):
    """kubectl failed; the text is what it printed on stderr."""


class Cluster:
    """One control plane whose files (certificates, logs, kubeconfigs, data) lie in `directory`."""

    def __init__(self, directory: Path, programs: Path) -> None:
        self.directory = directory.resolve()
        self.programs = programs
        self.port = processes.free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.ca = self.directory / "ca.crt"
        self.kubeconfig = self.directory / "admin.kubeconfig"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._tokens = {name: secrets.token_hex(16) for name in ACCOUNTS}
        self._etcd = ""

    def start(self) -> Self:
        """Starts everything and returns once Jobs can be made in the default namespace."""
        try:
            self._prepare()
            self._start_etcd()
            self.start_api_server()
            self._start_controllers()
            default = "/api/v1/namespaces/default"
            self._wait("service accounts", lambda: self._get(f"{default}/serviceaccounts/default"))
            self._wait("authority", lambda: self._get(f"{default}/configmaps/kube-root-ca.crt"))
        except BaseException:
            self.stop()
            raise
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends all processes; the kubelet first, which takes its pods with it."""
        for name in reversed(list(self.processes)):
            self._end(name)

    # What tests do to it

    def stop_api_server(self) -> None:
        """An outage: connections break and are refused until start_api_server()."""
        self._end(API_SERVER)

    def start_api_server(self) -> None:
        """Starts it, again on the same port, and waits until it is ready.

        The controllers start anew with it: those that saw the outage rest up to a minute before
        they ask again, which is not what a test of ours waits for.
        """
        at = self.directory
        self._spawn(
            API_SERVER,
            f"--etcd-servers={self._etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--tls-cert-file={at}/apiserver.crt",
            f"--tls-private-key-file={at}/apiserver.key",
            f"--token-auth-file={at}/tokens.csv",
            "--authorization-mode=RBAC",
            "--anonymous-auth=false",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={at}/sa.pub",
            f"--service-account-signing-key-file={at}/sa.key",
            "--service-cluster-ip-range=10.96.0.0/24",
            f"--kubelet-certificate-authority={at}/ca.crt",
            "--kubelet-preferred-address-types=InternalIP",
            "--endpoint-reconciler-type=none",
            "--enable-priority-and-fairness=false",
            f"--audit-policy-file={at}/audit.yaml",
            f"--audit-log-path={at}/audit.log",
            "--profiling=false",
            "--shutdown-delay-duration=0s",
        )
        self._wait("kube-apiserver", lambda: self._get("/readyz"))
        if CONTROLLERS in self.processes:
            self._end(CONTROLLERS)
            self._start_controllers()

    @contextlib.contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Holds a process (CONTROLLERS, KUBELET, ...) still, as if its machine had stalled."""
        process = self.processes[name]
        processes.signal_group(process, signal.SIGSTOP)
        try:
            yield
        finally:
            processes.signal_group(process, signal.SIGCONT)

    def start_kubelet(self, *, cpu: str = "64", memory: str = "256Gi") -> None:
        """Starts the node that runs pods as local processes, and waits until it is Ready."""
        unshare = ["unshare", *([] if os.getuid() == 0 else ["--map-root-user"])]
        private = ["--mount", "--pid", "--mount-proc", "--fork", "--kill-child=KILL"]
        self.processes[KUBELET] = processes.spawn(
            [
                *unshare, *private, sys.executable, "-m", "tests.cluster.kubelet",
                "--directory", str(self.directory), "--network", f"127.{1 + self.port % 250}",
                "--cpu", cpu, "--memory", memory,
            ],
            self.directory / "kubelet.log",
            {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
        self._wait("kubelet", self._node_is_ready)

    def stop_kubelet(self) -> None:
        """Ends it and with it every pod's process; the pods' objects stay as they were."""
        self._end(KUBELET)

    def set_image(
        self, name: str, entrypoint: list[str], env: dict[str, str] | None = None
    ) -> None:
        """What the kubelet runs for an image: stands in for its ENTRYPOINT and ENV.

        Values of `env` may use $(status.podIP) and the other fields of the downward API.
        """
        path = self.directory / "images.json"
        images = json.loads(path.read_text())
        images[name] = {"entrypoint": entrypoint, "env": env or {}}
        scratch = path.with_suffix(".new")
        scratch.write_text(json.dumps(images))
        scratch.replace(path)

    # Access to it

    def kubectl(
        self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None
    ) -> str:
        """Return what kubectl prints; it runs as the administrator if `kubeconfig` is None."""
        done = subprocess.run(
            [str(self.programs / "kubectl"), *arguments],
            input=stdin if stdin is not None else "",
            env=self.environment(kubeconfig),
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        if done.returncode:
            raise KubectlError(done.stderr.strip() or f"kubectl ended with {done.returncode}")
        return done.stdout

    def create_namespace(self, name: str) -> None:
        """Returns once pods can be made in it: they are refused until the controller has made the
        default service account, which takes a while after the API server was restarted."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.request("POST", "/api/v1/namespaces", body)
        path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        self._wait("service account", lambda: self._get(path))

    def install_crds(self) -> None:
        """The project's CRDs as they stand in crds/, ready to be served."""
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
        self.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")

    def environment(self, kubeconfig: Path | None = None) -> dict[str, str]:
        """For a client process: KUBECONFIG, and our kubectl first on the PATH."""
        return {
            **os.environ,
            "KUBECONFIG": str(kubeconfig or self.kubeconfig),
            "KUBECACHEDIR": str(self.directory / "kubectl-cache"),
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
        }

    def get(self, resource: str, name: str = "", *, namespace: str = "default") -> Any:
        """One object, or the list of all, as parsed JSON."""
        words = ["get", resource, *([name] if name else []), "-n", namespace, "-o", "json"]
        return json.loads(self.kubectl(*words))

    def token(self, namespace: str, account: str, seconds: int = 3600) -> str:
        """A token of a service account by TokenRequest; the server's minimum is 600 seconds."""
        return self.kubectl(
            "create", "token", account, "-n", namespace, f"--duration={seconds}s"
        ).strip()

    def user_kubeconfig(self, namespace: str, account: str, seconds: int = 3600) -> Path:
        """A kubeconfig that acts as a service account, in its namespace."""
        token = self.token(namespace, account, seconds)
        return self._write_kubeconfig(f"{namespace}-{account}", token, namespace)

    def refused(self, namespace: str) -> list[dict[str, Any]]:
        """Audit events of requests about the namespace whose credentials were refused."""
        path = self.directory / "audit.log"
        lines = path.read_text().splitlines() if path.exists() else []
        events = [json.loads(line) for line in lines if f"/namespaces/{namespace}/" in line]
        return [event for event in events if event["responseStatus"]["code"] == 401]

    # How it is made

    def _prepare(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        pki.write(self.directory)
        (self.directory / "images.json").write_text("{}")
        (self.directory / "audit.yaml").write_text(_AUDIT)
        tokens = self.directory / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(
            "".join(
                f'{self._tokens[name]},{user},{name},"{group}"\n'
                for name, (user, group) in ACCOUNTS.items()
            )
        )
        for name, token in self._tokens.items():
            self._write_kubeconfig(name, token, "default")

    def _write_kubeconfig(self, name: str, token: str, namespace: str) -> Path:
        authority = base64.b64encode(self.ca.read_bytes()).decode()
        path = self.directory / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "test",
                    "clusters": [
                        {
                            "name": "test",
                            "cluster": {
                                "server": self.url,
                                "certificate-authority-data": authority,
                            },
                        }
                    ],
                    "users": [{"name": "user", "user": {"token": token}}],
                    "contexts": [
                        {
                            "name": "test",
                            "context": {
                                "cluster": "test",
                                "user": "user",
                                "namespace": namespace,
                            },
                        }
                    ],
                }
            )
        )
        return path

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{processes.free_port()}" for _ in range(2))
        self._etcd = client
        self._spawn(
            ETCD,
            f"--data-dir={self.directory}/etcd",
            "--unsafe-no-fsync",
            "--log-level=error",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        )

    def _start_controllers(self) -> None:
        at = self.directory
        self._spawn(
            CONTROLLERS,
            f"--kubeconfig={at}/controllers.kubeconfig",
            f"--controllers={','.join(_CONTROLLERS)}",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={at}/sa.key",
            f"--root-ca-file={at}/ca.crt",
            "--leader-elect=false",
            "--secure-port=0",
            "--profiling=false",
        )

    def _end(self, name: str) -> None:
        processes.end(self.processes.pop(name), _GRACE.get(name, 0.0))

    def _spawn(self, name: str, *arguments: str) -> None:
        self.processes[name] = processes.spawn(
            [str(self.programs / name), *arguments], self.directory / f"{name}.log"
        )

    def _wait(self, what: str, ready: Callable[[], object]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            for name, process in self.processes.items():
                if process.poll() is not None:
                    log = (self.directory / f"{name}.log").read_text(errors="replace")
                    raise RuntimeError(f"{name} ended with {process.returncode}: {log[-2000:]}")
            try:
                ready()
                return
            except (OSError, KubectlError) as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{what}: not ready; logs in {self.directory}") from error
            time.sleep(0.05)

    def _get(self, path: str) -> bytes:
        return self.request("GET", path)

    def request(self, method: str, path: str, body: object = None) -> bytes:
        """The answer of the API server to the administrator, without a process of kubectl."""
        request = urllib.request.Request(
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._tokens['admin']}",
                "Content-Type": "application/json",
            },
            method=method,
        )
        context = ssl.create_default_context(cafile=str(self.ca))
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            found: bytes = answer.read()
            return found

    def _node_is_ready(self) -> None:
        nodes = json.loads(self._get("/api/v1/nodes"))["items"]
        conditions = [c for node in nodes for c in node["status"].get("conditions", ())]
        if not any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
            raise urllib.error.URLError("no node is Ready")

    def remove_files(self) -> None:
        """Deletes data, logs and keys; after stop()."""
        shutil.rmtree(self.directory, ignore_errors=True)
