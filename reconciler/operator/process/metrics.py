"""The metrics for Prometheus: counters of what the operator does, and a view of what it manages.

The view (tables by state, jobs, budgets) is computed from the index at each scrape, so that it
cannot differ from the objects. Series per table exist only if requested.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.api.conditions import ConditionType, Reason
from reconciler.api.quantities import parse_bytes, parse_duration
from reconciler.operator.conditions import condition_of
from reconciler.operator.job_record import OPEN, phase_of
from reconciler.operator.work import Work
from reconciler.plan.money import Usage, cost_of, reading

if TYPE_CHECKING:
    from prometheus_client import Counter
    from prometheus_client.core import Metric

    from reconciler.api.prices import Prices
    from reconciler.operator.index import Index, Object
    from reconciler.operator.process.watched_namespaces import WatchedNamespaces

DURATIONS = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300)
CALL_DURATIONS = (0.005, 0.02, 0.1, 0.5, 1, 5, 30)

MONEY = ("namespace", "currency", "kind")
"""Labels of the money that is spent."""
MOST_BUDGETS = 200
"""Maximum budgets with their own series, unless series per table are requested."""

Waiting = Callable[[], Mapping[Work, tuple[int, float]]]


class Metrics:
    """The counters, each updated by the responsible part; `text` is the page."""

    def __init__(self) -> None:
        from prometheus_client import Gauge, Histogram

        self.registry = _registry()
        self._reconciles = Histogram(
            "layout_reconcile_duration_seconds", "Duration of reconciles by kind and result.",
            ("kind", "result"), buckets=DURATIONS, registry=self.registry,
        )  # fmt: skip
        self._calls = Histogram(
            "layout_kube_api_duration_seconds",
            "Duration of calls of the Kubernetes API by verb, resource and status.",
            ("verb", "resource", "code"), buckets=CALL_DURATIONS, registry=self.registry,
        )  # fmt: skip
        self._launches = self._counter(
            "layout_jobs_launched", "Jobs created, by namespace of their table.", "namespace"
        )
        self._outcomes = self._counter(
            "layout_jobs_finished", "Jobs that ended, by namespace and cause.", "namespace", "cause"
        )
        self._rewritten = self._counter(
            "layout_rewritten_bytes", "Bytes rewritten by committed actions.", "namespace"
        )
        self._saved = self._counter(
            "layout_saved_bytes",
            "Bytes of reading that later queries did not need because of rewrites, at least.",
            "namespace",
        )
        self._lost = self._counter(
            "layout_lost_bytes",
            "Bytes of reading that later queries needed more because of rewrites.",
            "namespace",
        )
        self._spent = self._counter(
            "layout_spent_bytes",
            "Cost of committed and lost work on rewrites, in bytes of reading.",
            "namespace",
        )
        self._money = self._counter(
            "layout_money", "The same in money, by the prices of the catalogs.", *MONEY
        )
        self._events = self._counter("layout_events", "Events of catalogs by result.", "result")
        self._leader = Gauge(
            "layout_leader", "1 while this instance holds the Lease.", registry=self.registry
        )
        self._watch_restarts = self._counter("layout_watch_restarts", "Restarts of the watches.")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        from prometheus_client import Counter

        return Counter(name, text, labels, registry=self.registry)

    def reconciled(self, kind: Work, failed: bool, seconds: float) -> None:
        result = "error" if failed else "success"
        self._reconciles.labels(kind.value, result).observe(seconds)

    def called(self, verb: str, resource: str, status: int, seconds: float) -> None:
        """Count a call. status 0: no answer."""
        self._calls.labels(verb, resource, str(status) if status else "none").observe(seconds)

    def launched(self, namespace: str) -> None:
        self._launches.labels(namespace).inc()

    def finished(self, namespace: str, cause: str) -> None:
        """Count a job's end. cause: Succeeded, or the cause of the failure."""
        self._outcomes.labels(namespace, cause).inc()

    def rewrote(self, namespace: str, size: int) -> None:
        self._rewritten.labels(namespace).inc(size)

    def saved(self, namespace: str, change: int, prices: Prices | None) -> None:
        """Count how much more past rewrites are known to have saved, in bytes of reading. A
        negative change is a loss, which has a series of its own: counters do not fall."""
        kind, counter = ("saved", self._saved) if change >= 0 else ("lost", self._lost)
        counter.labels(namespace).inc(abs(change))
        if prices is not None:
            money = cost_of(prices, reading(abs(change)))
            self._money.labels(namespace, prices.currency, kind).inc(money)

    def spent(self, namespace: str, cost: float, used: Usage, prices: Prices | None) -> None:
        """Count the cost of rewrites. cost: in bytes of reading. used: what they read and
        computed."""
        self._spent.labels(namespace).inc(cost)
        if prices is not None:
            self._money.labels(namespace, prices.currency, "spent").inc(cost_of(prices, used))

    def event(self, result: str) -> None:
        self._events.labels(result).inc()

    def leads(self, held: bool) -> None:
        self._leader.set(held)

    def watch_restarted(self) -> None:
        self._watch_restarts.inc()

    def show(self, index: Index, waiting: Waiting, *, per_table: bool) -> None:
        """Add the view of the index and of the queue to the page."""
        self.registry.register(_View(index, waiting, per_table))

    def show_namespaces(self, namespaces: WatchedNamespaces) -> None:
        """Add the watched namespaces to the page, unless all of the cluster are watched."""
        self.registry.register(_Places(namespaces))

    def text(self) -> bytes:
        from prometheus_client import generate_latest

        return generate_latest(self.registry)


