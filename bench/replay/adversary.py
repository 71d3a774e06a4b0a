"""An adversary of the advisor: it sees the table after each decision, and asks what it reads worst.

It lures the table into a layout with queries that pay it back, and then asks those that cost most
more than of the same table that nobody rewrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.replay.table import SimulatedTable
from reconciler.advisor.advice import EARLY_SHARE, Settings
from reconciler.advisor.judge.room import unseen
from reconciler.advisor.situation import look
from reconciler.plan.actions.base import Action
from reconciler.queries.fragments import Fragment, batch_fragments
from reconciler.queries.read_cost import read_shape
from reconciler.queries.shape import Shape, Workload
from reconciler.queries.table_view import table_view
from reconciler.replay.policies.ours import ours
from reconciler.replay.run import Policy, Replay, Running, Step
from tests.advisor.worlds import DATE, DAY, KEY, PART, ROW_BYTES, SETTINGS, arrived, range_query

FILES, ROWS, EACH = 12, 200, 16
"""Files of the table, rows of each, and queries of a day."""

DOMAINS = {PART: 100_000, KEY: FILES * ROWS, DATE: 1_000}
PLACES = 24
"""Ranges of each column among which the adversary looks for the worst."""

UNATTENDED = replace(
    SETTINGS,
    early_share=EARLY_SHARE,
    target_bytes=ROW_BYTES * ROWS,
    row_group_bytes=ROW_BYTES * ROWS,
    open_bytes=ROW_BYTES * ROWS // 32,
    now_ms=0,
)

ONE_FILE = replace(UNATTENDED, target_bytes=ROW_BYTES * ROWS * FILES)
"""A rewrite makes one file of the whole table: its row groups alone show the order of its rows."""


@dataclass(frozen=True)
class Days:
    """So many days of queries. column: of the queries; None for those that the table as it is reads
    worst. weight: executions of each of the day's queries."""

    count: int
    column: int | None
    weight: float = 1.0


@dataclass(frozen=True)
class Run:
    """Days under the advisor's decisions."""

    running: Running[SimulatedTable]
    """The replay."""
    unseen: Sequence[float]
    """By day, what the decision after it expected the next day's queries to read at most more than
    of the twin (`room.unseen`)."""

    @property
    def as_assumed(self) -> bool:
        """Whether no day read more than that: assumption A1 of docs/design/no-harm.md."""
        costs = self.running.costs()
        more = (costs.read - costs.untouched)[1:]
        return bool((more <= np.array(self.unseen[:-1]) + 1e-6 * costs.untouched[1:]).all())


def played(days: Sequence[Days], settings: Settings = UNATTENDED) -> Run:
    """Return the replay of these days under the advisor's decisions."""
    table = arrived(np.random.default_rng(0), rows=FILES * ROWS, rows_per_file=ROWS)
    seen: list[float] = []
    running, random, day = Running(table, _watched(seen), settings), np.random.default_rng(1), 0
    for part in days:
        for _ in range(part.count):
            asked = _asked(running, part, random, day)
            running.advance(Step(None, batch_fragments(asked).shapes, day * DAY + DAY // 2))
            day += 1
    return Run(running, seen)


def _watched(seen: list[float]) -> Policy[SimulatedTable]:
    """Return the advisor's policy, which also keeps `room.unseen` of the layout after it."""

    def policy(table: SimulatedTable, work: Workload, settings: Settings) -> Sequence[Action]:
        actions, after = ours(table, work, settings), table
        for action in actions:
            after = after.after(action, settings)
        gone = {file.path for file in table.files} - {file.path for file in after.files}
        files = table.file_table()
        first = np.isin(files.path.astype(str), sorted(gone)) & ~files.layout_written
        replaced = (*settings.replaced, *([files.take(np.flatnonzero(first))] * bool(first.any())))
        seen.append(unseen(look(after.given(work, replace(settings, replaced=replaced)))))
        return actions

    return policy


def worst_on_the_way(run: Replay, first: int = 4) -> float:
    """Return the greatest cost so far / doing nothing so far, from a day on."""
    found = run.worst_ratio(first - 1)
    assert found is not None
    return found


def _asked(running: Running, part: Days, random: np.random.Generator, day: int) -> list[Fragment]:
    if part.column is None:
        column, low = worst_range(running.table, running.twin)
        lows = [low] * EACH
    else:
        column, width = part.column, _width(part.column)
        lows = random.integers(0, DOMAINS[column] - width, EACH).tolist()
    return [
        range_query(
            100 * day + n, column, low, low + _width(column), event_ms=day * DAY + n,
            weight=part.weight,
        )
        for n, low in enumerate(lows)
    ]  # fmt: skip


def _width(column: int) -> int:
    return DOMAINS[column] // 100


def worst_range(table: SimulatedTable, twin: SimulatedTable) -> tuple[int, int]:
    """Return the column and start of the range of which the table reads most more than its twin."""
    found = []
    for column, domain in DOMAINS.items():
        lows = np.arange(PLACES) * (domain - _width(column)) // (PLACES - 1)
        (asked,) = batch_fragments(
            range_query(n, column, low, low + _width(column), event_ms=0)
            for n, low in enumerate(lows.tolist())
        ).shapes
        more = _cost(table, asked) - _cost(twin, asked)
        found.append((float(more.max()), column, int(asked.literals[0][int(more.argmax())])))
    _, column, low = max(found)
    return column, low


def _cost(table: SimulatedTable, asked: Shape) -> np.ndarray:
    settings = UNATTENDED
    view = table_view(
        table.file_table(), table.row_groups(), None, settings.row_group_bytes, settings.open_bytes
    )
    return read_shape(view, asked).cost
