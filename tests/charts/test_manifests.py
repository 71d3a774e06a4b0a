"""manifests/ is what the chart makes: generated, complete, and buildable by kustomize."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from charts import sync
from tests.charts.conftest import Objects, of_kind
from tests.cluster.cluster import Cluster


def test_the_crd_templates_are_current() -> None:
    written = sync.crd_templates()
    assert {path.name for path in (sync.CHART / "templates").glob("crd-*")} == {
        path.name for path in written
    }
    for path, text in written.items():
        assert path.read_text() == text, "run: make manifests"


def test_the_base_is_current(helm: Path) -> None:
    written = sync.base(str(helm))
    assert set((sync.MANIFESTS / "base").iterdir()) == set(written)
    for path, text in written.items():
        assert path.read_text() == text, f"{path.name}: run: make manifests"


def build(cluster: Cluster, path: str) -> Objects:
    return list(yaml.safe_load_all(cluster.kubectl("kustomize", str(sync.MANIFESTS / path))))


def test_the_base_holds_all_that_the_chart_makes(helm: Path, cluster: Cluster) -> None:
    done = subprocess.run(
        [str(helm), "template", "layout-reconciler", str(sync.CHART), "-n", sync.NAMESPACE],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    chart = [o for o in yaml.safe_load_all(done.stdout) if o]
    found = {(o["kind"], o["metadata"]["name"]) for o in build(cluster, "base")}
    assert found == {(o["kind"], o["metadata"]["name"]) for o in chart} | {
        ("Namespace", sync.NAMESPACE)
    }


def test_the_overlay_moves_everything_to_its_namespace_and_pins_the_image(
    cluster: Cluster,
) -> None:
    objects = build(cluster, "overlays/example")
    cluster_scoped = (
        "CustomResourceDefinition",
        "ClusterRole",
        "Namespace",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    )
    assert {
        o["metadata"]["namespace"] for o in objects if o["kind"] not in cluster_scoped
    } == {"lakehouse"}  # fmt: skip
    (namespace,) = of_kind(objects, "Namespace")
    assert namespace["metadata"]["name"] == "lakehouse"
    for binding in of_kind(objects, "RoleBinding"):
        assert {subject["namespace"] for subject in binding["subjects"]} == {"lakehouse"}
    (deployment,) = of_kind(objects, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith("registry.example.com/data/layout-reconciler@sha256:")
    environment = {v["name"]: v.get("value") for v in container["env"]}
    assert environment["LAYOUTCTL_OPERATOR_NAMESPACES"] == "lakehouse"
