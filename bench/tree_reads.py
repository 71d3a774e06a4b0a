"""What engines read of tables that lie along trees of cuts, with block ids, and rows that this
program keeps.

`story` maintains tables of format 2 and 3, with and without partitions, while others append, update
and delete. After each step, engines are asked for all rows and for aggregates under conditions, as
they are and as `layoutctl route` writes them. It is part of `bench.trino_reads` and
`bench.flink_reads`; DuckDB is asked beside each, and Spark for the ids of rows that lineage keeps.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

from bench.results import write_section
from bench.trino_kinds import Ask
from reconciler.catalog.observe import observe_table
from reconciler.loop.route import route
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.rewrite import ApplyDeletes, BinPack, Recluster
from reconciler.plan.actions.set_block_column import SetBlockColumn
from reconciler.plan.ordering import ARRIVAL, by_tree
from reconciler.spark.session import session
from reconciler.table.cut_tree import Cut, Tree, made
from reconciler.table.pairs import Pair
from reconciler.table.values import micros
from tests.conftest import SMALL_SESSION, sqlite_catalog, sqlite_spark_conf
from tests.spark.tables import Bench

BLOCK = "block"
COLUMNS = ("id", "sent", "due", "shop", "price", "seen", "amount", "part")
TYPES = (
    "id bigint, sent int, due int, shop string, price double, seen timestamp_ntz, "
    "amount decimal(12,2), part string"
)
ID, SENT, DUE, SHOP, PRICE, SEEN, AMOUNT = range(1, 8)
"""Field ids of the columns."""
PAIRS = (Pair(SENT, "less", DUE),)
START = dt.datetime(2026, 1, 1)
_PLAN = "p-{:016x}"

NOTE = """Wrong answers after each step; "-": the engine does not read this format. Compared are
all rows, and count, sum, least and greatest id under 16 conditions, as they are and as `layoutctl
route` writes them. Rewrites are by the Arrow engine, with Spark's commits. In format 3 Spark finds
the ids and sequence numbers of all rows unchanged after each rewrite."""
Row = dict[str, Any]
Holds = Callable[[Row], bool]
Answers = tuple[list[str], int]
"""What an engine answered wrong, and the reads that were routed."""


@dataclass(frozen=True)
class Engine:
    """An engine that answers SQL."""

    name: str
    """For people."""
    dialect: str
    """Of sqlglot."""
    ask: Ask
    """Sends a query of the table by the name that the statement gives."""
    formats: tuple[int, ...] = (2, 3)
    """Versions of Iceberg's format that it reads."""


