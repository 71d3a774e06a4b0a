"""A routed query has the rows of the query, whoever has written to the table: DuckDB evaluates both
on the table's files."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pytest
from sqlglot import exp

from reconciler.catalog.observe import observe_table
from reconciler.errors import UserError
from reconciler.loop.route import NO_COLUMN, Routed, route
from reconciler.table import block_ids
from reconciler.table.block_ids import BlockTree, base_of, key_of
from reconciler.table.cut_tree import Cut, Tree, made
from reconciler.table.observation import Observation
from reconciler.table.pairs import Pair
from reconciler.table.schema import Field, Schema
from reconciler.table.summary_keys import ATTEMPT_ID, BLOCK_TREES
from reconciler.workload_log import routed_query
from reconciler.workload_log.sql import SqlReader
from reconciler.workload_log.tables import KnownTable, SchemaMap
from tests.conftest import sqlite_catalog
from tests.examples import seeds

BLOCK = "layout_block"
TYPES = {2: "int", 3: "string", 4: "double", 5: "int"}
PAIRS = (Pair(2, "less", 5), Pair(2, "equals", 5), Pair(5, "less", 2))
SCHEMA = pa.schema([
    ("id", pa.int64()), ("day", pa.int32()), ("shop", pa.string()), ("price", pa.float64()),
    ("due", pa.int32()),
])  # fmt: skip
Row = tuple[Any, ...]


class World:
    """A table with block ids of several trees, and those who write to it."""

    def __init__(self, directory: Path, seed: int = 0) -> None:
        from pyiceberg.catalog.sql import SqlCatalog
        from pyiceberg.types import IntegerType

        self.chance, self.directory = random.Random(seed), directory
        (directory / "warehouse").mkdir()
        self.config = sqlite_catalog(directory)
        catalog = SqlCatalog(self.config.name, **dict(self.config.properties))
        catalog.create_namespace("sales")
        self.table = catalog.create_table("sales.t", schema=SCHEMA)
        self.number = 0
        self.trees: list[tuple[Any, Tree]] = []
        self.append(self.rows(20))
        since = self.table.metadata.last_sequence_number
        with self.table.update_schema() as change:
            change.add_column(BLOCK, IntegerType())
        field = self.table.schema().find_field(BLOCK).field_id
        self.set({block_ids.COLUMN: str(field), block_ids.SINCE: str(since)})

    def set(self, properties: dict[str, str]) -> None:
        with self.table.transaction() as change:
            change.set_properties(properties)

    def rows(self, count: int) -> list[Row]:
        found = []
        for _ in range(count):
            self.number += 1
            price = self.chance.choice((None, math.nan, *map(float, range(8))))
            shop = self.chance.choice((None, "", "a", "ab", "b", "shop-1", "shop-2", "z"))
            day, due = (self.chance.choice((None, *range(10))) for _ in range(2))
            found.append((self.number, day, shop, price, due))
        return found

    def append(self, rows: list[Row], ids: list[int | None] | None = None, **summary: str) -> None:
        """One commit of one file. ids: of the rows, where the writer knows the column."""
        schema, values = SCHEMA, list(zip(*rows, strict=True))
        if ids is not None:
            schema = schema.append(pa.field(BLOCK, pa.int32()))
            values.append(tuple(ids))
        arrays = [pa.array(own, one.type) for own, one in zip(values, schema, strict=True)]
        self.table.append(pa.table(arrays, schema=schema), snapshot_properties=dict(**summary))

    def tree(self, depth: int = 3, kept: bool = True) -> tuple[Any, Tree]:
        node = None
        while node is None:
            node = self._node(depth)
        tree = made(node, [0] * _count(node), PAIRS)
        self.trees.append((node, tree))
        if kept:
            used = {one: TYPES[one] for one in tree.cut_columns}
            self.set({block_ids.TREE + key_of(tree): BlockTree(tree, used).text})
        return node, tree

    def _node(self, depth: int) -> Any:
        if not depth or self.chance.random() < 0.15:
            return None
        field = self.chance.choice((2, 3, 4, -1, -2, -3))
        value: Any = {
            2: lambda: self.chance.randrange(10),
            3: lambda: self.chance.choice((b"a", b"ab", b"b", b"shop-2")),
            4: lambda: float(self.chance.randrange(8)),
        }.get(field, lambda: self.chance.randrange(2))()
        odd = self.chance.random()
        if odd < 0.1:
            cut = Cut(field, None)
        elif odd < 0.2 and field == 4:
            cut = Cut(field, math.nan)
        else:
            cut = Cut(field, value, self.chance.random() < 0.5)
        return cut, self._node(depth - 1), self._node(depth - 1)

    def lay_out(self, rows: list[Row], node: Any, tree: Tree, files: int = 4) -> None:
        """Write rows leaf by leaf, as a rewrite of ours does: with what proves it."""
        ordered = sorted(rows, key=lambda row: _leaf(node, row))
        step = max(1, -(-len(ordered) // files))
        proof = {ATTEMPT_ID: "x", BLOCK_TREES: key_of(tree)}
        for begin in range(0, len(ordered), step):
            own = ordered[begin : begin + step]
            ids: list[int | None] = [base_of(key_of(tree)) + _leaf(node, row) for row in own]
            self.append(own, ids, **proof)

    def observed(self) -> Observation:
        return observe_table(self.config, ("sales", "t"), self.directory / "cache")

    def routed(self, sql: str, **more: Any) -> Routed:
        return route(self.observed(), sql, "duckdb", **more)

    def database(self) -> Any:
        """Return DuckDB with the rows of the table's files as table t."""
        self.table.refresh()
        paths = [
            task.file.file_path.removeprefix("file:") for task in self.table.scan().plan_files()
        ]
        names = ", ".join(f"'{path.removeprefix('//')}'" for path in paths)
        db = duckdb.connect()
        db.execute(f"CREATE TABLE t AS SELECT * FROM read_parquet([{names}], union_by_name=true)")
        return db

    def agrees(self, sql: str) -> Routed:
        """Compare the rows of a query and of the routed one."""
        return self.agree([sql])[0]

    def agree(self, queries: list[str]) -> list[Routed]:
        seen, db, found = self.observed(), self.database(), []
        for sql in queries:
            found.append(route(seen, sql, "duckdb"))
            both = (sql, found[-1].sql)
            wanted, got = (sorted(map(str, db.execute(one).fetchall())) for one in both)
            assert got == wanted, found[-1].sql
        return found


