"""A drawn table: rows as they arrive, how they are partitioned, and queries before and after NOW.

The kinds of `bench.tables.kinds` return it; everything in it follows from the kind and a seed.
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

Random = np.random.Generator

NOW = dt.datetime(2025, 11, 20, 12, 0)
"""The end of the recorded queries, UTC: in the past, because an import refuses later times."""

DAYS = 14
"""Days of recorded queries and, for kinds that arrive by day, of data."""

MOST_A_DAY = 40
"""Most queries of a kind that are drawn for a day."""

BUSY = 500.0
"""Queries a day from which on their number is drawn."""

HORIZON_DAYS = 7
"""Days of queries to come, which no plan has seen."""

DAY = dt.timedelta(days=1)
START = NOW - DAYS * DAY


@dataclass(frozen=True, slots=True)
class Asked:
    """One query. sql: in Spark's dialect, `{t}` for the table; at: when it ran, UTC; weight: how
    many executions it represents."""

    sql: str
    at: dt.datetime
    weight: float = 1.0


@dataclass(frozen=True)
class Drawn:
    """batches: appended one after the other. partition: (column, transform as pyiceberg spells it).

    recorded, later: queries in the DAYS before and the HORIZON_DAYS after NOW. reason: for a
    placebo, the reason of `plan.reasons` for which its plan has to be empty, "" for no placebo;
    why: the sentence that has to say more, "" for any.
    columns: candidates of a brute force over keys. window: for moving windows, the time column, and
    the earliest time that a query to come asks for. changes: SQL that is run after the appends.
    whole: every batch becomes one file, whatever the target. target: size of files, 0 to name none;
    row_group: size of row groups, 0 to name none. budget: share of the table's bytes that may be
    rewritten in a day, None without a budget.
    """

    kind: str
    seed: int
    batches: tuple[pa.Table, ...]
    recorded: tuple[Asked, ...]
    later: tuple[Asked, ...]
    columns: tuple[str, ...]
    partition: tuple[tuple[str, str], ...] = ()
    target: int = 2 << 20
    reason: str = ""
    why: str = ""
    window: tuple[str, dt.datetime] | None = None
    changes: tuple[str, ...] = ()
    whole: bool = False
    row_group: int = 0
    budget: float | None = None

    @property
    def name(self) -> str:
        return f"{self.kind}_{self.seed}"


Ask = Callable[[Random, dt.datetime], str]
"""(random, when it runs) -> the text of a query."""


def random_of(kind: str, seed: int, part: int = 0) -> Random:
    return np.random.default_rng([seed, zlib.crc32(kind.encode()), part])


def queries(
    random: Random, ask: Ask, a_day: float, start: dt.datetime, days: int
) -> tuple[Asked, ...]:
    """Return about `a_day` executions a day at random times, in the order of time; beyond
    MOST_A_DAY, each query stands for several."""
    weight = max(1.0, a_day / MOST_A_DAY)
    count = int(random.poisson(a_day / weight * days))
    seconds = np.sort(random.uniform(0, days * 86_400, count))
    times = [start + dt.timedelta(seconds=round(float(s))) for s in seconds]
    return tuple(Asked(ask(random, at), at, weight) for at in times)


def before_and_after(
    kind: str, seed: int, asks: Sequence[tuple[Ask, float]]
) -> tuple[tuple[Asked, ...], tuple[Asked, ...]]:
    """Return the recorded queries and those to come, of the same mix. asks: with queries a day; a
    busy table is drawn more or less busy, so that decisions are not all clear."""
    recorded: list[Asked] = []
    share = float(np.exp(random_of(kind, seed, 99).uniform(np.log(0.01), np.log(0.5))))
    asks = [(ask, a_day * share if a_day >= BUSY else a_day) for ask, a_day in asks]
    later: list[Asked] = []
    for number, (ask, a_day) in enumerate(asks):
        random = random_of(kind, seed, 100 + number)
        recorded += queries(random, ask, a_day, START, DAYS)
        later += queries(random, ask, a_day, NOW, HORIZON_DAYS)
    return _in_time(recorded), _in_time(later)


def _in_time(asked: Sequence[Asked]) -> tuple[Asked, ...]:
    return tuple(sorted(asked, key=lambda one: one.at))


def drawn(
    kind: str,
    seed: int,
    batches: Sequence[pa.Table],
    asks: Sequence[tuple[Ask, float]],
    columns: Sequence[str],
    **more: object,
) -> Drawn:
    recorded, later = before_and_after(kind, seed, asks)
    made = Drawn(kind, seed, tuple(batches), recorded, later, tuple(columns))
    return replace(made, **more)  # type: ignore[arg-type]


def text(moment: dt.datetime) -> str:
    """Return a literal without a zone, as the columns have none: DuckDB then prunes by it, too."""
    return f"TIMESTAMP_NTZ '{moment:%Y-%m-%d %H:%M:%S}'"


def times(random: Random, start: dt.datetime, span: dt.timedelta, rows: int) -> pa.Array:
    """Return `rows` times within the span, in order, as timestamps without a zone."""
    first = np.datetime64(start, "us")
    width = int(span.total_seconds() * 1e6)
    return pa.array(np.sort(first + random.integers(0, width, rows).astype("timedelta64[us]")))
