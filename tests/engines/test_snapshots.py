"""Walks over a table's snapshots."""

from __future__ import annotations

from reconciler.engines.snapshots import SnapshotInfo, changed_lately, short, until
from reconciler.table.summary_keys import ATTEMPT_ID, FENCE


def info(number: int, operation: str = "append", at: int = 0, **summary: str) -> SnapshotInfo:
    return SnapshotInfo(number, number - 1 or None, operation, summary, number, at)


def test_a_walk_ends_at_its_base_and_says_whether_it_reached_it() -> None:
    line = [info(3), info(2), info(1)]
    assert until(line, 1) == (line[:2], True)
    assert until(line, 9) == (line, False)


def test_only_late_changes_of_others_count() -> None:
    own = SnapshotInfo(5, 4, "replace", {ATTEMPT_ID: "ours"}, 5, 100)
    appended = info(3, "append", 80, **{"total-data-files": "3"})
    line = [own, info(4, "overwrite", 90), appended, info(2, "delete", 60),
            info(1, "overwrite", 10)]  # fmt: skip
    assert changed_lately(line, 40, ["ours"]) == {4, 2}
    assert changed_lately(line, 40, []) == {5, 4, 2}
    assert changed_lately([], 40, []) == frozenset()


def test_an_append_with_deletes_is_none() -> None:
    counts = {"total-data-files": "1", "added-data-files": "1", "added-delete-files": "0"}
    found = [
        SnapshotInfo(2, 1, "append", counts),
        SnapshotInfo(2, 1, "append", {**counts, "added-delete-files": "1"}),
        SnapshotInfo(2, 1, "delete", counts),
        SnapshotInfo(2, 1, "append", {}),  # a writer that counts nothing says nothing
    ]
    assert [one.only_appends for one in found] == [True, False, False, False]


def test_a_fence_is_of_a_batch_or_of_its_attempt() -> None:
    fence = SnapshotInfo(1, None, "append", {FENCE: "a/2"})
    whole = SnapshotInfo(1, None, "append", {FENCE: "a/0"})
    assert [one.fences("a", 2) for one in (fence, whole)] == [True, True]
    assert [one.fences("a", 1) for one in (fence, whole)] == [False, True]
    assert not whole.fences("b", 2)


def test_ids_are_shown_short() -> None:
    assert (short(7318000000221), short(12), short(None)) == ("7318…221", "12", "None")
