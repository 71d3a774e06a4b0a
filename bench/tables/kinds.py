"""The kinds of tables of the bench: what people keep in tables, and what they ask of it.

Each is a function of a seed, which draws sizes, values and queries. Tables are of a few megabytes
to a few dozen; files are as small as their target, so that their layout matters.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from bench.tables.drawn import (
    DAY,
    DAYS,
    NOW,
    START,
    Ask,
    Drawn,
    Random,
    drawn,
    random_of,
    text,
    times,
)
from reconciler.plan import reasons

HEAVY = 2_000.0
"""Queries a day that make a layout worth its rewriting at this scale."""


def _size(random: Random, low: int, high: int) -> int:
    return int(np.exp(random.uniform(np.log(low), np.log(high))))


def _zipf(random: Random, count: int, rows: int, exponent: float = 1.2) -> np.ndarray:
    weights = 1.0 / np.arange(1, count + 1) ** exponent
    return random.choice(count, rows, p=weights / weights.sum())


def _words(random: Random, rows: int, length: int = 12) -> list[str]:
    return [random.bytes(length).hex() for _ in range(rows)]


def _pick(low: int, high: int, sql: str) -> Ask:
    """A lookup of an integer of [low, high)."""
    return lambda random, at: sql.format(t="{t}", v=int(random.integers(low, high)))


def _span(low: int, high: int, width: int, sql: str) -> Ask:
    def ask(random: Random, at: dt.datetime) -> str:
        first = int(random.integers(low, max(low + 1, high - width)))
        return sql.format(t="{t}", a=first, b=first + width)

    return ask


def orders(seed: int) -> Drawn:
    """In order of the order number; looked up by customer."""
    random = random_of("orders", seed)
    files, rows = _size(random, 16, 40), _size(random, 8_000, 30_000)
    customers = _size(random, 5_000, 60_000)
    batches = [
        pa.table({
            "order_id": np.arange(n * rows, (n + 1) * rows),
            "customer": random.integers(0, customers, rows),
            "placed": times(random, START + DAYS * DAY * n / files, DAYS * DAY / files, rows),
            "status": random.choice(["new", "paid", "sent", "back"], rows, p=[0.1, 0.2, 0.6, 0.1]),
            "total": np.round(random.gamma(2.0, 40.0, rows), 2),
        })
        for n in range(files)
    ]  # fmt: skip
    asks = [
        (_pick(0, customers, "SELECT order_id, total FROM {t} WHERE customer = {v}"), HEAVY),
        (_span(0, files * rows, rows // 4,
               "SELECT status, total FROM {t} WHERE order_id BETWEEN {a} AND {b}"), HEAVY / 10),
    ]  # fmt: skip
    return drawn("orders", seed, batches, asks, ("customer", "order_id"))


def trips(seed: int) -> Drawn:
    """Rides in order of time; asked by zone and day."""
    random = random_of("trips", seed)
    rows, zones = _size(random, 15_000, 45_000), _size(random, 60, 260)
    batches = [
        pa.table({
            "begin": times(random, START + n * DAY, DAY, rows),
            "zone": _zipf(random, zones, rows).astype(np.int32),
            "distance": np.round(random.gamma(2.0, 2.0, rows), 2),
            "fare": np.round(random.gamma(3.0, 5.0, rows), 2),
            "vendor": random.integers(1, 7, rows).astype(np.int32),
        })
        for n in range(DAYS)
    ]  # fmt: skip

    def on_a_day(random: Random, at: dt.datetime) -> str:
        first = START + int(random.integers(0, DAYS)) * DAY
        zone = int(random.integers(0, zones))
        return (
            f"SELECT fare, distance FROM {{t}} WHERE zone = {zone} "
            f"AND begin >= {text(first)} AND begin < {text(first + DAY)}"
        )

    lookup = _pick(0, zones, "SELECT fare FROM {t} WHERE zone = {v}")
    asks = [(on_a_day, HEAVY), (lookup, HEAVY / 2)]
    return drawn("trips", seed, batches, asks, ("zone", "begin"), target=1 << 20)


def sensors(seed: int) -> Drawn:
    """A file a day; a device's last day: a window that moves with time."""
    random = random_of("sensors", seed)
    rows, devices = _size(random, 20_000, 60_000), _size(random, 200, 2_000)
    batches = [_readings(random, START + n * DAY, rows, devices) for n in range(DAYS)]
    a_day = float(random.uniform(20, 60))

    def last_day(random: Random, at: dt.datetime) -> str:
        device = int(random.integers(0, devices))
        since = text(at - DAY)
        return f"SELECT ts, value FROM {{t}} WHERE device_id = {device} AND ts >= {since}"

    return drawn("sensors", seed, batches, [(last_day, a_day)], ("device_id", "ts"),
                 window=("ts", NOW - DAY), target=1 << 20)  # fmt: skip


