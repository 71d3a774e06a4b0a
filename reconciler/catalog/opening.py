"""Opens a pyiceberg catalog, with the border between it and pyiceberg in place."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pyiceberg.catalog import Catalog
from pyiceberg.io import PY_IO_IMPL, S3_RETRY_STRATEGY_IMPL

from reconciler.catalog.border import permit, refuse
from reconciler.errors import UserError

_CLASS_PROPERTIES = (PY_IO_IMPL, S3_RETRY_STRATEGY_IMPL)


def open_catalog(name: str, kind: str, properties: Mapping[str, Any], *, own: bool) -> Catalog:
    """The pyiceberg catalog with these properties. own: as in CatalogConfig."""
    properties = _with_local_configuration(name, properties) if own else dict(properties)
    if own:
        permit(_classes_named(properties))
    elif "plugin" in dict(parse_qsl(urlsplit(str(properties.get("uri", ""))).query)):
        raise refuse("plugin")  # SQLAlchemy would load the code that this option names
    if kind == "rest":
        from reconciler.catalog.border_rest import GuardedRestCatalog

        return GuardedRestCatalog(name, **properties)
    if kind == "glue":
        return _glue(name, properties)
    from reconciler.catalog.border_sql import GuardedSqlCatalog

    return GuardedSqlCatalog(name, **properties)


def _glue(name: str, properties: Mapping[str, Any]) -> Catalog:
    if importlib.util.find_spec("boto3") is None:
        raise UserError(
            f'catalog "{name}" is one of AWS Glue, and boto3 is not installed',
            do="pip install 'table-layout-reconciler[aws]'",
        )
    from reconciler.catalog.border_glue import GuardedGlueCatalog

    return GuardedGlueCatalog(name, **properties)


def _with_local_configuration(name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """With the nested settings, such as `ssl` and `auth`, of pyiceberg's own configuration."""
    from pyiceberg.utils.config import Config

    known = Config().get_catalog_config(name) or {}
    return {**properties, **{key: it for key, it in known.items() if isinstance(it, dict)}}


def _classes_named(properties: Mapping[str, Any]) -> list[str]:
    auth = properties.get("auth")
    named = [properties.get(key) for key in _CLASS_PROPERTIES]
    named.append(auth.get("impl") if isinstance(auth, dict) else None)
    return [name for name in named if isinstance(name, str)]
