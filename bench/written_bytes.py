"""How many bytes and files a rewrite writes, as its what-if predicts and as Spark then does.

`python -m bench.written_bytes [TABLE]...` makes tables by different writers (pyiceberg, Spark),
predicts a rewrite of each by several keys from manifests, footers and samples, carries it out, and
writes both to bench/RESULTS.md. Sizes do not depend on the machine. Without names it takes all
tables.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
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
from reconciler.format import iec
from reconciler.plan.actions.rewrite import Cluster
from reconciler.plan.ordering import Hilbert, Lexicographic, Ordering
from reconciler.queries.table_view import row_group_count, table_view
from reconciler.spark.session import session
from reconciler.state.sketch import SketchedFiles, sample_rows
from reconciler.table.filetable import FileTable
from reconciler.table.schema import SortColumn
from tests.conftest import sqlite_catalog, sqlite_spark_conf
from tests.spark.tables import Bench

DAYS = 30
MIB, LARGE = 1 << 20, 128 << 20


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


def wide(random: np.random.Generator, day: int, rows: int = 12_000) -> pa.Table:
    """Sixty measures beside an account number; a third of them NULL in half of the rows."""
    measures = [random.integers(0, 10 ** (1 + c % 5), rows) for c in range(60)]
    return pa.table({
        "account": random.integers(0, 2_000, rows),
        **{
            f"m{number}": pa.array(
                values, mask=random.random(rows) < (0.5 if number % 3 == 0 else 0.0)
            )
            for number, values in enumerate(measures)
        },
    })  # fmt: skip


def logs(random: np.random.Generator, day: int, rows: int = 40_000) -> pa.Table:
    """Strings of few and of many values, and long ones without any repetition."""
    start = np.datetime64("2026-10-20T00:00:00", "us") + np.timedelta64(day, "D")
    at = np.sort(start + random.integers(0, 86_400_000_000, rows).astype("timedelta64[us]"))
    return pa.table({
        "at": at,
        "service": [f"svc-{x:03d}" for x in random.integers(0, 120, rows)],
        "level": random.choice(["INFO", "WARN", "ERROR"], rows, p=[0.9, 0.08, 0.02]),
        "path": [f"/v1/{x}/items" for x in random.zipf(1.4, rows) % 3_000],
        "trace": [random.bytes(16).hex() for _ in range(rows)],
    })  # fmt: skip


def nested(random: np.random.Generator, day: int, rows: int = 30_000) -> pa.Table:
    """Structs and lists."""
    people = random.integers(0, 4_000, rows)
    lengths = random.integers(0, 4, rows)
    return pa.table({
        "who": [{"id": int(i), "tier": int(i) % 5} for i in people],
        "tags": [[f"t{x}" for x in random.integers(0, 50, int(n))] for n in lengths],
        "amount": np.round(random.gamma(2.0, 30.0, rows), 2),
        "number": random.integers(0, 1 << 40, rows),
    })  # fmt: skip


def sparse(random: np.random.Generator, day: int, rows: int = 50_000) -> pa.Table:
    """Columns of mostly NULLs."""
    notes = [f"note {x}" for x in random.integers(0, 900, rows)]
    return pa.table({
        "a": random.integers(0, 5_000, rows),
        "b": pa.array(random.integers(0, 5_000, rows), mask=random.random(rows) < 0.92),
        "note": pa.array(notes, mask=random.random(rows) < 0.8),
        "v": random.random(rows),
    })  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One rewrite. target, row_group: sizes in bytes."""

    table: str
    key: tuple[str, ...]
    target: int = 8 * MIB
    row_group: int = LARGE


