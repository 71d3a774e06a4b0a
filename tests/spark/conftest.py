"""Fixtures of the executor's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.engines.schedule import native
from tests.conftest import rest_spark_conf
from tests.gateway import Gateway
from tests.rest_server import RestServer
from tests.spark.tables import Bench


@pytest.fixture
def bench(spark: Any, catalog_config: CatalogConfig, tmp_path: Path) -> Bench:
    """The shared catalog with a ledger of its own."""
    return Bench(spark, catalog_config, tmp_path)


@pytest.fixture
def gateway(rest_server: RestServer) -> Iterator[Gateway]:
    made = Gateway(rest_server)
    yield made
    made.stop()


@pytest.fixture
def gateway_bench(
    spark: Any, rest_server: RestServer, gateway: Gateway, tmp_path: Path
) -> Iterator[Bench]:
    """Over the gateway; its catalog's name is the gateway's alone: Spark keeps catalogs."""
    name = f"gateway_{gateway.server_port}"
    conf = rest_spark_conf(rest_server, name)
    spark.open_catalogs({k: gateway.uri if k.endswith(".uri") else v for k, v in conf.items()})
    properties = {"type": "rest", "uri": gateway.uri}
    yield Bench(spark, CatalogConfig(name, "rest", properties, source="test"), tmp_path)


@pytest.fixture
def by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are written by Spark, as those are that the engine cannot write."""
    monkeypatch.setattr(native, "planned", lambda *_: native.Unplanned("a test asks for Spark"))