def _count(node: Any) -> int:
    return 1 if node is None else _count(node[1]) + _count(node[2])


def _leaf(node: Any, row: Row) -> int:
    """Return the leaf of a row: NULL, values, NaN is the order of a column."""
    if node is None:
        return 0
    cut, low, high = node
    value = _value(row, cut.field_id)
    own = _place(value.encode() if isinstance(value, str) else value)
    where = _place(cut.value)
    left = own < where or (own == where and (cut.inclusive or cut.value is None))
    return _leaf(low, row) if left else _count(low) + _leaf(high, row)


def _value(row: Row, field_id: int) -> Any:
    """Return a row's value in a column, or the truth of a condition between two."""
    if field_id > 0:
        return row[field_id - 1]
    pair = PAIRS[-1 - field_id]
    left, right = (row[one - 1] for one in pair.fields)
    if left is None or right is None:
        return None
    return int(left < right if pair.test == "less" else left == right)


def _place(value: Any) -> tuple[int, Any]:
    if value is None:
        return -1, 0
    return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)


@pytest.fixture
def world(tmp_path: Path) -> Callable[..., World]:
    return lambda seed=0: World(tmp_path, seed)


def _condition(chance: random.Random, depth: int = 2) -> str:
    if depth and chance.random() < 0.5:
        word = chance.choice((" AND ", " OR "))
        found = word.join(_condition(chance, depth - 1) for _ in range(2))
        return f"NOT ({found})" if chance.random() < 0.2 else f"({found})"
    column = chance.choice(("day", "shop", "price"))
    value = {
        "day": str(chance.randrange(-1, 11)),
        "shop": f"'{chance.choice(('a', 'ab', 'shop-2', 'zz', ''))}'",
        "price": f"{chance.randrange(-1, 9)}.0",
    }[column]
    kind = chance.random()
    if kind > 0.75:
        sides = chance.sample(("day", "due"), 2)
        test = f" {chance.choice(('<', '<=', '=', '<>', '>', '>='))} ".join(sides)
        return f"NOT {test}" if chance.random() < 0.3 else test
    if kind < 0.15:
        return f"{column} IS {chance.choice(('', 'NOT '))}NULL"
    if kind < 0.3:
        return f"{column} {chance.choice(('', 'NOT '))}IN ({value}, {value})"
    if kind < 0.4 and column == "shop":
        return f"shop {chance.choice(('', 'NOT '))}LIKE 'a%'"
    if kind < 0.5:
        return f"{column} {chance.choice(('', 'NOT '))}BETWEEN {value} AND {value}"
    return f"{column} {chance.choice(('<', '<=', '=', '<>', '>', '>='))} {value}"


