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

from bench.replay.table import SimulatedTable
from reconciler.advisor.advice import Debt, Settings
from reconciler.advisor.measure.credit import Price, Rewrite, credit_of, written
from reconciler.plan.actions.base import Action
from reconciler.queries.demanded import demands
from reconciler.queries.read_cost import read_shape
from reconciler.queries.shape import Shape, Workload, workload_of
from reconciler.queries.table_view import table_view
from reconciler.table.filetable import Array
from reconciler.table.times import DAY_MS

HISTORY_MS = 60 * DAY_MS

Policy = Callable[[SimulatedTable, Workload, Settings], Sequence[Action]]


@dataclass(frozen=True)
class Step:
    """One batch: rows that arrive, then queries, then a decision at now_ms."""

    rows: Mapping[int, Array] | None
    rows_per_file: int
    queries: tuple[Shape, ...]
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
    log: list[Shape] = []
    read: list[float] = []
    rewritten: list[float] = []
    untouched: list[float] = []
    past: list[Rewrite] = []
    price = Price(settings.open_bytes, settings.row_group_bytes)
    realised = 0.0
    for step in steps:
        if step.rows is not None:
            group_rows = max(1, settings.row_group_bytes // table.row_width)
            table = table.append(step.rows, step.rows_per_file, step.now_ms, group_rows)
            twin = twin.append(step.rows, step.rows_per_file, step.now_ms, group_rows)
        read.append(reading(table, step.queries, settings))
        untouched.append(reading(twin, step.queries, settings))
        log = [*(one.since(step.now_ms - HISTORY_MS) for one in log), *step.queries]
        realised += sum(credit_of(one, step.queries, price).table_least for one in past)
        debt = Debt(sum(rewritten), max(0.0, realised))
        now = replace(settings, now_ms=step.now_ms, debt=debt)
        actions = policy(table, workload_of(log), now)
        table, cost, past = carry_out(table, actions, now, past)
        rewritten.append(cost)
    return Replay(np.array(read), np.array(rewritten), np.array(untouched), table)


def carry_out(
    table: SimulatedTable, actions: Sequence[Action], settings: Settings, past: list[Rewrite]
) -> tuple[SimulatedTable, float, list[Rewrite]]:
    """Return the table after the actions, rho x the bytes that they rewrote, and the ledger's
    rewrites with them."""
    cost = 0.0
    for action in actions:
        files = table.file_table()
        taken = np.isin(files.path.astype(str), list(action.inputs))
        cost += settings.rho.value * float(files.bytes[taken].sum())
        table = table.apply(action, settings.now_ms)
        after = table.file_table()
        new = ~np.isin(after.path.astype(str), files.path.astype(str))
        past = [_replaced(one, action.inputs, settings.now_ms) for one in past]
        if new.any():
            made = written("replay", settings.now_ms, (files.take(taken),), after.take(new))
            past.append(made)
    return table, cost, past


def _replaced(rewrite: Rewrite, inputs: Sequence[str], now_ms: int) -> Rewrite:
    """Return the rewrite after another one took these files."""
    taken = np.isin(rewrite.after.path.astype(str), list(inputs))
    if not taken.any():
        return rewrite
    return replace(rewrite, replaced_ms=np.where(taken, now_ms, rewrite.replaced_ms))


def reading(table: SimulatedTable, queries: Sequence[Shape], settings: Settings) -> float:
    """Return the read cost of the recorded queries, from exact footers."""
    view = table_view(
        table.file_table(), table.row_groups(), None, settings.row_group_bytes, settings.open_bytes
    )
    wanted = demands(workload_of(queries), table.schema, settings.horizon_ms)
    return sum(float(demand.weight @ read_shape(view, demand).cost) for demand in wanted)
