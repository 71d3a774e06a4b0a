"""What each way to write an update costs, and what the maintenance of its deletes costs.

`python -m bench.deletes [--scale S] [--iterations N]` puts TPC-H lineitem into eight buckets and
merges the three cases of "Petabyte-Scale Row-Level Operations in Data Lakehouses", section 5, into
it: by copy-on-write, by positions per partition, by deletion vectors, and by equality deletes as
Flink writes them. Then it maintains the deletes, beside Iceberg's procedures on the same files.
Tables share the data files of one, so that all begin alike. CPU seconds are those of driver and
JVM. Sections of bench/RESULTS.md: Write modes, Maintenance of deletes, Choice of mode.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from scipy.optimize import nnls

from bench.results import write_section
from reconciler.advisor.deletes.mode_cost import Operation, Way, maintained, seconds, write_seconds
from reconciler.plan.actions.apply_deletes import ApplyDeletes
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.delete_maintenance import CompactDeletes, ConvertDeletes
from reconciler.queries.rewrite_cost import PRIOR_THROUGHPUT
from reconciler.spark import iceberg, session
from tests.conftest import sqlite_catalog, sqlite_spark_conf
from tests.spark.equality import add_equality_delete, delete_paths
from tests.spark.tables import Bench

BUCKETS = 8
NEW_ROWS = 25
"""Rows that each operation adds to each bucket."""
FEW = 3
"""Iterations of the ways whose deletes are not compacted by position."""
EAGER = 2
"""Iterations of copy-on-write: every one costs the same."""
READ = "sum(l_extendedprice), max(l_quantity), count(*)"
READS = (1, 10, 100, 1000)
"""Readings of the table between two operations for which a mode is chosen."""
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
KEYS = ("l_orderkey", "l_linenumber")
CASES = {
    "sparse": "CAST(pmod(h, {rows} div 200) AS int)",
    "micro-batch, 1 %": "CAST(pmod(h, 100) AS int)",
    "batch, half of a bucket": f"CAST(b + {BUCKETS} * pmod(h, 2) AS int)",
}
"""The iteration in which a row is updated, of its hash and bucket. Sparse: 25 rows a bucket."""
WAYS = {
    "copy-on-write": (2, "copy-on-write", EAGER),
    "positions": (2, "merge-on-read", 0),
    "vectors": (3, "merge-on-read", FEW),
    "equality": (2, "copy-on-write", FEW),
}
"""Format version, property, and iterations, 0 for all of them."""
MODEL = {
    "copy-on-write": Way.COPY_ON_WRITE, "positions": Way.PARTITION, "vectors": Way.VECTORS,
}  # fmt: skip


@dataclass
class Cost:
    """cpu: seconds of driver and JVM."""

    cpu: float
    wall: float


class Lab:
    """One session and one source of rows; what is measured runs alone."""

    def __init__(self, directory: Path, source: Path) -> None:
        config = sqlite_catalog(directory)
        SqlCatalog(config.name, **dict(config.properties))
        conf = {
            **sqlite_spark_conf(directory), "spark.driver.memory": "6g",
            "spark.sql.extensions": EXTENSIONS,
        }  # fmt: skip
        self.spark = session.start(conf, app="bench", master="local[2]")
        self.bench = Bench(self.spark, config, directory / "bench")
        self.directory = directory
        self.spark.read.parquet(str(source)).createOrReplaceTempView("lineitem")
        self.columns = [field.name for field in self.spark.table("lineitem").schema.fields]
        self.types = ", ".join(
            f"{field.name} {field.dataType.simpleString()}"
            for field in self.spark.table("lineitem").schema.fields
        )
        self.plans = 0

    def measured(self, act: Callable[[], Any]) -> Cost:
        cpu, started = self._cpu(), time.monotonic()
        act()
        return Cost(self._cpu() - cpu, time.monotonic() - started)

    def _cpu(self) -> float:
        pid = iceberg.jvm_pid(self.spark)
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") + time.process_time()

    def read(self, name: str) -> float:
        """CPU seconds of a full read, the best of three."""
        query = f"SELECT {READ} FROM {self.bench.full(name)}"
        return min(self.measured(lambda: self.bench.sql(query)).cpu for _ in range(3))

    def run(self, name: str, action: Action) -> None:
        """Each plan has an id of its own: what was rolled back is not done again."""
        self.plans += 1
        result = self.bench.run(self.bench.request(name, action, plan=f"p-{self.plans}"))
        assert result.done, result

    def call(self, procedure: str, arguments: str) -> None:
        self.bench.sql(f"CALL {self.bench.config.name}.system.{procedure}({arguments})")


class Bed:
    """A base table, and tables that begin with its data files."""

    def __init__(self, lab: Lab, rows: int | None, iterations: int) -> None:
        """rows: only so many of the source's rows, None for all."""
        self.lab, self.iterations = lab, iterations
        limit = f"LIMIT {rows}" if rows else ""
        self.base = self._create(2, "copy-on-write")
        lab.bench.sql(f"INSERT INTO {lab.bench.full(self.base)} SELECT * FROM lineitem {limit}")
        self.files = lab.bench.files(self.base)
        self.rows = sum(file.record_count for file in self.files)
        self.clean = lab.read(self.base)
        self.changes = {case: self._changes(case) for case in CASES}

    def _create(self, version: int, mode: str) -> str:
        return self.lab.bench.create(
            self.lab.types,
            f"'format-version'='{version}', 'write.merge.mode'='{mode}', "
            "'write.delete.granularity'='partition'",
            f"bucket({BUCKETS}, l_orderkey)",
        )

    def table(self, version: int, mode: str) -> str:
        name = self._create(version, mode)
        tasks = self.lab.bench.table(self.base).newScan().planFiles()
        append = self.lab.bench.table(name).newAppend()
        for task in iceberg.each(tasks):
            append.appendFile(task.file())
        append.commit()
        return name

    def _changes(self, case: str) -> Path:
        """Write the changed and the new rows of each iteration; return their directory."""
        lab = self.lab
        full, columns = lab.bench.full(self.base), ", ".join(lab.columns)
        bucket = f"{lab.bench.config.name}.system.bucket({BUCKETS}, l_orderkey)"
        updated = columns.replace("l_quantity", "l_quantity + 1 AS l_quantity")
        added = columns.replace("l_orderkey", "100000000 + n * 1000 + k AS l_orderkey", 1)
        which = CASES[case].format(rows=self.rows)
        path = lab.directory / f"changes-{self.base}-{list(CASES).index(case)}"
        lab.spark.sql(
            f"SELECT {updated}, n, b FROM (SELECT *, {which} AS n FROM (SELECT *, {bucket} AS b, "
            f"xxhash64({', '.join(KEYS)}) AS h FROM {full})) WHERE n < {self.iterations} UNION ALL "
            f"SELECT {columns}, n, {bucket} AS b FROM (SELECT {added}, n FROM "
            f"(SELECT * FROM {full} LIMIT 1), (SELECT CAST(id div {NEW_ROWS * BUCKETS} AS int) n, "
            f"id % {NEW_ROWS * BUCKETS} k FROM range({self.iterations * NEW_ROWS * BUCKETS})))"
        ).repartition("n").write.partitionBy("n").parquet(str(path))
        return path

    def number(self, case: str) -> int:
        """Rows that one operation changes."""
        parts = {"sparse": NEW_ROWS * BUCKETS, "micro": self.rows // 100}
        return parts.get(case.split("-")[0].split(",")[0], self.rows // (2 * BUCKETS))


def iterate(bed: Bed, name: str, way: str, case: str, number: int) -> None:
    """One operation: by MERGE, or as an upsert by equality."""
    lab, changes = bed.lab, bed.changes[case] / f"n={number}"
    full, columns = lab.bench.full(name), ", ".join(lab.columns)
    source = f"SELECT {columns} FROM parquet.`{changes}`"
    if way != "equality":
        on = " AND ".join(f"t.{key} = s.{key}" for key in KEYS)
        lab.bench.sql(
            f"MERGE INTO {full} t USING ({source}) s ON {on} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        return
    keys = pq.read_table(changes, columns=[*KEYS, "b"])
    for file in bed.files:
        bucket = file.partition.l_orderkey_bucket
        own = keys.filter(pc.equal(keys["b"], bucket))
        if own.num_rows:
            columns_of = {key: own[key].combine_chunks() for key in KEYS}
            add_equality_delete(lab.bench, name, columns_of, like=file.file_path)
    lab.bench.sql(f"INSERT INTO {full} {source}")


@dataclass
class Written:
    """What a way of writing a case cost: an operation at its cheapest; readings in CPU seconds."""

    name: str
    each: Cost
    iterations: int
    before: float
    after: float


@dataclass
class Found:
    """by: (case, way). maintenance: (case, title) -> cost, reading before and after."""

    by: dict[tuple[str, str], Written] = field(default_factory=dict)
    maintenance: dict[tuple[str, str], tuple[Cost, float, float]] = field(default_factory=dict)


def write(bed: Bed, case: str, way: str) -> Written:
    version, mode, few = WAYS[way]
    name = bed.table(version, mode)
    count = min(few or bed.iterations, bed.iterations)
    costs = [
        bed.lab.measured(partial(iterate, bed, name, way, case, number)) for number in range(count)
    ]
    return Written(
        name, min(costs, key=lambda cost: cost.cpu), count, bed.clean, bed.lab.read(name)
    )


def maintain(bed: Bed, case: str, found: Found) -> None:
    """Ours and Iceberg's on the same files: the table is rolled back in between."""
    lab = bed.lab
    positions, equality = found.by[case, "positions"], found.by[case, "equality"]
    everything = "options => map('rewrite-all', 'true')"

    def theirs(procedure: str, name: str) -> Callable[[], None]:
        return lambda: lab.call(procedure, f"table => 'jobs.{name}', {everything}")

    compaction = CompactDeletes(inputs=delete_paths(lab.bench, positions.name))
    conversion = ConvertDeletes(inputs=delete_paths(lab.bench, equality.name, 2))
    applying = ApplyDeletes(inputs=tuple(sorted(file.file_path for file in bed.files)))
    acts: list[tuple[str, Written, Callable[[], None]]] = [
        ("compaction, ours", positions, partial(lab.run, positions.name, compaction)),
        ("compaction, Iceberg's procedure", positions,
         theirs("rewrite_position_delete_files", positions.name)),
        ("conversion, ours", equality, partial(lab.run, equality.name, conversion)),
        ("major, ours", equality, partial(lab.run, equality.name, applying)),
        ("major, Iceberg's procedure", equality, theirs("rewrite_data_files", equality.name)),
    ]  # fmt: skip
    for title, written, act in acts:
        head = lab.bench.table(written.name).currentSnapshot().snapshotId()
        cost = lab.measured(act)
        found.maintenance[case, title] = cost, written.after, lab.read(written.name)
        lab.call("rollback_to_snapshot", f"'jobs.{written.name}', {head}")


def operation_of(bed: Bed, case: str, reads: float) -> Operation:
    """The operation as the advisor's model sees it."""
    buckets = 1 if case.startswith("batch") else BUCKETS
    count = bed.number(case)
    size = sum(file.file_size_in_bytes for file in bed.files) * buckets / BUCKETS
    return Operation(
        rows=count, added=count + NEW_ROWS * BUCKETS, files=buckets, bytes=size,
        partitions=BUCKETS, shared=BUCKETS, reads=reads, share=1.0,
    )  # fmt: skip


def measured_seconds(case: str, way: str, reads: float, found: Found) -> float:
    """CPU seconds of one operation with its share of reading and maintenance, as `mode_cost` has
    them, from what was measured."""
    one = found.by[case, way]
    if way == "copy-on-write":
        return one.each.cpu
    step = max(one.after - one.before, 0.0) / one.iterations
    title = "compaction, ours" if way == "positions" else "major, ours"
    return one.each.cpu + maintained(reads * step, found.maintenance[case, title][0].cpu)


def _modes(bed: Bed, found: Found) -> list[tuple[str, ...]]:
    rows = [("case and mode", "CPU s", "s", "model, CPU s", "read before", "read after")]
    for (case, way), one in found.by.items():
        model = "-"
        if way in MODEL:
            one_operation = operation_of(bed, case, 0.0)
            model = f"{write_seconds(MODEL[way], one_operation, PRIOR_THROUGHPUT):.2f}"
        rows.append((f"{case}: {way}", f"{one.each.cpu:.2f}", f"{one.each.wall:.2f}", model,
                     f"{one.before:.2f}", f"{one.after:.2f}"))  # fmt: skip
    return rows


def _fitted(bed: Bed, found: Found) -> str:
    """The model's constants that fit the measured operations best: least squares of the relative
    error, none of them negative."""
    terms = ("per operation", "per byte to find", "per byte rewritten", "per row written")
    lines, ones = [], []
    for (case, way), one in found.by.items():
        if way in MODEL:
            operation = operation_of(bed, case, 0.0)
            eager = way == "copy-on-write"
            line = [1.0, operation.bytes * (not eager), operation.bytes * eager, operation.added]
            lines.append([value / one.each.cpu for value in line])
            ones.append(1.0)
    fitted, _ = nnls(np.array(lines), np.array(ones))
    named = (f"{value:.2g} {term}" for value, term in zip(fitted, terms, strict=True))
    return f"fitted to these operations: {', '.join(named)}"


def _maintenance(found: Found) -> tuple[list[tuple[str, ...]], list[str]]:
    rows = [("case and action", "CPU s", "s", "read before", "read after")]
    goals = []
    for (case, title), (cost, before, after) in found.maintenance.items():
        rows.append((f"{case}: {title}", f"{cost.cpu:.2f}", f"{cost.wall:.2f}", f"{before:.2f}",
                     f"{after:.2f}"))  # fmt: skip
    for case in dict.fromkeys(case for case, _ in found.maintenance):
        eager, lazy = found.by[case, "copy-on-write"], found.by[case, "positions"]
        (mine, before, after), (theirs, _, read) = (
            found.maintenance[case, f"compaction, {whose}"]
            for whose in ("ours", "Iceberg's procedure")
        )
        (turned, _, left), (major, _, _), (foreign, _, _) = (
            found.maintenance[case, title]
            for title in ("conversion, ours", "major, ours", "major, Iceberg's procedure")
        )
        lost = before - lazy.before
        back = "nothing was lost" if lost <= 0 else (
            f"{100 * (before - after) / lost:.0f} % of the degradation back "
            f"({100 * (before - read) / lost:.0f} % by the procedure)"
        )  # fmt: skip
        vectors = found.by[case, "vectors"].after
        goals.append(
            f"- {case}: compaction {mine.cpu / eager.each.cpu:.3f} of a copy-on-write iteration "
            f"({mine.wall / eager.each.wall:.3f} of its time), the procedure "
            f"{theirs.cpu / eager.each.cpu:.3f} ({theirs.wall / eager.each.wall:.3f}), {back}; "
            f"conversion {turned.cpu / major.cpu:.2f} of our major compaction, "
            f"{turned.cpu / foreign.cpu:.2f} of the procedure's ({turned.wall / major.wall:.2f} "
            f"and {turned.wall / foreign.wall:.2f} of their time), reading afterwards "
            f"{left / vectors:.2f} of reading with vectors"
        )
    return rows, goals


def _choices(bed: Bed, found: Found) -> list[tuple[str, ...]]:
    rows = [("case, readings", "Auto", *MODEL, "Auto / cheapest")]
    for case in dict.fromkeys(case for case, _ in found.maintenance):
        for reads in READS:
            one = operation_of(bed, case, reads)
            chosen = min(MODEL, key=lambda way: seconds(MODEL[way], one, PRIOR_THROUGHPUT))
            costs = {way: measured_seconds(case, way, reads, found) for way in MODEL}
            rows.append((f"{case}, {reads}", chosen, *(f"{costs[way]:.2f}" for way in MODEL),
                         f"{costs[chosen] / min(costs.values()):.2f}"))  # fmt: skip
    return rows


def played(bed: Bed, cases: Sequence[str], found: Found, until: float = math.inf) -> Iterator[str]:
    """Play the cases and yield each; leave out those that would not end before `until`, a time as
    of time.monotonic, if they take as long as the longest so far."""
    longest = 0.0
    for case in cases:
        started = time.monotonic()
        if started + longest > until:
            return
        for way in WAYS:
            found.by[case, way] = write(bed, case, way)
            print(case, way, found.by[case, way], flush=True)
        maintain(bed, case, found)
        longest = max(longest, time.monotonic() - started)
        yield case


def _report(bed: Bed, found: Found, command: str, taken: float) -> None:
    size = sum(file.file_size_in_bytes for file in bed.files) / (1 << 20)
    notes = (
        f"TPC-H lineitem, {bed.rows:,} rows, {size:.0f} MiB in {BUCKETS} files; the cheapest of "
        f"{bed.iterations} MERGEs by positions, {EAGER} by copy-on-write, {FEW} by vectors and by "
        "equality, which is written by hand as Flink does. Each operation adds "
        f"{NEW_ROWS * BUCKETS} rows. Readings of the whole table in CPU seconds, the best of 3. "
        "Model: `advisor/deletes/mode_cost`, of the writing alone; "
        f"{_fitted(bed, found)}. The bench "
        f"took {taken:.0f} s."
    )
    write_section("Write modes", command, _modes(bed, found), notes)
    rows, goals = _maintenance(found)
    notes = (
        f'Of the tables of section "Write modes": the deletes of {bed.iterations} operations by '
        f"position, of {FEW} by equality. Ours include verification; the procedures verify "
        "nothing. Goals: compaction 0.15, back 45 %, conversion 0.4, reading 1.1.\n\n"
        + "\n".join(goals)
    )
    print(write_section("Maintenance of deletes", command, rows, notes))
    notes = (
        "CPU seconds of an operation with its share of so many readings and of the maintenance, "
        "from the measured operations, readings and maintenance; Auto by the model alone. Goal: "
        "within 5 % of the cheapest."
    )
    write_section("Choice of mode", command, _choices(bed, found), notes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.01)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=60.0, help="leave out cases after that")
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="layout-bench-") as path:
        directory = Path(path)
        (directory / "warehouse").mkdir()
        tpchgen = str(Path(sys.executable).parent / "tpchgen-cli")
        subprocess.run(
            [tpchgen, "parquet", "-s", f"{arguments.scale:g}", "--tables=lineitem",
             f"--output-dir={directory}"],
            check=True, capture_output=True,
        )  # fmt: skip
        lab = Lab(directory, directory / "lineitem.parquet")
        list(played(Bed(lab, 4_000, 1), ["micro-batch, 1 %"], Found()))  # compiles the code
        bed, found = Bed(lab, None, arguments.iterations), Found()
        command = f"python -m bench.deletes {' '.join(sys.argv[1:])}".strip()
        until = started + 60 * arguments.minutes
        for case in played(bed, list(CASES), found, until):
            print(f"{case}: {time.monotonic() - started:.0f} s", flush=True)
            _report(bed, found, command, time.monotonic() - started)
        session.stop(lab.spark)
    return 0


if __name__ == "__main__":
    sys.exit(main())
