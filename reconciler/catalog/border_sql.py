"""The border to SQL catalogs: tables' properties configure no FileIO.

Importing it imports SQLAlchemy, a fifth of what a command imports, so that `opening` does it only
for such a catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO

from reconciler.catalog.border import file_io


class GuardedSqlCatalog(SqlCatalog):
    """An SQL catalog whose tables' properties configure no FileIO."""

    def _load_file_io(
        self, properties: Mapping[str, Any] | None = None, location: str | None = None
    ) -> FileIO:
        return file_io(self.properties, location)
