"""The operator as helm installs it, in its pod and under the chart's service account, on the stage
of `scene`; the people around it; and everything that anyone said where secrets must not be."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from charts import sync
from reconciler.kube.api import Api
from tests.cluster import processes
from tests.cluster.cluster import Cluster
from tests.operator.scene import ROOT, Lake, Scene, Watchman, documents

RELEASE = "lake"
FULL_NAME = f"{RELEASE}-layout-reconciler"
JOB_IMAGE = "spark:test"
SECRET = "warehouse-credentials"
PLANTED = "planted-hunter2-value"
"""A credential that nothing needs and nobody may repeat."""


@dataclass
class Installed:
    """One release in one namespace. Make it with `installed`."""

    cluster: Cluster
    scene: Scene
    metrics: int

    @property
    def namespace(self) -> str:
        return self.scene.namespace

    def apply(self, **policy: Any) -> None:
        """Secret, catalog and policy; `policy` replaces parts of its spec."""
        self.scene.kubectl("apply", "-f", "-", stdin=self.documents(**policy))

    def documents(self, **policy: Any) -> str:
        catalog, layout_policy = documents(self.scene.lake, self.namespace, **policy)
        catalog["spec"]["secretRef"] = {"name": SECRET}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET, "namespace": self.namespace},
            "stringData": {"gcs.oauth2.token": PLANTED},
        }
        return yaml.safe_dump_all([secret, catalog, layout_policy])

    def person(self, name: str, role: str) -> Path:
        """A kubeconfig of somebody who has one of the chart's roles in the namespace."""
        account = f"--serviceaccount={self.namespace}:{name}"
        self.scene.kubectl("create", "serviceaccount", name)
        self.scene.kubectl("create", "rolebinding", name, f"--clusterrole={role}", account)
        return self.cluster.user_kubeconfig(self.namespace, name)

    def operator_log(self) -> str:
        return self.scene.kubectl("logs", f"deployment/{FULL_NAME}", "--tail=-1")

    def everything_said(self) -> str:
        """All objects but the Secrets, events, logs of operator and drivers, plans, state."""
        kinds = "tlp,tl,icat,jobs,pods,deployments,configmaps,events,leases"
        found = [self.scene.kubectl("get", kinds, "-o", "yaml"), self.operator_log()]
        found += [path.read_text(errors="replace") for path in self.logs()]
        found += [
            path.read_text(errors="replace") for path in self.scene.lake.directory.rglob("*.json")
        ]
        return "\n".join([*found, *self._state()])

    def logs(self) -> list[Path]:
        """Of every container that ran in the namespace, as the node keeps them."""
        pods = self.cluster.directory / "pods"
        return [
            log
            for log in pods.glob("*/*.log")
            if f'"{self.namespace}"' in (log.parent / "spec.json").read_text()
            or self.namespace in log.read_text(errors="replace")
        ]

    def _state(self) -> Iterator[str]:
        catalog = self.scene.lake.catalog
        for namespace in catalog.list_namespaces():
            for identifier in catalog.list_tables(namespace):
                table = catalog.load_table(identifier)
                yield json.dumps(table.metadata.model_dump(mode="json"))
                yield str(table.scan().to_arrow().to_pylist())


@contextlib.contextmanager
def installed(cluster: Cluster, helm: Path, namespace: str, lake: Lake) -> Iterator[Installed]:
    """`helm install` with the images' names, as people do it; the ports are ones that are free."""
    chart = yaml.safe_load((sync.CHART / "Chart.yaml").read_text())
    image = f"layout-reconciler:{chart['appVersion']}"
    cluster.set_image(
        image, [sys.executable, "-m", "reconciler.cli.main"], {"PYTHONPATH": str(ROOT)}
    )
    metrics = processes.free_port()
    extra = {
        "LAYOUTCTL_OPERATOR_METRICS_PORT": str(metrics),
        "LAYOUTCTL_OPERATOR_HEALTH_PORT": str(processes.free_port()),
        "LAYOUTCTL_OPERATOR_SECRET_INTERVAL": "2s",
        # The lake is a directory of this machine, on which all pods run.
        "LAYOUTCTL_OPERATOR_LOCAL_FILES": "true",
    }
    values = {
        "jobs": {"image": JOB_IMAGE},
        "extraEnv": [{"name": key, "value": value} for key, value in extra.items()],
    }
    run_helm(
        cluster, helm, "install", RELEASE, str(sync.CHART), "-n", namespace, "--take-ownership",
        "-f", "-", stdin=json.dumps(values),
    )  # fmt: skip
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    api = Api.from_environment(str(cluster.kubeconfig))
    scene = Scene(cluster, namespace, lake, api, Watchman(api, namespace))
    try:
        cluster.kubectl(
            "rollout", "status", f"deployment/{FULL_NAME}", "-n", namespace, "--timeout=120s"
        )
        yield Installed(cluster, scene, metrics)
    finally:
        scene.watchman.end()
        run_helm(cluster, helm, "uninstall", RELEASE, "-n", namespace)


def run_helm(cluster: Cluster, helm: Path, *arguments: str, stdin: str = "") -> None:
    done = subprocess.run(
        [str(helm), *arguments],
        input=stdin, env={**os.environ, **cluster.environment()},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
