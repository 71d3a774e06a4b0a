"""Alert rules speak of series that the operator exposes, with labels and values that it uses."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts import sync
from reconciler.api.conditions import Reason
from reconciler.api.prices import Prices
from reconciler.kube.kinds import POLICY, TABLE_LAYOUT
from reconciler.kube.termination_message import Cause
from reconciler.operator.index import Index
from reconciler.operator.layout.failures import RULES
from reconciler.operator.process.metrics import Metrics
from reconciler.operator.process.watched_namespaces import WatchedNamespaces
from reconciler.operator.work import Work
from reconciler.plan.money import Usage
from tests.charts.conftest import Render, of_kind
from tests.cluster import binaries

GROUPS = yaml.safe_load((sync.CHART / "files" / "alerts.yaml").read_text())["groups"]
RECORDING = yaml.safe_load((sync.CHART / "files" / "recording.yaml").read_text())["groups"]
RECORDS = {rule["record"]: rule["expr"] for group in RECORDING for rule in group["rules"]}
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
    prices = Prices("EUR", tib_read=Decimal(5))
    metrics.saved("sales", 3, prices)
    metrics.saved("sales", -1, prices)
    metrics.spent("sales", 2.0, Usage(read_bytes=1), prices)
    metrics.event("taken")
    metrics.leads(True)
    metrics.watch_restarted()
    metrics.show(an_index(), lambda: {Work.LAYOUT: (1, 2.0)}, per_table=True)
    metrics.show_namespaces(WatchedNamespaces(("sales",)))
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
    assert found["spec"]["groups"] == GROUPS + RECORDING


@pytest.mark.parametrize("name", RECORDS)
def test_a_recorded_series_is_a_sum_of_one_that_exists(
    name: str, exposed: dict[str, set[str]]
) -> None:
    (series,) = names(RECORDS[name])
    labels, metric, _ = name.split(":")
    assert series in (f"{metric}_total",) and series in exposed
    (grouped,) = re.findall(r"by \(([^)]*)\)", RECORDS[name])
    assert re.split(r",\s*", grouped) == labels.split("_")
    assert set(labels.split("_")) <= exposed[series]


BOARD = json.loads((sync.CHART / "files" / "dashboard.json").read_text())
QUERIES = {
    f"{panel['title']}, {target['refId']}": target["expr"]
    for panel in BOARD["panels"]
    for target in panel["targets"]
}


@pytest.mark.parametrize("query", QUERIES)
def test_the_board_asks_for_series_and_labels_that_exist(
    query: str, exposed: dict[str, set[str]]
) -> None:
    text = QUERIES[query]
    recorded = re.findall(r"\b(\w+:layout_\w+:\w+)", text)
    assert set(recorded) <= set(RECORDS)
    plain = re.sub(r"\b\w+:layout_\w+:\w+", "recorded", text)
    assert names(plain) <= set(exposed) and (recorded or names(plain))
    for series, label, _ in selectors(plain):
        assert label in exposed[series], f"{series} has no label {label}"
    for labels in re.findall(r"by \(([^)]*)\)", plain):
        wanted = set(re.split(r",\s*", labels))
        assert all(wanted <= exposed[series] for series in names(plain))


@pytest.mark.soak
def test_prometheus_parses_every_expression() -> None:
    """Prometheus' own parser, which checks functions and types as well."""
    rules = [rule["expr"] for group in (*GROUPS, *RECORDING) for rule in group["rules"]]
    asked = [" ".join(text.split()) for text in (*rules, *QUERIES.values())]
    assert len(asked) > 25 and all(asked)
    program = binaries.directory("promql") / "promql"
    for lines, code in ((asked, 0), ([*asked, "rate(layout_leader)"], 1)):
        done = subprocess.run([program], input="\n".join(lines), text=True, capture_output=True)
        assert done.returncode == code, done.stdout
        assert len(done.stdout.splitlines()) == code


def test_every_counter_of_savings_is_on_the_board() -> None:
    asked = " ".join(QUERIES.values())
    for name in RECORDS:
        assert name in asked
    assert "layout_saved_bytes_total" in asked and "layout_spent_bytes_total" in asked


def test_the_panels_of_the_board_do_not_overlap_and_choose_the_data_source() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["datasource"] == {"type": "prometheus", "uid": "${source}"}
    names_of = [variable["name"] for variable in BOARD["templating"]["list"]]
    assert names_of == ["source", "namespace"]


def test_the_board_is_what_the_library_writes() -> None:
    """The library's own decoder reads it back to the same board."""
    pytest.importorskip("grafana_foundation_sdk", reason="pip install grafana-foundation-sdk")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.dashboard import Dashboard

    from charts import board

    assert board.BOARD.read_text() == board.text()
    read = Dashboard.from_json(BOARD)
    again = json.loads(JSONEncoder(sort_keys=True).encode(read))
    for field in ("title", "targets"):
        read_back, written = ([one[field] for one in b["panels"]] for b in (again, BOARD))
        assert read_back == written


def test_the_chart_ships_the_very_board_for_grafanas_sidecar(render: Render) -> None:
    found = of_kind(render({"metrics": {"dashboard": {"enabled": True}}}), "ConfigMap")
    (made,) = [one for one in found if one["metadata"]["name"].endswith("-dashboard")]
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(made["data"]["layout-reconciler.json"]) == BOARD
    assert not [
        one for one in of_kind(render({}), "ConfigMap")
        if one["metadata"]["name"].endswith("-dashboard")
    ]  # fmt: skip


def test_the_check_itself_notices_a_wrong_name() -> None:
    assert names("rate(layout_nosuch_total[5m])") == {"layout_nosuch_total"}
    assert list(selectors('x(layout_a{b="c", d!~"e|f"})')) == [
        ("layout_a", "b", "c"),
        ("layout_a", "d", "e|f"),
    ]
