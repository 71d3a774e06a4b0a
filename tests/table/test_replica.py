"""A replica stands beside its source by snapshots alone."""

from __future__ import annotations

import json
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
    covers,
    grown,
    hindrance,
    not_the_recorded,
    replica_of,
    since,
    standing,
)
from reconciler.table.retention import BRANCH, MAIN, Ref, Snapshot, SnapshotLog
from reconciler.table.schema import Field, Schema

TREE = made((Cut(1, 3), None, None), [0, 0])
RECORDED = Replica("r", "uuid", 70, 2, 0, TREE, 100, 120, 4)


def _log(*operations: str, head: int = 0) -> SnapshotLog:
    found = tuple(
        Snapshot(n, n - 1 or None, n, operation=what) for n, what in enumerate(operations, 1)
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
    gone = SnapshotLog(_log("append", "append", "replace").snapshots[2:], (Ref(MAIN, BRANCH, 3),))
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
    main = [(72, "replace"), (70, "append")]
    assert not_the_recorded(RECORDED, "uuid", 4, main) == ""
    assert not_the_recorded(RECORDED, "another", 4, main)
    assert not_the_recorded(RECORDED, "uuid", 5, main)
    assert not_the_recorded(RECORDED, "uuid", 4, [(71, "append"), (70, "append")])
    assert not_the_recorded(RECORDED, "uuid", 4, [])
    assert not_the_recorded(grown(RECORDED, 71, 3, 130), "uuid", 4, [(71, "append")]) == ""


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
    assert since(5, [(7, "replace"), (6, "replace")]).standing is Standing.STALE
