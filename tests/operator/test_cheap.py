"""What a converged table costs: every catalog call and every file is counted on the real reader."""

from __future__ import annotations

import datetime as dt
import itertools
import re
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from reconciler.api.conditions import ConditionType
from reconciler.kube.kinds import POLICY, TABLE_LAYOUT
from reconciler.operator.conditions import condition_of
from reconciler.operator.process import reconcilers
from reconciler.operator.work import Key, Work
from tests.operator.test_live import NAMESPACE, Cluster

TABLES = ("a", "b", "c")
SCHEMA = pa.schema([("id", pa.int64())])


class Reads:
    """Loads by table, and files by what they are, since the last `clear`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        from pyiceberg.catalog.sql import SqlCatalog
        from pyiceberg.io.pyarrow import PyArrowFileIO

        self.loads: Counter[tuple[str, ...]] = Counter()
        self.files: Counter[str] = Counter()
        load, open_file = SqlCatalog.load_table, PyArrowFileIO.new_input

        def load_table(catalog: Any, identifier: Any) -> Any:
            levels = identifier.split(".") if isinstance(identifier, str) else identifier
            self.loads[tuple(levels)] += 1
            return load(catalog, identifier)

        def new_input(io: Any, location: str) -> Any:
            self.files[kind_of(location)] += 1
            return open_file(io, location)

        monkeypatch.setattr(SqlCatalog, "load_table", load_table)
        monkeypatch.setattr(PyArrowFileIO, "new_input", new_input)

    def clear(self) -> None:
        self.loads.clear()
        self.files.clear()


def kind_of(location: str) -> str:
    if "/sales/" not in location:
        return "state"
    return {".json": "metadata", ".avro": "manifest", ".parquet": "data"}[Path(location).suffix]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    monkeypatch.setenv("LAYOUTCTL_CACHE", str(tmp_path / "cache"))
    catalog = SqlCatalog(
        "lake", uri=f"sqlite:///{tmp_path}/lake.db?timeout=30", warehouse=f"file://{tmp_path}/wh"
    )
    catalog.create_namespace("sales")
    for name in TABLES:
        catalog.create_table(f"sales.{name}", SCHEMA).append(pa.table({"id": [1]}, schema=SCHEMA))
    return catalog


def test_a_converged_table_costs_one_load_an_interval_and_no_manifest(
    lake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = itertools.count(0, 600)
    start, seconds = dt.datetime.now(dt.UTC), [0.0]
    moments = lambda: start + dt.timedelta(seconds=seconds[0])  # noqa: E731
    monkeypatch.setattr(reconcilers, "now", moments)
    base = time.monotonic()
    monkeypatch.setattr(
        "reconciler.state.state_tables.time",
        SimpleNamespace(monotonic=lambda: base + seconds[0], sleep=time.sleep, time=time.time),
    )
    cluster = Cluster(tmp_path)
    cluster.apply(layout={"clustering": {"mode": "None"}}, interval="10m")
    cluster.turn(3)
    names = [body["metadata"]["name"] for body in cluster.server.all(TABLE_LAYOUT)]
    assert len(names) == len(TABLES)
    assert cluster.condition(POLICY, "Converged")["status"] == "True"
    for name in names:
        cluster.reconcilers.layout(Key(Work.LAYOUT, NAMESPACE, name))

    reads, calls = Reads(monkeypatch), sum(cluster.api.counted.values())
    rounds = 6
    for _ in range(rounds):
        seconds[0] = next(passed) + 600.0
        for name in names:
            due = cluster.reconcilers.layout(Key(Work.LAYOUT, NAMESPACE, name)).due
            assert 0.89 * 600 < due - moments().timestamp() < 1.11 * 600
    mine = {table: count for table, count in reads.loads.items() if table[0] == "sales"}
    assert mine == {("sales", name): rounds for name in TABLES}
    assert reads.files["manifest"] == reads.files["data"] == 0
    assert reads.files["metadata"] == rounds * len(TABLES), "the load itself"
    shared = sum(reads.loads.values()) - sum(mine.values())
    assert shared <= 3 * rounds, f"state is asked once an interval for all tables: {reads.loads}"
    assert sum(cluster.api.counted.values()) == calls, "no call of the API server"

    reads.clear()
    table = lake.load_table("sales.a")
    table.append(pa.table({"id": [2]}, schema=SCHEMA))
    reads.clear()
    for _ in range(2):
        seconds[0] = next(passed) + 600.0
        for name in names:
            cluster.reconcilers.layout(Key(Work.LAYOUT, NAMESPACE, name))
    assert 0 < reads.files["manifest"] <= 3, "the new snapshot's list and its new manifest, once"
    assert reads.loads["sales", "b"] == 2


def test_work_that_a_quiet_period_held_back_is_found_when_it_ends(
    lake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing about the table moves then: the cheap check alone would never look again."""
    start, minutes = dt.datetime.now(dt.UTC), [0.0]
    moments = lambda: start + dt.timedelta(minutes=minutes[0])  # noqa: E731
    monkeypatch.setattr(reconcilers, "now", moments)
    table = lake.load_table("sales.a")
    for number in range(2, 10):
        table.append(pa.table({"id": [number]}, schema=SCHEMA))
    table.delete("id = 1")
    cluster = Cluster(tmp_path)
    cluster.apply(layout={"clustering": {"mode": "None"}}, interval="1h")
    cluster.turn(3)
    (name,) = (
        body["metadata"]["name"]
        for body in cluster.server.all(TABLE_LAYOUT)
        if body["spec"]["table"]["name"] == "a"
    )

    def converged() -> tuple[str, str, str]:
        body = next(b for b in cluster.server.all(TABLE_LAYOUT) if b["metadata"]["name"] == name)
        found = condition_of(body["status"], ConditionType.CONVERGED)
        return found["status"], found["reason"], found["message"]

    status, reason, message = converged()
    assert (status, reason) == ("True", "NothingToDo")
    assert re.search(r"\b1 \w+ of 8 \w+", message) and "quiet" in message
    minutes[0] = 10.0
    due = cluster.reconcilers.layout(Key(Work.LAYOUT, NAMESPACE, name)).due
    assert converged()[0] == "True"
    wait = due - moments().timestamp()
    assert 4 * 60 < wait < 6 * 60, f"when the fifteen minutes end, not in an hour: {wait}"
    minutes[0] += wait / 60
    cluster.reconcilers.layout(Key(Work.LAYOUT, NAMESPACE, name))
    assert converged()[:2] == ("False", "AwaitingApproval")
