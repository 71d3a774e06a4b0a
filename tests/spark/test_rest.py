"""Spark and pyiceberg work on one table through a real REST catalog."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.api.catalog_config import CatalogConfig
from tests.conftest import rest_spark_conf
from tests.rest_server import RestServer

pytestmark = [pytest.mark.spark, pytest.mark.rest]


def test_both_sides_share_the_rest_catalog(
    spark: Any, rest_server: RestServer, rest_catalog: CatalogConfig
) -> None:
    from pyiceberg.catalog import load_catalog

    spark.open_catalogs(rest_spark_conf(rest_server, "over_rest"))
    spark.sql("CREATE NAMESPACE IF NOT EXISTS over_rest.a")
    spark.sql("CREATE TABLE over_rest.a.t (id bigint) USING iceberg")
    spark.sql("INSERT INTO over_rest.a.t VALUES (7)")
    catalog = load_catalog(rest_catalog.name, **dict(rest_catalog.properties))
    assert catalog.load_table("a.t").scan().to_arrow()["id"].to_pylist() == [7]
