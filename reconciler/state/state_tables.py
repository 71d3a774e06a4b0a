"""The Iceberg part of the state: small tables in some catalog, which compact themselves.

A backend provides the catalog: a SQLite catalog in the state directory, or a namespace of the
user's own catalog (shared_state). pyiceberg retries appends when another process commits first; a
merge of small files is dropped instead, since the next writer will do it. A process may die at any
moment: nothing references what it wrote without committing.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from reconciler.catalog.failures import said
from reconciler.catalog.load import quiet_pyiceberg
from reconciler.errors import StateError
from reconciler.state.records import Records
from reconciler.state.state_commit import append, commit_once
from reconciler.state.table_columns import Columns, add_missing, arrow_schema, unpartitioned

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

NAMESPACE = "state"
SHARDS = 8
MAX_FILES = 48
KEPT_ANSWERS, KEPT_BYTES = 16, 1 << 20
"""How many answers of reading are kept in memory, and how large one is at most."""
KEEP_SNAPSHOTS = dt.timedelta(hours=1)
ORPHAN_SECONDS = 3600.0

PROPERTIES = {
    "format-version": "2",
    "commit.retry.num-retries": "30",
    "commit.retry.min-wait-ms": "50",
    "commit.retry.max-wait-ms": "2000",
    "commit.retry.total-timeout-ms": "120000",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    "write.parquet.compression-codec": "zstd",
    "write.parquet.row-group-limit": "20000",
}
"""Small row groups: a merge orders rows by table, so that reading one table's rows skips the
others."""

ROW_GROUPS = {"queries": "10000"}
"""Rows of a row group of a table whose rows hold arrays."""


def properties_of(name: str) -> dict[str, str]:
    """Return the properties that a state table is created with."""
    own = {"write.parquet.row-group-limit": ROW_GROUPS[name]} if name in ROW_GROUPS else {}
    return {**PROPERTIES, **own}


Result = TypeVar("Result")


def shard_of(table_uuid: str) -> int:
    """Return a table's shard: its rows are together, and other shards are pruned."""
    return zlib.crc32(table_uuid.encode()) % SHARDS


class Backend(Protocol):
    """The catalog that holds the state tables, and the translation of its failures."""

    def load(self, name: str) -> Table | None:
        """Return the table as it is now, None if it was never written."""
        ...

    def create(self, name: str, schema: Any, spec: Any) -> Table:
        """Return the table, created unless another writer created it meanwhile."""
        ...

    def read(self, work: Callable[[], Result]) -> Result:
        """Return the result of reading, with its failures translated for people."""
        ...

    def write(self, work: Callable[[], Result]) -> Result:
        """Return the result of a commit, with its failures translated for people."""
        ...

    def remove_orphans(self, table: Table, referenced: set[str]) -> None:
        """Remove files (by name) that nothing references and that are certainly ours."""
        ...


