"""The operator on a real API server and a real catalog: planned, approved, run, converged.

Jobs of plans are pods of the Local engine, which start in a fifth of the CPU time. Those of Spark
are in test_installed and test_faults_of_processes.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.kube.kinds import POLICY
from reconciler.kube.pods import PLAN_LABEL
from tests.cluster import sampling_job
from tests.cluster import spark_image as image
from tests.cluster.cluster import Cluster
from tests.operator.deleting import Deleter
from tests.operator.scene import TABLE, Lake, Scene, engine_of, eventually, scene

KEEPS_ORDER = {"clustering": {"mode": "Declared", "keys": ["id"]}}


WAITS = {"branch": "audit", "approval": "Required"}
RARELY = {"interval": "720h"}
LOCAL = {"type": "Local"}


@pytest.fixture
def stage(spark_image: str, cluster: Cluster, namespace: str) -> Iterator[Scene]:
    cluster.set_image(sampling_job.NAME, sampling_job.ENTRYPOINT, image.environment())
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as directory,
        scene(cluster, namespace, Lake(Path(directory), regions=1, appends=8)) as made,
    ):
        yield made


def test_a_policy_is_planned_approved_run_and_converges(stage: Scene) -> None:
    """While the plan waits for a person, a recommend job runs; then the plan's, onto a branch, and
    the one that publishes the branch."""
    stage.lake.asked(200)
    stage.operator(image=sampling_job.NAME)
    stage.apply(approval={"mode": "Manual"}, recommend=RARELY, safety=WAITS)
    stage.waits_for("AwaitingApproval")
    location = stage.lake.catalog.load_table(TABLE).metadata_location
    recommended(stage)
    assert stage.lake.catalog.load_table(TABLE).metadata_location == location
    assert stage.reason() == "AwaitingApproval"
    without_spark(stage)
    plans = carried_out_and_published(stage)
    stage.waits_for("NothingToDo", 420)
    table = stage.lake.catalog.load_table(TABLE)
    assert table.current_snapshot().summary["layout.plan-id"] == plans[1]
    assert set(table.metadata.refs) == {"main"}
    done = stage.status()
    assert done["lastAppliedPlan"] == plans[1]
    assert done["job"]["phase"] == "Succeeded"
    assert [entry["planId"] for entry in done["history"][:2]] == plans[::-1]
    stage.kubectl("wait", "tlp/facts", "--for=condition=Converged", "--timeout=60s")
    stage.check()
    deletes_are_compacted_beside_their_writer(stage)
    a_job_keeps_house(stage)
    assert {engine_of(job) for job in stage.jobs()} - {""} == {"Local"}


def without_spark(stage: Scene) -> None:
    """The plan that waits stays as it is, and a pod of the Local engine will carry it out."""
    plan = stage.status()["plan"]["id"]
    stage.kubectl(
        "patch", "tlp/facts", "--type=merge", "-p", json.dumps({"spec": {"engine": LOCAL}})
    )
    eventually(lambda: is_observed(stage), 60, "the engine is seen")
    assert stage.status()["plan"]["id"] == plan


def is_observed(stage: Scene) -> bool:
    """Whether the policy's status is about its last change."""
    policy = stage.api.get(POLICY, stage.namespace, "facts")
    return bool(policy["status"]["observedGeneration"] == policy["metadata"]["generation"])


def carried_out_and_published(stage: Scene) -> list[str]:
    """The plans: of the work, whose result waits on a branch, and of its publication."""
    before = stage.lake.catalog.load_table(TABLE).current_snapshot()
    plans: list[str] = []
    for _ in range(2):
        plans.append(stage.status()["plan"]["id"])
        assert stage.lake.catalog.load_table(TABLE).current_snapshot() == before
        stage.layoutctl("approve", plans[-1], "--namespace", stage.namespace)
        eventually(lambda: of_plan(stage, plans[-1]), 60, "a Job")
        eventually(lambda: stage.status().get("lastAppliedPlan") == plans[-1], 300, "it ran")
        if len(plans) == 1:
            stage.waits_for("AwaitingApproval", 60)
    jobs = stage.jobs()
    assert len(set(plans)) == 2 and len(jobs) == 3
    assert [engine_of(job) for plan in plans for job in of_plan(stage, plan)] == ["Local"] * 2
    for job in jobs:
        assert job["metadata"]["ownerReferences"][0]["kind"] == "TableLayout"
    return plans


