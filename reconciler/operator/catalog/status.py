"""Builds the status of a catalog; pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.api.conditions import EXPLANATIONS, ConditionType, Reason
from reconciler.api.conditions import Status as Truth
from reconciler.operator.conditions import Body, Condition, explained, merged
from reconciler.operator.ports import Problem


@dataclass(frozen=True, slots=True)
class CatalogView:
    """What the status of an IcebergCatalog is built from."""

    problem: Problem | None
    """Why the catalog is not ready; None if it is."""
    tables: int | None
    """Number of listed tables, None while it is unknown."""
    workload: tuple[Truth, str, str]
    """(status, reason, message) of WorkloadFresh."""
    workload_version: int = 0


def catalog_status(
    old: Mapping[str, Any] | None, view: CatalogView, generation: int, now: dt.datetime
) -> Body:
    conditions = []
    if view.problem is None:
        text = EXPLANATIONS[Reason.CATALOG_REACHABLE].cause.rstrip(".")
        conditions.append(
            Condition(ConditionType.READY, Truth.TRUE, Reason.CATALOG_REACHABLE, text)
        )
    else:
        reason, message = view.problem.reason, view.problem.message
        text = explained(reason, message)
        conditions.append(Condition(ConditionType.READY, Truth.FALSE, reason, text))
        if view.problem.stalls:
            conditions.append(Condition(ConditionType.STALLED, Truth.TRUE, reason, text))
    conditions.append(Condition(ConditionType.WORKLOAD_FRESH, *view.workload))
    body: Body = {
        "observedGeneration": generation,
        "conditions": merged((old or {}).get("conditions"), conditions, generation, now),
    }
    if view.tables is not None:
        body["tables"] = view.tables
    if view.workload_version:
        body["workload"] = {"version": view.workload_version}
    return body
