"""Which way a plan can be taken back, and what is held afterwards: on histories written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.plan.actions.roll_back import RollBack
from reconciler.plan.actions.state import Facts, Validity
from reconciler.plan.execution import COMMITTED, FAILED, Intent, Outcome
from reconciler.plan.ledger import LedgerEntry
from reconciler.plan.prediction import Prediction
from reconciler.plan.undo import carried, held_files, last_to_undo, undone_by, way_back
from reconciler.table.metadata import TableMetadata
from reconciler.table.retention import BRANCH, MAIN, Ref, Snapshot, SnapshotLog
from reconciler.table.summary_keys import PLAN_ID


def log(*plans: str, head: int | None = None, without: tuple[int, ...] = ()) -> SnapshotLog:
    """Snapshots 1, 2, ... one on the other, each of a plan or, by "", of another writer."""
    snapshots = tuple(
        Snapshot(number, number - 1 or None, number, {PLAN_ID: plan} if plan else {})
        for number, plan in enumerate(plans, start=1)
        if number not in without
    )
    return SnapshotLog(snapshots, (Ref(MAIN, BRANCH, head or len(plans)),))


def done(
    plan: str, batch: int, snapshot: int | None, state: str = COMMITTED, **predicted: str
) -> LedgerEntry:
    outcome = Outcome(f"{plan}-1", batch, "a01", state, snapshot, 0, 0, 0, 0, 0, 0.0, 0.0)
    predictions = Prediction.from_document({"type": "Cluster", **predicted})
    return LedgerEntry("u", plan, batch, outcome, predictions)


def batch(plan: str, number: int, inputs: str, outputs: str) -> Intent:
    return Intent("u", ("t",), plan, f"{plan}-1", number, ("a01",), 1, "", tuple(inputs),
                  tuple(outputs))  # fmt: skip


BATCHES = [batch("p", 1, "ab", "x"), batch("p", 2, "cx", "y"), batch("p", 3, "d", "z")]
PAST = carried("p", [done("p", 1, 2), done("p", 2, 3), done("p", 3, None, FAILED)], BATCHES)


def test_what_a_plan_did_is_what_its_committed_batches_did() -> None:
    assert sorted(PAST.replaced) == ["a", "b", "c"]
    assert sorted(PAST.added) == ["x", "y"]
    assert sorted(PAST.snapshots) == [2, 3]


@pytest.mark.parametrize(
    ("found", "to"),
    [
        (log("", "p", "p"), 1),
        (log("", "", "p", "p"), None),  # its commits are not 2 and 3
        (log("", "p", "p", ""), None),
        (log("", "p", "p", "other"), None),
        (log("", "p", "", "p"), None),
        (log("", "p", "p", without=(1,)), None),
        (log("", "p", "p", head=1), None),
        (SnapshotLog(), None),
    ],
)
def test_a_rollback_takes_back_the_plan_and_nothing_else(
    found: SnapshotLog, to: int | None
) -> None:
    way = way_back(PAST, found)
    assert way.to == to
    assert way.why


def test_an_expiry_within_the_commits_of_a_plan_is_no_other_commit() -> None:
    expired = way_back(PAST, log("", "p", "p", without=(1,)))
    assert way_back(PAST, log("", "p", "p", without=(1, 2))) == expired
    assert way_back(PAST, log("", "p", "", "p")).why != expired.why


ROLLBACK = RollBack(("x", "y"), 1, 3, ("a", "b", "c"))


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (log("", "p", "p"), Validity.PENDING),
        (log("", "p", "p", ""), Validity.LOST),
        (log("", "p", "p", without=(1,)), Validity.LOST),
        (log("", "p", "p", head=1), Validity.DONE),
        (log("", "p", "p", head=2), Validity.LOST),  # a part of the plan is still there
        (SnapshotLog((*log("", "p", "p").snapshots, Snapshot(4, 1, 4)), (Ref(MAIN, BRANCH, 4),)),
         Validity.DONE),
        (SnapshotLog(log("", "p").snapshots[:1], (Ref(MAIN, BRANCH, 1),)), Validity.DONE),
    ],
)  # fmt: skip
def test_a_rollback_is_judged_by_what_is_on_main(found: SnapshotLog, state: Validity) -> None:
    assert ROLLBACK.judge(Facts(metadata=TableMetadata(log=found))).validity is state


def test_files_are_held_under_the_policy_of_the_undo() -> None:
    mark = {"undoes": "p", "heldUnder": "policy"}
    intents = [batch("p", 1, "ab", "x"), batch("p", 2, "cx", "y")]
    first = [done("p", 1, 2), done("p", 2, 3)]
    back = [*first, done("q", 1, None, type="RollBack", **mark)]
    rolled = replace(batch("q", 1, "y", ""), outputs=())
    assert held_files(back, [*intents, rolled]) == {"policy": dict.fromkeys("abc", "p")}
    again = [*first, done("q", 1, 4, type="Restore", **mark)]
    assert held_files(again, [*intents, batch("q", 1, "y", "mn")]) == {
        "policy": dict.fromkeys("mn", "p")
    }
    failed = [*first, done("q", 1, None, FAILED, type="RollBack", **mark)]
    assert held_files(failed, [*intents, rolled]) == {}
    assert undone_by(back) == {"p": "q"} and undone_by(failed) == {}
    assert last_to_undo(first) == "p"
    assert last_to_undo(back) is None
    assert last_to_undo([*back, replace(done("r", 1, 5), at_ms=9)]) == "r"
