"""`top` and `report` of many tables: what is listed, in which order, and what an error costs."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import yaml

from reconciler.catalog import load
from reconciler.cli import fleet
from reconciler.errors import EXIT_BLOCKED, EXIT_USER
from reconciler.queries.fragments import Fragment
from reconciler.queries.predicate import TRUE, Comparison, Ref
from reconciler.state.shared_state import SharedStore
from reconciler.state.state import StateStore
from reconciler.state.state_tables import StateTables
from tests.cli.in_process import Cli, isolate, runner
from tests.conftest import sqlite_catalog
from tests.render.test_fleet_html import Page, names
from tests.said import Said
from tests.state.test_shared_state import new_catalog

APPENDS = {"sales.many": 9, "sales.one": 1, "web.some": 6, "web.deep.few": 5}


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    """Four tables in three namespaces, of 1 to 9 files."""
    from reconciler.catalog.load import connect

    made = connect(new_catalog(tmp_path))
    for name in ("sales", "web", "web.deep"):  # the last is nested
        made.create_namespace(name)
    for name, appends in APPENDS.items():
        table = made.create_table(name, pa.schema([("id", pa.int64())]))
        for number in range(appends):
            table.append(pa.table({"id": range(number * 10, number * 10 + 10)}))
    return made


@pytest.fixture
def cli(tmp_path: Path, catalog: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Cli:
    isolate(monkeypatch, tmp_path, tmp_path / "nowhere", tmp_path / "state", tmp_path / "cache")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for key, value in catalog.properties.items():
        if key in ("uri", "warehouse"):
            monkeypatch.setenv(f"PYICEBERG_CATALOG__{catalog.name.upper()}__{key.upper()}", value)
    return runner(monkeypatch, capsys)


def ranked(cli: Cli, *arguments: str) -> list[dict[str, Any]]:
    code, out, err = cli("top", "-o", "json", *arguments)
    assert code == 0, err
    return list(json.loads(out)["items"])


def test_the_table_with_most_small_files_is_first(cli: Cli, catalog: Any) -> None:
    items = ranked(cli)
    rec = catalog.name
    assert [one["table"] for one in items] == [
        f"{rec}.sales.many", f"{rec}.web.some", f"{rec}.web.deep.few",
    ]  # fmt: skip
    assert [one["surplusFiles"] for one in items] == [8, 5, 4]
    assert all(one["queriesPerDay"] is None for one in items)
    for one in items:
        assert one["wastedBytesPerDay"] == round(
            one["wastedReadBytesPerDay"] + one["openBytes"] * one["wastedOpeningsPerDay"]
        )


def test_a_namespace_and_a_number_narrow_the_ranking(cli: Cli, catalog: Any) -> None:
    code, out, _ = cli("top", "web", "-o", "json", "-n", "1")
    body = json.loads(out)
    assert (code, body["kind"], body["tables"]) == (0, "FleetRanking", 2)
    assert [one["table"] for one in body["items"]] == [f"{catalog.name}.web.some"]
    assert [one["table"] for one in ranked(cli, "--exclude", "web.**")] == [
        f"{catalog.name}.sales.many"
    ]


def test_a_table_that_wastes_nothing_is_counted_and_not_ranked(cli: Cli, said: Said) -> None:
    alone = ("top", "--exclude", "**.many", "sales")
    for arguments in (("top", "sales"), alone):
        code, out, _ = cli(*arguments)
        assert code == 0
        said(out)
    assert cli(*alone, "-o", "name")[1] == ""
    body = json.loads(cli(*alone, "-o", "json")[1])
    assert (body["tables"], body["tablesWithoutWaste"], body["items"]) == (1, 1, [])


def test_recorded_queries_weigh_more_than_the_assumed_read(
    cli: Cli, catalog: Any, tmp_path: Path
) -> None:
    uuid = str(catalog.load_table("web.deep.few").metadata.table_uuid)
    fragments = [
        Fragment("log", n, uuid, TRUE, (), (), (1,), 10.0, 1_795_000_000_000 + n, "x")
        for n in range(3)
    ]
    StateStore(tmp_path / "state").append_fragments(fragments)
    first = ranked(cli)[0]
    assert (first["table"], first["queriesPerDay"]) == (f"{catalog.name}.web.deep.few", 30.0)
    assert first["wastedOpeningsPerDay"] == 30 * first["surplusFiles"]


def test_a_table_of_two_names_has_its_queries_under_both(
    cli: Cli, catalog: Any, tmp_path: Path
) -> None:
    table = catalog.load_table("web.some")
    catalog.register_table("web.again", table.metadata_location)
    query = Fragment("log", 1, str(table.metadata.table_uuid), TRUE, (), (), (1,), 10.0,
                     1_795_000_000_000, "x")  # fmt: skip
    StateStore(tmp_path / "state").append_fragments([query])
    found = {one["table"]: one["queriesPerDay"] for one in ranked(cli, "web")}
    assert found == {
        f"{catalog.name}.web.some": 10.0, f"{catalog.name}.web.again": 10.0,
        f"{catalog.name}.web.deep.few": None,
    }  # fmt: skip


def test_the_queries_of_all_tables_are_read_at_once_and_namespaces_are_listed_once(
    cli: Cli, catalog: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuids = [str(catalog.load_table(name).metadata.table_uuid) for name in APPENDS]
    StateStore(tmp_path / "state").append_fragments(
        Fragment("log", n, uuid, TRUE, (), (), (1,), 1.0, 1_795_000_000_000, "x")
        for n, uuid in enumerate(uuids)
    )
    scanned, walked = [], []
    scan, walk = StateTables.scan, load.list_namespaces
    monkeypatch.setattr(
        StateTables,
        "scan",
        lambda self, name, *rest: scanned.append(name) or scan(self, name, *rest),
    )
    monkeypatch.setattr(
        load, "list_namespaces", lambda *given: walked.append(given[0]) or walk(*given)
    )
    assert [one["queriesPerDay"] for one in ranked(cli)] == [1.0] * 3
    assert scanned.count("queries") == 2  # who has queries, and the queries
    assert cli("observe")[0] == 0
    assert cli("report", "web", "--out", str(tmp_path / "r.html"))[0] == 0
    assert cli("observe", "web.deep")[0] == 0
    assert len(walked) == 4  # once a command


def test_a_batch_ends_by_its_tables_or_by_their_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "BATCH_TABLES", 3)
    monkeypatch.setattr(fleet, "BATCH_FILES", 10)
    looks: list[Any] = [SimpleNamespace(files=range(n)) for n in (1, 2, 3, 4, 6, 30, 5)]
    batches = [[len(one.files) for one in batch] for batch in fleet._batches(looks)]
    assert batches == [[1, 2, 3], [4, 6], [30], [5]]


def test_the_report_of_a_table_reads_the_shared_state_that_is_asked_for(
    cli: Cli, catalog: Any, tmp_path: Path
) -> None:
    uuid = str(catalog.load_table("sales.many").metadata.table_uuid)
    config = sqlite_catalog(tmp_path)
    query = Fragment("log", 1, uuid, TRUE, (), (), (1,), 10.0, 1_795_000_000_000, "x")
    SharedStore(config).append_fragments([query])
    path = tmp_path / "page.html"
    for options, known in (((), False), (("--shared",), True)):
        code, _, err = cli("report", "sales.many", "--out", str(path), *options)
        assert code == 0, err
        assert ("none imported" not in path.read_text()) is known


def test_names_alone_can_be_piped(cli: Cli, catalog: Any) -> None:
    code, out, _ = cli("top", "-o", "name", "-n", "2")
    assert (code, out.split()) == (0, [f"{catalog.name}.sales.many", f"{catalog.name}.web.some"])


def test_a_table_that_cannot_be_read_hides_no_other(cli: Cli, catalog: Any, tmp_path: Path) -> None:
    lost = catalog.load_table("sales.one").metadata_location
    Path(lost.removeprefix("file://")).unlink()
    code, out, err = cli("top", "-o", "json")
    body = json.loads(out)
    assert code != 0 and "sales" in err
    assert (body["tables"], len(body["items"])) == (3, 3)
    assert [one["table"] for one in body["errors"]] == [f"{catalog.name}.sales.one"]
    code, _, _ = cli("report", "--all", "--out", str(tmp_path / "r.html"))
    assert code != 0
    text = (tmp_path / "r.html").read_text()
    assert len(names(Page(text))) == 3 and "sales.one" in text


def test_a_report_of_a_catalog_or_namespace_lists_its_tables(
    cli: Cli, catalog: Any, tmp_path: Path
) -> None:
    for target, number in (("--all", 4), ("web", 2), (f"{catalog.name}.sales", 2)):
        path = tmp_path / "page.html"
        code, out, _ = cli("report", target, "--out", str(path))
        assert (code, out.strip()) == (0, str(path))
        assert len(names(Page(path.read_text()))) == number


def test_a_frozen_plan_waits_in_the_report_until_it_is_approved(
    cli: Cli, catalog: Any, tmp_path: Path
) -> None:
    name = f"{catalog.name}.sales.many"
    path = tmp_path / "page.html"
    assert cli("plan", name, "--out", str(tmp_path / "plan.json"))[0] == 0
    plan_id = json.loads((tmp_path / "plan.json").read_text())["planId"]
    cli("report", "--all", "--out", str(path))
    assert [row[:2] for row in Page(path.read_text()).tables[1][1:]] == [[name, plan_id]]
    assert cli("apply", str(tmp_path / "plan.json"), "--yes")[0] == 0
    cli("report", "--all", "--out", str(path))
    page = Page(path.read_text())
    ranking, trend = page.tables[0], page.tables[-1]
    assert len(page.tables) == 2  # nothing waits, nothing is slower
    assert [row[1] for row in trend[1:]] == ["1"]
    spent = {row[0]: row[-2] for row in ranking[1:]}
    assert spent.pop(name) != "-" and set(spent.values()) == {"-"}


def test_a_report_needs_one_target(cli: Cli) -> None:
    for arguments in ((), ("sales", "--all")):
        assert cli("report", *arguments)[0] == EXIT_USER


def test_a_namespace_that_is_not_there_is_an_error_with_its_neighbours(cli: Cli) -> None:
    code, _, err = cli("top", "sale")
    assert code == EXIT_USER and "sales" in err


@pytest.fixture
def priced(catalog: Any, tmp_path: Path) -> str:
    """The catalog's document, with prices."""
    path = tmp_path / "catalog.yaml"
    spec = {
        "type": "sql",
        "catalogName": catalog.name,
        "properties": {key: catalog.properties[key] for key in ("uri", "warehouse")},
        "prices": {"currency": "EUR", "cpuHour": "36", "tibRead": "5", "requests1000": "2"},
    }
    head = {"apiVersion": "layout.lakehouse.dev/v1alpha1", "kind": "IcebergCatalog"}
    path.write_text(yaml.safe_dump({**head, "metadata": {"name": "c"}, "spec": spec}))
    return str(path)