class StateTables:
    """State tables of one backend."""

    def __init__(self, backend: Backend):
        self._backend = backend
        self._read: OrderedDict[tuple[str, ...], tuple[str, pa.Table]] = OrderedDict()
        """What was asked -> the table's metadata at that time, and the rows; asked last, last."""

    def append(
        self, name: str, columns: Columns, rows: Sequence[dict[str, Any]], keep: Keep | None = None
    ) -> None:
        """Append all rows in one commit. keep: what a merge of small files retains of a table."""
        import pyarrow as pa

        if rows:
            data = pa.Table.from_pylist(list(rows), schema=arrow_schema(columns))
            self.append_table(name, columns, data, keep)

    def append_table(
        self, name: str, columns: Columns, rows: pa.Table, keep: Keep | None = None
    ) -> None:
        """As `append`, of rows that are an Arrow table."""
        if rows.num_rows:
            self._backend.write(lambda: self._append(name, columns, rows, keep))

    def scan(
        self,
        name: str,
        where: Any,
        fields: Sequence[str],
        coded: Sequence[str] = (),
    ) -> pa.Table | None:
        """Return rows that match, in no order; None if the table was never written.

        coded: columns that are read as a dictionary, because they repeat few texts.

        The catalog is asked each time; files are read again only after a commit, since one run
        asks the ledger the same dozens of times.
        """

        def work() -> pa.Table | None:
            table = self._backend.load(name)
            if table is None:
                return None
            asked = (name, str(where), *fields)
            kept = self._read.pop(asked, None)
            if kept is None or kept[0] != table.metadata_location:
                known = table.schema().column_names  # of an older version: it may lack the newest
                chosen = tuple(f for f in fields if f in known)
                rows = table.scan(where, chosen).to_arrow(tuple(f for f in coded if f in chosen))
                kept = (table.metadata_location, rows)
            self._keep(asked, kept)
            return kept[1]

        return self._backend.read(work)

    def _keep(self, asked: tuple[str, ...], found: tuple[str, pa.Table]) -> None:
        if found[1].nbytes <= KEPT_BYTES:
            self._read[asked] = found
        while len(self._read) > KEPT_ANSWERS:
            with contextlib.suppress(KeyError):  # another thread was first
                self._read.popitem(last=False)

    def snapshot(self, name: str) -> Table | None:
        """Return the table as it is now: one catalog call, no file except its metadata."""
        return self._backend.read(lambda: self._backend.load(name))

    def rows_of(self, table: Table, fields: Sequence[str], where: Any = None) -> pa.Table:
        """Return the rows of a loaded table that match, all without a condition."""
        chosen = matching({}) if where is None else where
        return self._backend.read(lambda: table.scan(chosen, tuple(fields)).to_arrow())

    def remove(self, name: str, column: str, before: int) -> None:
        """Remove the rows whose column is below a value, and the files that held them.

        Another writer's commit meanwhile leaves them for the next call.
        """
        self._backend.write(lambda: self._remove(name, column, before))

    def _remove(self, name: str, column: str, before: int) -> None:
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        table = self._backend.load(name)
        where = _below(column, before)
        if table is None or not any(True for _ in table.scan(where).plan_files()):
            return
        with contextlib.suppress(CommitFailedException, ValidationException):
            commit_once(table, lambda mark: table.delete(where, snapshot_properties=dict(mark)))
        self._expire(table)

    def _append(self, name: str, columns: Columns, rows: pa.Table, keep: Keep | None) -> None:
        table = self._backend.load(name) or self._create(name, columns)
        add_missing(table, columns)
        commit_once(table, functools.partial(append, table, rows))
        if _file_count(table) > MAX_FILES:
            self._merge(table, keep)

    def _create(self, name: str, columns: Columns) -> Table:
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.transforms import IdentityTransform

        schema, spec = unpartitioned(columns)
        if columns[0][0] == "shard":
            spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "shard"))
        return self._backend.create(name, schema, spec)

    def _merge(self, table: Table, keep: Keep | None) -> None:
        """Rewrite each shard's rows as one file, and remove old snapshots and files."""
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        sharded = bool(table.spec().fields)
        scopes = [matching({"shard": n}) for n in range(SHARDS)] if sharded else [matching({})]
        for scope in scopes:
            table.refresh()
            if sum(1 for _ in table.scan(scope).plan_files()) < 2:
                continue
            rows = table.scan(scope).to_arrow()
            if "table_uuid" in rows.column_names:
                rows = rows.sort_by("table_uuid")
            rows = keep(rows) if keep is not None else rows
            with contextlib.suppress(CommitFailedException, ValidationException):
                commit_once(table, functools.partial(_overwrite, table, rows, scope))
        self._expire(table)

    def _expire(self, table: Table) -> None:
        """Remove old snapshots, then the files that only they referenced."""
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        table.refresh()
        before = _referenced(table)
        try:
            limit = dt.datetime.now() - KEEP_SNAPSHOTS
            expiry = table.maintenance.expire_snapshots().older_than(limit)
            expiry._requirements += _unmoved(table)
            expiry.commit()
        except (CommitFailedException, ValidationException):
            return
        table.refresh()
        after = _referenced(table)
        for path in before - after:
            with contextlib.suppress(OSError):
                table.io.delete(path)
        self._backend.remove_orphans(table, {_name(path) for path in after})


def _unmoved(table: Table) -> tuple[Any, ...]:
    """Return the requirement that each branch and tag has the snapshot that it has now.

    pyiceberg requires none. A catalog drops a branch whose snapshot is removed, and this would be
    main if somebody rolled it back before the request arrives.
    """
    from pyiceberg.table.update import AssertRefSnapshotId

    return tuple(
        AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id})
        for name, ref in table.metadata.refs.items()
    )


class CachedRows:
    """All rows of one state table, reloaded only when its snapshot changes.

    May be used by several threads: one reads, the others wait for it.
    """

    def __init__(self, tables: StateTables, name: str, fields: Sequence[str]):
        self._tables, self._name, self._fields = tables, name, fields
        self._lock = threading.Lock()
        self._known: tuple[str, pa.Table | None] = ("", None)
        self._sequence = -1
        self._checked = 0.0

    def rows(self, max_age: float = 0.0) -> tuple[str, pa.Table | None]:
        """Return (version, rows). max_age: seconds for which an answer may be reused without a
        catalog call."""
        if self._checked and time.monotonic() - self._checked < max_age:
            return self._known
        asked = time.monotonic()
        table = self._tables.snapshot(self._name)
        with self._lock:
            if table is None:
                self._known, self._sequence = ("", None), -1
            elif version_of(table) != self._known[0] and not self._newer_is_known(table):
                rows = self._tables.rows_of(table, self._fields)
                self._known = (version_of(table), rows)
                self._sequence = _sequence(table)
            self._checked = asked
            return self._known

    def _newer_is_known(self, table: Table) -> bool:
        """Whether another thread has already read a newer snapshot."""
        same = self._known[0].startswith(f"{table.metadata.table_uuid}:")
        return same and self._sequence > _sequence(table)


