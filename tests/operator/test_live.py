"""The reconciles over a real catalog that pyiceberg made; only the API server is a fake."""

from __future__ import annotations

import datetime as dt
import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from reconciler.api.choices import EngineType
from reconciler.api.reach import Reach, networks
from reconciler.api.run_document import RunDocument, read_run
from reconciler.kube.kinds import CATALOG, JOB, POLICY, TABLE_LAYOUT
from reconciler.kube.pods import PLAN_LABEL
from reconciler.loop.driver_job import load_plan
from reconciler.operator.catalog.handles import LiveCatalogs, LiveHandle
from reconciler.operator.index import Index
from reconciler.operator.job_record import JobRecord, Phase
from reconciler.operator.process.metrics import Metrics
from reconciler.operator.process.reconcilers import build
from reconciler.operator.settings import OperatorSettings
from reconciler.operator.stored import StoredDocuments
from reconciler.operator.work import LAUNCH_KEY, Key, Reconcilers, Work
from reconciler.plan.ledger import ReadCheck, Reservation
from reconciler.plan.run_ids import run_reservation
from reconciler.table.audits import AUDIT, AUDIT_BASE, AUDIT_PLAN, AUDIT_WAITS
from tests.cluster.fixtures import eventually
from tests.operator.fake_api import FakeApi, FakeServer
from tests.said import Said

NAMESPACE = "analytics"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    monkeypatch.setenv("LAYOUTCTL_CACHE", str(tmp_path / "cache"))
    catalog = SqlCatalog(
        "lake", uri=f"sqlite:///{tmp_path}/lake.db?timeout=30", warehouse=f"file://{tmp_path}/wh"
    )
    catalog.create_namespace("sales")
    schema = pa.schema([("id", pa.int64()), ("city", pa.string())])
    table = catalog.create_table("sales.orders", schema)
    for start in range(6):
        ids = list(range(start, 12_000, 6))
        table.append(pa.table({"id": ids, "city": [f"c{n % 97}" for n in ids]}, schema=schema))
    return catalog