def test_with_prices_every_verb_says_money_and_without_none(
    cli: Cli, catalog: Any, priced: str, tmp_path: Path
) -> None:
    name, files = f"{catalog.name}.sales.many", ("-f", priced)
    first = ranked(cli, *files)[0]
    assert first["wastedMoneyPerDay"] == pytest.approx(8 / 1000 * 2)  # eight openings a day
    plan = json.loads(cli("plan", name, *files, "-o", "json")[1])
    work = plan["actions"][0]["predicted"]
    expected = (
        36 * work["cpuMillis"] / 3.6e6 + 5 * work["bytesIn"] / 2**40
        + 2 * (work["filesIn"] + work["filesOut"]) / 1000
    )  # fmt: skip
    assert plan["money"]["cost"] == pytest.approx(expected, abs=1e-6)
    assert " EUR" in cli("plan", name, *files)[1]
    assert " EUR" in cli("plan", name, *files, "-o", "markdown")[1]
    (step,) = json.loads(cli("apply", name, *files, "--yes", "-o", "json")[1])["steps"]
    assert step["money"]["actual"] == pytest.approx(
        36 * step["cpuSeconds"] / 3600 + 5 * step["rewrittenBytes"] / 2**40, abs=1e-4
    )
    (item,) = json.loads(cli("history", name, *files, "-o", "json")[1])["items"]
    used = 36 * sum(one["cpuSeconds"] for one in item["actions"]) / 3600
    assert item["money"]["spent"] == pytest.approx(
        used + 5 * item["rewrittenBytes"] / 2**40, abs=1e-6
    )
    assert item["money"]["saved"] is None
    for verb in (("history", name), ("top",)):
        assert " EUR" in cli(*verb, *files)[1] and "EUR" not in cli(*verb)[1]
    plain = json.loads(cli("history", name, "-o", "json")[1])["items"]
    assert "money" not in plain[0]
    for arguments in (("--all", *files), ("--all",)):
        cli("report", *arguments, "--out", str(tmp_path / "r.html"))
        assert ("EUR" in (tmp_path / "r.html").read_text()) is ("-f" in arguments)
    for given in (files, ()):  # the page of a table whose rewrite was carried out above
        assert cli("report", name, *given, "--out", str(tmp_path / "t.html"))[0] == 0
        assert (" EUR" in (tmp_path / "t.html").read_text()) is bool(given)


