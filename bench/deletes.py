"""What each way to write an update costs, and what the maintenance of its deletes costs.

`python -m bench.deletes [ROWS]` makes tables of ROWS rows in eight buckets. It merges the three
cases of "Petabyte-Scale Row-Level Operations in Data Lakehouses", section 5, into them with
copy-on-write, with deletion vectors and with equality deletes, beside what the cost model says;
then it deletes by position and by equality, and maintains the deletes. CPU seconds are those of
driver and JVM; bench/RESULTS.md.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from bench.results import write_section
from reconciler.advisor.deletes.mode_cost import Operation, Way, seconds
from reconciler.plan.actions.apply_deletes import ApplyDeletes
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.delete_maintenance import CompactDeletes, ConvertDeletes
from reconciler.queries.rewrite_cost import PRIOR_THROUGHPUT
from reconciler.spark import iceberg, session
from tests.conftest import sqlite_catalog, sqlite_spark_conf
from tests.spark.equality import add_equality_delete, delete_paths
from tests.spark.tables import Bench

ROWS = 300_000
BUCKETS = 8
KEYS = 15_000
ITERATIONS = 2
COLUMNS = (
    "id bigint, quantity double, price double, discount double, tax double, part bigint, "
    "supplier bigint, flag string, status string, day date, note string"
)
ROW = (
    "id, pmod(hash(id, 1), 50) * 1.0D, pmod(hash(id, 2), 100000) * 1.0D, "
    "pmod(hash(id, 3), 1000) / 1000D, pmod(hash(id, 4), 1000) / 1000D, id * 7919 % 200000, "
    "id % 10000, "
    "substr('ANR', 1 + id % 3, 1), substr('OF', 1 + id % 2, 1), "
    "date_add(DATE'2026-01-01', cast(id % 300 AS int)), concat('note ', hash(id))"
)
NAMES = ", ".join(part.split()[0] for part in COLUMNS.split(", "))
READ = "sum(price), max(quantity), count(*)"


class Lab:
    """One session, and the tables of the bench."""

    def __init__(self, directory: Path) -> None:
        config = sqlite_catalog(directory)
        SqlCatalog(config.name, **dict(config.properties))
        self.spark = session.start(
            {**sqlite_spark_conf(directory), "spark.driver.memory": "3g"},
            app="bench", master="local[2]",
        )  # fmt: skip
        self.bench = Bench(self.spark, config, directory / "bench")

    def cpu(self) -> float:
        pid = iceberg.jvm_pid(self.spark)
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") + time.process_time()

    def measured(self, act: Callable[[], Any]) -> tuple[float, float]:
        """CPU seconds and seconds."""
        cpu, started = self.cpu(), time.monotonic()
        act()
        return self.cpu() - cpu, time.monotonic() - started

    def read(self, name: str) -> float:
        """CPU seconds of a full read, the better of two."""
        query = f"SELECT {READ} FROM {self.bench.full(name)}"
        return min(self.measured(lambda: self.bench.sql(query))[0] for _ in range(2))

    def table(self, rows: int, version: int, mode: str, partitioned: bool) -> str:
        name = self.bench.create(
            COLUMNS,
            f"'format-version'='{version}', 'write.delete.mode'='{mode}', "
            "'write.delete.granularity'='partition'",
            f"bucket({BUCKETS}, id)" if partitioned else "",
        )
        spread = f"/*+ REPARTITION({BUCKETS}) */" if not partitioned else ""
        self.bench.sql(
            f"INSERT INTO {self.bench.full(name)} SELECT {spread} {ROW} FROM range({rows})"
        )
        return name

    def delete(self, name: str, share: int) -> None:
        self.bench.sql(f"DELETE FROM {self.bench.full(name)} WHERE id % 100 = {share}")

    def run(self, name: str, action: Action) -> None:
        result = self.bench.run(self.bench.request(name, action))
        assert result.done, result


CASES = {
    "sparse": "id % {step} = {n}",
    "micro-batch, 1 %": "id % 100 = {n}",
    "batch, half of a bucket": "{bucket}(8, id) = {n} AND id % 2 = 0",
}
"""Updated rows by case; n is the iteration. Sparse: 25 rows a bucket."""


def modes(lab: Lab, rows: int) -> list[tuple[str, ...]]:
    """Each case with each way to write it, and the model's seconds for the same operation."""
    found: list[tuple[str, ...]] = []
    for case, condition in CASES.items():
        for title, version, mode in (
            ("copy-on-write", 3, "copy-on-write"),
            ("vectors", 3, "merge-on-read"),
            ("equality", 2, "copy-on-write"),
        ):
            name = lab.table(rows, version, mode, True)
            clean = lab.read(name)
            costs = [
                lab.measured(partial(_merge, lab, name, title, condition, rows, n))
                for n in range(ITERATIONS)
            ]
            cpu, wall = min(costs)
            model = _modelled(lab, name, title, case, rows)
            found.append((f"{case}: {title}", f"{cpu:.2f}", f"{wall:.2f}", model,
                          f"{clean:.2f}", f"{lab.read(name):.2f}"))  # fmt: skip
    return found