def sensors_midnight(seed: int) -> Drawn:
    """As sensors, but a file ends at midnight: the window of now begins in the middle of one."""
    random = random_of("sensors_midnight", seed)
    rows, devices = _size(random, 20_000, 60_000), _size(random, 200, 2_000)
    midnight = NOW.replace(hour=0)
    batches = [_readings(random, midnight - n * DAY, rows, devices) for n in range(DAYS, 0, -1)]
    batches.append(_readings(random, midnight, rows // 2, devices, NOW - midnight))
    a_day = float(random.uniform(20, 60))

    def last_day(random: Random, at: dt.datetime) -> str:
        device = int(random.integers(0, devices))
        since = text(at - DAY)
        return f"SELECT ts, value FROM {{t}} WHERE device_id = {device} AND ts >= {since}"

    return drawn("sensors_midnight", seed, batches, [(last_day, a_day)], ("device_id", "ts"),
                 window=("ts", NOW - DAY), target=1 << 20)  # fmt: skip


def _readings(
    random: Random, start: dt.datetime, rows: int, devices: int, span: dt.timedelta = DAY
) -> pa.Table:
    return pa.table({
        "ts": times(random, start, span, rows),
        "device_id": random.integers(0, devices, rows),
        "value": np.round(random.normal(20.0, 5.0, rows), 3),
        "battery": random.integers(0, 100, rows).astype(np.int32),
    })  # fmt: skip


def sensors_busy(seed: int) -> Drawn:
    """The last five days of a device, asked so often that the newest files are worth sorting."""
    random = random_of("sensors_busy", seed)
    rows, devices = _size(random, 30_000, 60_000), _size(random, 300, 2_000)
    batches = []
    for n in range(DAYS):
        day = _readings(random, START + n * DAY, rows, devices)
        batches += [day.slice(at, rows // 4) for at in range(0, 4 * (rows // 4), rows // 4)]

    def last_days(random: Random, at: dt.datetime) -> str:
        device = int(random.integers(0, devices))
        since = text(at - 5 * DAY)
        return f"SELECT ts, value FROM {{t}} WHERE device_id = {device} AND ts >= {since}"

    return drawn("sensors_busy", seed, batches, [(last_days, 2 * HEAVY)], ("device_id", "ts"),
                 window=("ts", NOW - 5 * DAY), target=1 << 20)  # fmt: skip


def dashboards(seed: int) -> Drawn:
    """[yesterday, today) and this week, cut to days, of one of many sites."""
    random = random_of("dashboards", seed)
    rows, sites = _size(random, 20_000, 50_000), _size(random, 100, 800)
    batches = [
        pa.table({
            "ts": times(random, START + n * DAY, DAY, rows),
            "site": random.integers(0, sites, rows).astype(np.int32),
            "hits": random.integers(0, 1_000, rows),
        })
        for n in range(DAYS)
    ]  # fmt: skip

    def yesterday(random: Random, at: dt.datetime) -> str:
        today = at.replace(hour=0, minute=0, second=0)
        site = int(random.integers(0, sites))
        return (
            f"SELECT hits FROM {{t}} WHERE site = {site} AND ts >= {text(today - DAY)} "
            f"AND ts < {text(today)}"
        )

    midnight = NOW.replace(hour=0)
    return drawn("dashboards", seed, batches, [(yesterday, HEAVY)], ("site", "ts"),
                 window=("ts", midnight - DAY), target=1 << 20)  # fmt: skip


def clicks(seed: int) -> Drawn:
    """Few users click most; asked by user."""
    random = random_of("clicks", seed)
    files, rows = _size(random, 10, 30), _size(random, 15_000, 40_000)
    users = _size(random, 3_000, 30_000)
    batches = [
        pa.table({
            "user_id": _zipf(random, users, rows),
            "at": times(random, START + DAYS * DAY * n / files, DAYS * DAY / files, rows),
            "url": [f"/p/{x}" for x in _zipf(random, 500, rows)],
            "ms": random.integers(1, 5_000, rows).astype(np.int32),
        })
        for n in range(files)
    ]  # fmt: skip
    ask = _pick(0, users, "SELECT at, url FROM {t} WHERE user_id = {v}")
    return drawn("clicks", seed, batches, [(ask, HEAVY)], ("user_id",), target=1 << 20)


def logs(seed: int) -> Drawn:
    """One predicate, and nearly as many projections as queries."""
    random = random_of("logs", seed)
    files, rows, services = _size(random, 12, 24), _size(random, 8_000, 16_000), 120
    extra = 12
    batches = [
        pa.table({
            "ts": times(random, START + DAYS * DAY * n / files, DAYS * DAY / files, rows),
            "service": [f"svc-{x:03d}" for x in random.integers(0, services, rows)],
            "level": random.choice(["INFO", "WARN", "ERROR"], rows, p=[0.9, 0.08, 0.02]),
            **{f"f{c}": random.integers(0, 10 ** (1 + c % 6), rows) for c in range(extra)},
        })
        for n in range(files)
    ]  # fmt: skip

    def some_columns(random: Random, at: dt.datetime) -> str:
        wanted = sorted(random.choice(extra, int(random.integers(1, 7)), replace=False).tolist())
        shown = ", ".join(f"f{c}" for c in wanted)
        service = int(random.integers(0, services))
        return f"SELECT {shown} FROM {{t}} WHERE service = 'svc-{service:03d}'"

    return drawn("logs", seed, batches, [(some_columns, HEAVY)], ("service", "level"),
                 target=1 << 20)  # fmt: skip


def coupons(seed: int) -> Drawn:
    """Random codes, looked up one at a time; most are never used."""
    random = random_of("coupons", seed)
    files, rows = _size(random, 10, 24), _size(random, 15_000, 30_000)
    codes = [_words(random, rows, 8) for _ in range(files)]
    batches = [
        pa.table({
            "code": codes[n],
            "campaign": random.integers(0, 40, rows).astype(np.int32),
            "used_by": pa.array(random.integers(0, 10**6, rows), mask=random.random(rows) < 0.92),
        })
        for n in range(files)
    ]  # fmt: skip

    def lookup(random: Random, at: dt.datetime) -> str:
        code = codes[int(random.integers(0, files))][int(random.integers(0, rows))]
        return f"SELECT campaign, used_by FROM {{t}} WHERE code = '{code}'"

    return drawn("coupons", seed, batches, [(lookup, HEAVY)], ("code", "campaign"), target=1 << 20)


def wide(seed: int) -> Drawn:
    """Sixty measures beside an account number."""
    random = random_of("wide", seed)
    files, rows, accounts = _size(random, 8, 16), _size(random, 6_000, 12_000), 2_000
    batches = [
        pa.table({
            "account": random.integers(0, accounts, rows),
            "day": pa.array((20_000 + random.integers(0, 400, rows)).astype(np.int32)).cast(
                pa.date32()),
            **{f"m{c}": random.integers(0, 10 ** (1 + c % 5), rows) for c in range(60)},
        })
        for n in range(files)
    ]  # fmt: skip

    def measures(random: Random, at: dt.datetime) -> str:
        shown = ", ".join(f"m{int(c)}" for c in random.choice(60, 5, replace=False))
        account = int(random.integers(0, accounts))
        return f"SELECT {shown} FROM {{t}} WHERE account = {account}"

    return drawn("wide", seed, batches, [(measures, HEAVY)], ("account", "day"))


def nested(seed: int) -> Drawn:
    """A condition on a field of a struct; lists beside it."""
    random = random_of("nested", seed)
    files, rows, people = _size(random, 10, 20), _size(random, 10_000, 20_000), 4_000
    batches = []
    for _ in range(files):
        ids = random.integers(0, people, rows)
        who = [{"id": int(i), "tier": int(i) % 5} for i in ids]
        tags = [[f"t{x}" for x in random.integers(0, 50, int(c))]
                for c in random.integers(0, 4, rows)]  # fmt: skip
        amount = np.round(random.gamma(2.0, 30.0, rows), 2)
        batches.append(pa.table({"who": who, "tags": tags, "amount": amount}))
    ask = _pick(0, people, "SELECT amount FROM {t} WHERE who.id = {v}")
    return drawn("nested", seed, batches, [(ask, HEAVY)], ("who.id",), target=1 << 20)


def nulls(seed: int) -> Drawn:
    """Two columns asked together, one of them with 92 % NULLs."""
    random = random_of("nulls", seed)
    files, rows = _size(random, 12, 24), _size(random, 20_000, 40_000)
    batches = [
        pa.table({
            "a": random.integers(0, 5_000, rows),
            "b": pa.array(random.integers(0, 5_000, rows), mask=random.random(rows) < 0.92),
            "v": random.random(rows),
        })
        for n in range(files)
    ]  # fmt: skip
    asks = [
        (_pick(0, 5_000, "SELECT v FROM {t} WHERE a = {v}"), HEAVY / 2),
        (_pick(0, 5_000, "SELECT v FROM {t} WHERE b = {v}"), HEAVY / 2),
    ]
    return drawn("nulls", seed, batches, asks, ("a", "b"), target=1 << 20)


def skewed(seed: int) -> Drawn:
    """Values and questions both follow a power law: half of the queries ask for one value."""
    random = random_of("skewed", seed)
    files, rows, keys = _size(random, 12, 24), _size(random, 20_000, 40_000), 3_000
    batches = [
        pa.table({"k": _zipf(random, keys, rows, 1.5), "x": random.random(rows),
                  "n": np.arange(i * rows, (i + 1) * rows)})
        for i in range(files)
    ]  # fmt: skip

    def popular(random: Random, at: dt.datetime) -> str:
        return f"SELECT x FROM {{t}} WHERE k = {int(_zipf(random, keys, 1, 1.5)[0])}"

    return drawn("skewed", seed, batches, [(popular, HEAVY)], ("k",), target=1 << 20)


def low_cardinality(seed: int) -> Drawn:
    """A status of eight values: sorting serves and compresses."""
    random = random_of("low_cardinality", seed)
    files, rows = _size(random, 12, 20), _size(random, 25_000, 50_000)
    batches = [
        pa.table({"status": random.integers(0, 8, rows).astype(np.int32),
                  "country": random.integers(0, 30, rows).astype(np.int32),
                  "v": random.random(rows)})
        for _ in range(files)
    ]  # fmt: skip
    asks = [
        (_pick(0, 8, "SELECT v FROM {t} WHERE status = {v}"), HEAVY / 2),
        (_pick(0, 30, "SELECT v FROM {t} WHERE country = {v}"), HEAVY / 2),
    ]
    return drawn("low_cardinality", seed, batches, asks, ("status", "country"), target=1 << 20)


def by_day(seed: int) -> Drawn:
    """Partitioned by day; a product within a day."""
    random = random_of("by_day", seed)
    rows, products = _size(random, 30_000, 60_000), _size(random, 1_000, 8_000)
    batches = []
    for n in range(8):
        for part in range(4):
            start = START + n * DAY + part * DAY / 4
            batches.append(pa.table({
                "ts": times(random, start, DAY / 4, rows // 4),
                "product": random.integers(0, products, rows // 4),
                "price": np.round(random.gamma(2.0, 10.0, rows // 4), 2),
            }))  # fmt: skip

    def product(random: Random, at: dt.datetime) -> str:
        first = START + int(random.integers(0, 8)) * DAY
        number = int(random.integers(0, products))
        return (
            f"SELECT price FROM {{t}} WHERE product = {number} AND ts >= {text(first)} "
            f"AND ts < {text(first + DAY)}"
        )

    return drawn("by_day", seed, batches, [(product, 3 * HEAVY)], ("product", "ts"),
                 partition=(("ts", "day"),), target=1 << 18)  # fmt: skip


def by_bucket(seed: int) -> Drawn:
    """Partitioned by a hash of the account; ranges of time within an account."""
    random = random_of("by_bucket", seed)
    files, rows, accounts = _size(random, 8, 14), _size(random, 30_000, 60_000), 3_000
    batches = [
        pa.table({
            "account": random.integers(0, accounts, rows),
            "ts": times(random, START + DAYS * DAY * n / files, DAYS * DAY / files, rows),
            "amount": np.round(random.gamma(2.0, 50.0, rows), 2),
        })
        for n in range(files)
    ]  # fmt: skip
    ask = _pick(0, accounts, "SELECT ts, amount FROM {t} WHERE account = {v}")
    return drawn("by_bucket", seed, batches, [(ask, 3 * HEAVY)], ("account", "ts"),
                 partition=(("account", "bucket[4]"),), target=1 << 19)  # fmt: skip


def by_identity(seed: int) -> Drawn:
    """Partitioned by region, whose sizes differ much."""
    random = random_of("by_identity", seed)
    files, rows, people = _size(random, 8, 14), _size(random, 25_000, 50_000), 20_000
    names = ["eu", "us", "asia", "africa"]
    batches = [
        pa.table({
            "region": random.choice(names, rows, p=[0.5, 0.3, 0.15, 0.05]),
            "person": random.integers(0, people, rows),
            "score": random.random(rows),
        })
        for _ in range(files)
    ]  # fmt: skip

    def person(random: Random, at: dt.datetime) -> str:
        region = names[int(random.integers(0, 4))]
        number = int(random.integers(0, people))
        return f"SELECT score FROM {{t}} WHERE region = '{region}' AND person = {number}"

    return drawn("by_identity", seed, batches, [(person, 2 * HEAVY)], ("person",),
                 partition=(("region", "identity"),), target=1 << 19)  # fmt: skip


def many_small(seed: int) -> Drawn:
    """Two hundred files of a few kilobytes: opening them is what costs."""
    random = random_of("many_small", seed)
    rows = _size(random, 300, 1_000)
    batches = [
        pa.table({"id": np.arange(n * rows, (n + 1) * rows), "k": random.integers(0, 500, rows),
                  "v": random.random(rows)})
        for n in range(200)
    ]  # fmt: skip
    asks = [(_pick(0, 500, "SELECT v FROM {t} WHERE k = {v}"), 40.0)]
    return drawn("many_small", seed, batches, asks, ("k", "id"), target=4 << 20)


def updated(seed: int) -> Drawn:
    """Rows are deleted by position delete files; accounts are looked up."""
    random = random_of("updated", seed)
    files, rows, accounts = _size(random, 8, 16), _size(random, 20_000, 40_000), 5_000
    batches = [
        pa.table({"id": np.arange(n * rows, (n + 1) * rows),
                  "account": random.integers(0, accounts, rows), "v": random.random(rows)})
        for n in range(files)
    ]  # fmt: skip
    ask = _pick(0, accounts, "SELECT v FROM {t} WHERE account = {v}")
    gone = (f"DELETE FROM {{t}} WHERE account % 97 = {int(random.integers(0, 97))}",
            f"DELETE FROM {{t}} WHERE id % 53 = {int(random.integers(0, 53))}")  # fmt: skip
    return drawn("updated", seed, batches, [(ask, HEAVY)], ("account", "id"), changes=gone,
                 target=1 << 20)  # fmt: skip


def two_columns(seed: int) -> Drawn:
    """Two columns, each asked by half of the queries in ranges: a case for a curve."""
    random = random_of("two_columns", seed)
    files, rows = _size(random, 16, 30), _size(random, 25_000, 45_000)
    batches = [
        pa.table({"x": random.integers(0, 100_000, rows), "y": random.integers(0, 100_000, rows),
                  "v": random.random(rows)})
        for _ in range(files)
    ]  # fmt: skip
    asks = [
        (_span(0, 100_000, 2_000, "SELECT v FROM {t} WHERE x BETWEEN {a} AND {b}"), HEAVY / 2),
        (_span(0, 100_000, 2_000, "SELECT v FROM {t} WHERE y BETWEEN {a} AND {b}"), HEAVY / 2),
    ]
    return drawn("two_columns", seed, batches, asks, ("x", "y"), target=1 << 20)


def prices(seed: int) -> Drawn:
    """Ranges of an amount, of which a part is NaN-free decimals of wide spread."""
    random = random_of("prices", seed)
    files, rows = _size(random, 12, 24), _size(random, 25_000, 45_000)
    batches = [
        pa.table({"amount": np.round(np.exp(random.normal(4.0, 2.0, rows)), 2),
                  "shop": random.integers(0, 300, rows).astype(np.int32),
                  "sku": random.integers(0, 10**6, rows)})
        for _ in range(files)
    ]  # fmt: skip

    def dear(random: Random, at: dt.datetime) -> str:
        low = float(np.exp(random.normal(4.0, 2.0)))
        return f"SELECT sku FROM {{t}} WHERE amount >= {low:.2f} AND amount < {low * 1.02:.2f}"

    return drawn("prices", seed, batches, [(dear, HEAVY)], ("amount", "shop"), target=1 << 20)


def budgeted(seed: int) -> Drawn:
    """Unpartitioned, and three times as large as what may be rewritten in a day."""
    random = random_of("budgeted", seed)
    files, rows, keys = _size(random, 16, 30), _size(random, 20_000, 40_000), 8_000
    batches = [
        pa.table({"k": random.integers(0, keys, rows), "x": random.random(rows),
                  "n": np.arange(i * rows, (i + 1) * rows)})
        for i in range(files)
    ]  # fmt: skip
    ask = _pick(0, keys, "SELECT x FROM {t} WHERE k = {v}")
    return drawn("budgeted", seed, batches, [(ask, HEAVY)], ("k",), target=1 << 20, budget=0.3)


def _plain(random: Random, files: int, rows: int) -> list[pa.Table]:
    return [
        pa.table({"id": np.arange(n * rows, (n + 1) * rows), "k": random.integers(0, 5_000, rows),
                  "v": random.random(rows)})
        for n in range(files)
    ]  # fmt: skip


def unnamed_sizes(seed: int) -> Drawn:
    """Larger, and nobody names the size of its files; of its row groups with every second seed."""
    random = random_of("unnamed_sizes", seed)
    files, rows = _size(random, 8, 12), _size(random, 120_000, 160_000)
    batches = [
        pa.table({"account": random.integers(0, 50_000, rows), "v": random.random(rows),
                  "w": random.random(rows), "x": random.random(rows), "y": random.random(rows)})
        for _ in range(files)
    ]  # fmt: skip
    asks = [(_pick(0, 50_000, "SELECT v, w, x FROM {t} WHERE account = {v}"), HEAVY)]
    return drawn("unnamed_sizes", seed, batches, asks, ("account",), target=0,
                 row_group=(128 << 20) * (seed % 2))  # fmt: skip


def placebo_clustered(seed: int) -> Drawn:
    """Already in the order that the queries ask for, in row groups of the size that it names."""
    random = random_of("placebo_clustered", seed)
    files, rows = 12, _size(random, 60_000, 90_000)
    asks = [(_pick(0, files * rows, "SELECT v FROM {t} WHERE id = {v}"), 400.0)]
    return drawn("placebo_clustered", seed, _plain(random, files, rows), asks, (),
                 target=1 << 20, row_group=128 << 20, whole=True,
                 reason=reasons.WELL_CLUSTERED)  # fmt: skip


def placebo_full_scans(seed: int) -> Drawn:
    """Every query reads the whole table: no condition."""
    random = random_of("placebo_full_scans", seed)

    def everything(random: Random, at: dt.datetime) -> str:
        return "SELECT max(v) FROM {t}"

    return drawn("placebo_full_scans", seed, _plain(random, 12, 64_000), [(everything, 400.0)], (),
                 target=1 << 20, whole=True, reason=reasons.NOT_PRUNABLE,
                 why=reasons.NO_CONDITION)  # fmt: skip


def placebo_joined(seed: int) -> Drawn:
    """Every condition is on the other table of a join."""
    random = random_of("placebo_joined", seed)

    def joined(random: Random, at: dt.datetime) -> str:
        day = int(random.integers(0, 300))
        return (
            "SELECT max(f.v) FROM {t} f JOIN rec.loop.calendar c ON f.k = c.k "
            f"WHERE c.day = {day}"
        )

    return drawn("placebo_joined", seed, _plain(random, 12, 64_000), [(joined, 400.0)], (),
                 target=1 << 20, whole=True, reason=reasons.NOT_PRUNABLE,
                 why=reasons.CONDITION_ELSEWHERE)  # fmt: skip


def placebo_all_match(seed: int) -> Drawn:
    """Conditions that nearly every row meets."""
    random = random_of("placebo_all_match", seed)

    def nearly_all(random: Random, at: dt.datetime) -> str:
        return f"SELECT max(v) FROM {{t}} WHERE k >= {int(random.integers(0, 3))}"

    return drawn("placebo_all_match", seed, _plain(random, 12, 64_000), [(nearly_all, 400.0)], (),
                 target=1 << 20, whole=True, reason=reasons.NOT_PRUNABLE,
                 why=reasons.MATCHES_MOST)  # fmt: skip


def placebo_rare(seed: int) -> Drawn:
    """One query in the log and one to come: it would never pay back."""
    random = random_of("placebo_rare", seed)
    asks = [(_pick(0, 5_000, "SELECT v FROM {t} WHERE k = {v}"), 0.5)]
    made = drawn("placebo_rare", seed, _plain(random, 12, 64_000), asks, (),
                 target=1 << 20, whole=True, reason=reasons.BELOW_COST)  # fmt: skip
    return replace(made, recorded=made.recorded[:1], later=made.later[:1])


def placebo_unasked(seed: int) -> Drawn:
    """No query at all."""
    random = random_of("placebo_unasked", seed)
    return drawn("placebo_unasked", seed, _plain(random, 12, 64_000), [], (),
                 target=1 << 20, whole=True, reason=reasons.NO_WORKLOAD)  # fmt: skip


KINDS: Mapping[str, Callable[[int], Drawn]] = {
    made.__name__: made
    for made in (
        orders, sensors, trips, nulls, wide, clicks, logs, coupons, sensors_busy, sensors_midnight,
        nested, skewed, low_cardinality, by_day, by_bucket, by_identity, many_small, updated,
        two_columns, prices, budgeted, dashboards, unnamed_sizes,
        placebo_clustered, placebo_full_scans, placebo_joined,
        placebo_all_match, placebo_rare, placebo_unasked,
    )
}  # fmt: skip
"""By name, in the order in which `--tables N` takes them."""
