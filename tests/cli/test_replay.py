"""`layoutctl replay` on a real table and an imported log: what it prints, and that it changes
nothing."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog import load_catalog

from tests.cli.in_process import Cli, isolate, runner
from tests.conftest import sqlite_catalog

ROWS, FILES = 20_000, 8
POLICY = """\
apiVersion: layout.lakehouse.dev/v1alpha1
kind: TableLayoutPolicy
metadata: {name: %s}
spec:
  catalogRef: {name: rec}
  tables: {include: ["shop.*"]}
  layout: {clustering: {%s}, files: {targetSize: 128Ki}}
  %s
"""


def _line(number: int) -> str:
    low = (number * 977) % 99_000
    sql = f"select pad from shop.sales where part between {low} and {low + 700}"
    at = f"2026-11-{7 + number // 20:02d}T{number % 20:02d}:00:00Z"
    return json.dumps({"sql": sql, "timestamp": at})


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog with rec.shop.sales, whose files all hold all parts; its log of six days; policies
    that may differ."""
    from pyiceberg.catalog.sql import SqlCatalog

    home = tmp_path_factory.mktemp("replay")
    properties = {"uri": f"sqlite:///{home}/catalog.db", "warehouse": f"file://{home}/warehouse"}
    (home / ".pyiceberg.yaml").write_text(
        yaml.safe_dump({"catalog": {"rec": {"type": "sql", **properties}}})
    )
    catalog = SqlCatalog("rec", **properties)
    catalog.create_namespace("shop")
    table = None
    for number in range(FILES):
        random = np.random.default_rng(number)
        rows = pa.table(
            {
                "part": random.integers(0, 100_000, ROWS),
                "pad": [random.bytes(16).hex() for _ in range(ROWS)],
            }
        )
        table = table or catalog.create_table("shop.sales", rows.schema)
        table.append(rows)
    catalog.create_table("shop.quiet", rows.schema).append(rows.slice(0, 100))
    _partitioned(catalog)
    catalog.create_table("shop.bare", rows.schema)
    lines = [*(_line(n) for n in range(120)), *(_mixed(n) for n in range(80))]
    bare = {"sql": "select pad from shop.bare where part = 3", "timestamp": "2026-11-08T00:00:00Z"}
    lines.append(json.dumps(bare))
    (home / "log.jsonl").write_text("".join(line + "\n" for line in lines))
    (home / "mine.yaml").write_text(POLICY % ("mine", "mode: WorkloadAware", ""))
    none = "budgets: [{name: nothing, per: 24h, maxRewriteBytes: 1Ki}]"
    (home / "poor.yaml").write_text(POLICY % ("poor", "mode: WorkloadAware", none))
    return home