def _merge(lab: Lab, name: str, title: str, condition: str, rows: int, number: int) -> None:
    """Update the rows of the case, and add 25 rows a bucket."""
    full, added = lab.bench.full(name), 25 * BUCKETS
    chosen = condition.format(
        step=rows // added, n=number, bucket=f"{lab.bench.config.name}.system.bucket"
    )
    first = rows + number * added
    source = (
        f"SELECT id FROM range({rows}) WHERE {chosen} "
        f"UNION ALL SELECT id FROM range({first}, {first + added})"
    )
    if title != "equality":
        lab.bench.sql(
            f"MERGE INTO {full} t USING (SELECT * FROM (SELECT {ROW} FROM ({source})) AS named"
            f"({NAMES})) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        return
    by_bucket: dict[int, list[int]] = {}
    bucket = f"{lab.bench.config.name}.system.bucket(8, id)"
    for row in lab.bench.sql(f"SELECT id, {bucket} b FROM ({source})"):
        by_bucket.setdefault(row.b, []).append(row.id)
    likes = {
        row.b: row.file
        for row in lab.bench.sql(f"SELECT {bucket} b, first(_file) file FROM {full} GROUP BY 1")
    }
    for number_of, keys in by_bucket.items():
        add_equality_delete(lab.bench, name, {"id": pa.array(keys)}, like=likes[number_of])
    lab.bench.sql(f"INSERT INTO {full} SELECT {ROW} FROM ({source})")


def _modelled(lab: Lab, name: str, title: str, case: str, rows: int) -> str:
    """What the advisor's model says of one operation that nobody reads."""
    if title == "equality":
        return "-"
    sizes = [row.file_size_in_bytes for row in lab.bench.files(name)]
    buckets = 1 if case.startswith("batch") else BUCKETS
    size = sum(sorted(sizes)[-BUCKETS:]) * buckets / BUCKETS
    changed = {"sparse": 25 * BUCKETS, "micro": rows // 100, "batch": rows // (2 * BUCKETS)}
    count = changed[case.split(",")[0].split("-")[0]]
    one = Operation(
        rows=count, added=count + 25 * BUCKETS, files=buckets, bytes=size, partitions=BUCKETS,
        shared=BUCKETS, reads=0.0, share=1.0,
    )  # fmt: skip
    way = Way.COPY_ON_WRITE if title == "copy-on-write" else Way.VECTORS
    return f"{seconds(way, one, PRIOR_THROUGHPUT):.2f}"


def positions(lab: Lab, rows: int) -> list[tuple[str, ...]]:
    """A DELETE of 1 % of all rows, copy-on-write; then deletes by position, compacted."""
    found: list[tuple[str, ...]] = []
    plain = lab.table(rows, 2, "copy-on-write", True)
    before = lab.read(plain)
    found.append(_row("copy-on-write DELETE, 1 %", lab.measured(lambda: lab.delete(plain, 1)),
                      before, lab.read(plain)))  # fmt: skip
    for title, version in (("compaction, ours", 2), ("compaction, Iceberg's procedure", 2),
                           ("compaction to vectors, ours", 3)):  # fmt: skip
        name = lab.table(rows, 2, "merge-on-read", True)
        for share in range(4):
            lab.delete(name, share)
        if version == 3:
            lab.bench.sql(
                f"ALTER TABLE {lab.bench.full(name)} SET TBLPROPERTIES ('format-version'='3')"
            )
        load = lab.read(name)
        call = (
            f"CALL {lab.bench.config.name}.system.rewrite_position_delete_files("
            f"table => 'jobs.{name}', options => map('rewrite-all', 'true'))"
        )
        action = CompactDeletes(inputs=delete_paths(lab.bench, name))
        act = (lambda a=action, n=name: lab.run(n, a)) if "ours" in title else (
            lambda c=call: lab.bench.sql(c)
        )  # fmt: skip
        found.append(_row(title, lab.measured(act), load, lab.read(name)))
    return found


def equality(lab: Lab, rows: int) -> list[tuple[str, ...]]:
    """Six equality delete files of 15,000 keys each, on all files: converted, or applied."""
    found = []
    for version in (2, 3):
        for title, kind in (("conversion", ConvertDeletes), ("major compaction", ApplyDeletes)):
            name = lab.table(rows, version, "merge-on-read", False)
            for number in range(6):
                keys = np.random.default_rng(number).integers(0, rows, min(KEYS, rows // 20))
                add_equality_delete(lab.bench, name, {"id": pa.array(keys)})
            load = lab.read(name)
            inputs = (
                delete_paths(lab.bench, name)
                if kind is ConvertDeletes
                else tuple(sorted(file.file_path for file in lab.bench.files(name)))
            )
            action = kind(inputs=inputs)
            cost = lab.measured(lambda a=action, n=name: lab.run(n, a))
            found.append(_row(f"{title}, format {version}", cost, load, lab.read(name)))
    return found


def _row(title: str, cost: tuple[float, float], before: float, after: float) -> tuple[str, ...]:
    return (title, f"{cost[0]:.2f}", f"{cost[1]:.2f}", f"{before:.2f}", f"{after:.2f}")


def main() -> None:
    scale = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory() as path:
        (Path(path) / "warehouse").mkdir()
        lab = Lab(Path(path))
        for part in (modes, positions, equality):
            part(lab, 4_000)  # compiles the code
        head = ("case and mode", "CPU s", "s", "model", "read before, CPU s", "read after, CPU s")
        notes = (
            f"{scale:,} rows of 11 columns in {BUCKETS} files; the cheaper of {ITERATIONS} MERGEs; "
            "equality deletes are written by hand, as Flink does. The machine was shared: compare "
            "CPU seconds."
        )
        command = f"python -m bench.deletes {scale}"
        print(write_section("Write modes", command, [head, *modes(lab, scale)], notes))
        rows = [row for part in (positions, equality) for row in part(lab, scale)]
        head = ("action", "CPU s", "s", "read before, CPU s", "read after, CPU s")
        notes = (
            f"{scale:,} rows of 11 columns in {BUCKETS} files; by position: four DELETEs of 1 % "
            f"each, a delete file per partition and DELETE; equality: six files of up to {KEYS:,} "
            "keys. Ours include verification. The machine was shared: compare CPU seconds."
        )
        print(write_section("Maintenance of deletes", command, [head, *rows], notes))
        session.stop(lab.spark)


if __name__ == "__main__":
    main()
