"""Documents and object names in docs/operations are right: they are copied and applied."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from charts import sync
from reconciler.api.conditions import Reason
from reconciler.api.load import read
from reconciler.operator.settings import OPTIONS
from tests.charts.conftest import Render, of_kind
from tests.cluster.cluster import Cluster

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "operations").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_whole_documents_in_the_page_are_valid(page: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    for number, block in enumerate(block for block in blocks if "apiVersion:" in block):
        path = tmp_path / f"{number}.yaml"
        path.write_text(block)
        assert [found for found in read([path]).problems if found.severity == "error"] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_reasons_and_variables_in_the_page_exist(page: Path) -> None:
    text = page.read_text()
    for kind in ("approval", "budgets", "troubleshooting", "upgrade", "install"):
        if page.stem == kind:
            words = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", text)) - KINDS
            assert words <= {reason.value for reason in Reason}, words
    variables = set(re.findall(r"`(LAYOUTCTL_OPERATOR_\w+)`", text))
    assert variables <= {option.variable for option in OPTIONS}


KINDS = {"TableLayout", "TableLayouts", "IcebergCatalog", "TableLayoutPolicy"}


def test_values_in_the_pages_are_values_of_the_chart() -> None:
    values = yaml.safe_load((sync.CHART / "values.yaml").read_text())
    tops = "|".join(values)
    for page in PAGES:
        for path in re.findall(rf"`((?:{tops})\.[A-Za-z.]+)`", page.read_text()):
            node = values
            for part in path.split("."):
                assert part in node, f"{page.name}: {path}"
                node = node[part]


def test_the_example_documents_pass_the_api_server(
    cluster: Cluster, render: Render, namespace: str
) -> None:
    for crd in of_kind(render(), "CustomResourceDefinition"):
        cluster.kubectl(
            "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(crd)
        )
        cluster.kubectl("wait", f"crd/{crd['metadata']['name']}", "--for=condition=Established")
    layouts = ROOT / "layouts"
    dry = ("--dry-run=server", "--validate=strict", "--output=name")
    applied = cluster.kubectl("apply", "-n", namespace, *dry, "-f", str(layouts))
    documents = read([layouts]).documents
    assert len(applied.split()) == len(documents.policies) + len(documents.catalogs)
