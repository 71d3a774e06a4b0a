"""A commit that replaces 10,000 files in 1,000 manifests: by Iceberg's Java library and in Python.

    python -m bench.python_commit [--manifests 1000] [--files 10] [--rounds 3] [--alone]

Both commit to copies of one table, in turns, in one process with a running JVM. CPU is that of this
process and all below it, from the filled request to its answer; scans are before. --alone: Python
without a JVM, which writes nothing. Writes bench/RESULTS.md.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.cpu import cpu_seconds
from bench.results import write_section
from reconciler.api.catalog_config import CatalogConfig
from reconciler.commit import fields
from reconciler.commit.manifest import ADDED, DATA, Entry, File
from reconciler.commit.sending import commit
from reconciler.commit.snapshot import AddedFile, CommitNames, SnapshotChange, SnapshotProducer
from reconciler.commit.table import LiveTable
from reconciler.engines.answers import Kind
from tests.conftest import SMALL_SESSION, sqlite_catalog, sqlite_spark_conf
from tests.copied_table import copied_table

COLUMNS, OUTPUTS = 16, 100


def entry(number: int, name: str) -> File:
    """Return a file's entry with statistics of every column."""
    ids = range(1, COLUMNS + 1)
    low, high = number.to_bytes(8, "little"), (number + 1000).to_bytes(8, "little")
    return File(
        {
            fields.CONTENT: DATA,
            fields.PATH: f"file:///nowhere/{name}-{number:06d}.parquet",
            fields.FORMAT: "PARQUET",
            fields.PARTITION: {},
            fields.RECORDS: 1000,
            fields.SIZE: 1 << 20,
            fields.COLUMN_SIZES: dict.fromkeys(ids, 60000 + number),
            fields.VALUES: dict.fromkeys(ids, 1000),
            fields.NULLS: dict.fromkeys(ids, 0),
            fields.LOWER: dict.fromkeys(ids, low),
            fields.UPPER: dict.fromkeys(ids, high),
            fields.SPLITS: [4],
            fields.SORT_ORDER: 0,
        }
    )


def appended(manifests: int, files: int) -> Any:
    """Return what writes a snapshot of so many manifests of so many files each."""

    def make(producer: SnapshotProducer) -> Any:
        lines = []
        for number in range(manifests):
            one = producer.writer(0, DATA)
            for at in range(files):
                file = entry(number * files + at, "in")
                one.put(Entry(ADDED, producer.names.snapshot_id, None, None, file))
            lines.append(producer.close(one))
        total = {"added-records": "0", "added-data-files": str(manifests * files)}
        return producer.listed(lines, None, total)

    return make


def base(config: CatalogConfig, manifests: int, files: int) -> Any:
    """Return the table that all commits start from."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog(config.name, **dict(config.properties))
    catalog.create_namespace("jobs")
    names = [f"c{n}" for n in range(COLUMNS)]
    catalog.create_table("jobs.base", pa.schema([(name, pa.int64()) for name in names]))
    table = LiveTable(config, ("jobs", "base"))
    sent = commit(table, SnapshotChange("append"), CommitNames(), appended(manifests, files))
    assert sent.answer.kind is Kind.ACCEPTED, sent.answer
    return catalog, catalog.load_table("jobs.base")


def by_python(config: CatalogConfig, name: str) -> float:
    table = LiveTable(config, ("jobs", name))
    manifests = table.manifests(table.state.head())
    removed = {
        one.file.path: str(line[fields.M_PATH])
        for line, entries in zip(manifests, table.entries(manifests), strict=True)
        for one in entries
    }
    outputs = [AddedFile(0, entry(n, "out")) for n in range(OUTPUTS)]
    change = SnapshotChange("replace", added=outputs, sequence=1, removed=removed)
    cpu = cpu_seconds()
    sent = commit(table, change, CommitNames())
    spent = cpu_seconds() - cpu
    assert sent.answer.kind is Kind.ACCEPTED, sent.answer
    return spent


def by_java(spark: Any, name: str) -> float:
    from reconciler.spark.schedule.scan import planned_tasks
    from reconciler.spark.session import iceberg, streams

    table = iceberg.load(spark, f"rec.jobs.{name}")
    core = spark._jvm.org.apache.iceberg
    head = table.currentSnapshot()
    tasks = planned_tasks(spark, table, int(head.snapshotId()), ())
    update = table.newRewrite().validateFromSnapshot(head.snapshotId())
    update.dataSequenceNumber(1)
    rewrite, data_file = "org.apache.iceberg.RewriteFiles", "org.apache.iceberg.DataFile"
    file_of = iceberg.method(
        spark, "org.apache.iceberg.ContentScanTask", "file", "org.apache.iceberg.ContentFile"
    )
    remove = iceberg.method(spark, rewrite, "deleteFile", rewrite, data_file).bindTo(update)
    files = streams.mapped(spark, tasks, file_of)
    files.forEach(iceberg.as_lambda(spark, "java.util.function.Consumer", remove))
    like = files.get(0)
    for n in range(OUTPUTS):
        copy = core.DataFiles.builder(table.spec()).copy(like)
        update.addFile(copy.withPath(f"file:///nowhere/out-{n:06d}.parquet").build())
    cpu = cpu_seconds()
    update.commit()
    return cpu_seconds() - cpu


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--manifests", type=int, default=1000)
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", action="store_true")
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="layoutctl-bench-"))
    (directory / "warehouse").mkdir()
    config = sqlite_catalog(directory)
    catalog, original = base(config, given.manifests, given.files)
    found: dict[str, list[float]] = {"Python": []}
    spark: Any = None
    if not given.alone:
        from reconciler.spark.session import session

        conf = {**SMALL_SESSION, **sqlite_spark_conf(directory)}
        spark = session.start(conf, app="bench", master="local[2]")
        found = {"Java": [], "Python": []}
    for turn in range(given.rounds):
        for side, spent in found.items():
            name = f"{side.lower()}{turn}"
            copied_table(catalog, original, f"jobs.{name}")
            time.sleep(1.0)
            spent.append(by_python(config, name) if side == "Python" else by_java(spark, name))
            print(side, turn, f"{spent[-1]:.2f}", flush=True)
    if given.alone:
        return
    rows = [
        (side, f"{spent[0]:.2f}", f"{min(spent):.2f}", f"{min(spent) / min(found['Java']):.2f}")
        for side, spent in found.items()
    ]
    head = ("committer", "first, CPU s", "least, CPU s", "to Java's least")
    files = given.manifests * given.files
    notes = (
        f"{files:,} files in {given.manifests:,} manifests are replaced by {OUTPUTS}; {COLUMNS} "
        f"columns with statistics; SQLite, local files; {given.rounds} rounds in turns. Goal: at "
        "most Java's CPU."
    )
    print(
        write_section("A commit in Python", "python -m bench.python_commit", [head, *rows], notes)
    )
    from reconciler.spark.session import session

    session.stop(spark)


if __name__ == "__main__":
    main()
