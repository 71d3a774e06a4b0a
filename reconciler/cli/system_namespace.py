"""The namespace of a catalog in which the reconciler keeps its own state: no policy governs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconciler.api.catalog_config import CatalogConfig
    from reconciler.api.documents import IcebergCatalog


def system_of(
    config: CatalogConfig, documents: Sequence[IcebergCatalog]
) -> tuple[tuple[str, ...], str | None]:
    """Return (namespace of the shared state, URI of the plans) from the catalog's document."""
    from reconciler.state.shared_backend import DEFAULT_NAMESPACE

    for document in documents:
        if document.spec.catalog_name == config.name:
            return document.spec.system.namespace, document.spec.system.plans.uri
    return DEFAULT_NAMESPACE, None


def is_state(
    config: CatalogConfig, documents: Sequence[IcebergCatalog], namespace: tuple[str, ...]
) -> bool:
    """Whether a namespace holds the reconciler's own state, which no policy governs."""
    levels, _ = system_of(config, documents)
    return namespace[: len(levels)] == levels
