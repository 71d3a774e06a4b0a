"""What Spark measured of a group of jobs."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.spark.session.metrics import stage_of


@pytest.mark.spark
def test_a_stage_that_spark_dropped_counts_as_nothing(spark: Any) -> None:
    store = spark.sparkContext._jsc.sc().statusStore()
    assert stage_of(store, 999_999) is None
    assert stage_of(store, 0) is None or stage_of(store, 0).stageId() == 0
