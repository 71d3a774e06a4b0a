"""Operators, drivers, executors and the API server die while a table is rewritten for real: every
row once, two Jobs never, Converged in the end.

Two faults on one table; `bench.cluster_faults` plays all kinds, each on a table of its own. With
`-m soak` also more of them at once, which takes a machine that does nothing else.
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


@pytest.fixture
def stage(spark_image: str, cluster: Cluster, namespace: str) -> Iterator[Scene]:
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as directory,
        scene(cluster, namespace, Lake(Path(directory), regions=3, appends=3)) as made,
    ):
        yield made


def test_a_stale_leader_and_a_killed_driver_lose_nothing_and_double_nothing(stage: Scene) -> None:
    """The leader is stopped between its record of a Job and the Job; the driver, in a commit."""
    old = stage.operator("a")
    with held_jobs(stage.cluster, stage.namespace) as held:
        stage.apply()
        assert held.arrived.wait(240), stage.describe()
        record = stage.status()["job"]
        assert record["phase"] == "Pending" and not stage.jobs()
        old.signal(signal.SIGSTOP)
        other = stage.operator("b")
        eventually(lambda: stage.leader() is other, 240, "the other leads")
    first = stage.driver()
    assert first.job == record["name"]
    eventually(lambda: stage.status()["job"].get("uid"), 240, "adopted")
    old.signal(signal.SIGCONT)  # past its lease: it launches nothing
    faults.kill_in_commit(stage, first)
    second = stage.driver(besides=[first.job])
    stage.waits_for("NothingToDo", faults.CONVERGES)
    assert stage.leader() is other
    assert sorted(stage.watchman.jobs.values()) == sorted([first.job, second.job])
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
