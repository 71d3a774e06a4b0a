"""Tables that begin alike, and what is measured of them: for the benches of write modes.

A `Bed` puts TPC-H rows into buckets and has the changes of each case; its tables share the data
files of one. CPU seconds are those of driver and JVM.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from bench.delete_modes import (
    BATCH,
    BUCKETS,
    CASES,
    HELD,
    MICRO,
    NEW_ROWS,
    SPARSE,
    Cost,
    Found,
    Opened,
    Reading,
    reading_of,
)
from reconciler.plan.actions.base import Action
from reconciler.queries.rewrite_cost import ThroughputSample
from reconciler.spark.session import iceberg, session
from tests.conftest import sqlite_catalog, sqlite_spark_conf
from tests.spark.tables import Bench

ROUNDS = 9
"""Readings of each table that count: the mean without the least and the most, as in the paper."""
CACHE = "spark.sql.iceberg.executor-cache.enabled"
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


@dataclass(frozen=True)
class Source:
    """A TPC-H table. keys: of its rows, the first one has the buckets; updated: a number."""

    view: str
    keys: tuple[str, ...]
    updated: str


LINEITEM = Source("lineitem", ("l_orderkey", "l_linenumber"), "l_quantity")
ORDERS = Source("orders", ("o_orderkey",), "o_totalprice")
ITERATION = {
    SPARSE: "CAST(pmod(h, {rows} div 200) AS int)",
    MICRO: "CAST(pmod(h, 100) AS int)",
    BATCH: f"CAST(b + {BUCKETS} * pmod(h, 2) AS int)",
    HELD: "CAST(pmod(h, 20) AS int)",
}
"""The iteration in which a row is updated, of its hash and bucket. Sparse: 25 rows a bucket."""


@dataclass(frozen=True)
class State:
    """A table as of a snapshot. cached: whether an executor keeps delete files that it has read for
    its other tasks, as Spark does by default."""

    name: str
    snapshot: int
    cached: bool = True


class Lab:
    """One session and one source of rows; what is measured runs alone."""

    def __init__(self, directory: Path, sources: Path) -> None:
        """sources: directory of the files of all `Source`s."""
        config = sqlite_catalog(directory)
        SqlCatalog(config.name, **dict(config.properties))
        conf = {
            **sqlite_spark_conf(directory), "spark.driver.memory": "6g",
            "spark.sql.extensions": EXTENSIONS,
        }  # fmt: skip
        self.spark = session.start(conf, app="bench", master="local[2]")
        self.bench = Bench(self.spark, config, directory / "bench")
        self.directory = directory
        for source in (LINEITEM, ORDERS):
            path = str(sources / f"{source.view}.parquet")
            self.spark.read.parquet(path).createOrReplaceTempView(source.view)
        self.plans = 0

    def measured(self, act: Callable[[], Any]) -> Cost:
        cpu, started = self._cpu(), time.monotonic()
        act()
        return Cost(self._cpu() - cpu, time.monotonic() - started)

    def _cpu(self) -> float:
        pid = iceberg.jvm_pid(self.spark)
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") + time.process_time()

    def state(self, name: str) -> State:
        return State(name, self.bench.table(name).currentSnapshot().snapshotId())

    def in_turns(
        self, states: Iterable[State], values: str, rounds: int = ROUNDS
    ) -> dict[State, Reading]:
        """Return what a full scan of each takes; values: aggregates of all rows.

        They are read in turns, each round in another order: the machine and the compiler change
        in the course of minutes by more than deletes cost. The first round compiles.
        """
        found: dict[State, list[float]] = {state: [] for state in states}
        for number in range(rounds + 1):
            for state in random.Random(number).sample(list(found), len(found)):
                query = (
                    f"SELECT {values} FROM {self.bench.full(state.name)} "
                    f"VERSION AS OF {state.snapshot}"
                )
                self.spark.conf.set(CACHE, str(state.cached).lower())
                found[state].append(self.measured(partial(self.bench.sql, query)).cpu)
        self.spark.conf.unset(CACHE)
        return {state: reading_of(cpu[1:]) for state, cpu in found.items()}

    def opened(self, state: State) -> Opened:
        """Return what a reading of all columns opens."""
        scan = self.bench.table(state.name).newScan().useSnapshot(state.snapshot)
        deletes = [
            [delete.location() for delete in task.deletes()]
            for task in iceberg.each(scan.planFiles())
        ]
        paths = [path for each in deletes for path in each]
        text = f"SELECT * FROM {self.bench.full(state.name)} VERSION AS OF {state.snapshot}"
        tasks = int(self.spark.sql(text).rdd.getNumPartitions())
        return Opened(len(deletes), len(set(paths)), len(paths), tasks)

    def run(self, name: str, actions: Sequence[Action], ledger: list[ThroughputSample]) -> None:
        """Carry out actions of one kind, and note what they took. Each plan has an id of its own:
        what was rolled back is not done again."""
        self.plans += 1
        result = self.bench.run(self.bench.request(name, *actions, plan=f"p-{self.plans}"))
        assert result.done, result
        ledger.extend(
            ThroughputSample(
                actions[0].work,
                one.read_bytes,
                one.cpu_seconds,
                one.seconds,
                one.files_in,
                first=number == 0,
            )
            for number, one in enumerate(result.outcomes)
            if actions[0].work is not None and one.cpu_seconds > 0
        )

    def call(self, procedure: str, arguments: str) -> None:
        self.bench.sql(f"CALL {self.bench.config.name}.system.{procedure}({arguments})")


class Bed:
    """A base table, and tables that begin with its data files."""

    def __init__(
        self, lab: Lab, rows: int | None, iterations: int, source: Source = LINEITEM,
        cases: Sequence[str] = CASES, pieces: int = 1,
    ) -> None:  # fmt: skip
        """rows: only so many of the source's rows, None for all. cases: to be played. pieces: data
        files of a bucket."""
        self.lab, self.iterations, self.source = lab, iterations, source
        self.types = {
            field.name: field.dataType.simpleString()
            for field in lab.spark.table(source.view).schema.fields
        }
        limit = f"LIMIT {rows}" if rows else ""
        self.base = self._create(2, "copy-on-write")
        for piece in range(pieces):
            lab.bench.sql(
                f"INSERT INTO {lab.bench.full(self.base)} "
                f"SELECT * FROM (SELECT * FROM {source.view} {limit}) "
                f"WHERE pmod(xxhash64({source.keys[0]}), {pieces}) = {piece}"
            )
        self.files = lab.bench.files(self.base)
        self.rows = sum(file.record_count for file in self.files)
        self.bytes = sum(file.file_size_in_bytes for file in self.files)
        self.changes = {case: self._changes(case) for case in cases}

    def found(self) -> Found:
        return Found(self.rows, self.bytes)

    def _create(self, version: int, mode: str) -> str:
        modes = ", ".join(f"'write.{of}.mode'='{mode}'" for of in ("delete", "update", "merge"))
        return self.lab.bench.create(
            ", ".join(f"{name} {kind}" for name, kind in self.types.items()),
            f"'format-version'='{version}', {modes}, 'write.delete.granularity'='partition'",
            f"bucket({BUCKETS}, {self.source.keys[0]})",
        )

    def table(self, version: int, mode: str) -> str:
        name = self._create(version, mode)
        tasks = self.lab.bench.table(self.base).newScan().planFiles()
        append = self.lab.bench.table(name).newAppend()
        for task in iceberg.each(tasks):
            append.appendFile(task.file())
        append.commit()
        return name

    def bucket(self, file: Any) -> int:
        return int(file.partition[f"{self.source.keys[0]}_bucket"])

    def _changes(self, case: str) -> Path:
        """Write the changed and the new rows of each iteration; return their directory."""
        lab, keys, number = self.lab, self.source.keys, self.source.updated
        key, hashed = keys[0], f"xxhash64({', '.join(keys)})"
        full, columns = lab.bench.full(self.base), ", ".join(self.types)
        bucket = f"{lab.bench.config.name}.system.bucket({BUCKETS}, {key})"
        updated = columns.replace(number, f"{number} + 1 AS {number}")
        added = columns.replace(key, f"100000000 + n * 1000 + k AS {key}", 1)
        which = ITERATION[case].format(rows=self.rows)
        path = lab.directory / f"changes-{self.base}-{len(case)}"
        lab.spark.sql(
            f"SELECT {updated}, n, b FROM (SELECT *, {which} AS n FROM (SELECT *, {bucket} AS b, "
            f"{hashed} AS h FROM {full})) WHERE n < {self.iterations} UNION ALL "
            f"SELECT {columns}, n, {bucket} AS b FROM (SELECT {added}, n FROM "
            f"(SELECT * FROM {full} LIMIT 1), (SELECT CAST(id div {NEW_ROWS * BUCKETS} AS int) n, "
            f"id % {NEW_ROWS * BUCKETS} k FROM range({self.iterations * NEW_ROWS * BUCKETS})))"
        ).repartition("n").write.partitionBy("n").parquet(str(path))
        return path


def aggregates(types: Mapping[str, str], number: str) -> str:
    """Return aggregates that read all columns, and do little else: scans are what is compared.

    Iceberg answers counts and maxima from metadata where a table has no deletes; not if one sum is
    among them.
    """
    each = (f"{'count' if kind == 'string' else 'max'}({name})" for name, kind in types.items())
    return ", ".join([f"sum({number})", *each])
