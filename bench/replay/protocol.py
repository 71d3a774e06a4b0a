"""The generator of workloads of Liu et al., "Workload-Aware Incremental Reclustering in Cloud Data
Warehouses", section 6.1, on lineitem in miniature, seeded. Its default is the protocol of 6.2.1.

72 monthly batches in six periods of twelve, of which two fill a pool; in each batch a month of rows
arrives, then 16 queries run. A part of them is drawn anew from batch to batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.replay.lineitem import COMMIT, ORDER, PART, PRICE, ROW_BYTES, SHIP, query
from bench.replay.table import SimulatedTable, arriving
from reconciler.advisor.advice import Settings
from reconciler.queries.fragments import workload_of_fragments
from reconciler.queries.rewrite_cost import Rho
from reconciler.queries.shape import Shape
from reconciler.replay.run import Replay, Step
from reconciler.table.filetable import Array
from reconciler.table.times import DAY_MS

PERIOD, POOL, MONTH_DAYS = 12, 2, 30
"""Batches of a period of the paper, periods before reclustering begins, and days of a month."""

PROJECTED = 12 / ROW_BYTES
"""Share of a row that a query reads by default."""

TEMPLATES = (
    (ORDER, SHIP, PRICE), (ORDER, COMMIT), (SHIP, PRICE), (ORDER, PRICE), (SHIP, COMMIT, ORDER),
    (PART, PRICE), (PART, SHIP), (PART, PRICE, SHIP),
)  # fmt: skip
"""What the eight templates of TPC-H read besides the column of their range."""


@dataclass(frozen=True)
class Protocol:
    """The parameters of the generator. The defaults are those of `bench/RESULTS.md`; where they
    differ from the paper's, docs/design/wair-protocol.md gives the reason and the effect."""

    months: int = 72
    """Number of batches."""
    period: int = PERIOD
    """Batches of a period."""
    rows: int = 2_400
    """Rows that arrive in a batch."""
    files: int = 12
    """Files in which they arrive."""
    queries: int = 16
    """Queries of a batch."""
    local: float = 0.5
    """Share of the queries that ask for recent months."""
    width: int = 2 * MONTH_DAYS
    """Days of a range: the selectivity."""
    skew: float = 2.0
    """Exponent of the Zipf distribution by which local queries look back."""
    shift: tuple[float, ...] = (1.0, 0.25, 0.25, 0.75, 0.75, 0.75)
    """Share of the queries that are drawn anew in a batch, by period: the shift rate."""
    batch_ms: int = 2 * DAY_MS
    """The time that a batch is taken to last."""
    rho: float = 3.0
    """Cost of rewriting a file in readings of it by a query."""
    by_share: bool = False
    """Whether exactly that share is drawn anew, and not each query by a coin."""
    anew: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    """Periods that begin with all queries drawn anew."""
    drawn_mix: bool = False
    """Whether each query of the last period draws its column 2:1, and not by its place."""
    whole_range: bool = False
    """Whether global queries reach to the last date of the column, and not of the orders."""
    behind: bool = False
    """Whether local queries end with their month, and do not begin with it."""
    templates: bool = False
    """Whether queries read the columns of TEMPLATES, and not of one."""

    @property
    def settings(self) -> Settings:
        size = ROW_BYTES * self.rows // self.files
        return Settings(
            target_bytes=size, row_group_bytes=size, open_bytes=0,
            rho=Rho(self.rho * PROJECTED, "measured"),
        )  # fmt: skip

    def steps(self, seed: int) -> list[Step[SimulatedTable]]:
        """Return the batches: rows that arrive, then queries."""
        random = np.random.default_rng(seed)
        mix: list[_Asked] = []
        steps = []
        for month in range(self.months):
            mix = self._next_mix(random, month, mix)
            at = month * self.batch_ms
            queries = workload_of_fragments(
                query(month * 100 + slot, one.column, one.low, self.width, at + slot * 60_000, 1.0,
                      self._projection(one.column, slot))
                for slot, one in enumerate(mix)
            ).shapes  # fmt: skip
            rows = self._month(random, month)
            end = at + self.batch_ms // 2
            steps.append(arriving(rows, self.rows // self.files, queries, end))
        return steps

    def _next_mix(
        self, random: np.random.Generator, month: int, mix: Sequence[_Asked]
    ) -> list[_Asked]:
        period = month // self.period
        rate = self.shift[period] if mix else 1.0
        first = month % self.period == 0 and period in self.anew
        chosen = set(range(self.queries))
        if self.by_share and mix and not first:
            count = round(rate * self.queries)
            chosen = set(random.permutation(self.queries)[:count].tolist())
        found = list(mix)
        for slot in range(self.queries):
            coin = self.by_share or not mix or first or random.random() < rate
            if slot in chosen and coin:
                found[slot : slot + 1] = [self._asked(random, month, slot)]
        return found

    def _asked(self, random: np.random.Generator, month: int, slot: int) -> _Asked:
        column = self._column(random, month // self.period, slot)
        if slot < self.queries * (1.0 - self.local):
            last = (month + 1) * MONTH_DAYS
            if self.whole_range:
                last += {SHIP: 1_000, COMMIT: 90}[column] - self.width
            return _Asked(column, int(random.integers(0, last)))
        back = min(int(random.zipf(self.skew)) - 1, month)
        low = (month - back) * MONTH_DAYS
        return _Asked(column, low + (MONTH_DAYS - self.width if self.behind else 0))

    def _column(self, random: np.random.Generator, period: int, slot: int) -> int:
        if period < 4:
            return SHIP
        if period == 4:
            return COMMIT
        commit = random.random() < 1 / 3 if self.drawn_mix else slot % 3 == 2
        return COMMIT if commit else SHIP

    def _projection(self, column: int, slot: int) -> tuple[int, ...] | None:
        if not self.templates:
            return None
        return tuple(sorted({column, *TEMPLATES[slot % len(TEMPLATES)]}))

    def _month(self, random: np.random.Generator, month: int) -> dict[int, Array]:
        """Rows in order-date order; ship dates up to 1,000 days later, commit dates 30 to 90."""
        ordered = month * MONTH_DAYS + np.sort(random.integers(0, MONTH_DAYS, self.rows))
        return {
            ORDER: np.arange(month * self.rows, (month + 1) * self.rows),
            SHIP: ordered + random.integers(1, 1_001, self.rows),
            COMMIT: ordered + random.integers(30, 91, self.rows),
            PART: random.integers(0, 200_000, self.rows),
            PRICE: random.random(self.rows),
        }


@dataclass(frozen=True)
class _Asked:
    """A range that is repeated from batch to batch until it is drawn anew."""

    column: int
    """Field id of the column."""
    low: int
    """Its first day."""


def in_parts(
    steps: Sequence[Step[SimulatedTable]], parts: int, batch_ms: int
) -> list[Step[SimulatedTable]]:
    """The same batches, each with so many decisions: after every part of its queries."""
    found = []
    for step in steps:
        order = np.sort(np.concatenate([shape.event_ms for shape in step.queries]))
        ends = [*order[np.arange(1, parts) * len(order) // parts], np.iinfo(np.int64).max]
        begin = np.iinfo(np.int64).min
        for number, end in enumerate(ends):
            asked = [shape.since(begin, end - 1) for shape in step.queries]
            back = (parts - 1 - number) * batch_ms // (2 * parts)
            later = number * batch_ms // (2 * parts)
            found.append(
                replace(
                    step, arrive=None if number else step.arrive,
                    queries=tuple(_moved(one, later) for one in asked if len(one)),
                    now_ms=step.now_ms - back,
                )
            )  # fmt: skip
            begin = end
    return found


def _moved(shape: Shape, later_ms: int) -> Shape:
    return replace(shape, event_ms=shape.event_ms + later_ms)


def whole_batches(run: Replay[SimulatedTable], parts: int) -> Replay[SimulatedTable]:
    """The costs of batches that were decided in parts."""
    summed = ("read", "read_bytes", "rewritten", "rewritten_bytes", "actions", "untouched")
    return replace(
        run,
        files=run.files[parts - 1 :: parts],
        **{name: getattr(run, name).reshape(-1, parts).sum(axis=1) for name in summed},
    )
