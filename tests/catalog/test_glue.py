"""A Glue catalog, by moto's emulator: what is read, and that nothing is committed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.choices import EngineType
from reconciler.catalog.load import connect, list_namespaces, list_tables, load_table
from reconciler.catalog.read_only import refuse_read_only
from reconciler.cli.shared import shared_store
from reconciler.errors import (
    AccessDeniedError,
    TableNotFoundError,
    UnavailableError,
    UnsupportedError,
)
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.step import run_step
from reconciler.state.state import StateStore
from tests.loop.conftest import rows_of
from tests.loop.test_step import DECLARED, EVERYTHING, never, quiet, step_of

mock_aws = pytest.importorskip("moto", reason="needs moto: make setup").mock_aws

KEYS = {"glue.access-key-id": "a", "glue.secret-access-key": "b", "glue.region": "eu-central-1"}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CatalogConfig]:
    """A catalog with one Iceberg table of four appends, and one table of another kind."""
    from pyiceberg.catalog.glue import GlueCatalog

    for name in [one for one in os.environ if one.startswith("AWS_")]:
        monkeypatch.delenv(name)
    properties = {"type": "glue", "warehouse": f"file://{tmp_path}", **KEYS}
    with mock_aws():
        catalog = GlueCatalog("lake", **properties)
        catalog.create_namespace("loop")
        place = f"file://{tmp_path}/orders"
        table = catalog.create_table("loop.orders", rows_of(0, 9).schema, location=place)
        for number in range(4):
            table.append(rows_of(number, 500))
        other = {"Name": "csv", "Parameters": {"classification": "csv"}}
        catalog.glue.create_table(DatabaseName="loop", TableInput=other)
        yield CatalogConfig("lake", "glue", properties, "test", own=True)


def test_tables_of_glue_are_listed_and_planned_and_nothing_is_committed(
    lake: CatalogConfig, tmp_path: Path
) -> None:
    catalog = connect(lake)
    assert list_namespaces(catalog, lake, 30.0) == [("loop",)]
    assert list_tables(catalog, lake, ("loop",), 30.0) == [("loop", "orders")]
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    step = step_of(lake, "orders", **DECLARED)
    proposal = step.propose(actor)
    assert len(proposal.observation.files) == 4 and proposal.pending
    head = proposal.observation.metadata_location
    for actor.engine in EngineType.LOCAL, EngineType.SPARK:
        with pytest.raises((AccessDeniedError, UnsupportedError)):
            run_step(step, actor, EVERYTHING, quiet, never, proposal)
    with pytest.raises(AccessDeniedError):
        refuse_read_only(lake)
    with pytest.raises(AccessDeniedError):
        shared_store(lake, (), 30.0)
    assert load_table(catalog, lake, ("loop", "orders")).metadata_location == head


def test_a_missing_table_names_what_there_is(lake: CatalogConfig) -> None:
    with pytest.raises(TableNotFoundError) as raised:
        load_table(connect(lake), lake, ("loop", "order"))
    assert "orders" in raised.value.render()


def test_a_refusal_of_the_service_is_no_missing_answer(
    lake: CatalogConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore.exceptions import ClientError, EndpointConnectionError

    catalog: Any = connect(lake)

    def failing(error: Exception) -> Any:
        def call(**_: Any) -> Any:
            raise error

        return call

    denied = ClientError({"Error": {"Code": "AccessDeniedException", "Message": "x"}}, "GetTable")
    monkeypatch.setattr(catalog.glue, "get_table", failing(denied))
    with pytest.raises(AccessDeniedError):
        load_table(catalog, lake, ("loop", "orders"))
    away = EndpointConnectionError(endpoint_url="https://glue")
    monkeypatch.setattr(catalog.glue, "get_table", failing(away))
    with pytest.raises(UnavailableError):
        load_table(catalog, lake, ("loop", "orders"))
