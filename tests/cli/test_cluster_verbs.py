"""approve, suspend, resume and cancel against a real API server, as a person types them."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.api.load import load
from reconciler.cli import main
from reconciler.kube.api import Api
from reconciler.kube.kinds import CATALOG, JOB, POLICY, TABLE_LAYOUT
from tests.cli.pull_requests import Pulls, checkout, git
from tests.operator.cluster_objects import catalog, layout, policy

LAYOUT = "sales.lineitem-7k2m5qd4xz"
ORDERS = "sales.orders-aaaaaaaaaa"
PLAN = "p-3f9a1c0b77de4c21a0be"
RECIPE = Path(__file__).parents[2] / "docs" / "operations" / "ci" / "recommend.sh"


@pytest.fixture
def api(cluster, namespace) -> Api:
    cluster.install_crds()
    api = Api.from_environment(str(cluster.kubeconfig))
    api.create(CATALOG, namespace, catalog())
    api.create(POLICY, namespace, policy())
    api.create(TABLE_LAYOUT, namespace, layout())
    api.create(TABLE_LAYOUT, namespace, layout(ORDERS))
    return api


@pytest.fixture
def layoutctl(cluster, namespace, monkeypatch, capsys):
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))

    def run(*arguments: str) -> tuple[int, str, str]:
        line = ["layoutctl", *arguments, "--namespace", namespace]
        monkeypatch.setattr("sys.argv", line)
        with pytest.raises(SystemExit) as ended:
            main.main()
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run


def propose(api: Api, namespace: str, *, hours: int = 1, name: str = LAYOUT) -> None:
    read = api.get(TABLE_LAYOUT, namespace, name)
    expires = dt.datetime.now(dt.UTC) + dt.timedelta(hours=hours)
    plan = {
        "id": PLAN,
        "summary": "12 Recluster (6400 files, 400Gi)",
        "expiresAt": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    status = {"observedGeneration": 1, "plan": plan}
    api.put_status(TABLE_LAYOUT, namespace, name, status, read["metadata"]["resourceVersion"])


def approved(api: Api, namespace: str) -> str | None:
    return api.get(TABLE_LAYOUT, namespace, LAYOUT)["spec"].get("approvedPlan")


def test_a_plan_is_approved_by_its_id_and_may_be_approved_again(api, namespace, layoutctl):
    propose(api, namespace)
    code, out, _ = layoutctl("approve", PLAN)
    assert code == 0
    assert all(part in out for part in ("warehouse.sales.lineitem", PLAN, "12 Recluster"))
    assert approved(api, namespace) == PLAN
    managers = api.get(TABLE_LAYOUT, namespace, LAYOUT)["metadata"]["managedFields"]
    assert "layoutctl" in {entry["manager"] for entry in managers}
    code, out, _ = layoutctl("approve", PLAN)
    assert (code, "already approved" in out) == (0, True)


def test_a_table_without_a_terminal_needs_yes(api, namespace, layoutctl):
    propose(api, namespace)
    code, _, err = layoutctl("approve", "warehouse.sales.lineitem")
    assert code == 3
    assert f"layoutctl approve {PLAN}" in err
    assert approved(api, namespace) is None
    for name in ("warehouse.sales.lineitem", "rec.sales.lineitem", "sales.lineitem", LAYOUT):
        assert layoutctl("approve", name, "--yes")[0] == 0
    assert approved(api, namespace) == PLAN


def test_what_cannot_be_approved_says_why_and_what_next(api, namespace, layoutctl):
    code, _, err = layoutctl("approve", "warehouse.sales.orders", "--yes")
    assert (code, "warehouse.sales.orders" in err) == (1, True)
    propose(api, namespace)
    code, _, err = layoutctl("approve", "p-00000000000000000000")
    assert code == 1
    assert any({"warehouse.sales.lineitem", PLAN} <= set(line.split()) for line in err.split("\n"))
    code, _, err = layoutctl("approve", "sales", "--yes")
    assert (code, "spec.approval.approvedPlans" in err) == (1, True)
    propose(api, namespace, hours=-1)
    code, _, err = layoutctl("approve", PLAN)
    assert (code, "expired" in err) == (3, True)
    code, _, err = layoutctl("approve", "warehouse.sales.lineitme", "--yes")
    assert code == 1
    assert "warehouse.sales.lineitem" in err and "warehouse.sales.orders" in err
    assert approved(api, namespace) is None


def test_suspend_and_resume_keep_the_approval(api, namespace, layoutctl):
    propose(api, namespace)
    layoutctl("approve", PLAN)
    code, out, _ = layoutctl("suspend", "sales.lineitem")
    assert (code, "suspended" in out) == (0, True)
    spec = api.get(TABLE_LAYOUT, namespace, LAYOUT)["spec"]
    assert (spec["suspend"], spec["approvedPlan"]) == (True, PLAN)
    assert "already suspended" in layoutctl("suspend", "sales.lineitem")[1]
    assert layoutctl("resume", "sales.lineitem")[0] == 0
    spec = api.get(TABLE_LAYOUT, namespace, LAYOUT)["spec"]
    assert (spec["suspend"], spec["approvedPlan"]) == (False, PLAN)


def test_the_operators_apply_takes_neither_suspension_nor_approval_away(api, namespace, layoutctl):
    propose(api, namespace)
    layoutctl("approve", PLAN)
    layoutctl("suspend", LAYOUT)
    api.apply(TABLE_LAYOUT, namespace, layout())
    spec = api.get(TABLE_LAYOUT, namespace, LAYOUT)["spec"]
    assert (spec["suspend"], spec["approvedPlan"]) == (True, PLAN)


def test_suspending_a_policy_mentions_that_git_keeps_it(api, namespace, layoutctl):
    code, out, _ = layoutctl("suspend", "policy/sales")
    assert code == 0
    assert "Git" in out and "spec.suspend: true" in out
    assert api.get(POLICY, namespace, "sales")["spec"]["suspend"] is True
    _, out, _ = layoutctl("suspend", LAYOUT)
    _, out, _ = layoutctl("resume", LAYOUT)
    assert "policy sales" in out and "suspended" in out


def make_job(api: Api, namespace: str, name: str, label: str) -> None:
    container = {"name": "main", "image": "sh", "args": ["sleep 1000"]}
    spec = {"containers": [container], "restartPolicy": "Never"}
    api.create(
        JOB,
        namespace,
        {
            "metadata": {"name": name, "labels": {"layout.lakehouse.dev/layout": label}},
            "spec": {"template": {"spec": spec}},
        },
    )


def test_cancel_deletes_the_running_job_only_and_says_what_follows(api, namespace, layoutctl):
    make_job(api, namespace, "tl-one", LAYOUT)
    make_job(api, namespace, "tl-two", ORDERS)
    code, out, _ = layoutctl("cancel", "warehouse.sales.lineitem")
    assert code == 0
    assert "tl-one" in out and "layoutctl suspend" in out
    jobs = {job["metadata"]["name"]: job["metadata"] for job in api.list(JOB, namespace)}
    assert "deletionTimestamp" in jobs.get("tl-one", {"deletionTimestamp": ""})
    assert "deletionTimestamp" not in jobs["tl-two"]
    code, out, _ = layoutctl("cancel", "policy/sales", "--suspend")
    assert code == 0
    assert "tl-two" in out and "layoutctl resume" in out
    assert api.get(POLICY, namespace, "sales")["spec"]["suspend"] is True


def test_cancel_without_a_job_is_not_an_error(api, namespace, layoutctl):
    code, out, err = layoutctl("cancel", LAYOUT)
    assert (code, out.count("\n"), err) == (0, 1, "")
    assert LAYOUT in out


def test_without_the_right_the_message_names_it(cluster, api, namespace, kubectl, layoutctl):
    propose(api, namespace)
    from tests.kube.test_api import kubeconfig

    path = kubeconfig(cluster, namespace, kubectl("create", "token", "default").strip())
    code, _, err = layoutctl("approve", PLAN, "--kubeconfig", str(path))
    assert code == 1
    assert "cannot list" in err and "tablelayouts" in err
    assert "Traceback" not in err


RECOMMENDED = {
    "id": "r-0123456789abcdef0123", "time": "2026-11-24T03:00:00Z", "snapshotId": "731",
    "method": "simulation", "better": True, "summary": "sorted by l_shipdate", "savesPercent": 74,
    "digest": "sha256:" + "0" * 64, "uri": "s3://lake/plans/u/r.json", "rewriteBytes": "104Gi",
    "cpuTime": "2h6m",
    "sample": {"rows": 120_000, "files": 900, "bytesRead": "9.1Gi", "rowsPerRowGroup": 110},
    "reading": {
        "now": "44Ti", "after": "11Ti", "low": "10Ti", "high": "13Ti", "queries": 1204,
    },
    "layout": {
        "clustering": {"mode": "Declared", "keys": ["l_shipdate"], "curve": "Lexicographic"},
        "files": {"targetSize": "512Mi", "rowGroupSize": "32Mi"},
    },
}  # fmt: skip


def recommend(api: Api, namespace: str) -> None:
    read = api.get(TABLE_LAYOUT, namespace, LAYOUT)
    why = {
        "type": "BetterLayoutKnown", "status": "True", "reason": "LayoutRecommended",
        "message": "m", "lastTransitionTime": "2026-11-24T03:00:00Z",
    }  # fmt: skip
    status = {"observedGeneration": 1, "recommendation": RECOMMENDED, "conditions": [why]}
    stored = api.put_status(
        TABLE_LAYOUT, namespace, LAYOUT, status, read["metadata"]["resourceVersion"]
    )
    assert stored["status"]["recommendation"] == RECOMMENDED  # the schema has every field


def test_a_recommendation_of_the_cluster_is_printed_and_written_into_the_policy(
    api, namespace, layoutctl, tmp_path
):
    code, _, err = layoutctl("recommend", "warehouse.sales.lineitem", "--from-cluster")
    assert (code, "spec.recommend" in err) == (1, True)
    recommend(api, namespace)
    code, out, _ = layoutctl("recommend", "warehouse.sales.lineitem", "--from-cluster")
    assert code == 0
    for shown in (RECOMMENDED["summary"], "74 %", "44Ti", "10Ti - 13Ti", "104Gi", "2h6m", "110"):
        assert shown in out
    path = tmp_path / "lineitem.yaml"
    path.write_text(POLICY_TEXT)
    words = ("recommend", "warehouse.sales.lineitem", "--from-cluster", "--out", str(path))
    assert layoutctl(*words)[0] == 0
    changed = [line for line in path.read_text().splitlines() if line not in POLICY_TEXT]
    kept = [line for line in POLICY_TEXT.splitlines() if line in path.read_text()]
    assert len(kept) >= len(POLICY_TEXT.splitlines()) - 2
    assert any("l_shipdate" in line for line in changed)
    (document,) = load([path]).policies
    assert document.spec.layout.clustering.keys == ("l_shipdate",)
    assert document.spec.layout.files.row_group_bytes == 32 << 20


def test_a_recommendation_becomes_one_pull_request(api, cluster, namespace, tmp_path):
    """The recipe of docs/operations/ci.md, with the real layoutctl, git, curl and jq."""
    recommend(api, namespace)
    pulls = Pulls()
    clone = checkout(tmp_path, "sales.yaml", POLICY_TEXT.replace("sales.*", "sales.lineitem"))
    config = tmp_path / "kubeconfig"
    config.write_text(cluster.kubeconfig.read_text())
    cluster.kubectl(
        "config", "set-context", "--current", f"--namespace={namespace}", f"--kubeconfig={config}"
    )
    environment = {**cluster.environment(config), **pulls.environment()}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    tables = ("warehouse.sales.lineitem", "warehouse.sales.orders")
    said = [
        subprocess.run(
            ["sh", str(RECIPE), "layouts", *tables],
            cwd=clone, env=environment, capture_output=True, text=True, check=True,
        ).stdout
        for _ in range(2)
    ]  # fmt: skip
    pulls.server.shutdown()
    (opened,) = pulls.opened
    assert (opened["head"], opened["base"]) == (f"layout/{RECOMMENDED['id']}", "main")
    assert RECOMMENDED["summary"] in opened["body"] and "pull/1" in said[0]
    changed = git(clone, "diff", "--stat", "origin/main", f"origin/{opened['head']}")
    assert "layouts/sales.yaml" in changed and "1 file changed" in changed


POLICY_TEXT = """\
apiVersion: layout.lakehouse.dev/v1alpha1
kind: TableLayoutPolicy
metadata: {name: sales}   # of the sales team
spec:
  catalogRef: {name: warehouse}
  tables: {include: ["sales.*"]}
  layout:
    clustering:
      mode: WorkloadAware   # until a layout is reviewed
"""
