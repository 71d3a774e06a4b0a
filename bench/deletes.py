"""What each way to write an update costs, and what the maintenance of its deletes costs.

`python -m bench.deletes [--scale S] [--iterations N]` puts TPC-H lineitem into eight buckets and
merges the three cases of "Petabyte-Scale Row-Level Operations in Data Lakehouses", section 5, into
it: by copy-on-write, by positions per partition, by deletion vectors, and by equality deletes as
Flink writes them. Then it maintains the deletes, beside Iceberg's procedures on the same files.
Tables share the data files of one, so that all begin alike. CPU seconds are those of driver and
JVM. Sections of bench/RESULTS.md: Maintenance of deletes, and those of `bench.delete_modes`.
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
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

from bench.delete_modes import (
    BATCH,
    BUCKETS,
    CASES,
    MICRO,
    NEW_ROWS,
    SPARSE,
    Cost,
    Found,
    Written,
    choices,
    fitted,
    modes,
    verdict,
)
from bench.results import write_section
from reconciler.plan.actions.apply_deletes import ApplyDeletes
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.bin_pack import BinPack
from reconciler.plan.actions.delete_maintenance import CompactDeletes, ConvertDeletes
from reconciler.queries.rewrite_cost import ThroughputSample
from reconciler.spark import iceberg, session
from tests.conftest import sqlite_catalog, sqlite_spark_conf
from tests.spark.equality import add_equality_delete, delete_paths
from tests.spark.tables import Bench

FEW = 3
"""Iterations of equality deletes."""
FOLDED = 6
"""Iterations of vectors, which each operation folds into those of before."""
EAGER = 2
"""Iterations of copy-on-write: every one costs the same."""
READ = "sum(l_extendedprice), max(l_quantity), count(*)"
TIMES, CAREFULLY = 3, 7
"""Readings of which the cheapest counts; where modes are compared: the first ones after a change
compile code."""
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
KEYS = ("l_orderkey", "l_linenumber")
ITERATION = {
    SPARSE: "CAST(pmod(h, {rows} div 200) AS int)",
    MICRO: "CAST(pmod(h, 100) AS int)",
    BATCH: f"CAST(b + {BUCKETS} * pmod(h, 2) AS int)",
}
"""The iteration in which a row is updated, of its hash and bucket. Sparse: 25 rows a bucket."""
WAYS = {
    "copy-on-write": (2, "copy-on-write", EAGER),
    "positions": (2, "merge-on-read", 0),
    "vectors": (3, "merge-on-read", FOLDED),
    "equality": (2, "copy-on-write", FEW),
}
"""Format version, property, and iterations, 0 for all of them."""


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

    def read(self, name: str, times: int = TIMES) -> float:
        """CPU seconds of a full read, the best of several."""
        query = f"SELECT {READ} FROM {self.bench.full(name)}"
        return min(self.measured(lambda: self.bench.sql(query)).cpu for _ in range(times))

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

    def found(self) -> Found:
        return Found(self.rows, sum(file.file_size_in_bytes for file in self.files))

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
        which = ITERATION[case].format(rows=self.rows)
        path = lab.directory / f"changes-{self.base}-{CASES.index(case)}"
        lab.spark.sql(
            f"SELECT {updated}, n, b FROM (SELECT *, {which} AS n FROM (SELECT *, {bucket} AS b, "
            f"xxhash64({', '.join(KEYS)}) AS h FROM {full})) WHERE n < {self.iterations} UNION ALL "
            f"SELECT {columns}, n, {bucket} AS b FROM (SELECT {added}, n FROM "
            f"(SELECT * FROM {full} LIMIT 1), (SELECT CAST(id div {NEW_ROWS * BUCKETS} AS int) n, "
            f"id % {NEW_ROWS * BUCKETS} k FROM range({self.iterations * NEW_ROWS * BUCKETS})))"
        ).repartition("n").write.partitionBy("n").parquet(str(path))
        return path


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


def write(bed: Bed, case: str, way: str) -> Written:
    version, mode, few = WAYS[way]
    name = bed.table(version, mode)
    lazy = way in ("positions", "vectors")
    read = partial(bed.lab.read, name, CAREFULLY if lazy else TIMES)
    costs = []
    before = first = read() if lazy else bed.clean
    for number in range(min(few or bed.iterations, bed.iterations)):
        costs.append(bed.lab.measured(partial(iterate, bed, name, way, case, number)))
        if lazy and number == 0:
            first = read()
    least = min(costs, key=lambda cost: cost.cpu)
    return Written(name, least, len(costs), before, first, read())


def maintain(bed: Bed, case: str, found: Found) -> None:
    """Ours and Iceberg's on the same files: the table is rolled back in between."""
    lab = bed.lab
    positions, equality = found.by[case, "positions"], found.by[case, "equality"]
    ledger = found.ledger.setdefault(case, [])
    everything = "options => map('rewrite-all', 'true')"

    def theirs(procedure: str, name: str) -> Callable[[], None]:
        return lambda: lab.call(procedure, f"table => 'jobs.{name}', {everything}")

    compaction = CompactDeletes(inputs=delete_paths(lab.bench, positions.name))
    conversion = ConvertDeletes(inputs=delete_paths(lab.bench, equality.name, 2))
    # As a plan has them: an action for each partition.
    applying = [ApplyDeletes(inputs=(file.file_path,)) for file in bed.files]
    packing = _packing(bed, positions.name)
    acts: list[tuple[str, Written, Callable[[], None]]] = [
        ("compaction, ours", positions, partial(lab.run, positions.name, [compaction], ledger)),
        ("compaction, small data files too", positions,
         partial(lab.run, positions.name, [*packing, compaction], [])),
        ("compaction, Iceberg's procedure", positions,
         theirs("rewrite_position_delete_files", positions.name)),
        ("conversion, ours", equality, partial(lab.run, equality.name, [conversion], ledger)),
        ("major, ours", equality, partial(lab.run, equality.name, applying, ledger)),
        ("major, Iceberg's procedure", equality, theirs("rewrite_data_files", equality.name)),
    ]  # fmt: skip
    for title, written, act in acts:
        head = lab.bench.table(written.name).currentSnapshot().snapshotId()
        cost = lab.measured(act)
        found.maintenance[case, title] = cost, written.after, lab.read(written.name)
        lab.call("rollback_to_snapshot", f"'jobs.{written.name}', {head}")


