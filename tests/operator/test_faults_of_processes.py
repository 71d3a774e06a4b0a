"""Operators, drivers, executors and the API server die while a table is rewritten for real: every
row once, two Jobs never, Converged in the end.

Two faults of `bench.cluster_faults`, which plays all of them, one at a time; with `-m soak` also
two more, and several at once on one table, which takes a machine that does nothing else.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import cluster_faults as faults
from tests.cluster.cluster import Cluster
from tests.operator.held import held_jobs
from tests.operator.scene import Lake, Scene, eventually, scene

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(1800)]
SHORT = ("driver-killed-in-commit", "stale-leader")
LONG = ("operator-killed-before-job", "layout-deleted")


@pytest.fixture
def stage(spark_image: str, cluster: Cluster, namespace: str) -> Iterator[Scene]:
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as directory,
        scene(cluster, namespace, Lake(Path(directory), regions=3, appends=3)) as made,
    ):
        yield made


@pytest.mark.parametrize(
    "fault", [*SHORT, *(pytest.param(name, marks=pytest.mark.soak) for name in LONG)]
)
def test_one_fault_loses_nothing_and_doubles_nothing(stage: Scene, fault: str) -> None:
    faults.FAULTS[fault](stage)
    stage.check()


@pytest.mark.soak
def test_whatever_dies_the_work_is_done_once(stage: Scene) -> None:
    first = stage.operator("a")
    with held_jobs(stage.cluster, stage.namespace) as held:
        stage.apply()
        assert held.arrived.wait(240), stage.describe()
        record = stage.status()["job"]
        assert record["phase"] == "Pending" and not stage.jobs()
        second = stage.operator("b")
        first.kill()  # between the write-ahead and the creation of the Job
    driver = stage.driver()
    assert driver.job == record["name"]
    assert stage.leader() is second
    faults.kill_in_commit(stage, driver, lambda: faults.restart_api_server(stage))
    eventually(lambda: stage.reason() == "BackOff", 300)
    second.signal(signal.SIGSTOP)
    third = stage.operator("c")
    again = stage.driver(besides=[driver.job])
    second.signal(signal.SIGCONT)  # past its lease: it launches nothing
    assert stage.leader() is third
    if stage.status()["job"]["actionsTotal"]:  # else the first driver was killed after its last
        again.reaches("start")
        again.kill_executor()
    third.kill()
    stage.waits_for("NothingToDo", faults.CONVERGES)
    assert stage.leader() is second
    assert sorted(stage.watchman.jobs.values()) == sorted([driver.job, again.job])
    stage.check()


@pytest.mark.soak
def test_an_approved_plan_runs_under_appends_and_what_is_deleted_stops_at_a_commit(
    stage: Scene,
) -> None:
    stage.operator()
    with stage.lake.appending(2.0):
        stage.apply(approval={"mode": "Manual"})
        stage.waits_for("AwaitingApproval")
        plan, appends = stage.status()["plan"]["id"], stage.lake.next_id
        eventually(lambda: stage.lake.next_id > appends + 100, 240)
        assert stage.approve() == plan
        first = stage.driver()
        assert plan.removeprefix("p-")[:12] in first.job
        faults.delete_layout(stage, first)
    stage.apply()
    second = stage.driver(besides=[first.job])
    faults.delete_job(stage, second)
    stage.waits_for("NothingToDo", faults.CONVERGES)
    assert len(stage.watchman.jobs) in (3, 4)  # one may have found the catalog busy
    stage.check()
