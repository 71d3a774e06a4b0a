"""Documents of wild values, made from the CRDs' own schemas, and an operator that takes them all.

Most documents have a valid shape; some have a field too much, one too little, or one of another
type. The API server says which exist. The operator is the real one, over a catalog that is
simulated, and every reconcile is counted.
"""

from __future__ import annotations

import copy
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from reconciler.api.schema import KINDS, spec_schema
from reconciler.kube.api import Api
from reconciler.kube.errors import ApiError
from reconciler.kube.kinds import CATALOG, POLICY, TABLE_LAYOUT, Kind
from reconciler.operator.process.main import run
from reconciler.operator.process.reconcilers import build
from reconciler.operator.runtime import Runtime
from reconciler.operator.settings import OperatorSettings
from reconciler.operator.work import Key, Reconcile, Reconcilers, Result
from tests.operator.cluster_objects import catalog
from tests.operator.simulated import SimulatedCatalogs, SimulatedLake

KIND_OF: dict[str, Kind] = {kind.kind: kind for kind in (CATALOG, POLICY, TABLE_LAYOUT)}
SHARES = {"TableLayoutPolicy": 6, "TableLayout": 3, "IcebergCatalog": 1}
LAKE = {
    ("sales", "orders"): 1 << 30,
    ("sales", "lineitem"): 0,
    ("sales", "Größe x"): 1 << 40,
    ("a.b", "c"): 0,
    ("a", "b.c"): 1,
    ("a", "b", "c", "d"): 0,
    ("\U0001f9ca", "`"): 5,
}

TEXTS = (
    "", " ", "a", "y", "off", "no", "null", "~", "0", "1e9", "007", "-1", "A", "sales", "orders",
    "sales.orders", "sales.*", "**", "*", "`a.b`.c", "a.**.d", "``", "`", "a..b", ".", "..",
    "x" * 64, "x" * 253, "x" * 600, "a-b", "a_b", "-a", "a-", "ä", "Größe x", "\U0001f9ca",
    "\u202eabc", "a\nb", "a\tb", "a\u2028b", "\ufeff", "e\u0301", "${HOME}", "$(id)",
    "{{ .Values }}", "%s%n", "'; --", "../../etc", "/etc/passwd", "file:///etc", "s3://lake/wh",
    "http://u:p@h/", "https://c.example", "warehouse", "missing", "0s", "1s", "59s", "1m", "10m",
    "24h", "1h1m1s", "999999h", "9999999999999h", "h", "1Ki", "500Gi", "20Gi", "1Pi",
    "99999999999999999Pi", "Auto", "1048576", "1.5", "1000000", "999999.9999", "0 8 * * *",
    "*/5 * * * *", "0 0 31 2 *", "0 0 29 2 *", "99 99 * * *", "0 8 * * mon-fri", "@daily",
    "30 2 * * *", "0 8 * * l", "UTC", "Europe/Berlin", "Australia/Lord_Howe", "Mars/Olympus",
    "America/New_York", "identity", "bucket[16]", "truncate[0]", "bucket[999999999]", "year",
    "trino", "p-" + "0" * 20, "p-3f9a1c0b77de4c21a0be", "sha256:" + "0" * 64, "spark",
    "layout-spark",
)  # fmt: skip
NUMBERS = (0, 1, 2, 5, 10, 50, 100, 101, 1000, 2**31 - 1, 2**31, 2**53, 2**63 - 1, -1, -(2**31))
ODD: tuple[Any, ...] = (None, True, 1.5, [], {}, "", 0, [None], {"a": {"b": []}}, "x" * 5000)


