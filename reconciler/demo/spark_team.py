"""The reporting team that has a JDK: runs queries in a plain Spark SQL shell and reads its event
log.

This is the user's side of the demo, so it uses none of our code: `spark-sql` with Iceberg's
catalog, an event log, and a comment in front of each statement that names its template. Bytes and
files are what Spark recorded; results become one checksum per query.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from reconciler.demo.data import CATALOG, NAMESPACE, Place
from reconciler.demo.team import QueryRun
from reconciler.demo.tpch import Query
from reconciler.errors import UnavailableError
from reconciler.spark.session import class_archive, runtime, settings

MARK = "demo-result "
AFTERWARDS = "afterwards"
HEAP = "2g"

SHORT_LIVED = "-XX:TieredStopAtLevel=1"
"""Option of a JVM that ends after a few dozen short queries. On two cores the optimising compiler
and a concurrent collector take half of the CPU time of such a round, and save nothing; the
collector is `settings.COLLECTOR`, unless another one is chosen."""


@dataclass(frozen=True, slots=True)
class SparkTeam:
    """Runs each round in one `spark-sql`."""

    place: Place
    """The directory of the demo."""
    engine: ClassVar[str] = "Spark"
    bytes_name: ClassVar[str] = "SPARK bytesRead"
    caution: ClassVar[str] = (
        "Spark's bytesRead is a rough measure: it misses column chunks that Iceberg reads on\n"
        "threads of its own, and counts gaps read along. Planned bytes, from footers, lead below.\n"
    )
    import_options: ClassVar[tuple[str, ...]] = ()

    def versions(self) -> tuple[str, ...]:
        from importlib.metadata import version

        return (f"pyspark {version('pyspark')}", f"Iceberg {runtime.ICEBERG_RUNTIME.revision}")

    def run_round(
        self, queries: Sequence[Query], afterwards: Sequence[str] = ()
    ) -> tuple[tuple[QueryRun, ...], Path]:
        """Run the queries in this order; return the result of each, and the event log's path.

        Raises UnavailableError if Spark fails or recorded nothing of a query.
        """
        before = set(self.place.logs.iterdir())
        statements = [_statement(query) for query in queries]
        statements += [f"select '{MARK}{AFTERWARDS}';\n{extra};\n" for extra in afterwards]
        printed = spark_sql(self.place, statements, "reporting")
        log = _new_log(before, self.place.logs)
        recorded = read_event_log(log)
        checksums = _checksums(printed)
        runs = []
        for query in queries:
            measured = recorded.get(query.label)
            if measured is None or query.label not in checksums:
                raise UnavailableError(
                    f"Spark recorded nothing of {query.label} in {log}", do="run the demo again"
                )
            runs.append(QueryRun(query.label, query.name, checksums[query.label], *measured))
        return tuple(runs), log

    def iceberg_sort(self, table: str, target_bytes: int) -> tuple[str, ...]:
        return (
            f"call {CATALOG}.system.rewrite_data_files(table => '{table}', strategy => 'sort', "
            "sort_order => 'l_shipdate', options => map('rewrite-all', 'true', "
            f"'target-file-size-bytes', '{target_bytes}'))",
        )


def _statement(query: Query) -> str:
    return f"select '{MARK}{query.label}';\n/* {query.label} */ {query.sql};\n"


def spark_sql(place: Place, statements: Sequence[str], title: str) -> str:
    """Run statements in `spark-sql` and return its standard output."""
    script = place.root / "round.sql"
    script.write_text("\n".join(statements))
    home = runtime.spark_home()
    conf = spark_conf(place, title)
    command = [str(home / "bin" / "spark-sql"), "--master", "local[*]"]
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    command += ["--database", f"{CATALOG}.{NAMESPACE}", "-f", str(script)]
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_HOSTNAME": "localhost"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=place.root
    )
    script.unlink()
    if done.returncode:
        raise UnavailableError(
            f"spark-sql failed in {title}",
            details=tuple(_telling(done.stderr)),
            do="check the memory that is free; see docs/tour.md",
        )
    return done.stdout


def _telling(text: str) -> list[str]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line or "xception" in line]
    return (errors or lines)[:4]


def _java_options() -> str:
    chosen = settings.collector_is_chosen((), class_archive.OPTIONS_FOR_DRIVERS)
    ours = ["" if chosen else settings.COLLECTOR, SHORT_LIVED, class_archive.options((), HEAP)]
    return " ".join(option for option in ours if option)


def spark_conf(place: Place, title: str) -> dict[str, str]:
    """Return the settings of an Iceberg catalog over the demo's SQLite file, and one uncompressed
    event log."""
    prefix = f"spark.sql.catalog.{CATALOG}"
    conf = {
        "spark.app.name": title,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": HEAP,
        "spark.driver.extraJavaOptions": _java_options(),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "jdbc",
        f"{prefix}.uri": f"jdbc:sqlite:{place.database}?busy_timeout=30000",
        f"{prefix}.warehouse": place.warehouse.as_uri(),
        f"{prefix}.jdbc.schema-version": "V1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": place.logs.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }
    jars = runtime.session_jars(conf)
    if jars:
        conf["spark.jars"] = ",".join(str(path) for path in jars)
    return conf


def _new_log(before: set[Path], directory: Path) -> Path:
    new = sorted(path for path in directory.iterdir() if path not in before)
    logs = [path for path in new if not path.name.startswith(".")]
    if len(logs) != 1:
        raise UnavailableError(
            f"expected one new event log in {directory}, found {len(logs)}",
            do="run one demo at a time in a directory",
        )
    return logs[0]


def _checksums(printed: str) -> dict[str, str]:
    """Return, per label, a digest of its rows as a multiset: the order of ties is not part of a
    result."""
    rows: dict[str, list[str]] = {}
    label = None
    for line in printed.splitlines():
        if line.startswith(MARK):
            label = line.removeprefix(MARK).strip()
            rows[label] = []
        elif label is not None:
            rows[label].append(line)
    return {
        name: hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:12]
        for name, lines in rows.items()
    }


def read_event_log(log: Path) -> dict[str, tuple[int, int, int]]:
    """Return, per labelled execution, (files opened, files of its tables, bytes read)."""
    reader = _Recorded({}, {}, {}, {}, {})
    for event in _events(log):
        _take(reader, event)
    measured = {}
    for execution, label in reader.labels.items():
        files, skipped = reader.files.get(execution, (0, 0))
        measured[label] = (files, files + skipped, reader.bytes.get(execution, 0))
    return measured


@dataclass
class _Recorded:
    """What has been read of the event log so far. The dictionaries are by execution id unless said
    otherwise."""

    labels: dict[int, str]
    """The label of the execution."""
    stages: dict[int, int]
    """Execution id by stage id."""
    bytes: dict[int, int]
    """Bytes that its tasks read."""
    metrics: dict[int, str]
    """Metric name by accumulator id."""
    files: dict[int, tuple[int, int]]
    """Number of data files that its scans opened, and number that they skipped."""


def _events(log: Path) -> Iterator[Mapping[str, Any]]:
    with log.open() as lines:
        for line in lines:
            yield json.loads(line)


def _take(reader: _Recorded, event: Mapping[str, Any]) -> None:
    kind = event["Event"].rpartition(".")[2]
    if kind == "SparkListenerSQLExecutionStart":
        found = re.match(r"\s*/\* (.+?) \*/", event["description"])
        if found:
            reader.labels[event["executionId"]] = found.group(1)
        _metrics(event["sparkPlanInfo"], reader.metrics)
    elif kind == "SparkListenerSQLAdaptiveExecutionUpdate":
        _metrics(event["sparkPlanInfo"], reader.metrics)
    elif kind == "SparkListenerJobStart":
        execution = event.get("Properties", {}).get("spark.sql.execution.id")
        if execution is not None:
            reader.stages.update(dict.fromkeys(event["Stage IDs"], int(execution)))
    elif kind == "SparkListenerTaskEnd" and event["Stage ID"] in reader.stages:
        execution = reader.stages[event["Stage ID"]]
        size = event["Task Metrics"]["Input Metrics"]["Bytes Read"]
        reader.bytes[execution] = reader.bytes.get(execution, 0) + size
    elif kind == "SparkListenerDriverAccumUpdates":
        _count_files(reader, event)


def _metrics(plan: Mapping[str, Any], names: dict[int, str]) -> None:
    """Collect the accumulators of the scans of fact tables; each scan node has its own."""
    if any(f".{NAMESPACE}.{fact}[" in plan["simpleString"] for fact in ("lineitem", "orders")):
        for metric in plan["metrics"]:
            names[metric["accumulatorId"]] = metric["name"]
    for child in plan["children"]:
        _metrics(child, names)


def _count_files(reader: _Recorded, event: Mapping[str, Any]) -> None:
    opened, skipped = reader.files.get(event["executionId"], (0, 0))
    for accumulator, value in event["accumUpdates"]:
        name = reader.metrics.get(accumulator)
        if name == "number of result data files":
            opened += value
        elif name == "number of skipped data files":
            skipped += value
    reader.files[event["executionId"]] = (opened, skipped)