def of_plan(stage: Scene, plan: str) -> list[dict[str, Any]]:
    return [job for job in stage.jobs() if job["metadata"]["labels"][PLAN_LABEL] == plan]


def deletes_are_compacted_beside_their_writer(stage: Scene) -> None:
    """While somebody deletes and appends every two seconds, jobs replace delete files, and no
    commit is lost or refused for long."""
    writer = Deleter(stage.lake)
    declared = {
        "layout": {**KEEPS_ORDER, "files": {"quietPeriod": "0s", "minInputFiles": 4}},
        "deletes": {"compaction": "Minor"},
        "approval": {"mode": "Manual", "automaticUpTo": {"rewriteBytes": "1Gi"}},
        "safety": None,
    }
    before = len(stage.lake.commits())
    with writer.working(2.0):
        stage.kubectl("patch", "tlp/facts", "--type=merge", "-p", json.dumps({"spec": declared}))
        seen = eventually(lambda: stage.status().get("deletes"), 60, "deletes seen")
        eventually(lambda: compactions(stage, before), 300, "a compaction")
        committed = writer.commits
        eventually(lambda: writer.commits > committed + 3, 30, "the writer goes on")
    assert seen["deletedRows"] == dict.fromkeys(("atLeast", "estimate", "atMost"), gone(seen))
    assert writer.appends > 1 and writer.refused <= 1
    stage.waits_for("NothingToDo", 300)
    assert writer.load() < writer.deletes
    # Files whose rows were sorted anew have no deletes any more.
    live, found = stage.lake.expected.total(), stage.status().get("deletes")
    if writer.load() or found:
        assert found["positionFiles"] == writer.load()
        assert found["liveRows"] == dict.fromkeys(("atLeast", "estimate", "atMost"), live)
    stage.check()


def gone(seen: dict[str, Any]) -> int:
    """Rows that the writer's own delete files name."""
    return int(seen["positionFiles"]) * 50


def compactions(stage: Scene, since: int) -> list[dict[str, str]]:
    """The commits, after so many, that replace at least four delete files and no data file."""
    return [
        commit
        for commit in stage.lake.commits()[since:]
        if int(commit.get("removed-position-delete-files", 0)) >= 4
        and "deleted-data-files" not in commit
    ]


def a_job_keeps_house(stage: Scene) -> None:
    """It expires snapshots, removes an orphan and leaves the table Converged, its rows as they
    were."""
    table = stage.lake.catalog.load_table(TABLE)
    orphan = Path(table.location().removeprefix("file://")) / "data" / "left.parquet"
    orphan.write_bytes(b"x" * 1_000)
    os.utime(orphan, (0, 0))
    kept = 3
    assert len(table.metadata.snapshots) > 2 * kept
    asked = {
        "expireSnapshots": {"olderThan": "0s", "retainLast": kept},
        "removeOrphans": {"olderThan": "24h"},
    }
    patch = json.dumps({"spec": {"maintenance": asked}})
    stage.kubectl("patch", "tlp/facts", "--type=merge", "-p", patch)
    eventually(lambda: not orphan.exists(), 300, "the orphan is removed")
    stage.waits_for("NothingToDo", 300)
    assert len(table.refresh().metadata.snapshots) <= kept
    stage.check()


def recommended(stage: Scene) -> None:
    """A layout is recommended from what an executor sampled, stored, and reported by condition,
    event and `kubectl get`."""

    def known() -> bool:
        return stage.condition("BetterLayoutKnown").get("status") in ("True", "False")

    driver = stage.driver()
    eventually(driver.executors, 120, "an executor reads the sample")
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
    expected = {"RecommendationSucceeded", "BetterLayoutKnown"}
    eventually(lambda: expected <= {event["reason"] for event in stage.events()}, 60, "events")
