"""One table, its documents and operators as processes on the test cluster, and what may be done to
them: the stage on which the operator's tour and its faults are played, in the tests and in bench.

`Lake` is the warehouse and knows every row that it was given. `Scene` is one namespace over it;
from its start to its end it watches that no two Jobs of the table live at once.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.version import API_VERSION
from reconciler.kube.api import Api
from reconciler.kube.errors import ApiError, NotFound
from reconciler.kube.kinds import CATALOG, JOB, LEASE, POD, POLICY, TABLE_LAYOUT
from reconciler.kube.pods import LAYOUT_LABEL
from reconciler.state.shared_state import SharedStore
from tests.cluster import processes
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import pause_after

ROOT = Path(__file__).parents[2]
TABLE = ("sales", "orders")
SCHEMA = pa.schema([("id", pa.int64()), ("region", pa.string()), ("city", pa.string())])
SYSTEM = ("layout_state",)
LEASE_NAME = "layout-reconciler"
SAMPLE_SECONDS = 0.5
"""How often the watchman looks: a Job lives for longer."""
RULES = ROOT / "manifests" / "base" / "rbac-operator.yaml"
ACCOUNT = "operator"
STOPPED = '{"cause": "Stopped", "message": "stopped as asked", "do": "", "retry": true}'
STAND_IN = f"""
trap 'echo {json.dumps(STOPPED)} > /dev/termination-log; exit 130' TERM
while :; do sleep 0.2; done
"""
"""A driver, as a script of sh, that works until it is stopped."""

ACCOUNTS = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: layout-spark}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: layout-spark-executor}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: driver}
rules:
- {apiGroups: [""], resources: [pods], verbs: [create, get, list, watch, delete, deletecollection]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: driver}
subjects: [{kind: ServiceAccount, name: layout-spark}]
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: driver}
"""


def eventually(
    check: Callable[[], Any], seconds: float, what: str = "", every: float | None = None
) -> Any:
    """The first true answer of `check`; an API server that does not answer is asked again.

    every: seconds between two questions, otherwise the more the longer it takes.
    """
    started = time.monotonic()
    deadline = started + seconds
    last: Exception | None = None
    while time.monotonic() < deadline:
        try:
            answer = check()
            if answer:
                return answer
            last = None
        except (ApiError, AssertionError) as error:
            last = error
        time.sleep(pause_after(time.monotonic() - started) if every is None else every)
    raise TimeoutError(f"not within {seconds:.0f} s: {what or check}") from last


