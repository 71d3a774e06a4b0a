"""A real Spark session's event log: its scans as fragments, with the bytes its tasks read."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reconciler.queries.predicate import render
from reconciler.table.schema import Field, Schema
from reconciler.workload_log import skip_reasons
from reconciler.workload_log.event_log_files import event_logs, is_event_log
from reconciler.workload_log.importing import Tally
from reconciler.workload_log.spark_events import SparkEventImport
from reconciler.workload_log.tables import KnownTable, SchemaMap
from tests.workload_log.sinks import MemorySink

TYPES = {"id": "long", "d": "date", "v": "string", "amt": "decimal(10,2)", "ts": "timestamptz",
         "st.x": "int", "st.y": "string"}  # fmt: skip
SCHEMA = Schema(0, tuple(Field(i + 1, n, t) for i, (n, t) in enumerate(TYPES.items())))
TABLES = SchemaMap(
    {
        ("rec", "db", "q"): KnownTable("uuid-q", "q", SCHEMA),
        ("rec", "db", "r"): KnownTable("uuid-r", "r", Schema(0, (Field(1, "id", "long"),))),
    }
)

QUERIES = {
    "SELECT v FROM rec.db.q WHERE id >= 10 AND id < 200 AND d = DATE '2026-01-05'": {
        "q": "id >= 10 AND id < 200 AND d = 2026-01-05"
    },
    "SELECT count(*) FROM rec.db.q WHERE v IN ('12', 'a,b', 'it''s') OR v LIKE 'v, %'": {
        "q": "v IN (12, a,b, it's) OR v LIKE v, %"
    },
    "SELECT sum(amt) FROM rec.db.q WHERE amt > 3.5 AND NOT (id = 5)"
    " AND ts >= TIMESTAMP '2026-01-01 00:05:00'": {
        "q": "id != 5 AND amt > 3.50 AND ts >= 2026-01-01T00:05:00Z"
    },
    "SELECT st.x FROM rec.db.q WHERE st.x > 990": {"q": "st.x > 990"},
    "SELECT q.v FROM rec.db.q q JOIN rec.db.r r ON q.id = r.id WHERE r.id < 5": {
        "q": "id < 5", "r": "id < 5",
    },
    "SELECT * FROM rec.db.q.snapshots": {},
    "SELECT count(*) FROM rec.db.q WHERE id > 5000": {"q": "id > 5000"},
    "MERGE INTO rec.db.r t USING rec.db.q s ON t.id = s.id AND s.id < 5 WHEN MATCHED THEN DELETE": {
        "r": "id < 5", "q": "id < 5",
    },
}  # fmt: skip

SCRIPT = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from reconciler.spark.session import runtime
from tests.conftest import SMALL_SESSION, sqlite_catalog, sqlite_spark_conf
from pyiceberg.catalog.sql import SqlCatalog

directory, name, options, queries = Path(sys.argv[1]), sys.argv[2], *map(json.loads, sys.argv[3:])
(directory / "events").mkdir(exist_ok=True)
config = sqlite_catalog(directory)
SqlCatalog(config.name, **config.properties)
conf = {**SMALL_SESSION, **sqlite_spark_conf(directory), "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{directory}/events", "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC", "spark.driver.host": "127.0.0.1", **options}
conf["spark.jars"] = ",".join(f"file:{p}" for p in runtime.session_jars(conf))
builder = SparkSession.builder.appName(name).master("local[2]")
for key, value in conf.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
spark.sql("CREATE NAMESPACE IF NOT EXISTS rec.db")
spark.sql('''CREATE TABLE rec.db.q USING iceberg AS SELECT id, date_add(DATE '2026-01-01',
  CAST(id % 30 AS INT)) d, concat('v, ', id) v, CAST(id AS DECIMAL(10,2)) amt,
  timestamp_seconds(1767225600 + id) ts, named_struct('x', CAST(id AS INT), 'y', 'k') st
  FROM range(1000)''')
spark.sql("CREATE TABLE rec.db.r USING iceberg AS SELECT id FROM range(100)")
for query in queries:
    spark.sql(query).collect()
spark.stop()
"""


