"""What a catalog's document says of the state that is kept in the catalog: its namespace, which no
policy governs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconciler.api.catalog_config import CatalogConfig
    from reconciler.api.documents import IcebergCatalog


def document_of(
    config: CatalogConfig, documents: Sequence[IcebergCatalog]
) -> IcebergCatalog | None:
    """Return the catalog's document, None without one."""
    named = (one for one in documents if one.spec.catalog_name == config.name)
    return next(named, None)


def system_of(
    config: CatalogConfig, documents: Sequence[IcebergCatalog]
) -> tuple[tuple[str, ...], str | None]:
    """Return (namespace of the shared state, URI of the plans) from the catalog's document."""
    from reconciler.state.shared_backend import DEFAULT_NAMESPACE

    document = document_of(config, documents)
    if document is None:
        return DEFAULT_NAMESPACE, None
    return document.spec.system.namespace, document.spec.system.plans.uri


def is_state(
    config: CatalogConfig, documents: Sequence[IcebergCatalog], namespace: tuple[str, ...]
) -> bool:
    """Whether a namespace holds the reconciler's own state, which no policy governs."""
    levels, _ = system_of(config, documents)
    return namespace[: len(levels)] == levels
