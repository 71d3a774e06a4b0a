"""Replays days of appends and queries under a policy, and adds up all costs.

The measure of every policy (WAIR section 6): bytes read by queries plus rho times the bytes
rewritten, compared with a copy of the table that is never rewritten. Debt and realised savings are
kept as the ledger keeps them (Eq. 2 and 5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from reconciler.advisor.advice import DAY_MS, Debt, Settings
from reconciler.advisor.simulate.demand import demands
from reconciler.advisor.simulate.table import SimulatedTable
from reconciler.plan.actions.base import Action
from reconciler.queries.fragments import Fragment, Workload, batch_fragments
from reconciler.queries.read_cost import read_shape
from reconciler.queries.table_view import table_view
from reconciler.table.filetable import Array

HISTORY_MS = 60 * DAY_MS

Policy = Callable[[SimulatedTable, Workload, Settings], Sequence[Action]]


@dataclass(frozen=True)
class Step:
    """One batch: rows that arrive, then queries, then a decision at now_ms."""

    rows: Mapping[int, Array] | None
    rows_per_file: int
    queries: tuple[Fragment, ...]
    now_ms: int


@dataclass(frozen=True)
class Replay:
    """Costs per step in bytes of reading: of queries, of rewrites, and of queries on the copy that
    is never rewritten. table: the final state."""

    read: npt.NDArray[np.float64]
    rewritten: npt.NDArray[np.float64]
    untouched: npt.NDArray[np.float64]
    table: SimulatedTable

    @property
    def ratio(self) -> float:
        """Total cost divided by that of doing nothing."""
        return float((self.read.sum() + self.rewritten.sum()) / max(self.untouched.sum(), 1.0))


def replay(
    table: SimulatedTable, steps: Sequence[Step], policy: Policy, settings: Settings
) -> Replay:
    """Run every step: append, query, decide, rewrite. The decision sees only past queries."""
    twin = table
    log: list[Fragment] = []
    read: list[float] = []
    rewritten: list[float] = []
    untouched: list[float] = []
    for step in steps:
        if step.rows is not None:
            group_rows = max(1, settings.row_group_bytes // table.row_width)
            table = table.append(step.rows, step.rows_per_file, step.now_ms, group_rows)
            twin = twin.append(step.rows, step.rows_per_file, step.now_ms, group_rows)
        read.append(reading(table, step.queries, settings))
        untouched.append(reading(twin, step.queries, settings))
        log = [f for f in log if f.event_ms >= step.now_ms - HISTORY_MS] + list(step.queries)
        # A loss is not counted as debt as well: slower queries must not prevent the repair of a
        # layout.
        realised = sum(max(0.0, u - r) for u, r in zip(untouched, read, strict=True))
        debt = Debt(sum(rewritten), realised)
        now = replace(settings, now_ms=step.now_ms, debt=debt)
        actions = policy(table, batch_fragments(log), now)
        table, cost = carry_out(table, actions, now)
        rewritten.append(cost)
    return Replay(np.array(read), np.array(rewritten), np.array(untouched), table)


def carry_out(
    table: SimulatedTable, actions: Sequence[Action], settings: Settings
) -> tuple[SimulatedTable, float]:
    """Return the table after the actions, and rho x the bytes that they rewrote."""
    cost = 0.0
    for action in actions:
        size = dict(zip(table.file_table().path, table.file_table().bytes, strict=True))
        cost += settings.rho.value * sum(float(size[path]) for path in action.inputs)
        table = table.apply(action, settings.now_ms)
    return table, cost


def reading(table: SimulatedTable, queries: Sequence[Fragment], settings: Settings) -> float:
    """Return the read cost of the recorded queries, from exact footers."""
    view = table_view(
        table.file_table(), table.row_groups(), None, settings.row_group_bytes, settings.open_bytes
    )
    wanted = demands(batch_fragments(queries), table.schema, settings.horizon_ms)
    return sum(float(demand.weight @ read_shape(view, demand).cost) for demand in wanted)
