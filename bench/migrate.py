"""A migration into 1,000 partitions against a sort of the same files.

`python -m bench.migrate` makes TPC-H lineitem (tpchgen-cli) of 1,000 ship dates, in arrival order:
each file has rows of every date. One contender sorts it within its spec, the others move it to
1,000 daily partitions, or to 1,000 buckets, sorted within each by the same key; all rows are
verified. They take turns, and seconds, CPU and the ratios go to bench/RESULTS.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.against_iceberg import EXTENSIONS, generate, jvm_cpu
from bench.results import write_section
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.cluster import Cluster
from reconciler.plan.actions.migrate import Migrate
from reconciler.plan.actions.partition_specs import AddSpec, SwitchSpec
from reconciler.spark import session
from reconciler.table.schema import SpecField
from tests.conftest import sqlite_catalog, sqlite_spark_conf
from tests.spark.tables import Bench

PARTITIONS = 1_000
FILES = 8
TARGET = 32 << 20
KEY = "l_partkey"
SORT = "sort"
MOVES = {"to 1,000 days": ("l_shipdate", "day"), "to 1,000 buckets": ("l_orderkey", "bucket[1000]")}


@dataclass(frozen=True)
class Run:
    """cpu: of the JVM; python: of this process."""

    seconds: float
    cpu: float
    python: float
    files: int

    @property
    def every_cpu(self) -> float:
        return self.cpu + self.python


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=3.0, help="of TPC-H; 40 %% of it is used")
    parser.add_argument("--rounds", type=int, default=3, help="besides one to warm up")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="layout-bench-") as scratch:
        directory = Path(scratch)
        source = generate(directory, arguments.scale)
        (directory / "warehouse").mkdir()
        conf = {
            "spark.driver.memory": "4g",
            **sqlite_spark_conf(directory),
            "spark.sql.extensions": EXTENSIONS,
        }
        spark = session.start(conf, app="bench migrate")
        try:
            bench = Bench(spark, sqlite_catalog(directory), directory)
            rounds = [_round(bench, source) for _ in range(arguments.rounds + 1)]
        finally:
            session.stop(spark)
    command = f"python -m bench.migrate {' '.join(sys.argv[1:])}".strip()
    print(_written(rounds[1:], command))
    return 0


def _round(bench: Bench, source: Path) -> dict[str, Run]:
    return {what: _measured(bench, source, what) for what in (SORT, *MOVES)}


def _measured(bench: Bench, source: Path, what: str) -> Run:
    name = _table(bench, source)
    request = bench.request(name, *_actions(bench, name, what), plan=f"p-{name}")
    bench.spark._jvm.System.gc()
    seconds, cpu, python = time.monotonic(), jvm_cpu(bench), time.process_time()
    result = bench.run(request)
    found = (
        time.monotonic() - seconds, jvm_cpu(bench) - cpu, time.process_time() - python,
        len(bench.files(name)),
    )  # fmt: skip
    assert result.done, result
    bench.sql(f"DROP TABLE {bench.full(name)} PURGE")
    return Run(*found)


def _table(bench: Bench, source: Path) -> str:
    """A fresh table of FILES files with the rows of PARTITIONS ship dates in generator's order."""
    rows = bench.spark.read.parquet(str(source))
    name = bench.create(", ".join(f"{f.name} {f.dataType.simpleString()}" for f in rows.schema))
    first = "date '1993-01-01'"
    some = rows.where(f"l_shipdate >= {first} AND l_shipdate < date_add({first}, {PARTITIONS})")
    some.coalesce(FILES).writeTo(bench.full(name)).append()
    return name


def _actions(bench: Bench, name: str, what: str) -> Sequence[Action]:
    if what == SORT:
        return (bench.action(name, Cluster, KEY, target_bytes=TARGET),)
    column, transform = MOVES[what]
    field = bench.table(name).schema().findField(column).fieldId()
    fields = (SpecField(int(field), transform),)
    moved = bench.action(name, Migrate, KEY, output_spec_id=1, fields=fields, target_bytes=TARGET)
    return AddSpec(1, fields, 0), moved, SwitchSpec(1, fields, 0)


def _written(rounds: Sequence[dict[str, Run]], command: str) -> str:
    head = ["", "seconds", "JVM CPU s", "Python CPU s", "files", "CPU against the sort"]
    rows = []
    for what in (SORT, *MOVES):
        best = min((played[what] for played in rounds), key=lambda run: run.every_cpu)
        numbers = [f"{x:.1f}" for x in (best.seconds, best.cpu, best.python)]
        rows.append([what, *numbers, str(best.files), _ratio(rounds, what, "every_cpu")])
    times = "; ".join(f"{what}: {_ratio(rounds, what, 'seconds')}" for what in MOVES)
    notes = (
        f"The least CPU of {len(rounds)} rounds; ratios are the middle one of the rounds, the "
        f"least and the most. Time against the sort: {times}. Goal: at most 1.3."
    )
    return write_section("Migration to 1,000 partitions", command, [head, *rows], notes)


def _ratio(rounds: Sequence[dict[str, Run]], what: str, of: str) -> str:
    found = sorted(getattr(one[what], of) / getattr(one[SORT], of) for one in rounds)
    return f"{statistics.median(found):.2f} ({found[0]:.2f} to {found[-1]:.2f})"


if __name__ == "__main__":
    sys.exit(main())