class Lake:
    """A SQLite catalog that pyiceberg made, with one table of `regions` partitions.

    Every append goes over all ids, so that all files of a partition overlap. It lies outside of
    /tmp, which every pod has to itself. expected: each row that was appended and committed.
    """

    def __init__(self, directory: Path, regions: int = 4, appends: int = 4, rows: int = 4_000):
        from pyiceberg.catalog.sql import SqlCatalog
        from pyiceberg.transforms import IdentityTransform

        self.directory, self.regions = directory, regions
        self.database = directory / "lake.db"
        self.properties = {
            "uri": f"sqlite:///{self.database}?timeout=30",
            "warehouse": f"file://{directory}/wh",
        }
        self.catalog = SqlCatalog("lake", **self.properties)
        self.catalog.create_namespace(TABLE[0])
        table = self.catalog.create_table(TABLE, SCHEMA)
        if regions > 1:
            with table.update_spec() as update:
                update.add_field("region", IdentityTransform(), "region")
        self.uuid = str(table.metadata.table_uuid)
        self.expected: Counter[tuple[Any, ...]] = Counter()
        self.next_id = 0
        for _ in range(appends):
            self.append(rows)

    def append(self, rows: int = 40) -> int:
        """Rows with new ids, some of them without a city, spread over all partitions. Returns how
        often another commit came first, so that this one was sent again."""
        from pyiceberg.exceptions import CommitFailedException

        ids = range(self.next_id, self.next_id + rows)
        self.next_id += rows
        columns = {
            "id": [n * 7_919 % 1_000_003 for n in ids],
            "region": [f"r{n % self.regions}" for n in ids],
            "city": [None if n % 13 == 0 else f"city {n % 97}" for n in ids],
        }
        data = pa.table(columns, schema=SCHEMA)
        refused = 0
        while True:
            try:
                self.catalog.load_table(TABLE).append(data)
                break
            except CommitFailedException:
                refused += 1
        self.expected.update(zip(*columns.values(), strict=True))
        return refused

    def asked(self, queries: int) -> None:
        """Queries for narrow ranges of ids, in the operator's shared state."""
        from tests.loop.test_step import queries_on

        table, now = self.catalog.load_table(TABLE), dt.datetime.now(dt.UTC)
        self.store().append_fragments(
            queries_on(table, "id", queries, 5_000, 1_000_003, now=now, read="city")
        )

    def check_rows(self) -> None:
        """Exactly the rows that were appended, each as often as it was."""
        data = self.catalog.load_table(TABLE).scan().to_arrow()
        found = Counter(zip(*(data[name].to_pylist() for name in SCHEMA.names), strict=True))
        assert found == self.expected, (
            f"{(self.expected - found).total()} rows lost, {(found - self.expected).total()} added"
        )

    def store(self) -> SharedStore:
        properties = {"type": "sql", **self.properties}
        config = CatalogConfig(name="lake", type="sql", properties=properties, source="test")
        return SharedStore(config, SYSTEM)

    def check_settled(self, unsettled: int = 0) -> None:
        """No attempt is open and no file of one is left; as many reservations are unsettled as
        drivers were killed, for what those have spent is not known."""
        store = self.store()
        assert store.open_intents(self.uuid) == ()
        held = [item for item in store.reservations(self.uuid) if not item.settled]
        assert len(held) <= unsettled, held
        assert not (left := self.leftovers()), left

    def leftovers(self) -> list[str]:
        """Data files of attempts that no snapshot of the table refers to."""
        table = self.catalog.load_table(TABLE)
        known = {
            entry.data_file.file_path.rpartition("/")[2]
            for snapshot in table.metadata.snapshots
            for manifest in snapshot.manifests(table.io)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        }
        data = Path(table.location().removeprefix("file://"))
        return [str(p) for p in data.rglob("layout-*/**/*.parquet") if p.name not in known]

    def commits(self) -> list[dict[str, str]]:
        """Summaries of the snapshots that layout jobs have committed, oldest first."""
        snapshots = self.catalog.load_table(TABLE).metadata.snapshots
        own = [s.summary.additional_properties for s in snapshots if s.summary is not None]
        return [dict(item) for item in own if "layout.plan-id" in item]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Commits of everyone wait, reads pass."""
        import sqlite3

        db = sqlite3.connect(self.database, timeout=240, isolation_level=None)
        try:
            db.execute("BEGIN IMMEDIATE")
            yield
            db.execute("ROLLBACK")
        finally:
            db.close()

    def appending(self, pause: float = 2.0) -> contextlib.AbstractContextManager[None]:
        """Another writer that appends every `pause` seconds."""
        return repeating(self.append, pause)


@contextlib.contextmanager
def repeating(work: Callable[[], object], pause: float) -> Iterator[None]:
    """Call `work` every `pause` seconds in a thread. Raises AssertionError if a call failed."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def repeat() -> None:
        try:
            while not stop.wait(pause):
                work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failures, failures


class Watchman:
    """Looks at the Jobs and pods of a namespace all the time and remembers what must not be."""

    def __init__(self, api: Api, namespace: str, every: float = SAMPLE_SECONDS):
        self._api, self._namespace, self._every = api, namespace, every
        self._stop = threading.Event()
        self.jobs: dict[str, str] = {}
        """Every Job that was seen: uid to name."""
        self.most = 0
        self.problems: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            with contextlib.suppress(ApiError):
                self._look()

    def _look(self) -> None:
        jobs = self._api.list(JOB, self._namespace)
        pods = self._api.list(POD, self._namespace)
        living: Counter[str] = Counter()
        for job in jobs:
            self.jobs[job["metadata"]["uid"]] = job["metadata"]["name"]
            if not _over(job):
                living[job["metadata"]["labels"][LAYOUT_LABEL]] += 1
        running = {
            (pod["metadata"].get("labels") or {}).get("job-name")
            for pod in pods
            if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        } - {None}
        self.most = max(self.most, *living.values(), len(running), 0)
        self.problems += [f"{n} Jobs of {name} at once" for name, n in living.items() if n > 1]
        if len(running) > 1 and len(living) == 1:
            self.problems.append(f"drivers of {sorted(map(str, running))} at once")


