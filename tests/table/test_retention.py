"""Which snapshots are kept: by age, number, refs and their own retention, and our own needs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.table.numbers import LEAST_SNAPSHOTS, MAX_AGE_MS
from reconciler.table.retention import (
    BRANCH,
    MAIN,
    PLAN_ID,
    Ref,
    Retention,
    Snapshot,
    SnapshotLog,
    due_ms,
    freed,
    kept,
    line,
    of_table,
    old,
    snapshot_log,
)
from tests.examples import examples

NOW = 1_000
TEN = tuple(Snapshot(n, n - 1 or None, n * 100 - 100) for n in range(1, 11))
"""Snapshots 1 to 10 of main, 100 ms apart; the head is 100 ms old."""


def log(*refs: Ref, snapshots: tuple[Snapshot, ...] = TEN, head: int = 10) -> SnapshotLog:
    return SnapshotLog(snapshots, (Ref(MAIN, BRANCH, head), *refs))


@pytest.mark.parametrize(
    ("given_log", "retention", "expired"),
    [
        (log(), Retention(300, 1), range(1, 8)),
        (log(), Retention(300, 5), range(1, 6)),
        (log(), Retention(0, 1), range(1, 10)),
        (log(), Retention(5_000, 1), ()),
        (log(Ref("t", "tag", 2)), Retention(300, 1), (1, 3, 4, 5, 6, 7)),
        (log(Ref("b", BRANCH, 4)), Retention(300, 1), (1, 2, 3)),
        (log(Ref("b", BRANCH, 4, least=3)), Retention(300, 1), (1,)),
        (log(Ref("b", BRANCH, 4, max_age_ms=850)), Retention(300, 1), (1, 2)),
        (log(), Retention(300, 1, frozenset({5})), range(1, 5)),
        (log(), Retention(300, 1, frozenset({99})), range(1, 8)),
    ],
    ids=("age", "number", "age 0", "young", "tag", "branch", "branch's number", "branch's age",
         "needed", "needed one is gone"),
)  # fmt: skip
def test_what_expires(given_log: SnapshotLog, retention: Retention, expired: range) -> None:
    held = kept(given_log, retention, NOW)
    assert sorted(given_log.by_id.keys() - held) == list(expired)


def test_mains_own_retention_counts_instead_of_the_given_one() -> None:
    own = SnapshotLog(TEN, (Ref(MAIN, BRANCH, 10, least=9, max_age_ms=0),))
    assert min(kept(own, Retention(300, 1), NOW)) == 2


@pytest.mark.parametrize(
    ("summary", "stays"),
    [({}, False), ({PLAN_ID: "p-1"}, True), ({"wap.id": "w"}, True), ({"wap.id": "done"}, False)],
    ids=("nobody's", "ours, rolled back", "staged", "published"),
)
def test_snapshots_outside_of_every_branch(summary: dict[str, str], stays: bool) -> None:
    aside = Snapshot(50, 3, 250, summary)
    head = replace(TEN[-1], summary={"published-wap-id": "done"})
    found = kept(log(snapshots=(*TEN[:-1], head, aside)), Retention(300, 1), NOW)
    assert (50 in found) is stays
    assert 50 in kept(log(snapshots=(*TEN, aside)), Retention(800, 1), NOW)


def test_the_tables_properties_may_keep_more_but_not_less() -> None:
    more = {MAX_AGE_MS: "900", LEAST_SNAPSHOTS: "7"}
    assert of_table(Retention(300, 5), more) == Retention(900, 7)
    less = {MAX_AGE_MS: "1", LEAST_SNAPSHOTS: "1"}
    assert of_table(Retention(300, 5, frozenset({1})), less) == Retention(300, 5, frozenset({1}))


def test_what_is_freed_is_what_later_commits_removed() -> None:
    def removed(number: int) -> dict[str, str]:
        return {
            "deleted-data-files": str(number),
            "removed-delete-files": "1",
            "removed-files-size": str(10 * number),
        }

    snapshots = tuple(replace(one, summary=removed(one.id)) for one in TEN)
    found = freed(log(snapshots=snapshots), range(1, 4))
    assert (found.files, found.bytes, found.bounds) == (2 + 3 + 4 + 3, 90, "exact")
    tagged = freed(log(Ref("t", "tag", 1), snapshots=snapshots), range(2, 4))
    assert (tagged.files, tagged.bounds) == (3 + 4 + 2, "at most")
    assert freed(log(), ()).files == 0


def test_a_log_is_read_from_metadata_as_the_specification_writes_it() -> None:
    body = {
        "current-snapshot-id": 2,
        "snapshots": [
            {"snapshot-id": 1, "timestamp-ms": 5, "summary": {"operation": "append"}},
            {"snapshot-id": 2, "parent-snapshot-id": 1, "timestamp-ms": 6},
        ],
        "refs": {"b": {"snapshot-id": 1, "type": "branch", "min-snapshots-to-keep": 4}},
    }
    found = snapshot_log(body)
    first = Snapshot(1, None, 5, {"operation": "append"}, "append")
    assert found.main == (Snapshot(2, 1, 6), first)
    assert set(found.refs) == {Ref(MAIN, BRANCH, 2), Ref("b", BRANCH, 1, 4, None)}
    assert snapshot_log({"current-snapshot-id": -1}).main == ()


logs = st.builds(
    lambda parents, heads, tags: SnapshotLog(
        tuple(
            Snapshot(n, (parent % n) or None if n > 1 else None, n * 10)
            for n, parent in enumerate(parents, start=1)
        ),
        (
            *(
                Ref(MAIN if not n else f"b{n}", BRANCH, 1 + h % len(parents))
                for n, h in enumerate(heads)
            ),
            *(Ref(f"t{n}", "tag", 1 + t % len(parents)) for n, t in enumerate(tags)),
        ),
    ),
    st.lists(st.integers(0, 50), min_size=1, max_size=20),
    st.lists(st.integers(0, 50), min_size=1, max_size=3),
    st.lists(st.integers(0, 50), max_size=3),
)


@settings(max_examples=examples(200))
@given(logs, st.integers(0, 300), st.integers(1, 5), st.frozensets(st.integers(1, 20), max_size=3))
def test_a_kept_branch_has_no_gap_above_what_is_needed(
    given_log: SnapshotLog, age: int, least: int, needed: frozenset[int]
) -> None:
    held = kept(given_log, Retention(age, least, needed), now_ms=250)
    assert given_log.heads <= held
    main = [one.id for one in given_log.main]
    places = [main.index(one) for one in needed if one in main]
    assert set(main[: max(places, default=-1) + 1]) <= held
    for ref in given_log.refs:
        if ref.type == BRANCH:
            branch = [one.id for one in line(given_log.by_id, ref.snapshot_id)]
            assert set(branch[:least]) <= held
    assert held == kept(given_log, Retention(age, least, needed), now_ms=250)
    older = kept(given_log, Retention(age, least, needed), now_ms=300)
    assert older <= held


def test_an_age_of_for_ever_is_due_at_no_time_that_can_be_shown() -> None:
    log = SnapshotLog((Snapshot(1, None, 0), Snapshot(2, 1, 10)), (Ref("main", "branch", 2),))
    kept_for_ever = of_table(Retention(5, 1), {MAX_AGE_MS: str((1 << 63) - 1)})
    assert due_ms(log, kept_for_ever, 20) is None and not old(log, kept_for_ever, 1 << 50)
    assert due_ms(log, Retention(5, 1), 0) == 6
