"""Plays one drawn table: append, import its queries, plan, apply, and compare with what came true.

Planning, applying and the import of the query log are the calls that `layoutctl` makes. What is
found is measured on the files that Spark wrote: bytes, files and cost of the recorded queries, and
of the queries to come, which no plan has seen.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import parse_transform

from bench.tables.drawn import DAY, NOW, Asked, Drawn
from reconciler.advisor.advice import HORIZON_MS
from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.document_codec import from_document
from reconciler.api.documents import TableLayoutPolicy
from reconciler.catalog.footers import read_row_groups
from reconciler.catalog.metadata import schema_of
from reconciler.catalog.observe import observe_table
from reconciler.loop.gating import Approvals
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.ports import Target
from reconciler.loop.propose import Proposal
from reconciler.loop.step import Step, StepResult, run_step
from reconciler.plan.budget import Spent
from reconciler.plan.execution import Event, ExecutionRequest, ExecutionResult
from reconciler.queries.demanded import demands
from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.read_cost import read_shape
from reconciler.queries.shape import Workload
from reconciler.queries.table_view import TableView, table_view
from reconciler.state.state import StateStore
from reconciler.table.observation import Observation
from reconciler.workload_log.identity import Keys
from reconciler.workload_log.sql import Session, SqlReader
from reconciler.workload_log.sql_log import SqlLogImport
from reconciler.workload_log.tables import KnownTable, SchemaMap
from tests.conftest import sqlite_catalog

NAMESPACE = "loop"
Clock = Callable[[], dt.datetime]
ROW_GROUP = 128 << 20
ROW_GROUP_SIZE = "write.parquet.row-group-size-bytes"
TARGET = "write.target-file-size-bytes"
ONE_FILE = 1 << 30
MOST_DAYS = 12
"""Days that a plan may take under a budget."""


@dataclass
class Place:
    """Where tables are made. spark: the one session of the run; started: seconds of its start, for
    the first table that is played in it."""

    spark: Any
    config: CatalogConfig
    catalog: SqlCatalog
    root: Path
    started: float | None = None

    def full(self, name: str) -> str:
        return f"{self.config.name}.{NAMESPACE}.{name}"


@dataclass
class TimedActor(LocalActor):
    """Its clock stands at NOW and goes on by days. seconds, read: of every execution, and the bytes
    that it rewrote; days: when each day of this clock began on the real one."""

    seconds: list[float] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    days: list[dt.datetime] = field(default_factory=lambda: [dt.datetime.now(dt.UTC)])

    def now(self) -> dt.datetime:
        return NOW.replace(tzinfo=dt.UTC) + (len(self.days) - 1) * DAY

    def next_day(self) -> None:
        self.days.append(dt.datetime.now(dt.UTC))

    def spent(self, policy: str, table_uuid: str, besides: str = "") -> tuple[Spent, ...]:
        """What was charged, at the days of this clock."""
        return tuple(
            replace(one, at=NOW.replace(tzinfo=dt.UTC) + (bisect(self.days, one.at) - 1) * DAY)
            for one in super().spent(policy, table_uuid, besides)
        )

    def execute(
        self,
        request: ExecutionRequest,
        on_event: Callable[[Event], None],
        should_stop: Callable[[], bool],
    ) -> ExecutionResult:
        started = time.monotonic()
        done = super().execute(request, on_event, should_stop)
        self.seconds.append(time.monotonic() - started)
        self.read.append(done.read_bytes)
        return done


@dataclass(frozen=True)
class Seen:
    """A table as it is, with every footer."""

    observation: Observation
    view: TableView


@dataclass(frozen=True)
class Played:
    """One table before and after, and the proposals of the plan and of the next one.

    after: when this plan was done. days, end, rewritten: until no plan had any work left, which
    takes several under a budget; most_of_budget: share of a day's budget that was used at most.
    """

    drawn: Drawn
    before: Seen
    after: Seen
    plan: Proposal
    following: Proposal
    recorded: Workload
    later: Workload
    seconds: float
    cpu_seconds: float
    rows_equal: bool
    days: int
    end: Seen
    rewritten: int
    most_of_budget: float | None


def create(place: Place, drawn: Drawn, name: str) -> None:
    first = drawn.batches[0]
    properties = {"write.delete.mode": "merge-on-read"}
    if drawn.whole or drawn.target:
        properties[TARGET] = str(ONE_FILE if drawn.whole else drawn.target)
    if drawn.row_group:
        properties[ROW_GROUP_SIZE] = str(drawn.row_group)
    identifier = f"{NAMESPACE}.{name}"
    table = place.catalog.create_table(identifier, first.schema, properties=properties)
    if drawn.partition:
        with table.update_spec() as spec:
            for column, transform in drawn.partition:
                spec.add_field(column, parse_transform(transform), f"{column}_part")
    for batch in drawn.batches:
        table.append(batch)
    if drawn.whole:
        with table.transaction() as transaction:
            transaction.set_properties({TARGET: str(drawn.target)})
    for change in drawn.changes:
        place.spark.sql(change.format(t=place.full(name)))


def look(place: Place, name: str) -> Seen:
    cache = place.root / "cache"
    observation = observe_table(place.config, (NAMESPACE, name), cache)
    files = observation.files
    every = np.arange(len(files), dtype=np.int64)
    footers = read_row_groups(place.config, files, every)
    return Seen(observation, table_view(files, footers, None, ROW_GROUP))


@dataclass
class Collected:
    """Fragments of an import that goes nowhere else."""

    fragments: list[Fragment] = field(default_factory=list)

    def append_fragments(self, fragments: Iterable[Fragment]) -> None:
        self.fragments += fragments

    def recorded_positions(self) -> Keys:
        return np.empty(0, dtype=np.int64)

    def cursor(self, key: str) -> str | None:
        return None

    def set_cursor(self, key: str, value: str) -> None:
        return None

    def record_skips(self, table_uuid: str | None, counts: Mapping[str, int]) -> None:
        raise ValueError(f"queries of the bench were skipped: {dict(counts)}")


def imported(place: Place, name: str, asked: Sequence[Asked], sink: Any, title: str) -> None:
    """Import the queries as a log of one JSON line each, as `layoutctl workload import` does."""
    table = place.catalog.load_table(f"{NAMESPACE}.{name}")
    known = KnownTable(str(table.metadata.table_uuid), place.full(name), schema_of(table.metadata))
    log = place.root / f"{name}-{title}.jsonl"
    with log.open("w") as lines:
        for one in asked:
            sql = one.sql.format(t=place.full(name))
            line = {"sql": sql, "timestamp": _iso(one.at), "weight": one.weight}
            lines.write(json.dumps(line) + "\n")
    tables = SchemaMap({(place.config.name, NAMESPACE, name): known})
    SqlLogImport(SqlReader("spark", tables), sink, Session((), dt.UTC)).run(log)
    log.unlink()


def workload(place: Place, name: str, asked: Sequence[Asked]) -> Workload:
    """Return the queries as they are, literals and all: facts, no forecast of moving windows."""
    sink = Collected()
    imported(place, name, asked, sink, "later")
    return workload_of_fragments(sink.fragments)


def _iso(moment: dt.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def without_spark(root: Path) -> Place:
    """Return a place for tables that are planned, but not rewritten."""
    (root / "warehouse").mkdir()
    config = sqlite_catalog(root)
    catalog = SqlCatalog(config.name, **dict(config.properties))
    catalog.create_namespace(NAMESPACE)
    return Place(None, config, catalog, root)


def proposed(place: Place, drawn: Drawn) -> tuple[Seen, Proposal]:
    """Return the table before a rewrite, and what is planned from its recorded queries."""
    create(place, drawn, drawn.name)
    store = StateStore(place.root / "state")
    imported(place, drawn.name, drawn.recorded, store, "recorded")
    before = look(place, drawn.name)
    step = step_of(place, drawn.name, lambda: NOW.replace(tzinfo=dt.UTC), budget_of(drawn, before))
    return before, step.propose(LocalActor(store, place.root / "cache"))


def step_of(place: Place, name: str, clock: Clock, budget: int | None) -> Step:
    """Return the step. budget: bytes a day, None without one."""
    daily = {"name": "daily", "per": "24h", "maxRewriteBytes": str(budget)}
    policy = from_document({
        "apiVersion": "layout.lakehouse.dev/v1alpha1",
        "kind": "TableLayoutPolicy",
        "metadata": {"name": "bench"},
        "spec": {
            "catalogRef": {"name": place.config.name},
            "tables": {"include": [f"{NAMESPACE}.{name}"]},
            "layout": {"files": {"quietPeriod": "0s"}},
            "budgets": [daily] if budget else [],
        },
    })  # fmt: skip
    assert isinstance(policy, TableLayoutPolicy)
    return Step(Target(place.config, (NAMESPACE, name)), policy, "bench", clock)


def budget_of(drawn: Drawn, before: Seen) -> int | None:
    """Return the bytes a day that may be rewritten, None without a budget."""
    share, size = drawn.budget, before.observation.files.total_bytes
    return None if share is None else round(share * size)


def play(
    place: Place, drawn: Drawn, watch: Callable[[str], Any] = lambda name: None
) -> tuple[Played, list[Any]]:
    """Play the table once. watch: called with its name before and after; its results come back."""
    name = drawn.name
    create(place, drawn, name)
    store = StateStore(place.root / f"state-{name}")
    imported(place, name, drawn.recorded, store, "recorded")
    before, rows = look(place, name), _multiset(place, name)
    watched = [watch(name)]
    actor = TimedActor(store, place.root / "cache", spark=place.spark)
    budget = budget_of(drawn, before)
    step = step_of(place, name, actor.now, budget)
    plan = step.propose(actor)
    done = _stepped(step, actor, plan)
    cpu_seconds, after = _cpu(done), None
    while done.state.reason == "OverBudget" and len(actor.days) < MOST_DAYS:
        if after is None and done.after.plan.id != plan.plan.id:
            after = look(place, name)
        actor.next_day()
        done = _stepped(step, actor)
        cpu_seconds += _cpu(done) if after is None else 0.0
    end = look(place, name)
    watched.append(watch(name))
    played = Played(
        drawn=drawn,
        before=before,
        after=after or end,
        plan=plan,
        following=done.after,
        recorded=plan.queries.workload,
        later=workload(place, name, drawn.later),
        seconds=sum(actor.seconds),
        cpu_seconds=cpu_seconds,
        rows_equal=_multiset(place, name) == rows,
        days=len(actor.days),
        end=end,
        rewritten=sum(actor.read),
        most_of_budget=max(actor.read, default=0) / budget if budget else None,
    )
    return played, watched


def _stepped(step: Step, actor: TimedActor, plan: Proposal | None = None) -> StepResult:
    return run_step(
        step, actor, Approvals(everything=True), lambda event: None, lambda: False, plan
    )  # fmt: skip


def _cpu(done: StepResult) -> float:
    return done.result.cpu_seconds if done.result else 0.0


def _multiset(place: Place, name: str) -> Counter[str]:
    table = place.spark.table(place.full(name))
    hashed = table.selectExpr("xxhash64(to_json(struct(*))) AS h").groupBy("h").count().collect()
    return Counter({row["h"]: row["count"] for row in hashed})


@dataclass(frozen=True, slots=True)
class Read:
    """What a workload reads of a table: bytes, and the cost with opened files; shapes: bytes of
    each."""

    bytes: float
    cost: float
    shapes: Mapping[str, float]
    files: Mapping[str, float]


def read_of(view: TableView, asked: Workload) -> Read:
    size = cost = 0.0
    shapes: dict[str, float] = {}
    files: dict[str, float] = {}
    if asked.empty:
        return Read(0.0, 0.0, {}, {})
    for demand in demands(asked, view.files.schema, HORIZON_MS):
        reading = read_shape(view, demand)
        mine = float(demand.weight @ reading.bytes)
        size, cost = size + mine, cost + float(demand.weight @ reading.cost)
        shapes[demand.shape_id] = shapes.get(demand.shape_id, 0.0) + mine
        queries = max(float(demand.weight.sum()), 1e-9)
        files[demand.shape_id] = float(demand.weight @ reading.files) / queries
    return Read(size, cost, shapes, files)