@dataclass
class TreeTable:
    """A table along trees, and its rows by id."""

    bench: Bench
    """Makes and changes it."""
    version: int
    """Of Iceberg's format."""
    partitioned: bool
    """Whether by the column part."""
    random: Random = field(default_factory=lambda: Random(32))
    """Draws rows and trees."""
    rows: dict[int, Row] = field(default_factory=dict)
    """What the table holds."""
    trees: list[Tree] = field(default_factory=list)
    """Those that rows were laid along."""
    plans: int = 0
    """How many were carried out."""

    def __post_init__(self) -> None:
        properties = (
            f"'format-version'='{self.version}', 'write.delete.mode'='merge-on-read', "
            "'write.update.mode'='copy-on-write'"
        )
        self.name = self.bench.create(TYPES, properties, "part" if self.partitioned else "")
        for _ in range(3):
            self.append()

    @property
    def title(self) -> str:
        return f"format {self.version}" + (", partitioned" if self.partitioned else "")

    # Others

    def append(self, count: int = 300) -> None:
        start = max(self.rows, default=-1) + 1
        made_ = [self._row(number) for number in range(start, start + count)]
        frame = self.bench.spark.createDataFrame(
            [tuple(row[name] for name in COLUMNS) for row in made_], TYPES
        )
        frame.coalesce(1).writeTo(self.bench.full(self.name)).append()
        self.rows |= {row["id"]: row for row in made_}

    def _row(self, number: int) -> Row:
        chance = self.random
        row = {
            "id": number, "sent": chance.randrange(90), "due": chance.randrange(90),
            "shop": chance.choice(("", "é", *(f"shop-{n}" for n in range(12)))),
            "price": chance.choice((math.nan, *(n * 1.5 for n in range(600)))),
            "seen": START + dt.timedelta(minutes=chance.randrange(90 * 1440)),
            "amount": Decimal(chance.randrange(-(10**8), 10**8)) / 100,
            "part": chance.choice(("p0", "p1")),
        }  # fmt: skip
        return {k: None if k != "id" and chance.random() < 0.08 else v for k, v in row.items()}

    def update(self) -> None:
        """Change rows by copying whole files, with the block ids that their rows had."""
        self.bench.sql(
            f"UPDATE {self.bench.full(self.name)} SET sent = 89 - sent, shop = 'moved' "
            "WHERE id % 7 = 3"
        )
        for row in (row for key, row in self.rows.items() if key % 7 == 3):
            row["sent"] = None if row["sent"] is None else 89 - row["sent"]
            row["shop"] = "moved"

    def delete(self) -> None:
        """Delete rows by position files, or by vectors in format 3."""
        self.bench.sql(f"DELETE FROM {self.bench.full(self.name)} WHERE id % 11 = 5")
        self.rows = {key: row for key, row in self.rows.items() if key % 11 != 5}

    # Ours

    def along(self, leaves: int, target_bytes: int, *, half: bool = False) -> None:
        """Lay all files along a new tree, or one half of a plan that then stops."""
        tree = self.tree(leaves)
        groups = self.groups()
        some = groups[: max(1, len(groups) // 2)] if half else groups
        if half and len(groups) == 1:
            partition, spec, paths = groups[0]
            some = [(partition, spec, paths[: max(1, len(paths) // 2)])]
        self.run(SetBlockColumn(BLOCK, tuple(self.trees)), *(
            Recluster(paths, spec, partition, by_tree(tree), target_bytes, 0, block_column=BLOCK)
            for partition, spec, paths in some
        ))  # fmt: skip

    def merge(self, kind: type[BinPack | ApplyDeletes]) -> None:
        self.run(*(
            kind(paths, spec, partition, ARRIVAL, 1 << 20)
            for partition, spec, paths in self.groups()
            if len(paths) > 1 or kind is ApplyDeletes
        ))  # fmt: skip

    def run(self, *actions: Action) -> None:
        before, self.plans = self.lineage(), self.plans + 1
        request = self.bench.request(self.name, *actions, plan=_PLAN.format(self.plans))
        result = self.bench.run(request)
        if not result.done:
            raise SystemExit(f"{self.title}: {[one.detail for one in result.actions]}")
        if self.lineage() != before:
            raise SystemExit(f"{self.title}: rows have other ids or sequence numbers than before")

    def groups(self) -> list[tuple[tuple[Any, ...], int, tuple[str, ...]]]:
        """Return the files of each partition, with its values and spec."""
        found: dict[Any, list[str]] = {}
        for file in self.bench.files(self.name):
            values = tuple(file.partition) if self.partitioned else ()
            key = tuple(None if one is None else one.encode() for one in values), file.spec_id
            found.setdefault(key, []).append(str(file.file_path))
        return [(*key, tuple(sorted(own))) for key, own in found.items()]

    def tree(self, leaves: int) -> Tree:
        """Return a random tree of about so many leaves, by every type, NULL, NaN and a pair."""
        held = list(self.rows.values())

        def node(own: Sequence[Row], room: int) -> Any:
            if room < 2 or len(own) < 4:
                return None
            cut = self._cut(self.random.choice(own))
            sides: tuple[list[Row], list[Row]] = ([], [])
            for row in own:
                sides[not _left(row, cut)].append(row)
            if not all(sides):
                return node(own, room - 1)
            return cut, node(sides[0], room // 2), node(sides[1], room - room // 2)

        root = None
        while root is None:
            root = node(held, leaves)
        count = _leaves(root)
        inner = [self.random.choice((0, ID, SENT, SHOP, PRICE)) for _ in range(count)]
        tree = made(root, inner, PAIRS)
        self.trees.append(tree)
        return tree

    def _cut(self, row: Row) -> Cut:
        column = self.random.choice((SENT, DUE, SHOP, PRICE, SEEN, AMOUNT, -1))
        if column == -1:
            return Cut(-1, 1)
        value = _domain(row[COLUMNS[column - 1]])
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return Cut(column, value)
        return Cut(column, value, self.random.random() < 0.5)

    # Answers

    def lineage(self) -> list[Any]:
        """Return each row's own number, which rewrites keep from format 3 on."""
        if self.version < 3:
            return []
        columns = "id, _row_id, _last_updated_sequence_number"
        return sorted(map(tuple, self.bench.sql(f"SELECT {columns} FROM {self._full}")))

    @property
    def _full(self) -> str:
        return self.bench.full(self.name)

    def wrong_answers(self, engine: Engine) -> Answers:
        """Ask an engine for all rows, and under conditions."""
        name = f"jobs.{self.name}"
        found = Counter(map(_plain, engine.ask(f"SELECT {SHOWN} FROM {name}")))
        held = Counter(_plain([row[one] for one in COLUMNS]) for row in self.rows.values())
        wrong = [] if found == held else [
            f"all rows: {list((found - held).items())[:2]} too many, "
            f"{list((held - found).items())[:2]} missing"
        ]  # fmt: skip
        sql = " UNION ALL ".join(
            f"SELECT {number}, count(*), sum(id), min(id), max(id) FROM {name} WHERE {where}"
            for number, (where, _) in enumerate(CONDITIONS)
        )
        place = self.bench.directory / "cache"
        seen = observe_table(self.bench.config, ("jobs", self.name), place)
        routed = route(seen, sql, engine.dialect)
        for kind, text in (("", sql), ("routed: ", routed.sql)):
            wrong += [kind + one for one in self._wrong_aggregates(engine.ask(text))]
        return wrong, sum(not read.reason for read in routed.reads)

    def _wrong_aggregates(self, answer: Sequence[Sequence[Any]]) -> Iterator[str]:
        found = {int(number): tuple(of) for number, *of in answer}
        for number, (where, holds) in enumerate(CONDITIONS):
            some = [key for key, row in self.rows.items() if holds(row)]
            expected = len(some), *(f(some) if some else None for f in (sum, min, max))
            if found.get(number) != expected:
                yield f"{where}: {found.get(number)} instead of {expected}"


def _leaves(node: Any) -> int:
    return 1 if node is None else _leaves(node[1]) + _leaves(node[2])


def _domain(value: Any) -> Any:
    """Return a value as trees hold it."""
    if isinstance(value, dt.datetime):
        return micros(value)
    if isinstance(value, Decimal):
        return int(value.scaleb(2))
    return value.encode() if isinstance(value, str) else value


def _left(row: Row, cut: Cut) -> bool:
    """Whether a row goes left, by comparison of its own."""
    if cut.field_id == -1:
        return row["sent"] is None or row["due"] is None or not row["sent"] < row["due"]
    value = _domain(row[COLUMNS[cut.field_id - 1]])
    if value is None or cut.value is None:
        return value is None
    if isinstance(cut.value, float) and math.isnan(cut.value):
        return not math.isnan(value)
    if isinstance(value, float) and math.isnan(value):
        return False
    return bool(value <= cut.value if cut.inclusive else value < cut.value)


def _is(row: Row, test: Callable[..., bool], *names: str) -> bool:
    """Whether a test is true of columns that are not NULL."""
    values = [row[one] for one in names]
    return None not in values and test(*values)


MOMENT = START + dt.timedelta(days=9)
CONDITIONS: tuple[tuple[str, Holds], ...] = (
    ("sent = 12", lambda r: r["sent"] == 12),
    ("sent >= 30 AND sent < 36", lambda r: _is(r, lambda d: 30 <= d < 36, "sent")),
    ("sent IN (3, 40, 88) AND part = 'p1'",
     lambda r: r["sent"] in (3, 40, 88) and r["part"] == "p1"),
    ("shop = 'shop-3'", lambda r: r["shop"] == "shop-3"),
    ("shop = 'moved' AND sent < 20",
     lambda r: r["shop"] == "moved" and _is(r, lambda d: d < 20, "sent")),
    ("shop LIKE 'shop-1%'", lambda r: _is(r, lambda s: s.startswith("shop-1"), "shop")),
    ("shop LIKE '%p-7%'", lambda r: _is(r, lambda s: "p-7" in s, "shop")),
    ("shop IS NULL", lambda r: r["shop"] is None),
    ("sent IS NULL OR part IS NULL", lambda r: r["sent"] is None or r["part"] is None),
    ("sent < due", lambda r: _is(r, lambda a, b: a < b, "sent", "due")),
    ("NOT sent < due AND sent > 80",
     lambda r: _is(r, lambda a, b: a >= b and a > 80, "sent", "due")),
    ("price < 90", lambda r: _is(r, lambda p: p < 90, "price")),
    ("price >= 300 AND price < 360", lambda r: _is(r, lambda p: 300 <= p < 360, "price")),
    (f"seen < TIMESTAMP '{MOMENT}'", lambda r: _is(r, lambda s: s < MOMENT, "seen")),
    ("amount BETWEEN 0 AND 90000.5",
     lambda r: _is(r, lambda a: 0 <= a <= Decimal("90000.5"), "amount")),
    ("sent <= 3 OR price < 30 OR shop = ''",
     lambda r: _is(r, lambda d: d <= 3, "sent") or _is(r, lambda p: p < 30, "price")
     or r["shop"] == ""),
)  # fmt: skip
"""Each means the same in all engines: none asks for numbers above NaN."""


SHOWN = "id, sent, due, shop, price, CAST(seen AS varchar(40)), CAST(amount AS varchar(20)), part"
"""All columns, in a form that engines print alike or `_plain` makes alike."""


def _plain(row: Sequence[Any]) -> tuple[str, ...]:
    """Return values as text that is the same for all engines."""
    key, sent, due, shop, price, seen, amount, part = row
    return (
        str(key), str(sent), str(due), str(shop), str(price if price is None else float(price)),
        str(seen).removesuffix(".000000"),
        str(amount if amount is None else Decimal(amount).quantize(Decimal("0.01"))), str(part),
    )  # fmt: skip


STEPS: tuple[tuple[str, Callable[[TreeTable], None]], ...] = (
    ("leaves that are files", lambda t: t.along(6, 1_000)),
    ("an append without ids", lambda t: t.append()),
    ("a plan that stopped half-way", lambda t: t.along(8, 4_000, half=True)),
    ("an update that copies ids", lambda t: t.update()),
    ("a delete of rows", lambda t: t.delete()),
    ("leaves that are row groups", lambda t: t.along(60, 1 << 20)),
    ("another append", lambda t: t.append()),
    ("deletes of its rows", lambda t: t.delete()),
    ("deletes applied", lambda t: t.merge(ApplyDeletes)),
    ("a third append", lambda t: t.append()),
    ("files merged", lambda t: t.merge(BinPack)),
)
"""What happens to a table, in this order."""


@contextlib.contextmanager
def _bench(directory: Path) -> Iterator[Bench]:
    config = sqlite_catalog(directory)
    conf = {**SMALL_SESSION, **sqlite_spark_conf(directory)}
    spark = session.start(conf, app="trees", master="local[2]")
    try:
        yield Bench(spark, config, directory / "bench")
    finally:
        session.stop(spark)


def _duckdb(bench: Bench) -> Engine:
    from reconciler.demo.witness import connect

    connection = connect()
    connection.execute("CREATE SCHEMA jobs")

    def ask(sql: str) -> list[list[Any]]:
        name = sql.partition(" FROM jobs.")[2].split()[0]
        place = bench.by_pyiceberg(name).metadata_location.removeprefix("file:")
        scan = f"SELECT * FROM iceberg_scan('{place.replace('//', '/')}')"
        connection.execute(f"CREATE OR REPLACE VIEW jobs.{name} AS {scan}")
        return list(map(list, connection.execute(sql).fetchall()))

    return Engine("DuckDB", "duckdb", ask)


def story(directory: Path, engine: Engine) -> Iterator[tuple[str, Mapping[str, Answers]]]:
    """Yield each step with the answers of the engine and of DuckDB by their names."""
    with _bench(directory) as bench:
        engines = engine, _duckdb(bench)
        for version in (2, 3):
            for partitioned in (False, True):
                table = TreeTable(bench, version, partitioned)
                for name, step in STEPS:
                    step(table)
                    yield f"{table.title}: {name}", {
                        one.name: table.wrong_answers(one)
                        for one in engines if version in one.formats
                    }  # fmt: skip


def written_and_read(directory: Path, engine: Engine) -> list[str]:
    """Play all steps, write a section on what the engine answered, and return what was wrong."""
    wrong, table = list[str](), [("read after", "reads routed", engine.name, "DuckDB")]
    for step, found in story(directory, engine):
        print(
            f"{step}: {', '.join(f'{k} {len(v[0])} wrong' for k, v in found.items())}", flush=True
        )
        wrong += [f"{step}, {name}: {one}" for name, (own, _) in found.items() for one in own]
        shown = (str(len(found[one][0])) if one in found else "-" for one in table[0][2:])
        table.append((step, f"{found['DuckDB'][1]} of {len(CONDITIONS)}", *shown))
    name, command = engine.name, f"python -m bench.{engine.name.lower()}_reads"
    write_section(f"{name} reads trees and block ids", command, table, NOTE)
    return wrong
