"""Fleets made of numbers alone."""

from __future__ import annotations

from typing import Any

from reconciler.plan.waste import SmallFiles, Waste
from reconciler.render.fleet_model import (
    Fleet,
    FleetPlan,
    FleetRewrite,
    FleetTable,
    worst_first,
)
from reconciler.table.times import DAY_MS

NOW_MS = 1_795_250_000_000
MIB = 1 << 20


def table(number: int, **changes: Any) -> FleetTable:
    """A table; every third has recorded queries, every fifth has deletes."""
    files = 10 + number * 7919 % 500
    values: dict[str, Any] = {
        "name": f"warehouse.team{number % 40}.events_of_product_{number:05d}",
        "files": files,
        "bytes": files * (1 + number % 9) * MIB,
        "small": SmallFiles(files // 2, files // 3, 32 * MIB),
        "with_deletes": files // 4 if number % 5 == 0 else 0,
        "waste": Waste(
            float(number * 104729 % 997) * MIB, float(files // 3), MIB,
            float(number % 50) if number % 3 == 0 else None,
        ),
        "files_week_ago": None if number % 4 else files - 3,
    }  # fmt: skip
    return FleetTable(**{**values, **changes})


def rewrite(plan_id: str, days_ago: float, **changes: Any) -> FleetRewrite:
    values: dict[str, Any] = {
        "plan_id": plan_id,
        "at_ms": NOW_MS - round(days_ago * DAY_MS),
        "rewritten": 100 * MIB,
        "cost": 400.0 * MIB,
        "cpu_seconds": 12.0,
        "saved": 700.0 * MIB,
        "harm": False,
    }
    return FleetRewrite(**{**values, **changes})


def fleet(number: int = 30, **changes: Any) -> Fleet:
    """A fleet with a plan that waits, two weeks of rewrites, and one that did harm."""
    tables = [table(n) for n in range(number)]
    slower = (("country = ?", 2.0 * MIB, 5.0 * MIB),)
    waits = FleetPlan("p-00000000000000000001", NOW_MS - DAY_MS, 300 * MIB, 40.0, 900 * MIB, slower)
    tables[0] = table(0, waits=waits)
    tables[1] = table(1, rewrites=(rewrite("p-a", 9), rewrite("p-b", 1, saved=None)))
    tables[2] = table(2, rewrites=(rewrite("p-c", 2, saved=-50.0 * MIB, harm=True),))
    return Fleet("catalog warehouse", NOW_MS, worst_first(tables), **changes)
