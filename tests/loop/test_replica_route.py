"""A query that is routed to a replica has the rows of the query, whatever others did to the table
or the replica: DuckDB evaluates both on the rows of the tables."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from reconciler.catalog.observe import observe_table
from reconciler.catalog.replica import seen_replica
from reconciler.commit import fields
from reconciler.commit.local_commit import LocalCommit
from reconciler.commit.local_table import LocalTable
from reconciler.commit.table import LiveTable
from reconciler.engines.answers import Kind
from reconciler.engines.commit.operations import NewManifests
from reconciler.errors import TableNotFoundError
from reconciler.loop.replica_settings import replica_name, replica_settings
from reconciler.loop.route import Routed, replica_named, route
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.table.cut_tree import Cut, made
from reconciler.table.numbers import MAX_AGE_MS
from reconciler.table.observation import Observation
from reconciler.table.replica import (
    KEPT_MS,
    LEAST_KEPT_MS,
    OF,
    RECORD,
    Replica,
    Standing,
    WantedReplica,
    replica_of,
    standing,
)
from reconciler.table.times import HOUR_MS
from tests.conftest import sqlite_catalog
from tests.examples import seeds
from tests.loop.test_route import SCHEMA, Row, _condition
from tests.loop.test_step import policy

TREE = made((Cut(2, 5), None, None), [0, 0])


class Pair:
    """A table and its replica, and those who write to either."""

    def __init__(self, directory: Path, seed: int = 0) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        self.chance, self.directory, self.number = random.Random(seed), directory, 0
        (directory / "warehouse").mkdir()
        self.config = sqlite_catalog(directory)
        self.catalog = SqlCatalog(self.config.name, **dict(self.config.properties))
        self.catalog.create_namespace("sales")
        self.table = self.catalog.create_table("sales.t", schema=SCHEMA)
        for _ in range(3):
            self.table.append(self.rows(30))
        self.replica: Any = None

    def rows(self, count: int) -> pa.Table:
        found: list[Row] = []
        for _ in range(count):
            self.number += 1
            price = self.chance.choice((None, *map(float, range(8))))
            shop = self.chance.choice((None, "", "a", "ab", "shop-2", "z"))
            day, due = (self.chance.choice((None, *range(10))) for _ in range(2))
            found.append((self.number, day, shop, price, due))
        arrays = [
            pa.array(own, one.type)
            for own, one in zip(zip(*found, strict=True), SCHEMA, strict=True)
        ]
        return pa.table(arrays, schema=SCHEMA)

    def write(self, *, recorded: bool = True) -> None:
        """Copy all rows in the order of day, as a build does; record it last."""
        rows = self.table.refresh().scan().to_arrow().sort_by("day")
        if self.replica is None:
            uuid = str(self.table.metadata.table_uuid)
            self.replica = self.catalog.create_table(
                "sales.t_by_day", schema=SCHEMA, properties={OF: uuid}
            )
        else:
            self.replica.delete("id > -1")
        mark = {OF: str(self.table.metadata.table_uuid)}
        part = -(-len(rows) // 4)
        for begin in range(0, len(rows), part):
            self.replica.append(rows.slice(begin, part), snapshot_properties=mark)
        if recorded:
            self.record()

    def record(self) -> None:
        copy, table = self.replica.refresh().metadata, self.table.refresh().metadata
        record = Replica(
            "t_by_day", str(copy.table_uuid), copy.current_snapshot_id,
            table.current_snapshot_id, table.current_schema_id, TREE, 1, 1,
            copy.current_schema_id,
        )  # fmt: skip
        with self.table.transaction() as change:
            change.set_properties({RECORD: record.text})

    def compact(self) -> None:
        """Rewrite the manifests of the table: a commit that changes no rows."""
        engine, head = self.engine(), self.table.refresh().metadata.current_snapshot_id
        live = engine.live(head)
        data = [str(one[fields.M_PATH]) for one in live.manifests if not one[fields.M_CONTENT]]
        operation = NewManifests(data, dict.fromkeys(live.files.path.tolist(), 0))
        assert LocalCommit(engine).send(operation, head, {}, None).kind is Kind.ACCEPTED

    def engine(self) -> LocalTable:
        return LocalTable(LiveTable(self.config, ("sales", "t")), self.directory / "cache")

    def seen(self, name: str = "t") -> Observation:
        return observe_table(self.config, ("sales", name), self.directory / "cache")

    def routed(self, *queries: str, dialect: str = "duckdb") -> list[Routed]:
        seen, other = self.seen(), None
        named = replica_named(seen)
        if named is not None:
            try:
                other = self.seen(named[-1])
            except TableNotFoundError:
                other = None
        return [route(seen, sql, dialect, replica=other) for sql in queries]

    def agree(self, *queries: str) -> list[Routed]:
        """Compare the rows of each query and of the routed one."""
        found, db = self.routed(*queries), duckdb.connect()
        db.execute("CREATE SCHEMA sales")
        for name in ("t", "t_by_day") if self.replica is not None else ("t",):
            rows = self.catalog.load_table(f"sales.{name}").scan().to_arrow()
            db.register("rows", rows)
            db.execute(f"CREATE TABLE sales.{name} AS SELECT * FROM rows")
            db.unregister("rows")
        for sql, one in zip(queries, found, strict=True):
            wanted, got = (sorted(map(str, db.execute(text).fetchall())) for text in (sql, one.sql))
            assert got == wanted, one.sql
        return found

    def agrees(self, sql: str) -> Routed:
        return self.agree(sql)[0]


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


SQL = "SELECT id, day FROM sales.t WHERE day = 3"


@pytest.mark.parametrize("seed", seeds(8))
def test_rows_are_those_of_the_query_after_whatever_others_did(tmp_path: Path, seed: int) -> None:
    both = Pair(tmp_path, seed)
    both.write()
    queries = [f"SELECT id FROM sales.t WHERE {_condition(both.chance)}" for _ in range(4)]
    assert both.agrees(SQL).replica
    for _ in range(4):
        kind = both.chance.randrange(5)
        if kind == 0:
            both.table.append(both.rows(9))
        elif kind == 1:
            both.table.delete(f"id = {both.chance.randrange(both.number)} or day = 3")
        elif kind == 2:
            both.replica.append(both.rows(2))
        elif kind == 3:
            both.write(recorded=False)
        else:
            both.write()
        first, *_ = both.agree(SQL, *queries)
        assert bool(first.replica) <= (kind == 4 or kind == 1), "only where it is whole"
    both.write()
    assert both.agrees(SQL).replica


def test_a_replica_is_stale_from_the_first_commit_that_changes_rows(pair: Pair) -> None:
    pair.write()
    found = pair.agrees(SQL)
    assert found.replica == "rec.sales.t_by_day" and found.changed
    (read,) = found.reads
    assert read.bytes_after < read.bytes_before
    pair.table.append(pair.rows(1))
    behind = pair.agrees(SQL)
    assert not behind.replica and behind.not_replica and behind.sql == SQL


@pytest.mark.parametrize(
    "what", ["replica written", "dropped", "column", "emptied column", "made again", "forged"]
)
def test_whatever_is_not_the_recorded_replica_is_not_read(pair: Pair, what: str) -> None:
    pair.write()
    if what == "replica written":
        pair.replica.append(pair.rows(1))
    elif what == "dropped":
        pair.catalog.drop_table("sales.t_by_day")
    elif what == "column":
        with pair.table.update_schema() as change:
            change.rename_column("shop", "store")
    elif what == "emptied column":
        kept = pair.replica.schema().find_type("price")
        with pair.replica.update_schema() as change:
            change.delete_column("price")
        with pair.replica.update_schema() as change:
            change.add_column("price", kept)
    elif what == "made again":
        pair.catalog.drop_table("sales.t_by_day")
        pair.catalog.create_table("sales.t_by_day", schema=SCHEMA).append(pair.rows(1))
    else:
        record = replica_of(pair.seen().properties)
        assert record is not None
        with pair.table.transaction() as change:
            change.set_properties({RECORD: replace(record, snapshot_id=17).text[:-2]})
    if what in ("dropped", "forged"):
        (found,) = pair.routed(SQL)
        assert found.sql == SQL and not found.replica
        return
    found = pair.agrees(SQL)
    assert not found.replica and found.not_replica


@pytest.mark.parametrize("appends", [0, 1])
def test_an_expiry_of_ours_leaves_a_replica_with_the_same_rows_fresh(
    pair: Pair, appends: int
) -> None:
    pair.write()
    pair.compact()
    first = [one.snapshot_id for one in pair.table.refresh().metadata.snapshots[:-1]]
    for _ in range(appends):
        pair.table.append(pair.rows(9))
    expiry = ExpireSnapshots(tuple(sorted(first)))
    assert pair.engine().change(expiry).send().kind is Kind.ACCEPTED
    seen = pair.seen()
    record = replica_of(seen.properties)
    assert record is not None and record.source_snapshot_id not in first
    found = standing(record, seen.metadata)
    expected = Standing.BEHIND if appends else Standing.FRESH
    assert (found.standing, len(found.appended)) == (expected, appends)
    assert bool(pair.agrees(SQL).replica) is not bool(appends)


REPLICA = {"table": "t_by_day", "budgetBytes": "1Gi"}
DAYS = {"expireSnapshots": {"olderThan": "48h", "retainLast": 1}}


def _wanted(pair: Pair, **spec: Any) -> WantedReplica:
    layout = {"clustering": {"mode": "QdTree", "qdTree": {"replica": REPLICA}}}
    asked = policy("t", layout=layout, **spec).spec
    looked = seen_replica(pair.config, ("sales", replica_name(asked)), 30.0)
    found = replica_settings(asked, pair.seen(), looked)
    assert found is not None
    return found


def test_what_stands_under_the_replicas_name_is_looked_at(pair: Pair) -> None:
    none = _wanted(pair)
    assert (none.table, none.foreign, none.lost) == ("t_by_day", "", "")
    pair.write()
    fresh = _wanted(pair)
    assert (fresh.foreign, fresh.lost) == ("", "")
    pair.replica.append(pair.rows(1))
    written = _wanted(pair)
    assert written.foreign and written.lost
    pair.catalog.drop_table("sales.t_by_day")
    dropped = _wanted(pair)
    assert dropped.lost and not dropped.foreign
    pair.catalog.create_table("sales.t_by_day", schema=SCHEMA).append(pair.rows(1))
    assert _wanted(pair).foreign


def test_replaced_rows_stay_as_long_as_old_snapshots_of_the_table(pair: Pair) -> None:
    assert _wanted(pair).kept_ms == KEPT_MS
    assert _wanted(pair, maintenance=DAYS).kept_ms == 48 * HOUR_MS
    none = {"expireSnapshots": {"olderThan": "0s", "retainLast": 1}}
    assert _wanted(pair, maintenance=none).kept_ms == LEAST_KEPT_MS
    with pair.table.transaction() as change:
        change.set_properties({MAX_AGE_MS: str(72 * HOUR_MS)})
    assert _wanted(pair).kept_ms == _wanted(pair, maintenance=DAYS).kept_ms == 72 * HOUR_MS


def test_a_query_that_the_table_serves_as_well_reads_the_table(pair: Pair) -> None:
    pair.write()
    found = pair.agrees("SELECT count(*) FROM sales.t")
    assert not found.replica and found.not_replica


FORMS = {
    "SELECT t.id FROM sales.t WHERE t.day = 3":
        "SELECT t.id FROM sales.t_by_day t WHERE t.day = 3",
    "SELECT t.* FROM sales.t WHERE day = 3 -- t":
        "SELECT t.* FROM sales.t_by_day t WHERE day = 3 -- t",
    "SELECT a.id FROM sales.t AS a WHERE a.day = 3":
        "SELECT a.id FROM sales.t_by_day AS a WHERE a.day = 3",
    'SELECT "t".id FROM sales."t" WHERE "t".day = 3':
        'SELECT "t".id FROM sales."t_by_day" "t" WHERE "t".day = 3',
    "SELECT a.id FROM sales.t a JOIN sales.t b ON a.id = b.id WHERE a.day = 3 AND b.day = 3":
        "SELECT a.id FROM sales.t_by_day a JOIN sales.t_by_day b ON a.id = b.id "
        "WHERE a.day = 3 AND b.day = 3",
    "WITH c AS (SELECT id FROM sales.t WHERE day = 3) SELECT count(*) FROM c":
        "WITH c AS (SELECT id FROM sales.t_by_day t WHERE day = 3) SELECT count(*) FROM c",
    "SELECT sales.t.id FROM sales.t WHERE sales.t.day = 3": "",
    "SELECT id FROM sales.t TABLESAMPLE 10 PERCENT WHERE day = 3": "",
}  # fmt: skip
"""The text that reads the replica; "" where the query reads the table."""


def test_names_are_exchanged_and_nothing_else(pair: Pair) -> None:
    pair.write()
    for (sql, wanted), found in zip(FORMS.items(), pair.routed(*FORMS), strict=True):
        assert found.sql == (wanted or sql)
        assert bool(found.replica) is bool(wanted), sql
    pair.agree(*(sql for sql, wanted in FORMS.items() if wanted))


FIXED = (
    "SELECT _file FROM sales.t WHERE day = 3",
    "SELECT input_file_name() FROM sales.t WHERE day = 3",
    "SELECT id FROM sales.t VERSION AS OF 1 WHERE day = 3",
    "SELECT /*+ BROADCAST(t) */ id FROM sales.t WHERE day = 3",
)


def test_what_depends_on_files_or_snapshots_reads_the_table(pair: Pair) -> None:
    pair.write()
    *fixed, free = pair.routed(*FIXED, SQL, dialect="spark")
    assert [one.replica for one in fixed] == [""] * len(FIXED)
    assert free.replica