class Maker:
    """Documents in order of their numbers; the same seed gives the same documents."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def document(self, number: int) -> dict[str, Any]:
        kind = self.random.choices([*SHARES], [*SHARES.values()])[0]
        spec = self._value(spec_schema(kind), "spec")
        if self.random.random() < 0.85:
            _make_sense(kind, spec, self.random)
        body = {
            "apiVersion": "layout.lakehouse.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": f"d{number}"},
            "spec": spec,
        }
        return self._broken(body) if self.random.random() < 0.1 else body

    def _value(self, schema: dict[str, Any], path: str) -> Any:
        chance = self.random.random
        if "enum" in schema and chance() < 0.98:
            return self.random.choice(schema["enum"])
        if schema.get("x-kubernetes-int-or-string"):
            return self._text(schema) if chance() < 0.7 else self.random.choice(NUMBERS)
        kind = schema.get("type")
        if kind == "object":
            return self._object(schema, path)
        if kind == "array":
            least, most = schema.get("minItems", 0), min(schema.get("maxItems", 4), 4)
            count = self.random.randint(least, max(least, most))
            items = [self._value(schema["items"], path + "[]") for _ in range(count)]
            return _unique(items)
        if kind == "integer":
            low, high = schema.get("minimum", -(2**31)), schema.get("maximum", 2**31 - 1)
            fitting = [n for n in NUMBERS if low <= n <= high] or [low]
            return self.random.choice(fitting if chance() < 0.98 else NUMBERS)
        if kind == "boolean":
            return chance() < 0.2
        return self._text(schema)

    def _object(self, schema: dict[str, Any], path: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, below in (schema.get("properties") or {}).items():
            required = name in schema.get("required", ())
            if required or self.random.random() < 0.25:
                found[name] = self._value(below, f"{path}.{name}")
        if schema.get("additionalProperties"):
            for _ in range(self.random.randint(0, 2)):
                key = self.random.choice(("uri", "warehouse", "spark.x", "s3.region", "py-io-impl"))
                found[key] = self._text(schema["additionalProperties"])
        return found

    def _text(self, schema: dict[str, Any]) -> str:
        pattern = re.compile(schema.get("pattern", ""))
        least, most = schema.get("minLength", 0), schema.get("maxLength", 1 << 20)
        for _ in range(400 if self.random.random() < 0.99 else 1):
            text = self.random.choice(TEXTS)
            if pattern.search(text) and least <= len(text) <= most:
                return text
        return self.random.choice(TEXTS)

    def _broken(self, body: dict[str, Any]) -> dict[str, Any]:
        """With something added, taken away or of another type, somewhere."""
        body = copy.deepcopy(body)
        node: Any = body["spec"]
        while True:
            keys = [*node] if isinstance(node, dict) else [*range(len(node))]
            if not keys:
                break
            key = self.random.choice(keys)
            if isinstance(node[key], (dict, list)) and self.random.random() < 0.6:
                node = node[key]
                continue
            what = self.random.random()
            if what < 0.4:
                node[key] = self.random.choice(ODD)
            elif what < 0.7 and isinstance(node, dict):
                node[self.random.choice(TEXTS)] = self.random.choice(ODD)
            else:
                del node[key]
            break
        return body


def _make_sense(kind: str, spec: dict[str, Any], chance: random.Random) -> None:
    """Keeps the rules between fields, which chance alone breaks in nearly every document."""
    if kind == "TableLayoutPolicy":
        spec["catalogRef"] = {"name": chance.choice(("warehouse", "warehouse", "missing", "d7"))}
        for budget in spec.get("budgets") or ():
            if chance.random() < 0.5:
                for name in ("schedule", "timeZone", "duration"):
                    budget.pop(name, None)
                budget["per"] = chance.choice(("1s", "24h", "999999h"))
            else:
                budget.pop("per", None)
                cron = ("0 8 * * *", "0 0 31 2 *", "99 9 * * *", "*/5 * * * *", "30 2 29 2 *")
                budget["schedule"] = chance.choice(cron)
                budget["duration"] = chance.choice(("1s", "10h", "999999h"))
            budget.setdefault("maxRewriteBytes", chance.choice(("0", "500Gi", 17)))
        approval = spec.setdefault("approval", {})
        if approval.get("mode") == "Automatic":
            approval.pop("approvedPlans", None)
            approval.pop("automaticUpTo", None)
            if not spec.get("budgets"):
                spec["budgets"] = [{"name": "b", "per": "1h", "maxRewriteBytes": "1Gi"}]
        layout = spec.get("layout") or {}
        for part, keys in (("clustering", "keys"), ("partitioning", "fields")):
            place = layout.get(part)
            if place is not None and place.get("mode") != "Declared":
                place.pop(keys, None)
                place.pop("applyToWrites", None)
            elif place is not None and not place.get(keys):
                place["mode"] = "None" if part == "clustering" else "Keep"
    elif kind == "TableLayout":
        spec["catalogRef"] = {"name": chance.choice(("warehouse", "missing"))}
        spec["policyRef"] = {"name": chance.choice(("facts", "missing", "d3")), "generation": 1}
        *levels, name = chance.choice([*LAKE, ("no", "table")])
        spec["table"] = {"namespace": levels, "name": name}
    else:
        spec["type"] = chance.choice(("sql", "rest"))
        uri = "postgresql://db/c" if spec["type"] == "sql" else "https://catalog.example"
        spec["properties"] = {"uri": uri, "warehouse": "s3://lake/wh"}
        spec["jobs"] = {"image": "spark"}
        spec["catalogName"] = chance.choice(("rec", "lake_1", "x" * 63))
        if chance.random() < 0.5:
            spec.pop("secretRef", None)
        spec.pop("workload", None)
        spec.setdefault("system", {}).pop("namespace", None)
        spec["system"]["plans"] = {"uri": "s3://lake/plans"}


def _unique(items: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        named = isinstance(item, dict) and any(
            isinstance(other, dict) and "name" in item and other.get("name") == item["name"]
            for other in found
        )
        if item not in found and not named:
            found.append(item)
    return found


@dataclass
class Watched:
    """runs: reconciles by key. crashes: what they raised or answered with failed."""

    runs: Counter[Key] = field(default_factory=Counter)
    crashes: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def build(self, runtime: Runtime) -> Reconcilers:
        real = build(runtime, kind=SimulatedCatalogs, lake=SimulatedLake(dict(LAKE)))
        return Reconcilers(*(self._wrapped(one) for one in (
            real.policy, real.layout, real.catalog, real.launch)))  # fmt: skip

    def _wrapped(self, reconcile: Reconcile) -> Reconcile:
        return partial(self._run, reconcile)

    def _run(self, reconcile: Reconcile, key: Key) -> Result:
        with self.lock:
            self.runs[key] += 1
        try:
            result = reconcile(key)
        except Exception as error:
            with self.lock:
                self.crashes.append(f"{key}: {type(error).__name__}: {error}")
            raise
        if result.failed:
            with self.lock:
                self.crashes.append(f"{key}: failed")
        return result


@dataclass(frozen=True)
class Outcome:
    accepted: int
    refused: int
    silent: list[str]
    busiest: int
    still_busy: int
    crashes: list[str]
    reasons: Counter[str]


def fuzz(
    api: Api, kubeconfig: str, namespace: str, count: int, seed: int, rest: float = 10
) -> Outcome:
    """Puts the documents, lets the operator settle, and looks at every object that exists.
    rest: seconds in which reconciles are counted after that."""
    watched, maker = Watched(), Maker(seed)
    documents = [maker.document(number) for number in range(count)]
    api.create(CATALOG, namespace, catalog())
    api.create(POLICY, namespace, _facts())
    with _operator(kubeconfig, namespace, watched), ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda body: _put(api, namespace, body), documents))
        unexpected = [text for text in answers if text not in ("", "refused")]
        silent = _settle(api, namespace, watched)
        busiest = max(watched.runs.values())
        before = Counter(watched.runs)
        time.sleep(rest)
        after = watched.runs - before
    accepted = answers.count("")
    return Outcome(
        accepted, count - accepted, silent, busiest, max(after.values(), default=0),
        watched.crashes + unexpected, _reasons(api, namespace),
    )  # fmt: skip


def _put(api: Api, namespace: str, body: dict[str, Any]) -> str:
    """ "" for accepted, "refused" for the server's verdict of 4xx, otherwise what happened."""
    try:
        api.create(KIND_OF[body["kind"]], namespace, body)
    except ApiError as error:
        return "refused" if error.status in (400, 422) else f"{body['metadata']}: {error}"
    return ""


