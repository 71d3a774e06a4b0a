"""What replacing the delete files of hundreds of small partitions costs: by driver and executors.

`python -m bench.many_partitions` makes tables with one data file in each partition and two delete
files that apply to it, and compacts all of them in one plan. CPU seconds are those of the JVM and
of Python, commit and verification included.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from pyiceberg.catalog.sql import SqlCatalog

from bench.cpu import cpu_seconds
from bench.results import write_section
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.delete_maintenance import CompactDeletes
from reconciler.spark.schedule import witness_work
from reconciler.spark.session import session
from tests.conftest import sqlite_catalog, sqlite_spark_conf
from tests.spark.equality import delete_paths
from tests.spark.tables import Bench

PARTITIONS = 300
BY_EXECUTORS = 30
"""Partitions of the table that is handed to executors."""
ROWS = 100
"""Of each partition; each of two deletes takes one."""
PROPERTIES = (
    "'format-version'='2', 'write.delete.mode'='merge-on-read', "
    "'write.delete.granularity'='partition'"
)


@dataclass(frozen=True)
class Compacted:
    """One compaction of a whole table. jobs: of Spark."""

    partitions: int
    jobs: int
    cpu: float
    seconds: float


def table_with_deletes(bench: Bench, partitions: int, version: int) -> str:
    name = bench.create("id bigint, p int", PROPERTIES, "p")
    full = bench.full(name)
    rows = f"SELECT id, cast(id % {partitions} AS int) FROM range({partitions * ROWS})"
    bench.sql(f"INSERT INTO {full} {rows}")
    for number in (3, 4):
        bench.sql(f"DELETE FROM {full} WHERE id div {partitions} = {number}")
    if version == 3:
        bench.sql(f"ALTER TABLE {full} SET TBLPROPERTIES ('format-version'='3')")
    return name


def compact(bench: Bench, partitions: int, version: int) -> Compacted:
    """Raises AssertionError if a row changes, or a partition keeps more than one delete file."""
    name = table_with_deletes(bench, partitions, version)
    paths = delete_paths(bench, name)
    assert len(paths) == 2 * partitions
    actions: list[Action] = [
        CompactDeletes(
            inputs=tuple(path for path in paths if f"/p={number}/" in path), partition=(number,)
        )
        for number in range(partitions)
    ]
    before, request = bench.rows(name), bench.request(name, *actions)
    jobs, cpu, begun = _jobs(bench), cpu_seconds(), time.monotonic()
    result = bench.run(request)
    found = Compacted(
        partitions,
        _jobs(bench) - jobs,
        cpu_seconds() - cpu,
        time.monotonic() - begun,
    )
    assert result.done and bench.rows(name) == before
    left = bench.sql(f"SELECT partition FROM {bench.full(name)}.delete_files")
    assert len(left) == partitions
    return found


def _jobs(bench: Bench) -> int:
    """Return how many jobs the session has run: the id that the next one gets."""
    return int(bench.spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="layout-partitions-") as directory:
        path, config = Path(directory), sqlite_catalog(Path(directory))
        SqlCatalog(config.name, **dict(config.properties))
        conf = {**sqlite_spark_conf(path), "spark.driver.memory": "2g"}
        spark = session.start(conf, app="bench", master="local[2]")
        try:
            bench = Bench(spark, config, path / "bench")
            compact(bench, 10, 2)  # compiles
            found = {
                "by the driver, format 2": compact(bench, PARTITIONS, 2),
                "by the driver, vectors on format 3": compact(bench, PARTITIONS, 3),
            }
            with mock.patch.object(witness_work, "by_driver", lambda *_: False):
                found["by executors, format 2"] = compact(bench, BY_EXECUTORS, 2)
        finally:
            session.stop(spark)
    rows = [("compaction", "partitions", "Spark jobs", "CPU", "CPU of a partition", "time")]
    rows += [
        (
            how, str(one.partitions), str(one.jobs), f"{one.cpu:.1f} s",
            f"{1000 * one.cpu / one.partitions:.0f} ms", f"{one.seconds:.1f} s",
        )
        for how, one in found.items()
    ]  # fmt: skip
    note = f"""Each partition has one data file of {ROWS} rows and two delete files of one position
each; one commit replaces all of them. Executors of a cluster do what reads more than
{witness_work.DIRECT_BYTES >> 20} MiB; they were forced here."""
    print(write_section("Many small partitions", "python -m bench.many_partitions", rows, note))


if __name__ == "__main__":
    main()
