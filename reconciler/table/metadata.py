"""What a table's metadata holds besides its files, as actions are judged by it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from reconciler.table.catalog_policies import NO_BOUNDS, CatalogBounds
from reconciler.table.flags import flag
from reconciler.table.retention import (
    DELETE_PROPERTY,
    GC_PROPERTY,
    NO_SNAPSHOTS,
    SnapshotLog,
    may_delete,
)

_TERM_COLUMN = re.compile(r"\((\d+)\) ")


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """What actions on metadata are planned and judged by. `catalog.metadata` reads it for plans,
    `spark.commit.metadata` for executions."""

    properties: Mapping[str, str] = field(default_factory=dict)
    """The table's properties."""
    sort_terms: tuple[str, ...] = ()
    """The default sort order in canonical form (`actions.set_sort_order.sort_term`)."""
    format_version: int = 2
    """Version of Apache Iceberg's table specification."""
    specs: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """The canonical forms of the fields of each partition spec (`SpecField.term`), without void
    ones, by its id."""
    default_spec_id: int = 0
    """Id of the spec that writers use."""
    log: SnapshotLog = NO_SNAPSHOTS
    """The retained snapshots and the refs."""
    orphans: frozenset[str] | None = None
    """Paths of files that nobody refers to; None if they were not searched."""
    unused_specs: frozenset[int] | None = None
    """Ids of specs that no manifest of any snapshot has; None if they were not searched."""
    orphans_refused: str = ""
    """Why no file may be removed as an orphan, "" if it may or if that is not known."""
    columns: frozenset[int] | None = None
    """Field ids of the current schema; None if they were not read."""
    tops: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Field id and type of each column that is in no other one, by name; "struct", "list" or "map"
    for what holds others. Empty if they were not read."""
    identifiers: frozenset[int] = frozenset()
    """Ids of the identifier fields."""
    schema_id: int = 0
    """Id of the current schema."""

    analyzed: frozenset[int] = frozenset()
    """Field ids of the columns of which an engine collected statistics, as the metadata lists
    them."""

    bounds: CatalogBounds = NO_BOUNDS
    """What the catalog's policies allow, for plans; executions carry out what a plan says."""

    delete_enabled: bool = True
    """Whether files may be deleted, by what catalog and server say (`s3.delete-enabled`)."""

    @property
    def files_stay(self) -> bool:
        """Whether the store deletes no file of the table for a client."""
        return not (self.delete_enabled and flag(self.properties, DELETE_PROPERTY, default=True))

    @property
    def removes_nothing(self) -> str:
        """The setting that forbids to remove files of the table, "" if none does."""
        if not may_delete(self.properties):
            return f"{GC_PROPERTY}=false"
        return f"{DELETE_PROPERTY}=false" if self.files_stay else ""

    def dropped(self, columns: Iterable[int]) -> int | None:
        """Return the first of these field ids that the schema does not have; None for none."""
        known = self.columns
        return None if known is None else next((one for one in columns if one not in known), None)

    @property
    def old_specs(self) -> tuple[int, ...]:
        """Return the ids of the specs that are neither the newest nor the one that writers follow,
        in ascending order."""
        newest = max(self.specs, default=0)
        return tuple(sorted(self.specs.keys() - {newest, self.default_spec_id}))

    @property
    def sorted_columns(self) -> frozenset[int]:
        """Return the field ids of the sort order's columns."""
        found = (_TERM_COLUMN.search(term) for term in self.sort_terms)
        return frozenset(int(match.group(1)) for match in found if match)

    def with_schema(self, schema: Mapping[str, Any]) -> TableMetadata:
        """Return the same with `tops` and `identifiers` of a schema in the JSON form of the
        specification."""
        identifiers = frozenset(map(int, schema.get("identifier-field-ids") or ()))
        return replace(self, tops=tops_of(schema), identifiers=identifiers)


def dotted_names(schema: Mapping[str, Any], prefix: str = "") -> dict[int, str]:
    """Return the dotted names of the columns outside of lists and maps, by field id. schema: in the
    JSON form of the specification."""
    found: dict[int, str] = {}
    for one in schema["fields"]:
        found[int(one["id"])] = f"{prefix}{one['name']}"
        if isinstance(one["type"], dict) and one["type"].get("type") == "struct":
            found |= dotted_names(one["type"], f"{prefix}{one['name']}.")
    return found


def tops_of(schema: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
    """Return `TableMetadata.tops` of a schema in the JSON form of the specification."""

    def kind(body: Any) -> str:
        return body if isinstance(body, str) else str(body["type"])

    return {str(one["name"]): (int(one["id"]), kind(one["type"])) for one in schema["fields"]}
