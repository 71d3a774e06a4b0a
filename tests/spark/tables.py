"""Small real tables and requests over them, for tests of the executor."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from reconciler.api.catalog_config import CatalogConfig
from reconciler.engines.schedule import execute, processes
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.rewrite import Rewrite
from reconciler.plan.execution import Event, ExecutionRequest, ExecutionResult
from reconciler.plan.ordering import ARRIVAL, Lexicographic
from reconciler.spark.commit.table import JavaTable
from reconciler.spark.engine import JavaBackend
from reconciler.spark.session import iceberg
from reconciler.table.schema import SortColumn
from tests.spark.ledger import FileLease, FileLedger

_NUMBERS = itertools.count()
_PLAIN = re.compile(r"boolean|int|long|float|double|string|date|timestamp|decimal\(.*\)")
"""Types whose values DuckDB and Spark return alike."""


@dataclass
class Bench:
    """One catalog with its session and ledger; makes tables and runs actions on them."""

    spark: Any
    config: CatalogConfig
    directory: Path
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.ledger = FileLedger(self.directory / "ledger.db")
        self.lease = FileLease(self.directory / "ledger.db")
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.config.name}.jobs")

    @property
    def engine(self) -> JavaBackend:
        return JavaBackend(self.spark)

    def live(self, name: str) -> JavaTable:
        """The table as executions see it."""
        return JavaTable(self.spark, self.full(name), self.table(name))

    def create(self, columns: str, properties: str = "", partitioned: str = "") -> str:
        """A new empty table; its name within the namespace."""
        name = f"t{next(_NUMBERS)}"
        by = f"PARTITIONED BY ({partitioned})" if partitioned else ""
        with_properties = f"TBLPROPERTIES ({properties})" if properties else ""
        self.sql(f"CREATE TABLE {self.full(name)} ({columns}) USING iceberg {by} {with_properties}")
        return name

    def full(self, name: str) -> str:
        return f"{self.config.name}.jobs.{name}"

    def sql(self, text: str) -> list[Any]:
        return self.spark.sql(text).collect()

    def fill(self, name: str, files: int, rows: int, columns: str) -> None:
        """Appends files of `rows` rows each, in one commit, which takes a fraction of the time that
        one commit a file does. columns: SQL over `file` and `n`, the number of a file and of a row
        in it."""
        self.sql(
            f"INSERT INTO {self.full(name)} SELECT {columns} FROM (SELECT id div {rows} AS file, "
            f"id % {rows} AS n FROM range(0, {files * rows}, 1, {files}))"
        )

    def write(self, name: str, files: int, rows: int, columns: str) -> None:
        """Does what `fill` does, by DuckDB and pyiceberg, in a seventh of the time: for a table
        without partitions, and a test that is not about files of Spark's. columns: SQL that both
        read alike."""
        import duckdb
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        table = self.by_pyiceberg(name)
        if table.format_version > 2:  # pyiceberg writes no rows there
            self.fill(name, files, rows, columns)
            return
        schema, numbers, writer = table.schema().as_arrow(), itertools.count(), uuid.uuid4()
        with table.transaction() as change, change.update_snapshot().fast_append() as added:
            for file in range(files):
                numbered = f"SELECT {file} AS file, range AS n FROM range({rows})"
                made = duckdb.sql(f"SELECT {columns} FROM ({numbered})").to_arrow_table()
                made = made.rename_columns(schema.names).cast(schema)
                given = (table.metadata, made, table.io, writer, numbers)
                for one in _dataframe_to_data_files(*given):
                    added.append_data_file(one)

    def append(self, name: str, columns: Mapping[str, Sequence[object]]) -> None:
        """One commit by pyiceberg, of one file for each partition: a tenth of what Spark takes for
        it. A column that is not named is null."""
        table = self.by_pyiceberg(name)
        schema = table.schema().as_arrow()
        rows = len(next(iter(columns.values())))
        nulls = {name: pa.nulls(rows, schema.field(name).type) for name in schema.names}
        table.append(pa.table({**nulls, **columns}, schema=schema))

    def by_pyiceberg(self, name: str) -> Any:
        """The table as pyiceberg loads it."""
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog(self.config.name, **dict(self.config.properties))
        return catalog.load_table(("jobs", name))

    def table(self, name: str) -> Any:
        return iceberg.load(self.spark, self.full(name))

    def expire(self, name: str) -> None:
        """Another writer expires every snapshot of main but its head."""
        table = self.table(name)
        later = int(table.currentSnapshot().timestampMillis()) + 1
        table.expireSnapshots().expireOlderThan(later).retainLast(1).commit()

    def paths(self, name: str) -> list[str]:
        """Paths of the live data files, without a query: one costs ten times as much."""
        tasks = iceberg.each(self.table(name).newScan().planFiles())
        return sorted(str(task.file().location()) for task in tasks)

    def size(self, name: str) -> int:
        """Bytes of the live data files."""
        tasks = iceberg.each(self.table(name).newScan().planFiles())
        return sum(int(task.file().fileSizeInBytes()) for task in tasks)

    def ids(self, name: str) -> list[int]:
        """The values of the column `id` in the live rows, sorted; read as by `rows`."""
        found = self._decoded(name)
        if found is None:
            return sorted(row.id for row in self.sql(f"SELECT id FROM {self.full(name)}"))
        names, rows = found
        return sorted(row[names.index("id")] for row in rows)

    def manifests(self, name: str) -> tuple[str, ...]:
        """Paths of the manifests of the current snapshot, sorted."""
        table = self.table(name)
        found = iceberg.each(table.currentSnapshot().allManifests(table.io()))
        return tuple(sorted(str(manifest.path()) for manifest in found))

    def listed(self, name: str, manifests: Iterable[Any]) -> Iterator[Any]:
        """The content files that are live in these manifests of the table."""
        core, table = self.spark._jvm.org.apache.iceberg, self.table(name)
        for manifest in manifests:
            of_deletes = int(manifest.content().id()) == 1
            read = core.ManifestFiles.readDeleteManifest if of_deletes else core.ManifestFiles.read
            reader = read(manifest, table.io(), table.specs())
            yield from iceberg.each(reader)
            reader.close()

    def files(self, name: str) -> list[Any]:
        """What Iceberg's table `files` says of the live data files, by path."""
        rows = self.sql(f"SELECT * FROM {self.full(name)}.files WHERE content = 0")
        return sorted(rows, key=lambda row: str(row.file_path))  # without two jobs to sort them

    def rows(self, name: str) -> Counter[str]:
        """The live rows, each as the text of a row of Spark's: by DuckDB where files alone say what
        a row is, which takes a tenth of a query's time. The engine, which writes with Arrow, and
        Spark share no decoder with it."""
        found = self._decoded(name)
        if found is None:
            return self.queried(name)
        names, rows = found
        return Counter(
            f"Row({', '.join(f'{name}={value!r}' for name, value in zip(names, row, strict=True))})"
            for row in rows
        )

    def _decoded(self, name: str) -> tuple[list[str], list[tuple[Any, ...]]] | None:
        """Columns and rows; None where deletes apply or the schema has changed, and of types whose
        values are others in Spark."""
        import duckdb

        table = self.table(name)
        columns = list(iceberg.each(table.schema().columns()))
        names = [str(column.name()) for column in columns]
        tasks = list(iceberg.each(table.newScan().planFiles()))
        paths = [str(task.file().location()) for task in tasks]
        if (
            table.schemas().size() > 1
            or not all(_PLAIN.fullmatch(str(column.type())) for column in columns)
            or not all(re.fullmatch(r"(file:)?/.*\.parquet", path) for path in paths)
            or any(task.deletes().size() for task in tasks)
        ):
            return None
        selected = ", ".join('"' + column.replace('"', '""') + '"' for column in names)
        files = [path.removeprefix("file:") for path in paths]
        read = f"SELECT {selected} FROM read_parquet(?, hive_partitioning = false)"
        return names, duckdb.execute(read, [files]).fetchall() if files else []

    def queried(self, name: str) -> Counter[str]:
        """The live rows as a query of Spark returns them."""
        return Counter(str(row) for row in self.spark.table(self.full(name)).collect())

    def action(self, name: str, kind: type[Rewrite], *key: str, **more: Any) -> Rewrite:
        """An action on all live files of one partition spec (of one partition)."""
        schema = self.table(name).schema()
        columns = []
        for part in key:
            column, _, direction = part.partition(" ")
            columns.append(SortColumn(schema.findField(column).fieldId(), direction or "asc"))
        more.setdefault("inputs", tuple(self.paths(name)))
        curve = more.pop("curve", Lexicographic)
        return kind(ordering=curve(tuple(columns)) if columns else ARRIVAL, **more)

    def request(
        self, name: str, *actions: Action, plan: str = "p-1", **more: Any
    ) -> ExecutionRequest:
        table = self.table(name)
        return ExecutionRequest(
            catalog=self.config,
            table=("jobs", name),
            table_uuid=str(table.operations().current().uuid()),
            plan_id=plan,
            actions=actions,
            action_ids=tuple(f"a{i + 1:02d}" for i in range(len(actions))),
            base_snapshot_id=int(table.currentSnapshot().snapshotId()),
            **{"backoff_seconds": 0.0, **more},
        )

    def run(
        self,
        request: ExecutionRequest,
        on_event: Callable[[Event], None] = lambda event: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> ExecutionResult:
        def note(event: Event) -> None:
            self.events.append(event)
            on_event(event)

        return execute.execute(request, self.engine, self.ledger, self.lease, note, should_stop)

    def leftovers(self, name: str) -> list[str]:
        """Files below prefixes of ours that no snapshot references, by listing the directory."""
        table = self.table(name)
        location = table.location().removeprefix("file:").replace("//", "")
        on_disk = {
            str(path).removeprefix(location)
            for path in Path(location).rglob("layout-*/**/*")
            if path.is_file() and not path.name.endswith(".crc")
        }
        if not on_disk:
            return []
        snapshots = list(iceberg.each(table.snapshots()))
        each = (m for one in snapshots for m in iceberg.each(one.allManifests(table.io())))
        manifests = {str(manifest.path()): manifest for manifest in each}
        known = self.listed(name, manifests.values())
        return sorted(on_disk - {str(file.location()).partition(location)[2] for file in known})


def dead_writer() -> str:
    """Returns the identity of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    writer = processes.identity(process.pid)
    assert not processes.is_dead(writer)
    process.kill()
    process.wait()
    return writer


def intact(bench: Bench, name: str, rows: Counter[str] | None = None) -> None:
    """Asserts that Spark and pyiceberg read every snapshot, that the rows are `rows`, and that
    nothing below the table's location is unreferenced but old versions of its metadata."""
    table = bench.by_pyiceberg(name)
    live, found = table.scan().to_arrow(), bench.rows(name)
    assert live.num_rows == found.total()
    assert rows is None or found == rows
    location = "/" + table.location().removeprefix("file:").lstrip("/")
    known = set()
    for snapshot in table.metadata.snapshots:
        known.add(_below(snapshot.manifest_list, location))
        for manifest in snapshot.manifests(table.io):
            known.add(_below(manifest.manifest_path, location))
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                known.add(_below(entry.data_file.file_path, location))
    on_disk = {
        str(path.relative_to(location))
        for path in Path(location).rglob("*")
        if path.is_file() and not path.name.endswith((".crc", ".metadata.json"))
    }
    known.discard("")  # of a file elsewhere, as tests write equality deletes
    missing, orphans = sorted(known - on_disk), sorted(on_disk - known)
    assert (missing, orphans) == ([], []), (missing, orphans)


def _below(path: str, location: str) -> str:
    return path.partition(location)[2].lstrip("/")
