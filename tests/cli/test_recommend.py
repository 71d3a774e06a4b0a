"""`layoutctl recommend` from a log to a reviewed policy, which of several tables comes first, and
what it refuses."""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pytest
import yaml

from reconciler.advisor.pto.methods.registry import PREDICATE_ORDER
from reconciler.catalog.discover import resolve_catalog
from reconciler.cli.recommend_from_cluster import Found, whole
from reconciler.errors import UserError
from reconciler.loop.recommendation_document import RECOMMENDATION_SCHEMA
from reconciler.render import recommend_text
from reconciler.state.plan_store import PlanStore
from tests.cli.in_process import Cli, isolate, runner
from tests.recommendations import RECOMMENDATIONS_SCHEMA
from tests.said import Said

ROWS, FILES = 40_000, 6
Once = Callable[..., Any]


def catalog_of(home: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog(
        "rec", uri=f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/warehouse"
    )


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog with rec.shop.sales and a smaller rec.shop.visits, whose files all hold all days,
    and small tables; its logs."""
    home = tmp_path_factory.mktemp("recommend")
    catalog = catalog_of(home)
    properties = {"type": "sql", **catalog.properties}
    (home / ".pyiceberg.yaml").write_text(yaml.safe_dump({"catalog": {"rec": properties}}))
    catalog.create_namespace("shop")
    table = None
    for number in range(FILES):
        random = np.random.default_rng(number)
        rows = pa.table(
            {
                "id": np.arange(number * ROWS, (number + 1) * ROWS),
                "day": random.integers(0, 2_000, ROWS),
                "price": np.where(random.random(ROWS) < 0.01, np.nan, random.random(ROWS)),
                "pad": [random.bytes(16).hex() for _ in range(ROWS)],
            }
        )
        table = table or catalog.create_table("shop.sales", rows.schema)
        table.append(rows)
        if number < 2:
            visits = catalog.create_table_if_not_exists("shop.visits", rows.schema)
            visits.append(rows)
    _odd_partitions(catalog)
    _days(catalog, home / "days.jsonl")
    catalog.create_table("shop.empty", rows.schema)
    catalog.create_table("shop.quiet", rows.schema).append(rows.slice(0, 100))
    catalog.create_table("shop.unfit", rows.schema).append(rows.slice(0, 1_000))
    catalog.create_table("shop.renewed", rows.schema).append(rows.slice(0, 1_000))
    catalog.create_table("shop.single", rows.schema).append(rows.slice(0, 20_000))
    _log(home / "unfit.jsonl", "shop.unfit", "pad like '%{}%{}'")
    _log(home / "renewed.jsonl", "shop.renewed", "day between {} and {}")
    _log(home / "single.jsonl", "shop.single", "day between {} and {}")
    _log(home / "log.jsonl", "shop.sales", "day between {} and {}")
    _log(home / "visits.jsonl", "shop.visits", "day between {} and {}")
    _log(home / "odd.jsonl", "shop.odd", "day between {} and {}", columns="day")
    return home


def _odd_partitions(catalog: Any) -> None:
    """rec.shop.odd: partitions of NULL and of two numbers, each with all days; a time column."""
    random = np.random.default_rng(9)
    share = pa.array([None, 7, 9] * 7_000)
    at = pa.array([0] * len(share), pa.time64("us"))
    rows = pa.table({"share": share, "day": random.integers(0, 2_000, len(share)), "at": at})
    table = catalog.create_table("shop.odd", rows.schema)
    with table.update_spec() as spec:
        spec.add_identity("share")
    table.append(rows)


def _days(catalog: Any, log: Path) -> None:
    """rec.shop.events: eight days of rows in order of time, asked for the last day, or for a user
    of any time."""
    random = np.random.default_rng(8)
    count, days, end = 48_000, 8, np.datetime64("2026-11-15T00:00:00", "us")
    ago = np.sort(random.integers(1, days * 86_400, count))[::-1].astype("timedelta64[s]")
    rows = pa.table(
        {
            "at": end - ago,
            "user": random.integers(0, 5_000, count),
            "note": [random.bytes(12).hex() for _ in range(count)],
        }
    )
    table = catalog.create_table("shop.events", rows.schema)
    for part in range(16):
        table.append(rows.slice(part * count // 16, count // 16))
    with log.open("w") as out:
        for number in range(160):
            when = end - np.timedelta64((160 - number) * 4_200, "s")
            condition = f"user = {random.integers(0, 5_000)}"
            if number % 4:
                condition = f"at >= timestamp '{when - np.timedelta64(86_400, 's')}'"
                condition += f" and at < timestamp '{when}'"
            sql = f"select note from shop.events where {condition}"
            out.write(json.dumps({"sql": sql, "timestamp": f"{when}Z"}) + "\n")


def _log(path: Path, table: str, condition: str, columns: str = "pad") -> None:
    random = np.random.default_rng(5)
    with path.open("w") as out:
        for number in range(120):
            low = int(random.integers(0, 1_990))
            sql = f"select {columns} from {table} where {condition.format(low, low + 6)}"
            when = f"2026-11-{7 + number * 7 // 120:02d}T{number % 24:02d}:00:00Z"
            out.write(json.dumps({"sql": sql, "timestamp": when}) + "\n")


@pytest.fixture(scope="module")
def imported(warehouse: Path) -> Path:
    """The state directory after the log was imported once."""
    return warehouse / "state"


@pytest.fixture
def cli(
    warehouse: Path, imported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Cli:
    isolate(monkeypatch, tmp_path, warehouse, imported, warehouse / "cache")
    run = runner(monkeypatch, capsys)
    if not imported.exists():
        for log in map(str, sorted(warehouse.glob("*.jsonl"))):
            assert run("workload", "import", "--dialect", "spark", "--catalog", "rec", log)[0] == 0
    return run


@pytest.fixture
def once(cli: Cli, answers: dict[tuple[str, ...], Any]) -> Once:
    """The document that a command line prints as JSON; whoever asks for it again gets that one."""

    def document(*arguments: str) -> Any:
        if arguments not in answers:
            code, out, err = cli(*arguments, "-o", "json")
            assert code == 0, err
            answers[arguments] = json.loads(out)
        return copy.deepcopy(answers[arguments])

    return document


@pytest.fixture(scope="module")
def answers() -> dict[tuple[str, ...], Any]:
    return {}


def test_a_log_becomes_a_policy_that_the_reader_accepts(cli, tmp_path):
    code, out, err = cli("recommend", "rec.shop.sales", "-o", "json", "--out", "sales.yaml")
    assert code == 0, err
    body = json.loads(out)
    jsonschema.validate(body, RECOMMENDATION_SCHEMA)
    assert body["policy"]["clustering"]["keys"][0] == "day"
    assert body["savesPercent"] > 50
    today, chosen = body["layouts"][:2]
    assert today["name"] == "today" and chosen["name"] == body["chosen"]
    assert chosen["read"]["low"] < 0.96 * chosen["read"]["bytes"]
    assert chosen["read"]["high"] > 1.04 * chosen["read"]["bytes"]
    assert chosen["read"]["bytes"] < today["read"]["bytes"]
    assert {item["name"] for item in body["layouts"]} >= {"today", "default", "expert"}
    early, late, half = body["sensitivity"]
    assert early["evidence"] != late["evidence"] and half["layout"] == chosen["what"]
    assert all(0.0 <= item["costsMorePercent"] < 10.0 for item in body["sensitivity"])
    policy = yaml.safe_load((tmp_path / "sales.yaml").read_text())
    assert policy["spec"]["layout"]["clustering"] == body["policy"]["clustering"]
    assert cli("validate", "-f", "sales.yaml")[0] == 0


def test_a_table_that_is_asked_for_the_last_day_keeps_its_order_of_time(once):
    """The windows of the next weeks lie behind the present rows, and will be read as these are."""
    body = once("recommend", "rec.shop.events")
    today, chosen = body["layouts"][:2]
    by_user = next(item for item in body["layouts"] if item["keys"] == ["user"])
    assert "at" in body["policy"]["clustering"]["keys"]
    assert chosen["read"]["bytes"] < 0.6 * by_user["read"]["bytes"]
    assert chosen["filesOpened"] < 0.2 * today["filesOpened"]


def test_a_plan_and_a_recommendation_agree_about_what_is_read_today(cli, once):
    """A plan counts the footers of opened files as read."""
    for table in ("rec.shop.events", "rec.shop.sales"):
        rows = json.loads(cli("plan", table, "-o", "json")[1])["evidence"]["totals"]
        (planned,) = (row["now"] for row in rows if row["measure"] == "readBytes")
        today = once("recommend", table)["layouts"][0]
        read = today["read"]["bytes"] + today["read"]["footerBytes"]
        assert 0 < today["read"]["footerBytes"] < 0.2 * read
        assert planned == pytest.approx(read, rel=1e-3)


def test_a_layout_that_no_table_can_declare_is_not_called_unsorted(once):
    body = once("recommend", "rec.shop.events", "--method", "mddl")
    chosen = next(item for item in body["layouts"] if item["name"] == "best")
    assert body["policy"] is None and chosen["what"] == PREDICATE_ORDER
    assert "Declare:" not in recommend_text.render(body, 100, verbose=False)


def test_the_second_time_no_file_is_sampled_again(cli, once):
    once("recommend", "rec.shop.sales")
    body = json.loads(cli("recommend", "rec.shop.sales", "-o", "json")[1])
    assert body["sample"]["bytesRead"] == 0
    assert body["sample"]["filesSampledBefore"] == body["sample"]["files"] == FILES


HAND_WRITTEN = """\
# Ours.
apiVersion: layout.lakehouse.dev/v1alpha1
kind: TableLayoutPolicy
metadata: {name: sales}   # kept
spec:
    catalogRef: {name: rec}
    tables:
        include:
            - "shop.sales"
    layout:
        clustering:
            mode: WorkloadAware     # for now
        files: {targetSize: 64Mi, quietPeriod: 0s}
---
kind: Other
text:   "as it was"
"""


def test_only_lines_of_changed_fields_differ(cli, tmp_path):
    path = tmp_path / "sales.yaml"
    path.write_text(HAND_WRITTEN)
    assert cli("recommend", "rec.shop.sales", "--out", "sales.yaml")[0] == 0
    before, after = HAND_WRITTEN.splitlines(), path.read_text().splitlines()
    gone = [line for line in before if line not in after]
    mode, files = (line for line in before if "WorkloadAware" in line or "targetSize" in line)
    assert gone == [mode, files]
    assert after[11] == mode.replace("WorkloadAware", "Declared")
    assert cli("validate", "-f", "sales.yaml")[0] == 0


def test_a_file_without_the_tables_policy_is_not_changed(cli, tmp_path):
    path = tmp_path / "other.yaml"
    path.write_text(HAND_WRITTEN.replace("shop.sales", "shop.other"))
    code, _, err = cli("recommend", "rec.shop.sales", "--out", "other.yaml")
    assert code == 1 and "other.yaml" in err
    assert path.read_text() == HAND_WRITTEN.replace("shop.sales", "shop.other")


@pytest.mark.parametrize(
    "arguments",
    [
        ("rec.shop.empty",),
        ("rec.shop.quiet",),
        ("rec.shop.sales", "--sample-bytes", "10"),
        ("rec.shop.sales", "--method", "guess"),
        ("rec.shop.sales", "--costs", "tape"),
        ("rec.shop.sales", "--horizon", "soon"),
        ("rec.shop.gone",),
    ],
    ids=" ".join,
)
def test_what_allows_no_recommendation_is_one_message(cli, arguments, said: Said):
    code, out, err = cli("recommend", *arguments)
    assert (code, out) == (1, "")
    assert err.count("error:") == 1
    said(re.sub(r"\d{4,}", "N", err))


@pytest.mark.parametrize(("method", "package"), [("boosting", "sklearn"), ("tpe", "optuna")])
def test_a_method_whose_package_is_missing_names_the_command_and_reads_nothing(
    cli, imported, method, package, monkeypatch, said: Said
):
    """A state that was sampled before would hide a reading: this one is of no table."""
    monkeypatch.setattr("reconciler.loop.recommend.on_live_files", None)
    monkeypatch.setitem(sys.modules, package, None)
    code, out, err = cli("recommend", "rec.shop.sales", "--method", method)
    assert (code, out) == (1, "") and err.count("error:") == 1
    said(err)


@pytest.mark.parametrize("name", ["unfit", "renewed"])
def test_queries_that_no_layout_could_serve_are_said(cli, warehouse, name, said: Said):
    """Patterns without a prefix, and conditions on a column that was dropped since."""
    if name == "renewed":
        with catalog_of(warehouse).load_table("shop.renewed").update_schema() as schema:
            schema.delete_column("day")
    code, out, err = cli("recommend", f"rec.shop.{name}")
    assert (code, out) == (1, "") and err.count("error:") == 1
    said(err)


def test_a_table_of_one_small_file_stays_as_it_is(cli, tmp_path):
    code, out, err = cli("recommend", "rec.shop.single", "-o", "json", "--out", "single.yaml")
    assert code == 0, err
    body = json.loads(out)
    assert body["chosen"] is None and body["policy"] is None and "one file" in body["keep"]
    assert not (tmp_path / "single.yaml").exists()


def test_a_policy_that_cannot_be_edited_is_printed_to_merge_by_hand(cli, tmp_path, said: Said):
    aliased = HAND_WRITTEN.replace(
        "name: sales}   # kept", "name: &name sales, labels: {a: *name}}"
    )
    (tmp_path / "sales.yaml").write_text(aliased)
    code, out, err = cli("recommend", "rec.shop.sales", "--out", "sales.yaml")
    assert (code, out) == (1, "") and err.count("error:") == 1
    assert (tmp_path / "sales.yaml").read_text() == aliased
    said(re.sub(r"\d+(Ki|Mi)", r"N\1", err))


def test_a_partition_of_null_is_a_partition_and_a_time_of_day_is_no_hindrance(cli):
    code, out, err = cli("recommend", "rec.shop.odd", "-o", "json", "--sample-rows", "20000")
    assert code == 0, err
    body = json.loads(out)
    jsonschema.validate(body, RECOMMENDATION_SCHEMA)
    assert body["layouts"][0]["files"] == 3
    present = [it for it in body["layouts"][1:] if it["partitioning"]]
    assert present and all(it["files"] >= 3 for it in present), "one file of each at least"
    assert not any("at (time)" in warning for warning in body["warnings"])


def test_text_and_markdown_name_the_layout_and_who_loses(cli):
    _, text, _ = cli("recommend", "rec.shop.sales")
    assert max(map(len, text.splitlines())) <= 100
    assert "Declare: " in text and "Nobody loses" in text
    _, markdown, _ = cli("recommend", "rec.shop.sales", "-o", "markdown")
    assert markdown.splitlines()[0].split()[1:3] == ["layoutctl:recommend", "rec.shop.sales"]
    assert "| **best" in markdown


def _policy(path: Path, tables: tuple[str, ...], most: str) -> None:
    listed = ", ".join(f'"{name}"' for name in tables)
    path.write_text(
        f"""\
apiVersion: layout.lakehouse.dev/v1alpha1
kind: TableLayoutPolicy
metadata: {{name: {path.stem}}}
spec:
  catalogRef: {{name: rec}}
  tables: {{include: [{listed}]}}
  budgets:
    - {{name: daily, per: 24h, maxRewriteBytes: {most}}}
"""
    )


def test_several_tables_are_ranked_by_net_saving_per_byte(cli, once):
    body = once("recommend", "rec.shop.visits", "rec.shop.sales")
    jsonschema.validate(body, RECOMMENDATIONS_SCHEMA)
    items = body["items"]
    assert [item["rank"] for item in items] == [1, 2]
    assert all(item["fits"] and not item["waits"] for item in items), "no budget, no limit"
    ratios = [item["netSavingBytes"] / item["rewriteBytes"] for item in items]
    assert ratios == sorted(ratios, reverse=True) and ratios[-1] > 0
    for item in items:
        jsonschema.validate(item["recommendation"], RECOMMENDATION_SCHEMA)
        layouts = {it["name"]: it for it in item["recommendation"]["layouts"]}
        chosen = layouts[item["recommendation"]["chosen"]]
        saved = layouts["today"]["totalCostBytes"] - chosen["totalCostBytes"]
        assert item["netSavingBytes"] == saved
        assert item["rewriteBytes"] == chosen["rewrite"]["firstBytes"]
    again = json.loads(cli("recommend", "rec.shop.sales", "rec.shop.visits", "-o", "json")[1])
    assert [it["table"] for it in again["items"]] == [it["table"] for it in items]


def test_tables_of_one_policy_share_its_budget(cli, once, tmp_path):
    """Half of both rewrites fits one of them; a second policy has a budget of its own."""
    ranked = once("recommend", "rec.shop.visits", "rec.shop.sales")
    sizes = {item["table"]: item["rewriteBytes"] for item in ranked["items"]}
    most = max(sizes.values()) + min(sizes.values()) // 2
    (tmp_path / "layouts").mkdir()
    _policy(tmp_path / "layouts" / "both.yaml", ("shop.sales", "shop.visits"), str(most))
    code, out, err = cli("recommend", "-f", "layouts", "-o", "json")
    assert code == 0, err
    first, second = json.loads(out)["items"]
    assert (first["fits"], second["fits"]) == (True, False) and second["waits"]
    (budget,) = json.loads(out)["budgets"]
    assert budget["plannedBytes"] == first["rewriteBytes"] <= budget["leftBytes"] == most
    names = [item["table"].removeprefix("rec.") for item in (first, second)]
    for name, file in zip(names, ("both.yaml", "second.yaml"), strict=True):
        _policy(tmp_path / "layouts" / file, (name,), str(most))
    both = json.loads(cli("recommend", "-f", "layouts", "-o", "json")[1])
    assert [item["fits"] for item in both["items"]] == [True, True]


def test_a_table_without_a_recommendation_does_not_hide_the_others(cli, said: Said):
    words = ("recommend", "rec.shop.sales", "rec.shop.quiet", "rec.shop.empty")
    code, out, err = cli(*words, "-o", "json")
    body = json.loads(out)
    jsonschema.validate(body, RECOMMENDATIONS_SCHEMA)
    assert code == 1 and err == ""
    assert [item["table"] for item in body["items"]] == ["rec.shop.sales"]
    assert [item["table"] for item in body["errors"]] == ["rec.shop.empty", "rec.shop.quiet"]
    code, out, err = cli(*words)
    assert code == 1 and "NOT RECOMMENDED" in out
    said(err)


@pytest.mark.parametrize(
    "arguments",
    [
        ("rec.shop.sales", "rec.shop.visits", "--out", "both.yaml"),
        ("rec.shop.sales", "rec.shop.visits", "--from-cluster"),
        ("--from-cluster",),
        ("rec.shop.sales", "rec.shop.sales"),
        ("rec.shop.sales", "--select", "shop.*"),
        ("rec.shop.sales", "rec.shop.visits", "--method", "guess"),
        (),
    ],
)
def test_what_several_tables_do_not_allow_is_one_message(cli, arguments, said: Said, tmp_path):
    code, out, err = cli("recommend", *arguments)
    assert (code, out) == (1, "") and err.count("error:") == 1
    assert not (tmp_path / "both.yaml").exists()
    said(err)


def test_the_page_has_plots_and_what_each_query_reads(cli, tmp_path):
    page = tmp_path / "page.html"
    code, out, _ = cli("recommend", "rec.shop.sales", "--html", str(page), "-o", "json")
    body = json.loads(out)
    text = page.read_text()
    assert code == 0 and text.count("<svg") == 2 and body["shapes"][0]["text"] in text
    front = [(point["rewriteBytes"], point["readingCostBytes"]) for point in body["front"]]
    assert front == sorted(front) and sorted(y for _, y in front)[::-1] == [y for _, y in front]
    assert body["front"][0]["what"] == "today"
    assert cli("recommend", "rec.shop.sales", "--html", str(tmp_path / "no" / "page.html"))[0] == 1


CATALOG_OBJECT = {
    "apiVersion": "layout.lakehouse.dev/v1alpha1",
    "kind": "IcebergCatalog",
    "metadata": {"name": "lake", "namespace": "default"},
    "spec": {"type": "sql", "catalogName": "rec", "properties": {"uri": "sqlite://"}},
}


def test_a_stored_recommendation_is_read_if_it_is_one_of_this_version(once, tmp_path, said):
    body = once("recommend", "rec.shop.sales")
    plans = f"file://{tmp_path}/plans"
    catalog = {**CATALOG_OBJECT["spec"], "system": {"plans": {"uri": plans}}}
    place: Any = SimpleNamespace(catalogs=[{**CATALOG_OBJECT, "spec": catalog}])
    store = PlanStore(resolve_catalog("rec", []), plans)

    def read(document: dict[str, Any], name: str) -> dict[str, Any]:
        uri, digest = store.put_recommendation("u-1", name, document)
        known = {"id": name, "uri": uri, "digest": digest}
        layout = {"status": {"recommendation": known}}
        return whole(Found(place, layout, "rec.shop.sales", "lake"), 10.0)

    assert read(body, "r-1") == body
    with pytest.raises(UserError) as refused:
        read({key: value for key, value in body.items() if key != "layouts"}, "r-2")
    said(refused.value.details[0])
