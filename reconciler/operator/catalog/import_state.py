"""Where an import of query logs puts what it reads: the tables that queries name, and the state,
which gets no condition on an excluded column."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reconciler.errors import UserError
from reconciler.operator.catalog.handles import LiveHandle
from reconciler.queries.excluded import excluded_fields, without_fields
from reconciler.queries.fragments import Fragment
from reconciler.workload_log.identity import Keys
from reconciler.workload_log.importing import FragmentSink
from reconciler.workload_log.tables import CatalogTables, KnownTable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExcludingSink:
    """The state, for a reader: conditions on the excluded columns do not arrive there."""

    store: FragmentSink
    tables: CatalogTables
    columns: tuple[str, ...]
    touched: set[str] = field(default_factory=set)
    """UUIDs of the tables with new queries."""

    def append_fragments(self, fragments: Iterable[Fragment]) -> None:
        items = list(fragments)
        self.touched.update(item.table_uuid for item in items)
        excluded = {
            uuid: excluded_fields(self.columns, self.tables.schema(uuid))
            for uuid in {item.table_uuid for item in items}
        }
        self.store.append_fragments(
            [without_fields(item, excluded[item.table_uuid]) for item in items]
        )

    def recorded(self) -> Keys:
        return self.store.recorded()

    def cursor(self, source: str) -> str | None:
        return self.store.cursor(source)

    def set_cursor(self, source: str, value: str) -> None:
        self.store.set_cursor(source, value)

    def record_skips(self, table_uuid: str | None, counts: Mapping[str, int]) -> None:
        self.store.record_skips(table_uuid, counts)


def tables_of(handle: LiveHandle) -> CatalogTables:
    identifiers = {(handle.config.name, *table): table for table in handle.listing()}
    return CatalogTables(identifiers, lambda table: _known(handle, table))


def _known(handle: LiveHandle, table: tuple[str, ...]) -> KnownTable | None:
    from reconciler.catalog.load import connect, load_table
    from reconciler.catalog.metadata import hidden_columns_of, schema_of
    from reconciler.table.observation import quoted_name

    config, timeout = handle.config, handle.timeout
    try:
        loaded = load_table(connect(config, timeout), config, table, timeout)
    except UserError as error:
        log.warning("%s is left out of the import: %s", quoted_name(table), error.what)
        return None
    name = quoted_name((config.name, *table))
    return KnownTable(
        str(loaded.metadata.table_uuid), name, schema_of(loaded.metadata),
        hidden_columns_of(loaded.metadata),
    )  # fmt: skip
