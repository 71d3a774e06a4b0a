"""A replica stands beside its source by snapshots alone."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from reconciler.table.block_ids import COLUMN
from reconciler.table.cut_tree import Cut, made
from reconciler.table.metadata import TableMetadata
from reconciler.table.replica import (
    OF,
    RECORD,
    Replica,
    Standing,
    changes_rows,
    covers,
    grown,
    hindrance,
    kept_record,
    not_ours,
    not_the_recorded,
    replaced,
    replica_of,
    since,
    standing,
)
from reconciler.table.retention import BRANCH, MAIN, Ref, Snapshot, SnapshotLog
from reconciler.table.schema import Field, Schema
from reconciler.table.summary_keys import ATTEMPT_ID

TREE = made((Cut(1, 3), None, None), [0, 0])
RECORDED = Replica("r", "uuid", 70, 2, 0, TREE, 100, 120, 4)


COUNTS = {"total-data-files": "1"}


def _log(*operations: str, head: int = 0) -> SnapshotLog:
    found = tuple(
        Snapshot(n, n - 1 or None, n, COUNTS, what) for n, what in enumerate(operations, 1)
    )
    return SnapshotLog(found, (Ref(MAIN, BRANCH, head or len(operations)),))


@pytest.mark.parametrize(
    ("after", "expected", "appended"),
    [
        ((), Standing.FRESH, ()),
        (("replace", "replace"), Standing.FRESH, ()),
        (("append",), Standing.BEHIND, (3,)),
        (("append", "replace", "append"), Standing.BEHIND, (3, 5)),
        (("delete",), Standing.STALE, ()),
        (("append", "overwrite"), Standing.STALE, ()),
        (("replace", ""), Standing.STALE, ()),
        (("new-in-version-9",), Standing.STALE, ()),
    ],
)
def test_only_what_changes_no_row_leaves_it_fresh(
    after: tuple[str, ...], expected: Standing, appended: tuple[int, ...]
) -> None:
    metadata = TableMetadata(log=_log("append", "append", *after))
    found = standing(RECORDED, metadata)
    assert (found.standing, found.appended) == (expected, appended)
    assert bool(found.why) == (expected is not Standing.FRESH)


def test_a_table_that_was_rolled_back_or_whose_history_is_gone_has_no_fresh_replica() -> None:
    back = TableMetadata(log=_log("append", "append", "append", head=1))
    assert standing(RECORDED, back).standing is Standing.STALE
    log = _log("append", "append", "replace", "replace")
    gone = SnapshotLog(log.snapshots[3:], (Ref(MAIN, BRANCH, 4),))
    assert standing(RECORDED, TableMetadata(log=gone)).standing is Standing.STALE
    assert standing(RECORDED, TableMetadata()).standing is Standing.STALE


def test_another_schema_makes_it_stale() -> None:
    metadata = TableMetadata(log=_log("append", "append"), schema_id=1)
    assert standing(RECORDED, metadata).standing is Standing.STALE


def test_work_is_done_once_the_replica_has_the_rows_of_its_snapshot_or_later_ones() -> None:
    metadata = TableMetadata(log=_log("append", "append", "delete"))
    assert [covers(RECORDED, one, metadata) for one in (1, 2, 3, 9)] == [True, True, False, False]


def test_a_record_is_read_as_it_was_written_and_a_forged_one_is_none() -> None:
    assert replica_of({RECORD: RECORDED.text}) == RECORDED
    body = json.loads(RECORDED.text)
    forged = [
        "", "[]", "null", "{", RECORDED.text[:-3], json.dumps({**body, "tree": "cut-tree:1:xx"}),
        json.dumps({**body, "snapshot": "x"}), json.dumps({**body, "tree": "cut-tree:9:"}),
        json.dumps({key: value for key, value in body.items() if key != "uuid"}),
    ]  # fmt: skip
    assert [replica_of({RECORD: one}) for one in forged] == [None] * len(forged)
    assert replica_of({}) is None


def test_only_the_snapshot_that_was_compared_counts() -> None:
    main = _main((72, "replace"), (70, "append"))
    assert not_the_recorded(RECORDED, "uuid", 4, main) == ""
    assert not_the_recorded(RECORDED, "another", 4, main)
    assert not_the_recorded(RECORDED, "uuid", 5, main)
    assert not_the_recorded(RECORDED, "uuid", 4, _main((71, "append"), (70, "append")))
    assert not_the_recorded(RECORDED, "uuid", 4, [])
    assert not_the_recorded(grown(RECORDED, 71, 3, 130), "uuid", 4, _main((71, "append"))) == ""


def test_who_can_have_no_replica() -> None:
    schema = Schema(0, (Field(1, "id", "long"), Field(2, "price", "decimal(9, 2)")))
    assert hindrance(schema, TableMetadata()) == ""
    owned = TableMetadata(properties={COLUMN: "1"}, tops={"id": (1, "int")})
    assert hindrance(schema, owned)
    assert hindrance(schema, TableMetadata(properties={OF: "uuid"}))
    for kind in ("uuid", "time", "fixed[4]", "timestamp_ns", "variant"):
        assert hindrance(Schema(0, (Field(1, "x", kind),)), TableMetadata())
    assert hindrance(replace(schema, alike=("id", "ID")), TableMetadata())


def test_since_needs_the_snapshot_itself() -> None:
    assert since(5, _main((7, "replace"), (6, "replace"))).standing is Standing.STALE


def _main(*commits: tuple[int, str], root: int | None = None) -> list[Snapshot]:
    """Return snapshots of main, newest first, without marks of ours."""
    parents = [*(number for number, _ in commits[1:]), root]
    return [
        Snapshot(number, parent, number, COUNTS, what)
        for (number, what), parent in zip(commits, parents, strict=True)
    ]


def test_a_snapshot_that_was_the_last_to_expire_still_says_what_happened_since() -> None:
    assert since(5, _main((7, "replace"), (6, "replace"), root=5)).standing is Standing.FRESH
    behind = since(5, _main((7, "append"), (6, "replace"), root=5))
    assert (behind.standing, behind.appended) == (Standing.BEHIND, (7,))
    assert since(5, _main((7, "delete"), (6, "replace"), root=5)).standing is Standing.STALE
    assert since(4, _main((7, "replace"), (6, "replace"), root=5)).standing is Standing.STALE


@pytest.mark.parametrize("operation", ["append", "overwrite", "delete", "replace"])
def test_commits_of_ours_change_no_rows_whatever_they_are_called(operation: str) -> None:
    theirs = Snapshot(3, 2, 3, operation=operation)
    ours = replace(theirs, summary={ATTEMPT_ID: "a-1"})
    last = Snapshot(2, 1, 2, operation="append")
    assert changes_rows(theirs) is (operation != "replace") and not changes_rows(ours)
    assert since(2, [ours, last]).standing is Standing.FRESH


def test_an_append_that_has_deletes_or_counts_nothing_changes_rows() -> None:
    for summary in (
        {**COUNTS, "added-delete-files": "1"},
        {**COUNTS, "deleted-data-files": "1"},
        {},
    ):
        theirs = Snapshot(3, 2, 3, summary, "append")
        assert since(2, [theirs, Snapshot(2, 1, 2, COUNTS, "append")]).standing is Standing.STALE


def _expired(log: SnapshotLog, *counts: int) -> TableMetadata:
    """Return the source after its oldest snapshots have expired by us, so many each time."""
    properties = {RECORD: RECORDED.text}
    for count in counts:
        gone = {one.id for one in log.snapshots[:count]}
        properties |= kept_record(properties, log.main, gone)
        log = SnapshotLog(log.snapshots[count:], log.refs)
    return TableMetadata(properties, log=log)


OPERATIONS = ("append", "replace", "overwrite", "delete")


@pytest.mark.parametrize("seed", range(40))
def test_no_expiry_of_ours_makes_a_replica_seem_fresher_or_a_fresh_one_stale(seed: int) -> None:
    chance = random.Random(seed)
    after = [chance.choices(OPERATIONS, (3, 6, 1, 1))[0] for _ in range(chance.randrange(6))]
    log = _log("append", "append", *after)
    first = chance.randrange(len(log.snapshots))
    second = chance.randrange(len(log.snapshots) - first)
    before = standing(RECORDED, TableMetadata(log=log))
    metadata = _expired(log, first, second)
    record = replica_of(metadata.properties)
    assert record is not None and replace(record, source_snapshot_id=2) == RECORDED
    found = standing(record, metadata)
    if before.standing is Standing.FRESH:
        assert found.standing is Standing.FRESH
    elif found.standing is Standing.BEHIND:
        assert (before.standing, before.appended) == (found.standing, found.appended)
    else:
        assert found.standing is Standing.STALE


UUID = "uuid-of-source"


def _built(number: int, parent: int | None = None, what: str = "append") -> Snapshot:
    return Snapshot(number, parent, number, {OF: UUID}, what)


def test_only_a_table_whose_rows_we_wrote_last_is_ours() -> None:
    own = {OF: UUID}
    theirs = Snapshot(8, 7, 8, operation="append")
    compacted = Snapshot(8, 7, 8, operation="replace")
    assert not_ours(UUID, {}, [], None) and not_ours(UUID, {OF: "other"}, [_built(7)], None)
    assert not_ours(UUID, own, [], None) == ""
    assert not_ours(UUID, own, [_built(7)], None) == ""
    assert not_ours(UUID, own, [compacted, _built(7)], None) == ""
    assert not_ours(UUID, own, [theirs, _built(7)], None)
    assert not_ours(UUID, own, [Snapshot(9, None, 9, {OF: "other"}, "append")], None)
    assert not_ours(UUID, own, [compacted], None), "nothing shows whose rows they are"
    recorded = replace(RECORDED, snapshot_id=7)
    assert not_ours(UUID, own, [compacted], recorded) == ""
    assert not_ours(UUID, own, [Snapshot(7, None, 7, operation="append")], recorded) == ""
    assert not_ours(UUID, own, [theirs], recorded)


def test_a_snapshot_expires_by_the_time_at_which_it_was_replaced() -> None:
    times = {1: 0, 2: 1_000, 3: 50_000, 4: 60_000}
    made = tuple(Snapshot(one, None, at, operation="append") for one, at in times.items())
    log = SnapshotLog(made, (Ref(MAIN, BRANCH, 4),))
    assert replaced(log, 20_000, 60_000) == (1,), "2 is old, and was read until 3 came"
    assert replaced(log, 5_000, 60_000) == (1, 2)
    assert replaced(log, -1, 60_000) == (1, 2, 3)
    tagged = replace(log, refs=(*log.refs, Ref("kept", "tag", 1)))
    assert replaced(tagged, -1, 60_000) == (2, 3)
