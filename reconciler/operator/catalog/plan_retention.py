"""Removes published plans whose retention is over, after their catalog's reconcile.

Once per day and catalog, by `spec.system.plans.retention`. Plans that are standing, running or
approved stay, however old, because a person may still be reading them.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.errors import ReconcilerError
from reconciler.operator.catalog.handles import LiveHandle
from reconciler.operator.index import ObjectName
from reconciler.operator.job_record import plan_in

log = logging.getLogger(__name__)

EVERY = dt.timedelta(days=1)
AGAIN = dt.timedelta(hours=1)
"""Delay after a failure."""


@dataclass
class PlanRetention:
    """When each catalog's plans are checked next."""

    _next: dict[ObjectName, dt.datetime] = field(default_factory=dict)

    def due(self, where: ObjectName, now: dt.datetime) -> bool:
        return now >= self._next.get(where, now)

    def keep_to(
        self, where: ObjectName, handle: LiveHandle, kept: Iterable[str], now: dt.datetime
    ) -> None:
        """Remove old plans except the ids in `kept`; a failure is logged and retried."""
        system = handle.document.spec.system
        retention = dt.timedelta(seconds=system.plans.retention_seconds)
        self._next[where] = now + EVERY
        try:
            keep = frozenset(kept)
            removed = handle.call(lambda: handle.store.plans.expire(retention, keep))
        except ReconcilerError as error:
            self._next[where] = now + AGAIN
            log.warning("old plans of catalog %s/%s were not removed: %s", *where, error.what)
            return
        if removed:
            log.info("%d old plans of catalog %s/%s were removed", removed, *where)


def plans_in_use(
    layouts: Iterable[Mapping[str, Any]], policies: Iterable[Mapping[str, Any]]
) -> set[str]:
    """Return the ids of plans that are standing, running or approved, and of the
    recommendations that a status names."""
    found: set[str] = set()
    for body in layouts:
        status = body.get("status") or {}
        found.add(str(body["spec"].get("approvedPlan") or ""))
        found.add(str((status.get("plan") or {}).get("id") or ""))
        found.add(plan_in(status))
        found.add(str((status.get("recommendation") or {}).get("id") or ""))
    for body in policies:
        found.update((body["spec"].get("approval") or {}).get("approvedPlans") or ())
    return found - {""}
