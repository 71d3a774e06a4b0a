"""The chart: what it makes of its values, which values it refuses, and how its pod is confined."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts import sync
from reconciler.kube.pods import LAYOUT_LABEL
from tests.charts.conftest import Render, of_kind

Template = Callable[[dict[str, Any]], subprocess.CompletedProcess[str]]

EVERYTHING = {
    "image": {"digest": "sha256:" + "0" * 64},
    "imagePullSecrets": [{"name": "registry"}],
    "crds": {"keep": False},
    "watch": {"namespaces": ["sales", "web"]},
    "jobs": {"driverServiceAccount": {"annotations": {"role": "arn:x"}}},
    "caps": {"rewriteBytesPerDay": "20Ti", "concurrentJobs": 12},
    "ambientCredentials": True,
    "metrics": {
        "perTable": True,
        "podMonitor": {"enabled": True, "labels": {"release": "prom"}},
        "rules": {"enabled": True, "labels": {"release": "prom"}},
    },
    "serviceAccount": {"annotations": {"role": "arn:y"}},
    "networkPolicy": {
        "metricsFrom": [{"namespaceSelector": {}}],
        "eventsFrom": [{"namespaceSelector": {}}],
    },
    "events": {"enabled": True, "secretName": "layout-events"},
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d"},
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "x", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
}
CLUSTER_WIDE = {"watch": {"clusterWide": True}, "jobs": {"namespaces": ["sales", "web"]}}


@pytest.mark.parametrize("values", [{}, EVERYTHING, CLUSTER_WIDE], ids=["defaults", "all", "wide"])
def test_lint_is_strict_and_clean(helm: Path, values: dict[str, Any]) -> None:
    done = subprocess.run(
        [str(helm), "lint", "--strict", str(sync.CHART), "-f", "-"],
        input=json.dumps(values), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("values", [{}, EVERYTHING, CLUSTER_WIDE], ids=["defaults", "all", "wide"])
def test_every_object_is_complete_and_unique(render: Render, values: dict[str, Any]) -> None:
    objects = render(values)
    keys = [
        (o["apiVersion"], o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"])
        for o in objects
    ]
    assert len(keys) == len(set(keys))
    assert all(kind and name for _, kind, _, name in keys)


def test_by_default_nothing_is_granted_outside_the_namespace_of_the_release(render: Render) -> None:
    objects = render()
    assert not of_kind(objects, "ClusterRoleBinding")
    assert {o["metadata"]["namespace"] for o in of_kind(objects, "RoleBinding")} == {"ops"}
    assert environment(objects)["LAYOUTCTL_OPERATOR_NAMESPACES"] == "ops"


def test_each_watched_namespace_gets_the_roles_and_accounts(render: Render) -> None:
    objects = render(EVERYTHING)
    assert not of_kind(objects, "ClusterRoleBinding")
    bound = {
        (o["metadata"]["namespace"], o["roleRef"]["name"], o["subjects"][0]["name"])
        for o in of_kind(objects, "RoleBinding")
    }
    operator = "lake-layout-reconciler"
    assert bound == {
        ("sales", operator, operator),
        ("web", operator, operator),
        ("ops", f"{operator}-leader", operator),
        ("sales", "layout-spark", "layout-spark"),
        ("web", "layout-spark", "layout-spark"),
    }
    assert environment(objects)["LAYOUTCTL_OPERATOR_NAMESPACES"] == "sales,web"


def test_cluster_wide_is_asked_for_and_gives_one_cluster_role(render: Render) -> None:
    objects = render(CLUSTER_WIDE)
    (binding,) = of_kind(objects, "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == "lake-layout-reconciler"
    drivers = of_kind(objects, "ServiceAccount", "layout-spark")
    assert {o["metadata"]["namespace"] for o in drivers} == {"sales", "web"}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"watch": {"clusterWide": True, "namespaces": ["a"]}}, "watch.namespaces"),
        ({"jobs": {"namespaces": ["a"]}}, "watch.clusterWide"),
        ({"serviceAccount": {"create": False}}, "serviceAccount.name"),
        ({"events": {"enabled": True}}, "events.secretName"),
    ],
)
def test_values_that_contradict_each_other_are_refused(
    template: Template, values: dict[str, Any], named: str
) -> None:
    done = template(values)
    assert done.returncode != 0
    assert named in done.stderr


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replicas": 2}, "replicas"),
        ({"image": {"tagg": "1"}}, "tagg"),
        ({"image": {"digest": "sha256:abc"}}, "/image/digest"),
        ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
        ({"watch": {"namespaces": ["Sales"]}}, "/watch/namespaces/0"),
        ({"watch": {"namespaces": ["a", "a"]}}, "/watch/namespaces"),
        ({"caps": {"rewriteBytesPerDay": "1TB"}}, "/caps/rewriteBytesPerDay"),
        ({"caps": {"rewriteBytesPerDay": 1000}}, "/caps/rewriteBytesPerDay"),
        ({"caps": {"concurrentJobs": 0}}, "/caps/concurrentJobs"),
        ({"caps": {"concurrentJobs": "4"}}, "/caps/concurrentJobs"),
        ({"ambientCredentials": "false"}, "/ambientCredentials"),
        ({"log": {"level": "loud"}}, "/log/level"),
        ({"metrics": {"podMonitor": {"interval": "30"}}}, "/metrics/podMonitor/interval"),
        ({"extraEnv": [{"value": "x"}]}, "/extraEnv/0"),
    ],
)
def test_the_schema_refuses_a_wrong_value_and_names_it(
    template: Template, values: dict[str, Any], named: str
) -> None:
    done = template(values)
    assert done.returncode != 0
    assert named in done.stderr.replace(".", "/")


def test_the_schema_knows_every_default_and_every_default_the_schema() -> None:
    values = yaml.safe_load((sync.CHART / "values.yaml").read_text())
    schema = json.loads((sync.CHART / "values.schema.json").read_text())
    schema["properties"].pop("global")
    assert same_keys(values, schema) == []


def same_keys(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> list[str]:
    """Paths that one of the two has and the other lacks."""
    known = schema.get("properties")
    if known is None:
        return []
    wrong = [f"{path}/{key}" for key in set(values) ^ set(known)]
    for key in set(values) & set(known):
        if isinstance(values[key], dict):
            wrong += same_keys(values[key], known[key], f"{path}/{key}")
    return wrong


# The pod


def pod(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (deployment,) = of_kind(objects, "Deployment")
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def environment(objects: list[dict[str, Any]]) -> dict[str, str]:
    (container,) = pod(objects)["containers"]
    names = [variable["name"] for variable in container["env"]]
    assert len(names) == len(set(names))
    return {variable["name"]: variable.get("value", "") for variable in container["env"]}


def test_one_operator_runs_and_an_upgrade_stops_it_before_it_starts_the_next(
    render: Render,
) -> None:
    (deployment,) = of_kind(render(), "Deployment")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}


@pytest.mark.parametrize("values", [{}, EVERYTHING, CLUSTER_WIDE], ids=["defaults", "all", "wide"])
def test_the_pod_meets_the_restricted_pod_security_standard(
    render: Render, values: dict[str, Any]
) -> None:
    spec = pod(render(values))
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all({"emptyDir", "secret"} & set(volume) for volume in spec["volumes"])
    assert not any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC"))


def test_what_the_pod_writes_to_is_a_volume(render: Render) -> None:
    spec = pod(render())
    (container,) = spec["containers"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    found = environment(render())
    assert "/tmp" in mounts
    for name in ("LAYOUTCTL_CACHE", "LAYOUTCTL_STATE"):
        assert any(found[name].startswith(mount) for mount in mounts), name
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in spec["volumes"]
    }


def test_the_pod_has_probes_and_bounded_resources(render: Render) -> None:
    (container,) = pod(render())["containers"]
    ports = {port["name"] for port in container["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] in ports
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert "memory" in container["resources"]["limits"]


def test_ambient_credentials_are_out_of_reach_unless_asked_for(render: Render) -> None:
    closed, opened = render(), render({"ambientCredentials": True})
    assert environment(closed)["LAYOUTCTL_OPERATOR_AMBIENT_CREDENTIALS"] == "false"
    assert environment(opened)["LAYOUTCTL_OPERATOR_AMBIENT_CREDENTIALS"] == "true"
    (policy,) = of_kind(closed, "NetworkPolicy", "lake-layout-reconciler")
    assert "169.254.0.0/16" in json.dumps(policy["spec"]["egress"])
    (policy,) = of_kind(opened, "NetworkPolicy", "lake-layout-reconciler")
    assert "169.254" not in json.dumps(policy["spec"]["egress"])


def test_the_caps_reach_the_operator(render: Render) -> None:
    default = environment(render())
    assert default["LAYOUTCTL_OPERATOR_MAX_REWRITE_BYTES"] == "1Ti"
    assert default["LAYOUTCTL_OPERATOR_MAX_JOBS"] == "4"
    more = environment(render({"caps": {"rewriteBytesPerDay": "20Ti", "concurrentJobs": 9}}))
    assert more["LAYOUTCTL_OPERATOR_MAX_REWRITE_BYTES"] == "20Ti"
    assert more["LAYOUTCTL_OPERATOR_MAX_JOBS"] == "9"


def test_the_service_accounts_take_no_token_they_do_not_need(render: Render) -> None:
    accounts = {o["metadata"]["name"]: o for o in of_kind(render(), "ServiceAccount")}
    assert accounts["layout-spark-executor"]["automountServiceAccountToken"] is False
    assert accounts["lake-layout-reconciler"]["automountServiceAccountToken"] is False
    assert pod(render())["automountServiceAccountToken"] is True


def test_only_pods_that_work_on_a_table_may_connect_to_such_pods(render: Render) -> None:
    policies = of_kind(render(EVERYTHING), "NetworkPolicy", "lake-layout-reconciler-jobs")
    assert {found["metadata"]["namespace"] for found in policies} == {"sales", "web"}
    work = {"matchExpressions": [{"key": LAYOUT_LABEL, "operator": "Exists"}]}
    for found in policies:
        assert found["spec"]["podSelector"] == work
        assert found["spec"]["ingress"] == [{"from": [{"podSelector": work}]}]
        assert found["spec"]["policyTypes"] == ["Ingress"]


# What is switched


def test_crds_can_be_left_to_others(render: Render) -> None:
    assert len(of_kind(render(), "CustomResourceDefinition")) == 3
    assert not of_kind(render({"crds": {"install": False}}), "CustomResourceDefinition")


def test_crds_outlive_the_release_unless_asked_otherwise(render: Render) -> None:
    for crd in of_kind(render(), "CustomResourceDefinition"):
        assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    for crd in of_kind(render({"crds": {"keep": False}}), "CustomResourceDefinition"):
        assert "annotations" not in crd["metadata"]


def test_the_chart_installs_the_very_crds(render: Render) -> None:
    rendered = of_kind(render({"crds": {"keep": False}}), "CustomResourceDefinition")
    sources = [yaml.safe_load(path.read_text()) for path in sorted(sync.CRDS.glob("*.yaml"))]
    assert sorted(rendered, key=name_of) == sorted(sources, key=name_of)


def name_of(found: dict[str, Any]) -> str:
    return str(found["metadata"]["name"])


def test_monitoring_needs_no_prometheus_operator_unless_switched_on(render: Render) -> None:
    kinds = {o["kind"] for o in render()}
    assert not kinds & {"PodMonitor", "PrometheusRule"}
    objects = render(EVERYTHING)
    for kind in ("PodMonitor", "PrometheusRule"):
        (found,) = of_kind(objects, kind)
        assert found["metadata"]["labels"]["release"] == "prom"


def test_a_namespaced_installation_can_do_without_cluster_roles(render: Render) -> None:
    objects = render({"rbac": {"userRoles": False}, "crds": {"install": False}})
    cluster_scoped = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
    assert not {o["kind"] for o in objects} & cluster_scoped


def test_the_versions_of_chart_and_package_agree() -> None:
    import reconciler

    chart = yaml.safe_load((sync.CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == reconciler.__version__
