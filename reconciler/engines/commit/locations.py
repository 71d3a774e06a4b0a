"""Where a table's writers put files."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.engines.table import Table

DATA_PATH = "write.data.path"
"""Property of a table that names where data files lie."""


def data_location(table: Table) -> str:
    """Return the directory in which the table's writers put data files."""
    return (table.properties().get(DATA_PATH) or f"{table.location().rstrip('/')}/data").rstrip("/")


def roots(location: str, properties: Mapping[str, str]) -> list[str]:
    """Return the locations below which writers of a table put files. location: of the table."""
    named = [properties.get(name) for name in (DATA_PATH, "write.metadata.path")]
    return [location, *(path for path in named if path)]