def _settle(api: Api, namespace: str, watched: Watched) -> list[str]:
    """Objects without a condition with a reason for their generation, once nothing changes."""
    silent, still, quiet = ["?"], 0, 0
    deadline = time.monotonic() + 1800
    while time.monotonic() < deadline and quiet < 3 and still < 20:
        runs, before = sum(watched.runs.values()), silent
        time.sleep(3)
        found = list(_objects(api, namespace))
        silent = [name for name, body in found if not _has_reason(body)]
        still = still + 1 if silent == before else 0
        # Intervals end all the time; 3 s are a tenth of the shortest.
        rests = sum(watched.runs.values()) - runs < 30 + len(found) / 10
        quiet = quiet + 1 if rests and not silent else 0
    return silent


def _objects(api: Api, namespace: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for kind in (CATALOG, POLICY, TABLE_LAYOUT):
        for body in api.list(kind, namespace):
            yield f"{kind.kind}/{body['metadata']['name']}", body


def _has_reason(body: dict[str, Any]) -> bool:
    status, generation = body.get("status") or {}, body["metadata"]["generation"]
    conditions = status.get("conditions") or []
    return status.get("observedGeneration") == generation and any(
        item["type"] == "Ready" and item["reason"] and item["observedGeneration"] == generation
        for item in conditions
    )


def _reasons(api: Api, namespace: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, body in _objects(api, namespace):
        for item in body.get("status", {}).get("conditions", ()):
            found[f"{name.split('/')[0]} {item['type']}={item['status']} {item['reason']}"] += 1
    return found


@contextmanager
def _operator(kubeconfig: str, namespace: str, watched: Watched) -> Iterator[None]:
    stop = threading.Event()
    settings = OperatorSettings(
        namespaces=(namespace,), namespace=namespace, kubeconfig=kubeconfig, metrics_port=0,
        health_port=0, max_jobs=4, image="spark",
    )  # fmt: skip
    thread = threading.Thread(target=run, args=(settings, watched.build, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(90)
    assert not thread.is_alive()


def _facts() -> dict[str, Any]:
    return {
        "metadata": {"name": "facts"},
        "spec": {"catalogRef": {"name": "warehouse"}, "tables": {"include": ["**"]}},
    }


assert set(KIND_OF) == set(KINDS)
