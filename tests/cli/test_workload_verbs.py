"""`workload import` and `workload show`, as a user runs them, on a table that pyiceberg made."""

from __future__ import annotations

import datetime as dt
import json
import re
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from pyiceberg.catalog.sql import SqlCatalog
from typer.testing import CliRunner

from reconciler.cli import workload
from reconciler.errors import UserError
from tests.said import Said

DAYS = 20
START = dt.datetime(2026, 2, 1, 9, tzinfo=dt.UTC)


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """A catalog "rec" with db.q, made known through the environment; state below tmp_path."""
    uri = f"sqlite:///{tmp_path}/c.db"
    monkeypatch.setenv("PYICEBERG_CATALOG__REC__URI", uri)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setenv("LAYOUTCTL_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LAYOUTCTL_CACHE", str(tmp_path / "cache"))
    catalog = SqlCatalog("rec", uri=uri, warehouse=f"file://{tmp_path}/wh")
    catalog.create_namespace("db")
    rows = pa.table(
        {"id": list(range(60)), "day": [dt.date(2026, 1, 1) + dt.timedelta(i) for i in range(60)]}
    )
    catalog.create_table("db.q", schema=rows.schema).append(rows)
    made = typer.Typer()
    workload.register(made)
    return made


def log(directory: Path) -> Path:
    path = directory / "log.jsonl"
    with path.open("w") as file:
        for number in range(DAYS):
            at = START + dt.timedelta(days=number)
            low, high = at.date() - dt.timedelta(9), at.date() - dt.timedelta(2)
            for sql in (
                f"SELECT * FROM db.q WHERE id = {number + 1000}",
                "SELECT * FROM db.q WHERE day >= current_date - INTERVAL '7' DAY",
                f"SELECT id FROM db.q WHERE day BETWEEN DATE '{low}' AND DATE '{high}'",
                "SELECT id FROM db.q WHERE id = ?",
                "SHOW TABLES",
            ):
                file.write(json.dumps({"sql": sql, "timestamp": at.isoformat()}) + "\n")
    return path


def run(app: typer.Typer, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["workload", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_import_counts_and_names_the_next_command(app: typer.Typer, tmp_path: Path) -> None:
    text = run(app, "import", "--dialect", "trino", str(log(tmp_path)))
    assert "rec.db.q" in text and "not a query" in text
    assert "show rec.db.q" in text
    again = json.loads(run(app, "import", "--dialect", "trino", str(log(tmp_path)), "-o", "json"))
    assert again["files"][0]["read"] == 0 and again["files"][0]["earlier"] == 5 * DAYS


def test_skipped_lines_are_numbered_and_their_text_is_kept_out(
    app: typer.Typer, tmp_path: Path, said: Said
) -> None:
    path = tmp_path / "log.jsonl"
    good = {"sql": "SELECT * FROM db.q WHERE id = 7", "timestamp": START.isoformat(), "weight": 4}
    bad = ['{"sql": "sEcReT', json.dumps(good), *["nonsense sEcReT"] * 7, json.dumps({"sql": "x"})]
    path.write_text("\n".join(bad) + "\n")
    text = run(app, "import", str(path))
    tables, skipped = (text[text.index(head) :] for head in ("TABLE", "SKIPPED\n"))
    assert re.findall(r"(\d+)  lines? ([\d, ]+)$", skipped, re.M) == [
        ("8", "1, 3, 4, 5, 6"), ("1", "10"),
    ]  # fmt: skip
    assert "sEcReT" not in text
    said(tables)
    said(run(app, "show", "rec.db.q").splitlines()[0])


def test_an_empty_log_and_a_directory_without_a_log_are_different_errors(
    app: typer.Typer, tmp_path: Path, said: Said
) -> None:
    (tmp_path / "empty.jsonl").touch()
    said(run(app, "import", str(tmp_path / "empty.jsonl")).partition("\n\n")[2])
    (tmp_path / "void").mkdir()
    with pytest.raises(UserError) as refused:
        run(app, "import", str(tmp_path / "void"))
    said(refused.value)


def test_show_lists_shapes_without_a_single_literal(app: typer.Typer, tmp_path: Path) -> None:
    run(app, "import", "--dialect", "trino", str(log(tmp_path)))
    text = run(app, "show", "rec.db.q")
    assert "id = ?" in text and "(values unknown)" in text
    assert text.count("(moving)") == 2
    assert "modelled" in text
    assert "1019" not in text and "2026-01" not in text
    assert max(len(line) for line in text.splitlines()) <= 100
    shown = run(app, "show", "rec.db.q", "--show-literals")
    assert "id = 1019" in shown


def test_show_as_json_has_the_numbers(app: typer.Typer, tmp_path: Path) -> None:
    run(app, "import", "--dialect", "trino", str(log(tmp_path)))
    body = json.loads(run(app, "show", "-o", "json"))
    (item,) = body["items"]
    assert body["kind"] == "WorkloadList" and body["skipped"] == {"not a query": DAYS}
    assert item["queries"] == 4 * DAYS and len(item["shapes"]) == 4
    assert sum(shape["weight"] for shape in item["shapes"]) == item["queries"]
    assert sum(shape["sharePercent"] for shape in item["shapes"]) == pytest.approx(100)
    assert "1019" not in json.dumps(body)
    moving = {shape["condition"] for shape in item["shapes"] if shape["moving"]}
    assert moving == {"day >= ?", "day BETWEEN ? AND ?"}


def test_a_log_that_names_another_catalog_needs_to_say_so(app: typer.Typer, tmp_path: Path) -> None:
    path = tmp_path / "trino.jsonl"
    line = {"sql": "SELECT * FROM iceberg.db.q", "timestamp": START.isoformat()}
    path.write_text(json.dumps(line) + "\n")
    assert "--log-catalog" in run(app, "import", "--dialect", "trino", str(path))
    path.write_text(json.dumps({**line, "timestamp": "2026-02-02T00:00:00Z"}) + "\n")
    text = run(app, "import", "--dialect", "trino", "--log-catalog", "iceberg", str(path))
    assert "rec.db.q        1" in text


def test_the_users_catalog_is_only_read(app: typer.Typer, tmp_path: Path) -> None:
    def snapshot() -> list[tuple[str, ...]]:
        with sqlite3.connect(f"file:{tmp_path}/c.db?mode=ro", uri=True) as connection:
            return connection.execute("SELECT * FROM iceberg_tables").fetchall()

    before = snapshot()
    (tmp_path / "c.db").chmod(0o444)
    run(app, "import", "--dialect", "trino", str(log(tmp_path)))
    assert snapshot() == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["import", "/nowhere/log"],
        ["import", "--dialect", "trinno", "LOG"],
        ["import", "--timezone", "Mars", "LOG"],
        ["show"],
        ["show", "rec.db.missing"],
    ],
    ids=" ".join,
)
def test_mistakes_are_one_clear_message(
    app: typer.Typer, tmp_path: Path, arguments: list[str], said: Said
) -> None:
    path = str(log(tmp_path))
    with pytest.raises(UserError) as raised:
        CliRunner().invoke(
            app,
            ["workload", *(path if a == "LOG" else a for a in arguments)],
            catch_exceptions=False,
        )
    assert raised.value.do
    said(raised.value.render())
