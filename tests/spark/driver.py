"""Runs one execution as a process of its own, for tests that kill it.

`python -m tests.spark.driver DIRECTORY TABLE KEY FILES [URI]` reclusters up to FILES live files of
rec.jobs.TABLE by KEY, one group and one commit a file; progress goes to stdout as "phase text".
KEY `convert:1,2` deletes the rows with these ids by equality and converts what there is;
`compact:1,2` deletes them by position, a delete file each, and compacts; `apply:1,2` rewrites the
files without them, one commit a file. `orphans:` plants files that nobody refers to and removes
those that are there; `expire:` expires all snapshots but the newest.
With URI the table is in that REST catalog, else in the SQLite catalog below DIRECTORY.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from reconciler.api.catalog_config import CatalogConfig
from reconciler.errors import ReconcilerError
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.delete_maintenance import CompactDeletes, ConvertDeletes
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.remove_orphans import RemoveOrphans
from reconciler.plan.actions.rewrite import ApplyDeletes, Recluster
from reconciler.plan.execution import Event
from reconciler.spark.schedule.scan import scan_tasks
from reconciler.spark.session import iceberg, session
from reconciler.table.retention import Retention, old
from tests.conftest import SMALL_SESSION, rest_spark_conf, sqlite_catalog, sqlite_spark_conf
from tests.spark.equality import add_equality_delete, delete_paths, on_disk
from tests.spark.tables import Bench


def _print(event: Event) -> None:
    """Print the event in one write: those of groups that run at once must not share a line."""
    sys.stdout.write(f"{event.phase} {event.text}\n")
    sys.stdout.flush()


def _planted(bench: Bench, name: str) -> list[str]:
    """Plant three files, made old, beside those that a killed run has left."""
    data = on_disk(bench.table(name).location()) / "data"
    for number in range(3):
        path = data / f"orphan-{time.time_ns():x}-{number}.parquet"
        path.write_bytes(b"x")
        os.utime(path, (0, 0))
    return [f"file:{path}" for path in data.glob("orphan-*.parquet")]


def _action(bench: Bench, name: str, key: str, inputs: tuple[str, ...]) -> Action:
    kind, _, ids = key.partition(":")
    if kind == "orphans":
        return RemoveOrphans(tuple(sorted(_planted(bench, name))), 48 * 3_600_000)
    if kind == "expire":
        log = bench.live(name).log()
        return ExpireSnapshots(tuple(sorted(old(log, Retention(0, 1), 1 << 62))), 0, 1)
    if kind == "convert":
        keys = pa.array(map(int, ids.split(",")), pa.int64())
        add_equality_delete(bench, name, {"id": keys})
        return ConvertDeletes(inputs=delete_paths(bench, name, 2))
    if kind in ("compact", "apply"):
        for one in ids.split(","):
            bench.sql(f"DELETE FROM {bench.full(name)} WHERE id = {one}")
        if kind == "compact":
            return CompactDeletes(inputs=delete_paths(bench, name))
        return bench.action(name, ApplyDeletes, inputs=inputs)
    return bench.action(name, Recluster, key, inputs=inputs)


def main() -> int:
    directory, name, key, files = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    config, catalog_conf = sqlite_catalog(directory), sqlite_spark_conf(directory)
    if len(sys.argv) > 5:
        server: Any = SimpleNamespace(uri=sys.argv[5])
        config = CatalogConfig("rec", "rest", {"type": "rest", "uri": server.uri})
        catalog_conf = rest_spark_conf(server)
    conf = {**SMALL_SESSION, "spark.driver.memory": "1g", **catalog_conf}
    spark = session.start(conf, app="fault test", master="local[2]")
    print("jvm", iceberg.jvm_pid(spark), flush=True)
    bench = Bench(spark, config, directory)
    inputs = tuple(bench.paths(name))[:files]
    table = bench.table(name)  # after its files: others append meanwhile
    head = int(table.currentSnapshot().snapshotId())
    assert len(scan_tasks(spark, table, head, inputs)) == len(inputs)
    action = _action(bench, name, key, inputs)
    plan = f"p-{time.time_ns():020x}"
    request = bench.request(name, action, plan=plan, group_bytes=1, max_commits=files)
    print("ready", plan, flush=True)
    try:
        result = bench.run(request, _print)
        print("done", result.commits, result.conflicts, flush=True)
    except ReconcilerError as error:
        print("failed", error.render(), flush=True)
        return error.exit_code
    finally:
        session.stop(spark)
    return 0


if __name__ == "__main__":
    sys.exit(main())
