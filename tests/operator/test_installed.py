"""Installed by helm, under the chart's service account: approved each of the three ways and run."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.kube.kinds import POD
from reconciler.kube.pods import DIGEST_ANNOTATION, PLAN_LABEL
from tests.cluster.cluster import Cluster
from tests.operator.installed import FULL_NAME, PLANTED, Installed, installed
from tests.operator.scene import TABLE, Lake, engine_of, eventually


def engine(executors: int) -> dict[str, dict[str, Any]]:
    return {
        "driver": {"cores": 1, "memory": "1Gi"},
        "executors": {"instances": executors, "cores": 1, "memory": "768Mi"},
    }


LOCAL = {"type": "Local"}
"""Plans that show nothing of Spark are carried out without it, in a fifth of the CPU time."""
BY_ID = {"clustering": {"mode": "Declared", "keys": ["id"]}, "files": {"quietPeriod": "0s"}}
BY_CITY = {
    "partitioning": {
        "mode": "Declared",
        "fields": [{"column": "city", "transform": "truncate[6]"}],
    },
    "clustering": {"mode": "Declared", "keys": ["city"]},
    "files": {"quietPeriod": "0s"},
}
"""Another partition spec, by a column that is NULL in some rows: jobs add it, move the files and
switch the writers."""


@pytest.fixture
def world(kubelet: Cluster, spark_image: str, helm: Path, namespace: str) -> Iterator[Installed]:
    directory = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="layout-"))
    with installed(kubelet, helm, namespace, Lake(directory)) as made:
        yield made
    shutil.rmtree(directory, ignore_errors=True)


def generation(world: Installed) -> tuple[int, int]:
    """(of the policy, the one that its status speaks of)."""
    policy = json.loads(world.scene.kubectl("get", "tlp", "facts", "-o", "json"))
    return policy["metadata"]["generation"], policy["status"]["observedGeneration"]


def leaves(world: Installed, pod: str) -> bool:
    """Whether the pod is being deleted."""
    found = json.loads(world.scene.kubectl("get", "pod", pod, "-o", "json"))
    return "deletionTimestamp" in found["metadata"]


def are_shut(world: Installed, driver: str) -> list[dict[str, Any]]:
    """The pods of executors: each is the driver's, under an account without rights, and has neither
    its token nor a secret."""
    pods = world.scene.api.list(POD, world.namespace, {"spark-role": "executor"})
    for pod in pods:
        spec = pod["spec"]
        assert pod["metadata"]["ownerReferences"][0]["name"] == driver
        assert spec["serviceAccountName"] == "layout-spark-executor"
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert not [one for one in spec["volumes"] if "secret" in one or "projected" in one]
    return pods


@pytest.mark.jvm
def test_a_person_approves_under_appends_and_then_the_size_does(world: Installed) -> None:
    scene = world.scene
    steward = world.person("steward", f"{FULL_NAME}-approver")
    world.apply(approval={"mode": "Manual"}, layout=BY_ID, engine=engine(2))
    scene.waits_for("AwaitingApproval")
    before = scene.status()
    plan = before["plan"]["id"]
    with scene.lake.appending():
        # An append every two seconds: the table moves on and the plan under review stands.
        eventually(lambda: scene.status()["observed"] != before["observed"], 120, "an append seen")
        assert scene.status()["plan"]["id"] == plan
        said = scene.layoutctl("approve", plan, "--namespace", world.namespace, kubeconfig=steward)
        assert "Approved." in said
        driver = scene.driver()
        eventually(lambda: len(driver.executors()) == 2, 240, "two executors run")
        assert len(are_shut(world, driver.pod)) == 2
        eventually(lambda: scene.status().get("lastAppliedPlan") == plan, 300, "it is applied")
    assert "forbidden" not in scene.kubectl("logs", driver.pod).lower()
    eventually(lambda: not are_shut(world, driver.pod), 60, "the executors are gone")
    assert {commit["layout.plan-id"] for commit in scene.lake.commits()} == {plan}
    assert scene.status()["history"][0]["result"] == "Succeeded"

    # The edit makes work; a wait that answered from before it would find Converged at once or
    # never the new plan.
    change = {
        "layout": BY_CITY,
        "engine": engine(1) | LOCAL,
        "approval": {"mode": "Manual", "automaticUpTo": {"rewriteBytes": "1Gi"}},
    }
    scene.kubectl("patch", "tlp", "facts", "--type=merge", "-p", json.dumps({"spec": change}))
    scene.kubectl("wait", "tlp/facts", "--for=condition=Converged", "--timeout=400s")
    newest = scene.lake.commits()[-1]["layout.plan-id"]
    assert newest not in (plan, "")
    assert generation(world)[0] == generation(world)[1]
    assert scene.status()["lastAppliedPlan"] == newest
    later = [job for job in scene.jobs() if job["metadata"]["labels"][PLAN_LABEL] != plan]
    assert {engine_of(job) for job in later} == {"Local"}
    table = scene.lake.catalog.load_table(TABLE)
    assert [field.name for field in table.spec().fields] == ["city_trunc_6"]
    moved = {task.file.spec_id for task in table.scan().plan_files()}
    assert moved == {table.metadata.default_spec_id}
    scene.check()
    assert PLANTED not in world.everything_said()


@pytest.mark.jvm
def test_a_plan_approved_in_git_runs_is_suspended_at_a_commit_and_resumed(
    world: Installed,
) -> None:
    scene = world.scene
    manual = {"mode": "Manual"}
    document = scene.lake.directory / "layouts.yaml"
    document.write_text(world.documents(approval=manual, layout=BY_ID, engine=engine(1)))
    # As CI does for a pull request, before the operator has seen the policy.
    words = ("plan", "-f", str(document), "--publish", "--output", "name")
    plan = scene.layoutctl(*words).strip()
    world.apply(approval={**manual, "approvedPlans": [plan]}, layout=BY_ID, engine=engine(1))
    driver = scene.driver()
    (job,) = scene.jobs()
    assert job["metadata"]["labels"][PLAN_LABEL] == plan
    assert job["metadata"]["ownerReferences"][0]["kind"] == "TableLayout"
    assert job["metadata"]["annotations"][DIGEST_ANNOTATION] == scene.status()["plan"]["digest"]
    assert scene.condition("Approved")["reason"] == "ApprovedByDocument"
    assert scene.layout()["metadata"]["finalizers"]

    driver.reaches("commit", 2, seconds=600)
    with scene.lake.locked():  # the commit of the moment waits, so that more remain
        suspend = json.dumps({"spec": {"suspend": True}})
        scene.kubectl("patch", "tlp", "facts", "--type=merge", "-p", suspend)
        eventually(lambda: leaves(world, driver.pod), 25, "the driver is asked to stop")
        time.sleep(1)
    eventually(lambda: not scene.living(), 180, "the job stops")
    scene.waits_for("Suspended")
    eventually(lambda: not scene.layout()["metadata"].get("finalizers"), 60, "nothing holds it")
    stopped = scene.status()
    assert stopped["history"][0]["result"] == "Stopped"
    done = stopped["job"]["actionsCommitted"]
    assert 1 <= done < stopped["job"]["actionsTotal"]
    assert len(scene.jobs()) <= 1
    # Another engine goes on with the same plan.
    local = json.dumps({"spec": {"engine": LOCAL}})
    scene.kubectl("patch", "tlp", "facts", "--type=merge", "-p", local)
    scene.layoutctl("resume", "facts", "--namespace", world.namespace)
    scene.waits_for("NothingToDo", 600)
    commits = scene.lake.commits()
    assert {commit["layout.plan-id"] for commit in commits} == {plan}
    assert scene.status()["lastAppliedPlan"] == plan
    assert scene.status()["job"]["phase"] == "Succeeded"
    later = [one for one in scene.jobs() if one["metadata"]["uid"] != job["metadata"]["uid"]]
    assert engine_of(job) == "Spark" and {engine_of(one) for one in later} == {"Local"}
    scene.check()
    assert PLANTED not in world.everything_said()