@pytest.mark.parametrize("seed", seeds(10))
def test_rows_are_those_of_the_query_after_whatever_others_did(
    world: Callable[..., World], seed: int
) -> None:
    made_up = world(seed)
    chance, told = made_up.chance, 0
    laid: list[Row] = []
    for _ in range(chance.randint(1, 2)):
        node, tree = made_up.tree()
        rows = made_up.rows(60)
        made_up.lay_out(rows, node, tree)
        laid += rows
    queries = [f"SELECT id FROM t WHERE {_condition(chance)}" for _ in range(25)]
    told += sum(one.changed for one in made_up.agree(queries))
    node, tree = made_up.trees[0]
    kind = chance.randrange(4)
    if kind == 0:  # an append by somebody who knows the column, or does not
        made_up.append(made_up.rows(20), [None] * 20)
    elif kind == 1:  # an UPDATE that copies ids, which are wrong now
        stale = [base_of(key_of(tree)) + _leaf(node, row) for row in laid[:20]]
        made_up.append(made_up.rows(20), [*stale])
    elif kind == 2:  # ids that no tree has
        made_up.append(made_up.rows(20), [7] * 20)
    else:  # a plan that has written one part only, under a tree whose property is gone
        other, lost = made_up.tree(kept=False)
        made_up.lay_out(made_up.rows(30), other, lost, files=1)
    told += sum(one.changed for one in made_up.agree(queries))
    assert told, "some query leaves an id out"


def _laid_out(world: Callable[..., World]) -> tuple[World, Any, Tree, list[Row]]:
    made_up = world()
    node = (Cut(2, 5), (Cut(3, b"b"), None, None), (Cut(4, 4.0), None, None))
    tree = made(node, [0] * 4)
    used = {one: TYPES[one] for one in tree.cut_columns}
    made_up.set({block_ids.TREE + key_of(tree): BlockTree(tree, used).text})
    rows = made_up.rows(80)
    made_up.lay_out(rows, node, tree)
    return made_up, node, tree, rows


