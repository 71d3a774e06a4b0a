"""What a policy declares of files, and what follows where it declares nothing."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.loop.decision_settings import settings_for
from reconciler.loop.history import History
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.ports import RecordedQueries
from reconciler.loop.step import CONVERGED, run_until_converged
from reconciler.queries.coverage import Coverage
from reconciler.queries.fragments import workload_of_fragments
from reconciler.queries.shape import Workload
from reconciler.state.state import StateStore
from tests.advisor.worlds import DATE, range_workload, workload
from tests.cli.observations import lineitem
from tests.loop.test_step import EVERYTHING, never, policy, quiet, step_of

MIB = 1 << 20
NOTHING = workload_of_fragments([])


def _settings(asked: Workload, properties: dict[str, str] | None = None, **files: Any) -> Any:
    seen = lineitem(12, 3)
    seen = replace(seen, metadata=replace(seen.metadata, properties=properties or {}))
    return settings_for(
        policy("t", layout={"files": files}), seen, History(),
        RecordedQueries(asked, Coverage(1.0, "bytes"), asked), target_bytes=128 * MIB, now_ms=0,
    )  # fmt: skip


def test_without_queries_row_groups_are_a_quarter_of_a_file_or_less() -> None:
    """Algorithm 4: min(128 MiB, a quarter of a file, max(8 MiB, 100,000 rows))."""
    seen = lineitem(12, 3)
    rows = int(100_000 * seen.files.total_bytes / seen.files.total_records)
    assert _settings(NOTHING).row_group_bytes == min(32 * MIB, max(8 * MIB, rows))
    assert _settings(NOTHING, rowGroupSize="2Mi").row_group_bytes == 2 * MIB
    own = {"write.parquet.row-group-size-bytes": str(3 * MIB)}
    assert _settings(NOTHING, own).row_group_bytes == 3 * MIB
    asked = workload(range_workload(np.random.default_rng(1), DATE, 3, 20, 700))
    assert _settings(asked).row_group_bytes == 128 * MIB, "queries choose by the what-if"


@pytest.mark.parametrize(
    ("declared", "mode"), [("Auto", None), ("None", "none"), ("Hash", "hash"), ("Range", "range")]
)
def test_the_distribution_of_writers_is_spelled_as_iceberg_does(
    declared: str, mode: str | None
) -> None:
    assert _settings(NOTHING, distributionMode=declared).distribution_mode == mode


@pytest.mark.spark
def test_writers_follow_the_distribution_that_the_policy_declares(
    spark: Any, catalog_config: CatalogConfig, tmp_path: Path
) -> None:
    """Three tasks write four partitions: a file for each pair, or after a shuffle one for each
    partition."""
    full = f"{catalog_config.name}.loop.distributed"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog_config.name}.loop")
    spark.sql(f"CREATE TABLE {full} (id BIGINT, p BIGINT) USING iceberg PARTITIONED BY (p)")
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    actor.spark, written = spark, []
    for declared in ("None", "Hash"):
        files = {"distributionMode": declared, "minInputFiles": 100}
        layout = {"clustering": {"mode": "None"}, "files": files}
        now = dt.datetime.now(dt.UTC)
        step = step_of(catalog_config, "distributed", now, layout=layout)
        done = run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
        assert done.state.state == CONVERGED
        spark.sql(f"INSERT INTO {full} SELECT id, id % 4 FROM RANGE(0, 240, 1, 3)")
        summary = spark.sql(f"SELECT summary FROM {full}.snapshots ORDER BY committed_at").collect()
        written.append(int(summary[-1].summary["added-data-files"]))
    assert written == [12, 4]
