"""What past rewrites have saved, against a model of files and queries that the test keeps itself.

The model counts what each query read when it ran, and what it would have read of a table that
nobody rewrote. It shares nothing with the code: ranges, files and bytes are plain Python.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.advisor.measure.credit import Credit, Price
from reconciler.loop.credit_record import OPEN_MS, record_written, replaced_files, update_credits
from reconciler.loop.reader import Reader
from reconciler.plan.execution import COMMITTED, Intent, Outcome
from reconciler.queries.fragments import Fragment
from reconciler.queries.predicate import And, Comparison, First, Ref
from reconciler.state.state import StateStore
from reconciler.table.filetable import UNKNOWN, ColumnBounds, FileTable
from reconciler.table.observation import Observation, SnapshotInfo
from reconciler.table.schema import Field, PartitionSpec, Schema
from reconciler.table.summary_keys import ATTEMPT_ID
from reconciler.table.values import Kind
from tests.cli import observations
from tests.examples import examples

X, Y = 1, 2
SCHEMA = Schema(1, (Field(X, "x", "long"), Field(Y, "y", "long")))
CELL = 8
HOUR, DAY = 3_600_000, 86_400_000
START = 1_700_000_000_000


@dataclass(frozen=True)
class ModelFile:
    """rows: (x, y, number of the row). wrote: those that it was written with, which its bounds
    show even where another writer's deletes have taken some of them."""

    name: str
    rows: tuple[tuple[int, int, int], ...]
    wrote: tuple[tuple[int, int, int], ...] = ()

    def reads(self, column: int, low: int, high: int) -> int:
        values = [row[column - 1] for row in self.wrote or self.rows]
        hit = values and min(values) <= high and max(values) >= low
        return CELL * len(self.rows) * len({column, Y}) if hit else 0


