"""Which batches wait, and which main has."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from reconciler.table.audits import (
    AUDIT,
    AUDIT_BASE,
    AUDIT_BRANCH,
    AUDIT_PLAN,
    AUDIT_WAITS,
    waiting_batches,
    with_published,
)
from reconciler.table.retention import BRANCH, MAIN, Ref, Snapshot, SnapshotLog

BATCH = {
    AUDIT: "p-1-a/1", AUDIT_BRANCH: "b", AUDIT_PLAN: "p-1", AUDIT_BASE: "1", AUDIT_WAITS: "h",
}  # fmt: skip
REFS = (Ref(MAIN, BRANCH, 9), Ref("b", BRANCH, 3))
FIRST, SECOND = Snapshot(2, 1, 20, BATCH), Snapshot(3, 2, 30, BATCH)


@pytest.mark.parametrize(
    ("added", "waits"),
    [((9,), [2, 3]), ((9, 2), [3]), ((9, 3), []), ((9, 2, 3), [])],
    ids=("none", "the first", "the second, which was merged with the first", "both"),
)
def test_behind_a_cut_mains_manifests_say_what_it_has(
    added: tuple[int, ...], waits: list[int]
) -> None:
    cut = SnapshotLog((FIRST, SECOND, Snapshot(9, 8, 90)), REFS)
    asked: list[int] = []

    def added_by(head: int) -> Iterable[int]:
        asked.append(head)
        return added

    found = with_published(cut, added_by)
    assert [one.snapshot_id for one in waiting_batches(found)] == waits
    assert asked == [9]


@pytest.mark.parametrize(
    "log",
    [
        SnapshotLog((FIRST, SECOND, Snapshot(9, None, 90)), REFS),
        SnapshotLog((Snapshot(3, 2, 30), Snapshot(9, 8, 90)), REFS),
        SnapshotLog((FIRST, SECOND), REFS[1:]),
    ],
    ids=("main is whole", "nothing waits", "main is empty"),
)
def test_no_manifest_is_asked_for_otherwise(log: SnapshotLog) -> None:
    def never(_: int) -> Iterable[int]:
        raise AssertionError("asked")

    assert with_published(log, never) is log
