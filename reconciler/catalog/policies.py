"""Reads the policies that a catalog keeps for a table, where it says that it has such.

Apache Polaris lists the endpoint among those of /v1/config (its policy-apis specification,
"getApplicablePolicies"); no other catalog is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.load import within
from reconciler.table.catalog_policies import NO_BOUNDS, CatalogBounds

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


def bounds_on(
    catalog: Catalog, config: CatalogConfig, identifier: tuple[str, ...], timeout: float
) -> CatalogBounds:
    """Return the bounds of one table.

    Raises UnavailableError if the catalog does not answer. Where it refuses the question, nothing
    is bound, and the bounds say so.
    """
    if config.type != "rest":
        return NO_BOUNDS
    from reconciler.catalog.border_rest import GuardedRestCatalog

    if not isinstance(catalog, GuardedRestCatalog) or not catalog.has_policies:
        return NO_BOUNDS
    return within(lambda: catalog.bounds_of(identifier), timeout, config)
