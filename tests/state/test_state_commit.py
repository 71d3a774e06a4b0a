"""State tables behind a gateway that repeats or loses commits: every row is stored once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog import claim
from reconciler.errors import UnavailableError
from reconciler.state import state_tables
from reconciler.state.shared_backend import SharedBackend
from reconciler.state.state_tables import PROPERTIES, StateTables
from tests.gateway import DROPPED, RETRY_AFTER, TWICE, Gateway
from tests.rest_server import RestServer

pytestmark = pytest.mark.rest

COLUMNS = (("shard", "int"), ("key", "string"))


@pytest.fixture
def gateway(rest_server: RestServer) -> Iterator[Gateway]:
    made = Gateway(rest_server)
    yield made
    made.stop()


def _config(gateway: Gateway) -> CatalogConfig:
    return CatalogConfig("rec", "rest", {"type": "rest", "uri": gateway.uri}, source="test")


def _tables(gateway: Gateway) -> StateTables:
    return StateTables(SharedBackend(_config(gateway), (f"state_{uuid.uuid4().hex[:8]}",)))


def _append(tables: StateTables, *keys: str) -> None:
    tables.append("notes", COLUMNS, [{"shard": 1, "key": key} for key in keys])


def _assert_readable(tables: StateTables, *keys: str) -> None:
    table = tables.snapshot("notes")
    assert table is not None
    assert sorted(tables.rows_of(table, ("key",))["key"].to_pylist()) == list(keys)
    known = set()
    for snapshot in table.metadata.snapshots:
        known.add(snapshot.manifest_list)
        known |= {manifest.manifest_path for manifest in snapshot.manifests(table.io)}
    directory = Path(table.location().removeprefix("file:")) / "metadata"
    on_disk = {path.name for path in directory.glob("*.avro")}
    assert on_disk == {path.rpartition("/")[2] for path in known}


@pytest.mark.parametrize("retries", ["0", "30"])
def test_rows_that_are_sent_twice_are_stored_once(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, retries: str
) -> None:
    monkeypatch.setitem(PROPERTIES, "commit.retry.num-retries", retries)
    tables = _tables(gateway)
    _append(tables, "a")
    gateway.fails(TWICE, "add-snapshot")
    _append(tables, "b")
    assert gateway.faults == 1
    _append(tables, "c")
    assert gateway.faults == 1
    _assert_readable(tables, "a", "b", "c")


@pytest.mark.parametrize("fault", [DROPPED, RETRY_AFTER])
def test_an_append_without_an_answer_is_an_error_and_keeps_its_rows(
    gateway: Gateway, fault: str
) -> None:
    tables = _tables(gateway)
    _append(tables, "a")
    gateway.fails(fault, "add-snapshot")
    with pytest.raises(UnavailableError):
        _append(tables, "b")
    _assert_readable(tables, "a", "b")


def test_a_merge_that_is_sent_twice_keeps_every_row(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_tables, "MAX_FILES", 2)
    monkeypatch.setitem(PROPERTIES, "commit.retry.num-retries", "0")
    tables = _tables(gateway)
    for key in "ab":
        _append(tables, key)
    gateway.fails(TWICE, '"delete"')
    _append(tables, "c")
    assert gateway.faults == 1
    _assert_readable(tables, "a", "b", "c")


def test_a_claim_that_is_sent_twice_is_ours(gateway: Gateway) -> None:
    config, namespace = _config(gateway), f"state_{uuid.uuid4().hex[:8]}"
    tables = StateTables(SharedBackend(config, (namespace,)))
    _append(tables, "a")
    gateway.fails(TWICE, claim.OWNER_PROPERTY)
    assert claim.claim(config, (namespace, "notes"), "me") == "me"
    assert gateway.faults == 1
    assert claim.owner_of(config, (namespace, "notes")) == "me"
    _assert_readable(tables, "a")
