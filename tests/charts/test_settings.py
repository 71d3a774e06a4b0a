"""The environment that the chart gives the operator is what the operator reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from charts import sync
from reconciler.operator.settings import OPTIONS, PREFIX, OperatorSettings, from_environment
from tests.charts.conftest import Objects, Render, of_kind


def environment(objects: Objects) -> dict[str, str]:
    """With the downward API's values as a pod would have them."""
    (deployment,) = of_kind(objects, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    fields = {"metadata.name": "lake-0", "metadata.namespace": "ops"}
    return {
        item["name"]: item.get("value") or fields[item["valueFrom"]["fieldRef"]["fieldPath"]]
        for item in container["env"]
        if item.get("value") != ""
    }


def settings(render: Render, **values: Any) -> OperatorSettings:
    return from_environment(environment(render(values)))


def test_every_variable_of_the_chart_is_one_that_the_operator_reads(render: Render) -> None:
    values = {"jobs": {"image": "spark:1"}, "metrics": {"perTable": True}}
    set_by_chart = {name for name in environment(render(values)) if name.startswith(PREFIX)}
    assert set_by_chart <= {option.variable for option in OPTIONS}
    assert len(set_by_chart) > 8


def test_the_defaults_of_the_chart_are_those_of_the_operator(render: Render) -> None:
    found, default = settings(render), OperatorSettings()
    for name in (
        "cluster_wide", "max_rewrite_bytes", "max_jobs", "ambient_credentials",
        "driver_service_account", "executor_service_account", "image",
        "per_table_metrics", "log_level",
    ):  # fmt: skip
        assert getattr(found, name) == getattr(default, name), name
    assert (found.namespace, found.namespaces, found.identity) == ("ops", ("ops",), "lake-0")


@pytest.mark.parametrize(
    ("values", "name", "expected"),
    [
        ({"watch": {"namespaces": ["web", "sales"]}}, "namespaces", ("sales", "web")),
        ({"watch": {"clusterWide": True}}, "cluster_wide", True),
        ({"watch": {"clusterWide": True}}, "namespaces", ()),
        ({"caps": {"rewriteBytesPerDay": "20Ti"}}, "max_rewrite_bytes", 20 << 40),
        ({"caps": {"rewriteBytesPerDay": "0"}}, "max_rewrite_bytes", 0),
        ({"caps": {"concurrentJobs": 7}}, "max_jobs", 7),
        ({"ambientCredentials": True}, "ambient_credentials", True),
        ({"jobs": {"image": "spark:1"}}, "image", "spark:1"),
        ({"jobs": {"driverServiceAccount": {"name": "d"}}}, "driver_service_account", "d"),
        ({"jobs": {"executorServiceAccount": {"name": "e"}}}, "executor_service_account", "e"),
        ({"metrics": {"perTable": True}}, "per_table_metrics", True),
        ({"log": {"level": "debug"}}, "log_level", "DEBUG"),
    ],
)
def test_a_value_of_the_chart_arrives(
    render: Render, values: dict[str, Any], name: str, expected: object
) -> None:
    assert getattr(settings(render, **values), name) == expected


def test_ports_of_pod_and_process_agree(render: Render) -> None:
    (deployment,) = of_kind(render(), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {
        "metrics": OperatorSettings().metrics_port,
        "health": OperatorSettings().health_port,
    }


def test_events_are_taken_only_where_they_are_asked_for(render: Render) -> None:
    assert settings(render).events_port == 0 and not of_kind(render(), "Service")
    objects = render({"events": {"enabled": True, "secretName": "s"}})
    found = from_environment(environment(objects))
    (deployment,) = of_kind(objects, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["events"] == found.events_port
    (mount,) = (one for one in container["volumeMounts"] if one["name"] == "events")
    assert {Path(found.events_token_file).parent, Path(found.events_key_file).parent} == {
        Path(mount["mountPath"])
    }
    (volume,) = (one for one in pod["volumes"] if one["name"] == "events")
    assert volume["secret"]["secretName"] == "s"
    (service,) = of_kind(objects, "Service")
    assert [one["targetPort"] for one in service["spec"]["ports"]] == ["events"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_the_lease_is_the_one_that_the_role_allows(render: Render) -> None:
    objects = render()
    (role,) = of_kind(objects, "Role", "lake-layout-reconciler-leader")
    allowed = {name for rule in role["rules"] for name in rule.get("resourceNames", ())}
    assert allowed == {from_environment(environment(objects)).lease}


def test_the_drivers_account_is_the_one_that_jobs_get_by_default(render: Render) -> None:
    assert of_kind(render(), "ServiceAccount", OperatorSettings().driver_service_account)


def test_the_page_of_settings_is_current() -> None:
    for path, text in sync.settings_page().items():
        assert path.read_text() == text, "run: make manifests"
