"""Replays batches of new rows and queries under a policy, and adds up all costs.

The measure of every policy (Pang et al., "WAIR", section 6): what queries read plus rho times what
was rewritten, beside the same table that nobody rewrites. Debt and realised savings are kept as the
ledger keeps them (Eq. 2 and 5).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from reconciler.advisor.advice import AdviceInput, Debt, Settings
from reconciler.advisor.measure.credit import PastRewrite, Price, credit_of, written
from reconciler.plan.actions.base import Action
from reconciler.queries.demanded import recorded
from reconciler.queries.read_cost import read_shape
from reconciler.queries.shape import Shape, Workload, workload_of
from reconciler.queries.table_view import TableView, table_view
from reconciler.table.filetable import FileTable, Float64, Int64
from reconciler.table.sample import RowGroups
from reconciler.table.times import DAY_MS

HISTORY_MS = 60 * DAY_MS
"""How far back a decision sees queries."""


class ReplayTable(Protocol):
    """A table that a replay may change."""

    def file_table(self) -> FileTable: ...

    def row_groups(self) -> RowGroups | None: ...

    def given(self, workload: Workload, settings: Settings) -> AdviceInput:
        """Return what a decision on this state is made from."""
        ...

    def after(self, action: Action, settings: Settings) -> Self: ...


Table = TypeVar("Table", bound=ReplayTable)
Decided = TypeVar("Decided", bound=ReplayTable, contravariant=True)


class Policy(Protocol[Decided]):
    """Decides what is rewritten after a batch."""

    def __call__(
        self, table: Decided, work: Workload, settings: Settings, /
    ) -> Sequence[Action]: ...


@dataclass(frozen=True)
class Step(Generic[Table]):
    """One batch: rows that arrive, then queries, then a decision."""

    arrive: Callable[[Table], Table] | None
    """Adds the rows of the batch; None if none arrive."""
    queries: tuple[Shape, ...]
    """The queries of the batch."""
    now_ms: int
    """Time of the decision, in epoch milliseconds."""


@dataclass(frozen=True)
class Replay(Generic[Table]):
    """What a workload costs under a policy. Arrays have shape [steps]."""

    read: Float64
    """Cost of the queries in bytes of reading, openings included."""
    read_bytes: Float64
    """Bytes that the queries read."""
    rewritten: Float64
    """Cost of the rewrites in bytes of reading: rho times the bytes of their inputs."""
    rewritten_bytes: Float64
    """Bytes of the rewrites' inputs."""
    actions: Int64
    """Number of rewrites."""
    files: Int64
    """Number of files after the step."""
    untouched: Float64
    """Cost of the same queries on the table that nobody rewrites."""
    table: Table
    """The final state."""

    @property
    def cost(self) -> Float64:
        return self.read + self.rewritten

    @property
    def ratio(self) -> float | None:
        """Return the total cost divided by that of doing nothing; None if that is nothing."""
        none = float(self.untouched.sum())
        return float(self.cost.sum()) / none if none > 0.0 else None

    def worst_ratio(self, first: int = 0) -> float | None:
        """Return the greatest ratio of the costs so far, at any step from `first` on; None if
        there is no such step."""
        ours, none = np.cumsum(self.cost)[first:], np.cumsum(self.untouched)[first:]
        known = none > 0.0
        return float((ours[known] / none[known]).max()) if known.any() else None


@dataclass(frozen=True, slots=True)
class _Costs:
    """What one step took."""

    read: float
    """Cost of its queries in bytes of reading."""
    size: float
    """Bytes that its queries read."""
    moved: int
    """Bytes of the files that were rewritten after it."""
    actions: int
    """Number of these rewrites."""
    files: int
    """Number of files after them."""
    untouched: float
    """Cost of its queries on the table that nobody rewrites."""


