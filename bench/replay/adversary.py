"""An adversary of the advisor: it sees the table after each import, and asks what it reads worst.

It lures the table into a layout with queries that pay it back, and then asks those that cost most
more than of the same table that nobody rewrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from bench.replay.table import SimulatedTable
from reconciler.advisor.advice import EARLY_SHARE, Settings
from reconciler.advisor.judge.room import unseen
from reconciler.advisor.situation import situation_of
from reconciler.plan.actions.base import Action
from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.read_cost import read_shape
from reconciler.queries.shape import Shape, Workload
from reconciler.queries.table_view import table_view
from reconciler.replay.policies.ours import ours
from reconciler.replay.run import Policy, Replay, Running, Step
from reconciler.state.mixes import Mix, mix_of
from reconciler.table.filetable import Float64
from tests.advisor.worlds import DATE, DAY, KEY, PART, ROW_BYTES, SETTINGS, arrived, range_query

FILES, ROWS, EACH = 12, 200, 16
"""Files of the table, rows of each, and queries of a day."""

IMPORTS = 4
"""Times a day that the table's queries are imported."""

IMPORT_MS = DAY // IMPORTS

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
    """Days under the advisor's decisions. Queries are imported IMPORTS times a day."""

    running: Running[SimulatedTable]
    """The replay: a step per import."""
    unseen: Sequence[float]
    """By import, what was expected then that queries read at most more than of the twin until the
    next decision (`room.unseen`)."""
    decided: Sequence[bool]
    """By import, whether it was followed by a decision."""

    @property
    def surprises(self) -> Float64:
        """What queries read more than was expected, by interval between two decisions, in bytes of
        reading: 0.0 wherever assumption A1 of docs/design/no-harm.md holds. float64[decisions]."""
        costs = self.running.costs()
        more = costs.read - costs.untouched
        ends = np.flatnonzero(self.decided)
        found = [
            more[before + 1 : end + 1].sum() - self.unseen[before]
            for before, end in pairwise(ends.tolist())
        ]
        return np.maximum(np.array([0.0, *found]), 0.0)

    @property
    def as_assumed(self) -> bool:
        """Whether A1 held."""
        return float(self.surprises.sum()) <= 1e-6 * float(self.running.costs().untouched.sum())


def played(days: Sequence[Days], settings: Settings = UNATTENDED, seed: int = 0) -> Run:
    """Return the replay of these days under the advisor's decisions: one at the end of each day,
    and one after each import that shows what was not expected, as the operator makes them.

    seed: of the table's rows; the next one is that of the queries."""
    table = arrived(np.random.default_rng(seed), rows=FILES * ROWS, rows_per_file=ROWS)
    decided: list[bool] = []
    running = Running(table, _as_the_operator(decided), settings)
    random, seen, at = np.random.default_rng(seed + 1), [], 0
    for part in days:
        for _ in range(part.count * IMPORTS):
            asked = _asked(running, part, random, at)
            now_ms = at * IMPORT_MS + IMPORT_MS // 2
            running.advance(Step(None, workload_of_fragments(asked).shapes, now_ms))
            seen.append(unseen(situation_of(running.given(now_ms))) if decided[-1] else 0.0)
            at += 1
    return Run(running, seen, decided)


def _as_the_operator(decided: list[bool]) -> Policy[SimulatedTable]:
    """Return the advisor's policy; `decided` gets whether it was asked at each import."""
    before: list[Mix] = []

    def policy(table: SimulatedTable, work: Workload, settings: Settings) -> Sequence[Action]:
        mix = mix_of(work)
        early = mix.surprises(before[-1] if before else None)
        before.append(mix)
        decided.append(early or len(decided) % IMPORTS == IMPORTS - 1)
        return ours(table, work, settings) if decided[-1] else ()

    return policy


def worst_on_the_way(run: Replay, first: int = 4) -> float:
    """Return the greatest cost so far / doing nothing so far, from a day on."""
    found = run.worst_ratio(first * IMPORTS - 1)
    assert found is not None
    return found


def _asked(running: Running, part: Days, random: np.random.Generator, at: int) -> list[Fragment]:
    count = EACH // IMPORTS
    if part.column is None:
        column, low = worst_range(running.table, running.twin)
        lows = [low] * count
    else:
        column, width = part.column, _width(part.column)
        lows = random.integers(0, DOMAINS[column] - width, count).tolist()
    return [
        range_query(
            100 * at + n, column, low, low + _width(column), event_ms=at * IMPORT_MS + n,
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
        (asked,) = workload_of_fragments(
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
