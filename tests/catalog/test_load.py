"""Catalogs that are missing, dead, locked or read-only end in one clear message, or just work."""

from __future__ import annotations

import socket
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.footers import read_row_groups
from reconciler.catalog.load import (
    connect,
    list_namespaces,
    list_tables,
    load_table,
    normalise_path,
)
from reconciler.catalog.observe import observe_table
from reconciler.catalog.properties import sqlite_path
from reconciler.catalog.read_only import refuse_read_only
from reconciler.errors import EXIT_UNAVAILABLE, AccessDeniedError, UnavailableError, UserError
from tests.said import Said


def test_a_table_under_another_catalog_name_is_explained(
    catalog: Any, config: CatalogConfig, said: Said
) -> None:
    catalog.create_table("sales.t", pa.schema([("a", pa.int64())]))
    catalog.create_table("sales.u", pa.schema([("a", pa.int64())]))
    other = replace(config, name="warehouse", source=".pyiceberg.yaml")
    with pytest.raises(UserError) as raised:
        load_table(connect(other), other, ("sales", "t"))
    said(raised.value.render())


@pytest.mark.parametrize(
    "name",
    [
        ("sales", "lineitm"),
        ("sale", "lineitem"),
        ("zzz", "lineitem"),
        ("sales", "zzz"),
        ("empty", "t"),
        ("lineitem",),
    ],
    ids=".".join,
)
def test_a_wrong_name_is_met_with_what_there_is(
    catalog: Any, config: CatalogConfig, name: tuple[str, ...], said: Said
) -> None:
    catalog.create_namespace("empty")
    catalog.create_table("sales.lineitem", pa.schema([("a", pa.int64())]))
    with pytest.raises(UserError) as raised:
        load_table(connect(config), config, name)
    said("\n".join(raised.value.details))


def test_a_missing_namespace_is_named(catalog: Any, config: CatalogConfig, said: Said) -> None:
    with pytest.raises(UserError) as raised:
        list_tables(connect(config), config, ("sals",), 10)
    said(raised.value)
    said("\n".join(raised.value.details))
    assert [tuple(n) for n in list_namespaces(connect(config), config, 10)] == [("sales",)]


def test_a_missing_database_is_not_created(tmp_path: Path, said: Said) -> None:
    path = tmp_path / "no.db"
    config = CatalogConfig("rec", "sql", {"uri": f"sqlite:///{path}"}, "--catalog")
    with pytest.raises(UserError) as refused:
        connect(config)
    said(refused.value)
    assert not path.exists()


def test_a_database_without_catalog_tables_is_not_reported_as_unreachable(
    tmp_path: Path, said: Said
) -> None:
    path = tmp_path / "x.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE something (else_ INTEGER)")
    config = CatalogConfig("rec", "sql", {"uri": f"sqlite:///{path}"}, "--catalog")
    with pytest.raises(UserError) as refused:
        load_table(connect(config), config, ("sales", "t"))
    said(refused.value)
    with sqlite3.connect(path) as database:
        names = [row[0] for row in database.execute("SELECT name FROM sqlite_master")]
    assert names == ["something"]


def test_a_file_that_is_not_a_database_is_one_message(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_text("this is no database at all, just text" * 100)
    config = CatalogConfig("rec", "sql", {"uri": f"sqlite:///{path}"}, "--catalog")
    with pytest.raises((UnavailableError, UserError)) as raised:
        load_table(connect(config), config, ("sales", "t"))
    assert "rec" in raised.value.what


def test_a_dead_rest_catalog_is_unavailable(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = CatalogConfig("far", "rest", {"uri": f"http://127.0.0.1:{port}", "token": "hush-hush"})
    with pytest.raises(UnavailableError) as raised:
        connect(config, timeout=20)
    assert raised.value.exit_code == EXIT_UNAVAILABLE
    assert f"127.0.0.1:{port}" in raised.value.render()
    assert "hush" not in raised.value.render()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A server that accepts connections and never answers."""
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(8)
    kept: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                kept.append(server.accept()[0])
            except OSError:
                return

    threading.Thread(target=accept, daemon=True).start()
    yield server.getsockname()[1]
    server.close()
    for connection in kept:
        connection.close()


def test_a_hanging_catalog_ends_with_the_timeout(silent_port: int, said: Said) -> None:
    config = CatalogConfig("far", "rest", {"uri": f"http://127.0.0.1:{silent_port}"})
    with pytest.raises(UnavailableError) as refused:
        connect(config, timeout=0.5)
    said(refused.value)


def test_a_missing_metadata_file_is_named(catalog: Any, config: CatalogConfig) -> None:
    table = catalog.create_table("sales.t", pa.schema([("a", pa.int64())]))
    Path(table.metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(UserError) as raised:
        load_table(connect(config), config, ("sales", "t"))
    assert "metadata" in raised.value.render()


@pytest.mark.parametrize("content", [b"", b"{", b'{"format-version": 2}', b"\xff\xfe\x00", b"[]"])
def test_metadata_that_cannot_be_decoded_is_named(
    catalog: Any, config: CatalogConfig, content: bytes, said: Said
) -> None:
    table = catalog.create_table("sales.t", pa.schema([("a", pa.int64())]))
    Path(table.metadata_location.removeprefix("file://")).write_bytes(content)
    with pytest.raises(UserError) as raised:
        load_table(connect(config), config, ("sales", "t"))
    assert table.metadata_location in raised.value.what
    said(raised.value.do)


def test_a_catalog_opened_for_reading_takes_no_commits(
    catalog: Any, config: CatalogConfig, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    refuse_read_only(config)
    path = sqlite_path(config.properties["uri"])
    uri = f"sqlite:///file:{path}?mode=ro&uri=true"
    reading = replace(config, properties={**config.properties, "uri": uri})
    with pytest.raises(AccessDeniedError) as refused:
        refuse_read_only(reading)
    said(refused.value)
    monkeypatch.setattr("os.access", lambda at, mode: at != path)
    with pytest.raises(AccessDeniedError) as refused:
        refuse_read_only(config)
    said(refused.value)


def test_reading_needs_read_rights_only(
    catalog: Any, config: CatalogConfig, tmp_path: Path
) -> None:
    """A catalog opened read-only, and a warehouse that refuses writes."""
    table = catalog.create_table("sales.t", pa.schema([("a", pa.int64())]))
    table.append(pa.table({"a": [1, 2]}))
    database = tmp_path / "catalog.db"
    before = database.read_bytes()
    read_only = replace(
        config,
        properties={**config.properties, "uri": f"sqlite:///file:{database}?mode=ro&uri=true"},
    )
    with (
        sqlite3.connect(f"file:{database}?mode=ro", uri=True) as probe,
        pytest.raises(sqlite3.OperationalError),
    ):
        probe.execute("CREATE TABLE x (y)")
    files = sorted(path for path in (tmp_path / "warehouse").rglob("*"))
    stamps = {path: path.stat().st_mtime_ns for path in files}
    seen = observe_table(read_only, ("sales", "t"), tmp_path / "cache")
    assert len(seen.files) == 1
    assert read_row_groups(read_only, seen.files, pa.array([0]).to_numpy()).has_footer.all()
    assert [tuple(n) for n in list_namespaces(connect(read_only), read_only, 10)] == [("sales",)]
    assert database.read_bytes() == before
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "warehouse").rglob("*")}
    assert after == stamps


def test_locations_compare_without_their_spelling() -> None:
    assert normalise_path("file:/a/b") == normalise_path("file:///a/b") == "/a/b"
    assert normalise_path("s3://b/k") == "s3://b/k"