class Running(Generic[Table]):
    """A replay that is under way: a table under a policy, and its twin that nobody rewrites."""

    def __init__(
        self,
        table: Table,
        policy: Policy[Table],
        settings: Settings,
        before: Sequence[Shape] = (),
    ) -> None:
        self.table = table
        """The table as it is now."""
        self.twin = table
        """The same rows in the files in which they arrived."""
        self._policy = policy
        self._settings = settings
        self._log = list(before)
        self.debt = Debt()
        """What the ledger knows of cost and savings so far."""
        self._past: list[PastRewrite] = []
        self._price = Price(settings.open_bytes, settings.row_group_bytes)
        self._costs: list[_Costs] = []

    def advance(self, step: Step[Table]) -> None:
        """Let rows arrive and queries run, decide, and carry the decision out.

        The decision sees only queries that ran before it.
        """
        settings = self._settings
        if step.arrive is not None:
            same = self.twin is self.table
            self.table = step.arrive(self.table)
            self.twin = self.table if same else step.arrive(self.twin)
        table, queries = self.table, step.queries
        size, read = reading(table, queries, settings)
        untouched = read if self.twin is table else reading(self.twin, queries, settings)[1]
        self._log = [*(one.since(step.now_ms - HISTORY_MS) for one in self._log), *queries]
        earned = [credit_of(one, queries, self._price) for one in self._past]
        self.debt = self.debt.after(settings.rho, 0.0, earned)
        now = self._known(step.now_ms)
        actions = self._policy(table, workload_of(self._log), now)
        table, moved, self._past = carry_out(table, actions, now, self._past)
        self.table = table
        self.debt = self.debt.after(settings.rho, float(sum(moved)), ())
        self._costs.append(
            _Costs(read, size, sum(moved), len(moved), len(table.file_table()), untouched)
        )

    @property
    def steps(self) -> int:
        """Return how many steps were done."""
        return len(self._costs)

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but the policy: it decides from what it is given alone."""
        return {**self.__dict__, "_policy": None}

    def resumed(self, policy: Policy[Table]) -> Self:
        """Return a replay that was pickled, with its policy."""
        self._policy = policy
        return self

    def given(self, now_ms: int) -> AdviceInput:
        """Return what a decision at this time would be made from."""
        return self.table.given(workload_of(self._log), self._known(now_ms))

    def _known(self, now_ms: int) -> Settings:
        """Return the settings with what the ledger knows at this time."""
        replaced = _missing(self.twin, self.table)
        return replace(self._settings, now_ms=now_ms, debt=self.debt, replaced=replaced)

    def costs(self) -> Replay[Table]:
        """Return what the steps so far took."""
        spans = self._costs
        rewritten = np.array([one.moved for one in spans], dtype=np.float64)
        return Replay(
            read=np.array([one.read for one in spans]),
            read_bytes=np.array([one.size for one in spans]),
            rewritten=self._settings.rho.value * rewritten,
            rewritten_bytes=rewritten,
            actions=np.array([one.actions for one in spans], dtype=np.int64),
            files=np.array([one.files for one in spans], dtype=np.int64),
            untouched=np.array([one.untouched for one in spans]),
            table=self.table,
        )


def replay(
    table: Table,
    steps: Sequence[Step[Table]],
    policy: Policy[Table],
    settings: Settings,
    *,
    before: Sequence[Shape] = (),
    done: Callable[[int], None] = lambda _: None,
) -> Replay[Table]:
    """Run every step: rows arrive, queries run, the policy decides, rewrites run.

    before: queries from before the first step. done: is called with the number of finished steps.
    """
    running = Running(table, policy, settings, before)
    for number, step in enumerate(steps, start=1):
        running.advance(step)
        done(number)
    return running.costs()


def carry_out(
    table: Table, actions: Sequence[Action], settings: Settings, past: list[PastRewrite]
) -> tuple[Table, list[int], list[PastRewrite]]:
    """Return the table after the actions, the bytes that each rewrite took, and all rewrites."""
    moved: list[int] = []
    for action in actions:
        files = table.file_table()
        table = table.after(action, settings)
        after = table.file_table()
        if after is files:
            continue
        taken = np.isin(files.path.astype(str), list(action.inputs))
        moved.append(int(files.bytes[taken].sum()))
        new = ~np.isin(after.path.astype(str), files.path.astype(str))
        past = [_replaced(one, action.inputs, settings.now_ms) for one in past]
        if new.any():
            made = written("replay", settings.now_ms, (files.take(taken),), after.take(new))
            past.append(made)
    return table, moved, past


def _missing(twin: ReplayTable, table: ReplayTable) -> tuple[FileTable, ...]:
    """Return the files of the twin that the table does not have any more."""
    arrived = twin.file_table()
    gone = ~np.isin(arrived.path.astype(str), table.file_table().path.astype(str))
    return (arrived.take(np.flatnonzero(gone)),) if gone.any() else ()


def _replaced(rewrite: PastRewrite, inputs: Sequence[str], now_ms: int) -> PastRewrite:
    """Return the rewrite after another one took these files."""
    taken = np.isin(rewrite.after.path.astype(str), list(inputs))
    if not taken.any():
        return rewrite
    return replace(rewrite, replaced_ms=np.where(taken, now_ms, rewrite.replaced_ms))


def reading(
    table: ReplayTable, queries: Sequence[Shape], settings: Settings
) -> tuple[float, float]:
    """Return what recorded queries read of a table in bytes, and that with the cost of openings."""
    if not queries:
        return 0.0, 0.0
    view = _view(table, settings)
    size = cost = 0.0
    for demand in recorded(workload_of(queries), view.files.schema):
        found = read_shape(view, demand)
        size += float(demand.weight @ found.bytes)
        cost += float(demand.weight @ found.cost)
    return size, cost


def _view(table: ReplayTable, settings: Settings) -> TableView:
    return table_view(
        table.file_table(), table.row_groups(), None, settings.row_group_bytes,
        settings.open_bytes,
    )  # fmt: skip
