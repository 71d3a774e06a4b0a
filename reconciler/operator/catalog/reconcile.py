"""The reconcile of one IcebergCatalog: is it reachable, which tables has it, are its queries fresh.

If a catalog is down, its tables become Unknown and nothing is deleted. Only complete listings
count: a table is missing after three listings without it and a failed direct lookup, and is back
after one listing with it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.conditions import Reason
from reconciler.api.conditions import Status as Truth
from reconciler.errors import (
    AccessDeniedError,
    ReconcilerError,
    RedirectedError,
    TableDamagedError,
    UnavailableError,
    UserError,
)
from reconciler.kube.errors import Conflict, NotFound
from reconciler.kube.kinds import CATALOG
from reconciler.operator import due
from reconciler.operator.catalog.handles import LiveCatalogs, LiveHandle
from reconciler.operator.catalog.importing import Imports
from reconciler.operator.catalog.plan_retention import PlanRetention, plans_in_use
from reconciler.operator.catalog.status import CatalogView, catalog_status
from reconciler.operator.index import ObjectName, table_of
from reconciler.operator.layout.status import changed
from reconciler.operator.ports import Identifier, Problem
from reconciler.operator.runtime import Runtime
from reconciler.operator.work import Key, Result, Work, spread

MISSES = 3
"""Complete listings in a row without a table before it is looked up directly."""

FORGOTTEN = 3 * MISSES
"""Listings after which a missing table is forgotten: everything that waited for it has acted."""


@dataclass(slots=True)
class Listing:
    """What the complete listings of a catalog have shown."""

    tables: frozenset[Identifier]
    """The tables of the last complete listing."""
    missing: dict[Identifier, int] = field(default_factory=dict)
    """Tables that an earlier listing had, each with the number of listings without it."""


@dataclass
class CatalogReconciler:
    """Reconciles IcebergCatalogs: checks the connection, lists the tables, and starts imports."""

    runtime: Runtime
    """The services of the operator."""
    catalogs: LiveCatalogs
    """The handles of all catalogs."""
    imports: Imports
    """The imports of query logs."""
    clock: Callable[[], dt.datetime]
    """Returns the time."""
    retention: PlanRetention = field(default_factory=PlanRetention)
    """Removes published plans that are no longer needed."""
    listings: dict[ObjectName, Listing] = field(default_factory=dict)
    """The tables of each catalog, by its (namespace, name); policies read them through `tables`."""

    def tables(self, namespace: str, name: str) -> frozenset[Identifier] | None:
        """Return the tables of the last complete listing; None before the first."""
        known = self.listings.get((namespace, name))
        return None if known is None else known.tables

    def gone(self, namespace: str, name: str, table: Identifier) -> bool:
        """Whether a table is certainly gone: three complete listings without it, and a failed
        direct lookup."""
        known = self.listings.get((namespace, name))
        if known is None or known.missing.get(table, 0) < MISSES:
            return False
        handle = self.catalogs.handle(namespace, name)
        if isinstance(handle, Problem):
            return False
        try:
            return handle.glance(table) is None
        except ReconcilerError:
            return False

    def reconcile(self, key: Key) -> Result:
        where = (key.namespace, key.name)
        body = self.runtime.index.catalog(*where)
        if body is None:
            self.listings.pop(where, None)
            self.catalogs.down.pop(where, None)
            self._tell_others(where)
            return Result()
        if not self.runtime.held():
            return Result(due=self.clock().timestamp() + 5)
        now = self.clock()
        problem = self._looked(where, body)
        before = self.catalogs.down.get(where)
        if problem is None:
            self.catalogs.down.pop(where, None)
        else:
            self.catalogs.down[where] = problem
        handle = self.catalogs.handle(*where)
        workload = self.imports.state(where, handle, now)
        stale = workload.message if workload.status is Truth.FALSE else ""
        moved = (before is None) != (problem is None) or self.catalogs.stale.get(where, "") != stale
        self.catalogs.stale[where] = stale
        if moved:
            self._tell_others(where)
        elif workload.new_mix:
            self._decide_early(where, workload.new_mix)
        if isinstance(handle, LiveHandle) and self.retention.due(where, now):
            self.retention.keep_to(where, handle, self._plans_in_use(where), now)
        try:
            self._write(body, problem, workload, where, now)
        except Conflict:
            return Result(due=now.timestamp() + 1)
        except NotFound:
            return Result()
        interval = 300
        if isinstance(handle, LiveHandle):
            interval = handle.document.spec.interval_seconds
        if problem is not None and not problem.stalls:
            interval = min(interval, 30)
        moment = due.next_look(f"{key.namespace}/{key.name}", interval, now)
        return Result(due=min(moment, workload.due or moment).timestamp())

    def _looked(self, where: ObjectName, body: dict[str, Any]) -> Problem | None:
        """Open and list the catalog; return why that failed."""
        opened = self.catalogs.open(*where, body)
        if isinstance(opened, Problem):
            return opened
        try:
            tables = frozenset(opened.listing())
        except UnavailableError as error:
            return Problem(Reason.CATALOG_UNAVAILABLE.value, _line(error), False)
        except (RedirectedError, TableDamagedError) as error:
            # What it answered is wrong, not what names it: it is asked again soon.
            return Problem(Reason.CATALOG_UNAVAILABLE.value, _line(error), False)
        except UserError as error:
            denied = isinstance(error, AccessDeniedError)
            reason = Reason.ACCESS_DENIED if denied else Reason.INVALID_SPEC
            return Problem(reason.value, _line(error), True)
        before = self.listings.get(where)
        missing = _missing(before, tables, self._governed(where))
        self.listings[where] = Listing(tables, missing)
        if before is None or before.tables != tables or missing:
            self._policies(where)
        return None

    def _plans_in_use(self, where: ObjectName) -> set[str]:
        index = self.runtime.index
        return plans_in_use(index.layouts_of_catalog(*where), index.policies_of_catalog(*where))

    def _governed(self, where: ObjectName) -> list[Identifier]:
        return [table_of(item) for item in self.runtime.index.layouts_of_catalog(*where)]

    def _write(
        self, body: dict[str, Any], problem: Problem | None, workload: Any,
        where: ObjectName, now: dt.datetime,
    ) -> None:  # fmt: skip
        generation = int(body["metadata"].get("generation") or 0)
        status = body.get("status") or {}
        listed = self.listings.get(where)
        view = CatalogView(
            problem=problem,
            tables=len(listed.tables) if listed is not None and problem is None else None,
            workload=(workload.status, workload.reason, workload.message),
            workload_version=workload.version,
        )
        new = catalog_status(status, view, generation, now)
        if changed(status, new):
            meta = body["metadata"]
            answer = self.runtime.api.put_status(
                CATALOG, meta["namespace"], meta["name"], new, meta["resourceVersion"]
            )
            self.runtime.index.put(CATALOG, answer)

    def _policies(self, where: ObjectName) -> None:
        self._spread(Work.POLICY, self.runtime.index.policies_of_catalog(*where))

    def _tell_others(self, where: ObjectName) -> None:
        """Make the catalog's tables and policies due after it went down or came back."""
        self._policies(where)
        self._spread(Work.LAYOUT, self.runtime.index.layouts_of_catalog(*where))

    def _decide_early(self, where: ObjectName, tables: Collection[Identifier]) -> None:
        """Make tables due whose queries decisions did not expect (`state.mixes`): until then files
        are laid out for those of before."""
        bodies = [
            body
            for body in self.runtime.index.layouts_of_catalog(*where)
            if table_of(body) in tables
        ]
        self._spread(Work.LAYOUT, bodies)

    def _spread(self, work: Work, bodies: Sequence[dict[str, Any]]) -> None:
        for key, delay in spread(work, bodies):
            self.runtime.enqueue(key, self.clock().timestamp() + delay)


def _missing(
    before: Listing | None, tables: Iterable[Identifier], governed: Iterable[Identifier]
) -> dict[Identifier, int]:
    """Return the tables that disappeared, with the number of listings without them.

    governed: tables with a TableLayout: one may have disappeared while no operator ran.
    """
    present, layouts = set(tables), set(governed)
    known = before or Listing(frozenset())
    candidates = {*known.tables, *known.missing, *layouts}
    counted = {table: known.missing.get(table, 0) + 1 for table in candidates - present}
    return {
        table: count for table, count in counted.items() if count <= FORGOTTEN or table in layouts
    }


def _line(error: ReconcilerError) -> str:
    return ". ".join(part.rstrip(".") for part in (error.what, *error.details[:2]))