def _partitioned(catalog: Any) -> None:
    """rec.shop.mixed: partitions, one of them of NULL; NULL and NaN; texts; a day an append."""
    random, count = np.random.default_rng(3), 6_000
    rows = pa.table(
        {
            "share": pa.array([None, 7, 9] * (count // 3), pa.int32()),
            "name": pa.array(
                [None if n % 19 == 0 else f"u{n:05d}" for n in random.integers(0, 9_000, count)]
            ),
            "amount": np.where(random.random(count) < 0.1, np.nan, random.random(count)),
        }
    )
    table = catalog.create_table("shop.mixed", rows.schema)
    with table.update_spec() as spec:
        spec.add_identity("share")
    for part in range(4):
        table.append(rows.slice(part * count // 4, count // 4))


MIXED = (
    "share = 7 and name >= 'u{0:05d}' and name < 'u{1:05d}'",
    "share is null and name between 'u{0:05d}' and 'u{1:05d}'",
    "amount > 0.{0:04d}",
    "name is null",
)


def _mixed(number: int) -> str:
    low = (number * 977) % 8_900
    sql = f"select amount from shop.mixed where {MIXED[number % 4].format(low, low + 60)}"
    at = f"2026-11-{7 + number // 20:02d}T{number % 20:02d}:00:00Z"
    return json.dumps({"sql": sql, "timestamp": at})


@pytest.fixture
def cli(warehouse: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path) -> Cli:
    isolate(monkeypatch, warehouse, warehouse, warehouse / "state", warehouse / "cache")
    run = runner(monkeypatch, capsys)
    if not (warehouse / "state").exists():
        code, _, said = run("workload", "import", "log.jsonl")
        assert code == 0, said
    return run


def _files(home: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in (home / "warehouse").rglob("*.*")} | {
        "catalog": (home / "catalog.db").stat().st_mtime_ns
    }


def test_policies_are_compared_and_nothing_is_changed(cli: Cli, warehouse: Path) -> None:
    before = _files(warehouse)
    code, out, said = cli(
        "replay", "rec.shop.sales", "-f", "mine.yaml", "--policy", "poor.yaml",
        "--baseline", "sort-all", "--baseline", "literal-wair", "-o", "json",
    )  # fmt: skip
    assert code == 0, said
    assert _files(warehouse) == before
    found = json.loads(out)
    assert found["kind"] == "TableReplay"
    policies = {one["name"]: one for one in found["policies"]}
    assert list(policies) == ["none", "mine (mine.yaml:1)", "poor.yaml", "sort-all", "literal-wair"]
    none, mine, poor = (policies[name] for name in list(policies)[:3])
    assert none["ratio"] == 1.0 and none["rewrittenBytes"] == 0
    assert mine["ratio"] < 0.8 and mine["rewrites"] >= 1
    assert poor["ratio"] == 1.0 and poor["rewrites"] == 0, "its budget admits nothing"
    assert policies["sort-all"]["rewrites"] == len(none["batches"]) == 6
    for one in policies.values():
        assert sum(batch["queries"] for batch in one["batches"]) == 120
        assert sum(batch["readCostBytes"] for batch in one["batches"]) == pytest.approx(
            one["readCostBytes"], abs=len(one["batches"])
        )
        assert one["costBytes"] == pytest.approx(
            one["readCostBytes"] + one["rho"] * one["rewrittenBytes"], rel=1e-3
        )
    assert mine["batches"][0]["readBytes"] == none["batches"][0]["readBytes"]


def test_a_table_that_is_younger_than_its_log_is_read_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """A table that was loaded today, and the log of its predecessor: before, all batches but the
    last one read nothing, and every policy cost more than none."""
    config = sqlite_catalog(tmp_path)
    catalog = load_catalog("rec", **config.properties)
    catalog.create_namespace("d")
    random = np.random.default_rng(2)
    columns = pa.schema([("k", pa.int64()), ("pad", pa.string())])
    table = catalog.create_table("d.t", columns)
    for _ in range(6):
        pads = [random.bytes(8).hex() for _ in range(4_000)]
        table.append(pa.table({"k": random.integers(0, 9_000, 4_000), "pad": pads}, columns))
    (tmp_path / ".pyiceberg.yaml").write_text(
        yaml.safe_dump({"catalog": {"rec": dict(config.properties)}})
    )
    now = dt.datetime.now(dt.UTC)
    lines = [
        {"sql": f"select pad from d.t where k between {40 * n} and {40 * n + 40}",
         "timestamp": (now - dt.timedelta(hours=n)).isoformat()}
        for n in range(200)
    ]  # fmt: skip
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    isolate(monkeypatch, tmp_path, tmp_path, tmp_path / "state", tmp_path / "cache")
    run = runner(monkeypatch, capsys)
    assert run("workload", "import", "log.jsonl", "--catalog", "rec")[0] == 0
    code, out, said = run("replay", "rec.d.t", "--baseline", "sort-all", "-o", "json")
    assert code == 0, said
    found = json.loads(out)
    none, _, sort = found["policies"]
    assert all(batch["readBytes"] > 0 for batch in none["batches"] if batch["queries"])
    assert sort["ratio"] < 0.9 and len(found["notes"]) == 1


def test_partitions_nulls_and_nans_are_replayed_by_every_policy(cli: Cli) -> None:
    code, out, said = cli(
        "replay", "rec.shop.mixed", "-f", "mine.yaml", "--baseline", "sort-all", "--baseline",
        "sort-new", "--baseline", "literal-wair", "--baseline", "new-tree", "-o", "json",
    )  # fmt: skip
    assert code == 0, said
    policies = {one["name"]: one for one in json.loads(out)["policies"]}
    for name, one in policies.items():
        assert sum(batch["queries"] for batch in one["batches"]) == 80
        assert one["files"] >= 3, f"{name} has written over partitions"
    assert policies["sort-all"]["files"] == 3 and policies["none"]["files"] == 12
    assert policies["sort-new"]["rewrites"] == 3


def test_the_table_and_the_drawing_show_every_policy(cli: Cli, tmp_path: Path) -> None:
    drawing = tmp_path / "costs.svg"
    code, out, said = cli(
        "replay", "rec.shop.sales", "-f", "mine.yaml", "--days", "2", "--every", "12h",
        "--baseline", "new-tree", "--baseline", "sort-new", "--plot", str(drawing),
    )  # fmt: skip
    assert code == 0, said
    wanted = ["none", "mine", "new-tree", "sort-new"]
    lines = [line.split() for line in out.splitlines()]
    assert [line[0] for line in lines if len(line) > 8 and line[0] in wanted] == wanted
    assert all(len(line) <= 100 for line in out.splitlines())
    assert "<svg" in drawing.read_text() and "new-tree" in drawing.read_text()


def test_other_policies_cost_money_and_a_policy_for_other_tables_is_named(
    cli: Cli, warehouse: Path
) -> None:
    text = (warehouse / "mine.yaml").read_text().replace('"shop.*"', '"other.*"')
    (warehouse / "other.yaml").write_text(text)
    uris = yaml.safe_load((warehouse / ".pyiceberg.yaml").read_text())["catalog"]["rec"]
    (warehouse / "priced.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "layout.lakehouse.dev/v1alpha1",
                "kind": "IcebergCatalog",
                "metadata": {"name": "rec"},
                "spec": {
                    "type": "sql",
                    "catalogName": "rec",
                    "properties": {name: uris[name] for name in ("uri", "warehouse")},
                    "prices": {
                        "currency": "EUR", "tibRead": "5000000", "cpuHour": "3600",
                        "requests1000": "7000",
                    },
                },
            }
        )
    )  # fmt: skip
    names = ["sort-weekly", "depth-driven", "free-before", "free-after"]
    code, out, said = cli(
        "replay", "rec.shop.sales", "-f", "mine.yaml", "--policy", "other.yaml", "-o", "json",
        "-f", "priced.yaml",
        *(part for name in names for part in ("--baseline", name)),
    )  # fmt: skip
    assert code == 0, said
    assert "other.yaml" in said and "rec.shop.sales" in said
    found = json.loads(out)
    policies = {one["name"]: one for one in found["policies"]}
    assert list(policies)[2:] == ["other.yaml", *names]
    for one in policies.values():
        money, opened = one["money"], one["readCostBytes"] - one["readBytes"]
        read = one["readBytes"] * (5e6 / 2**40 + 4.75e-8) + 7 * opened / found["openBytes"]
        written = one["rewrittenBytes"] * (5e6 / 2**40 + one["rho"] * 4.75e-8)
        assert (money["currency"], money["reading"]) == ("EUR", pytest.approx(read, rel=1e-3))
        assert money["rewriting"] == pytest.approx(written, rel=1e-3, abs=1e-6)
    assert policies["free-before"]["ratio"] <= policies["free-after"]["ratio"] < 1.0
    assert policies["free-before"]["rewrittenBytes"] == 0
    assert policies["sort-weekly"]["rewrites"] == 1
    code, out, said = cli("replay", "rec.shop.sales", "-f", "mine.yaml", "-f", "priced.yaml")
    assert code == 0 and "MONEY" in out and "other.yaml" not in said
    code, out, said = cli("replay", "rec.shop.sales", "-f", "mine.yaml")
    assert code == 0 and "MONEY" not in out


def test_a_policy_refers_to_the_catalog_by_the_name_of_its_document(
    cli: Cli, warehouse: Path
) -> None:
    policy = (warehouse / "mine.yaml").read_text().replace("name: rec", "name: documented")
    catalog = (
        "apiVersion: layout.lakehouse.dev/v1alpha1\nkind: IcebergCatalog\n"
        "metadata: {name: documented}\n"
        "spec: {type: sql, catalogName: rec, properties: {uri: 'sqlite:///c', warehouse: /w}}\n"
    )
    (warehouse / "documented.yaml").write_text(f"{catalog}---\n{policy}")
    code, _, said = cli("replay", "rec.shop.sales", "--policy", "documented.yaml")
    assert code == 0, said
    assert "warning" not in said


def test_what_nothing_is_known_of_is_not_shown_as_a_ratio(cli: Cli) -> None:
    code, out, said = cli("replay", "rec.shop.sales", "--every", "240h", "-o", "json")
    assert code == 0, said
    assert all(one["worstRatio"] is None for one in json.loads(out)["policies"])
    code, out, said = cli("replay", "rec.shop.bare", "-o", "json")
    assert code == 0, said
    found = json.loads(out)
    assert all(one["ratio"] is None for one in found["policies"]) and not found["notes"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("rec.shop.quiet",), "rec.shop.quiet"),
        (("rec.shop.sales", "--baseline", "magic"), "sort-all"),
        (("rec.shop.sales", "--every", "soon"), "--every"),
        (("rec.shop.sales", "--every", "1s"), "--every"),
        (("rec.shop.sales", "--every", "1m"), "--every"),
        (("rec.shop.sales", "--policy", "log.jsonl"), "log.jsonl:1"),
        (("rec.shop.sales", "--plot", "/nowhere/costs.svg"), "/nowhere/costs.svg"),
    ],
)  # fmt: skip
def test_what_cannot_be_replayed_is_refused(
    cli: Cli, arguments: tuple[str, ...], named: str
) -> None:
    code, out, said = cli("replay", *arguments)
    assert (code, out) == (1, "")
    assert named in said


