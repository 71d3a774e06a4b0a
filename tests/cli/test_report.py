"""`layoutctl report TABLE`: the page draws the tree that a plan would write. Afterwards it shows
what the plan has cost, what rewrites may cost yet, and what was refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import And, GreaterThanOrEqual, LessThanOrEqual

from bench.replay.table import empty_table
from reconciler.cli.explain_tree import _as_read, planned_or_written
from reconciler.format import iec
from reconciler.plan.actions.build_replica import BuildReplica
from reconciler.plan.actions.migrate import Migrate
from reconciler.plan.actions.rewrite import Cluster
from reconciler.plan.ordering import by_tree
from reconciler.table.cut_tree import Cut, made
from tests.advisor.worlds import KEY, SCHEMA
from tests.cli.in_process import Cli, isolate, runner
from tests.conftest import sqlite_catalog

FILES, ROWS = 6, 4_000
POLICY = {
    "apiVersion": "layout.lakehouse.dev/v1alpha1",
    "kind": "TableLayoutPolicy",
    "metadata": {"name": "trees"},
    "spec": {
        "catalogRef": {"name": "rec"},
        "tables": {"include": ["d.*"]},
        "layout": {
            "clustering": {"mode": "QdTree", "qdTree": {"method": "Greedy"}},
            "files": {"targetSize": 40_000},
        },
    },
}


def _table_with_queries(tmp_path: Path) -> Any:
    config = sqlite_catalog(tmp_path)
    catalog = load_catalog("rec", **config.properties)
    random = np.random.default_rng(1)
    catalog.create_namespace("d")
    table = catalog.create_table("d.t", pa.schema([("a", pa.float64()), ("b", pa.int64())]))
    for _ in range(FILES):
        rows = {"a": random.random(ROWS), "b": random.integers(0, 1000, ROWS)}
        table.append(pa.table(rows))
    conditions = [f"a > {0.9 + 0.0009 * n}" for n in range(80)]
    conditions += [f"b BETWEEN {10 * n} AND {10 * n + 9}" for n in range(80)]
    conditions += [f"a > {0.9 + 0.0009 * n} AND a < b" for n in range(40)]
    lines = [
        {"sql": f"SELECT * FROM d.t WHERE {one}", "timestamp": "2026-11-20T10:00:00Z"}
        for one in conditions
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(POLICY))
    (tmp_path / ".pyiceberg.yaml").write_text(
        yaml.safe_dump({"catalog": {"rec": dict(config.properties)}})
    )
    return table


def test_leaves_of_a_planned_tree_are_drawn_then_credit_and_refusals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    table = _table_with_queries(tmp_path)
    isolate(monkeypatch, tmp_path, tmp_path, tmp_path / "state", tmp_path / "cache")
    cli = runner(monkeypatch, capsys)
    assert cli("workload", "import", "log.jsonl", "--catalog", "rec")[0] == 0
    plan = ("-f", "policy.yaml", "rec.d.t")
    code, out, err = cli("explain", *plan, "--tree", "-o", "json")
    assert code == 0, err
    (tree,), (uncut,) = json.loads(out)["trees"], json.loads(out)["notCut"]
    share = int(uncut.partition("a < b (")[2].partition("%")[0])
    assert 10 < share < 60
    assert f"{uncut}." in " ".join(cli("explain", *plan, "--tree")[1].split())
    assert cli("report", *plan, "--out", "page.html")[0] == 0
    page = (tmp_path / "page.html").read_text()
    (section,) = [one for one in page.split("<section>") if "leaves of the tree by" in one]
    leaves = re.findall(r"<tr><td[^>]*>(\d+)</td>", section)
    assert sorted(map(int, leaves)) == list(range(tree["leaves"])) and tree["leaves"] > 3
    shares = [float(one) for one in re.findall(r"a query would read ([\d.]+) %", section)]
    assert len(shares) == 1 and shares[0] < 75.0
    assert cli("apply", *plan, "--yes", "--engine", "Local")[0] == 0
    _tree_of_the_table(cli, plan, tree["tree"], table.refresh())
    (done,) = json.loads(cli("history", "rec.d.t", "-o", "json")[1])["items"]
    evidence = json.loads(cli("plan", *plan, "-o", "json")[1])["evidence"]
    assert cli("report", *plan, "--out", "page.html")[0] == 0
    page = (tmp_path / "page.html").read_text()
    credit = re.findall(r"<tr><td>Credit: .*?</td><td>(.*?)</td></tr>", page)
    room = 0.02 * evidence["cost"]["yearlyRead"] - done["costBytes"]  # a share of a year's reading
    cost = iec(done["costBytes"])
    assert credit == [cost, "0 B", cost, iec(room)]  # spent, realised, outstanding, room
    assert evidence["rejected"]
    (section,) = [one for one in page.split("<section>") if "<h2>1 candidate considered" in one]
    rows = re.findall(r"<tr><td[^>]*>(.*?)</td><td[^>]*>(.*?)</td></tr>", section)
    assert rows == [(item["what"], item["why"]) for item in evidence["rejected"]]


def _tree_of_the_table(cli: Cli, plan: tuple[str, ...], name: str, table: Any) -> None:
    """The written tree is shown with what each shape reads, as pyiceberg plans its queries."""
    (shown,) = json.loads(cli("explain", *plan, "--tree", "-o", "json")[1])["trees"]
    assert (shown["tree"], "action" in shown) == (name, False)
    assert (shown["files"], shown["filesOutside"]) == (len(table.inspect.files()), 0)
    read = {shape["text"]: shape for shape in shown["shapes"]}
    ranges = [And(GreaterThanOrEqual("b", 10 * n), LessThanOrEqual("b", 10 * n + 9))
              for n in range(80)]  # fmt: skip
    opened = [len(list(table.scan(one).plan_files())) for one in ranges]
    assert read["b BETWEEN ? AND ?"]["filesPerQuery"] == pytest.approx(sum(opened) / 80, abs=1e-3)
    leaves = [shape["leavesPerQuery"] for shape in read.values()]
    assert min(leaves) > 0.0 and max(leaves) <= shown["leaves"]
    text = cli("explain", *plan, "--tree")[1]
    assert name[:12] in text and all(shape in text for shape in read)


def test_the_tree_of_a_removed_spec_has_no_file_and_that_of_a_migration_all_of_its_spec() -> None:
    rows = {field.field_id: np.arange(90) for field in SCHEMA.fields}
    files = empty_table(SCHEMA).append(rows, 30, 0, 30).file_table()
    tree = by_tree(made((Cut(KEY, 45), None, None), [0, 0]))
    proposal: Any = SimpleNamespace(
        observation=SimpleNamespace(files=files), plan=SimpleNamespace(evidence={}),
        queries=SimpleNamespace(workload=SimpleNamespace(shapes=())),
    )  # fmt: skip
    removed, moved = Cluster(("x",), 7, (), tree), Migrate(("x",), 7, (), tree, output_spec_id=0)
    assert [_as_read(one, proposal)["files"] for one in (removed, moved)] == [0, len(files)]


def test_the_tree_of_a_replica_is_not_that_of_the_table() -> None:
    tree = made((Cut(1, 5), None, None), [0, 0])
    replica = SimpleNamespace(id="r", action=BuildReplica("copy", tree, 1, 1 << 30, 1000))
    plan = SimpleNamespace(id="p", actions=[replica])
    entry = SimpleNamespace(plan_id="p", committed=True, outcome=SimpleNamespace(action_id="r"))
    proposal = SimpleNamespace(plan=plan, history=SimpleNamespace(entries=(entry,)))
    assert planned_or_written(proposal, [plan]) is None  # type: ignore[arg-type,list-item]
