"""A world for the controller: fake API server, tables that remember what was done to them, jobs
that are carried out or killed, ledgers, a clock that tests move, and operators that may crash."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from reconciler.api.documents import IcebergCatalog, TableLayoutPolicy
from reconciler.api.run_document import RecommendRun, RunDocument, read_job, read_recommend_run
from reconciler.catalog.pointer import Pointer
from reconciler.kube.kinds import CATALOG, JOB, POD, POLICY, TABLE_LAYOUT
from reconciler.kube.names import table_layout_name
from reconciler.kube.termination_message import Cause, LastWords
from reconciler.operator.index import Index
from reconciler.operator.job_record import JobRecord, began, own_reservation
from reconciler.operator.launch.launcher import Launcher
from reconciler.operator.layout.endings import Endings
from reconciler.operator.layout.gathering import Gatherer
from reconciler.operator.layout.plan_status import plan_status
from reconciler.operator.layout.reconcile import Layouts
from reconciler.operator.layout.writer import LayoutWriter
from reconciler.operator.ports import CutShort, Problem, Run
from reconciler.operator.process.metrics import Metrics
from reconciler.operator.proposal_summary import NOTHING_TO_DO, ProposalSummary
from reconciler.operator.spending.stored_book import Spending
from reconciler.operator.status_text import parse_time, utc
from reconciler.operator.stored import StoredDocuments, read_stored
from reconciler.operator.work import LAUNCH_KEY, Key, Work
from reconciler.plan.actions.rewrite import BinPack
from reconciler.plan.budget import Spent
from reconciler.plan.execution import COMMITTED, Outcome
from reconciler.plan.ledger import Charged, LedgerEntry, ReadCheck, Reservation, charged
from reconciler.plan.plan import DeleteState, Plan, PlannedAction, plan_id, policy_hash
from reconciler.plan.prediction import Prediction
from reconciler.plan.run_ids import run_reservation
from reconciler.table.schema import Schema
from tests.operator.fake_api import FakeApi, FakeServer

GIB = 1 << 30
PLAN_TTL = dt.timedelta(days=7)
NAMESPACE = "analytics"
START = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)


@dataclass
class FakeTable:
    """pending: (action id, bytes in, saving) still to be done; version: of its metadata. waits,
    revisit: what a quiet period holds back, and until when: only then it is pending."""

    uuid: str
    pending: list[tuple[str, int]] = field(default_factory=list)
    version: int = 1
    owner: str = ""
    paused: str = ""
    other: str = ""
    waits: str = ""
    revisit: dt.datetime | None = None
    queries: int = 0

    def observed(self, items: int, now: dt.datetime) -> dict[str, Any]:
        body: dict[str, Any] = {"files": items, "time": utc(now)}
        if self.queries:
            body["workload"] = {"queries": self.queries, "until": utc(START)}
        return body


@dataclass
class FakeCatalog:
    """A `CatalogHandle` over tables in memory and a ledger."""

    world: World
    document: IcebergCatalog
    tables: dict[tuple[str, ...], FakeTable] = field(default_factory=dict)
    ledger: list[LedgerEntry] = field(default_factory=list)
    checks: list[ReadCheck] = field(default_factory=list)
    reserved: list[Reservation] = field(default_factory=list)
    version: str = "1"
    looks: int = 0
    glances: int = 0
    workload: int = 0
    approvals: set[str] = field(default_factory=set)
    policies: dict[str, str] = field(default_factory=dict)
    open_attempts: set[str] = field(default_factory=set)
    digests: dict[str, str] = field(default_factory=dict)
    created: dict[str, dt.datetime] = field(default_factory=dict)
    error: Exception | None = None

    def _answer(self) -> None:
        if self.error is not None:
            raise self.error

    def listing(self) -> list[tuple[str, ...]]:
        self._answer()
        return sorted(self.tables)

    def glance(self, table: tuple[str, ...]) -> Pointer | None:
        self._answer()
        self.glances += 1
        found = self.tables.get(table)
        return (
            None
            if found is None
            else Pointer(found.uuid, f"v{found.version}", found.owner, found.paused)
        )

    def evidence_version(self, uuid: str, max_age: float) -> str:
        return f"{self.workload}"

    def look(
        self,
        table: tuple[str, ...],
        policy: TableLayoutPolicy,
        fingerprint: str,
        approved: Sequence[str],
        now: dt.datetime,
    ) -> ProposalSummary:
        self._answer()
        self.looks += 1
        found = self.tables[table]
        items = tuple(
            PlannedAction(
                name,
                BinPack(inputs=(f"{name}-in",)),
                DeleteState(0, 0, 0),
                Prediction(bytes_in=size, cpu_millis=size // (1 << 20)),
            )
            for name, size in found.pending
            if found.revisit is None or now >= found.revisit
        )
        digest = policy_hash(policy)
        proposed = plan_id(found.uuid, digest, [item.action for item in items])
        created = self.created.setdefault(proposed, now)
        if now >= created + PLAN_TTL:  # proposed again, with the same id
            created = self.created[proposed] = now
        plan = Plan(
            id=proposed,
            catalog="warehouse", table=table, table_uuid=found.uuid, policy_hash=digest,
            policy=policy.name, base_snapshot_id=found.version, created=created,
            expires=created + PLAN_TTL, actions=items,
        )  # fmt: skip
        uri = f"mem:///{plan.id}"
        self.digests[plan.id] = plan.digest()
        return ProposalSummary(
            fingerprint=fingerprint, uuid=found.uuid, format_version=2, plan=plan, pending=items,
            digest=plan.digest() if items else "", uri=uri,
            observed=found.observed(len(items), now), other=found.other,
            plan_status=(
                plan_status(plan, items, plan.digest(), uri, Schema(0, ())) if items else None
            ),
            rests=(NOTHING_TO_DO[0], f"nothing to do now; {found.waits}") if found.waits
            else NOTHING_TO_DO,
            revisit=found.revisit if not items else None,
            saving_per_byte=1.0,
        )  # fmt: skip

    def approved(self, plan_id: str, policy: str) -> bool:
        return plan_id in self.approvals

    def owner(self) -> str:
        return "us"

    def claim(self, table: tuple[str, ...], uuid: str) -> str:
        found = self.tables[table]
        found.owner = found.owner or "us"
        return found.owner

    def spent(self, policy: str, uuid: str) -> tuple[Spent, ...]:
        self._answer()
        found, now = self._charged(), self.world.now
        return tuple(c.at(now) for c in found if c.policy == policy or c.table_uuid == uuid)

    def automatic_spent(self, uuid: str, since: dt.datetime, approved: Collection[str]) -> int:
        asked = {*approved, *self.approvals}
        return sum(
            c.spent.rewrite_bytes for c in self._charged()
            if c.table_uuid == uuid and c.at(self.world.now).at >= since and c.plan_id not in asked
        )  # fmt: skip

    def end_run(self, uuid: str, record: JobRecord) -> Run:
        self._answer()
        reserved = [held for held in self.reserved if held.table_uuid == uuid]
        start = began(record, reserved)
        entries = tuple(
            e for e in self.ledger
            if e.table_uuid == uuid and e.plan_id == record.plan_id and e.at_ms >= start
        )  # fmt: skip
        own = own_reservation(record, reserved)
        if own is not None and own.ended_ms is None:
            at = int(self.world.now.timestamp() * 1000)
            ended = replace(own, ended_ms=at)
            self.reserved = [ended if held is own else held for held in self.reserved]
        read = (one for one in reversed(self.checks) if one.plan_id == record.plan_id)
        return entries, next(read, None)

    def cut_short(self, uuid: str) -> CutShort | None:
        held = [item for item in self.open_reservations() if item.table_uuid == uuid]
        if not held or uuid not in self.open_attempts:
            return None
        plan = held[-1].plan_id
        return CutShort(plan, self.digests[plan], f"mem:///{plan}")

    def open_reservations(self) -> tuple[Reservation, ...]:
        self._answer()
        return tuple(item for item in self.reserved if not item.settled)

    def _charged(self) -> tuple[Charged, ...]:
        return charged(self.ledger, self.reserved)

    def record(
        self, uuid: str, plan: str, attempt: str, policy: str, action: str, state: str, size: int,
        cpu: float,
    ) -> None:  # fmt: skip
        outcome = Outcome(attempt, 0, action, state, None, size, size, 1, 1, 1, cpu, 1.0)
        at = int(self.world.now.timestamp() * 1000)
        self.ledger.append(LedgerEntry(uuid, plan, at, outcome, Prediction(policy=policy)))


@dataclass
class Operator:
    """One process: its own index, memory and connection; `leads` is what it believes."""

    api: FakeApi
    index: Index
    layouts: Layouts
    launcher: Launcher
    leads: bool = True
    asked: list[Key] = field(default_factory=list)


class World:
    def __init__(self, **policy: Any):
        self.now = START
        self.server = FakeServer(lambda: self.now)
        self.catalogs: dict[str, FakeCatalog] = {}
        self.catalog_body = self._catalog(NAMESPACE)
        self.catalog = self.catalogs[NAMESPACE]
        self.problem: Problem | None = None
        self.stale = ""
        self.documents = StoredDocuments()
        self.max_jobs, self.cap = 4, 1 << 40
        self.reservations: dict[str, str] = {}
        """By the uid of a Job the id of what its driver reserved."""
        self.spending: list[tuple[dt.datetime, int, dt.datetime]] = []
        """When bytes were rewritten, how many, and since when their job was there."""
        self.policy(**policy)

    def _catalog(self, namespace: str) -> dict[str, Any]:
        body = self.server.put(
            CATALOG,
            {
                "metadata": {"name": "warehouse", "namespace": namespace},
                "spec": {
                    "type": "rest",
                    "catalogName": "warehouse",
                    "properties": {"uri": "http://catalog", "warehouse": "w"},
                    "jobs": {"image": "jobs:1"},
                },
            },
        )
        document = read_stored(body, "IcebergCatalog")
        assert isinstance(document, IcebergCatalog), document
        self.catalogs[namespace] = FakeCatalog(self, document)
        return body

    def tenant(self, namespace: str, **policy: Any) -> FakeCatalog:
        """Another watched namespace, with a catalog and a policy of its own."""
        self._catalog(namespace)
        self.policy(namespace=namespace, **policy)
        return self.catalogs[namespace]

    def policy(self, name: str = "facts", namespace: str = NAMESPACE, **spec: Any) -> None:
        small = {"mode": "Manual", "automaticUpTo": {"rewriteBytes": "1Pi"}}
        approval = spec.pop("approval", small)
        body = {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "catalogRef": {"name": "warehouse"},
                "tables": {"include": ["sales.*"]},
                "approval": approval,
                **spec,
            },
        }
        key = (POLICY.plural, namespace, name)
        if key in self.server.objects:
            body["metadata"]["uid"] = self.server.objects[key]["metadata"]["uid"]
        self.server.put(POLICY, body)

    def table(
        self, name: str, *sizes: int, policy: str = "facts", namespace: str = NAMESPACE
    ) -> str:
        """A table with one pending action per size, and its TableLayout; name of the latter."""
        pending = [(f"a{n:02d}", size) for n, size in enumerate(sizes, 1)]
        self.catalogs[namespace].tables["sales", name] = FakeTable(f"uuid-{name}", pending)
        return self.table_layout(name, policy, namespace)

    def table_layout(self, name: str, policy: str = "facts", namespace: str = NAMESPACE) -> str:
        layout = table_layout_name("warehouse", ("sales", name))
        self.server.put(
            TABLE_LAYOUT,
            {
                "metadata": {"name": layout, "namespace": namespace},
                "spec": {
                    "catalogRef": {"name": "warehouse"},
                    "table": {"namespace": ["sales"], "name": name},
                    "policyRef": {"name": policy, "generation": 1},
                },
                "status": {"observedGeneration": -1},
            },
        )
        return layout

    def operator(self, api: FakeApi | None = None) -> Operator:
        """A process that has just started and listed everything."""
        connection = api or FakeApi(self.server)
        index = Index()
        asked: list[Key] = []
        operator: Operator
        settings = SimpleNamespace(
            max_jobs=self.max_jobs, max_rewrite_bytes=self.cap, namespaces=tuple(self.catalogs),
            namespace=NAMESPACE, cluster_wide=False, image="", driver_service_account="driver",
            executor_service_account="executor",
            local_files=False, allowed_networks=(), lease="lease", kept_share=0.25, turn=3600.0,
        )  # fmt: skip
        runtime: Any = SimpleNamespace(
            api=connection, index=index, settings=settings, metrics=Metrics(),
            enqueue=lambda key, due: asked.append(key),
            held=lambda: operator.leads, stopping=lambda: False,
        )  # fmt: skip

        def clock() -> dt.datetime:
            return self.now

        gatherer = Gatherer(runtime, self, self.documents, clock, Spending(runtime, clock))
        endings = Endings(LayoutWriter(gatherer))
        launcher = Launcher(endings)
        layouts = Layouts(endings, launcher.offer, launcher.create_again)
        operator = Operator(connection, index, layouts, launcher, asked=asked)
        self.relist(operator)
        return operator

    def relist(self, operator: Operator) -> None:
        for kind in (POLICY, TABLE_LAYOUT, CATALOG, JOB, POD):
            present = self.server.all(kind)
            names = {(b["metadata"]["namespace"], b["metadata"]["name"]) for b in present}
            for name in operator.index.names(kind):
                if name not in names:
                    store = operator.index._stores[kind]
                    store.remove(name)
            for body in present:
                operator.index.put(kind, body)

    # Catalogs

    def handle(self, namespace: str, name: str) -> Any:
        return self.problem or self.catalogs[namespace]

    def workload_stale(self, namespace: str, name: str) -> str:
        return self.stale

    # Time passing

    def turn(self, operator: Operator, rounds: int = 1) -> None:
        """Every table reconciled, then admission, as often as asked."""
        for _ in range(rounds):
            self.relist(operator)
            for body in self.server.all(TABLE_LAYOUT):
                meta = body["metadata"]
                self.reconcile(operator, meta["name"], meta["namespace"])
            operator.launcher.reconcile(LAUNCH_KEY)

    def reconcile(self, operator: Operator, layout: str, namespace: str = NAMESPACE) -> Any:
        return operator.layouts.reconcile(Key(Work.LAYOUT, namespace, layout))

    def layout(self, name: str, namespace: str = NAMESPACE) -> dict[str, Any]:
        return self.server.objects[(TABLE_LAYOUT.plural, namespace, name)]

    def converged(self, name: str, namespace: str = NAMESPACE) -> str:
        """Reason of Converged."""
        return self.condition(name, "Converged", namespace).get("reason", "")

    def condition(self, name: str, kind: str, namespace: str = NAMESPACE) -> dict[str, Any]:
        conditions = self.layout(name, namespace).get("status", {}).get("conditions", ())
        return next((c for c in conditions if c["type"] == kind), {})

    def jobs(self) -> list[dict[str, Any]]:
        return self.server.all(JOB)

    def living(self) -> list[dict[str, Any]]:
        return [job for job in self.jobs() if not job.get("status", {}).get("conditions")]

    # What the cluster does with Jobs

    def started(self, operator: Operator, rounds: int = 1) -> dict[str, Any]:
        """The one Job that the operator creates in so many rounds; its pod runs."""
        self.turn(operator, rounds)
        (job,) = self.jobs()
        self.start(job)
        return job

    def start(self, job: dict[str, Any]) -> None:
        """The Job controller makes the pod, the kubelet runs it, the driver reserves."""
        meta = job["metadata"]
        run = read_job(run_text(job))
        if isinstance(run, RunDocument):
            self._reserved(meta["uid"], run, self.catalogs[meta["namespace"]])
        self.server.put(
            POD,
            {
                "metadata": {
                    "name": f"{meta['name']}-pod",
                    "namespace": meta["namespace"],
                    "labels": dict(meta["labels"]),
                    "ownerReferences": [{"kind": "Job", "uid": meta["uid"]}],
                },
                "status": {"phase": "Running"},
            },
        )

    def _reserved(self, uid: str, run: RunDocument, catalog: FakeCatalog) -> None:
        begun = int(self.now.timestamp() * 1e6)
        self.reservations[uid] = run_reservation(run.plan_id, run.attempt, begun)
        table = catalog.tables[run.table]
        catalog.open_attempts.discard(table.uuid)  # the first thing that a driver does
        sizes = [size for action, size in table.pending if action in run.action_ids]
        catalog.reserved.append(
            Reservation(
                id=self.reservations[uid],
                table_uuid=table.uuid,
                plan_id=run.plan_id,
                policy=run.policy_key,
                rewrite_bytes=sum(sizes),
                cpu_seconds=float(len(sizes)),
                at_ms=int(self.now.timestamp() * 1000),
            )
        )

    def recommends(self, job: dict[str, Any], **found: Any) -> None:
        """The recommend job ends with this summary."""
        run = read_recommend_run(run_text(job))
        self._ended(job, None, json.dumps({"recommendation": {"id": run.run_id, **found}}))

    def end(
        self,
        job: dict[str, Any],
        actions: int = 99,
        words: LastWords | None = None,
        state: str = COMMITTED,
    ) -> None:
        """The driver commits its first actions and ends. words: of a failure, None for success.
        A cause of Unknown stands for a kill: no words, and of the last action no record. state: of
        the outcomes."""
        run = read_job(run_text(job))
        if isinstance(run, RecommendRun):
            assert words is not None
            self._ended(job, words)
            return
        catalog = self.catalogs[job["metadata"]["namespace"]]
        table = catalog.tables[run.table]
        killed = words is not None and words.cause is Cause.UNKNOWN
        ids = [a for a in run.action_ids if a in dict(table.pending)][:actions]
        attempt = f"{run.plan_id}-{int(self.now.timestamp() * 1e6):x}-1"
        for number, action in enumerate(ids):
            size = dict(table.pending)[action]
            if not (killed and number == len(ids) - 1):
                catalog.record(
                    table.uuid, run.plan_id, attempt, run.policy_key, action, state, size, 1.0
                )
            begun = parse_time(job["metadata"]["creationTimestamp"]) or self.now
            self.spending.append((self.now, size, begun))
            table.pending = [item for item in table.pending if item[0] != action]
            table.version += 1
        if killed:
            catalog.open_attempts.add(table.uuid)
        else:
            catalog.reserved = [
                replace(item, settled=True, ended_ms=int(self.now.timestamp() * 1000))
                if item.id == self.reservations.get(job["metadata"]["uid"])
                else item
                for item in catalog.reserved
            ]
        self._ended(job, words)

    def _ended(self, job: dict[str, Any], words: LastWords | None, result: str = "") -> None:
        meta = job["metadata"]
        ok = words is None
        message = result if words is None or words.cause is Cause.UNKNOWN else words.line()
        pod = self.server.objects.get((POD.plural, meta["namespace"], f"{meta['name']}-pod"))
        if pod is not None:
            ended = {"exitCode": 0 if ok else 5, "message": message}
            pod["status"] = {
                "phase": "Succeeded" if ok else "Failed",
                "containerStatuses": [{"state": {"terminated": ended}}],
            }
            self.server.bump(pod)
        stored = self.server.objects.get((JOB.plural, meta["namespace"], meta["name"]))
        if stored is None:
            return
        stored["status"] = {
            "conditions": [{"type": "Complete" if ok else "Failed", "status": "True"}]
        }
        self.server.bump(stored)
        if stored["metadata"].get("deletionTimestamp"):
            self.server.remove(POD, meta["namespace"], f"{meta['name']}-pod")
            self.server.remove(JOB, meta["namespace"], meta["name"])


def run_text(job: dict[str, Any]) -> str:
    env = job["spec"]["template"]["spec"]["containers"][0]["env"]
    return str(next(e["value"] for e in env if e["name"] == "LAYOUT_RUN")).replace("$$", "$")