FORMS = {
    "SELECT count(*) FROM t WHERE day < 5": True,
    "SELECT x.id FROM t AS x WHERE x.day >= 5 OR x.shop IS NULL": True,
    "SELECT a.id FROM t a JOIN t b ON a.id = b.id WHERE a.day < 3 AND b.day < 3": True,
    "SELECT a.id FROM t a JOIN t b ON a.id = b.id AND b.day < 3": True,
    "WITH c AS (SELECT * FROM t WHERE day > 7) SELECT count(*) FROM c": True,
    "SELECT id FROM t WHERE day < 2 UNION ALL SELECT id FROM t WHERE day > 8": True,
    "SELECT id FROM (SELECT id, day FROM t WHERE day = 3) x WHERE x.id > 10": True,
    "SELECT id FROM t o WHERE EXISTS (SELECT 1 FROM t i WHERE i.id = o.id AND i.day < 2)": True,
    "SELECT id FROM t o WHERE o.id NOT IN (SELECT id FROM t WHERE day < 2)": True,
    "SELECT a.id FROM t a LEFT JOIN t b ON a.id = b.id WHERE a.day < 3": True,
    "SELECT day, count(*) FROM t WHERE day < 3 GROUP BY day HAVING count(*) > 1": True,
    "SELECT a.id FROM t b LEFT JOIN t a ON a.id = b.id WHERE a.day < 3": False,
    "SELECT b.id FROM t a RIGHT JOIN t b ON a.id = b.id WHERE a.day < 3": False,
    "SELECT a.id FROM t b FULL JOIN t a ON a.id = b.id WHERE a.day < 3": False,
    "SELECT id FROM t": False,
    "SELECT id FROM t WHERE id % 2 = 0": False,
    "SELECT a.id FROM t a, t b WHERE a.id = b.id AND a.day < b.day": False,
    "WITH t AS (SELECT 1 AS day, 2 AS id) SELECT id FROM t WHERE day < 5": False,
    "SELECT o.id FROM t o SEMI JOIN t i ON i.id = o.id AND i.day < 2": False,
    "SELECT count(*) FROM t NATURAL JOIN (SELECT id FROM t) q WHERE day < 2": False,
}
"""Whether some read of the table gets a condition."""


def test_conditions_are_added_where_they_follow_and_nowhere_else(
    world: Callable[..., World],
) -> None:
    made_up, *_ = _laid_out(world)
    found = made_up.agree(list(FORMS))
    for (sql, changes), one in zip(FORMS.items(), found, strict=True):
        assert one.changed == changes, (sql, one)
        assert one.changed or one.sql == sql, "unchanged means to the letter"
        assert one.changed or all(read.reason for read in one.reads)


def test_only_the_reads_that_are_safe_get_a_condition(world: Callable[..., World]) -> None:
    made_up, *_ = _laid_out(world)
    sql = "SELECT a.id FROM t a LEFT JOIN t b ON a.id = b.id AND b.day < 2 WHERE a.day < 3"
    first, second = made_up.agrees(sql).reads
    assert first.ids and not first.reason
    assert not second.ids and "outer join" in second.reason


def test_files_that_say_nothing_keep_all_ids(world: Callable[..., World]) -> None:
    """They may hold any id; files that are older than the column hold none."""
    made_up, *_ = _laid_out(world)
    sql = "SELECT id FROM t WHERE day < 5"
    assert made_up.routed(sql).changed
    made_up.set({f"write.metadata.metrics.column.{BLOCK}": "none"})
    made_up.append([(900, 7, "q", 1.0, 3)], [7])
    assert made_up.agrees(sql).changed, "bounds rule the file out"
    made_up.append([(901, 2, "q", 1.0, 3)], [7])
    found = made_up.agrees(sql)
    assert not found.changed and found.reads[0].reason