@dataclass
class Model:
    """The table, the same table if nobody had rewritten it, and what was not read."""

    files: dict[str, ModelFile] = field(default_factory=dict)
    untouched: dict[str, ModelFile] = field(default_factory=dict)
    saved: int = 0
    made: int = 0

    def append(self, rows: Iterable[tuple[int, int]]) -> None:
        self.made += 1
        new = ModelFile(
            f"f{self.made}", tuple((x, y, 1_000 * self.made + n) for n, (x, y) in enumerate(rows))
        )
        self.files[new.name] = self.untouched[new.name] = new

    def rewrite(self, names: list[str], column: int, parts: int) -> list[str]:
        rows = sorted((row for n in names for row in self.files.pop(n).rows),
                      key=lambda row: row[column - 1])  # fmt: skip
        size = max(1, -(-len(rows) // parts))
        new = []
        for start in range(0, len(rows), size):
            self.made += 1
            made = ModelFile(f"layout{self.made}", tuple(rows[start : start + size]))
            self.files[made.name] = made
            new.append(made.name)
        return new

    def remove(self, name: str) -> None:
        """Another writer deletes a file with its rows, which both tables lose."""
        gone = {row[2] for row in self.files.pop(name).rows}
        self.untouched = {
            key: replace(f, rows=left, wrote=f.wrote or f.rows)
            for key, f in self.untouched.items()
            if (left := tuple(row for row in f.rows if row[2] not in gone))
        }

    def ask(self, column: int, low: int, high: int, times: int) -> None:
        there = sum(f.reads(column, low, high) for f in self.untouched.values())
        here = sum(f.reads(column, low, high) for f in self.files.values())
        self.saved += times * (there - here)


def file_table(files: Iterable[ModelFile]) -> FileTable:
    found = list(files)
    count = len(found)
    zeros, yes = np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.bool_)
    rows = np.array([len(f.rows) for f in found], dtype=np.int64)

    def bounds(column: int) -> ColumnBounds:
        values = [[row[column - 1] for row in f.rows] for f in found]
        low = np.array([min(v) for v in values], dtype=np.int64)
        high = np.array([max(v) for v in values], dtype=np.int64)
        return ColumnBounds(column, Kind.INT, low, high, yes, yes, zeros, zeros, rows, rows * CELL,
                            np.zeros(count, dtype=np.bool_))  # fmt: skip

    return FileTable(
        schema=SCHEMA, specs={0: PartitionSpec(0)}, default_spec_id=0,
        path=np.array([f.name for f in found], dtype=object),
        spec_id=zeros.astype(np.int32), partition=zeros.astype(np.int32), partitions=((0, ()),),
        records=rows, bytes=2 * CELL * rows, sequence=zeros, added_ms=zeros,
        layout_written=np.array([f.name.startswith("layout") for f in found], dtype=np.bool_),
        sort_order_id=np.full(count, UNKNOWN, dtype=np.int64), parquet=yes,
        encrypted=np.zeros(count, dtype=np.bool_), position_deleted=zeros, delete_files=zeros,
        delete_bytes=zeros, equality_deletes=zeros,
        newest_delete=np.full(count, UNKNOWN, dtype=np.int64),
        columns={X: bounds(X), Y: bounds(Y)}, column_sizes={X: rows * CELL, Y: rows * CELL},
    )  # fmt: skip


class World:
    """The model, the real ledger, and a clock. Commits and queries happen at its time."""

    def __init__(self, folder: Path):
        self.folder, self.model, self.now = folder, Model(), START
        self.store = StateStore(folder)
        self.log: list[Fragment] = []
        self.snapshots: list[SnapshotInfo] = []
        self.plans = 0

    def seen(self) -> Observation:
        seen = observations.lineitem(4)
        return replace(
            seen, uuid="u", files=file_table(self.model.files.values()),
            ancestry=tuple(reversed(self.snapshots)), snapshot_id=self.snapshots[-1].snapshot_id,
        )  # fmt: skip

    def commit(self, operation: str, ours: str = "") -> int:
        self.now += HOUR
        number = self.snapshots[-1].snapshot_id + 1 if self.snapshots else 1
        summary = {ATTEMPT_ID: ours} if ours else {}
        self.snapshots.append(SnapshotInfo(number, number, self.now, operation, summary))
        return number

    def append(self, rows: Iterable[tuple[int, int]]) -> None:
        self.model.append(rows)
        self.commit("append")

    def remove(self, name: str) -> None:
        self.model.remove(name)
        self.commit("delete")

    def expire(self, kept: int) -> None:
        """All snapshots but the newest `kept` are no longer there to tell who removed what."""
        self.snapshots = self.snapshots[-kept:]

    def rewrite(self, names: list[str], column: int, parts: int, keep: bool = True) -> str:
        """keep: whether the ledger has the replaced files, as rows of an old version have not."""
        self.plans += 1
        plan, attempt = f"p-{self.plans}", f"a-{self.plans}"
        before = file_table(self.model.files[name] for name in names)
        outputs = self.model.rewrite(names, column, parts)
        intent = Intent("u", ("t",), plan, attempt, 1, ("a01",), 1, "", tuple(names),
                        tuple(outputs))  # fmt: skip
        if keep:
            self.store.record_old_zone_maps(plan, [("a01", before)])
        self.store.record_intent(intent)
        snapshot = self.commit("replace", attempt)
        done = Outcome(attempt, 1, "a01", COMMITTED, snapshot, 1, 1, 1, len(names), len(outputs),
                       1.0, 1.0)  # fmt: skip
        with mock.patch("reconciler.state.ledger_rows.time.time", return_value=self.now / 1000):
            self.store.record_outcomes(intent, (done,))
        record_written(self.store, self.seen(), self.now)
        return plan

    def ask(self, column: int, low: int, high: int, times: int = 1) -> None:
        self.now += HOUR
        self.model.ask(column, low, high, times)
        between = And((Comparison(Ref(column), ">=", 0), Comparison(Ref(column), "<=", 1)))
        self.log.append(
            Fragment("log", len(self.log), "u", between, (low, high), (None, None),
                     tuple(sorted({column, Y})), float(times), self.now, "spark")
        )  # fmt: skip

    def look(self, now_ms: int | None = None) -> dict[str, Credit]:
        seen = self.seen()
        return update_credits(
            self.store, seen, self.store.ledger("u"), self.store.shapes("u"),
            Price(open_bytes=0), self.now + HOUR if now_ms is None else now_ms,
        )  # fmt: skip

    def saved(self) -> tuple[float, float]:
        found = self.look().values()
        return sum(one.table_least for one in found), sum(one.table_most for one in found)


def scattered(random_: random.Random, files: int, rows: int = 20) -> list[list[tuple[int, int]]]:
    return [
        [(random_.randrange(1_000), random_.randrange(1_000)) for _ in range(rows)]
        for _ in range(files)
    ]


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    for rows in scattered(random.Random(1), 6):
        made.append(rows)
    return made


def test_a_fresh_commit_has_earned_nothing_and_says_that_no_query_ran(world: World) -> None:
    world.ask(X, 0, 100)
    world.store.append_fragments(world.log)
    plan = world.rewrite(sorted(world.model.files), X, 6)
    seen = world.look()[plan]
    assert seen.none_ran
    assert (seen.least, seen.most, seen.table_least) == (0.0, 0.0, 0.0)
    assert not [one for one in world.look().values() if one.queries]


def test_only_later_queries_earn_and_each_of_them_once(world: World) -> None:
    plan = world.rewrite(sorted(world.model.files), X, 6)
    for low in (0, 300, 900):
        world.ask(X, low, low + 50, times=2)
        world.ask(Y, low, low + 50)
    before = world.model.saved
    assert before > 0
    for part in (world.log[:4], world.log[2:], world.log, world.log[:1]):
        world.store.append_fragments(part)
        world.look()
    seen = world.look()[plan]
    assert seen.exact
    assert (seen.least, seen.table_least) == (before, before)
    assert seen.queries == 9.0
    again = update_credits(StateStore(world.folder), world.seen(), world.store.ledger("u"),
                         world.store.shapes("u"), Price(0), world.now)  # fmt: skip
    assert again[plan] == seen


def test_spoiling_and_repairing_a_layout_earns_nothing(world: World) -> None:
    ordered = [(x, x) for x in range(0, 900, 5)]
    world.model.files.clear()
    world.model.untouched.clear()
    for start in range(0, 180, 30):
        world.append(ordered[start : start + 30])
    rng = random.Random(0)
    names = sorted(world.model.files)
    mixed = [row for name in names for row in world.model.files[name].rows]
    rng.shuffle(mixed)
    first = world.rewrite(names, X, 1)
    for _ in range(5):
        world.ask(X, 10, 20)
    whole = sorted(world.model.files)
    second = world.rewrite(whole, X, 6)
    for _ in range(20):
        world.ask(X, 10, 20)
    world.store.append_fragments(world.log)
    found = world.look()
    assert found[first].least < 0 < found[second].least
    total = found[first].table_least + found[second].table_least
    assert total == world.model.saved < 0


def test_files_rewritten_again_earn_for_the_later_plan(world: World) -> None:
    first = world.rewrite(sorted(world.model.files), X, 6)
    world.ask(X, 0, 50)
    world.store.append_fragments(world.log)
    earned = world.look()[first].least
    assert earned == world.model.saved > 0
    second = world.rewrite(sorted(world.model.files), Y, 6)
    for low in (0, 200, 500):
        world.ask(Y, low, low + 50)
    world.store.append_fragments(world.log)
    found = world.look()
    assert found[first].least == found[first].most == earned
    assert found[second].least > 0
    assert sum(one.table_least for one in found.values()) == world.model.saved


def test_a_removal_whose_snapshot_expired_credits_no_query_after_it(world: World) -> None:
    """A later removal is still told of. What ran between the two may have saved nothing."""
    world.rewrite(sorted(world.model.files), X, 6)
    world.ask(X, 0, 100, times=3)
    for name in sorted(world.model.files):
        world.remove(name)
        world.append([(1, 1)])
        world.ask(X, 0, 100, times=5)
    world.expire(3)
    world.store.append_fragments(world.log)
    least, most = world.saved()
    assert least <= world.model.saved <= most


def test_a_row_of_the_ledger_without_the_old_files_earns_nothing(world: World) -> None:
    plan = world.rewrite(sorted(world.model.files), X, 6, keep=False)
    world.ask(X, 0, 50)
    world.store.append_fragments(world.log)
    assert plan not in world.look()


def test_queries_of_the_first_rows_of_an_order_earn_nothing_and_cost_nothing(world: World) -> None:
    """What they read of the present files is estimated; of past ones nothing is known."""
    reader = Reader(world.store, world.folder / "cache")
    plan = world.rewrite(sorted(world.model.files), X, 6)
    for number in range(20):
        world.now += HOUR
        world.log.append(
            Fragment("log", number, "u", First(Ref(X), False, 5), (), (), (X, Y), 1.0, world.now,
                     "duckdb")
        )  # fmt: skip
    world.store.append_fragments(world.log)
    seen = world.seen()
    known = reader.recorded_queries(seen)
    assert [type(one.predicate) for one in known.workload.shapes] == [Comparison]
    found = reader.credits(seen, known, reader.history("u"))[plan]
    assert (found.queries, found.table_least, found.table_most) == (20.0, 0.0, 0.0)


def test_what_was_earned_stays_when_the_queries_are_no_longer_kept(world: World) -> None:
    plan = world.rewrite(sorted(world.model.files), X, 6)
    for low in (0, 300, 900):
        world.ask(X, low, low + 50)
    world.store.append_fragments(world.log)
    earned = world.look()[plan].least
    later = world.now + 2 * OPEN_MS
    assert world.look(later)[plan].least == earned
    gone = update_credits(world.store, world.seen(), world.store.ledger("u"), [], Price(0), later)
    assert gone[plan].least == earned
    assert world.look(later)[plan].least == earned


def test_the_files_of_others_that_rewrites_replaced_are_found_once_each(world: World) -> None:
    arrived = sorted(world.model.files)
    world.rewrite(arrived[:4], X, 2)
    world.rewrite([*(n for n in world.model.files if n.startswith("layout")), arrived[4]], Y, 3)
    parts = replaced_files(world.store, world.seen(), world.store.ledger("u"), world.now)
    assert sorted(str(path) for part in parts for path in part.path) == arrived[:5]
    live = world.seen().files
    assert sum(int(part.records.sum()) for part in parts) == live.records[live.layout_written].sum()


OURS = ("append", "rewrite", "ask", "ask", "import", "look", "restart")


def operations(*names: str) -> st.SearchStrategy[list[tuple[str, int]]]:
    step = st.tuples(st.sampled_from(names), st.integers(0, 2**16))
    return st.lists(step, min_size=4, max_size=14)


@settings(max_examples=examples(25), deadline=None)
@given(operations(*OURS), st.integers(0, 2**16))
def test_whatever_is_rewritten_and_imported_the_sum_is_what_was_not_read(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], seed: int
) -> None:
    world = carried_out(tmp_path_factory.mktemp("credit"), steps, seed)
    assert world.saved() == (world.model.saved, world.model.saved)


