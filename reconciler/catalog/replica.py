"""Looks at the table that has the name of a replica: its metadata alone, no manifest."""

from __future__ import annotations

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.load import connect, load_table
from reconciler.catalog.metadata import table_metadata_of
from reconciler.errors import TableNotFoundError, UserError
from reconciler.table.replica import SeenReplica


def seen_replica(config: CatalogConfig, identifier: tuple[str, ...], timeout: float) -> SeenReplica:
    """Return the table. Raises UnavailableError if the catalog does not answer."""
    try:
        found = load_table(connect(config, timeout), config, identifier, timeout).metadata
    except TableNotFoundError:
        return SeenReplica()
    except UserError as error:
        return SeenReplica(unreadable=error.what)
    seen = table_metadata_of(found)
    return SeenReplica(
        str(found.table_uuid), int(found.current_schema_id), seen.properties, seen.log.main
    )
