"""What an engine reads after each kind of action on a table whose rows are kept here.

The engine without a JVM maintains the table, while others append and delete.

`story` carries out one action after the other, and asks a function of SQL after each: all rows, and
aggregates under conditions by which files, row groups and partitions may be skipped. It is part of
`bench.trino_reads` and `bench.flink_reads`, so that its SQL is that of both.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from pyiceberg.transforms import BucketTransform, MonthTransform

from reconciler.plan.actions.rewrite import Recluster, Restore
from reconciler.plan.execution import Audit
from tests.conftest import sqlite_catalog
from tests.delete_commits import delete_equal, delete_positions
from tests.engines.random_tables.actions import KINDS, Draw, Engine, engine
from tests.engines.random_tables.attack import CANDIDATE
from tests.engines.random_tables.reader import Reader

Ask = Callable[[str], list[list[Any]]]
"""Sends a query to an engine, and returns its rows."""

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("bought", pa.date32()),
        ("word", pa.string()),
        ("n", pa.int32()),
        ("amount", pa.decimal128(12, 2)),
    ]
)
NAMESPACE = "loop"
ACTIONS = (
    "pack", "compact", "convert", "apply", "dangling", "manifests", "properties", "order",
    "migrate", "recluster", "expire", "orphans", "restore", "roll back", "block column", "cluster",
    "wait", "publish", "wait", "discard",
)  # fmt: skip
"""What is done, in this order: each kind once. Others write before most."""
_WRITTEN_BEFORE = ("pack", "compact", "convert", "apply", "manifests", "recluster", "wait")
"""Kinds before which others append."""
_DONE: dict[str, Callable[[Draw], list[Any]]] = {
    **KINDS,
    "recluster": lambda draw: draw.rewrite(Recluster),
    "restore": lambda draw: draw.rewrite(Restore),
}


class KeptTable:
    """A table with its rows, as `Draw` wants it."""

    def __init__(self, catalog: Any) -> None:
        self.random, self.reader, self.name = Random(11), Reader(), "kinds"
        self.table = catalog.create_table(f"{NAMESPACE}.{self.name}", SCHEMA)
        self.rows: dict[int, dict[str, Any]] = {}
        self._transforms = itertools.cycle(
            [("bought", MonthTransform()), ("id", BucketTransform(3))]
        )

    def _transform(self) -> tuple[Any, Any]:
        name, transform = next(self._transforms)
        return self.table.schema().find_field(name), transform

    def append(self, count: int = 40) -> None:
        start = max(self.rows, default=-1) + 1
        made = []
        for number in range(start, start + count):
            row = {
                "id": number,
                "bought": dt.date(2026, 1, 1) + dt.timedelta(days=self.random.randrange(90)),
                "word": self.random.choice(("", "a", "é", f"w{number % 7}")),
                "n": self.random.randrange(-(2**31), 2**31),
                "amount": Decimal(self.random.randrange(10**9)) / 100,
            }
            made.append({k: None if k != "id" and self.random.random() < 0.1 else v
                         for k, v in row.items()})  # fmt: skip
        self.table.refresh().append(pa.Table.from_pylist(made, SCHEMA))
        self.rows |= {row["id"]: row for row in made}

    def delete(self, *, by_key: bool) -> None:
        """Delete some rows, by their key or by their place in one file."""
        self.table.refresh()
        if by_key:
            gone = self.random.sample(sorted(self.rows), 5)
            delete_equal(self.table, "id", gone)
        else:
            place, positions, gone = self._places()
            delete_positions(self.table, place, positions)
        for number in gone:
            self.rows.pop(number, None)

    def _places(self) -> tuple[str, list[int], list[int]]:
        import pyarrow.parquet as pq

        head = self.table.current_snapshot().snapshot_id
        files = [
            one.path for one in self.reader.entries(self.table, head) if int(one.file.content) == 0
        ]
        place = self.random.choice(sorted(files))
        ids = pq.read_table(place.removeprefix("file://"), columns=["id"])["id"].to_pylist()
        positions = sorted(self.random.sample(range(len(ids)), min(4, len(ids))))
        return place, positions, [ids[one] for one in positions]


def story(directory: Path, ask: Ask) -> Iterator[tuple[str, list[str]]]:
    """Yield each action with what the engine then answers wrong."""
    from pyiceberg.catalog.sql import SqlCatalog

    with engine(sqlite_catalog(directory), directory) as local:
        catalog = SqlCatalog("rec", **dict(local.config.properties))
        catalog.create_namespace_if_not_exists(NAMESPACE)
        kept = KeptTable(catalog)
        for kind in ACTIONS:
            _others_write(kept, kind)
            done = _carried_out(kept, local, kind)
            yield kind if done else f"{kind}: nothing to do", wrong_answers(kept, ask)


def _others_write(kept: KeptTable, kind: str) -> None:
    if kind in _WRITTEN_BEFORE:
        kept.append()
        kept.append()
    first_spec = kept.table.refresh().spec().spec_id == 0
    if kind in ("convert", "apply") and first_spec:
        kept.delete(by_key=True)
    if kind in ("compact", "apply") and first_spec:
        kept.delete(by_key=False)
        kept.delete(by_key=False)
    if kind == "dangling" and first_spec:
        delete_positions(kept.table.refresh(), "file:///nowhere.parquet", [0])


def _carried_out(kept: KeptTable, local: Engine, kind: str) -> bool:
    kept.table.refresh()
    drawn = (_DONE[kind](Draw(kept, local)) for _ in range(20))  # type: ignore[arg-type]
    actions = next((one for one in drawn if one), None)
    if actions is None:
        return False
    more = {"audit": Audit(CANDIDATE, "", "policy")} if kind == "wait" else {}
    result = local.run(kept, actions, **more)  # type: ignore[arg-type]
    if not (result.done or (kind == "wait" and result.waiting)):
        raise SystemExit(f"{kind}: {[one.detail for one in result.actions]}")
    return True


def wrong_answers(kept: KeptTable, ask: Ask) -> list[str]:
    """Return what an engine answers otherwise than the rows that are kept."""
    name, rows = f"{NAMESPACE}.{kept.name}", list(kept.rows.values())
    wrong = []

    def compare(sql: str, expected: Any) -> None:
        found = Counter(tuple(row) for row in ask(sql))
        if found != Counter(expected):
            wrong.append(f"{sql}: {list((found - Counter(expected)).items())[:3]} too many, "
                         f"{list((Counter(expected) - found).items())[:3]} missing")  # fmt: skip

    shown = "id, CAST(bought AS varchar(20)), word, n, CAST(amount AS varchar(20))"
    compare(f"SELECT {shown} FROM {name}", [_shown(row) for row in rows])
    parts, expected = [], []
    for number, (where, holds) in enumerate(_conditions(kept)):
        some = [row for row in rows if holds(row)]
        parts.append(
            f"SELECT {number}, count(*), count(bought), min(id), sum(CAST(n AS bigint)) "
            f"FROM {name} WHERE {where}"
        )
        numbers = [row["n"] for row in some if row["n"] is not None]
        expected.append((
            number, len(some), sum(row["bought"] is not None for row in some),
            min((row["id"] for row in some), default=None), sum(numbers) if numbers else None,
        ))  # fmt: skip
    compare(" UNION ALL ".join(parts), expected)
    return wrong


def _conditions(kept: KeptTable) -> list[tuple[str, Callable[[dict[str, Any]], bool]]]:
    least, day = sorted(kept.rows)[len(kept.rows) // 2], dt.date(2026, 2, 3)
    return [
        ("true", lambda row: True),
        (f"id BETWEEN {least} AND {least + 9}", lambda row: least <= row["id"] <= least + 9),
        (f"id = {least}", lambda row: row["id"] == least),
        (f"bought = DATE '{day}'", lambda row: row["bought"] == day),
        (f"bought > DATE '{day}'", lambda row: row["bought"] is not None and row["bought"] > day),
        ("word = 'w3'", lambda row: row["word"] == "w3"),
        ("word IS NULL AND n < 0", lambda row: row["word"] is None and (row["n"] or 0) < 0),
        ("n >= 0 AND amount < 1000000", lambda row: row["n"] is not None and row["n"] >= 0
         and row["amount"] is not None and row["amount"] < 1_000_000),
    ]  # fmt: skip


def _shown(row: dict[str, Any]) -> tuple[Any, ...]:
    day, amount = row["bought"], row["amount"]
    return (row["id"], None if day is None else str(day), row["word"], row["n"],
            None if amount is None else f"{amount:.2f}")  # fmt: skip
