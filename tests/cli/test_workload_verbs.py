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
    with pytest.raises(UserError) as empty:
        run(app, "import", str(tmp_path / "empty.jsonl"))
    said(empty.value.render())
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
    with pytest.raises(UserError) as refused:
        run(app, "import", "--dialect", "trino", str(path))
    assert refused.value.do is not None and "--log-catalog" in refused.value.do
    text = run(app, "import", "--dialect", "trino", "--log-catalog", "iceberg", str(path))
    assert "rec.db.q        1" in text


def refused(app: typer.Typer, *arguments: str) -> UserError:
    with pytest.raises(UserError) as raised:
        run(app, *arguments)
    return raised.value


def recorded(app: typer.Typer) -> int:
    return int(json.loads(run(app, "show", "-o", "json"))["items"][0]["recorded"])


def test_a_log_in_another_dialect_is_not_kept_and_its_dialect_is_named(
    app: typer.Typer, tmp_path: Path, said: Said
) -> None:
    path = tmp_path / "log.jsonl"
    queries = [f"SELECT [id] FROM db.q WHERE [id] = {n} OPTION (RECOMPILE)" for n in range(30)]
    queries += [f"SELECT id FROM db.q WHERE id = {n}" for n in range(10)]
    at = START.isoformat()
    path.write_text("".join(json.dumps({"sql": q, "timestamp": at}) + "\n" for q in queries))
    error = refused(app, "import", "--dialect", "trino", str(path))
    assert error.exit_code == 1 and "tsql" in error.render()
    said(error.render())
    kept = json.loads(run(app, "import", "--dialect", "tsql", str(path), "-o", "json"))
    assert kept["files"][0]["kept"] == 40 and recorded(app) == 40


def test_a_few_queries_that_do_not_parse_are_counted_with_a_reason(
    app: typer.Typer, tmp_path: Path
) -> None:
    path = tmp_path / "log.jsonl"
    queries = [f"SELECT id FROM db.q WHERE id = {n}" for n in range(10)]
    queries[3:5] = ["SELECT (((secret FROM db.q", "SELECT secret))) FROM db.q"]
    at = START.isoformat()
    path.write_text("".join(json.dumps({"sql": q, "timestamp": at}) + "\n" for q in queries))
    body = json.loads(run(app, "import", str(path), "-o", "json"))
    assert body["fullScans"] == {"not parsable": 2}
    assert body["examples"]["not parsable"].startswith("line 4: ")
    assert "secret" not in json.dumps(body)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n",
        b"sql,timestamp\nSELECT 1,2026-01-01T00:00:00Z\n",
        b"PAR1\x00\x01",
        b"\x00\x01\x02" * 40,
        b'[{"sql": "SELECT 1", "timestamp": 1770000000000}]\n',
        b'{\n  "sql": "SELECT 1",\n  "timestamp": 1770000000000\n}\n',
        b'{"sql": "SELECT 1", "timest\n',
        b"2026-01-01 LOG: statement: SELECT 1\n",
        b'{"query": "SELECT 1", "createTime": "2026-01-01T00:00:00Z", "user": "x"}\n' * 3,
        b'{"event": {"queryText": "SELECT 1"}, "@timestamp": "2026-01-01"}\n',
        b'{"sql": "SELECT 1", "start_time": "2026-01-01T00:00:00Z"}\n',
        b'{"sql": "SELECT 1", "timestamp": "yesterday"}\n',
        b'{"sql": "SELECT id FROM db.elsewhere", "timestamp": 1770000000000}\n',
        b'{"sql": "SHOW TABLES", "timestamp": 1770000000000}\n',
        b'{"sql": "SHOW TABLES", "timestamp": 1770000000000}\n' * 2
        + b'{"sql": "SELECT id FROM db.q", "timestamp": 12}\n',
        b'{"sql": "SELECT id FROM db.q", "timestamp": 1770000000000, "weight": -1}\n',
    ],
)
def test_a_file_that_is_no_log_is_called_what_it_is(
    app: typer.Typer, tmp_path: Path, content: bytes, said: Said
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(content)
    error = refused(app, "import", str(path))
    assert error.exit_code == 1
    said(error.render())


def test_a_useless_log_among_others_is_named_after_they_are_imported(
    app: typer.Typer, tmp_path: Path
) -> None:
    (tmp_path / "no.csv").write_text("a,b\n1,2\n")
    error = refused(
        app, "import", "--dialect", "trino", str(log(tmp_path)), str(tmp_path / "no.csv")
    )
    assert "no.csv" in error.what and recorded(app) == 4 * DAYS


def test_what_was_imported_before_in_another_log_is_a_success(
    app: typer.Typer, tmp_path: Path, said: Said
) -> None:
    path = log(tmp_path)
    run(app, "import", "--dialect", "trino", str(path))
    lines = [line for line in path.read_text().splitlines() if "SHOW" not in line]
    path.write_bytes("\r\n".join(reversed(lines)).encode() + b"\r\n")
    text = run(app, "import", "--dialect", "trino", str(path))
    said(text.partition("\n\n")[2])
    assert recorded(app) == 4 * DAYS


@pytest.mark.parametrize(("zone", "hour"), [("UTC", 9), ("Asia/Tokyo", 0)])
def test_the_zone_of_times_without_one_is_named_and_can_be_chosen(
    app: typer.Typer, tmp_path: Path, zone: str, hour: int
) -> None:
    path = tmp_path / "log.jsonl"
    times = ["2026-02-01 09:00:00", "2026-02-01T09:00:00", f"2026-02-01T{hour:02}:00:00Z"]
    lines = [{"sql": f"SELECT id FROM db.q WHERE id = {n}", "timestamp": at}
             for n, at in enumerate(times)]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    body = json.loads(run(app, "import", "--timezone", zone, str(path), "-o", "json"))
    assert body["timesWithoutZone"] == {"count": 2, "readAs": zone}
    assert body["since"] == body["until"] == f"2026-02-01T{hour:02}:00:00Z"
    path.write_text(json.dumps({"sql": "SELECT id FROM db.q", "timestamp": times[0]}) + "\n")
    text = run(app, "import", "--timezone", zone, str(path))
    assert f"read as {zone} (--timezone)" in text


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
