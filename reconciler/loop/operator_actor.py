"""The step's I/O in the operator: shared state, published plans, no execution.

Approval, the standing plan and the spending come from the operator, whose objects know more than
the ledger: a TableLayout's approvedPlan and plan, and reservations of jobs that have not recorded
theirs yet. One object serves all tables of one catalog from several threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.load import connect, within
from reconciler.catalog.pointer import Pointer, pointer_of
from reconciler.errors import UnavailableError
from reconciler.loop.propose import Target
from reconciler.loop.reader import Reader
from reconciler.plan.budget import Spent
from reconciler.plan.plan import Plan
from reconciler.state.plan_store import PlanStore


@dataclass(kw_only=True)
class ClusterActor(Reader):
    """I/O of proposals and gates in the operator.

    plans: where plans are published. approved_by(plan id): by a TableLayout. standing(table uuid,
    policy hash): the plan in the TableLayout's status. spent_by(policy, table uuid): charges and
    reservations; it raises UnavailableError if the ledger cannot be read.
    """

    plans: PlanStore
    approved_by: Callable[[str], bool]
    standing: Callable[[str, str], Plan | None]
    spent_by: Callable[[str, str], tuple[Spent, ...]]
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

    def published(self, table_uuid: str, plan_id: str) -> Plan | None:
        """Return the plan of that id that someone published for the table, if any."""
        return self.plans.find(table_uuid, plan_id)

    def standing_plan(self, table_uuid: str, policy_hash: str) -> Plan | None:
        return self.standing(table_uuid, policy_hash)

    def approved(self, plan_id: str, policy: str | None = None) -> bool:
        return self.approved_by(plan_id) or self.store.approved(plan_id, policy)

    def spent(self, policy: str, table_uuid: str, besides: str = "") -> tuple[Spent, ...] | None:
        """Return the charges, None if the ledger cannot be read: then no budget allows anything."""
        try:
            return self.spent_by(policy, table_uuid)
        except UnavailableError:
            return None

    def _connection(self, config: CatalogConfig) -> Any:
        """Return the connection, reused while it works: this saves a catalog call per table."""
        if self._catalog is None:
            self._catalog = connect(config, self.timeout)
        return self._catalog
