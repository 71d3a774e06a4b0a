"""The SQLite catalog of a state directory; a metadata file is read once, since none changes."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from reconciler.catalog.border_sql import GuardedSqlCatalog


class StateCatalog(GuardedSqlCatalog):
    """Asks the database at each load, and reads the file only if another commit has come."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._latest: dict[tuple[str, ...], tuple[str, TableMetadata]] = {}
        """Of each table, where its metadata was at the last load, and the metadata."""

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        row: Any = orm_table
        name = (*Catalog.identifier_to_tuple(row.table_namespace), row.table_name)
        location, metadata = self._latest.get(name, ("", None))
        if metadata is None or location != row.metadata_location:
            made = super()._convert_orm_to_iceberg(orm_table)
            self._latest[name] = made.metadata_location, made.metadata
            return made
        io = self._load_file_io(metadata.properties, location)
        return Table(name, metadata, location, io, self)