def test_a_query_for_the_first_rows_reads_all_of_a_table_of_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Which rows come first is known of the present files alone, and those arrived one by one."""
    config = sqlite_catalog(tmp_path)
    catalog = load_catalog("rec", **config.properties)
    catalog.create_namespace("d")
    table = catalog.create_table("d.t", pa.schema([("k", pa.int64())]))
    for number in range(4):
        table.append(pa.table({"k": np.arange(500) + 500 * number}))
    (tmp_path / ".pyiceberg.yaml").write_text(
        yaml.safe_dump({"catalog": {"rec": dict(config.properties)}})
    )
    sql = "select k from d.t order by k desc limit 10"
    lines = [{"sql": sql, "timestamp": f"2026-11-{7 + n:02d}T10:00:00Z"} for n in range(6)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    isolate(monkeypatch, tmp_path, tmp_path, tmp_path / "state", tmp_path / "cache")
    run = runner(monkeypatch, capsys)
    logged = ("workload", "import", "log.jsonl", "--catalog", "rec", "--dialect", "duckdb")
    assert run(*logged)[0] == 0
    code, out, said = run("replay", "rec.d.t", "-o", "json")
    assert code == 0, said
    (none, *_) = json.loads(out)["policies"]
    held = sum(task.file.file_size_in_bytes for task in table.scan().plan_files())
    read = [batch["readBytes"] for batch in none["batches"]]
    assert len(read) == 6 and min(read) > 0.3 * held  # of one file in four it is a tenth
