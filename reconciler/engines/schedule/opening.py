"""How the files of a table are opened by what is no part of the engine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from reconciler.api.catalog_config import CatalogConfig
from reconciler.errors import UnsupportedError
from reconciler.rewrite.storage import Opening, Vending


def opening_of(config: CatalogConfig, identifier: tuple[str, ...]) -> Opening:
    """Return how files of the table are opened, with the credentials that its catalog gives."""
    from reconciler.catalog.load import connect, load_table
    from reconciler.catalog.vended import VendedFileIO, handed_out

    catalog = connect(config)
    try:
        io = load_table(catalog, config, identifier).io
    except UnsupportedError:  # of a column type that pyiceberg does not know
        return Opening(_texts(catalog.properties), config.reach)
    if not isinstance(io, VendedFileIO):
        return Opening(_texts(io.properties), config.reach)
    due = io.keys.due
    lasts = due is not None and due > time.time()
    kept = _texts(handed_out(io))
    return Opening(kept, config.reach, Vending(config, identifier), due if lasts else None)


def _texts(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties that another process can be given."""
    return {key: value for key, value in properties.items() if isinstance(value, str)}
