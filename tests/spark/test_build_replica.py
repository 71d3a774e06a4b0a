"""A replica holds the source's rows in the leaves of its tree, and only a record of two compared
snapshots makes it one: after appends, deletes, foreign writes and builds that ended half-way."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import duckdb
import pytest

from reconciler.catalog.observe import observe_table
from reconciler.engines.actions import build_replica
from reconciler.errors import BlockedError, VerificationError
from reconciler.plan.actions.build_replica import BuildReplica
from reconciler.plan.actions.state import Validity
from reconciler.plan.execution import COMMITTED, FAILED
from reconciler.spark.commit.table import JavaTable
from reconciler.spark.fallback import replica_rows, stage
from reconciler.spark.fallback.replica_rows import JavaCopies
from reconciler.table.replica import (
    Replica,
    Standing,
    not_the_recorded,
    replica_of,
    standing,
)
from tests.spark.tables import Bench, intact
from tests.spark.test_trees import COLUMNS, LEAF, ROWS, TREE

pytestmark = pytest.mark.spark
ROOM = 1 << 30


def _source(bench: Bench, version: int = 2, parts: str = "") -> str:
    name = bench.create(COLUMNS, f"'format-version'='{version}'", partitioned=parts)
    bench.fill(name, 4, 500, ROWS)
    return name


def _action(bench: Bench, name: str, **more: Any) -> BuildReplica:
    head = int(bench.table(name).currentSnapshot().snapshotId())
    made = BuildReplica(f"{name}_by_tree", TREE, head, ROOM, 1 << 20)
    return replace(made, **more)


def _built(bench: Bench, name: str, plan: str = "p-1", **more: Any) -> Replica | None:
    bench.run(bench.request(name, _action(bench, name, **more), plan=plan))
    return _record(bench, name)


def _record(bench: Bench, name: str) -> Replica | None:
    return replica_of(dict(bench.table(name).properties()))


def _standing(bench: Bench, name: str) -> Standing:
    seen = observe_table(bench.config, ("jobs", name), bench.directory / "cache")
    record = replica_of(seen.properties)
    assert record is not None
    return standing(record, seen.metadata).standing


def _copies(bench: Bench, name: str) -> JavaCopies:
    return JavaCopies(bench.spark, bench.full(f"{name}_by_tree"))


def _held(bench: Bench, name: str) -> int:
    copies = _copies(bench, name)
    made = copies.found()
    assert made is not None
    return copies.held_bytes(made)


def _rows(bench: Bench, name: str) -> Counter[str]:
    return bench.rows(name)


@pytest.mark.parametrize("version", [2, 3])
def test_a_replica_has_the_rows_and_each_leaf_has_files_of_its_own(
    bench: Bench, version: int
) -> None:
    name = _source(bench, version, "part")
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id % 50 = 7")
    rows = _rows(bench, name)
    record = _built(bench, name)
    assert record is not None and record.table == f"{name}_by_tree"
    assert _rows(bench, record.table) == rows
    for file in bench.files(record.table):
        path = file.file_path.removeprefix("file:")
        leaves = duckdb.sql(f"SELECT count(DISTINCT {LEAF}) FROM '{path}'").fetchall()
        assert leaves == [(1,)]
    assert len(bench.paths(record.table)) == TREE.leaves
    assert _standing(bench, name) is Standing.FRESH
    intact(bench, name, rows)
    (charged,) = bench.ledger.outcomes()
    assert (charged.state, charged.rows) == (COMMITTED, rows.total())
    assert charged.cpu_seconds > charged.verify_cpu_seconds > 0.0
    state = bench.run(bench.request(name, _action(bench, name))).actions[0].state
    assert state is Validity.DONE


def test_appended_rows_follow_and_anything_else_needs_a_whole_build(bench: Bench) -> None:
    name = _source(bench)
    first = _built(bench, name)
    assert first is not None
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES (9000, 1, NULL, 1.0, 'p0')")
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES (9001, 99, 'shop-1', 2.0, 'p1')")
    assert _standing(bench, name) is Standing.BEHIND
    second = _built(bench, name, plan="p-2", appends=True)
    assert second is not None and second.snapshot_id != first.snapshot_id
    assert _rows(bench, second.table) == _rows(bench, name)
    assert _standing(bench, name) is Standing.FRESH
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id = 9000")
    assert _standing(bench, name) is Standing.STALE
    refused = bench.run(bench.request(name, _action(bench, name, appends=True), plan="p-3"))
    assert refused.actions[0].state is Validity.LOST
    third = _built(bench, name, plan="p-4")
    assert third is not None and _rows(bench, third.table) == _rows(bench, name)


def test_a_replica_that_others_wrote_rows_to_is_theirs_until_they_take_them_back(
    bench: Bench,
) -> None:
    name = _source(bench)
    first = _built(bench, name)
    assert first is not None
    bench.sql(f"INSERT INTO {bench.full(first.table)} VALUES (1, 1, 'x', 1.0, 'p0')")
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES (9000, 1, NULL, 1.0, 'p0')")
    theirs = _rows(bench, first.table)
    assert _built(bench, name, plan="p-2", appends=True) is None
    with pytest.raises(BlockedError):
        _built(bench, name, plan="p-3")
    assert _rows(bench, first.table) == theirs
    back = f"CALL {bench.config.name}.system.rollback_to_snapshot"
    bench.sql(f"{back}('jobs.{first.table}', {first.snapshot_id})")
    again = _built(bench, name, plan="p-4")
    assert again is not None and _rows(bench, again.table) == _rows(bench, name)


def test_another_table_of_that_name_is_never_written_to(bench: Bench) -> None:
    name = _source(bench)
    other = _source(bench)
    rows = _rows(bench, other)
    with pytest.raises(BlockedError):
        _built(bench, name, table=other)
    assert _rows(bench, other) == rows and _record(bench, name) is None


MEANWHILE = {
    "made": "CREATE OR REPLACE TABLE {} USING iceberg AS SELECT 1 AS id",
    "written": "INSERT INTO {} VALUES (7, 7, 'x', 7.0, 'p0')",
    "put in its place": "CREATE TABLE {} USING iceberg AS SELECT 1 AS id",
}


@pytest.mark.parametrize(
    ("how", "kind"), [("put in its place", "first"), ("made", "again"), ("written", "appended")]
)
def test_a_table_that_somebody_makes_during_a_build_keeps_its_rows(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, how: str, kind: str
) -> None:
    name = _source(bench)
    full = bench.full(f"{name}_by_tree")
    if kind != "first":
        _built(bench, name)
        bench.sql(f"INSERT INTO {bench.full(name)} VALUES (9000, 1, NULL, 1.0, 'p0')")
    record, theirs = _record(bench, name), Counter[str]()

    def meanwhile(*_: Any) -> None:
        bench.sql(f"REFRESH TABLE {full}")
        if how == "put in its place":
            bench.sql(f"DROP TABLE {full}")
        bench.sql(MEANWHILE[how].format(full))
        theirs.update(_rows(bench, f"{name}_by_tree"))

    _between_files_and_commit(monkeypatch, meanwhile)
    with pytest.raises(BlockedError):
        _built(bench, name, plan="p-2", appends=kind == "appended")
    assert _rows(bench, f"{name}_by_tree") == theirs and _record(bench, name) == record


def _between_files_and_commit(monkeypatch: pytest.MonkeyPatch, what: Any) -> None:
    """Let something happen after the files are written and before they are committed."""
    real = replica_rows._Draft.sent

    def sent(draft: Any, files: Any) -> Any:
        what()
        return real(draft, files)

    monkeypatch.setattr(replica_rows._Draft, "sent", sent)


def test_a_name_that_is_taken_before_the_replica_is_made_is_not_written_to(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = _source(bench)
    full = bench.full(f"{name}_by_tree")
    real = JavaCopies.create

    def create(copies: JavaCopies, *rest: Any) -> Any:
        bench.sql(f"CREATE TABLE {full} USING iceberg AS SELECT 1 AS id")
        return real(copies, *rest)

    monkeypatch.setattr(JavaCopies, "create", create)
    with pytest.raises(BlockedError):
        _built(bench, name)
    assert _rows(bench, f"{name}_by_tree").total() == 1 and _record(bench, name) is None


def test_rows_that_are_appended_during_a_build_come_by_the_next_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = _source(bench)
    before = _rows(bench, name)
    row = f"INSERT INTO {bench.full(name)} VALUES (9000, 1, NULL, 1.0, 'p0')"
    with monkeypatch.context() as patched:
        _between_files_and_commit(patched, lambda: bench.sql(row))
        first = _built(bench, name)
    assert first is not None and _rows(bench, first.table) == before
    assert _standing(bench, name) is Standing.BEHIND
    second = _built(bench, name, plan="p-2", appends=True)
    assert second is not None and _rows(bench, second.table) == _rows(bench, name) != before


def test_rows_that_a_build_replaces_stay_for_those_who_read_them(bench: Bench) -> None:
    name = _source(bench)
    first = _built(bench, name)
    assert first is not None
    old = _rows(bench, first.table)
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id = 0")
    second = _built(bench, name, plan="p-2", kept_ms=0)
    assert second is not None, "what it replaces was not replaced before it began"
    bench.sql(f"REFRESH TABLE {bench.full(first.table)}")
    version = f"SELECT * FROM {bench.full(first.table)} VERSION AS OF {first.snapshot_id}"
    assert Counter(map(str, bench.sql(version))) == old
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id = 1")
    third = _built(bench, name, plan="p-3", kept_ms=0)
    assert third is not None
    table = bench.live(first.table)
    assert {one.id for one in table.snapshots()} == {second.snapshot_id, third.snapshot_id}


def test_a_replica_that_was_dropped_is_built_again(bench: Bench) -> None:
    name = _source(bench)
    first = _built(bench, name)
    assert first is not None
    bench.sql(f"DROP TABLE {bench.full(first.table)}")
    again = _built(bench, name, plan="p-2", lost=first.snapshot_id)
    assert again is not None and _rows(bench, again.table) == _rows(bench, name)


def test_no_build_goes_beyond_its_budget(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    name = _source(bench)
    size = bench.size(name)
    with pytest.raises(BlockedError):
        _built(bench, name, budget_bytes=size - 1)
    assert bench.ledger.outcomes() == [], "nothing was read"
    assert _copies(bench, name).found() is None
    first = _built(bench, name)
    assert first is not None
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id = 0")
    room = first.bytes + size // 2
    real, seen = JavaCopies.write_all, list[int]()

    def write_all(copies: JavaCopies, source: Any, made: Any, *rest: Any) -> Any:
        seen.append(copies.held_bytes(made))
        return real(copies, source, made, *rest)

    monkeypatch.setattr(JavaCopies, "write_all", write_all)
    again = _built(bench, name, plan="p-2", budget_bytes=room)
    assert again is not None
    assert seen == [0], "the first one was emptied before the second was written"
    held = _held(bench, name)
    assert held <= room


def test_an_append_without_rows_is_taken_over(bench: Bench) -> None:
    """Streaming writers make such commits."""
    name = _source(bench)
    first = _built(bench, name)
    bench.table(name).newFastAppend().commit()
    assert _standing(bench, name) is Standing.BEHIND
    second = _built(bench, name, plan="p-2", appends=True)
    assert first is not None and second is not None
    assert _standing(bench, name) is Standing.FRESH
    assert _rows(bench, second.table) == _rows(bench, name)


def test_an_old_replica_goes_at_once_where_both_turn_out_too_large(bench: Bench) -> None:
    name = bench.create(COLUMNS, "'format-version'='2'")
    bench.fill(name, 1, 500, ROWS)
    first = _built(bench, name)
    assert first is not None
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id = 0")
    size = bench.size(name)
    room = first.bytes + size
    again = _built(bench, name, plan="p-2", budget_bytes=room)
    assert again is not None and again.bytes > size, "the copy has more files, with a footer each"
    assert _held(bench, name) == again.bytes <= room
    assert _rows(bench, again.table) == _rows(bench, name)
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id = 1")
    size = bench.size(name)
    with pytest.raises(BlockedError):
        _built(bench, name, plan="p-3", budget_bytes=size)
    assert _held(bench, name) == 0, "it is said to be emptied"
    assert _record(bench, name) is None


def test_a_build_that_ends_half_way_is_no_replica(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = _source(bench)
    with monkeypatch.context() as patched:
        patched.setattr(build_replica.ReplicaExecutor, "_compare", _killed)
        with pytest.raises(KeyboardInterrupt):
            _built(bench, name)
    assert _record(bench, name) is None
    size = bench.size(name)
    (charged,) = bench.ledger.outcomes()
    assert (charged.state, charged.read_bytes) == (FAILED, size)
    assert charged.cpu_seconds > 0.0, "a budget is charged with what Spark used"
    assert _built(bench, name, plan="p-2") is not None
    assert _rows(bench, f"{name}_by_tree") == _rows(bench, name)


def test_rows_that_differ_make_no_record(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    name = _source(bench)
    first = _built(bench, name)
    assert first is not None
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id = 0")
    real = stage.read
    monkeypatch.setattr(stage, "read", lambda *rest: real(*rest).where("id <> 5"))
    with pytest.raises(VerificationError):
        _built(bench, name, plan="p-2")
    made = _copies(bench, name).found()
    assert made is not None and _not_recorded(first, made) and _record(bench, name) is None


def _not_recorded(record: Replica, made: JavaTable) -> str:
    """Return why a table is not the replica of the record."""
    return not_the_recorded(record, made.uuid(), made.schema_id(), made.log().main)


def _killed(*args: object) -> int:
    raise KeyboardInterrupt
