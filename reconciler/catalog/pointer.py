"""Reads a table's present metadata location by one catalog call and no manifest: the cheap
check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reconciler.catalog.claim import OWNER_PROPERTY
from reconciler.table.others import paused_because


@dataclass(frozen=True, slots=True)
class Pointer:
    """The result of one call to the catalog."""

    uuid: str
    """UUID of the table."""
    metadata_location: str
    """Path of the metadata file, which changes with every commit."""
    owner: str
    """Who claims the table, "" if no one does."""
    paused: str = ""
    """Why the table itself stops all work on it, "" if it does not."""


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
        found.properties.get(OWNER_PROPERTY, ""),
        paused_because(found.properties),
    )
