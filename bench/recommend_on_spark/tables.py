"""Tables and queries on which recommendations are compared with physical rewrites.

lineitem is TPC-H's, store_sales is TPC-DS's, in the order of their generators. Queries are scans:
conditions that TPC-H and TPC-DS leave on the table once dimensions are resolved, with literals
drawn anew for each. Other tables are drawn from a seed: types, skew, correlation, order of arrival
and queries.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.tables.drawn import DAY, DAYS, START, Ask, Drawn, Random, before_and_after, text

FILES = 16
Make = Callable[[float, int], Drawn]
"""(scale, seed) -> a table and its queries."""

A_DAY = 12.0
"""Queries a day of most shapes."""


def _drawn(
    kind: str,
    seed: int,
    rows: pa.Table,
    asks: list[tuple[Ask, float]],
    columns: tuple[str, ...],
    files: int = FILES,
) -> Drawn:
    size = -(-len(rows) // files)
    batches = tuple(rows.slice(at, size) for at in range(0, len(rows), size))
    recorded, later = before_and_after(kind, seed, asks)
    return Drawn(kind, seed, batches, recorded, later, columns, whole=True)


def _date(first: dt.date, random: Random, days: int) -> dt.date:
    return first + dt.timedelta(days=int(random.integers(0, days)))


def _equal(column: str, values: np.ndarray, columns: str) -> Ask:
    """Return what asks for the columns of the rows with one of the values, drawn anew."""

    def ask(random: Random, at: dt.datetime) -> str:
        value = int(values[int(random.integers(0, len(values)))])
        return f"SELECT {columns} FROM {{t}} WHERE {column} = {value}"

    return ask


def lineitem(scale: float, seed: int = 1) -> Drawn:
    """The scans of TPC-H's queries 1, 3, 6, 7, 14, 15, 19 and 20, and of one order."""
    rows = _tpchgen("lineitem", scale)

    def shipped(width: int, columns: str, more: str = "") -> Ask:
        def ask(random: Random, at: dt.datetime) -> str:
            first = _date(dt.date(1993, 1, 1), random, 1_600)
            last = first + dt.timedelta(days=width)
            return (f"SELECT {columns} FROM {{t}} WHERE l_shipdate >= DATE '{first}' "
                    f"AND l_shipdate < DATE '{last}'{more}")  # fmt: skip

        return ask

    def part(random: Random, at: dt.datetime) -> str:
        first = int(random.integers(1, int(200_000 * scale)))
        return f"SELECT l_quantity, l_extendedprice FROM {{t}} WHERE l_partkey = {first}"

    def received(random: Random, at: dt.datetime) -> str:
        first = _date(dt.date(1993, 1, 1), random, 1_600)
        return (f"SELECT l_orderkey, l_shipmode FROM {{t}} WHERE l_shipmode IN ('MAIL', 'SHIP') "
                f"AND l_receiptdate >= DATE '{first}' "
                f"AND l_receiptdate < DATE '{first + 90 * DAY}'")  # fmt: skip

    money = "l_extendedprice, l_discount"
    asks: list[tuple[Ask, float]] = [
        (shipped(365, money, " AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24"), A_DAY),
        (shipped(30, f"l_partkey, {money}"), A_DAY),
        (shipped(90, f"l_suppkey, {money}"), A_DAY),
        (part, A_DAY),
        (received, A_DAY / 2),
    ]
    return _drawn("lineitem", seed, rows, asks, ("l_shipdate", "l_partkey", "l_receiptdate"))