class Cluster:
    """A fake server with one operator; `secret` holds what the document must not."""

    def __init__(self, tmp_path: Path, local_files: bool = True):
        self.server = FakeServer(lambda: dt.datetime.now(dt.UTC))
        self.api = FakeApi(self.server)
        self.index = Index()
        self.metrics = Metrics()
        self.path = tmp_path
        self.local_files = local_files
        self.reconcilers = self.start()

    def start(self) -> Reconcilers:
        settings = OperatorSettings(
            max_jobs=4, max_rewrite_bytes=1 << 40, namespaces=(NAMESPACE,), namespace=NAMESPACE,
            cluster_wide=False, image="jobs:1", local_files=self.local_files,
            allowed_networks=networks(["127.0.0.1"]), catalog_deadline=120.0,
        )  # fmt: skip
        runtime: Any = SimpleNamespace(
            api=self.api, index=self.index, settings=settings, metrics=self.metrics,
            enqueue=lambda key, due: None, held=lambda: True, stopping=lambda: False,
        )  # fmt: skip
        return build(runtime)

    def apply(self, log: str = "", **policy: Any) -> None:
        sources = [{"name": "log", "type": "SqlLog", "uri": log, "dialect": "spark"}]
        catalog: dict[str, Any] = {
            "metadata": {"name": "warehouse", "namespace": NAMESPACE},
            "spec": {
                "type": "sql",
                "catalogName": "lake",
                "properties": {
                    "uri": f"sqlite:///{self.path}/lake.db",
                    "warehouse": f"file://{self.path}/wh",
                },
                **({"workload": {"sources": sources}} if log else {}),
            },
        }
        spec = {
            "catalogRef": {"name": "warehouse"},
            "tables": {"include": ["sales.*"]},
            "layout": {
                "clustering": {"mode": "Declared", "keys": ["id"]},
                "files": {"quietPeriod": "0s"},
            },
            **policy,
        }
        self.server.put(CATALOG, catalog)
        self.server.put(
            POLICY, {"metadata": {"name": "facts", "namespace": NAMESPACE}, "spec": spec}
        )

    def turn(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            for kind, work in (
                (CATALOG, Work.CATALOG), (POLICY, Work.POLICY), (TABLE_LAYOUT, Work.LAYOUT)
            ):  # fmt: skip
                for body in self.server.all(kind):
                    self.index.put(kind, body)
                for body in self.server.all(kind):
                    key = Key(work, NAMESPACE, body["metadata"]["name"])
                    self.reconcilers.of(work)(key)
            self.reconcilers.launch(LAUNCH_KEY)

    def layout(self) -> dict[str, Any]:
        (found,) = self.server.all(TABLE_LAYOUT)
        return found

    def condition(self, kind: Any, name: str) -> dict[str, Any]:
        conditions = self.server.all(kind)[0].get("status", {}).get("conditions", ())
        return next((c for c in conditions if c["type"] == name), {})


def run_of(job: dict[str, Any]) -> RunDocument:
    environment = job["spec"]["template"]["spec"]["containers"][0]["env"]
    text = next(item["value"] for item in environment if item["name"] == "LAYOUT_RUN")
    return read_run(text.replace("$$", "$"))


def test_a_table_is_found_planned_published_and_started_on_approval(
    lake: Any, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path)
    cluster.apply(budgets=[{"name": "daily", "per": "24h", "maxRewriteBytes": "10Gi"}])
    cluster.turn(3)
    assert cluster.condition(CATALOG, "Ready")["status"] == "True"
    assert cluster.condition(TABLE_LAYOUT, "Converged")["reason"] == "AwaitingApproval"
    status = cluster.layout()["status"]
    plan = status["plan"]
    assert Path(plan["uri"].removeprefix("file://")).is_file()
    assert plan["actions"][0]["files"] == 6
    lake.load_table("sales.orders").append(
        pa.table({"id": [99_999], "city": ["x"]}, schema=pa.schema(
            [("id", pa.int64()), ("city", pa.string())]))
    )  # fmt: skip
    cluster.turn(2)
    assert cluster.layout()["status"]["plan"]["id"] == plan["id"]
    cluster.apply(approval={"mode": "Manual", "approvedPlans": [plan["id"]]})
    cluster.turn(3)
    (job,) = cluster.server.all(JOB)
    run = run_of(job)
    assert (run.plan_id, run.plan_uri, run.plan_digest) == (plan["id"], plan["uri"], plan["digest"])
    assert lake.load_table("sales.orders").properties["layout.owner"] == run.owner
    assert cluster.condition(TABLE_LAYOUT, "Approved")["reason"] == "ApprovedByDocument"


@pytest.mark.parametrize("asked", ["Local", "Auto"])
def test_an_engine_that_is_asked_for_while_a_plan_waits_carries_it_out(
    lake: Any, tmp_path: Path, asked: str
) -> None:
    """Auto takes Local for a plan that fits one pod."""
    cluster = Cluster(tmp_path)
    cluster.apply(engine={"type": "Spark"})
    cluster.turn(3)
    plan = cluster.layout()["status"]["plan"]["id"]
    budgets = [{"name": "daily", "per": "24h", "maxRewriteBytes": "10Gi"}]
    cluster.apply(engine={"type": asked}, approval={"mode": "Automatic"}, budgets=budgets)
    cluster.turn(3)
    (job,) = cluster.server.all(JOB)
    run = run_of(job)
    assert (run.plan_id, run.engine) == (plan, EngineType.LOCAL)


def test_a_plan_that_no_longer_stands_is_reported_with_the_difference(
    lake: Any, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path)
    cluster.apply()
    cluster.turn(3)
    plan = cluster.layout()["status"]["plan"]["id"]
    lake.load_table("sales.orders").delete("id < 100")
    cluster.apply(approval={"mode": "Manual", "approvedPlans": [plan]})
    cluster.turn(2)
    approved = cluster.condition(TABLE_LAYOUT, "Approved")
    standing = cluster.layout()["status"]["plan"]["id"]
    assert approved["reason"] == "PlanChanged" and standing != plan
    assert approved["message"].startswith(f"{plan} ") and standing in approved["message"]
    assert "lost" in approved["message"]
    assert not cluster.server.all(JOB)
    cluster.apply(approval={"mode": "Manual", "approvedPlans": [plan, standing]})
    cluster.turn(2)
    (job,) = cluster.server.all(JOB)
    assert run_of(job).plan_id == standing


def _commit_to_branch(table: Any, plan: dict[str, Any]) -> None:
    """As the job does under safety.approval: its result on branch audit, main as it was."""
    stored = json.loads(Path(plan["uri"].removeprefix("file://")).read_text())
    head = table.current_snapshot().snapshot_id
    table.manage_snapshots().create_branch(head, "audit").commit()
    summary = {
        AUDIT: f"{plan['id']}-1/1", AUDIT_PLAN: plan["id"], AUDIT_BASE: str(head),
        AUDIT_WAITS: stored["policyHash"],
    }  # fmt: skip
    files = [task.file for task in table.scan().plan_files()]
    with table.transaction() as work:
        made = work.update_snapshot(summary, "audit").overwrite()
        for file in files:
            made.delete_data_file(file)
        made.commit()


ON_BRANCH = {"branch": "audit", "approval": "Required"}


@pytest.fixture
def waiting(lake: Any, tmp_path: Path) -> Cluster:
    """A cluster in which the result of the plan in its status waits on branch audit."""
    cluster = Cluster(tmp_path)
    cluster.apply(safety=ON_BRANCH)
    cluster.turn(3)
    _commit_to_branch(lake.load_table("sales.orders"), cluster.layout()["status"]["plan"])
    return cluster


def test_a_result_on_a_branch_is_published_by_an_approval_of_its_own(waiting: Cluster) -> None:
    """The approved plan still fits the table, for main is as it was; it is not run again."""
    cluster, plan = waiting, waiting.layout()["status"]["plan"]
    approval = {"mode": "Manual", "approvedPlans": [plan["id"]]}
    cluster.apply(safety=ON_BRANCH, approval=approval)
    cluster.turn(3)
    waits = cluster.layout()["status"]["plan"]
    assert [action["type"] for action in waits["actions"]] == ["Publish"]
    approved = cluster.condition(TABLE_LAYOUT, "Approved")
    assert (approved["status"], approved["reason"]) == ("False", "AwaitingApproval")
    assert cluster.condition(TABLE_LAYOUT, "Converged")["reason"] == "AwaitingApproval"
    assert not cluster.server.all(JOB)
    approval["approvedPlans"].append(waits["id"])
    cluster.apply(safety=ON_BRANCH, approval=approval)
    cluster.turn(3)
    (job,) = cluster.server.all(JOB)
    assert job["metadata"]["labels"][PLAN_LABEL] == waits["id"]


def test_housekeeping_is_planned_shown_and_started_as_a_job(lake: Any, tmp_path: Path) -> None:
    """The driver gets exactly the plan that was shown: its kinds, snapshots and files."""
    table = lake.load_table("sales.orders")
    orphan = Path(table.location().removeprefix("file://")) / "data" / "left.parquet"
    orphan.write_bytes(b"x" * 1_000)
    os.utime(orphan, (0, 0))
    cluster, upkeep = Cluster(tmp_path), {
        "layout": {"clustering": {"mode": "None"}, "files": {"minInputFiles": 100}},
        "maintenance": {
            "rewriteManifests": "Auto",
            "expireSnapshots": {"olderThan": "0s", "retainLast": 2},
            "removeOrphans": {"olderThan": "24h"},
        },
    }  # fmt: skip
    cluster.apply(**upkeep)
    cluster.turn(3)
    status = cluster.layout()["status"]
    kinds = ["RewriteManifests", "ExpireSnapshots", "RemoveOrphans"]
    assert [line["type"] for line in status["plan"]["actions"]] == kinds
    assert cluster.condition(TABLE_LAYOUT, "Converged")["reason"] == "AwaitingApproval"
    assert not cluster.server.all(JOB)
    cluster.apply(**upkeep, approval={"mode": "Manual", "approvedPlans": [status["plan"]["id"]]})
    cluster.turn(3)
    (job,) = cluster.server.all(JOB)
    plans = opened_by(cluster).actor.plans
    run = run_of(job)
    actions = {item.id: item.action for item in load_plan(run, plans).actions}
    admitted = [actions[key] for key in run.action_ids]
    assert [one.kind for one in admitted] == kinds
    manifests, snapshots, orphans = admitted
    assert (len(manifests.inputs), len(snapshots.snapshots)) == (6, 4)
    assert [path.rpartition("/")[2] for path in orphans.files] == ["left.parquet"]
    assert orphan.exists(), "nothing is done before the Job"


def test_a_result_whose_files_are_gone_is_dropped_and_never_offered(
    lake: Any, waiting: Cluster
) -> None:
    """Its commit reached the branch after another run had settled it and removed its files."""
    cluster, table = waiting, lake.load_table("sales.orders")
    late = table.snapshot_by_id(table.refs()["audit"].snapshot_id)
    Path(late.manifest_list.removeprefix("file://")).unlink()
    cluster.apply(safety=ON_BRANCH, maintenance={"removeOrphans": {}})  # would read all manifests
    cluster.turn(3)
    plan = cluster.layout()["status"]["plan"]
    assert [action["type"] for action in plan["actions"]] == ["Discard"]
    assert len(cluster.server.all(JOB)) == 1


def _expire_all_but_the_head(table: Any) -> None:
    head = table.refresh().current_snapshot().snapshot_id
    old = [item.snapshot_id for item in table.metadata.snapshots if item.snapshot_id != head]
    table.maintenance.expire_snapshots().by_ids(old).commit()


def test_an_approved_plan_whose_snapshot_expired_is_replaced_and_awaits_approval(
    lake: Any, tmp_path: Path, said: Said
) -> None:
    cluster = Cluster(tmp_path)
    cluster.apply()
    cluster.turn(3)
    plan = cluster.layout()["status"]["plan"]["id"]
    table = lake.load_table("sales.orders")
    table.append(table.scan(row_filter="id < 6000").to_arrow())
    _expire_all_but_the_head(table)
    cluster.apply(approval={"mode": "Manual", "approvedPlans": [plan]})
    cluster.turn(3)
    approved = cluster.condition(TABLE_LAYOUT, "Approved")
    assert (approved["status"], approved["reason"]) == ("False", "PlanChanged")
    assert plan in approved["message"]
    said(approved["message"])
    proposed = cluster.layout()["status"]["plan"]["id"]
    assert proposed != plan
    assert not cluster.server.all(JOB)
    cluster.apply(approval={"mode": "Manual", "approvedPlans": [proposed]})
    cluster.turn(3)
    assert len(cluster.server.all(JOB)) == 1


def test_an_approved_plan_that_is_proposed_again_on_a_newer_snapshot_runs(
    lake: Any, tmp_path: Path
) -> None:
    """Its id covers what is done, not the snapshot: the approval holds, and the job gets the plan
    that stands."""
    cluster = Cluster(tmp_path)
    cluster.apply()
    cluster.turn(3)
    plan = cluster.layout()["status"]["plan"]
    table = lake.load_table("sales.orders")
    table.append(table.schema().as_arrow().empty_table())
    _expire_all_but_the_head(table)
    cluster.apply(approval={"mode": "Manual", "approvedPlans": [plan["id"]]})
    cluster.turn(3)
    (job,) = cluster.server.all(JOB)
    run = run_of(job)
    assert run.plan_id == plan["id"] and run.plan_digest != plan["digest"]
    stored = json.loads(Path(run.plan_uri.removeprefix("file://")).read_text())
    assert stored["baseSnapshotId"] == str(table.refresh().current_snapshot().snapshot_id)


def test_a_plan_that_only_time_has_voided_is_reported_as_expired(lake: Any, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    short = {"mode": "Manual", "planTTL": "1s"}
    cluster.apply(approval=short)
    cluster.turn(3)
    plan = cluster.layout()["status"]["plan"]
    expires = dt.datetime.fromisoformat(plan["expiresAt"].replace("Z", "+00:00"))
    eventually(lambda: dt.datetime.now(dt.UTC) > expires + dt.timedelta(seconds=1))
    table = lake.load_table("sales.orders")
    table.append(table.scan(row_filter="id < 600").to_arrow())
    cluster.apply(approval={**short, "approvedPlans": [plan["id"]]})
    cluster.turn(2)
    approved = cluster.condition(TABLE_LAYOUT, "Approved")
    assert approved["reason"] == "PlanExpired"
    assert plan["id"] in approved["message"] and "planTTL" in approved["message"]
    assert not cluster.server.all(JOB)


def test_a_catalog_that_goes_away_leaves_unknown_and_comes_back(lake: Any, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.apply()
    cluster.turn(3)
    database = tmp_path / "lake.db"
    plan = cluster.layout()["status"]["plan"]["id"]
    database.rename(tmp_path / "away.db")
    cluster.apply(approval={"mode": "Manual", "approvedPlans": [plan]})
    cluster.turn(2)
    for kind in (CATALOG, POLICY, TABLE_LAYOUT):
        assert cluster.condition(kind, "Ready")["status"] == "False"
    assert cluster.condition(TABLE_LAYOUT, "Converged")["status"] != "True"
    assert cluster.layout()["status"]["plan"]["id"] == plan and not cluster.server.all(JOB)
    (tmp_path / "away.db").rename(database)
    cluster.turn(3)
    assert cluster.condition(CATALOG, "Ready")["reason"] == "CatalogReachable"
    assert cluster.condition(POLICY, "Ready")["reason"] == "Observed"
    (job,) = cluster.server.all(JOB)
    assert run_of(job).plan_id == plan


def test_local_files_are_refused_in_the_cluster(lake: Any, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, local_files=False)
    cluster.apply()
    cluster.turn(2)
    assert cluster.condition(CATALOG, "Stalled")["reason"] == "InvalidSpec"
    assert cluster.condition(POLICY, "Ready")["reason"] == "InvalidSpec"
    assert not cluster.server.all(TABLE_LAYOUT)


def test_queries_are_imported_once_and_a_failing_source_says_so(lake: Any, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    now = dt.datetime.now(dt.UTC).replace(microsecond=0).isoformat()
    line = json.dumps({"sql": "SELECT city FROM sales.orders WHERE id = 7", "timestamp": now})
    (logs / "a.json").write_text((line + "\n") * 3)
    cluster = Cluster(tmp_path)
    cluster.apply(log=f"file://{logs}")

    def fresh() -> dict[str, Any]:
        cluster.turn()
        return cluster.condition(CATALOG, "WorkloadFresh")

    eventually(lambda: fresh()["status"] == "True", 60)
    stored = cluster.server.all(CATALOG)[0]["status"]["workload"]
    assert stored == {"version": 1}
    eventually(lambda: cluster.turn() or "workload" in cluster.layout()["status"]["observed"], 60)
    assert cluster.layout()["status"]["observed"]["workload"]["queries"] == 3
    cluster.reconcilers = cluster.start()
    cluster.apply(log=f"file://{tmp_path}/nowhere")
    eventually(lambda: fresh()["status"] == "False", 60)
    assert fresh()["reason"] == "ImportFailed"


def test_the_reconcilers_own_tables_are_not_listed(lake: Any, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.apply()
    cluster.turn(3)
    assert lake.list_tables("layout_reconciler")
    lake.create_namespace(("layout_reconciler", "older"))
    lake.create_table(("layout_reconciler", "older", "ledger"), pa.schema([("id", pa.int64())]))
    assert opened_by(cluster).listing() == [("sales", "orders")]


def opened_by(cluster: Cluster) -> LiveHandle:
    catalogs = LiveCatalogs(
        cluster.api, cluster.index, SimpleNamespace(), StoredDocuments(), Reach(local_files=True)
    )  # type: ignore[arg-type]
    opened = catalogs.open(NAMESPACE, "warehouse", cluster.server.all(CATALOG)[0])
    assert isinstance(opened, LiveHandle)
    return opened


def test_the_reading_after_a_plan_is_the_last_of_its_run(lake: Any, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.apply()
    cluster.turn()
    opened = opened_by(cluster)
    began = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
    start = int(began.timestamp() * 1000)
    for plan, at, read in (("p-1", -1, 1), ("p-1", 9, 3), ("p-1", 5, 2), ("p-2", 20, 4)):
        check = ReadCheck(plan, start + at, 100, 50, read, True)
        opened.store.record_read_check("uuid", check)
    record = JobRecord("j", "u", "p-1", "d", 1, Phase.RUNNING, began, 1, 1)
    _, found = opened.end_run("uuid", record)
    assert found is not None and found.actual == 3
    later = replace(record, written=began + dt.timedelta(hours=1))
    for other in (replace(record, plan_id="p-3"), later):
        assert opened.end_run("uuid", other) == ((), None)


def test_a_run_that_left_its_reservation_open_counts_as_of_its_end(
    lake: Any, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path)
    cluster.apply()
    cluster.turn()
    opened = opened_by(cluster)
    now = dt.datetime.now(dt.UTC)
    record = JobRecord("j", "u", "p-1", "d", 1, Phase.RUNNING, now, 1, 1)
    number = run_reservation("p-1", 1, int(now.timestamp() * 1e6))
    opened.store.reserve(Reservation(number, "uuid", "p-1", "ns/p", 7, 1.0))
    (open_one,) = opened.open_reservations()
    assert open_one.ended_ms is None
    opened.end_run("uuid", replace(record, attempt=2))
    assert opened.open_reservations() == (open_one,)
    opened.end_run("uuid", record)
    (ended,) = opened.open_reservations()
    assert not ended.settled and ended.ended_ms is not None
    (spent,) = opened.spent("ns/p", "")
    assert spent.rewrite_bytes == 7 and spent.at.timestamp() * 1000 == ended.ended_ms


def test_old_plans_go_when_their_retention_is_over_and_the_one_in_use_stays(
    lake: Any, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path)
    cluster.apply()
    cluster.turn(3)
    (standing,) = tmp_path.rglob("p-*.json")
    long_ago = (dt.datetime.now() - dt.timedelta(days=31)).timestamp()
    digest = "0" * 64
    left = standing.with_name(f"p-{'0' * 20}-{digest}.json")
    recent = standing.with_name(f"p-{'1' * 20}-{digest}.json")
    for path in (left, recent):
        path.write_text("{}")
    for path in (left, standing):
        os.utime(path, (long_ago, long_ago))
    cluster.reconcilers = cluster.start()  # the next day, as it were
    cluster.turn()
    assert set(standing.parent.glob("p-*.json")) == {standing, recent}
