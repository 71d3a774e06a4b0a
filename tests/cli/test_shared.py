"""--shared and --publish: state and plans in the catalog, as the operator finds them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.claim import claim
from reconciler.catalog.load import connect
from reconciler.state.plan_store import PlanStore
from reconciler.state.shared_state import SharedStore
from tests.cli.in_process import Cli, isolate, runner
from tests.queries.single import recorded
from tests.said import Said
from tests.state.test_shared_state import new_catalog

NAMESPACE = ("platform_state",)


@pytest.fixture
def config(tmp_path: Path) -> CatalogConfig:
    return new_catalog(tmp_path)


@pytest.fixture
def table(config: CatalogConfig) -> Any:
    """sales.events: eight appends over which `day` scatters."""
    catalog = connect(config)
    catalog.create_namespace("sales")
    made = None
    for number in range(8):
        random = np.random.default_rng(number)
        batch = pa.table(
            {
                "id": np.arange(number * 1_000, (number + 1) * 1_000),
                "day": random.integers(0, 400, 1_000),
            }
        )
        if made is None:
            made = catalog.create_table("sales.events", batch.schema)
        made.append(batch)
    return made


@pytest.fixture
def layouts(tmp_path: Path, config: CatalogConfig, table: Any) -> str:
    """A directory with the catalog's document and one policy."""
    directory = tmp_path / "layouts"
    directory.mkdir()
    api = {"apiVersion": "layout.lakehouse.dev/v1alpha1"}
    properties = {key: config.properties[key] for key in ("uri", "warehouse")}
    catalog = {
        **api,
        "kind": "IcebergCatalog",
        "metadata": {"name": "rec"},
        "spec": {
            "type": "sql",
            "catalogName": "rec",
            "properties": properties,
            "system": {
                "namespace": list(NAMESPACE),
                "plans": {"uri": f"file://{tmp_path}/published"},
            },
        },
    }
    policy = {
        **api,
        "kind": "TableLayoutPolicy",
        "metadata": {"name": "events"},
        "spec": {
            "catalogRef": {"name": "rec"},
            "tables": {"include": ["**"]},
            "layout": {"clustering": {"mode": "Declared", "keys": ["day"]}},
        },
    }
    (directory / "all.yaml").write_text(yaml.safe_dump_all([catalog, policy]))
    return str(directory)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Cli:
    """layoutctl in this process: (exit code, stdout, stderr); local state of its own."""
    isolate(monkeypatch, tmp_path, tmp_path / "nowhere", tmp_path / "state", tmp_path / "cache")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return runner(monkeypatch, capsys)


def uuid_of(table: Any) -> str:
    return str(table.metadata.table_uuid)


def test_a_published_plan_says_how_to_approve_it_and_is_found(
    cli: Cli, layouts: str, config: CatalogConfig, table: Any, tmp_path: Path
) -> None:
    code, out, _ = cli("plan", "rec.sales.events", "-f", layouts, "--publish")
    assert code == 0
    assert "preview" not in out
    path = next((tmp_path / "published").rglob("*.json"))
    plan_id, digest = path.stem[:22], path.stem[23:]
    assert path.parent.name == uuid_of(table)
    for text in (plan_id, f"sha256:{digest}", f"file://{path}", f"    - {plan_id}"):
        assert text in out
    assert "spec.approval.approvedPlans" in out
    found = PlanStore(config, f"file://{tmp_path}/published").find(uuid_of(table), plan_id)
    assert found is not None
    assert found.digest() == f"sha256:{digest}"


def test_a_published_plan_stands_and_publishing_again_changes_nothing(
    cli: Cli, layouts: str, table: Any, tmp_path: Path
) -> None:
    name = "rec.sales.events"
    first = json.loads(cli("plan", name, "-f", layouts, "--publish", "-o", "json")[1])
    assert first["uri"].startswith(f"file://{tmp_path}/published/")
    table.append(pa.table({"id": [1], "day": [1]}))
    code, out, _ = cli("plan", name, "-f", layouts)
    assert code == 0
    assert first["planId"] in out
    assert "frozen since" in out
    again = json.loads(cli("plan", name, "-f", layouts, "--publish", "-o", "json")[1])
    assert (again["planId"], again["uri"]) == (first["planId"], first["uri"])
    assert len(list((tmp_path / "published").rglob("*.json"))) == 1


def test_many_tables_are_published_at_once(
    cli: Cli, layouts: str, config: CatalogConfig, table: Any, tmp_path: Path
) -> None:
    other = connect(config).create_table("sales.more", table.schema())
    for number in range(8):
        random = np.random.default_rng(number)
        other.append(pa.table({"id": np.arange(1_000), "day": random.integers(0, 400, 1_000)}))
    code, out, _ = cli("plan", "-f", layouts, "--publish")
    assert code == 0
    assert out.count("  - p-") == 2
    code, out, _ = cli("plan", "-f", layouts, "--publish", "-o", "markdown")
    assert code == 0
    assert "`spec.approval`" in out
    assert out.count("\n- p-") == 2
    assert len(list((tmp_path / "published").rglob("*.json"))) == 2


def test_literals_are_never_published(cli: Cli, layouts: str, said: Said) -> None:
    code, _, err = cli("plan", "rec.sales.events", "-f", layouts, "--publish", "--show-literals")
    assert code == 1
    said(err)