def documents(priced: str, directory: Path, *, prices: bool) -> str:
    """Return a directory with the catalog's document, with its prices or without, and a policy for
    all tables of `sales`."""
    body = yaml.safe_load(Path(priced).read_text())
    if not prices:
        del body["spec"]["prices"]
    policy = {
        "apiVersion": body["apiVersion"],
        "kind": "TableLayoutPolicy",
        "metadata": {"name": "p"},
        "spec": {"catalogRef": {"name": "c"}, "tables": {"include": ["sales.*"]}},
    }
    directory.mkdir()
    (directory / "all.yaml").write_text(yaml.safe_dump_all([body, policy]))
    return str(directory)


NUMBERS = {
    "cost", "saves", "spent", "readAhead", "rewrite", "storedMoneyPerMonth", "reading",
    "readingAfter",
}  # fmt: skip


def amounts(body: Any) -> set[str]:
    """Return the names of the amounts beside a currency anywhere in a document."""
    if isinstance(body, list):
        return {name for item in body for name in amounts(item)}
    if not isinstance(body, dict):
        return set()
    own = {k for k, v in body.items() if isinstance(v, (int, float)) and k in NUMBERS}
    inner = {name for value in body.values() for name in amounts(value)}
    return inner | (own if "currency" in body else set())


