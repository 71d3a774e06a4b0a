"""Tables of unlike kinds with the queries of their users, each drawn from a seed.

A query is a range of each column that it filters, and the columns that it reads: the log that
`recommend` gets is made of it, and so is what the bench finds a layout to read.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bench.tables.drawn import DAYS, NOW, Asked, Random, random_of

QUERIES = 240
"""Recorded queries of a table."""
EPOCH = dt.datetime(1970, 1, 1)
FIRST = dt.datetime(2025, 9, 1)
DAY_US = 86_400_000_000

Range = tuple[float | str, float | str]
"""The least and the greatest value that a query asks for, both included."""
Draw = Callable[[Random], dict[str, Range]]


@dataclass(frozen=True, slots=True)
class Query:
    """ranges: of each filtered column, times in microseconds and days in days since 1970; reads:
    the columns that it returns."""

    ranges: Mapping[str, Range]
    reads: tuple[str, ...]


@dataclass(frozen=True)
class Kind:
    """A table: its rows in order of arrival, in how many files they lie, and the queries."""

    name: str
    rows: pa.Table
    files: int
    queries: tuple[Query, ...]

    @property
    def filtered(self) -> tuple[str, ...]:
        """Return the columns that queries filter, the most frequent first."""
        names = [name for query in self.queries for name in query.ranges]
        return tuple(sorted(set(names), key=lambda name: (-names.count(name), name)))

    def log(self) -> tuple[Asked, ...]:
        """Return the queries as SQL, evenly over the days before NOW."""
        step = dt.timedelta(days=DAYS) / len(self.queries)
        return tuple(
            Asked(self._sql(query), NOW - dt.timedelta(days=DAYS) + number * step)
            for number, query in enumerate(self.queries)
        )

    def _sql(self, query: Query) -> str:
        parts = []
        for name, (low, high) in query.ranges.items():
            first, last = (self._literal(name, value) for value in (low, high))
            parts += (
                [f"{name} = {first}"] if low == high else [f"{name} BETWEEN {first} AND {last}"]
            )
        return f"SELECT {', '.join(query.reads)} FROM {{t}} WHERE {' AND '.join(parts)}"

    def _literal(self, name: str, value: float | str) -> str:
        kind = self.rows.schema.field(name).type
        if pa.types.is_timestamp(kind):
            at = EPOCH + dt.timedelta(microseconds=int(value))
            return f"TIMESTAMP_NTZ '{at:%Y-%m-%d %H:%M:%S.%f}'"
        if pa.types.is_date(kind):
            return f"DATE '{EPOCH + dt.timedelta(days=int(value)):%Y-%m-%d}'"
        return f"'{value}'" if isinstance(value, str) else repr(value)


def _asked(
    name: str, seed: int, draws: Sequence[tuple[float, Draw, tuple[str, ...]]]
) -> tuple[Query, ...]:
    """draws: (share of the queries, what they ask, what they read)."""
    random = random_of(name, seed, 7)
    share = np.array([part for part, _, _ in draws])
    found = []
    for number in random.choice(len(draws), QUERIES, p=share / share.sum()):
        _, draw, reads = draws[int(number)]
        found.append(Query(draw(random), reads))
    return tuple(found)


def _zipf(random: Random, domain: int, rows: int, exponent: float) -> np.ndarray:
    weight = 1.0 / np.arange(1, domain + 1) ** exponent
    return random.choice(domain, rows, p=weight / weight.sum())


def _times(micros: np.ndarray) -> pa.Array:
    return pa.array(micros.astype("datetime64[us]"))


def _hex(random: Random, rows: int, width: int) -> list[str]:
    return [random.bytes(width).hex() for _ in range(rows)]


def _within(first: float, length: float, widths: tuple[float, float]) -> Callable[[Random], Range]:
    def draw(random: Random) -> Range:
        width = float(np.exp(random.uniform(np.log(widths[0]), np.log(widths[1]))))
        low = first + random.uniform(0.0, length - width)
        return int(low), int(low + width)

    return draw


START_US = (FIRST - EPOCH).total_seconds() * 1e6


def impressions(rows: int, seed: int) -> Kind:
    """Skewed tenants; rows come in order of time."""
    random, days = random_of("impressions", seed), 60
    at = np.sort(random.integers(0, days * DAY_US, rows)) + int(START_US)
    tenant = _zipf(random, 300, rows, 1.1)
    table = pa.table({
        "ts": _times(at), "tenant": tenant, "campaign": tenant * 20 + random.integers(0, 20, rows),
        "country": random.choice(["de", "fr", "us", "br", "jp", "in"], rows),
        "price": random.gamma(2.0, 3.0, rows), "shown": _hex(random, rows, 8),
    })  # fmt: skip
    time = _within(START_US, days * DAY_US, (DAY_US, 7 * DAY_US))

    def who(random: Random) -> Range:
        one = int(tenant[random.integers(rows)])
        return one, one

    draws: list[tuple[float, Draw, tuple[str, ...]]] = [
        (0.6, lambda r: {"tenant": who(r), "ts": time(r)}, ("campaign", "price")),
        (0.2, lambda r: {"ts": time(r)}, ("country", "price")),
        (0.2, lambda r: {"tenant": who(r)}, ("campaign", "shown")),
    ]
    return Kind("impressions", table, 24, _asked("impressions", seed, draws))


def readings(rows: int, seed: int) -> Kind:
    """Devices that report all the time."""
    random, devices, days = random_of("readings", seed), 400, 30
    at = np.sort(random.integers(0, days * DAY_US, rows)) + int(START_US)
    device = random.integers(0, devices, rows)
    table = pa.table({
        "at": _times(at), "device": device.astype(np.int32),
        "value": np.cumsum(random.normal(0, 1, rows)), "quality": random.integers(0, 4, rows),
        "note": _hex(random, rows, 4),
    })  # fmt: skip
    time = _within(START_US, days * DAY_US, (DAY_US / 4, 4 * DAY_US))

    def one(random: Random) -> Range:
        number = int(random.integers(devices))
        return number, number

    draws: list[tuple[float, Draw, tuple[str, ...]]] = [
        (0.5, lambda r: {"device": one(r), "at": time(r)}, ("value", "quality")),
        (0.25, lambda r: {"at": time(r)}, ("device", "value")),
        (0.25, lambda r: {"device": one(r)}, ("at", "value")),
    ]
    return Kind("readings", table, 30, _asked("readings", seed, draws))


def orders(rows: int, seed: int) -> Kind:
    """Two dates that go together, and a status of five values, of which one is rare."""
    random, days = random_of("orders", seed), 700
    first = (FIRST - EPOCH).days - days
    ordered = first + random.integers(0, days, rows)
    shipped = ordered + 1 + random.geometric(0.08, rows)
    status = random.choice(
        ["done", "open", "sent", "paid", "void"], rows, p=[0.7, 0.03, 0.12, 0.1, 0.05]
    )
    customer = _zipf(random, 40_000, rows, 0.7)
    table = pa.table({
        "id": np.arange(rows), "ordered": pa.array(ordered.astype(np.int32)).cast(pa.date32()),
        "shipped": pa.array(shipped.astype(np.int32)).cast(pa.date32()), "status": status,
        "customer": customer, "amount": random.gamma(2.0, 40.0, rows).round(2),
        "text": _hex(random, rows, 6),
    })  # fmt: skip
    time = _within(first, days, (3.0, 60.0))

    def of_customer(random: Random) -> Range:
        one = int(customer[random.integers(rows)])
        return one, one

    draws: list[tuple[float, Draw, tuple[str, ...]]] = [
        (0.35, lambda r: {"ordered": time(r)}, ("amount", "status")),
        (0.25, lambda r: {"shipped": time(r)}, ("amount", "customer")),
        (0.25, lambda r: {"status": ("open", "open"), "ordered": time(r)}, ("id", "amount")),
        (0.15, lambda r: {"customer": of_customer(r)}, ("id", "ordered", "amount")),
    ]
    return Kind("orders", table, 20, _asked("orders", seed, draws))


def logs(rows: int, seed: int) -> Kind:
    """Time, a level and a service; most bytes are text that is read with few rows."""
    random, days = random_of("logs", seed), 14
    at = np.sort(random.integers(0, days * DAY_US, rows)) + int(START_US)
    levels = ["INFO", "DEBUG", "WARN", "ERROR", "FATAL"]
    level = random.choice(levels, rows, p=[0.6, 0.28, 0.09, 0.028, 0.002])
    service = np.array([f"svc-{number:02d}" for number in range(40)])[_zipf(random, 40, rows, 0.9)]
    words = np.array(["timeout", "retry", "opened", "closed", "refused", "user", "host", "disk"])
    picked = words[random.integers(0, len(words), (rows, 3))]
    tail = _hex(random, rows, 6)
    table = pa.table({
        "ts": _times(at), "level": level, "service": service,
        "text": [" ".join((*three, end)) for three, end in zip(picked.tolist(), tail, strict=True)],
    })  # fmt: skip
    time = _within(START_US, days * DAY_US, (DAY_US / 24, DAY_US))

    def bad(random: Random) -> Range:
        one = str(random.choice(["ERROR", "FATAL", "WARN"], p=[0.7, 0.2, 0.1]))
        return one, one

    def which(random: Random) -> Range:
        one = str(service[random.integers(rows)])
        return one, one

    draws: list[tuple[float, Draw, tuple[str, ...]]] = [
        (0.45, lambda r: {"level": bad(r), "ts": time(r)}, ("service", "text")),
        (0.3, lambda r: {"service": which(r), "ts": time(r)}, ("level", "text")),
        (0.25, lambda r: {"ts": time(r)}, ("level", "service")),
    ]
    return Kind("logs", table, 28, _asked("logs", seed, draws))


def points(rows: int, seed: int) -> Kind:
    """Boxes of three dimensions, in which rows arrive in no order."""
    random = random_of("points", seed)
    centres = random.normal(0.0, 1.0, (12, 3))
    at = centres[random.integers(0, 12, rows)] + random.normal(0.0, 0.5, (rows, 3))
    table = pa.table({
        "x": at[:, 0], "y": at[:, 1], "z": at[:, 2], "mass": random.gamma(2.0, 1.0, rows),
        "label": random.integers(0, 5_000, rows),
    })  # fmt: skip

    def around(random: Random, share: float) -> Range:
        low = float(random.uniform(-2.0, 2.0))
        return round(low, 3), round(low + share * 4.0, 3)

    def box(*names: str, share: float) -> Draw:
        return lambda random: {name: around(random, share) for name in names}

    draws: list[tuple[float, Draw, tuple[str, ...]]] = [
        (0.6, box("x", "y", "z", share=0.2), ("mass",)),
        (0.2, box("x", "y", share=0.1), ("mass", "label")),
        (0.2, box("z", share=0.05), ("label",)),
    ]
    return Kind("points", table, 24, _asked("points", seed, draws))


def scattered(rows: int, seed: int) -> Kind:
    """Nothing helps: each query asks for most values of some of eight random columns."""
    random = random_of("scattered", seed)
    names = [f"c{number}" for number in range(8)]
    table = pa.table({name: random.integers(0, 1_000, rows) for name in names})

    def wide(random: Random) -> dict[str, Range]:
        two = random.choice(8, 2, replace=False)
        spans = [(int(low), int(low) + 850) for low in random.integers(0, 150, 2)]
        return {names[int(one)]: span for one, span in zip(two, spans, strict=True)}

    return Kind("scattered", table, 8, _asked("scattered", seed, [(1.0, wide, ("c0", "c1"))]))


def settled(rows: int, seed: int) -> Kind:
    """Best already: sorted by time, in files of a good size, and asked for times."""
    random, days = random_of("settled", seed), 90
    at = np.sort(random.integers(0, days * DAY_US, rows)) + int(START_US)
    table = pa.table({
        "ts": _times(at), "user": random.integers(0, 50_000, rows),
        "amount": random.gamma(2.0, 10.0, rows), "text": _hex(random, rows, 10),
    })  # fmt: skip
    time = _within(START_US, days * DAY_US, (DAY_US / 2, 4 * DAY_US))
    draws: list[tuple[float, Draw, tuple[str, ...]]] = [
        (1.0, lambda r: {"ts": time(r)}, ("user", "amount", "text"))
    ]
    return Kind("settled", table, 10, _asked("settled", seed, draws))


def explored(rows: int, seed: int) -> Kind:
    """People look at six columns, two or three at a time, at narrow ranges of each."""
    random = random_of("explored", seed)
    names = ["distance", "fare", "delay", "age", "weight", "score"]
    values = np.stack([random.beta(2.0, 5.0, rows) for _ in names])
    table = pa.table({
        **{name: (1_000_000 * values[n]).astype(np.int64) for n, name in enumerate(names)},
        "payload": _hex(random, rows, 10),
    })  # fmt: skip

    def some(random: Random) -> dict[str, Range]:
        used = random.choice(
            6, int(random.integers(2, 4)), replace=False, p=[0.3, 0.2, 0.2, 0.1, 0.1, 0.1]
        )
        found: dict[str, Range] = {}
        for one in used.tolist():
            low = float(random.choice([0.05, 0.12, 0.2, 0.3, 0.4]))
            found[names[one]] = int(1e6 * low), int(1e6 * (low + random.choice([0.05, 0.1])))
        return found

    return Kind("explored", table, 24, _asked("explored", seed, [(1.0, some, ("payload",))]))


KINDS: Mapping[str, Callable[[int, int], Kind]] = {
    make.__name__: make
    for make in (impressions, readings, orders, logs, points, scattered, settled, explored)
}