def store_sales(scale: float, seed: int = 1) -> Drawn:
    """TPC-DS: weeks and months of sale dates, a store, an item, ranges of quantity and price."""
    rows = _dsdgen("store_sales", scale)
    first, days = 2_450_816, 1_823
    items, stores = int(np.asarray(rows["ss_item_sk"]).max()), 12

    def sold(width: int, columns: str) -> Ask:
        def ask(random: Random, at: dt.datetime) -> str:
            day = first + int(random.integers(0, days - width))
            return (
                f"SELECT {columns} FROM {{t}} WHERE ss_sold_date_sk BETWEEN {day} AND {day + width}"
            )

        return ask

    def at_store(random: Random, at: dt.datetime) -> str:
        day, store = first + int(random.integers(0, days - 90)), int(random.integers(1, stores))
        return (f"SELECT ss_item_sk, ss_net_profit FROM {{t}} WHERE ss_store_sk = {store} "
                f"AND ss_sold_date_sk BETWEEN {day} AND {day + 90}")  # fmt: skip

    def item(random: Random, at: dt.datetime) -> str:
        number = int(random.integers(1, items))
        return f"SELECT ss_ticket_number, ss_sales_price FROM {{t}} WHERE ss_item_sk = {number}"

    def quantity(random: Random, at: dt.datetime) -> str:
        low, price = int(random.integers(0, 5)) * 20, int(random.integers(0, 100))
        return (f"SELECT ss_list_price FROM {{t}} WHERE ss_quantity BETWEEN {low} AND {low + 20} "
                f"AND ss_list_price BETWEEN {price} AND {price + 10}")  # fmt: skip

    asks: list[tuple[Ask, float]] = [
        (sold(30, "ss_item_sk, ss_ext_sales_price"), A_DAY),
        (sold(365, "ss_customer_sk, ss_net_paid"), A_DAY / 2),
        (at_store, A_DAY),
        (item, A_DAY),
        (quantity, A_DAY / 2),
    ]
    return _drawn("store_sales", seed, rows, asks, ("ss_sold_date_sk", "ss_item_sk", "ss_store_sk"))


def _dsdgen(table: str, scale: float) -> pa.Table:
    """Return a table of TPC-DS, decimals as doubles."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(f"load '{_extension('tpcds')}'")
        connection.execute(f"CALL dsdgen(sf={scale:g})")
        found = connection.execute(f"SELECT * FROM {table}").fetch_arrow_table()
    plain = [
        column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column
        for column in found.columns
    ]
    return pa.table(plain, names=found.column_names)


def _fact(table: str, day: str, item: str, who: str, number: str, *money: str) -> Make:
    """Return what makes a fact table of TPC-DS: a month and a year of days, an item, a customer.
    money: the columns that these queries read."""

    def made(scale: float, seed: int = 1) -> Drawn:
        rows = _dsdgen(table, scale)
        known = [np.asarray(rows[name].drop_null()) for name in (day, item, who)]
        first, last = int(known[0].min()), int(known[0].max())

        def between(width: int, columns: str) -> Ask:
            def ask(random: Random, at: dt.datetime) -> str:
                low = first + int(random.integers(0, max(last - first - width, 1)))
                return f"SELECT {columns} FROM {{t}} WHERE {day} BETWEEN {low} AND {low + width}"

            return ask

        asks: list[tuple[Ask, float]] = [
            (between(30, f"{item}, {money[0]}"), A_DAY),
            (between(365, f"{who}, {money[1]}"), A_DAY / 2),
            (_equal(item, known[1], f"{number}, {money[0]}"), A_DAY),
            (_equal(who, known[2], f"{day}, {money[1]}"), A_DAY / 2),
        ]
        return _drawn(table, seed, rows, asks, (day, item, who))

    return made


def orders(scale: float, seed: int = 1) -> Drawn:
    """The scans of TPC-H's queries 3, 4, 5, 8 and 10, of one order and of one customer."""
    rows = _tpchgen("orders", scale)
    keys = [np.asarray(rows[name]) for name in ("o_orderkey", "o_custkey")]

    def ordered(width: int, columns: str) -> Ask:
        def ask(random: Random, at: dt.datetime) -> str:
            first = _date(dt.date(1993, 1, 1), random, 1_600)
            last = first + dt.timedelta(days=width)
            return (f"SELECT {columns} FROM {{t}} WHERE o_orderdate >= DATE '{first}' "
                    f"AND o_orderdate < DATE '{last}'")  # fmt: skip

        return ask

    asks: list[tuple[Ask, float]] = [
        (ordered(90, "o_orderkey, o_custkey"), A_DAY),
        (ordered(92, "o_orderkey, o_orderpriority"), A_DAY),
        (ordered(365, "o_orderkey, o_custkey"), A_DAY),
        (_equal("o_orderkey", keys[0], "o_totalprice, o_orderdate"), A_DAY / 2),
        (_equal("o_custkey", keys[1], "o_orderkey, o_orderdate"), A_DAY / 2),
    ]
    return _drawn("orders", seed, rows, asks, ("o_orderdate", "o_custkey"))


