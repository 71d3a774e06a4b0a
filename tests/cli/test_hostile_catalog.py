"""`observe` and `plan` of a table that names classes, on a server that names them everywhere."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from reconciler.cli.main import build
from tests.class_properties import ALL
from tests.cli.in_process import runner
from tests.hostile_catalog import EVIL, PLACES, HostileCatalog, hostile_code
from tests.said import Said

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostileCatalog]:
    from pyiceberg.catalog.sql import SqlCatalog

    for name in list(os.environ):
        if name.startswith(("PYICEBERG_", "LAYOUTCTL_", "SPARK_")):
            monkeypatch.delenv(name)
    catalog = SqlCatalog("rec", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/wh")
    catalog.create_namespace("sales")
    made = catalog.create_table("sales.orders", SCHEMA)
    for number in range(6):
        made.append(pa.table({"id": [number, 99], "name": ["a", "z"]}, schema=SCHEMA))
    location = catalog.load_table("sales.orders").metadata_location
    metadata = json.loads(Path(location.removeprefix("file://")).read_text())

    def tables() -> dict[str, Any]:
        return {"sales.orders": {"metadata-location": location, "metadata": metadata}}

    server = HostileCatalog(tables)
    server.sends = {place: dict.fromkeys(ALL, EVIL) for place in PLACES}
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LAYOUTCTL_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LAYOUTCTL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", server.uri)
    monkeypatch.chdir(tmp_path)
    yield server
    server.stop()


def test_observe_and_plan_load_no_class(hostile: HostileCatalog, tmp_path: Path) -> None:
    with hostile_code(tmp_path):
        for arguments in (
            ["observe"],
            ["observe", "sales.orders"],
            ["plan", "sales.orders", "--output", "json"],
        ):
            result = CliRunner().invoke(build(), arguments, catch_exceptions=False)
            assert result.exit_code in (0, 2), result.output
            assert "sales" in result.stdout


@pytest.mark.parametrize("command", ["observe", "plan", "recommend"])
def test_a_view_of_a_catalog_is_called_a_view(
    hostile: HostileCatalog, monkeypatch: pytest.MonkeyPatch, capsys: Any, said: Said, command: str
) -> None:
    """In one message; a name that is neither a table's nor a view's is not found."""
    hostile.views = {"sales.monthly"}
    run = runner(monkeypatch, capsys)
    for name in ("sales.monthly", "sales.weekly"):
        code, out, err = run(command, name)
        assert (code, out) == (1, "") and err.count("error:") == 1
        said(err)
    asked = [path for _, path, _ in hostile.requests if "/views/" in path]
    assert [path.rpartition("/")[2] for path in asked] == ["monthly", "weekly"]


def test_a_name_commands_no_terminal(
    hostile: HostileCatalog, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    run = runner(monkeypatch, capsys)
    for command in ("observe", "plan"):
        code, out, err = run(command, "sales.\x1b[2Jx\x1b]0;own\x07")
        assert code == 1 and "\x1b" not in out + err and "\x07" not in out + err
