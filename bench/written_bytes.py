"""How many bytes and files a rewrite writes, as its what-if foretells and as Spark then does.

`python -m bench.written_bytes` makes tables by different writers (pyiceberg, Spark), foretells a
rewrite of each by several keys from manifests, footers and samples, carries it out, and writes both
to bench/RESULTS.md. Sizes do not depend on the machine.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from bench.results import write_section
from reconciler.advisor.simulate.layout import Layout, Outcome
from reconciler.advisor.simulate.pool import build_pool
from reconciler.advisor.simulate.whatif import simulate
from reconciler.catalog.footers import read_row_groups
from reconciler.catalog.observe import observe_table
from reconciler.plan.actions.cluster import Cluster
from reconciler.plan.grouping import extents
from reconciler.plan.ordering import Hilbert, Lexicographic, Ordering
from reconciler.queries.table_view import table_view
from reconciler.spark import session
from reconciler.state.sketch import sample_rows
from reconciler.table.filetable import FileTable
from reconciler.table.schema import SortColumn
from tests.conftest import sqlite_catalog, sqlite_spark_conf
from tests.spark.tables import Bench

TARGET = 8 << 20
ROW_GROUP = 128 << 20
DAYS = 30
Day = Callable[[np.random.Generator, int], pa.Table]


def readings(random: np.random.Generator, day: int, rows: int = 70_000) -> pa.Table:
    """A day of sensors in no order: few that report often, values that never repeat."""
    start = np.datetime64("2026-10-20T00:00:00", "us") + np.timedelta64(day, "D")
    at = start + random.integers(0, 86_400_000_000, rows).astype("timedelta64[us]")
    measured = np.where(random.random(rows) < 0.02, np.nan, random.normal(20.0, 8.0, rows))
    return pa.table({
        "id": [f"{number:032x}" for number in random.integers(0, 1 << 62, rows)],
        "sensor": [f"S{number:05d}" for number in random.zipf(1.3, rows) % 20_000],
        "at": pa.array(at, pa.timestamp("us", tz="UTC")),
        "measured": measured,
        "site": random.choice(["north", "south", "east", "west"], rows),
    })  # fmt: skip


def trips(random: np.random.Generator, day: int, rows: int = 60_000) -> pa.Table:
    """A day of rides in order of time, in whole seconds, with amounts that follow each other."""
    start = np.datetime64("2026-10-20T00:00:00", "s") + np.timedelta64(day, "D")
    begin = np.sort(start + random.integers(0, 86_400, rows).astype("timedelta64[s]"))
    end = begin + random.integers(60, 4_000, rows).astype("timedelta64[s]")
    distance = np.round(random.gamma(2.0, 2.0, rows), 2)
    return pa.table({
        "number": np.arange(day * rows, (day + 1) * rows),
        "begin": pa.array(begin.astype("datetime64[us]")),
        "end": pa.array(end.astype("datetime64[us]")),
        "zone": (random.zipf(1.4, rows) % 265).astype(np.int32),
        "distance": distance,
        "fare": np.round(3.0 + distance * 2.5 + random.normal(0.0, 0.5, rows), 2),
        "vendor": random.integers(1, 7, rows).astype(np.int32),
    })  # fmt: skip


CASES: dict[str, tuple[tuple[str, ...], ...]] = {
    "readings": (("sensor",), ("at",), ("measured",), ("sensor", "at")),
    "readings_of_spark": (("sensor",),),
    "trips": (("zone",), ("begin",), ("fare",), ("zone", "begin")),
    "trips_of_spark": (("zone",), ("begin",)),
    "lineitem": (("l_shipdate",), ("l_orderkey",), ("l_partkey",), ("l_shipdate", "l_partkey")),
}


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="layout-bench-") as scratch:
        directory = Path(scratch)
        (directory / "warehouse").mkdir()
        spark = session.start(sqlite_spark_conf(directory), app="bench written bytes")
        try:
            bench = Bench(spark, sqlite_catalog(directory), directory)
            _make_tables(bench)
            rows = [_row(bench, name, key) for name, keys in CASES.items() for key in keys]
        finally:
            session.stop(spark)
    header = ["table", "key", "files in", "files out, predicted", "written",
              "bytes out / in, predicted", "written"]  # fmt: skip
    notes = "Target 8 MiB. The what-if sees manifests, footers, and samples of the key's columns."
    command = "python -m bench.written_bytes"
    print(write_section("Bytes of a rewrite", command, [header, *rows], notes))
    return 0


def _make_tables(bench: Bench) -> None:
    catalog = SqlCatalog(bench.config.name, **dict(bench.config.properties))
    random = np.random.default_rng(5)
    days: dict[str, Day] = {"readings": readings, "trips": trips}
    for name, day in days.items():
        made = catalog.create_table(f"jobs.{name}", day(random, 0).schema)
        for number in range(DAYS):
            made.append(day(random, number))
        _by_spark(bench, f"{name}_of_spark", bench.full(name))
    command = [str(Path(sys.executable).parent / "tpchgen-cli"), "parquet", "-s", "0.25"]
    to = ["--tables=lineitem", "--output-dir", str(bench.directory)]
    subprocess.run([*command, *to], check=True)
    _by_spark(bench, "lineitem", f"parquet.`{bench.directory}/lineitem.parquet`")


def _by_spark(bench: Bench, name: str, source: str) -> None:
    """In the same order, in files of about a quarter of the target size."""
    rows = bench.spark.sql(f"SELECT * FROM {source}").coalesce(1)
    made = rows.writeTo(bench.full(name)).using("iceberg")
    made.tableProperty("write.target-file-size-bytes", str(TARGET // 4)).create()


def _row(bench: Bench, name: str, key: tuple[str, ...]) -> list[str]:
    curve = Hilbert if len(key) > 1 else Lexicographic
    before = _files(bench, name)
    predicted = _predicted(bench, before, key, curve)
    snapshot = bench.table(name).currentSnapshot().snapshotId()
    action = bench.action(name, Cluster, *key, curve=curve, target_bytes=TARGET)
    planned = {"verify": "Counts", "written_shares": (predicted.written.share,)}
    bench.run(bench.request(name, action, plan=f"{name} {key}", **planned))
    after = _files(bench, name)
    bench.sql(f"CALL {bench.config.name}.system.rollback_to_snapshot('jobs.{name}', {snapshot})")
    size = before.total_bytes
    return [
        name, ", ".join(key), str(len(before)), str(predicted.written.files), str(len(after)),
        f"{predicted.written.share:.2f}", f"{after.total_bytes / size:.2f}",
    ]  # fmt: skip


def _files(bench: Bench, name: str) -> FileTable:
    return observe_table(bench.config, ("jobs", name), bench.directory / "cache").files


def _predicted(
    bench: Bench, files: FileTable, key: tuple[str, ...], curve: type[Ordering]
) -> Outcome:
    ids = {field.name: field.field_id for field in files.schema.fields}
    columns = tuple(SortColumn(ids[name]) for name in key)
    every, wanted = np.arange(len(files)), [ids[name] for name in key]
    sample = sample_rows(bench.config, files, every, wanted)
    footers = read_row_groups(bench.config, files, every)
    pool = build_pool(table_view(files, footers, sample, ROW_GROUP), wanted)
    assert pool is not None
    groups = curve(columns).groups(extents(files, columns), target_bytes=TARGET)
    return simulate(Layout(curve(columns), TARGET, ROW_GROUP, groups.number), pool, ())


if __name__ == "__main__":
    sys.exit(main())
