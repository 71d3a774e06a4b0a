"""Refuses catalogs that take no commit of ours, before any work is done."""

from __future__ import annotations

import os
from urllib.parse import parse_qsl, urlsplit

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.not_found import describe
from reconciler.catalog.properties import sqlite_path
from reconciler.errors import AccessDeniedError


def refuse_glue(config: CatalogConfig) -> None:
    """Raise AccessDeniedError for a catalog of Glue: no emulator checks the versions of its tables,
    so that it is not known whether two commits exclude each other."""
    if config.type == "glue":
        raise AccessDeniedError(
            f"nothing is committed to catalog {describe(config)}, which is one of AWS Glue",
            details=("Whether two commits to Glue exclude each other was not tried.",),
            do="name the same tables by Glue's REST address, with rest.sigv4-enabled",
        )


def refuse_read_only(config: CatalogConfig) -> None:
    """Raise AccessDeniedError if a catalog takes no commits of ours, before any work is done: a
    SQLite database that is read-only, and Glue."""
    refuse_glue(config)
    uri = config.properties.get("uri", "")
    path = sqlite_path(uri) if config.type == "sql" else None
    if path is None:
        return
    query = dict(parse_qsl(urlsplit(uri).query))
    if query.get("mode") == "ro" or query.get("immutable") in ("1", "true"):
        why = "its uri opens the database for reading only"
    elif not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        why = "this user may not write the database file or its directory"
    else:
        return
    raise AccessDeniedError(
        f"catalog {describe(config)} is read-only: nothing can be committed to it",
        details=(why, str(path)),
        do="name the catalog by a uri, and run as a user, that may write its database",
    )
