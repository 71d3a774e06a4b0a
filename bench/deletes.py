"""What maintenance of deletes costs, beside a copy-on-write DELETE and a rewrite of the same files.

`python -m bench.deletes` makes tables of 1.5 million rows in eight files, deletes rows of all of
them by position and by equality, and measures CPU seconds (driver and JVM) and seconds of each
action, with its full verification, and of reading the table before and after; bench/RESULTS.md.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from bench.results import write_section
from reconciler.plan.actions.apply_deletes import ApplyDeletes
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.delete_maintenance import CompactDeletes, ConvertDeletes
from reconciler.spark import iceberg, session
from tests.conftest import sqlite_catalog, sqlite_spark_conf
from tests.spark.equality import add_equality_delete, delete_paths
from tests.spark.tables import Bench

ROWS = 1_500_000
BUCKETS = 8
KEYS = 15_000
COLUMNS = (
    "id bigint, quantity double, price double, discount double, tax double, part bigint, "
    "supplier bigint, flag string, status string, day date, note string"
)
ROW = (
    "id, rand(1) * 50, rand(2) * 1e5, rand(3), rand(4), id * 7919 % 200000, id % 10000, "
    "substr('ANR', 1 + id % 3, 1), substr('OF', 1 + id % 2, 1), "
    "date_add(DATE'2026-01-01', cast(id % 300 AS int)), concat('note ', hash(id))"
)
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
    with tempfile.TemporaryDirectory() as path:
        (Path(path) / "warehouse").mkdir()
        lab = Lab(Path(path))
        for part in (positions, equality):
            part(lab, 20_000)  # compiles the code
        rows = [row for part in (positions, equality) for row in part(lab, ROWS)]
        head = ("action", "CPU s", "s", "read before, CPU s", "read after, CPU s")
        notes = (
            f"{ROWS:,} rows of 11 columns in {BUCKETS} files; by position: four DELETEs of 1 % "
            f"each, a delete file per partition and DELETE; equality: six files of {KEYS:,} keys. "
            "Ours include verification. The machine was shared: compare CPU seconds."
        )
        print(
            write_section("Maintenance of deletes", "python -m bench.deletes", [head, *rows], notes)
        )
        session.stop(lab.spark)


if __name__ == "__main__":
    main()
