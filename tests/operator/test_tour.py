"""The operator on a real API server and a real catalog: planned, approved, run, converged."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.operator.scene import TABLE, Lake, Scene, eventually, scene


@pytest.fixture
def stage(spark_image: str, cluster: Cluster, namespace: str) -> Iterator[Scene]:
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as directory,
        scene(cluster, namespace, Lake(Path(directory), regions=1, appends=8)) as made,
    ):
        yield made


def test_a_policy_is_planned_approved_run_and_converges(stage: Scene) -> None:
    stage.operator()
    stage.apply(approval={"mode": "Manual"})
    stage.waits_for("AwaitingApproval")
    plan = stage.approve()
    job = eventually(stage.jobs, 60, "a Job")[0]
    assert job["metadata"]["ownerReferences"][0]["kind"] == "TableLayout"
    stage.waits_for("NothingToDo", 420)
    table = stage.lake.catalog.load_table(TABLE)
    assert table.current_snapshot().summary["layout.plan-id"] == plan
    done = stage.status()
    assert done["lastAppliedPlan"] == plan
    assert done["job"]["phase"] == "Succeeded"
    assert len(stage.jobs()) == 1
    stage.kubectl("wait", "tlp/facts", "--for=condition=Converged", "--timeout=60s")
    stage.check()