class _Places:
    """Whether each watched namespace can be read."""

    def __init__(self, namespaces: WatchedNamespaces):
        self._namespaces = namespaces

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        family = _gauge(
            "layout_namespace_readable",
            "1 while the watched namespace can be read; 0 while it is set aside.",
            ("namespace",),
        )
        broken = self._namespaces.broken()
        for namespace in self._namespaces.namespaces or ():
            family.add_metric((namespace,), namespace not in broken)
        yield family


class _View:
    """Computes its series at each scrape."""

    def __init__(self, index: Index, waiting: Waiting, per_table: bool):
        self._index = index
        self._waiting = waiting
        self._per_table = per_table

    def describe(self) -> Iterator[Metric]:
        """Return the series without reading anything, because registration asks for them."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        yield from _queue(self._waiting())
        yield from _objects(self._index)
        layouts = self._index.layouts()
        yield from _tables(layouts)
        yield from _jobs(layouts)
        yield from _budgets(self._index, None if self._per_table else MOST_BUDGETS)
        if self._per_table:
            yield from _each_table(layouts)


def _registry() -> Any:
    """Return a registry with the series of the Python process (memory, CPU, file descriptors)."""
    from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


def _gauge(name: str, text: str, labels: tuple[str, ...]) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, text, labels=labels)


def _queue(waiting: Mapping[Work, tuple[int, float]]) -> Iterator[Metric]:
    depth = _gauge("layout_queue_depth", "Keys that are due and wait for a worker.", ("kind",))
    age = _gauge("layout_queue_oldest_seconds", "How long the oldest of them waits.", ("kind",))
    for kind in Work:
        count, seconds = waiting.get(kind, (0, 0.0))
        depth.add_metric((kind.value,), count)
        age.add_metric((kind.value,), seconds)
    yield depth
    yield age


def _objects(index: Index) -> Iterator[Metric]:
    family = _gauge("layout_objects", "Objects known by the watches.", ("kind",))
    for kind, count in sorted(index.counts().items()):
        family.add_metric((kind,), count)
    yield family


def _tables(layouts: list[Object]) -> Iterator[Metric]:
    """Yield tables by state: True, False or Unknown of Converged; stalled ones also have a
    series."""
    states = Tally(
        (layout["metadata"].get("namespace", ""), *_converged(layout)) for layout in layouts
    )
    family = _gauge(
        "layout_tables",
        "Tables by the status of Converged and its reason.",
        ("namespace", "converged", "reason"),
    )
    for state, count in sorted(states.items()):
        family.add_metric(state, count)
    yield family
    stalled = _gauge("layout_tables_stalled", "Tables that need a change.", ("namespace", "reason"))
    reasons = Tally(
        (layout["metadata"].get("namespace", ""), _known(condition.get("reason")))
        for layout in layouts
        if (condition := condition_of(layout["status"], ConditionType.STALLED)).get("status")
        == "True"
    )
    for labels, count in sorted(reasons.items()):
        stalled.add_metric(labels, count)
    yield stalled


def _jobs(layouts: list[Object]) -> Iterator[Metric]:
    family = _gauge("layout_jobs", "Jobs that are pending or running.", ("namespace", "phase"))
    tally = Tally(
        (layout["metadata"].get("namespace", ""), phase.value)
        for layout in layouts
        if (phase := phase_of(layout["status"])) in OPEN and phase is not None
    )
    for labels, count in sorted(tally.items()):
        family.add_metric(labels, count)
    yield family


def _budgets(index: Index, most: int | None) -> Iterator[Metric]:
    """Yield the budgets with the highest use; there may be one for each of very many policies."""
    labels = ("namespace", "policy", "budget", "state")
    size = _gauge("layout_budget_bytes", "Bytes spent and reserved of a budget.", labels)
    cpu = _gauge("layout_budget_cpu_seconds", "CPU time spent and reserved of a budget.", labels)
    rows = [
        (policy["metadata"].get("namespace", ""), policy["metadata"]["name"], _budget(budget))
        for policy in index.policies()
        for budget in policy["status"].get("budgets") or ()
    ]
    rows.sort(key=lambda row: (-row[2].bytes.used, -row[2].cpu.used, row[:2], row[2].name))
    for namespace, name, budget in rows[:most]:
        for state in ("spent", "reserved"):
            row = (namespace, name, budget.name, state)
            for family, amounts in ((size, budget.bytes), (cpu, budget.cpu)):
                value = getattr(amounts, state)
                if value is not None:
                    family.add_metric(row, value)
    yield size
    yield cpu
    left = _gauge("layout_budgets_left_out", "Budgets without series of their own.", ())
    left.add_metric((), 0 if most is None else max(0, len(rows) - most))
    yield left


@dataclass(frozen=True, slots=True)
class _Amounts:
    """Amounts of one budget, None where the stored status cannot be read."""

    spent: float | None
    reserved: float | None

    @property
    def used(self) -> float:
        return (self.spent or 0.0) + (self.reserved or 0.0)


@dataclass(frozen=True, slots=True)
class _Budget:
    name: str
    bytes: _Amounts
    cpu: _Amounts


def _budget(stored: Mapping[str, Any]) -> _Budget:
    def amounts(name: str, parse: Callable[[Any], float | int]) -> _Amounts:
        found = stored.get(name) or {}
        return _Amounts(*(_number(found.get(state), parse) for state in ("spent", "reserved")))

    name = str(stored.get("name"))
    return _Budget(name, amounts("rewriteBytes", _bytes), amounts("cpuTime", parse_duration))


def _each_table(layouts: list[Object]) -> Iterator[Metric]:
    labels = ("namespace", "table_layout", "table")
    converged = _gauge("layout_table_converged", "1 while the table is Converged.", labels)
    amplification = _gauge("layout_table_scan_amplification", "Bytes read over needed.", labels)
    pending = _gauge("layout_table_pending_bytes", "Bytes that its plan rewrites.", labels)
    saved = _gauge(
        "layout_table_saved_bytes",
        "Bytes that later queries did not read because of past rewrites, at least or at most; none "
        "while no query has run since.",
        (*labels, "bound"),
    )
    for layout in layouts:
        meta, table = layout["metadata"], (layout.get("spec") or {}).get("table") or {}
        name = ".".join([*(table.get("namespace") or ()), str(table.get("name") or "")])
        row = (meta.get("namespace", ""), meta["name"], name)
        converged.add_metric(row, _converged(layout)[0] == "True")
        observed = layout["status"].get("observed") or {}
        value = _number(observed.get("scanAmplification"), float)
        if value is not None:
            amplification.add_metric(row, value)
        found = observed.get("saved") or {}
        for bound, field in (("least", "atLeastBytes"), ("most", "atMostBytes")):
            if field in found:
                saved.add_metric((*row, bound), found[field])
        plan = layout["status"].get("plan") or {}
        pending.add_metric(row, _number(plan.get("rewriteBytes"), _bytes) or 0)
    yield converged
    yield amplification
    yield pending
    yield saved


def _converged(layout: Object) -> tuple[str, str]:
    condition = condition_of(layout["status"], ConditionType.CONVERGED)
    return str(condition.get("status") or "Unknown"), _known(condition.get("reason"))


def _known(reason: Any) -> str:
    """Return a known reason: a status of another version must not add label values without
    bound."""
    return str(reason) if reason in {item.value for item in Reason} else "Other"


def _bytes(text: str) -> float:
    """Return the bytes of a rounded size of status: "3.4Ti"."""
    number = text.rstrip("KMGTPi")
    return float(number) * parse_bytes("1" + text[len(number) :])


def _number(text: Any, parse: Callable[[Any], float | int]) -> float | None:
    try:
        return float(parse(text))
    except (TypeError, ValueError, AttributeError):
        return None
