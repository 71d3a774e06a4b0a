"""The Iceberg part of the state: tables in a local SQLite catalog, kept small by themselves.

Appends are retried by pyiceberg when another process commits first; a merge of small files is
dropped instead, since the next writer will do it. A process may die at any moment: what it wrote
without committing is found by age and removed.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.catalog.load import quiet_pyiceberg
from reconciler.catalog.records import Records
from reconciler.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

NAMESPACE = "state"
SHARDS = 8
MAX_FILES = 48
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
}

Columns = tuple[tuple[str, str], ...]
"""Column names and Iceberg types, "?" at the end of the type of an optional one."""


def shard_of(table_uuid: str) -> int:
    """A table's shard: its rows lie together and others' are pruned away."""
    return zlib.crc32(table_uuid.encode()) % SHARDS


class StateTables:
    """State tables below a directory. records: its lock keeps the first use to one process."""

    def __init__(self, directory: Path, records: Records):
        self.directory = directory
        self._records = records
        self._catalog: Any = None

    def append(
        self, name: str, columns: Columns, rows: Sequence[dict[str, Any]], keep: Keep | None = None
    ) -> None:
        """One commit with all rows. keep: what a merge of small files retains of a table."""
        if not rows:
            return
        with _translated(self.directory):
            table = self._table(name, columns)
            table.append(_to_arrow(columns, rows))
            if _file_count(table) > MAX_FILES:
                self._merge(table, keep)

    def scan(
        self, name: str, columns: Columns, where: Any, fields: Sequence[str]
    ) -> pa.Table | None:
        """Rows that match, in no order; None when the table was never written."""
        if not self._exists(name):
            return None
        with _translated(self.directory):
            return self._table(name, columns).scan(where, tuple(fields)).to_arrow()

    def _exists(self, name: str) -> bool:
        return (self.directory / NAMESPACE / name / "metadata").is_dir()

    def _table(self, name: str, columns: Columns) -> Table:
        from pyiceberg.exceptions import NoSuchTableError

        catalog = self._open()
        try:
            table: Table = catalog.load_table((NAMESPACE, name))
            return table
        except NoSuchTableError:
            with self._records.transaction():
                return self._create(catalog, name, columns)

    def _open(self) -> Any:
        if self._catalog is None:
            from pyiceberg.catalog.sql import SqlCatalog

            quiet_pyiceberg()
            with self._records.transaction():
                self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._catalog = SqlCatalog(
                    "layoutctl",
                    uri=f"sqlite:///{self.directory}/tables.db?timeout=30",
                    warehouse=f"file://{self.directory}",
                )
                self._catalog.create_namespace_if_not_exists(NAMESPACE)
        return self._catalog

    def _create(self, catalog: Any, name: str, columns: Columns) -> Table:
        from pyiceberg.partitioning import (
            UNPARTITIONED_PARTITION_SPEC,
            PartitionField,
            PartitionSpec,
        )
        from pyiceberg.transforms import IdentityTransform

        schema = _schema(columns)
        spec = UNPARTITIONED_PARTITION_SPEC
        if columns[0][0] == "shard":
            spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "shard"))
        table: Table = catalog.create_table_if_not_exists(
            (NAMESPACE, name),
            schema,
            location=f"file://{self.directory}/{NAMESPACE}/{name}",
            partition_spec=spec,
            properties=PROPERTIES,
        )
        return table

    def _merge(self, table: Table, keep: Keep | None) -> None:
        """Rewrites each shard's rows as one file and lets old snapshots and files go."""
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        sharded = bool(table.spec().fields)
        scopes = [matching({"shard": n}) for n in range(SHARDS)] if sharded else [matching({})]
        for scope in scopes:
            table.refresh()
            if sum(1 for _ in table.scan(scope).plan_files()) < 2:
                continue
            rows = table.scan(scope).to_arrow()
            rows = keep(rows) if keep is not None else rows
            with contextlib.suppress(CommitFailedException, ValidationException):
                table.overwrite(rows, overwrite_filter=scope)
        table.refresh()
        with contextlib.suppress(CommitFailedException, ValidationException):
            before = dt.datetime.now() - KEEP_SNAPSHOTS
            table.maintenance.expire_snapshots().older_than(before).commit()
        self._remove_orphans(table)

    def _remove_orphans(self, table: Table) -> None:
        """Files that no snapshot references and that no writer can still be about to commit."""
        table.refresh()
        referenced = {Path(table.metadata_location.removeprefix("file://")).name}
        referenced |= {Path(entry.metadata_file).name for entry in table.metadata.metadata_log}
        for snapshot in table.metadata.snapshots:
            referenced.add(Path(snapshot.manifest_list).name)
            for manifest in snapshot.manifests(table.io):
                referenced.add(Path(manifest.manifest_path).name)
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                    referenced.add(Path(entry.data_file.file_path).name)
        oldest = time.time() - ORPHAN_SECONDS
        root = self.directory / NAMESPACE / table.name()[-1]
        for path in root.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and path.name not in referenced and path.stat().st_mtime < oldest:
                    path.unlink()


def matching(equal: Mapping[str, Any], least: Mapping[str, Any] | None = None) -> Any:
    """A row filter: columns equal to a value (or to one of a tuple), columns at least a value."""
    from pyiceberg import expressions

    make: Any = expressions  # its constructors are typed for bound terms only
    terms = [
        make.In(name, list(value)) if isinstance(value, tuple) else make.EqualTo(name, value)
        for name, value in equal.items()
    ]
    terms += [make.GreaterThanOrEqual(name, value) for name, value in (least or {}).items()]
    return functools.reduce(make.And, terms, make.AlwaysTrue())


Keep = Callable[["pa.Table"], "pa.Table"]


def _file_count(table: Table) -> int:
    snapshot = table.current_snapshot()
    summary = snapshot.summary if snapshot is not None else None
    return int(summary.additional_properties.get("total-data-files", 0)) if summary else 0


def _schema(columns: Columns) -> Any:
    from pyiceberg.schema import Schema
    from pyiceberg.types import (
        BinaryType,
        BooleanType,
        DoubleType,
        IntegerType,
        LongType,
        NestedField,
        StringType,
    )

    types = {
        "int": IntegerType(), "long": LongType(), "string": StringType(), "double": DoubleType(),
        "boolean": BooleanType(), "binary": BinaryType(),
    }  # fmt: skip
    return Schema(
        *(
            NestedField(number, name, types[kind.rstrip("?")], required=not kind.endswith("?"))
            for number, (name, kind) in enumerate(columns, start=1)
        )
    )


def _to_arrow(columns: Columns, rows: Sequence[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    schema = schema_to_pyarrow(_schema(columns), include_field_ids=False)
    return pa.Table.from_pylist(list(rows), schema=schema)


@contextlib.contextmanager
def _translated(directory: Path) -> Any:
    """Failures of the state are the user's disk, not the user's table."""
    from pyiceberg.exceptions import CommitFailedException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (OSError, SQLAlchemyError, CommitFailedException) as error:
        raise UserError(
            f"the state tables in {directory} cannot be used",
            details=(f"{type(error).__name__}: {str(error).splitlines()[0][:200]}",),
            do="check the disk and its permissions, or point LAYOUTCTL_STATE to another directory",
        ) from error