def _over(job: dict[str, Any]) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in conditions)


def engine_of(job: dict[str, Any]) -> str:
    """Who carries the Job's plan out, as its driver reads it: Local or Spark; "" of a Job that
    recommends."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (run,) = [item["value"] for item in container["env"] if item["name"] == "LAYOUT_RUN"]
    return str(json.loads(run.replace("$$", "$")).get("engine", ""))


RECONCILES = "layout_reconcile_duration_seconds_count"


def metric(port: int, name: str) -> float:
    """Sum of an operator's series of that name, 0 of none."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", page.read().decode(), re.M)
    return sum(float(value) for value in found)


@dataclass
class Operator:
    """`layoutctl operator` as a process. name: its identity in the Lease. port: of its metrics."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    port: int

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        processes.signal_group(self.process, number)

    def said(self, text: str) -> bool:
        return text in self.log.read_text(errors="replace")


@dataclass
class Scene:
    """One namespace over one lake. Make it with `scene`."""

    cluster: Cluster
    namespace: str
    lake: Lake
    api: Api
    watchman: Watchman
    operators: list[Operator] = field(default_factory=list)
    killed_drivers: int = 0

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl("-n", self.namespace, *arguments, stdin=stdin)

    # Operators

    def settings(self, name: str = "a", **changes: str) -> dict[str, str]:
        """An operator's, by the name of the flag; without a kubeconfig it is a pod."""
        return {
            "namespace": self.namespace,
            "namespaces": self.namespace,
            "image": "spark:test",
            "local-files": "true",
            "identity": f"op-{name}-{len(self.operators)}",
            "metrics-port": str(processes.free_port()),
            "health-port": str(processes.free_port()),
            **changes,
        }

    def operator(self, name: str = "a", **changes: str) -> Operator:
        """Starts one; its name is given once per process."""
        options = self.settings(name, **{"kubeconfig": str(self.cluster.kubeconfig), **changes})
        log = self.lake.directory / f"operator-{len(self.operators)}.log"
        process = processes.spawn(
            [sys.executable, "-m", "reconciler.cli.main", "operator", *flags(options)], log,
            {**os.environ, "LAYOUTCTL_CACHE": str(cache(self.lake.directory))},
        )  # fmt: skip
        started = Operator(options["identity"], process, log, int(options["metrics-port"]))
        self.operators.append(started)
        return started

    def leader(self) -> Operator | None:
        """The operator whose name stands in the Lease, whether or not it still lives."""
        try:
            spec = self.api.get(LEASE, self.namespace, LEASE_NAME).get("spec") or {}
        except NotFound:
            return None
        holder = (spec.get("holderIdentity") or "").rpartition("_")[0]
        return next((item for item in self.operators if item.name == holder), None)

    # Documents

    def apply(self, **policy: Any) -> None:
        """The catalog and the policy; `policy` replaces parts of its spec."""
        body = yaml.safe_dump_all(documents(self.lake, self.namespace, **policy))
        self.kubectl("apply", "-f", "-", stdin=body)

    def layout(self) -> dict[str, Any]:
        (found,) = self.api.list(TABLE_LAYOUT, self.namespace) or ({},)
        return found

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.layout().get("status") or {}
        return found

    def condition(self, kind: str) -> dict[str, Any]:
        conditions = self.status().get("conditions") or ()
        return next((c for c in conditions if c["type"] == kind), {})

    def reason(self) -> str:
        return str(self.condition("Converged").get("reason", ""))

    def waits_for(self, reason: str, seconds: float = 300) -> None:
        try:
            eventually(lambda: self.reason() == reason, seconds, f"Converged says {reason}")
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from error

    def approve(self) -> str:
        """What `layoutctl approve` and kubectl patch do."""
        layout = self.layout()
        plan = layout["status"]["plan"]["id"]
        body = {"spec": {"approvedPlan": plan}}
        self.api.patch(TABLE_LAYOUT, self.namespace, layout["metadata"]["name"], body, "person")
        return str(plan)

    def layoutctl(self, *words: str, kubeconfig: Path | None = None, status: int = 0) -> str:
        """What the command prints, run by a person on a machine of their own."""
        environment = self.cluster.environment(kubeconfig)
        home = self.lake.directory / "home"
        environment |= {"LAYOUTCTL_STATE": str(home), "LAYOUTCTL_CACHE": str(home / "cache")}
        done = subprocess.run(
            [sys.executable, "-m", "reconciler.cli.main", *words],
            env=environment, capture_output=True, text=True, check=False, cwd=ROOT,
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    def events(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", "events", "-o", "json"))[
            "items"
        ]
        return items

    # Jobs

    def jobs(self) -> list[dict[str, Any]]:
        return self.api.list(JOB, self.namespace)

    def living(self) -> list[dict[str, Any]]:
        return [job for job in self.jobs() if not _over(job)]

    def driver(self, besides: Sequence[str] = (), seconds: float = 300) -> Driver:
        """The driver pod that runs now, of a Job that is none of `besides`, by name."""

        def find() -> Driver | None:
            for pod in self.api.list(POD, self.namespace):
                job = (pod["metadata"].get("labels") or {}).get("job-name")
                running = pod.get("status", {}).get("phase") == "Running"
                if job and running and job not in besides:
                    meta = pod["metadata"]
                    return Driver(self, job, meta["name"], meta["uid"])
            return None

        try:
            found: Driver = eventually(find, seconds, "a driver runs")
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from error
        return found

    def describe(self) -> str:
        """For a person who reads why a test failed."""
        logs = [f"{o.name}: {o.log.read_text(errors='replace')[-4000:]}" for o in self.operators]
        said = []
        for pod in self.api.list(POD, self.namespace):
            log = self.cluster.directory / "pods" / pod["metadata"]["uid"] / "0.log"
            if (pod["metadata"].get("labels") or {}).get("job-name") and log.exists():
                said.append(f"{pod['metadata']['name']}: {log.read_text(errors='replace')[-3000:]}")
        statuses = [
            f"{item['kind']} {item['metadata']['name']}: {json.dumps(item.get('status'), indent=1)}"
            for kind in (CATALOG, POLICY, TABLE_LAYOUT)
            for item in self.api.list(kind, self.namespace)
        ]
        return "\n".join([*statuses, *logs, *said])

    def check(self) -> None:
        """Converged, nothing open, every row once, never two jobs."""
        self.lake.check_rows()
        self.lake.check_settled(self.killed_drivers)
        layout = self.layout()
        assert self.reason() in ("NothingToDo", "ObjectiveUnreachable"), self.describe()
        job = layout["status"].get("job") or {"phase": "Succeeded"}
        assert job["phase"] in ("Succeeded", "Failed", "Dropped"), job
        assert not layout["metadata"].get("finalizers"), layout["metadata"]
        assert not self.living()
        assert not self.watchman.problems, self.watchman.problems


@dataclass(frozen=True)
class Driver:
    """A driver pod and its log, as the node keeps it."""

    scene: Scene
    job: str
    pod: str
    uid: str

    def log(self) -> str:
        path = self.scene.cluster.directory / "pods" / self.uid / "0.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def phases(self) -> Counter[str]:
        return Counter(re.findall(r'"phase": "([a-z]+)"', self.log()))

    def reaches(self, phase: str, times: int = 1, seconds: float = 600) -> None:
        """Waits for so many progress lines of the phase."""

        deadline = time.monotonic() + seconds
        pid = 0
        while self.phases()[phase] < times:
            pid = pid or self.process()
            ended = pid and not processes.running(pid) and self.phases()[phase] < times
            late = time.monotonic() > deadline
            assert not ended and not late, f"no {phase}: {self.scene.describe()}"
            time.sleep(0.05)

    def process(self) -> int:
        """Its pid, as this machine counts; 0 when it has ended."""
        return find_process(f"POD_NAME={self.pod}", "reconciler.cli.main")

    def kill(self) -> None:
        """kill -9 of the driver's process."""
        self.signal(signal.SIGKILL)
        self.scene.killed_drivers += 1

    def signal(self, number: signal.Signals) -> None:
        pid = self.process()
        assert pid, self.scene.describe()
        os.kill(pid, number)

    def executors(self) -> list[str]:
        """Names of its executors whose processes run."""
        label = {"spark-role": "executor"}
        pods = self.scene.api.list(POD, self.scene.namespace, label)
        names = [pod["metadata"]["name"] for pod in pods]
        return [name for name in names if _executor(name)]

    def kill_executor(self) -> str:
        """kill -9 of one executor's JVM; its name."""
        name: str = eventually(self.executors, 300, "an executor runs")[0]
        os.kill(_executor(name), signal.SIGKILL)
        return name


def _executor(pod: str) -> int:
    return find_process(f"SPARK_EXECUTOR_POD_NAME={pod}", "KubernetesExecutorBackend")


def find_process(variable: str, word: str) -> int:
    """A process with that variable in its environment and that word in its command; 0: none."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if variable.encode() not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            command = (entry / "cmdline").read_bytes()
            if word.encode() in command and processes.running(int(entry.name)):
                return int(entry.name)
    return 0


def make_account(cluster: Cluster, namespace: str) -> None:
    """A service account with the rights that an operator is installed with."""
    place = ("-n", namespace)
    cluster.kubectl(*place, "create", "serviceaccount", ACCOUNT)
    bodies = yaml.safe_load_all(RULES.read_text())
    roles = [body for body in bodies if body and body["kind"] == "Role"]
    for number, body in enumerate(roles):
        name = f"{ACCOUNT}-{number}"
        body["metadata"] = {"name": name, "namespace": namespace}
        cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(body))
        account = f"--serviceaccount={namespace}:{ACCOUNT}"
        cluster.kubectl(*place, "create", "rolebinding", name, f"--role={name}", account)


def flags(options: Mapping[str, str]) -> list[str]:
    return [word for key, value in options.items() for word in (f"--{key}", value)]


def cache(directory: Path) -> Path:
    """The operator's own caches; the machine's downloads are not among what it needs."""
    path = directory / "cache"
    path.mkdir(exist_ok=True)
    return path


def documents(lake: Lake, namespace: str, **policy: Any) -> list[dict[str, Any]]:
    """A catalog and a policy that runs by itself, on one small executor."""
    catalog = {
        "apiVersion": API_VERSION,
        "kind": "IcebergCatalog",
        "metadata": {"name": "warehouse", "namespace": namespace},
        "spec": {
            "type": "sql",
            "catalogName": "lake",
            "properties": lake.properties,
            "system": {"namespace": list(SYSTEM)},
        },
    }
    spec = {
        "catalogRef": {"name": "warehouse"},
        "tables": {"include": ["sales.*"]},
        "interval": "30s",
        "layout": {
            "clustering": {"mode": "Declared", "keys": ["id"]},
            "files": {"quietPeriod": "0s"},
        },
        "approval": {"mode": "Automatic"},
        "budgets": [{"name": "daily", "per": "24h", "maxRewriteBytes": "10Gi"}],
        "engine": {
            "driver": {"cores": 1, "memory": "1Gi"},
            "executors": {"instances": 1, "cores": 1, "memory": "1Gi"},
        },
        **policy,
    }
    return [
        catalog,
        {
            "apiVersion": API_VERSION,
            "kind": "TableLayoutPolicy",
            "metadata": {"name": "facts", "namespace": namespace},
            "spec": spec,
        },
    ]


@contextlib.contextmanager
def scene(
    cluster: Cluster, namespace: str, lake: Lake, every: float = SAMPLE_SECONDS
) -> Iterator[Scene]:
    """CRDs, accounts and a watchman; the operators that were started end with it. every: how many
    seconds the watchman rests."""
    cluster.install_crds()
    api = Api.from_environment(str(cluster.kubeconfig))
    made = Scene(cluster, namespace, lake, api, Watchman(api, namespace, every))
    made.kubectl("apply", "-f", "-", stdin=ACCOUNTS)
    try:
        yield made
    finally:
        made.watchman.end()
        for operator in made.operators:
            processes.end(operator.process, 60)
