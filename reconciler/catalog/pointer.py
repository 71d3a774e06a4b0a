"""Reads a table's present metadata location by one catalog call and no manifest: the cheap
check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reconciler.catalog.claim import OWNER_PROPERTY


@dataclass(frozen=True, slots=True)
class Pointer:
    """metadata_location changes with every commit. owner: who claims the table, "" if no one
    does."""

    table_uuid: str
    metadata_location: str
    snapshot_id: int | None
    owner: str


def pointer_of(catalog: Any, identifier: tuple[str, ...]) -> Pointer | None:
    """Return the pointer, None if there is no such table. The catalog's exceptions are not
    translated."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        table = catalog.load_table(identifier)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
    found = table.metadata
    return Pointer(
        str(found.table_uuid),
        table.metadata_location,
        found.current_snapshot_id,
        found.properties.get(OWNER_PROPERTY, ""),
    )
