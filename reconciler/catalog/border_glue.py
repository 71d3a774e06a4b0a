"""The border to AWS Glue: tables' properties configure no FileIO.

Importing it needs boto3, so that `opening` does it only for such a catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.io import FileIO

from reconciler.catalog.border import file_io


class GuardedGlueCatalog(GlueCatalog):
    """A Glue catalog whose tables' properties configure no FileIO."""

    def _load_file_io(
        self, properties: Mapping[str, Any] | None = None, location: str | None = None
    ) -> FileIO:
        return file_io(self.properties, location)
