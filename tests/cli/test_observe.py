"""What `observe` and `catalogs` print: golden text, invariants, exit codes, no values, no secrets.

Golden files are rewritten by: make golden
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from reconciler.api.prices import Prices
from reconciler.cli.main import build
from reconciler.errors import EXIT_USER, ReconcilerError
from reconciler.queries.fragments import Fragment
from reconciler.queries.predicate import Comparison, Ref
from reconciler.render import observe_document, observe_text
from reconciler.table.metadata import TableMetadata
from reconciler.table.observation import DeleteLoad, Observation
from tests.cli import observations
from tests.cli.golden import golden
from tests.cli.observations import NOW_MS
from tests.said import Said

NONE = observe_text.WorkloadSummary()
SOME = observe_text.WorkloadSummary(
    1204, "2026-11-20T00:00:00Z", (("l_shipdate", 0.74), ("l_orderkey", 0.2)), 40.0
)


CASES: dict[str, tuple[Callable[[], Observation], Any, bool]] = {
    "observe-lineitem": (observations.lineitem, NONE, False),
    "observe-lineitem-queries": (observations.lineitem, SOME, False),
    "observe-many-columns": (observations.many_columns, NONE, False),
    "observe-wide": (observations.many_columns, NONE, True),
    "observe-empty": (observations.empty, NONE, False),
    "observe-deletes": (observations.with_deletes, SOME, False),
    "observe-vectors": (lambda: observations.with_deletes(3), NONE, False),
    "observe-damaged": (observations.with_two_vectors, NONE, False),
}


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("case", list(CASES))
def test_a_table_prints_as_agreed_and_within_its_width(case: str, width: int) -> None:
    make, workload, wide = CASES[case]
    text = observe_text.render_table(make(), NOW_MS, workload, width=width, wide=wide)
    golden(f"{case}-{width}", text)
    free = re.compile(
        r"^(location|metadata) |BOUNDS$|not judged|  next: |        layoutctl|^  payload|CLUSTERING"
    )
    long = [line for line in text.splitlines() if len(line) > width and not free.search(line)]
    assert long == []


def test_the_document_of_a_table_with_deletes_counts_by_the_readers_rule() -> None:
    """40 files of 10,000 rows, and 2 x 1,200 + 2 x 3,000 positions, 700 + 25 keys that apply."""
    document = observe_document.document(observations.with_deletes(), SOME)
    specs, deletes, operations = (
        document[key] for key in ("partitionSpecs", "deletes", "operations")
    )
    assert [(one["partitioning"], one["dataFiles"], one["writersFollow"]) for one in specs] == [
        ("unpartitioned", 8, False), ("day(ingested_at)", 32, True),
    ]  # fmt: skip
    assert sum(one["bytes"] for one in specs) == document["bytes"]
    assert deletes["liveRows"] == {
        "atLeast": 391_600 - 110_000,
        "estimate": 391_600 - 725,
        "atMost": 400_000,
    }
    assert deletes["deletedRows"] == {
        "atLeast": 0,  # no positions were read
        "estimate": 8_400 + 725,
        "atMost": 8_400 + 110_000,
    }
    assert (deletes["positionFiles"], deletes["positionRows"], deletes["dangling"]) == (6, 8_400, 3)
    assert (deletes["equalityFiles"], deletes["dataFilesUnderEqualityDeletes"]) == (3, 8 + 3)
    assert deletes["dataFilesWithDeletes"] == 2 + 8 + 8 + 3 and deletes["damage"] == ""
    assert (operations["count"], operations["readsBetween"]) == (17, round(40 * 12 / 17, 2))
    upsert, merge, copied, delete = operations["kinds"]
    assert (upsert["engine"], upsert["rowsAreAtMost"], upsert["perDay"]) == ("flink", True, 1.0)
    assert (merge["rows"], merge["dataFiles"], merge["partitions"]) == (2_000, 3, 2)
    assert (copied["rows"], copied["dataFiles"], copied["engine"]) == (10, 1, None)
    assert (delete["rows"], delete["dataFiles"], delete["engine"]) == (None, None, None)


def test_two_vectors_of_a_data_file_are_damage_with_the_snapshot_before_it() -> None:
    seen = observations.with_two_vectors()
    found = observe_document.document(seen, NONE)["deletes"]
    assert found["dataFilesWithTwoVectors"] == [seen.files.path[10]]
    before = [item.snapshot_id for item in seen.ancestry if item.sequence_number < 51]
    assert str(before[0]) in found["damage"]


def test_shares_and_files_of_the_size_bins_add_up() -> None:
    seen = observations.lineitem()
    lines = observe_text.render_table(seen, NOW_MS, NONE).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("FILE SIZE"))
    files = [int(re.search(r"B +([\d,]+) ", line)[1].replace(",", ""))  # type: ignore[index]
             for line in lines[start + 1 : start + 5]]  # fmt: skip
    assert sum(files) == len(seen.files)


def test_deletes_that_outlive_all_rows_are_counted_without_a_share(said: Said) -> None:
    seen = replace(
        observations.empty(), deletes=DeleteLoad(position_files=2, position_rows=9_000, bytes=1)
    )
    said(observe_text.render_table(seen, NOW_MS, NONE))


@pytest.mark.parametrize(("size", "from_property"), [("1048576", True), ("64MB", False)])
def test_a_target_that_cannot_be_used_is_not_the_tables(size: str, from_property: bool) -> None:
    properties = {"write.target-file-size-bytes": size}
    seen = replace(observations.lineitem(), metadata=TableMetadata(properties))
    text = observe_text.render_table(seen, NOW_MS, NONE)
    assert ("(table property)" in text) is from_property


def three() -> list[observe_text.TableSummary]:
    return [
        observe_text.summarise(replace(make(), identifier=("sales", name)))
        for name, make in (
            ("empty", observations.empty),
            ("events", observations.many_columns),
            ("lineitem", observations.lineitem),
        )
    ]


def test_the_price_of_stored_bytes_is_that_of_a_month_wherever_it_stands() -> None:
    prices, tables = Prices("EUR", gib_month=Decimal("0.02")), three()
    text = observe_text.render_tables(tables, "x", width=120, prices=prices)
    golden("observe-tables-priced-120", text)
    page = observe_text.markdown_tables(tables, prices)
    for size in (tables[1].bytes, tables[2].bytes):
        assert observe_text.stored_text(size, prices) in text
        assert observe_text.stored_text(size, prices) in page
    assert observe_text.stored_text(sum(table.bytes for table in tables), prices) in text
    golden("observe-tables-priced-markdown", page)


def test_many_tables_are_ordered_worst_first() -> None:
    tables = three()
    for width in (80, 100):
        golden(f"observe-tables-{width}", observe_text.render_tables(tables, "x", width=width))
    assert [table.name for table in observe_text.worst_first(tables)] == [
        "warehouse.sales.lineitem", "warehouse.sales.events", "warehouse.sales.empty",
    ]  # fmt: skip
    assert "rec.a" in observe_text.render_tables([], "namespace rec.a")


@pytest.mark.parametrize(
    ("share", "size", "text"),
    [(0.0, 10, ""), (0.0001, 10, "▏"), (0.5, 4, "██"), (1.0, 3, "███"), (0.26, 10, "██▋")],
)
def test_bars_show_anything_above_zero(share: float, size: int, text: str) -> None:
    assert observe_text.bar(share, size) == text


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs a command line against a small embedded catalog; returns stdout."""
    from pyiceberg.catalog.sql import SqlCatalog
    from typer.testing import CliRunner

    for name in list(os.environ):
        if name.startswith(("PYICEBERG_", "LAYOUTCTL_", "SPARK_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LAYOUTCTL_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LAYOUTCTL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYICEBERG_CATALOG__REC__URI", f"sqlite:///{tmp_path}/c.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__REC__S3__SECRET_ACCESS_KEY", "hush-hush-secret")
    monkeypatch.chdir(tmp_path)
    catalog = SqlCatalog("rec", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/wh")
    catalog.create_namespace("sales")
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    for name, appends in (("good", 1), ("bad", 8)):
        table = catalog.create_table(f"sales.{name}", schema)
        for number in range(appends):
            table.append(pa.table({"id": [number, 99], "name": ["secret-value", "z"]}, schema))

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(build(), list(arguments), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


def test_a_table_is_found_with_and_without_its_catalog(cli: Callable[..., str]) -> None:
    for name in ("rec.sales.bad", "sales.bad"):
        text = cli("observe", name)
        assert text.split()[:2] == ["rec.sales.bad", "v2"]
        assert "8 data files" in text and "secret-value" not in text
    assert "rec.sales.bad" in cli("observe", "bad".join(("sales.", "")), "--catalog", "rec")


def test_a_namespace_or_a_catalog_lists_its_tables_worst_first(cli: Callable[..., str]) -> None:
    for arguments in (
        ("observe",),
        ("observe", "sales"),
        ("observe", "rec.sales"),
        ("observe", "rec"),
    ):
        lines = cli(*arguments).splitlines()
        assert lines[1].startswith("rec.sales.bad") and lines[2].startswith("rec.sales.good")
    assert cli("observe", "--exclude", "sales.b*", "-o", "name") == "rec.sales.good\n"
    assert cli("observe", "--select", "sales.b*", "-o", "name") == "rec.sales.bad\n"


def test_documents_have_raw_numbers_and_no_values(cli: Callable[..., str]) -> None:
    body = json.loads(cli("observe", "sales.bad", "-o", "json"))
    assert (body["apiVersion"], body["kind"]) == (
        "layout.lakehouse.dev/v1alpha1",
        "TableObservation",
    )
    assert body["dataFiles"] == 8 and isinstance(body["bytes"], int)
    assert {line["column"] for line in body["clustering"]} == {"id", "name"}
    assert yaml.safe_load(cli("observe", "sales.bad", "-o", "yaml"))["uuid"] == body["uuid"]
    listed = json.loads(cli("observe", "-o", "json"))
    assert listed["kind"] == "TableObservationList"
    assert [item["name"] for item in listed["items"]] == ["rec.sales.bad", "rec.sales.good"]
    for output in ("json", "markdown", "wide"):
        assert "secret" not in cli("observe", "sales.bad", "-o", output)
        assert cli("observe", "-o", output)


def test_imported_queries_replace_what_is_not_known(
    cli: Callable[..., str], tmp_path: Path, said: Said
) -> None:
    from reconciler.state.state import StateStore

    before = cli("observe", "sales.bad").splitlines()
    uuid = json.loads(cli("observe", "sales.bad", "-o", "json"))["uuid"]
    fragment = Fragment(
        "log", 1, uuid, Comparison(Ref(1), "=", 0), (7,), (None,), (1,), 3.0, 1_700_000_000_000, "x"
    )
    StateStore(tmp_path / "state").append_fragments([fragment])
    after = cli("observe", "sales.bad").splitlines()
    said("\n".join(line for line in before[:-1] if line not in after))
    said("\n".join(line for line in after[:-1] if line not in before))


def test_one_unreadable_table_does_not_hide_the_others(
    cli: Callable[..., str], tmp_path: Path
) -> None:
    from typer.testing import CliRunner

    for path in (tmp_path / "wh" / "sales" / "bad" / "metadata").glob("snap-*.avro"):
        path.unlink()
    result = CliRunner().invoke(build(), ["observe"])
    assert result.exit_code == EXIT_USER
    assert "rec.sales.good" in result.stdout
    assert "manifest list" in result.stderr and "Traceback" not in result.output


@pytest.mark.parametrize("name", ["sales.missing", "nowhere", "other.sales.bad"])
def test_a_wrong_name_is_one_error(cli: Callable[..., str], name: str) -> None:
    with pytest.raises(ReconcilerError) as raised:
        cli("observe", name)
    assert raised.value.exit_code == EXIT_USER and raised.value.do


def test_catalogs_are_listed_without_secrets(cli: Callable[..., str]) -> None:
    text = cli("catalogs")
    (row,) = (line for line in text.splitlines() if line.startswith("rec "))
    name, kind, source, uri = re.split("  +", row)[:4]
    assert (name, kind) == ("rec", "sql")
    assert "PYICEBERG_CATALOG__*" in source and uri.startswith("sqlite:///")
    assert "2 in 1 namespace\n" in cli("catalogs", "-o", "wide")
    for output in ("table", "wide", "json", "yaml", "markdown", "name"):
        printed = cli("catalogs", "-o", output)
        assert "rec" in printed and "hush" not in printed


def test_reading_verbs_leave_the_catalog_untouched(cli: Callable[..., str], tmp_path: Path) -> None:
    before = (tmp_path / "c.db").read_bytes()
    files = sorted((tmp_path / "wh").rglob("*"))
    cli("observe")
    cli("observe", "sales.bad")
    assert (tmp_path / "c.db").read_bytes() == before
    assert sorted((tmp_path / "wh").rglob("*")) == files