CASES = (
    *(
        Case(name, (key,), target, group)
        for name, key in (
            ("wide", "account"), ("logs", "service"), ("nested", "number"), ("sparse", "a"),
            ("trips", "zone"),
        )
        for target, group in ((MIB, LARGE), (2 * MIB, MIB // 4), (8 * MIB, MIB))
    ),
    *(Case("readings", key) for key in (("sensor",), ("at",), ("measured",), ("sensor", "at"))),
    Case("readings_of_spark", ("sensor",)),
    *(Case("trips", key) for key in (("zone",), ("begin",), ("fare",), ("zone", "begin"))),
    *(Case("trips_of_spark", key) for key in (("zone",), ("begin",))),
    *(
        Case("lineitem", key)
        for key in (
            ("l_shipdate",), ("l_orderkey",), ("l_partkey",), ("l_shipdate", "l_partkey"),
        )
    ),
)  # fmt: skip


def main(names: Sequence[str]) -> int:
    cases = [case for case in CASES if not names or case.table in names]
    with tempfile.TemporaryDirectory(prefix="layout-bench-") as scratch:
        directory = Path(scratch)
        (directory / "warehouse").mkdir()
        spark = session.start(sqlite_spark_conf(directory), app="bench written bytes")
        try:
            bench = Bench(spark, sqlite_catalog(directory), directory)
            _make_tables(bench, {case.table for case in cases})
            rows = [_row(bench, case) for case in cases]
        finally:
            session.stop(spark)
    header = ["table", "key", "file, row group", "files in", "files out, predicted", "written",
              "bytes out / in, predicted", "written",
              "row groups, predicted", "written"]  # fmt: skip
    notes = "The what-if sees manifests, footers, and samples of the key's columns."
    command = " ".join(("python -m bench.written_bytes", *names))
    write_section("Bytes of a rewrite", command, [header, *rows], notes)
    return 0


def _make_tables(bench: Bench, wanted: Collection[str]) -> None:
    catalog = SqlCatalog(bench.config.name, **dict(bench.config.properties))
    random = np.random.default_rng(5)
    for day in (readings, trips, wide, logs, nested, sparse):
        name = day.__name__
        if not {name, f"{name}_of_spark"} & set(wanted):
            continue
        made = catalog.create_table(f"jobs.{name}", day(random, 0).schema)
        for number in range(DAYS):
            made.append(day(random, number))
    for name in ("readings", "trips"):
        if f"{name}_of_spark" in wanted:
            _by_spark(bench, f"{name}_of_spark", bench.full(name))
    if "lineitem" not in wanted:
        return
    command = [str(Path(sys.executable).parent / "tpchgen-cli"), "parquet", "-s", "0.25"]
    to = ["--tables=lineitem", "--output-dir", str(bench.directory)]
    subprocess.run([*command, *to], check=True)
    _by_spark(bench, "lineitem", f"parquet.`{bench.directory}/lineitem.parquet`")


def _by_spark(bench: Bench, name: str, source: str) -> None:
    """In the same order, in files of about two megabytes."""
    rows = bench.spark.sql(f"SELECT * FROM {source}").coalesce(1)
    made = rows.writeTo(bench.full(name)).using("iceberg")
    made.tableProperty("write.target-file-size-bytes", str(2 * MIB)).create()


def _row(bench: Bench, case: Case) -> list[str]:
    name, curve = case.table, Hilbert if len(case.key) > 1 else Lexicographic
    before = _files(bench, name)
    predicted = _predicted(bench, before, case, curve).written
    snapshot = bench.table(name).currentSnapshot().snapshotId()
    action = bench.action(
        name, Cluster, *case.key, curve=curve, target_bytes=case.target,
        row_group_bytes=case.row_group,
    )  # fmt: skip
    planned = {"verify": "Counts", "written_shares": (predicted.share,)}
    bench.run(bench.request(name, action, plan=str(case), **planned))
    after = _files(bench, name)
    groups = read_row_groups(bench.config, after, np.arange(len(after)))
    bench.sql(f"CALL {bench.config.name}.system.rollback_to_snapshot('jobs.{name}', {snapshot})")
    size = before.total_bytes
    row = [
        name, ", ".join(case.key), f"{iec(case.target)}, {iec(case.row_group)}", str(len(before)),
        str(predicted.files), str(len(after)),
        f"{predicted.share:.2f}", f"{after.total_bytes / size:.2f}",
        f"{sum(row_group_count(view) for view in predicted.views):.0f}", str(len(groups.records)),
    ]  # fmt: skip
    print(" | ".join(row), flush=True)
    return row


def _files(bench: Bench, name: str) -> FileTable:
    return observe_table(bench.config, ("jobs", name), bench.directory / "cache").files


def _predicted(bench: Bench, files: FileTable, case: Case, curve: type[Ordering]) -> Outcome:
    ids = {field.name: field.field_id for field in files.schema.fields}
    columns = tuple(SortColumn(ids[name]) for name in case.key)
    every, wanted = np.arange(len(files)), [ids[name] for name in case.key]
    sample = sample_rows(SketchedFiles(bench.config, files), every, wanted)
    footers = read_row_groups(bench.config, files, every)
    pool = build_pool(table_view(files, footers, sample, case.row_group), wanted)
    assert pool is not None
    groups = curve(columns).groups(curve(columns).extents(files), target_bytes=case.target)
    found = simulate(Layout(curve(columns), case.target, case.row_group, groups.number), pool, ())
    assert found is not None
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
