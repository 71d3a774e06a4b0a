"""Block ids are never wrong, whatever moves rows: a routed query has the rows of the query, by
DuckDB, after appends, updates that copy ids, deletes, and every action that rewrites data files."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual
from pyiceberg.table.snapshots import Operation

from reconciler.catalog.observe import observe_table
from reconciler.loop.route import Routed, route
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.migrate import Migrate
from reconciler.plan.actions.partition_specs import AddSpec
from reconciler.plan.actions.rewrite import ApplyDeletes, BinPack, Cluster, Recluster, Rewrite
from reconciler.plan.actions.set_block_column import SetBlockColumn
from reconciler.plan.ordering import ARRIVAL, Lexicographic, by_tree
from reconciler.table.block_ids import base_of, key_of
from reconciler.table.cut_tree import Cut, Tree, made
from reconciler.table.pairs import Pair
from reconciler.table.schema import SortColumn, SpecField
from tests.conftest import sqlite_catalog
from tests.engines.random_tables import writer
from tests.engines.random_tables.actions import Engine, engine
from tests.engines.random_tables.values import Random
from tests.examples import seeds

BLOCK, NAME, DAYS = "block", "t", 40
PAIRS = (Pair(2, "less", 1),)
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.int64()), ("shop", pa.string())])


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Engine]:
    (tmp_path / "warehouse").mkdir()
    with engine(sqlite_catalog(tmp_path), tmp_path) as made:
        yield made


@dataclass
class World:
    """A table with block ids, on which others and the engine work in turns."""

    local: Engine
    random: random.Random

    def __post_init__(self) -> None:
        self.catalog: Any = SqlCatalog("rec", **dict(self.local.config.properties))
        self.catalog.create_namespace_if_not_exists("loop")
        self.table = self.catalog.create_table(
            f"loop.{NAME}", SCHEMA, properties={"format-version": "2"}
        )
        self.next_id, self.trees = 0, list[Tree]()
        for _ in range(3):
            self.append()

    def tree(self) -> Tree:
        def node(low: int, high: int, depth: int) -> Any:
            if not depth or high - low < 3:
                return None
            if self.random.random() < 0.25:
                return Cut(-1, 1), node(low, high, depth - 1), node(low, high, depth - 1)
            if self.random.random() < 0.25:
                value = f"s{self.random.randrange(5)}".encode()
                return Cut(3, value), node(low, high, depth - 1), node(low, high, depth - 1)
            middle = self.random.randrange(low + 1, high)
            cut = Cut(2, middle)
            return cut, node(low, middle, depth - 1), node(middle, high, depth - 1)

        root = (Cut(2, DAYS // 2), node(0, DAYS // 2, 3), node(DAYS // 2, DAYS, 3))
        leaves = made(root, [], PAIRS).nodes.count(-1)
        return made(root, [self.random.choice((0, 1)) for _ in range(leaves)], PAIRS)

    # Others

    def append(self) -> None:
        rows = [
            {"id": self.next_id + n, "day": self.random.randrange(DAYS),
             "shop": self.random.choice([None, "s1", "s2", "s3"])}
            for n in range(20)
        ]  # fmt: skip
        self.next_id += 20
        self.table.refresh()
        self.table.append(pa.Table.from_pylist(rows, self.table.schema().as_arrow()))

    def update(self) -> None:
        """Give rows another day, as an UPDATE does: their ids are copied."""
        self.table.refresh()
        one = self.random.randrange(self.next_id)
        where = EqualTo("id", one)
        rows = self.table.scan(row_filter=where).to_arrow().to_pylist()
        if rows:
            changed = [{**row, "day": self.random.randrange(DAYS)} for row in rows]
            schema = self.table.schema().as_arrow()
            self.table.overwrite(pa.Table.from_pylist(changed, schema), overwrite_filter=where)

    def delete(self) -> None:
        """Delete rows by copying the others, with their ids."""
        self.table.refresh()
        self.table.delete(GreaterThanOrEqual("id", self.next_id - self.random.randrange(4)))

    def delete_by_position(self) -> None:
        self.table.refresh()
        tasks = list(self.table.scan().plan_files())
        chosen = self.random.choice(tasks).file
        rows = sorted(self.random.sample(range(chosen.record_count), min(3, chosen.record_count)))
        values = [chosen.partition[n] for n in range(len(chosen.partition))]
        at = [(chosen.file_path, row) for row in rows]
        file = writer.position_deletes(Random(1), self.table, at, values, chosen.spec_id)
        writer.commit(self.table, writer.Commit(Operation.OVERWRITE, [(chosen.spec_id, file)]))

    # Ours

    def run(self, *actions: Action) -> None:
        result = self.local.run(SimpleNamespace(name=NAME), list(actions))  # type: ignore[arg-type]
        assert result.done, result
        self.table.refresh()

    def inputs(self) -> tuple[int, tuple[Any, ...], tuple[str, ...]]:
        live = self.local.table(SimpleNamespace(name=NAME)).live  # type: ignore[arg-type]
        files = live(self.table.current_snapshot().snapshot_id).files
        number = self.random.randrange(len(files.partitions))
        paths = [str(p) for p, n in zip(files.path, files.partition, strict=True) if n == number]
        if not paths:
            return self.inputs()
        spec, values = files.partitions[number]
        return int(spec), tuple(values), tuple(sorted(paths))

    def rewrite(self, kind: type[Rewrite]) -> None:
        spec, values, paths = self.inputs()
        order = self.random.choice([ARRIVAL, Lexicographic((SortColumn(2),))])
        some = self.random.sample(paths, self.random.randint(min(2, len(paths)), len(paths)))
        if kind is not BinPack or len(some) > 1:
            self.run(kind(tuple(sorted(some)), spec, values, order, 4_000))

    def recluster(self) -> None:
        spec, values, paths = self.inputs()
        tree = self.tree()
        self.trees.append(tree)
        self.run(
            SetBlockColumn(BLOCK, (tree,)),
            Recluster(paths, spec, values, by_tree(tree), 4_000, 0, block_column=BLOCK),
        )

    def migrate(self) -> None:
        spec, _, paths = self.inputs()
        if self.table.metadata.default_spec_id or spec:
            return
        fields = (SpecField(3, "identity"),)
        self.run(
            AddSpec(1, fields, 0, ("DynamicOverwrites", "EqualityDeletes")),
            Migrate(paths, 0, (), ARRIVAL, 4_000, 0, 1, fields),
        )

    def expire(self) -> None:
        head = self.table.current_snapshot().snapshot_id
        old = [one.snapshot_id for one in self.table.metadata.snapshots if one.snapshot_id != head]
        if old:
            self.run(ExpireSnapshots(tuple(sorted(old)), 0, 1))

    # Queries

    def routed(self) -> tuple[Routed, str]:
        low = self.random.randrange(DAYS)
        shop = self.random.choice(
            ("", " AND shop = 's2'", " AND shop IS NULL", " AND day < id", " AND NOT id > day")
        )
        sql = (
            f"SELECT id, day, shop FROM loop.{NAME} "
            f"WHERE day >= {low} AND day < {low + self.random.randint(1, 12)}{shop}"
        )
        seen = observe_table(self.local.config, ("loop", NAME), self.local.directory / "cache")
        return route(seen, sql), sql

    def answer(self, sql: str) -> list[Any]:
        self.table.refresh()
        rows = self.table.scan().to_arrow()
        with duckdb.connect() as session:
            session.execute("CREATE SCHEMA loop")
            session.register("given", rows)
            session.execute(f"CREATE VIEW loop.{NAME} AS SELECT * FROM given")
            return sorted(session.execute(sql).fetchall(), key=str)

    def ids(self) -> tuple[int, int, int]:
        """Return the rows without an id, with a true one, and with a wrong one of the last tree."""
        self.table.refresh()
        known = self.trees[-1]
        base, found = base_of(key_of(known)), [0, 0, 0]
        for row in self.table.scan().to_arrow().to_pylist():
            block = row[BLOCK]
            found[0 if block is None else 1 if block == base + _leaf(known, row) else 2] += 1
        return found[0], found[1], found[2]


def _leaf(tree: Tree, row: dict[str, Any]) -> int:
    """Return the leaf of a row by a walk of its own."""
    at = 0
    while tree.nodes[at] != -1:
        cut = tree.cuts[tree.nodes[at]]
        value = (row["day"] < row["id"], None, None, row["day"], row["shop"])[cut.field_id + 1]
        own = value.encode() if isinstance(value, str) else value
        if own is None or own < cut.value:
            at += 1
        else:
            open_nodes, at = 1, at + 1
            while open_nodes:
                open_nodes += 1 if tree.nodes[at] != -1 else -1
                at += 1
    return sum(node == -1 for node in tree.nodes[:at])


STEPS = (
    "append", "update", "delete", "delete_by_position", "recluster", "pack", "apply", "cluster",
    "migrate", "expire",
)  # fmt: skip
KINDS = {"pack": BinPack, "apply": ApplyDeletes, "cluster": Cluster}


def _step(world: World, name: str) -> None:
    if name in KINDS:
        world.rewrite(KINDS[name])
    else:
        getattr(world, name)()


@pytest.mark.parametrize("seed", seeds(1))
def test_a_routed_query_has_its_rows_after_everything_that_moves_them(
    local: Engine, seed: int
) -> None:
    world = World(local, random.Random(seed))
    world.recluster()
    assert any(world.routed()[0].changed for _ in range(5))
    for name in world.random.choices(STEPS, k=8):
        before = world.answer(f"SELECT id, day, shop FROM loop.{NAME}")
        _step(world, name)
        if name in KINDS or name in ("recluster", "migrate", "expire"):
            assert world.answer(f"SELECT id, day, shop FROM loop.{NAME}") == before
        for _ in range(2):
            routed, sql = world.routed()
            assert world.answer(routed.sql) == world.answer(sql), (name, routed.sql)


def test_merging_fills_ids_and_queries_that_were_routed_before_stay_true(local: Engine) -> None:
    world = World(local, random.Random(5))
    world.recluster()
    asked = [world.routed() for _ in range(5)]
    world.append()
    world.delete_by_position()
    none, true, wrong = world.ids()
    assert none and true and not wrong
    spec, values, paths = world.inputs()
    world.run(ApplyDeletes(paths, spec, values, ARRIVAL, 4_000))
    assert world.ids() == (0, none + true, 0)
    for routed, sql in asked:
        assert world.answer(routed.sql) == world.answer(sql)
    assert any(routed.changed for routed, _ in asked)
    newly, sql = world.routed()
    assert world.answer(newly.sql) == world.answer(sql)


def test_queries_stay_true_when_others_expire_what_says_which_tree_is_the_newest(
    local: Engine,
) -> None:
    """Our expiry keeps a tree's snapshots in a property. Others' leave that of an older tree, which
    is not the newest for it."""
    world = World(local, random.Random(3))
    world.recluster()
    world.append()
    world.expire()
    world.recluster()
    asked = [world.routed() for _ in range(6)]
    assert any(routed.changed for routed, _ in asked)
    world.append()
    head = world.table.current_snapshot().snapshot_id
    old = [one.snapshot_id for one in world.table.metadata.snapshots if one.snapshot_id != head]
    world.table.maintenance.expire_snapshots().by_ids(old).commit()
    spec, values, paths = world.inputs()
    world.run(BinPack(paths, spec, values, ARRIVAL, 4_000))
    for routed, sql in asked:
        assert world.answer(routed.sql) == world.answer(sql)


def test_rows_that_others_changed_get_true_ids_again(local: Engine) -> None:
    """An UPDATE copies ids, which then name leaves that the rows have left."""
    world = World(local, random.Random(7))
    world.recluster()
    for _ in range(4):
        world.update()
    assert world.ids()[2], "some id must be wrong now, or nothing is shown"
    world.expire()
    spec, values, paths = world.inputs()
    world.run(BinPack(paths, spec, values, ARRIVAL, 4_000))
    assert world.ids()[0] == world.ids()[2] == 0
