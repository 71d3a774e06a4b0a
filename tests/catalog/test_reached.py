"""Locations that a server or a table names: in a cluster none of them opens a file of the machine,
however it is written."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.reach import STRICT, Reach, networks
from reconciler.catalog.border import file_io
from reconciler.catalog.network import on_behalf
from reconciler.catalog.observe import observe_table
from reconciler.errors import ReconcilerError, RefusedAddressError
from tests.catalog.silent import Silent, saying, serving
from tests.said import Said

PLANTED = "planted-content-of-a-local-file"
HERE = Reach(networks(["127.0.0.1"]))
FORMS = [
    "file://{path}", "file:{path}", "FILE://{path}", "File:{path}", "{path}", "//localhost{path}",
    " file://{path}", "file://localhost{path}", "file:///{path}", "fi\tle://{path}",
    "local://{path}", "hdfs://127.0.0.1{path}", "viewfs://x{path}", "hf://datasets/x{path}",
    "memory:{path}", "data:,x", "http://127.0.0.1{path}", "C:\\x", "../../../../../..{path}",
    "%66ile://{path}",
]  # fmt: skip


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    path = tmp_path / "secret.json"
    path.write_text(json.dumps({"x": PLANTED}))
    return path


@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_a_location_opens_a_local_file(form: str, planted: Path) -> None:
    location = form.format(path=planted)
    with (
        on_behalf(STRICT),
        pytest.raises((RefusedAddressError, ValueError, ImportError)) as refused,
    ):
        file_io({}, location).new_input(location).open().read()
    assert PLANTED not in str(refused.value)


@pytest.mark.parametrize("form", ["file://{path}", "FILE://{path}", "{path}"])
def test_none_is_written_or_removed_either(form: str, planted: Path) -> None:
    location = form.format(path=planted)
    with on_behalf(STRICT):
        with pytest.raises(RefusedAddressError):
            file_io({}, location).new_output(location).create(overwrite=True)
        with pytest.raises(RefusedAddressError):
            file_io({}, location).delete(location)
    assert PLANTED in planted.read_text()


def test_a_person_reads_their_own_files(planted: Path) -> None:
    location = f"file://{planted}"
    assert PLANTED in file_io({}, location).new_input(location).open().read().decode()


def hostile_table(server: Silent, manifest_list: str, **config: str) -> str:
    metadata: dict[str, Any] = {
        "format-version": 2, "table-uuid": str(uuid.uuid4()), "location": "s3://lake/t",
        "last-updated-ms": 1, "last-column-id": 1, "last-partition-id": 999,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [
            {"id": 1, "name": "a", "required": False, "type": "long"}]}],
        "current-schema-id": 0, "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0, "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0, "last-sequence-number": 1, "current-snapshot-id": 1,
        "snapshots": [{"snapshot-id": 1, "sequence-number": 1, "timestamp-ms": 1, "schema-id": 0,
                       "manifest-list": manifest_list, "summary": {"operation": "append"}}],
        "snapshot-log": [], "metadata-log": [], "refs": {},
    }  # fmt: skip
    return json.dumps(
        {"metadata-location": "s3://lake/t/m.json", "metadata": metadata, "config": config,
         "defaults": {}, "overrides": {}}
    )  # fmt: skip


@pytest.mark.parametrize("form", ["file://{path}", "FILE://{path}", "{path}"])
def test_a_manifest_list_of_the_operators_own_machine_is_not_read(
    form: str, planted: Path, tmp_path: Path, said: Said
) -> None:
    with serving(lambda *given: None) as probe:
        body = hostile_table(probe, form.format(path=planted))
    with serving(saying(body)) as server:
        config = CatalogConfig("lake", "rest", {"uri": server.uri}, reach=HERE)
        with on_behalf(HERE), pytest.raises(ReconcilerError) as refused:
            observe_table(config, ("db", "t"), tmp_path / "cache", timeout=10)
    said(refused.value.render())
    assert PLANTED not in refused.value.render()


@pytest.mark.parametrize("vended", ["http://127.0.0.2:1", "http://169.254.169.254/latest"])
def test_a_store_that_a_server_vends_is_not_asked_if_it_may_not_be(
    vended: str, tmp_path: Path
) -> None:
    with serving(lambda *given: None) as probe:
        body = hostile_table(
            probe, "s3://lake/t/l.avro", **{"s3.endpoint": vended, "s3.region": "eu"}
        )
    with serving(saying(body)) as server:
        config = CatalogConfig("lake", "rest", {"uri": server.uri}, reach=HERE)
        with on_behalf(HERE), pytest.raises(RefusedAddressError):
            observe_table(config, ("db", "t"), tmp_path / "cache", timeout=10)
