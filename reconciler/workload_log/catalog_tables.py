"""The tables of a catalog, for the readers of logs, and the sink without their excluded columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.catalog_config import CatalogConfig
from reconciler.errors import UserError
from reconciler.queries.excluded import excluded_fields, without_fields
from reconciler.queries.fragments import Fragment
from reconciler.table.observation import quoted_name
from reconciler.workload_log.identity import Keys
from reconciler.workload_log.importing import FragmentSink
from reconciler.workload_log.tables import CatalogTables, KnownTable


def tables_by_name(
    connected: Callable[[], Any],
    config: CatalogConfig,
    names: Mapping[tuple[str, ...], tuple[str, ...]],
    timeout: float,
    left_out: Callable[[str, str], None],
) -> CatalogTables:
    """Return the tables of a catalog, each loaded when a query first names it.

    connected: returns the catalog. names: identifiers by the full names in the log. left_out: gets
    the name of a table that cannot be loaded, and why; the import continues without it. Raises
    UnavailableError, when a table is resolved, if the catalog does not answer.
    """
    from reconciler.catalog.load import load_table
    from reconciler.catalog.metadata import hidden_columns_of, schema_of

    def known(identifier: tuple[str, ...]) -> KnownTable | None:
        name = quoted_name((config.name, *identifier))
        try:
            metadata = load_table(connected(), config, identifier, timeout).metadata
        except UserError as error:
            left_out(name, error.what)
            return None
        hidden = hidden_columns_of(metadata)
        return KnownTable(str(metadata.table_uuid), name, schema_of(metadata), hidden)

    return CatalogTables(names, known)


@dataclass(frozen=True, slots=True)
class ExcludingSink:
    """The state, for a reader: conditions on the excluded columns do not arrive there."""

    store: FragmentSink
    """The state."""
    tables: CatalogTables
    """The tables that the reader resolves."""
    columns: tuple[str, ...]
    """Names of the excluded columns."""
    touched: set[str] = field(default_factory=set)
    """UUIDs of the tables with new queries."""

    def append_fragments(self, fragments: Iterable[Fragment]) -> None:
        items = list(fragments)
        self.touched.update(item.table_uuid for item in items)
        if self.columns:
            excluded = {
                uuid: excluded_fields(self.columns, self.tables.schema(uuid))
                for uuid in {item.table_uuid for item in items}
            }
            items = [without_fields(item, excluded[item.table_uuid]) for item in items]
        self.store.append_fragments(items)

    def recorded_positions(self) -> Keys:
        return self.store.recorded_positions()

    def cursor(self, source: str) -> str | None:
        return self.store.cursor(source)

    def set_cursor(self, source: str, value: str) -> None:
        self.store.set_cursor(source, value)

    def record_skips(self, table_uuid: str | None, counts: Mapping[str, int]) -> None:
        self.store.record_skips(table_uuid, counts)
