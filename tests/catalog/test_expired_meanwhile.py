"""Another writer commits and expires what a look at the table is about to read: it looks again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog import observe
from reconciler.catalog.load import connect, load_table, translate_io
from reconciler.catalog.observe import observe_table
from reconciler.errors import (
    AccessDeniedError,
    FileMissingError,
    TableDamagedError,
    UnsupportedError,
)
from tests.conftest import sqlite_catalog
from tests.said import Said

NAME = ("s", "t")


@pytest.fixture
def config(tmp_path: Path) -> CatalogConfig:
    (tmp_path / "warehouse").mkdir()
    return sqlite_catalog(tmp_path)


@pytest.fixture
def table(config: CatalogConfig) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog(config.name, **dict(config.properties))
    catalog.create_namespace("s")
    made = catalog.create_table("s.t", pa.schema([("id", pa.int64())]))
    made.append(pa.table({"id": [1, 2]}))
    return made


def _path(location: str) -> Path:
    return Path("/" + location.removeprefix("file:").lstrip("/"))


def _replaced_and_expired(table: Any) -> None:
    """The table is written anew; the files of its earlier snapshots are removed."""
    table.refresh()
    old = table.current_snapshot()
    files = [old.manifest_list, *(item.manifest_path for item in old.manifests(table.io))]
    table.overwrite(pa.table({"id": [3]}))
    head = table.refresh().current_snapshot().snapshot_id
    ids = [item.snapshot_id for item in table.metadata.snapshots if item.snapshot_id != head]
    table.maintenance.expire_snapshots().by_ids(ids).commit()
    for location in files:
        _path(location).unlink()


def _after_the_first_load(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    left = [act]

    def loading(*arguments: Any) -> Any:
        found = load_table(*arguments)
        while left:
            left.pop()()
        return found

    monkeypatch.setattr(observe, "load_table", loading)


def test_what_expired_after_the_metadata_was_read_is_looked_for_in_its_successor(
    config: CatalogConfig, table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _after_the_first_load(monkeypatch, lambda: _replaced_and_expired(table))
    seen = observe_table(config, NAME, tmp_path / "cache")
    assert seen.snapshot_id == table.refresh().current_snapshot().snapshot_id
    assert seen.files.total_records == 1


def test_a_manifest_that_the_head_needs_is_damage(
    config: CatalogConfig, table: Any, tmp_path: Path
) -> None:
    manifest = table.current_snapshot().manifests(table.io)[0].manifest_path
    _path(manifest).unlink()
    with pytest.raises(FileMissingError, match=manifest.rpartition("/")[2]):
        observe_table(config, NAME, tmp_path / "cache")


def test_a_metadata_file_that_was_removed_meanwhile_is_asked_for_again(
    config: CatalogConfig, table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a table with write.metadata.delete-after-commit.enabled loses it."""
    catalog = connect(config)
    honest, left = catalog._convert_orm_to_iceberg, [table.metadata_location]  # type: ignore[attr-defined]

    def convert(row: Any) -> Any:
        while left:
            table.append(pa.table({"id": [3]}))
            _path(left.pop()).unlink()
        return honest(row)

    monkeypatch.setattr(catalog, "_convert_orm_to_iceberg", convert)
    found = load_table(catalog, config, NAME)
    assert found.metadata_location == table.refresh().metadata_location


def test_a_metadata_file_that_is_gone_for_good_is_damage(
    config: CatalogConfig, table: Any, said: Said
) -> None:
    _path(table.metadata_location).unlink()
    with pytest.raises(TableDamagedError) as refused:
        load_table(connect(config), config, NAME)
    said(refused.value)


def test_a_newer_format_version_is_named_and_is_not_a_truncated_file(
    config: CatalogConfig, table: Any, said: Said
) -> None:
    path = _path(table.metadata_location)
    body = json.loads(path.read_text())
    path.write_text(json.dumps({**body, "format-version": 4}))
    with pytest.raises(UnsupportedError) as raised:
        load_table(connect(config), config, NAME)
    said(raised.value)
    text = raised.value.render()
    assert "truncated" not in text and "restore" not in text


def _rewritten(table: Any, **fields: Any) -> None:
    """Edit the table's metadata file; a field that is None is removed."""
    path = _path(table.metadata_location)
    body = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({key: value for key, value in body.items() if value is not None}))


def test_snapshots_that_embed_their_manifests_are_named_and_are_not_damage(
    config: CatalogConfig, table: Any
) -> None:
    body = json.loads(_path(table.metadata_location).read_text())
    snapshots = [
        {**{k: v for k, v in one.items() if k != "manifest-list"}, "manifests": ["file:/m.avro"]}
        for one in body["snapshots"]
    ]
    _rewritten(table, snapshots=snapshots, **{"format-version": 1})
    with pytest.raises(UnsupportedError) as raised:
        load_table(connect(config), config, NAME)
    text = raised.value.render()
    assert "manifest list" in text
    assert "truncated" not in text and "restore" not in text


def test_a_table_without_a_uuid_is_refused_because_nothing_can_be_recorded_about_it(
    config: CatalogConfig, table: Any
) -> None:
    schema = json.loads(table.schema().model_dump_json())
    old = {"format-version": 1, "schema": schema, "partition-spec": []}
    _rewritten(table, **old)
    assert load_table(connect(config), config, NAME).format_version == 1
    _rewritten(table, **{"table-uuid": None})
    with pytest.raises(UnsupportedError, match="no table-uuid"):
        load_table(connect(config), config, NAME)


def test_a_field_that_is_not_as_expected_is_no_truncated_file(
    config: CatalogConfig, table: Any
) -> None:
    _rewritten(table, **{"last-column-id": "many"})
    with pytest.raises(UnsupportedError) as raised:
        load_table(connect(config), config, NAME)
    text = raised.value.render()
    assert "truncated" not in text and "restore" not in text


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_truncated_metadata_file_is_damage(
    config: CatalogConfig, table: Any, share: float
) -> None:
    path = _path(table.metadata_location)
    body = path.read_bytes()
    path.write_bytes(body[: int(share * len(body))])
    with pytest.raises(TableDamagedError):
        load_table(connect(config), config, NAME)


def test_a_file_that_may_not_be_read_is_not_damage() -> None:
    with pytest.raises(AccessDeniedError), translate_io("the manifest x", "restore it"):
        raise PermissionError(13, "Permission denied")


def test_snapshots_without_an_operation_are_read_without_a_warning(
    config: CatalogConfig, table: Any, tmp_path: Path
) -> None:
    """In a process of its own: pytest has its own filters."""
    body = json.loads(_path(table.metadata_location).read_text())
    _rewritten(table, snapshots=[{**one, "summary": {"a": "b"}} for one in body["snapshots"]])
    script = (
        "import sys; from pathlib import Path; from tests.conftest import sqlite_catalog; "
        "from reconciler.catalog.observe import observe_table; root = Path(sys.argv[1]); "
        f"print(len(observe_table(sqlite_catalog(root), {NAME!r}, root / 'cache').files))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 0 and done.stderr == ""
