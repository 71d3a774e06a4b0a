"""Which catalog a table is in: the one configuration that pyiceberg and Spark share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.api.reach import Reach


@dataclass(frozen=True, slots=True)
class CatalogConfig:
    """One Iceberg catalog, for pyiceberg and Spark alike.

    name: the name both sides use; it is data in SQL catalogs. type: "sql" | "rest".
    properties: pyiceberg's spelling, secrets included; never print or store them.
    source: where it was found, for messages ("--catalog", ".pyiceberg.yaml", ...).
    own: from the local configuration of the person who runs us: only such properties may name a
    class to load. reach: what its calls may reach in a cluster, where others write its document;
    None on a person's own machine.
    """

    name: str
    type: str
    properties: Mapping[str, str] = field(repr=False)
    source: str = ""
    own: bool = False
    reach: Reach | None = None
