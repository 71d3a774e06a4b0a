"""A real Flink upsert job as a process, for tests marked `flink` and for bench/flink_upserts.py.

`python -m tests.flink.job` (make flink) downloads Flink's jars. The job runs on a mini cluster in
its own JVM; the Hadoop classes come from the Spark distribution.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.spark.session import runtime
from tests.rest_server import pinned_jars

_HERE = Path(__file__).parent
JARS = (*pinned_jars(_HERE / "jars.txt"), runtime.SQLITE_JDBC)

_OPENED = ("java.lang", "java.net", "java.io", "java.nio", "java.util", "java.util.concurrent")
"""Packages of the JDK that Flink's serializer looks into (Flink's own default configuration)."""

HOT_KEYS = 997


def missing_jars() -> list[str]:
    """Names of Flink's jars that are not in the cache."""
    directory = runtime.cache_directory()
    return [jar.file_name for jar in JARS if not (directory / jar.file_name).is_file()]


def source_of_truth(events: int) -> dict[int, int]:
    """id -> number of the rows of the table when the job has upserted all events.

    Event n, from 1, is about row 1,000,000 + n if 4 divides n, else about one of HOT_KEYS rows; 10
    dividing n, it deletes the row, else it writes the number n. The same as `_EVENTS`.
    """
    latest = {}
    for n in range(1, events + 1):
        latest[1_000_000 + n if n % 4 == 0 else n * 7919 % HOT_KEYS] = n
    return {key: n for key, n in latest.items() if n % 10}


_EVENTS = (
    "SELECT id, MAX(n) AS n FROM ("
    f"SELECT CASE WHEN MOD(n, 4) = 0 THEN 1000000 + n ELSE MOD(n * 7919, {HOT_KEYS}) END AS id, n "
    "FROM source) GROUP BY id HAVING MOD(MAX(n), 10) <> 0"
)


def create_table(bench: Any, version: int, partitioned: str = "") -> str:
    """An empty table of rows (id, n) that Flink upserts by id; its name within the namespace."""
    properties = f"'format-version'='{version}', 'write.upsert.enabled'='true'"
    name: str = bench.create("id BIGINT NOT NULL, n BIGINT", properties, partitioned)
    bench.sql(f"ALTER TABLE {bench.full(name)} SET IDENTIFIER FIELDS id")
    return name


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that the job committed to the table. at_ms: when."""

    number: int
    at_ms: int


def checkpoints(table: Any) -> list[Checkpoint]:
    """Those in the history of a pyiceberg table, in its order."""
    found = []
    for snapshot in table.refresh().snapshots():
        number = snapshot.summary["flink.max-committed-checkpoint-id"]
        if number is not None:
            found.append(Checkpoint(int(number), int(snapshot.timestamp_ms)))
    return found


def on_sqlite(directory: Path) -> dict[str, str]:
    """Properties of Flink's catalog for the one of `sqlite_catalog`."""
    return {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{directory}/catalog.db?busy_timeout=30000",
        "warehouse": f"file://{directory}/warehouse",
        "jdbc.schema-version": "V1",
    }


def on_rest(uri: str) -> dict[str, str]:
    return {"catalog-type": "rest", "uri": uri}


def catalog_statement(name: str, properties: Mapping[str, str]) -> str:
    """The statement that makes Iceberg's catalog of these properties known to Flink."""
    options = {"type": "iceberg", **properties, "cache-enabled": "false"}
    named = ", ".join(f"'{key}'='{value}'" for key, value in options.items())
    return f"CREATE CATALOG {name} WITH ({named})"


def command(program: str) -> list[str]:
    """The command that runs a Java program of this directory with Flink's classes."""
    hadoop = sorted((runtime.spark_home() / "jars").glob("hadoop-client-*.jar"))
    class_path = ":".join(map(str, [*runtime.fetch(JARS), *hadoop]))
    opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED]
    source = str(_HERE / f"{program}.java")
    return [runtime.java_command(), "-Xmx512m", *opened, "-cp", class_path, source]


class UpsertJob:
    """A job that upserts events into a table, and then ends.

    A checkpoint or a commit that fails ends it at once, with an exit code that is not 0.
    """

    def __init__(
        self,
        catalog: Mapping[str, str],
        table: str,
        log: Path,
        *,
        events: int,
        per_second: int,
        checkpoint_ms: int,
        parallelism: int = 1,
        state: Path | None = None,
    ) -> None:
        """catalog: properties of the one whose name is the first part of `table`. state: where its
        checkpoints are kept; a job that finds one there goes on from it."""
        self._log = log.open("w")
        self.log = log
        self.process = subprocess.Popen(
            [
                *command("SqlJob"),
                f"SET execution.checkpointing.interval={checkpoint_ms} ms",
                "SET execution.checkpointing.tolerable-failed-checkpoints=0",
                "SET restart-strategy.type=none",
                # Else HAVING turns a deleted row into an update's old half, which upserts ignore.
                "SET table.exec.sink.upsert-materialize=FORCE",
                f"SET parallelism.default={parallelism}",
                *([] if state is None else _restored(state)),
                catalog_statement(table.split(".")[0], catalog),
                "CREATE TEMPORARY TABLE source (n BIGINT) WITH ('connector'='datagen', "
                f"'rows-per-second'='{per_second}', 'fields.n.kind'='sequence', "
                f"'fields.n.start'='1', 'fields.n.end'='{events}')",
                f"INSERT INTO {table} {_EVENTS}",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )  # fmt: skip

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def wait(self) -> int:
        """The exit code: 0 when all events are in the table."""
        code = self.process.wait()
        self._log.close()
        return code

    def stop(self) -> None:
        if self.running:
            self.process.kill()
        self.wait()


def _restored(state: Path) -> list[str]:
    """Settings of a job that keeps its checkpoints below the directory."""
    kept = [
        f"SET execution.checkpointing.dir=file://{state}",
        "SET execution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION",
    ]
    done = [path.parent for path in state.rglob("chk-*/_metadata")]
    if not done:
        return kept
    last = max(done, key=lambda path: int(path.name.removeprefix("chk-")))
    return [*kept, f"SET execution.state-recovery.path=file://{last}"]


if __name__ == "__main__":
    runtime.fetch(JARS)
    sys.exit(f"not downloaded: {', '.join(missing_jars())}" if missing_jars() else 0)
