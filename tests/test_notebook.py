"""The Python API returns what the verbs print, and a notebook shows it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reconciler import Table
from reconciler.errors import UserError
from reconciler.notebook import Shown
from tests.cli.in_process import Cli, isolate, runner
from tests.state.test_shared_state import new_catalog

QUERY = "SELECT * FROM sales.orders WHERE id BETWEEN 25 AND 34"


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table of six files, each with ten ids."""
    from reconciler.catalog.load import connect

    config = new_catalog(tmp_path)
    catalog = connect(config)
    catalog.create_namespace("sales")
    table = catalog.create_table("sales.orders", pa.schema([("id", pa.int64())]))
    for number in range(6):
        table.append(pa.table({"id": range(number * 10, number * 10 + 10)}))
    isolate(monkeypatch, tmp_path, tmp_path / "nowhere", tmp_path / "state", tmp_path / "cache")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for key in ("uri", "warehouse"):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__REC__{key.upper()}", config.properties[key])
    return "rec.sales.orders"


@pytest.fixture
def cli(name: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Cli:
    return runner(monkeypatch, capsys)


def steady(document: Any) -> Any:
    """Without what differs between two looks: times."""
    if isinstance(document, dict):
        left = {k: steady(v) for k, v in document.items() if k not in ("seconds", "created")}
        return {k: v for k, v in left.items() if k not in ("createdAt", "expiresAt", "digest")}
    return [steady(item) for item in document] if isinstance(document, list) else document


def test_an_observation_is_the_verbs(cli: Cli, name: str) -> None:
    found = Table(name).observe()
    printed = json.loads(cli("observe", name, "-o", "json")[1])
    for key in ("manifestsRead", "bytesRead"):  # the second look has the first one's cache
        for body in (found.document, printed):
            body.pop(key, None)
    assert found.document["kind"] == "TableObservation" and found.document["uuid"]
    assert found.document.keys() == printed.keys()
    assert found.document["uuid"] == printed["uuid"]


def test_a_plan_is_the_verbs(cli: Cli, name: str) -> None:
    found = Table(name).plan()
    printed = json.loads(cli("plan", name, "-o", "json")[1])
    assert found.document["planId"] == printed["planId"]
    assert steady(found.document["actions"]) == steady(printed["actions"]) != []
    text = cli("plan", name)[1]
    assert found.text.splitlines()[0] == text.splitlines()[0]


def test_a_query_opens_the_two_files_that_hold_its_ids(cli: Cli, name: str) -> None:
    found = Table(name).explain(QUERY)
    printed = json.loads(cli("explain", name, "--query", QUERY, "-o", "json")[1])
    assert steady(found.document) == steady(printed)
    (scan,) = found.document["query"]
    assert len(scan["read"]) == 2


def test_a_query_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UserError):
        Table(name).explain("DROP TABLE sales.orders")


def test_a_notebook_shows_text_and_no_tags_of_it() -> None:
    html = Shown("a < b & <script>", {})._repr_html_()
    assert html.startswith("<pre") and "<script>" not in html and "a &lt; b &amp;" in html


def test_a_name_without_a_namespace_is_refused_at_once(name: str) -> None:
    with pytest.raises(UserError):
        Table("orders")
    assert repr(Table("sales.orders")) == f"Table('{name}')"


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, reconciler; reconciler.Table; "
        "print(sorted({'pyiceberg', 'pyarrow', 'numpy', 'typer'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