def version_of(table: Table) -> str:
    """Return what changes with every commit to the table."""
    return f"{table.metadata.table_uuid}:{table.metadata.current_snapshot_id}"


def _sequence(table: Table) -> int:
    snapshot = table.current_snapshot()
    return -1 if snapshot is None else snapshot.sequence_number or 0


class LocalBackend:
    """A SQLite catalog below a directory. records: its lock keeps the first use to one process."""

    def __init__(self, directory: Path, records: Records):
        self.directory = directory
        self._records = records
        self._catalog: Any = None

    def load(self, name: str) -> Table | None:
        from pyiceberg.exceptions import NoSuchTableError

        if not (self.directory / NAMESPACE / name / "metadata").is_dir():
            return None
        try:
            table: Table = self._open().load_table((NAMESPACE, name))
            return table
        except NoSuchTableError:
            return None

    def create(self, name: str, schema: Any, spec: Any) -> Table:
        catalog = self._open()
        with self._records.transaction():
            table: Table = catalog.create_table_if_not_exists(
                (NAMESPACE, name),
                schema,
                location=f"file://{self.directory}/{NAMESPACE}/{name}",
                partition_spec=spec,
                properties=properties_of(name),
            )
        return table

    def read(self, work: Callable[[], Result]) -> Result:
        with _translated(self.directory):
            return work()

    def write(self, work: Callable[[], Result]) -> Result:
        return self.read(work)

    def _open(self) -> Any:
        if self._catalog is None:
            from reconciler.state.state_catalog import StateCatalog

            quiet_pyiceberg()
            with self._records.transaction():
                self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._catalog = StateCatalog(
                    "layoutctl",
                    uri=f"sqlite:///{self.directory}/tables.db?timeout=30",
                    warehouse=f"file://{self.directory}",
                )
                self._catalog.create_namespace_if_not_exists(NAMESPACE)
        return self._catalog

    def remove_orphans(self, table: Table, referenced: set[str]) -> None:
        """Remove files that no snapshot references and that no writer can still be about to
        commit."""
        oldest = time.time() - ORPHAN_SECONDS
        root = self.directory / NAMESPACE / table.name()[-1]
        for path in root.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and path.name not in referenced and path.stat().st_mtime < oldest:
                    path.unlink()


Keep = Callable[["pa.Table"], "pa.Table"]


def matching(equal: Mapping[str, Any], least: Mapping[str, Any] | None = None) -> Any:
    """Return a row filter: columns equal to a value (or to one of a tuple), columns at least a
    value."""
    from pyiceberg import expressions

    make: Any = expressions  # its constructors are typed for bound terms only
    terms = [
        make.In(name, list(value)) if isinstance(value, tuple) else make.EqualTo(name, value)
        for name, value in equal.items()
    ]
    terms += [make.GreaterThanOrEqual(name, value) for name, value in (least or {}).items()]
    return functools.reduce(make.And, terms, make.AlwaysTrue())


def _below(column: str, value: int) -> Any:
    from pyiceberg import expressions

    make: Any = expressions
    return make.LessThan(column, value)


def _overwrite(table: Table, rows: pa.Table, scope: Any, mark: Mapping[str, str]) -> None:
    table.overwrite(rows, overwrite_filter=scope, snapshot_properties=dict(mark))


def _referenced(table: Table) -> set[str]:
    """Return every file that the table's metadata, or any of its snapshots, refers to."""
    found = {table.metadata_location}
    found |= {entry.metadata_file for entry in table.metadata.metadata_log}
    manifests = {}
    for snapshot in table.metadata.snapshots:
        found.add(snapshot.manifest_list)
        manifests.update({m.manifest_path: m for m in snapshot.manifests(table.io)})
    for path, manifest in manifests.items():
        found.add(path)
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        found |= {entry.data_file.file_path for entry in entries}
    return found


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _file_count(table: Table) -> int:
    snapshot = table.current_snapshot()
    summary = snapshot.summary if snapshot is not None else None
    return int(summary.additional_properties.get("total-data-files", 0)) if summary else 0


@contextlib.contextmanager
def _translated(directory: Path) -> Iterator[None]:
    """Translate failures of the state: they concern the user's disk, not the user's table."""
    from pyiceberg.exceptions import CommitFailedException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (OSError, SQLAlchemyError, CommitFailedException) as error:
        raise StateError(
            f"the state tables in {directory} cannot be used",
            details=(said(error),),
            do="check the disk and its permissions, or point LAYOUTCTL_STATE to another directory",
        ) from error
