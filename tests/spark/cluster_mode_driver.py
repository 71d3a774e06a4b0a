"""Rewrites on local-cluster[2,1,1024], as a process of its own; see test_cluster_mode.

Each case prints `passed` and its name once all that it asserts holds.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from reconciler.catalog.load import data_file_io
from reconciler.catalog.observe import observe_table
from reconciler.catalog.sketch_reader import SketchRequest, read_directly
from reconciler.engines.schedule import native
from reconciler.engines.schedule.refused import NotVerified
from reconciler.plan.actions.delete_maintenance import CompactDeletes
from reconciler.plan.actions.rewrite import Cluster
from reconciler.plan.execution import Event
from reconciler.plan.ordering import Hilbert
from reconciler.spark.fallback import fallback
from reconciler.spark.schedule import witness_work
from reconciler.spark.schedule.sketches import OnExecutors
from reconciler.spark.session import class_archive, resources, runtime, session
from tests.conftest import SMALL_SESSION, sqlite_catalog, sqlite_spark_conf
from tests.spark.equality import delete_paths
from tests.spark.tables import Bench

MASTER = "local-cluster[2,2,1024]"
EXECUTOR = {
    "spark.executor.memory": "768m",
    "spark.executor.memoryOverhead": "1408m",
    "spark.executor.cores": "2",
}
VERIFY = (1, 0)
"""Numbers of the first delete maintenance and of the first group of an attempt."""
BACKEND = "CoarseGrainedExecutorBackend"


def fill(bench: Bench, files: int, rows: int) -> str:
    name = bench.create("id bigint, s string, v bigint, d double, nested struct<a: int, b: string>")
    columns = (
        f"n * {files} + file, concat('v', hash(n, file)), (n * 7919) % 1000, "
        "nullif(n % 7, 0) * 1.5D, named_struct('a', int(n), 'b', string(n))"
    )
    bench.fill(name, files, rows, columns)
    return name


def executors_of(spark: Any) -> list[int]:
    """Pids of the executor processes below our JVM."""
    jvm = int(spark.gateway.proc.pid)
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True)
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()[1:]]
    return [int(pid) for pid, parent, args in rows if int(parent) == jvm and BACKEND in args]


def cluster_by_key(bench: Bench) -> None:
    name = fill(bench, files=4, rows=500)
    before = bench.rows(name)
    size = bench.size(name)
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id = 3")
    del before[next(row for row in before if row.startswith("Row(id=3,"))]
    needed = native._needed
    for curve, key in ((None, ("id",)), (Hilbert, ("id", "v"))):
        if curve is not None:  # more than one slot of an executor has
            native._needed = lambda *_: 500 << 20
        more = {} if curve is None else {"curve": curve}
        action = bench.action(name, Cluster, *key, target_bytes=size // 4, **more)
        result = bench.run(bench.request(name, action, plan=f"p-{curve}", group_bytes=1))
        assert result.done and result.commits == 1, result
        assert bench.rows(name) == before
        assert result.cpu_seconds > 0, "task metrics come back from the executors"
        if curve is None:
            ranges = sorted(
                (file.readable_metrics.id.lower_bound, file.readable_metrics.id.upper_bound)
                for file in bench.files(name)
            )
            assert len(ranges) == 4
            assert all(left[1] < right[0] for left, right in itertools.pairwise(ranges))
    native._needed = needed
    assert not any("by Spark" in event.text for event in bench.events)
    assert bench.leftovers(name) == []
    print("passed cluster", flush=True)


def verified_by_executors(bench: Bench) -> None:
    """Their Python processes compare what is not small, deletes included, and see a lost row."""
    name = fill(bench, files=4, rows=500)
    bench.sql(f"ALTER TABLE {bench.full(name)} SET TBLPROPERTIES ('write.delete.mode'="
              "'merge-on-read', 'write.delete.granularity'='partition')")  # fmt: skip
    for number in (3, 4):
        bench.sql(f"DELETE FROM {bench.full(name)} WHERE id = {number}")
    before, small = bench.rows(name), witness_work.DIRECT_BYTES
    honest, planned = fallback.arranged, native.planned
    inputs = delete_paths(bench, name)
    witness_work.DIRECT_BYTES = 0
    native.planned = lambda *_: native.Unplanned("a test asks for Spark")
    fallback.arranged = lambda *given: honest(*given).where("id <> 42")
    try:
        bench.run(bench.request(name, bench.action(name, Cluster, "id"), plan="p-lost"))
    except NotVerified as error:
        assert "read 1,998 rows, wrote 1,997" in error.what, error.what
    else:
        raise AssertionError("a lost row was committed")
    finally:
        fallback.arranged, native.planned = honest, planned
    kinds = (CompactDeletes(inputs=inputs), bench.action(name, Cluster, "id"))
    for number, action in enumerate(kinds):
        result = bench.run(bench.request(name, action, plan=f"p-by-executors-{number}"))
        assert result.done and bench.rows(name) == before
        jobs = bench.spark.sparkContext.statusTracker()
        assert jobs.getJobIdsForGroup(f"{result.attempts[0]}/{VERIFY[number]}/verify")
    witness_work.DIRECT_BYTES = small
    print("passed witness", flush=True)


def sample_a_table(bench: Bench) -> None:
    name = fill(bench, files=4, rows=500)
    config = bench.config
    seen = observe_table(config, ("jobs", name), bench.directory / "cache")
    schema, io = seen.schema, data_file_io(config, ("jobs", name))
    fields = [field for field in schema.fields if field.kind is not None]
    asked = [SketchRequest(str(path), 100, 1 << 20, 1 << 20) for path in seen.files.path]
    used: list[float] = []
    spread = OnExecutors(bench.spark, 60.0, used.append)(io, schema, fields, asked, 0)
    for one, other in zip(read_directly(io, schema, fields, asked, 0), spread, strict=True):
        assert len(one) == 100 and one.read == other.read
        for field in fields:
            np.testing.assert_array_equal(one.values[field.field_id], other.values[field.field_id])
            np.testing.assert_array_equal(one.null[field.field_id], other.null[field.field_id])
    assert sum(used) > 0
    print("passed sample", flush=True)


def pack_while_an_executor_dies(bench: Bench) -> None:
    name = fill(bench, files=6, rows=10_000)
    before = bench.rows(name)
    victims = executors_of(bench.spark)
    assert len(victims) == 2, victims
    killed = threading.Event()

    def kill_while_rows_are_read(event: Event) -> None:
        if event.phase == "start":
            threading.Timer(0.1, kill).start()
        elif event.phase == "verified":
            assert killed.is_set(), "the rewrite was over before the kill"

    def kill() -> None:
        os.kill(victims[0], signal.SIGKILL)
        killed.set()

    action = bench.action(name, Cluster, "v", target_bytes=1 << 30)
    result = bench.run(bench.request(name, action, plan="p-killed"), kill_while_rows_are_read)
    assert killed.is_set() and result.done, result
    assert bench.rows(name) == before
    assert bench.leftovers(name) == []
    print("passed kill", flush=True)


def main() -> int:
    directory = Path(sys.argv[1])
    conf = {
        **SMALL_SESSION,
        **EXECUTOR,
        "spark.driver.memory": "1g",
        **sqlite_spark_conf(directory),
    }
    spark = session.start(conf, app="cluster mode", master=MASTER, apart=True)
    try:
        session.await_executors(spark, 60)
        assert resources.of_executor(spark).memory_bytes == (512 - 128) << 20
        print("passed memory", flush=True)
        if (archive := class_archive.archive()) is not None:
            for pid in executors_of(spark):
                assert archive.name in Path(f"/proc/{pid}/maps").read_text()
        bench = Bench(spark, sqlite_catalog(directory), directory)
        cluster_by_key(bench)
        verified_by_executors(bench)
        sample_a_table(bench)
        pack_while_an_executor_dies(bench)
    finally:
        application = spark.sparkContext.applicationId
        session.stop(spark)
        shutil.rmtree(runtime.spark_home() / "work" / application, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
