"""A migration to another partition spec against a sort of the same files.

`python -m bench.migrate` writes a table whose rows are in no order, and moves it to 1,000 days, to
16 buckets, and sorts it, in turns, each on the same snapshot. Seconds and CPU, medians of the
rounds, go to bench/RESULTS.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.results import write_section
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.cluster import Cluster
from reconciler.plan.actions.migrate import Migrate
from reconciler.plan.actions.partition_specs import AddSpec
from reconciler.spark import session
from reconciler.table.schema import SpecField
from tests.conftest import sqlite_catalog, sqlite_spark_conf
from tests.spark.tables import Bench

ID, TS = 1, 2
DAYS, FILES = 1_000, 16
TARGET = 32 << 20
COLUMNS = "id BIGINT, ts TIMESTAMP, customer BIGINT, amount DOUBLE, note STRING"
ROWS = f"""
SELECT id, timestamp '2023-01-01' + make_interval(0, 0, 0, cast(pmod(xxhash64(id), {DAYS}) AS int)),
       pmod(xxhash64(id, 1), 50000), cast(pmod(xxhash64(id, 2), 1000000) AS double) / 100,
       concat('note ', pmod(xxhash64(id, 3), 100000))
FROM RANGE(0, {{rows}}, 1, {FILES})
"""
SPECS = {
    "to 1,000 days": (SpecField(TS, "day"),),
    "to 16 buckets": (SpecField(ID, "bucket[16]"),),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="besides one to warm up")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="layout-bench-") as scratch:
        directory = Path(scratch)
        (directory / "warehouse").mkdir()
        spark = session.start(sqlite_spark_conf(directory), app="bench migrate")
        try:
            rows = _measured(Bench(spark, sqlite_catalog(directory), directory), given)
        finally:
            session.stop(spark)
    notes = (
        f"{given.rows:,} rows in {FILES} files and in no order; {given.rounds} rounds in turns, "
        "medians; every row is read back and hashed. CPU of the tasks, without reading back."
    )
    print(write_section("Migration", "python -m bench.migrate", rows, notes))
    return 0


def _measured(bench: Bench, given: argparse.Namespace) -> list[list[str]]:
    name = bench.create(COLUMNS, "'write.distribution-mode'='none'")
    bench.sql(f"INSERT INTO {bench.full(name)} {ROWS.format(rows=given.rows)}")
    snapshot = bench.table(name).currentSnapshot().snapshotId()
    acts: dict[str, Action] = {
        "sorted by ts": bench.action(name, Cluster, "ts", target_bytes=TARGET)
    }
    for number, (what, fields) in enumerate(SPECS.items(), start=1):
        bench.run(bench.request(name, AddSpec(number, fields, 0), plan=f"p-{number}"))
        acts[what] = bench.action(
            name, Migrate, "ts", output_spec_id=number, fields=fields, target_bytes=TARGET
        )
    found: dict[str, list[tuple[float, float, int]]] = {what: [] for what in acts}
    for turn in range(given.rounds + 1):
        for what, action in acts.items():
            one = _turn(bench, name, action, f"p-{turn}-{what}", snapshot)
            found[what] += [one] if turn else []
    return [["rewrite", "files out", "seconds", "ratio", "CPU s", "ratio"], *_rows(found)]


def _turn(
    bench: Bench, name: str, action: Action, plan: str, snapshot: int
) -> tuple[float, float, int]:
    """Return (seconds, CPU seconds, files), and undo the rewrite."""
    started = time.monotonic()
    result = bench.run(bench.request(name, action, plan=plan))
    seconds = time.monotonic() - started
    assert result.done
    cpu = sum(outcome.cpu_seconds - outcome.verify_cpu_seconds for outcome in result.outcomes)
    files = len(bench.files(name))
    bench.sql(f"CALL {bench.config.name}.system.rollback_to_snapshot('jobs.{name}', {snapshot})")
    return seconds, cpu, files


def _rows(found: dict[str, list[tuple[float, float, int]]]) -> list[list[str]]:
    medians = {
        what: [statistics.median(column) for column in zip(*turns, strict=True)]
        for what, turns in found.items()
    }
    seconds, cpu, _ = next(iter(medians.values()))
    return [
        [what, f"{own[2]:.0f}", f"{own[0]:.1f}", f"{own[0] / seconds:.2f}", f"{own[1]:.1f}",
         f"{own[1] / cpu:.2f}"]
        for what, own in medians.items()
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