def _tpchgen(table: str, scale: float) -> pa.Table:
    with tempfile.TemporaryDirectory() as directory:
        generator = Path(sys.executable).with_name("tpchgen-cli")
        command = [
            generator, "parquet", "-s", f"{scale:g}", f"--tables={table}", "--output-dir", directory
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        return pq.read_table(Path(directory) / f"{table}.parquet")


def _extension(name: str) -> Path:
    found = importlib.util.find_spec(f"duckdb_extension_{name}")
    if found is None or found.origin is None:
        raise SystemExit(f"pip install --no-deps duckdb-extension-{name}==1.5.5")
    return next(Path(found.origin).parent.glob(f"extensions/*/{name}.duckdb_extension"))


def events(scale: float, seed: int = 1) -> Drawn:
    """Events in order of time, of a few large tenants and many small ones."""
    random = np.random.default_rng(seed)
    rows = int(4_000_000 * scale)
    weight = 1.0 / np.arange(1, 2_001) ** 1.1
    tenant = random.choice(2_000, rows, p=weight / weight.sum())
    begun = np.sort(random.integers(0, int((DAYS * DAY).total_seconds()), rows))
    late = begun + random.exponential(3_600, rows).astype(np.int64)
    base = np.datetime64(START, "us")
    table = pa.table({
        "ts": base + (late * 1_000_000).astype("timedelta64[us]"),
        "tenant": tenant, "user": tenant * 1_000 + random.integers(0, 400, rows),
        "kind": random.choice(["view", "click", "buy", "refund"], rows, p=[0.7, 0.2, 0.08, 0.02]),
        "value": np.where(random.random(rows) < 0.3, np.nan, random.gamma(2.0, 10.0, rows)),
        "note": pa.array([f"n{x}" for x in random.integers(0, 50_000, rows)],
                         mask=random.random(rows) < 0.4),
    })  # fmt: skip

    def of_tenant(random: Random, at: dt.datetime) -> str:
        number = int(random.choice(2_000, p=weight / weight.sum()))
        return f"SELECT ts, value FROM {{t}} WHERE tenant = {number}"

    def of_user(random: Random, at: dt.datetime) -> str:
        user = int(tenant[int(random.integers(0, rows))]) * 1_000
        return f"SELECT kind, value FROM {{t}} WHERE user = {user}"

    def of_day(random: Random, at: dt.datetime) -> str:
        first = START + int(random.integers(0, DAYS - 1)) * DAY
        return (f"SELECT value, note FROM {{t}} WHERE kind = 'buy' AND "
                f"ts >= {text(first)} AND ts < {text(first + DAY)}")  # fmt: skip

    asks: list[tuple[Ask, float]] = [(of_tenant, A_DAY), (of_user, A_DAY), (of_day, A_DAY)]
    return _drawn("events", seed, table, asks, ("tenant", "user", "ts"))


def any_table(scale: float, seed: int = 1) -> Drawn:
    """A table drawn at random: what an outsider may bring."""
    random = np.random.default_rng([seed, 77])
    rows = int(random.integers(1_500_000, 4_000_000) * scale)
    columns: dict[str, object] = {}
    draws: list[tuple[str, Callable[[Random], str]]] = []
    base = random.integers(0, 1_000_000, rows)
    for number in range(int(random.integers(3, 7))):
        name, kind = (
            f"c{number}",
            str(random.choice(["int", "zipf", "date", "text", "double", "near"])),
        )
        domain = int(np.exp(random.uniform(np.log(8), np.log(200_000))))
        values = random.integers(0, domain, rows)
        if kind == "zipf":
            weight = 1.0 / np.arange(1, domain + 1) ** float(random.uniform(0.8, 1.6))
            values = random.choice(domain, rows, p=weight / weight.sum())
        if (
            kind == "near"
        ):  # correlated with the others of its kind, and with arrival if that is base
            values = base * domain // 1_000_000 + random.integers(0, max(1, domain // 50), rows)
        columns[name], draw = _column(random, kind, values, domain, name)
        draws.append((name, draw))
    columns["pad"] = [random.bytes(int(random.integers(4, 24))).hex() for _ in range(rows)]
    table = pa.table(columns)
    if random.random() < 0.6:
        order = np.argsort(
            base if random.random() < 0.5 else np.asarray(table[0].to_numpy()), kind="stable"
        )
        table = table.take(order)
    asks: list[tuple[Ask, float]] = []
    shown = ["pad", *(name for name, _ in draws)]
    for _ in range(int(random.integers(2, 6))):
        used = random.choice(len(draws), min(len(draws), int(random.integers(1, 3))), replace=False)
        some = random.choice(shown, int(random.integers(1, len(shown))), replace=False)
        asks.append(
            (_asking([draws[int(u)] for u in used], ", ".join(some)), float(random.uniform(4, 40)))
        )
    files = int(random.integers(4, 40))
    return _drawn("any", seed, table, asks, tuple(n for n, _ in draws)[:3], files=files)


def _asking(used: list[tuple[str, Callable[[Random], str]]], shown: str) -> Ask:
    return lambda random, at: (
        f"SELECT {shown} FROM {{t}} WHERE " + " AND ".join(draw(random) for _, draw in used)
    )


def _column(
    random: Random, kind: str, values: np.ndarray, domain: int, name: str
) -> tuple[object, Callable[[Random], str]]:
    """Return the column, and how a condition on it is drawn."""
    width = max(1, int(domain * float(np.exp(random.uniform(np.log(0.001), np.log(0.2))))))
    single = bool(random.random() < 0.4)
    if kind == "date":
        epoch = dt.date(2020, 1, 1)
        values = values % 1_500
        found = pa.array((values + 18_262).astype(np.int32)).cast(pa.date32())

        def day(random: Random) -> str:
            first = epoch + int(random.integers(0, min(domain, 1_500))) * DAY
            last = first + (min(width, 300) - 1) * DAY
            return f"{name} BETWEEN DATE '{first}' AND DATE '{last}'"

        return found, day
    if kind == "text":
        texts = [f"k{v:07d}" for v in values]
        return (
            texts,
            lambda random: f"{name} = 'k{int(values[int(random.integers(0, len(values)))]):07d}'",
        )
    if kind == "double":
        found = np.where(random.random(len(values)) < 0.05, np.nan, values.astype(np.float64) / 7)
    else:
        found = pa.array(
            values, mask=random.random(len(values)) < float(random.choice([0.0, 0.0, 0.2]))
        )

    def number(random: Random) -> str:
        low = int(values[int(random.integers(0, len(values)))])
        if kind == "double":
            return f"{name} BETWEEN {low / 7} AND {(low + width) / 7}"
        return f"{name} = {low}" if single else f"{name} BETWEEN {low} AND {low + width}"

    return found, number


TABLES: dict[str, Make] = {
    "lineitem": lineitem, "orders": orders, "store_sales": store_sales, "events": events,
    "any": any_table,
    "catalog_sales": _fact("catalog_sales", "cs_sold_date_sk", "cs_item_sk", "cs_bill_customer_sk",
                           "cs_order_number", "cs_ext_sales_price", "cs_net_paid"),
    "web_sales": _fact("web_sales", "ws_sold_date_sk", "ws_item_sk", "ws_bill_customer_sk",
                       "ws_order_number", "ws_ext_sales_price", "ws_net_paid"),
    "store_returns": _fact("store_returns", "sr_returned_date_sk", "sr_item_sk", "sr_customer_sk",
                           "sr_ticket_number", "sr_return_amt", "sr_net_loss"),
}  # fmt: skip
