"""Three loads beside the protocol: many templates over many columns, the sales of TPC-DS, and logs
of which queries want a thousandth. The first and the last follow Liu et al., sections 6.2.2 and
6.2.3, at the protocol's scale."""

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
    key: int
    """Id of the column by which policies sort that are given one."""


def _load(
    names: Sequence[str], per_file: int, steps: Sequence[Step[SimulatedTable]], first: int, key: int
) -> Load:
    schema = Schema(1, tuple(Field(n, name, "long") for n, name in enumerate(names, start=1)))
    size = 8 * len(names) * per_file
    settings = Settings(
        target_bytes=size, row_group_bytes=size, open_bytes=0,
        rho=Rho(RHO * 2.0 / len(names), "measured"),
    )  # fmt: skip
    return Load(schema, steps, first, settings, key)


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
    return _load(names, DSB_PER_FILE, steps, 24, SOLD)


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


YEAR, YEARS, STORE_PER_FILE, STORE_ROWS, STORE_QUERIES = 12, 5, 200, 14_400, 16
"""Batches of a year, years, rows of a file, rows of a year, and queries of a batch."""

ZONES = (0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2)
"""By month, its zone: months of one zone sell alike, and a query asks for months of one."""

SHARES = (0.049, 0.108, 0.167)
"""By zone, the share of a year's rows in one of its months, as dsdgen makes them."""

(TICKET, DATE, TIME, ITEM, CUSTOMER, STORE, PROMOTION, QUANTITY, WHOLESALE, LIST, PRICE,
 PROFIT) = range(1, 13)  # fmt: skip

WIDTHS = {TIME: 3_600, ITEM: 40, CUSTOMER: 100, STORE: 1, PROMOTION: 3, QUANTITY: 20,
          WHOLESALE: 2_000, LIST: 1_000, PRICE: 5_000, PROFIT: 10_000}  # fmt: skip
"""By field id, how many values a range has. Prices are in cents, times in seconds."""

STORE_DOMAINS = {TIME: (28_800, 75_600), ITEM: (1, 1_801), CUSTOMER: (1, 10_001), STORE: (1, 13),
                 PROMOTION: (1, 301), QUANTITY: (1, 101), WHOLESALE: (100, 10_001),
                 LIST: (100, 20_000), PRICE: (0, 20_000), PROFIT: (0, 20_000)}  # fmt: skip
"""By field id, the values from which ranges are drawn, the last one not included."""

STORE_TEMPLATES: tuple[tuple[int, int, tuple[int, ...]], ...] = (
    (30, 2, (ITEM,)), (30, 0, (ITEM,)), (60, 0, (ITEM, LIST)), (90, 1, ()), (7, 1, ()),
    (360, 0, (STORE,)), (360, 0, (PRICE, PROFIT)), (360, 0, (PROMOTION,)), (360, 0, (CUSTOMER,)),
    (0, 0, (QUANTITY,)), (0, 0, (QUANTITY, LIST)), (0, 0, (QUANTITY, WHOLESALE)),
    (0, 0, (TIME, STORE)), (0, 0, (STORE,)),
)  # fmt: skip
"""Days of the range of dates (0: none), the zone of its months, and the other columns."""


def tpcds_like(seed: int) -> Load:
    """Five years of store_sales in monthly batches, of which two fill a pool.

    Of TPC-DS it has the fact table: tickets of 8 to 16 items of one day, customer and store;
    prices that follow from each other; a month until July with 5 % of a year's rows, until October
    with 11 %, then with 17 %; no order of days within a month. The templates are conditions that
    its queries leave on the table (3, 7, 9, 13, 17, 19, 28, 34, 43, 48, 59, 82, 88, 98 and others
    like them). A range of days begins in one of the months that sell alike.

    It has no joins: keys of dimensions are asked for as ranges, where TPC-DS finds them by names,
    scattered. It has no NULLs, no returns, no disjunctions, and no other fact table. From the
    generator of Liu et al. are the batches, a new mix of templates in each year (Zipf), and that
    half of the queries look back by Zipf; TPC-DS draws years evenly.
    """
    random, steps = np.random.default_rng(seed), []
    mix = np.zeros(0)
    for batch in range(YEARS * YEAR):
        if batch % YEAR == 0:
            mix = 1.0 / (1.0 + random.permutation(len(STORE_TEMPLATES)))
        rows = _tickets(random, batch)
        chosen = random.choice(len(mix), STORE_QUERIES, p=mix / mix.sum())
        asked = [_store_ranges(random, batch, int(number)) for number in chosen]
        steps.append(_step(rows, STORE_PER_FILE, asked, batch, 2 * DAY_MS))
    names = ("ticket", "sold_date", "sold_time", "item", "customer", "store", "promotion",
             "quantity", "wholesale_cost", "list_price", "sales_price", "net_profit")  # fmt: skip
    return _load(names, STORE_PER_FILE, steps, 2 * YEAR, STORE)


def _tickets(random: np.random.Generator, batch: int) -> dict[int, Array]:
    count = round(STORE_ROWS * SHARES[ZONES[batch % YEAR]])
    ticket = np.repeat(np.arange(count), random.integers(8, 17, count))[:count]
    times = random.integers(*STORE_DOMAINS[TIME], count)
    quantity, wholesale = random.integers(1, 101, count), random.integers(100, 10_001, count)
    full = (wholesale * (1.0 + random.random(count))).astype(np.int64)
    price = (full * random.random(count)).astype(np.int64)
    return {
        TICKET: batch * 10_000 + ticket,
        DATE: batch * MONTH + random.integers(0, MONTH, count)[ticket],
        TIME: times[ticket],
        ITEM: random.integers(*STORE_DOMAINS[ITEM], count),
        CUSTOMER: random.integers(*STORE_DOMAINS[CUSTOMER], count)[ticket],
        STORE: random.integers(*STORE_DOMAINS[STORE], count)[ticket],
        PROMOTION: random.integers(*STORE_DOMAINS[PROMOTION], count),
        QUANTITY: quantity, WHOLESALE: wholesale, LIST: full, PRICE: price,
        PROFIT: quantity * (price - wholesale),
    }  # fmt: skip


def _store_ranges(random: np.random.Generator, batch: int, number: int) -> list[Range]:
    days, zone, columns = STORE_TEMPLATES[number]
    found = [_sold(random, batch, days, zone)] if days else []
    for column in columns:
        first, end = STORE_DOMAINS[column]
        low = int(random.integers(first, end - WIDTHS[column] + 1))
        found.append((column, low, low + WIDTHS[column] - 1))
    return found


def _sold(random: np.random.Generator, batch: int, days: int, zone: int) -> Range:
    """Return a range of dates: a year, or days that begin in a month of the zone."""
    months = [month for month in range(batch + 1) if ZONES[month % YEAR] == zone] or [batch]
    even, recent = int(random.integers(0, len(months))), int(random.zipf(2.0)) - 1
    back = min(recent, len(months) - 1) if random.random() < 0.5 else even
    month = months[-1 - back]
    if days == YEAR * MONTH:
        low = month // YEAR * days
    else:
        low = month * MONTH + int(random.integers(0, max(MONTH - days, 0) + 1))
    return DATE, low, low + days - 1


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
    return _load(names, LOG_PER_FILE, steps, 30, 2)


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