def record(directory: Path, name: str, options: dict[str, str], queries: list[str]) -> Path:
    """Runs queries in a session of their own; the directory of its event log."""
    (directory / "warehouse").mkdir()
    script = directory / "session.py"
    script.write_text(SCRIPT)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, script, directory, name, json.dumps(options), json.dumps(queries)],
        env={**__import__("os").environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return directory / "events"


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Spark's own defaults: a rolling, compressed log."""
    return record(tmp_path_factory.mktemp("spark"), "analytics", {}, list(QUERIES))


def run(sink: MemorySink, path: Path) -> Tally:
    return SparkEventImport(TABLES, sink).run(path)


@pytest.mark.jvm
def test_every_scan_of_a_real_log_is_read_as_it_was_pushed_down(events: Path) -> None:
    sink = MemorySink()
    (log,) = event_logs(events)
    assert is_event_log(log)
    tally = run(sink, log)
    found: dict[int, dict[str, str]] = {}
    for item in sink.fragments:
        name = item.table_uuid.removeprefix("uuid-")
        text = render(item.predicate, SCHEMA, item.literals)
        found.setdefault(item.event_ms, {})[name] = text
    assert list(found.values()) == [scans for scans in QUERIES.values() if scans]
    assert dict(tally.skipped) == {skip_reasons.UNKNOWN_TABLES: 1}
    assert not any(item.full_scan for item in sink.fragments)
    assert [item.table_uuid for item in sink.fragments if item.merged] == ["uuid-r"]


@pytest.mark.jvm
def test_bytes_and_columns_are_those_that_the_tasks_read(events: Path) -> None:
    sink = MemorySink()
    run(sink, event_logs(events)[0])
    by_shape = {render(f.predicate, SCHEMA, f.literals): f for f in sink.fragments}
    ranged = by_shape["id >= 10 AND id < 200 AND d = 2026-01-05"]
    assert ranged.recorded_bytes and 0 < ranged.recorded_bytes < 1 << 20
    assert [SCHEMA.name_of(i) for i in ranged.projection] == ["id", "d", "v"]
    assert by_shape["id > 5000"].recorded_bytes == 0
    assert all(f.duration_ms is not None and f.duration_ms > 0 for f in sink.fragments)
    assert all(f.engine == "spark" for f in sink.fragments)


@pytest.mark.jvm
def test_importing_again_or_from_a_growing_log_doubles_nothing(
    events: Path, tmp_path: Path
) -> None:
    import pyarrow as pa

    (log,) = event_logs(events)
    (part,) = log.glob("events_1_*")
    lines = pa.input_stream(str(part), compression="zstd").read().splitlines(keepends=True)
    whole, growing = MemorySink(), MemorySink()
    run(whole, log)
    assert run(whole, log).kept == 0
    path = tmp_path / "app-1.inprogress"
    for share in (0.4, 0.75, 1.0):
        cut = b"".join(lines)[: int(len(b"".join(lines)) * share)]
        path.write_bytes(cut)
        run(growing, path)
    assert growing.fragments == whole.fragments


@pytest.mark.jvm
def test_a_plain_log_in_any_packing_reads_the_same(events: Path, tmp_path: Path) -> None:
    import pyarrow as pa

    (part,) = event_logs(events)[0].glob("events_1_*")
    body = pa.input_stream(str(part), compression="zstd").read()
    plain, packed = MemorySink(), MemorySink()
    (tmp_path / "app").write_bytes(body)
    (tmp_path / "app.gz").write_bytes(gzip.compress(body))
    assert is_event_log(tmp_path / "app.gz") and not is_event_log(Path(__file__))
    run(plain, tmp_path / "app")
    run(packed, tmp_path / "app.gz")
    assert plain.fragments == packed.fragments and plain.fragments


# Events by hand: what a test cannot make Spark do


def start(number: int, text: str, accumulators: tuple[int, ...] = (1, 2)) -> dict[str, Any]:
    metrics = [
        {"name": name, "accumulatorId": n, "metricType": "sum"}
        for name, n in zip(("rows", "total data file size (bytes)"), accumulators, strict=True)
    ]
    node = {"nodeName": "BatchScan", "simpleString": text, "children": [], "metrics": metrics}
    plan = {"nodeName": "Project", "simpleString": "Project", "children": [node], "metrics": []}
    return {"Event": "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart",
            "executionId": number, "time": 1_767_225_600_000, "sparkPlanInfo": plan}  # fmt: skip


def end(number: int, error: str = "") -> dict[str, Any]:
    return {"Event": "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd",
            "executionId": number, "time": 1_767_225_601_000, "errorMessage": error}  # fmt: skip


def scan(filters: str, branch: str = "null", kind: str = "IcebergScan") -> str:
    return (
        f"BatchScan rec.db.q[id#1L] {kind}(table=rec.db.q, schemaId=0, snapshotId=1, "
        f"branch={branch}, filters={filters}, runtimeFilters=, groupedBy=) RuntimeFilters: []"
    )


def log_of(path: Path, *events: dict[str, Any], name: str = "app") -> Path:
    first = {"Event": "SparkListenerApplicationStart", "App Name": name, "App ID": "app-7"}
    path.write_text("".join(json.dumps(event) + "\n" for event in (first, *events)))
    return path


def test_logs_whose_beginning_is_lost_do_not_collide(tmp_path: Path) -> None:
    sink = MemorySink()
    for number, literal in ((1, "5"), (2, "6")):
        events = [start(3, scan(f"id = {literal}")), end(3)]
        path = tmp_path / f"app-{number}"
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
        assert [run(sink, path).kept, run(sink, path).kept] == [1, 0]
    assert sorted(f.literals for f in sink.fragments) == [(5,), (6,)]


def test_our_own_rewrites_are_left_out(tmp_path: Path) -> None:
    sink = MemorySink()
    path = log_of(tmp_path / "a", start(1, scan("id = 3")), end(1), name="layoutctl apply")
    assert dict(run(sink, path).skipped) == {skip_reasons.OWN_JOB: 1} and not sink.fragments


def test_failed_branch_and_maintenance_scans_are_counted_apart(tmp_path: Path) -> None:
    sink = MemorySink()
    staged = scan("").replace("IcebergScan", "IcebergStagedScan")
    path = log_of(
        tmp_path / "a",
        start(1, scan("id = 3")), end(1, "boom"),
        start(2, scan("id = 3", branch="audit")), end(2),
        start(3, staged), end(3),
        start(4, scan("id = 3")), end(4),
        start(5, scan("id = 4")),
    )  # fmt: skip
    tally = run(sink, path)
    assert dict(tally.skipped) == {
        skip_reasons.FAILED: 1,
        skip_reasons.OTHER_BRANCH: 1,
        skip_reasons.MAINTENANCE: 1,
    }
    assert [f.literals for f in sink.fragments] == [(3,)]


def test_filters_that_cannot_be_read_count_as_a_full_scan(tmp_path: Path) -> None:
    sink = MemorySink()
    tally = run(sink, log_of(tmp_path / "a", start(1, scan("id ~ 3")), end(1)))
    assert [f.full_scan for f in sink.fragments] == [True]
    assert dict(tally.full_scans) == {skip_reasons.UNREADABLE_FILTERS: 1}
    assert sink.skips["uuid-q", skip_reasons.UNREADABLE_FILTERS] == 1


def test_a_scan_knows_that_only_the_other_table_of_its_join_has_conditions(tmp_path: Path) -> None:
    sink = MemorySink()
    joined = start(1, scan("id IS NOT NULL"))
    other = start(1, scan("id IS NOT NULL, id = 3"), accumulators=(3, 4))
    nodes = joined["sparkPlanInfo"]["children"] + other["sparkPlanInfo"]["children"]
    joined["sparkPlanInfo"]["children"] = nodes
    run(sink, log_of(tmp_path / "a", joined, end(1), start(2, scan("")), end(2)))
    assert [f.elsewhere for f in sink.fragments] == [True, False, False]


def merge(write: str, *scans: str) -> dict[str, Any]:
    """The start of a MERGE, with scans in the order of Spark's plan: the join's left side first."""
    nodes = []
    for number, text in enumerate(scans):
        event = start(1, text, accumulators=(2 * number + 1, 2 * number + 2))
        nodes += event["sparkPlanInfo"]["children"]
    rows = {"nodeName": "MergeRows", "simpleString": "MergeRowsExec[id#1L]", "metrics": [],
            "children": nodes}  # fmt: skip
    plan = {"nodeName": "AdaptiveSparkPlan", "simpleString": "", "children": [rows], "metrics": []}
    return {**event, "sparkPlanInfo": {"nodeName": write.partition(" ")[0], "simpleString": write,
                                       "children": [plan], "metrics": []}}  # fmt: skip


COPIED = "ReplaceData IcebergWrite(table=rec.db.q, format=PARQUET)"
APPENDED = "AppendData IcebergWrite(table=rec.db.q, format=PARQUET)"
DELETED = "WriteDelta org.apache.iceberg.spark.source.SparkPositionDeltaWrite@17975a4d"


@pytest.mark.parametrize(
    ("write", "tables", "merged"),
    [
        (COPIED, "qqr", [True, False, False]),  # the second scan finds the files to replace
        (DELETED, "qr", [True, False]),
        (DELETED, "rq", [True, False]),
        (APPENDED, "rq", [False, True]),  # clauses that only insert: the source is on the left
        (APPENDED, "qq", [True, False]),
    ],
)
def test_a_merge_marks_one_scan_of_the_table_that_it_writes(
    write: str, tables: str, merged: list[bool], tmp_path: Path
) -> None:
    sink = MemorySink()
    started = merge(write, *(scan("id > 3").replace("rec.db.q", f"rec.db.{t}") for t in tables))
    run(sink, log_of(tmp_path / "a", started, end(1), start(2, scan("id > 3")), end(2)))
    assert [f.table_uuid.removeprefix("uuid-") for f in sink.fragments] == [*tables, "q"]
    assert [f.merged for f in sink.fragments] == [*merged, False]


def test_a_broken_event_stops_nothing(tmp_path: Path) -> None:
    sink = MemorySink()
    path = log_of(tmp_path / "a", start(1, scan("id = 3")), end(1))
    broken = '{"Event":"org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"'
    body = path.read_text().splitlines()
    path.write_text("\n".join([body[0], broken, broken + "}", "\x00" * 40, *body[1:]]) + "\n")
    tally = run(sink, path)
    assert tally.skipped[skip_reasons.UNREADABLE_EVENT] == 2 and len(sink.fragments) == 1


def test_task_bytes_go_to_the_scan_whose_metrics_the_task_updated(tmp_path: Path) -> None:
    sink = MemorySink()

    def task(read: int, *ids: int) -> dict[str, Any]:
        return {"Event": "SparkListenerTaskEnd", "Stage ID": 0,
                "Task Info": {"Accumulables": [{"ID": i} for i in ids]},
                "Task Metrics": {"Input Metrics": {"Bytes Read": read}}}  # fmt: skip

    path = log_of(
        tmp_path / "a",
        start(1, scan("id = 3"), (1, 2)), task(100, 1, 77), task(50, 1), task(999, 88), end(1),
        start(2, scan("id = 4"), (5, 6)), task(7, 5), task(1000, 1), end(2),
    )  # fmt: skip
    run(sink, path)
    assert [f.recorded_bytes for f in sink.fragments] == [150, 7]