def test_a_tree_that_cannot_be_read_keeps_all_its_ids(world: Callable[..., World]) -> None:
    made_up, _, tree, _ = _laid_out(world)
    sql = "SELECT id FROM t WHERE day < 5 AND shop = 'a'"
    whole = made_up.agrees(sql)
    name = block_ids.TREE + key_of(tree)
    text = made_up.table.properties[name]
    for wrong in (text.replace("cut-tree:1:", "cut-tree:99:"), text[: len(text) // 2], "{}"):
        made_up.set({name: wrong})
        found = made_up.agrees(sql)
        assert _ids(found) > _ids(whole)
        assert any(key_of(tree) in note for note in found.reads[0].notes)


def test_a_forged_tree_leaves_no_id_out(world: Callable[..., World]) -> None:
    """Its column cannot have the value of its cut: the route ended with an internal error."""
    made_up, *_ = _laid_out(world)
    forged = Tree((Cut(2, b"x"),), (0, -1, -1), (0, 0))
    key = key_of(forged)
    made_up.set({block_ids.TREE + key: BlockTree(forged, {2: "int"}).text})
    proof = {ATTEMPT_ID: "x", BLOCK_TREES: key}
    made_up.append([(900, 2, "a", 1.0, 3)], [base_of(key)], **proof)
    found = made_up.agrees("SELECT id FROM t WHERE day < 5 AND shop = 'a'")
    assert any(key in note for note in found.reads[0].notes)


def _ids(found: Routed) -> int:
    return sum(high - low + 1 for read in found.reads for low, high in read.ids)


def test_a_proof_survives_the_expiry_of_its_snapshot(world: Callable[..., World]) -> None:
    """`remembering` is what our own expiry sets; without it the ids are only not left out."""
    made_up, *_ = _laid_out(world)
    sql = "SELECT id FROM t WHERE day < 5 AND shop = 'a'"
    before = made_up.agrees(sql)
    old = [
        (one.snapshot_id, dict(one.summary.additional_properties))
        for one in made_up.table.metadata.snapshots[:-1]
    ]
    kept = block_ids.remembering(made_up.table.properties, old)
    made_up.table.maintenance.expire_snapshots().by_ids([one for one, _ in old]).commit()
    lost = made_up.agrees(sql)
    assert _ids(lost) > _ids(before) and lost.reads[0].notes
    made_up.set(kept)
    assert made_up.agrees(sql).reads[0].ids == before.reads[0].ids


def test_a_renamed_column_keeps_its_cuts_and_a_retyped_or_dropped_one_does_not(
    world: Callable[..., World],
) -> None:
    made_up, *_ = _laid_out(world)
    before = made_up.routed("SELECT id FROM t WHERE day < 5")
    with made_up.table.update_schema() as change:
        change.rename_column("day", "date")
    renamed = made_up.routed("SELECT id FROM t WHERE date < 5")
    assert renamed.reads[0].ids == before.reads[0].ids
    from pyiceberg.types import LongType

    with made_up.table.update_schema() as change:
        change.update_column("date", LongType())
    retyped = made_up.routed("SELECT id FROM t WHERE date < 5")
    assert not retyped.changed and retyped.reads[0].notes  # every leaf may have such rows


PAIRED = {
    "SELECT id FROM t WHERE day < due": {1, 2},
    "SELECT id FROM t WHERE due > day AND shop = 'a'": {1, 2},
    "SELECT id FROM t WHERE NOT (day < due)": {0},
    "SELECT x.id FROM t x WHERE x.day >= x.due": {0},
    "SELECT id FROM t WHERE day < due OR day IS NULL": {0, 1, 2},
    "SELECT id FROM t WHERE day <= due": {0, 1, 2},
    "SELECT id FROM t WHERE day < id": {0, 1, 2},
    "SELECT a.id FROM t a JOIN t b ON a.id = b.id AND a.day < b.due AND b.day < 10": {0, 1, 2},
    "SELECT id FROM t WHERE day < due AND day >= due": set(),
}
"""Leaves of the tree below that each query keeps: 0 has NULL and false, the others true."""


def _paired(world: Callable[..., World]) -> World:
    made_up = world()
    node = (Cut(-1, 1), None, (Cut(2, 3), None, None))
    tree = made(node, [0] * 3, PAIRS)
    used = {one: TYPES[one] for one in tree.cut_columns}
    made_up.set({block_ids.TREE + key_of(tree): BlockTree(tree, used).text})
    made_up.lay_out(made_up.rows(80), node, tree, files=2)
    return made_up


def test_a_condition_between_columns_keeps_the_leaves_for_which_it_may_be_true(
    world: Callable[..., World],
) -> None:
    """A row with NULL in either column is in neither answer: not of the condition, nor of NOT."""
    made_up = _paired(world)
    for (sql, kept), found in zip(PAIRED.items(), made_up.agree(list(PAIRED)), strict=True):
        assert found.changed == (len(kept) < 3), sql
        if found.changed:
            assert _ids(found) == len(kept), (sql, found.sql)


def test_a_condition_between_columns_of_other_types_than_then_leaves_no_row_out(
    world: Callable[..., World],
) -> None:
    from pyiceberg.types import LongType

    made_up = _paired(world)
    sql = "SELECT id FROM t WHERE day < due"
    assert made_up.agrees(sql).changed
    for name in ("day", "due"):
        with made_up.table.update_schema() as change:
            change.update_column(name, LongType())
        found = made_up.agrees(sql)
        assert not found.changed
    assert found.reads[0].notes, "both have one type again, and not that of the ids"


def test_what_depends_on_the_session_does_not_count(world: Callable[..., World]) -> None:
    made_up, *_ = _laid_out(world)
    for sql in (
        "SELECT id FROM t WHERE day < EXTRACT(day FROM current_date)",
        "SELECT id FROM t WHERE shop < current_user",
        "SELECT id FROM t WHERE day + 0 < random() * 5",
        "SELECT id FROM t WHERE shop < 5",
        "SELECT id FROM t WHERE NOT price >= 4.0",
    ):
        assert not made_up.routed(sql).changed


def _inserted(sql: str, routed: str) -> bool:
    """Whether the second text is the first one with something inserted."""
    rest = iter(routed)
    return all(letter in rest for letter in sql)


TO_THE_LETTER = (
    "SELECT id, shop ~ 'a' FROM t WHERE day < 5 AND shop ~ 'a|b'",
    "SELECT id FROM t WHERE shop !~ 'a' AND day < 5 -- the last line\n",
    "select ID from T where  (Day<5)  /* a note */  order by id limit 3",
    "SELECT id FROM t WHERE day < 3 OR day IS NULL OR day < 2 ORDER BY id",
    "SELECT id FROM (SELECT * FROM t WHERE day < 5) q WHERE q.shop ~ 'a'",
    "SELECT a.id FROM t a JOIN t b ON a.id = b.id AND b.day < 3 AND b.shop ~ 'a' ORDER BY 1",
    "SELECT list_transform([1, 2], x -> x + 1), id FROM t WHERE day < 5 AND id::text ~ '1'",
)


@pytest.mark.parametrize("sql", TO_THE_LETTER)
def test_the_text_stays_as_it_is_but_for_the_conditions(
    world: Callable[..., World], sql: str
) -> None:
    made_up, *_ = _laid_out(world)
    found = made_up.agrees(sql)
    assert found.changed and _inserted(sql, found.sql), found.sql


@pytest.mark.parametrize(
    ("sql", "dialect"),
    [
        ("SELECT id FROM t WHERE id = 9007199254740992e0", "duckdb"),
        ("SELECT id FROM t WHERE id <= CAST(9007199254740993 AS DOUBLE)", "duckdb"),
        ("SELECT id FROM t WHERE day = CAST(16777217 AS FLOAT)", "duckdb"),
        ("SELECT id FROM t WHERE day < 16777217.5", "bigquery"),
        ("SELECT id FROM t WHERE shop = 'A'", "mysql"),
        ("SELECT id FROM t /*+ OPTIONS('snapshot-id'='5') */ WHERE day < 3", "spark"),
        ("SELECT x.id FROM (t y JOIN t x ON x.id = y.id) WHERE x.day < 3", "duckdb"),
        ("SELECT id FROM t@v1 WHERE day < 3", "spark"),
    ],
)
def test_what_engines_may_understand_otherwise_gets_no_condition(
    world: Callable[..., World], sql: str, dialect: str
) -> None:
    made_up, *_ = _laid_out(world)
    found = route(made_up.observed(), sql, dialect)
    assert not found.changed and found.sql == sql


def test_a_quoted_name_is_another_one_than_the_same_without_quotes(
    world: Callable[..., World],
) -> None:
    made_up, *_ = _laid_out(world)
    sql = 'SELECT x.id FROM t AS "x" JOIN t AS X ON "x".id = X.id WHERE x.day < 3'
    quoted, plain = route(made_up.observed(), sql, "snowflake").reads
    assert quoted.reason and plain.ids


BERLIN = ZoneInfo("Europe/Berlin")
TZ, NTZ = exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPNTZ


@pytest.mark.parametrize(
    ("text", "kind", "types", "zone", "usable"),
    [
        ("2024-01-03", "timestamp", (), None, True),
        ("2024-01-03 12:00:00.5", "timestamp", (NTZ,), None, True),
        ("2024-01-03 12:00:00+05", "timestamp", (), dt.UTC, False),
        ("2024-01-03 12:00:00 America/New_York", "timestamp", (), dt.UTC, False),
        ("2024-01-03 12:00:00+05:00", "timestamptz", (TZ,), None, True),
        ("2024-01-03 12:00:00+05:00", "timestamptz", (NTZ,), BERLIN, False),
        ("2024-01-03 12:00:00", "timestamptz", (), None, False),
        ("2024-01-03 12:00:00", "timestamptz", (), BERLIN, True),
        ("2026-10-25 02:30", "timestamptz", (), BERLIN, False),
        ("2026-10-25 03:00:00.123456789", "timestamptz", (), BERLIN, True),
        ("2026-03-29 02:30", "timestamptz", (), BERLIN, False),
        ("2026-03-29 02:15:00", "timestamp", (TZ,), BERLIN, False),
        ("2026-03-29 02:15:00", "timestamp", (NTZ,), BERLIN, True),
        ("2026-01-03 02:15:00", "timestamp", (TZ,), BERLIN, True),
        ("2026-01-03 02:15:00", "timestamp", (TZ,), None, False),
        ("2026-02-30", "timestamptz", (), BERLIN, False),
        ("3 Jan 2024", "date", (), None, False),
    ],
)
def test_times_count_only_where_all_engines_read_them_alike(
    text: str, kind: str, types: tuple[exp.DType, ...], zone: dt.tzinfo | None, usable: bool
) -> None:
    assert routed_query._is_time(text, kind, frozenset(types), zone) == usable


@pytest.mark.parametrize(
    ("condition", "zone", "why"),
    [
        ("at < TIMESTAMP '2026-01-03 12:00:00'", None, routed_query.NO_ZONE),
        ("at < TIMESTAMP '2026-01-03 12:00:00'", BERLIN, ""),
        ("at < TIMESTAMP '2026-03-29 12:00:00'", BERLIN, routed_query.NO_CONDITION),
        ("at < TIMESTAMP_NTZ '2026-01-03 12:00:00'", None, ""),
        ("hour(at) < 3", None, routed_query.NO_CONDITION),
    ],
)
def test_a_condition_that_needs_the_time_zone_says_so(
    condition: str, zone: dt.tzinfo | None, why: str
) -> None:
    """In Spark a TIMESTAMP has a zone: a column without one is converted by that of the session."""
    table = KnownTable("u", "c.s.t", Schema(0, (Field(1, "at", "timestamp"),)))
    reader = SqlReader("spark", SchemaMap({("c", "s", "t"): table}))
    sql = f"SELECT * FROM t WHERE {condition}"
    (found,) = routed_query.parsed(sql, reader, ("c", "s"), table, zone).references
    assert found.why_not == why


def test_properties_of_another_table_leave_no_row_out(world: Callable[..., World]) -> None:
    made_up, *_ = _laid_out(world)
    sql = "SELECT id FROM t WHERE day < 5 AND shop = 'a'"
    made_up.set({f"write.metadata.metrics.column.{BLOCK}": "none"})
    made_up.append([(900, 2, "a", 1.0, 3)], [7])
    made_up.set({block_ids.SINCE: "1000000"})
    made_up.agrees(sql)
    other = made_up.table.schema().find_field("day").field_id
    made_up.set({block_ids.COLUMN: str(other), block_ids.SINCE: "1"})
    made_up.agrees(sql)


@pytest.mark.parametrize("sql", ["SELECT 1", "DELETE FROM t WHERE day < 5", "SELEC x", "", "a; b"])
def test_what_is_no_query_of_the_table_is_the_users_error(
    world: Callable[..., World], sql: str
) -> None:
    with pytest.raises(UserError):
        _laid_out(world)[0].routed(sql)


def test_a_table_without_ids_is_left_alone(tmp_path: Path) -> None:
    made_up = World(tmp_path)
    made_up.table.transaction().remove_properties(block_ids.COLUMN).commit_transaction()
    found = made_up.routed("SELECT id FROM t WHERE day < 5")
    assert not found.changed and found.reads[0].reason == NO_COLUMN
