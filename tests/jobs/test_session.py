"""The session starts quietly, sees the shared catalog, and leaves no secret behind."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.spark


def test_spark_and_pyiceberg_share_one_catalog(spark: Any, iceberg_catalog: Any) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rec.session")
    spark.sql("CREATE TABLE rec.session.shared (id bigint) USING iceberg")
    spark.sql("INSERT INTO rec.session.shared VALUES (1), (2)")
    table = iceberg_catalog.load_table("session.shared")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]


def test_catalog_properties_are_not_on_the_command_line(spark: Any) -> None:
    process = spark.sparkContext._gateway.proc
    assert not [argument for argument in process.args if "spark.sql.catalog.rec" in argument]
    launched = dict(spark.sparkContext.getConf().getAll())
    assert "spark.sql.catalog.rec.uri" not in launched
    assert launched["spark.eventLog.enabled"] == "false"
    assert launched["spark.app.name"].startswith("layoutctl ")
