"""Alert rules speak of series that the operator exposes, with labels and values that it uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts import sync
from reconciler.api.conditions import Reason
from reconciler.kube.kinds import POLICY, TABLE_LAYOUT
from reconciler.kube.termination_message import Cause
from reconciler.operator.index import Index
from reconciler.operator.layout.failures import RULES
from reconciler.operator.process.metrics import Metrics
from reconciler.operator.process.places import Places
from reconciler.operator.work import Work
from tests.charts.conftest import Render, of_kind

GROUPS = yaml.safe_load((sync.CHART / "files" / "alerts.yaml").read_text())["groups"]
RULE_LIST = [rule for group in GROUPS for rule in group["rules"]]
PAGE = Path(__file__).parents[2] / "docs" / "operations" / "alerts.md"


@pytest.fixture(scope="module")
def exposed() -> dict[str, set[str]]:
    """Every series on the page of an operator that has seen one of everything, with its labels."""
    from prometheus_client.parser import text_string_to_metric_families

    metrics = Metrics()
    metrics.reconciled(Work.LAYOUT, True, 0.1)
    metrics.called("get", "pods", 403, 0.1)
    metrics.launched("sales")
    metrics.finished("sales", Cause.CONFLICT)
    metrics.rewrote("sales", 1)
    metrics.leads(True)
    metrics.watch_restarted()
    metrics.show(an_index(), lambda: {Work.LAYOUT: (1, 2.0)}, per_table=True)
    metrics.show_places(Places(("sales",)))
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def an_index() -> Index:
    index = Index()
    conditions = [
        {"type": "Converged", "status": "False", "reason": "AwaitingApproval"},
        {"type": "Stalled", "status": "True", "reason": "VerificationFailed"},
    ]
    meta = {"namespace": "sales", "uid": "1", "resourceVersion": "1"}
    index.put(
        TABLE_LAYOUT,
        {
            "metadata": {**meta, "name": "orders"},
            "spec": {"table": {"namespace": ["sales"], "name": "orders"}},
            "status": {
                "conditions": conditions,
                "job": {"phase": "Running"},
                "observed": {
                    "scanAmplification": "1.4",
                    "saved": {"atLeastBytes": 1, "atMostBytes": 2},
                },
            },
        },
    )
    amounts = {"spent": "1Gi", "reserved": "0"}
    budget = {"name": "daily", "rewriteBytes": amounts, "cpuTime": {"spent": "1h"}}
    index.put(
        POLICY, {"metadata": {**meta, "name": "p"}, "spec": {}, "status": {"budgets": [budget]}}
    )
    return index


def names(expression: str) -> set[str]:
    return set(re.findall(r"\blayout_[a-z_]+", expression))


def selectors(expression: str) -> Iterator[tuple[str, str, str]]:
    """(series, label, value pattern) of each matcher."""
    for series, matchers in re.findall(r"\b(layout_[a-z_]+)\{([^}]*)\}", expression):
        for label, value in re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"', matchers):
            yield series, label, value


@pytest.mark.parametrize("rule", RULE_LIST, ids=lambda rule: rule["alert"])
def test_the_rule_speaks_of_series_that_exist(
    rule: dict[str, Any], exposed: dict[str, set[str]]
) -> None:
    assert names(rule["expr"])
    assert names(rule["expr"]) <= set(exposed)


@pytest.mark.parametrize("rule", RULE_LIST, ids=lambda rule: rule["alert"])
def test_the_rule_uses_labels_that_its_series_have(
    rule: dict[str, Any], exposed: dict[str, set[str]]
) -> None:
    for series, label, _ in selectors(rule["expr"]):
        assert label in exposed[series], f"{series} has no label {label}"
    grouped = [re.split(r",\s*", by) for by in re.findall(r"by \(([^)]*)\)", rule["expr"])]
    for labels in grouped:
        assert all(set(labels) <= exposed[series] for series in names(rule["expr"]))
    said = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert all(said <= set(labels) for labels in grouped) if grouped else not said


@pytest.mark.parametrize("rule", RULE_LIST, ids=lambda rule: rule["alert"])
def test_the_rule_names_reasons_and_causes_that_exist(rule: dict[str, Any]) -> None:
    known = {
        "reason": {reason.value for reason in Reason},
        "cause": {"Succeeded", *map(str, RULES), *(cause.value for cause in Cause)},
        "result": {"error", "success"},
        "code": {"403"},
    }
    for _, label, value in selectors(rule["expr"]):
        assert set(value.split("|")) <= known[label]


@pytest.mark.parametrize("rule", RULE_LIST, ids=lambda rule: rule["alert"])
def test_the_rule_has_a_severity_and_a_section_in_the_docs(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert f"\n## {rule['alert']}\n" in PAGE.read_text()


def test_the_docs_speak_of_no_other_alert() -> None:
    sections = set(re.findall(r"^## (Layout\w+)$", PAGE.read_text(), re.MULTILINE))
    assert sections == {rule["alert"] for rule in RULE_LIST}


def test_the_docs_list_exactly_the_series_that_are_exposed(exposed: dict[str, set[str]]) -> None:
    listed = set(re.findall(r"^\| `(layout_[a-z_]+)`", PAGE.read_text(), re.MULTILINE))
    own = {re.sub(r"_(bucket|count|sum)$", "", name) for name in exposed}
    assert listed == {
        name for name in own if name.startswith("layout_") and not name.endswith("_created")
    }


def test_the_chart_ships_the_very_rules(render: Render) -> None:
    (found,) = of_kind(render({"metrics": {"rules": {"enabled": True}}}), "PrometheusRule")
    assert found["spec"]["groups"] == GROUPS


def test_the_check_itself_notices_a_wrong_name() -> None:
    assert names("rate(layout_nosuch_total[5m])") == {"layout_nosuch_total"}
    assert list(selectors('x(layout_a{b="c", d!~"e|f"})')) == [
        ("layout_a", "b", "c"),
        ("layout_a", "d", "e|f"),
    ]
