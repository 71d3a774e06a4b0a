"""Which catalog a table is in: the one configuration that pyiceberg and Spark share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.api.choices import EngineType
from reconciler.api.prices import Prices
from reconciler.api.reach import Reach


@dataclass(frozen=True, slots=True)
class CatalogConfig:
    """One Iceberg catalog, for pyiceberg and Spark alike."""

    name: str
    """The name that both sides use. SQL catalogs store it with each table."""
    type: str
    """The kind of catalog: "sql", "rest", or "glue" in a person's own configuration."""
    properties: Mapping[str, str] = field(repr=False)
    """Connection properties in pyiceberg's spelling. They include secrets: never print or store
    them."""
    source: str = ""
    """Where the catalog was found, for messages ("--catalog", ".pyiceberg.yaml" and the like)."""
    own: bool = False
    """Whether the properties come from the local configuration of the person who runs this process.
    Only such properties may name a class to load."""
    engine: EngineType | None = None
    """Who carries out plans on it, by its document; None if that says nothing."""
    prices: Prices | None = None
    """What reading, computing and storing cost, by its document; None if that says nothing."""
    reach: Reach | None = None
    """What its calls may reach in a cluster, where others write its document; None on a person's
    own machine."""