@settings(max_examples=examples(25), deadline=None)
@given(operations(*OURS, "remove", "remove", "expire", "ask"), st.integers(0, 2**16))
def test_where_others_remove_files_the_sum_is_a_bound_of_what_was_not_read(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], seed: int
) -> None:
    world = carried_out(tmp_path_factory.mktemp("credit"), steps, seed)
    least, most = world.saved()
    assert least <= world.model.saved <= most


def carried_out(folder: Path, steps: list[tuple[str, int]], seed: int) -> World:
    world, start = World(folder), random.Random(seed)
    for rows in scattered(start, 4, 8):
        world.append(rows)
    for name, number in steps:
        chance = random.Random(number)
        if name == "append":
            world.append(scattered(chance, 1, 8)[0])
        if name == "remove" and len(world.model.files) > 1:
            world.remove(chance.choice(sorted(world.model.files)))
        if name == "expire":
            world.expire(chance.randint(1, 4))
        if name == "rewrite":
            names = sorted(world.model.files)
            picked = chance.sample(names, chance.randint(1, len(names)))
            world.rewrite(picked, chance.choice((X, Y)), chance.randint(1, 4))
        if name == "ask":
            low = chance.randrange(1_000)
            world.ask(chance.choice((X, Y)), low, low + chance.randrange(200), chance.randint(1, 3))
        if name == "import" and world.log:
            first = chance.randrange(len(world.log))
            world.store.append_fragments(world.log[first : first + chance.randint(1, 5)])
        if name == "look":
            world.look()
        if name == "restart":
            world.store = StateStore(world.folder)
    world.store.append_fragments(world.log)
    return world
