"""The I/O of proposals in the operator: shared state, published plans, no execution.

One object serves all tables of one catalog from several threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.load import connect, within
from reconciler.catalog.pointer import Pointer, pointer_of
from reconciler.errors import UnavailableError
from reconciler.loop.ports import Target
from reconciler.loop.reader import Reader
from reconciler.plan.plan import Plan
from reconciler.state.plan_store import PlanStore


@dataclass(kw_only=True)
class ClusterActor(Reader):
    """The I/O of proposals in the operator."""

    plans: PlanStore
    """Where plans are published."""
    _catalog: Any = None

    def pointer(self, target: Target) -> Pointer | None:
        """Return the table's pointer, by one catalog call; None if there is no such table."""

        def work() -> Pointer | None:
            return pointer_of(self._connection(target.catalog), target.identifier)

        try:
            return within(work, self.timeout, target.catalog)
        except UnavailableError:
            self._catalog = None
            raise

    def published_ids(self, table_uuid: str) -> frozenset[str]:
        """Return the ids of all plans that someone published for the table, by one listing."""
        return self.plans.ids_of(table_uuid)

    def published(self, table_uuid: str, plan_id: str) -> Plan | None:
        """Return the plan of that id that someone published for the table, if any."""
        return self.plans.find(table_uuid, plan_id)

    def _connection(self, config: CatalogConfig) -> Any:
        """Return the connection, reused while it works: this saves a catalog call per table."""
        if self._catalog is None:
            self._catalog = connect(config, self.timeout)
        return self._catalog
