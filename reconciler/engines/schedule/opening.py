"""How the files of a table are opened by what is no part of the engine."""

from __future__ import annotations

from reconciler.api.catalog_config import CatalogConfig
from reconciler.errors import UnsupportedError
from reconciler.rewrite.storage import Opening, Vending


def opening_of(config: CatalogConfig, identifier: tuple[str, ...]) -> Opening:
    """Return how files of the table are opened, with the credentials that its catalog gives."""
    from reconciler.catalog.load import connect, load_table
    from reconciler.catalog.vended import VendedFileIO

    catalog = connect(config)
    vending = None
    try:
        io = load_table(catalog, config, identifier).io
        properties = io.properties
        if isinstance(io, VendedFileIO):
            vending = Vending(config, identifier)
    except UnsupportedError:  # of a column type that pyiceberg does not know
        properties = catalog.properties
    kept = {key: value for key, value in properties.items() if isinstance(value, str)}
    return Opening(kept, config.reach, vending)
