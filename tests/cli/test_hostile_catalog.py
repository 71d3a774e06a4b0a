"""`observe` and `plan` of a table that names classes, on a server that names them everywhere."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reconciler.cli.main import build
from tests.class_properties import ALL
from tests.cli.in_process import runner
from tests.hostile_catalog import (
    CONFIG,
    CREDENTIALS,
    EVIL,
    OVERRIDES,
    PLACES,
    HostileCatalog,
    hostile_code,
    served_table,
)
from tests.said import Said


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostileCatalog]:
    for name in list(os.environ):
        if name.startswith(("PYICEBERG_", "LAYOUTCTL_", "SPARK_")):
            monkeypatch.delenv(name)
    server = HostileCatalog(served_table(tmp_path))
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


SECRETS = {
    "token": {
        "token": "planted-token", "header.X-Api-Key": "planted-key",
        "header.Cookie": "s=planted-cookie", "s3.secret-access-key": "planted-own-s3",
    },
    "credential": {
        "credential": "client:planted-credential", "uri": "http://bob:planted-password@{host}",
    },
}  # fmt: skip
"""By the way of logging in, properties of a catalog, each with a secret of its own."""
VENDED = {
    CONFIG: {"s3.secret-access-key": "planted-s3", "token": "planted-served"},
    CREDENTIALS: {"s3.session-token": "planted-vended", "adls.sas-token.a": "planted-sas"},
    OVERRIDES: {"adls.account-key": "planted-account"},
}


@pytest.mark.parametrize("login", SECRETS)
def test_no_secret_is_printed_or_kept_though_the_server_repeats_all(
    hostile: HostileCatalog,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    tmp_path: Path,
    login: str,
) -> None:
    hostile.sends, hostile.granted = VENDED, "planted-granted"
    host = hostile.uri.removeprefix("http://")
    known = {k: v.replace("{host}", host) for k, v in SECRETS[login].items()}
    lines = [f'    {k}: "{v}"' for k, v in {"uri": hostile.uri, **known}.items()]
    monkeypatch.delenv("PYICEBERG_CATALOG__LAKE__URI")
    (tmp_path / ".pyiceberg.yaml").write_text("\n".join(["catalog:", "  lake:", *lines]))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    run = runner(monkeypatch, capsys)
    printed, codes = "", set()
    for hostile.echo in (0, 401, 500):
        for command in (
            "catalogs -o wide", "catalogs -o json", "observe", "observe sales.orders -o json",
            "plan sales.orders", "plan sales.orders -o json", "top", "report --all",
        ):  # fmt: skip
            code, out, err = run(*command.split())
            printed += out + err
            codes.add(code)
    assert codes == {0, 1, 5}
    sent = json.dumps([headers for _, _, headers in hostile.requests])
    assert "planted" in sent
    kept = [p for p in tmp_path.rglob("*") if p.is_file() and p.name != ".pyiceberg.yaml"]
    assert [p for p in kept if b"planted" in p.read_bytes()] == []
    assert re.findall("planted-[a-z0-9-]+", printed) == []


def test_a_name_commands_no_terminal(
    hostile: HostileCatalog, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    run = runner(monkeypatch, capsys)
    for command in ("observe", "plan"):
        code, out, err = run(command, "sales.\x1b[2Jx\x1b]0;own\x07")
        assert code == 1 and "\x1b" not in out + err and "\x07" not in out + err
