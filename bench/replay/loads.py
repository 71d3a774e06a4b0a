"""Two loads beside the protocol: many templates over many columns, and logs of which queries want a
thousandth. Their shapes follow Liu et al., sections 6.2.2 and 6.2.3, at the protocol's scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.replay.table import SimulatedTable, arriving
from reconciler.advisor.advice import Settings
from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.predicate import And, Comparison, Ref
from reconciler.queries.rewrite_cost import Rho
from reconciler.replay.run import Step
from reconciler.table.filetable import Array
from reconciler.table.schema import Field, Schema
from reconciler.table.times import DAY_MS

Range = tuple[int, int, int]
"""A field id, and the first and last value."""

RHO = 3.0
"""Cost of rewriting a file in readings of it by a query of two columns."""


@dataclass(frozen=True)
class Load:
    """Batches of rows and queries."""

    schema: Schema
    """Of the table."""
    steps: Sequence[Step[SimulatedTable]]
    """The batches."""
    first: int
    """Number of the batch from which on files are rewritten."""
    settings: Settings
    """What decisions are made with."""


def _load(
    names: Sequence[str], per_file: int, steps: Sequence[Step[SimulatedTable]], first: int
) -> Load:
    schema = Schema(1, tuple(Field(n, name, "long") for n, name in enumerate(names, start=1)))
    size = 8 * len(names) * per_file
    settings = Settings(
        target_bytes=size, row_group_bytes=size, open_bytes=0,
        rho=Rho(RHO * 2.0 / len(names), "measured"),
    )  # fmt: skip
    return Load(schema, steps, first, settings)


def _ranges(position: int, ranges: Sequence[Range], value: int, at_ms: int) -> Fragment:
    """Return a query of ranges of some columns, which also reads the column `value`."""
    predicate = And(
        tuple(
            Comparison(Ref(column), op, 2 * n + side)
            for n, (column, _, _) in enumerate(ranges)
            for side, op in enumerate((">=", "<="))
        )
    )
    literals = tuple(bound for _, *bounds in ranges for bound in bounds)
    columns = tuple(sorted({value, *(column for column, _, _ in ranges)}))
    return Fragment(
        source="bench", position=position, table_uuid="t", predicate=predicate, literals=literals,
        moving=(None,) * len(literals), projection=columns, weight=1.0, event_ms=at_ms,
        engine="bench",
    )  # fmt: skip


def _step(
    rows: dict[int, Array], per_file: int, asked: Sequence[Sequence[Range]], batch: int, span: int
) -> Step[SimulatedTable]:
    at, value = batch * span, max(rows)
    queries = workload_of_fragments(
        _ranges(1_000 * batch + n, ranges, value, at + n * 60_000) for n, ranges in enumerate(asked)
    ).shapes
    return arriving(rows, per_file, queries, at + span // 2)


MONTH, DSB_BATCHES, DSB_ROWS, DSB_PER_FILE = 30, 72, 2_400, 200
DSB_TEMPLATES, DSB_BY_DATE, DSB_BY_SHIPPING = 30, 18, 3
"""Templates, and how many of them have a range of the date sold, and of the date shipped."""

DOMAINS = {4: 10_000, 5: 10_000, 6: 200, 8: 50, 9: 1_000, 10: 10_000}
"""By field id, the values that queries choose from: keys, a skewed one, and few distinct ones."""

SOLD, SHIPPED, NEAR = 2, 3, 7
"""The dates, and a column that grows with them."""


def dsb_like(seed: int) -> Load:
    """30 templates with ranges of up to three of ten columns, dates about a month that advances;
    all literals are new in each batch."""
    random, templates = np.random.default_rng(seed), _templates()
    steps = []
    for batch in range(DSB_BATCHES):
        rows = _sales(random, batch)
        asked = [[_dsb_range(random, batch, column) for column in one] for one in templates]
        steps.append(_step(rows, DSB_PER_FILE, asked, batch, 2 * DAY_MS))
    names = ("number", "sold", "shipped", "item", "customer", "store", "near", "kind", "promotion",
             "address", "value")  # fmt: skip
    return _load(names, DSB_PER_FILE, steps, 24)


def _templates() -> list[list[int]]:
    """Return the columns of each template, the same for every seed."""
    random, found = np.random.default_rng(99), []
    for number in range(DSB_TEMPLATES):
        dated = [SOLD] if number < DSB_BY_DATE else []
        dated += [SHIPPED] if DSB_BY_DATE <= number < DSB_BY_DATE + DSB_BY_SHIPPING else []
        least = 0 if dated else 1
        others = random.choice(np.arange(4, 11), random.integers(least, 3), replace=False)
        found.append([*dated, *others.tolist()])
    return found


def _sales(random: np.random.Generator, batch: int) -> dict[int, Array]:
    count = DSB_ROWS
    day = batch * MONTH + np.sort(random.integers(0, MONTH, count))
    keys = {column: random.integers(0, domain, count) for column, domain in DOMAINS.items()}
    return {
        1: np.arange(batch * count, (batch + 1) * count),
        SOLD: day + random.integers(0, 91, count),
        SHIPPED: day + random.integers(30, 400, count),
        **keys,
        6: np.minimum(random.zipf(1.3, count), 10_000),
        NEAR: day // 10 * 10 + random.integers(0, 600, count),
        11: random.integers(0, 1 << 40, count),
    }


def _dsb_range(random: np.random.Generator, batch: int, column: int) -> Range:
    if column in (SOLD, SHIPPED, NEAR):
        low = int(batch * MONTH - abs(random.normal(0, 2)) * 3 * MONTH)
        return column, low, low + 2 * MONTH
    domain = DOMAINS[column]
    width = max(1, int(domain * (0.04 if column == 8 else 0.02)))
    low = int(np.clip(random.normal(domain / 2, domain / 4), 0, domain - width))
    return column, low, low + width - 1


DAYS, LOG_ROWS, LOG_PER_FILE, LOG_QUERIES, NETS = 120, 2_000, 200, 12, 4_000
DAY_S = 86_400


def logs_like(seed: int) -> Load:
    """Three of four queries want one of 4,000 subnets, half of them in one week; the others want an
    hour. Recent days are asked for most."""
    random = np.random.default_rng(seed)
    nets = random.permutation(NETS)
    steps = []
    for day in range(DAYS):
        rows = _requests(random, nets, day)
        asked = [_log_ranges(random, nets, day, number) for number in range(LOG_QUERIES)]
        steps.append(_step(rows, LOG_PER_FILE, asked, day, DAY_MS))
    names = ("at", "address", "status", "path", "agent")
    return _load(names, LOG_PER_FILE, steps, 30)


def _requests(random: np.random.Generator, nets: Array, day: int) -> dict[int, Array]:
    count = LOG_ROWS
    net = nets[np.minimum(random.zipf(1.2, count), NETS) - 1]
    return {
        1: day * DAY_S + np.sort(random.integers(0, DAY_S, count)),
        2: net * 65_536 + random.integers(0, 65_536, count),
        3: random.choice([200, 304, 404, 500], count, p=[0.8, 0.1, 0.09, 0.01]),
        4: np.minimum(random.zipf(1.2, count), 50_000),
        5: random.integers(0, 1 << 40, count),
    }


def _log_ranges(random: np.random.Generator, nets: Array, day: int, number: int) -> list[Range]:
    back = min(int(random.zipf(2.0)) - 1, day)
    if number % 4 == 3:
        start = (day - back) * DAY_S + int(random.integers(0, 80_000))
        return [(1, start, start + 3_600)]
    net = int(nets[random.integers(20, NETS)])
    ranges = [(2, net * 65_536, net * 65_536 + 65_535)]
    if random.random() < 0.5:
        ranges.append((1, (day - back - 6) * DAY_S, (day - back + 1) * DAY_S))
    return ranges
