"""Least privilege: what the chart grants is what the docs list and what the code calls."""

from __future__ import annotations

import pytest

from tests.charts.conftest import Objects, Render, of_kind
from tests.charts.rights import called, documented, granted

OPERATOR = "lake-layout-reconciler"


@pytest.fixture(scope="module")
def objects(render: Render) -> Objects:
    return render()


def rules(objects: Objects, name: str, kind: str = "Role") -> set[tuple[str, str, str]]:
    (role,) = of_kind(objects, kind, name)
    return granted(role["rules"])


def test_the_operators_rights_are_the_documented_ones(objects: Objects) -> None:
    has = rules(objects, OPERATOR) | rules(objects, f"{OPERATOR}-leader")
    assert has == documented("Operator")


def test_the_code_calls_nothing_that_is_not_granted() -> None:
    assert called() - documented("Operator") == set()


def test_nothing_is_granted_that_the_code_does_not_call() -> None:
    """Beyond the calls that name their kind: those through a variable, and the finalizers."""
    group = "layout.lakehouse.dev"
    through_a_variable = {
        # The re-list and the index read single objects of whatever kind.
        *((group, plural, "get") for plural in POLICIES_AND_CATALOGS),
        (group, "tablelayouts", "get"),
        ("batch", "jobs", "get"),
        ("", "pods", "get"),
        ("", "secrets", "get"),
        *((group, f"{plural}/status", "update") for plural in POLICIES_AND_CATALOGS),
        (group, "tablelayouts/status", "update"),
        ("events.k8s.io", "events", "create"),
        ("events.k8s.io", "events", "patch"),
    }
    checked_by_admission = {
        (group, f"{plural}/finalizers", "update")
        for plural in ("tablelayoutpolicies", "tablelayouts")
    }
    allowed = called() | through_a_variable | checked_by_admission
    assert documented("Operator") - allowed == set()


POLICIES_AND_CATALOGS = ("tablelayoutpolicies", "icebergcatalogs")


def test_the_driver_may_handle_pods_and_nothing_else(objects: Objects) -> None:
    assert rules(objects, "layout-spark") == documented("Driver")
    assert {resource for _, resource, _ in documented("Driver")} == {"pods"}


def test_executors_have_no_role(objects: Objects) -> None:
    bindings = of_kind(objects, "RoleBinding") + of_kind(objects, "ClusterRoleBinding")
    bound = {subject["name"] for binding in bindings for subject in binding["subjects"]}
    assert bound == {OPERATOR, "layout-spark"}


def test_no_rule_has_a_wildcard_or_a_right_that_leads_to_more(objects: Objects) -> None:
    for kind in ("Role", "ClusterRole"):
        for role in of_kind(objects, kind):
            for group, resource, verb in granted(role["rules"]):
                assert "*" not in (group, resource, verb)
                assert verb not in ("escalate", "bind", "impersonate")
                assert resource not in ("pods/exec", "serviceaccounts/token", "roles")


def test_only_its_own_lease_and_record_may_be_read_and_written(objects: Objects) -> None:
    (role,) = of_kind(objects, "Role", f"{OPERATOR}-leader")
    for rule in role["rules"]:
        if rule["resources"] != ["events"] and rule["verbs"] != ["create"]:
            assert rule["resourceNames"] == [OPERATOR]


def test_the_approver_patches_table_layouts_and_edits_no_policy(objects: Objects) -> None:
    has = rules(objects, f"{OPERATOR}-approver", "ClusterRole")
    reading = {"get", "list", "watch"}
    writing = {(resource, verb) for _, resource, verb in has if verb not in reading}
    assert writing == {("tablelayouts", "patch")}


def test_view_only_reads_and_edit_writes_no_table_layout(objects: Objects) -> None:
    view = rules(objects, f"{OPERATOR}-view", "ClusterRole")
    assert {verb for _, _, verb in view} == {"get", "list", "watch"}
    edit = rules(objects, f"{OPERATOR}-edit", "ClusterRole")
    assert {resource for _, resource, _ in edit} == {"tablelayoutpolicies", "icebergcatalogs"}


def test_the_roles_of_people_join_the_built_in_ones(objects: Objects) -> None:
    def joins(name: str) -> set[str]:
        (role,) = of_kind(objects, "ClusterRole", f"{OPERATOR}-{name}")
        labels = role["metadata"]["labels"]
        return {key.rpartition("-")[2] for key in labels if "aggregate-to" in key}

    assert joins("view") == {"view", "edit", "admin"}
    assert joins("edit") == {"edit", "admin"}
    assert joins("approver") == set()


def test_a_wide_installation_grants_the_same_rights(render: Render, objects: Objects) -> None:
    wide = render({"watch": {"clusterWide": True}})
    assert rules(wide, OPERATOR, "ClusterRole") == rules(objects, OPERATOR)