@pytest.mark.parametrize(
    ("verb", "formats", "in_json"),
    [
        (("observe",), ("table", "markdown"), {"storedMoneyPerMonth"}),
        (("status", "sales.many"), ("table", "wide"), {"cost", "saves", "spent"}),
        (("plan",), ("table",), {"cost", "saves"}),
        (("explain", "sales.many"), ("table",), {"cost", "saves"}),
        (("explain", "sales.many", "--query", "SELECT * FROM sales.many WHERE id = 7"),
         ("table",), {"cost", "saves", "reading", "readingAfter"}),
        (("recommend", "sales.many", "--method", "expert"), ("table", "markdown"),
         {"readAhead", "rewrite"}),
        (("recommend", "sales.many", "web.some", "--method", "expert"), (),
         {"readAhead", "rewrite"}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_each_verb_has_money_beside_bytes_in_each_format(
    verb: tuple[str, ...], formats: tuple[str, ...], in_json: set[str],
    cli: Cli, catalog: Any, priced: str, tmp_path: Path,
) -> None:  # fmt: skip
    uuids = [
        str(catalog.load_table(name).metadata.table_uuid) for name in ("sales.many", "web.some")
    ]
    on_id, everything = (Comparison(Ref(1), "=", 0), (7,), (None,)), (TRUE, (), ())
    StateStore(tmp_path / "state").append_fragments(
        Fragment("log", n, uuid, *(on_id if n % 2 else everything), (1,), 1.0,
                 1_795_000_000_000 + n, "x")
        for uuid in uuids for n in range(30)
    )  # fmt: skip
    for prices in (True, False):
        files = ("-f", documents(priced, tmp_path / f"docs{prices}", prices=prices))
        for form in formats:
            code, out, err = cli(*verb, *files, "-o", form)
            assert code == 0, err
            assert (" EUR" in out) is prices, out
        out = cli(*verb, *files, "-o", "json")[1]
        assert amounts(json.loads(out)) == (in_json if prices else set())
        assert ("currency" in out) is prices


def test_whoever_is_asked_at_the_prompt_sees_the_cost(
    cli: Cli, priced: str, catalog: Any, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """Whoever does not say yes is told that it was their own answer."""
    monkeypatch.setattr("sys.stdin", Typed("no\n"))
    for files, says in ((("-f", priced), True), ((), False)):
        code, out, err = cli("apply", f"{catalog.name}.sales.many", *files)
        assert (" EUR" in err) is says
        assert code == EXIT_BLOCKED
        said(out.splitlines()[0])


class Typed(io.StringIO):
    """A terminal at which somebody types."""

    def isatty(self) -> bool:
        return True
