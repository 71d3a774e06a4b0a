"""A migration into 1,000 partitions against a sort of the same files, by the size of a partition.

`python -m bench.migrate` makes TPC-H lineitem (tpchgen-cli) of 1,000 ship dates in several sizes,
in arrival order: each file has rows of every date. One contender sorts it within its spec, one
moves it to 1,000 daily partitions, sorted within each by the same key; all rows are verified. The
third is Iceberg's own rewrite into the same partitions by the same key, which reads nothing back:
what the engine needs for so many files. They take turns, and seconds, CPU and the ratios go to
bench/RESULTS.md after each size.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.against_iceberg import EXTENSIONS, generate
from bench.results import write_section
from reconciler.format import iec
from reconciler.plan.actions.migrate import Migrate
from reconciler.plan.actions.partition_specs import AddSpec, SwitchSpec
from reconciler.plan.actions.rewrite import Cluster
from reconciler.plan.execution import ExecutionResult
from reconciler.spark.session import iceberg, session
from reconciler.table.schema import SpecField
from tests.conftest import sqlite_catalog, sqlite_spark_conf
from tests.spark.tables import Bench

PARTITIONS = 1_000
FILES = 8
TARGET = 32 << 20
KEY, DATE = "l_partkey", "l_shipdate"
SORT, MOVE, ICEBERG = "our sort", "our migration", "Iceberg's rewrite"


@dataclass(frozen=True)
class Run:
    """cpu: of the JVM, of processes that it starts, and of this one; verify: task CPU of reading
    back, in it."""

    seconds: float
    cpu: float
    verify: float
    files: int
    size: int


Rounds = Sequence[Mapping[str, Run]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--scales", type=float, nargs="+", default=[0.2, 1.0, 3.0, 9.0],
        help="of TPC-H, of which 40 %% of the rows are used",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=2, help="of scales up to 1; one of others")
    arguments = parser.parse_args()
    command = f"python -m bench.migrate {' '.join(sys.argv[1:])}".strip()
    with tempfile.TemporaryDirectory(prefix="layout-bench-") as scratch:
        directory = Path(scratch)
        (directory / "warehouse").mkdir()
        conf = {
            "spark.driver.memory": "4g",
            **sqlite_spark_conf(directory),
            "spark.sql.extensions": EXTENSIONS,
        }
        spark = session.start(conf, app="bench migrate")
        try:
            bench = Bench(spark, sqlite_catalog(directory), directory)
            _rounds(bench, arguments.scales[0], 1)  # to warm up
            played = []
            for scale in arguments.scales:
                played.append(_rounds(bench, scale, arguments.rounds if scale <= 1 else 1))
                print(_written(played, command), flush=True)
        finally:
            session.stop(spark)
    return 0


def _rounds(bench: Bench, scale: float, rounds: int) -> Rounds:
    source = generate(bench.directory, scale)
    rows = bench.spark.read.parquet(str(source))
    columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in rows.schema)
    loaded = bench.create(columns)
    first = "date '1993-01-01'"
    some = rows.where(f"{DATE} >= {first} AND {DATE} < date_add({first}, {PARTITIONS})")
    some.coalesce(FILES).writeTo(bench.full(loaded)).append()
    source.unlink()
    found = [
        {what: _measured(bench, loaded, columns, ready) for what, ready in CONTENDERS.items()}
        for _ in range(rounds)
    ]
    bench.sql(f"DROP TABLE {bench.full(loaded)} PURGE")
    return found


def _measured(bench: Bench, loaded: str, columns: str, ready: Contender) -> Run:
    name = bench.create(columns)
    size = _with_files_of(bench, loaded, name)
    act = ready(bench, name)
    bench.spark._jvm.System.gc()
    seconds, cpu = time.monotonic(), _cpu(bench)
    verify = act()
    seconds, cpu = time.monotonic() - seconds, _cpu(bench) - cpu
    written = bench.files(name)
    for row in written:
        Path(row.file_path.removeprefix("file:")).unlink()
    bench.sql(f"DROP TABLE {bench.full(name)}")
    return Run(seconds, cpu, verify, len(written), size)


def _with_files_of(bench: Bench, loaded: str, name: str) -> int:
    """Let a table refer to the files of another one; return their bytes."""
    append, size = bench.table(name).newAppend(), 0
    for task in iceberg.each(bench.table(loaded).newScan().planFiles()):
        append.appendFile(task.file())
        size += int(task.file().fileSizeInBytes())
    append.commit()
    return size


def _cpu(bench: Bench) -> float:
    """CPU seconds so far of the JVM, of the `chmod` processes that Hadoop starts in it for each
    local file, and of this process."""
    pid = bench.spark.gateway.proc.pid
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + time.process_time()


Contender = Callable[[Bench, str], Callable[[], float]]
"""Makes the act on a table ready; the act returns the CPU seconds of reading back."""


def _sort(bench: Bench, name: str) -> Callable[[], float]:
    action = bench.action(name, Cluster, KEY, target_bytes=TARGET)
    return partial(_run, bench, bench.request(name, action, plan=f"p-{name}"))


def _move(bench: Bench, name: str) -> Callable[[], float]:
    fields = (SpecField(int(bench.table(name).schema().findField(DATE).fieldId()), "day"),)
    moved = bench.action(name, Migrate, KEY, output_spec_id=1, fields=fields, target_bytes=TARGET)
    actions = AddSpec(1, fields, 0), moved, SwitchSpec(1, fields, 0)
    return partial(_run, bench, bench.request(name, *actions, plan=f"p-{name}"))


def _run(bench: Bench, request: Any) -> float:
    result: ExecutionResult = bench.run(request)
    assert result.done, result
    return sum(outcome.verify_cpu_seconds for outcome in result.outcomes)


def _theirs(bench: Bench, name: str) -> Callable[[], float]:
    bench.sql(f"ALTER TABLE {bench.full(name)} ADD PARTITION FIELD day({DATE})")

    def call() -> float:
        bench.sql(
            f"CALL rec.system.rewrite_data_files(table => 'jobs.{name}', strategy => 'sort', "
            f"sort_order => '{KEY}', options => map('rewrite-all', 'true', "
            f"'target-file-size-bytes', '{TARGET}'))"
        )
        return 0.0

    return call


CONTENDERS: Mapping[str, Contender] = {SORT: _sort, MOVE: _move, ICEBERG: _theirs}


def _written(played: Sequence[Rounds], command: str) -> str:
    head = ["bytes of a partition", "", "seconds", "CPU s", "of it verification", "files",
            "CPU against the sort", "time against the sort"]  # fmt: skip
    rows = []
    for rounds in sorted(played, key=lambda rounds: rounds[0][SORT].size):
        for what in CONTENDERS:
            best = min((one[what] for one in rounds), key=lambda run: run.cpu)
            numbers = [f"{x:.1f}" for x in (best.seconds, best.cpu, best.verify)]
            size = iec(best.size // PARTITIONS)
            ratios = [_ratio(rounds, what, "cpu"), _ratio(rounds, what, "seconds")]
            rows.append([size, what, *numbers, str(best.files), *ratios])
    notes = (
        "The least CPU of the rounds of a size; a ratio is the middle one of the rounds, with the "
        "least and the most where there is more than one. All write files of at most "
        f"{iec(TARGET)}. Iceberg's rewrite is rewrite_data_files with the same key into the same "
        "spec, in the same session; it reads nothing back. CPU has the `chmod` processes that "
        "Hadoop starts for each local file. Goal: at most 1.3 times the time of the sort."
    )
    return write_section("Migration to 1,000 partitions", command, [head, *rows], notes)


def _ratio(rounds: Rounds, what: str, of: str) -> str:
    found = sorted(getattr(one[what], of) / getattr(one[SORT], of) for one in rounds)
    more = f" ({found[0]:.2f} to {found[-1]:.2f})" if len(found) > 1 else ""
    return f"{statistics.median(found):.2f}{more}"


if __name__ == "__main__":
    sys.exit(main())