def _packing(bed: Bed, name: str) -> list[Action]:
    """What a plan does with the data files that the operations left, in each partition."""
    known = {file.file_path for file in bed.files}
    left: dict[int, list[str]] = {}
    for file in bed.lab.bench.files(name):
        if file.file_path not in known:
            left.setdefault(file.partition.l_orderkey_bucket, []).append(file.file_path)
    return [BinPack(inputs=tuple(sorted(paths))) for paths in left.values() if len(paths) > 1]


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
        packed = found.maintenance[case, "compaction, small data files too"][2]
        lost = before - lazy.before
        back = "nothing was lost" if lost <= 0 else (
            f"{100 * (before - after) / lost:.0f} % of the degradation back "
            f"({100 * (before - read) / lost:.0f} % by the procedure, "
            f"{100 * (before - packed) / lost:.0f} % if small data files are packed too)"
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
    notes = (
        f"TPC-H lineitem, {bed.rows:,} rows, {found.bytes / (1 << 20):.0f} MiB in {BUCKETS} files; "
        f"the cheapest of {bed.iterations} MERGEs by positions, {EAGER} by copy-on-write, "
        f"{min(FOLDED, bed.iterations)} by vectors, {min(FEW, bed.iterations)} by equality, which "
        "is written by hand as Flink does. Each operation "
        f"adds {NEW_ROWS * BUCKETS} rows. Readings of the whole table in CPU seconds, the best of "
        f"{TIMES}, of positions and vectors of {CAREFULLY}. Model: `advisor/deletes/mode_cost`, of "
        "the writing alone, before anything was measured; calibrated: after our own actions of the "
        "other cases, as the ledger would hold them, with the range of what is uncertain. Its "
        "constants were chosen with an earlier run of these cases in view. "
        f"{fitted(found)} Goal: within 25 %. "
        f"The bench took {taken:.0f} s."
    )
    write_section("Write modes", command, modes(found), notes)
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
        "from the measured operations, readings and maintenance; in brackets by the calibrated "
        "model, which chooses. Each loss of a reading is undone by what was seen to undo it: a "
        "compaction gives back what it gave back here, a rewrite of the files all of it. A batch "
        "takes the buckets in turns, so that an eighth is rewritten for each. A reading is known "
        "to 0.03 CPU s at best, the cost at 1,000 of them to 30. Auto's mode and its cost / that "
        "of the cheapest, among the modes of the table's format version and among all three. "
        f"{verdict(found)}"
    )
    write_section("Choice of mode", command, choices(found), notes)


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
        small = Bed(lab, 4_000, 1)
        list(played(small, [MICRO], small.found()))  # compiles the code
        bed = Bed(lab, None, arguments.iterations)
        found = bed.found()
        command = f"python -m bench.deletes {' '.join(sys.argv[1:])}".strip()
        until = started + 60 * arguments.minutes
        for case in played(bed, CASES, found, until):
            print(f"{case}: {time.monotonic() - started:.0f} s", flush=True)
            _report(bed, found, command, time.monotonic() - started)
        session.stop(lab.spark)
    return 0


if __name__ == "__main__":
    sys.exit(main())