def test_shared_state_is_made_with_a_word_and_governed_by_no_policy(
    cli: Cli, layouts: str, config: CatalogConfig, table: Any, tmp_path: Path
) -> None:
    code, _, err = cli("plan", "-f", layouts, "--shared")
    assert code == 0
    assert "created" not in err
    assert not connect(config).namespace_exists(NAMESPACE)
    code, _, err = cli("plan", "-f", layouts, "--shared", "--publish")
    assert code == 0
    assert err.count('created "platform_state"') == 1
    plan_id = next((tmp_path / "published").rglob("*.json")).stem[:22]
    store = SharedStore(config, NAMESPACE, plans_uri=f"file://{tmp_path}/published")
    assert store.get_plan(plan_id) is not None
    code, out, _ = cli("status", "-f", layouts, "--shared", "-o", "json")
    assert code == 0
    names = [item["table"] for item in json.loads(out)["items"]]
    assert names == ["rec.sales.events"]


def test_shared_and_local_state_are_apart(
    cli: Cli, layouts: str, config: CatalogConfig, table: Any, tmp_path: Path, said: Said
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(
        json.dumps(
            {
                "sql": "SELECT id FROM rec.sales.events WHERE day = 7",
                "timestamp": "2026-11-20T10:00:00Z",
            }
        )
    )
    code, _, err = cli("workload", "import", str(log), "-f", layouts, "--shared")
    assert code == 0
    assert "created" in err
    assert len(recorded(SharedStore(config, NAMESPACE), uuid_of(table))) == 1
    code, out, _ = cli("workload", "show", "rec.sales.events", "-f", layouts, "--shared")
    assert "day = ?" in out
    code, out, _ = cli("workload", "show", "rec.sales.events", "-f", layouts)
    assert "day = ?" not in out
    said(out)
    code, out, _ = cli("history", "rec.sales.events", "-f", layouts, "--shared")
    assert code == 0
    said(out)


def imported(cli: Cli, layouts: str, path: Path, *options: str) -> None:
    """Import a query on two columns, of which the catalog's document excludes one."""
    every = list(yaml.safe_load_all((file := Path(layouts) / "all.yaml").read_text()))
    every[0]["spec"]["workload"] = {"excludeColumns": ["id"]}
    file.write_text(yaml.safe_dump_all(every))
    sql = "SELECT id FROM rec.sales.events WHERE day = 7 AND id = 4711"
    path.write_text(json.dumps({"sql": sql, "timestamp": "2026-11-20T10:00:00Z"}) + "\n")
    assert cli("workload", "import", str(path), "-f", layouts, *options)[0] == 0


def test_the_shared_state_gets_no_value_of_an_excluded_column(
    cli: Cli, layouts: str, config: CatalogConfig, table: Any, tmp_path: Path
) -> None:
    imported(cli, layouts, tmp_path / "log.jsonl", "--shared")
    (one,) = recorded(SharedStore(config, NAMESPACE), uuid_of(table))
    assert one.literals == (7,)


def test_what_was_stored_before_a_column_was_excluded_is_not_used(
    cli: Cli, layouts: str, config: CatalogConfig, table: Any, tmp_path: Path
) -> None:
    before = Path(layouts, "all.yaml").read_text()
    imported(cli, layouts, tmp_path / "log.jsonl")
    excluding = Path(layouts, "all.yaml").read_text()
    Path(layouts, "all.yaml").write_text(before)
    assert cli("workload", "import", str(tmp_path / "log.jsonl"), "-f", layouts, "--shared")[0] == 0
    Path(layouts, "all.yaml").write_text(excluding)
    show = ("workload", "show", "rec.sales.events", "-f", layouts, "-o", "json")
    for shared, condition in ((("--shared",), "day = ?"), ((), "id = ? AND day = ?")):
        (item,) = json.loads(cli(*show, *shared)[1])["items"]
        assert [shape["condition"] for shape in item["shapes"]] == [condition]
    plan = ("plan", "rec.sales.events", "-f", layouts, "-o", "json", "--shared")
    shapes = json.loads(cli(*plan)[1])["evidence"]["shapes"]
    assert [shape["text"] for shape in shapes] == ["day = ?"]


def test_a_table_claimed_by_an_operator_is_left_to_it(
    cli: Cli, layouts: str, config: CatalogConfig, table: Any
) -> None:
    claim(config, table.name(), "prod-cluster/analytics")
    before = table.refresh().metadata_location
    code, out, err = cli("apply", "rec.sales.events", "-f", layouts, "--yes")
    assert code == 3
    assert "prod-cluster/analytics" in out + err
    assert "OwnedElsewhere" in out + err
    assert table.refresh().metadata_location == before
    code, out, _ = cli("plan", "-f", layouts, "--publish", "-o", "markdown")
    assert code == 0
    assert "prod-cluster/analytics" in out
    assert table.refresh().metadata_location == before


def test_shared_state_of_two_catalogs_at_once_is_refused(said: Said) -> None:
    from reconciler.cli.shared import _one_catalog
    from reconciler.errors import UserError

    one, other = (CatalogConfig(name, "rest", {}) for name in ("a", "b"))
    assert _one_catalog([one, one]) is one
    with pytest.raises(UserError) as refused:
        _one_catalog([one, other])
    said(refused.value)
