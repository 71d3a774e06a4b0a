"""The operator on a real API server and a real catalog: planned, approved, run, converged."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.operator.deleting import Deleter
from tests.operator.scene import TABLE, Lake, Scene, eventually, scene

KEEPS_ORDER = {"clustering": {"mode": "Declared", "keys": ["id"]}}


@pytest.fixture
def stage(spark_image: str, cluster: Cluster, namespace: str) -> Iterator[Scene]:
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as directory,
        scene(cluster, namespace, Lake(Path(directory), regions=1, appends=8)) as made,
    ):
        yield made


def test_a_policy_is_planned_approved_run_and_converges(stage: Scene) -> None:
    """While the plan waits for a person, a recommend job runs; then the plan's."""
    stage.lake.asked(200)
    stage.operator()
    stage.apply(approval={"mode": "Manual"}, recommend={"interval": "720h"})
    stage.waits_for("AwaitingApproval")
    location = stage.lake.catalog.load_table(TABLE).metadata_location
    recommended(stage)
    assert stage.lake.catalog.load_table(TABLE).metadata_location == location
    assert stage.reason() == "AwaitingApproval"
    (first,) = stage.jobs()
    plan = stage.approve()
    job = eventually(lambda: [j for j in stage.jobs() if name(j) != name(first)], 60, "a Job")[0]
    for each in (first, job):
        assert each["metadata"]["ownerReferences"][0]["kind"] == "TableLayout"
    stage.waits_for("NothingToDo", 420)
    table = stage.lake.catalog.load_table(TABLE)
    assert table.current_snapshot().summary["layout.plan-id"] == plan
    done = stage.status()
    assert done["lastAppliedPlan"] == plan
    assert done["job"]["phase"] == "Succeeded"
    assert len(stage.jobs()) == 2
    stage.kubectl("wait", "tlp/facts", "--for=condition=Converged", "--timeout=60s")
    stage.check()
    deletes_are_compacted_beside_their_writer(stage)


def deletes_are_compacted_beside_their_writer(stage: Scene) -> None:
    """While somebody deletes every two seconds, a job replaces delete files, and no delete is lost
    or refused for long."""
    writer = Deleter(stage.lake)
    declared = {
        "layout": {**KEEPS_ORDER, "files": {"quietPeriod": "0s", "minInputFiles": 4}},
        "deletes": {"compaction": "Minor"},
        "approval": {"mode": "Manual", "automaticUpTo": {"rewriteBytes": "1Gi"}},
    }
    before = len(stage.lake.commits())
    with writer.working(2.0):
        stage.kubectl("patch", "tlp/facts", "--type=merge", "-p", json.dumps({"spec": declared}))
        eventually(
            lambda: stage.status().get("deletes", {}).get("positionFiles"), 60, "deletes seen"
        )
        eventually(lambda: len(stage.lake.commits()) > before, 300, "a compaction")
        committed = writer.commits
        eventually(lambda: writer.commits > committed + 1, 30, "the writer goes on")
    assert writer.refused <= 1
    first = stage.lake.commits()[before]
    assert int(first["removed-position-delete-files"]) >= 4
    assert "removed-data-files" not in first
    stage.waits_for("NothingToDo", 300)
    found = stage.status()["deletes"]
    gone = writer.commits * 50
    assert found["deletedRows"] == {"atLeast": gone, "atMost": gone}
    assert found["positionFiles"] < writer.commits
    stage.check()


def name(job: dict[str, Any]) -> str:
    return str(job["metadata"]["name"])


def recommended(stage: Scene) -> None:
    """A layout is recommended, stored, and reported by condition, event and `kubectl get`."""

    def known() -> bool:
        return stage.condition("BetterLayoutKnown").get("status") in ("True", "False")

    try:
        eventually(known, 120, "a recommendation")
    except TimeoutError as error:
        raise AssertionError(f"{error}\n{stage.describe()}") from error
    found = stage.status()["recommendation"]
    assert stage.condition("BetterLayoutKnown")["reason"] == "LayoutRecommended", found
    assert found["layout"]["files"].keys() == {"targetSize", "rowGroupSize"}
    assert found["sample"]["files"] == 8 and found["reading"]["queries"] == 200
    document = stage.lake.store().plans.get_recommendation(found["uri"], found["digest"])
    assert document["policy"] == found["layout"]
    said = {event["reason"] for event in stage.events()}
    assert {"RecommendationSucceeded", "BetterLayoutKnown"} <= said
