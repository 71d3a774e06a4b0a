"""Whether a trial held what was predicted, and which trial counts."""

from __future__ import annotations

import pytest

from reconciler.plan.execution import COMMITTED, FAILED, Outcome
from reconciler.plan.ledger import LedgerEntry, ReadCheck
from reconciler.plan.prediction import Prediction
from reconciler.plan.trial import TRIAL, Trial, trial_of


@pytest.mark.parametrize(
    ("before", "predicted", "actual", "held"),
    [
        (1_000, 500, 500, True),
        (1_000, 500, 600, True),  # 400 saved of 500: the interval begins at 0.8
        (1_000, 500, 601, False),
        (1_000, 500, 100, True),  # more than predicted
        (1_000, 1_000, 1_000, True),
        (1_000, 1_000, 1_001, False),
        (1_000, 1_100, 1_120, True),  # it was predicted that they read more
        (1_000, 1_100, 1_121, False),
    ],
)
def test_a_trial_holds_if_queries_save_what_the_interval_begins_with(
    before: int, predicted: int, actual: int, held: bool
) -> None:
    check = ReadCheck("p-1", 1, before, predicted, actual, True)
    assert Trial("p-1", check, 0.8).held is held
    assert Trial("p-1", check, 0.8).document()["held"] is held


def test_a_trial_without_a_finding_does_not_hold() -> None:
    assert not Trial("p-1", None, 0.8).held
    partly = ReadCheck("p-1", 1, 1_000, 500, 500, complete=False)
    assert not Trial("p-1", partly, 0.8).held


def entry(plan: str, at_ms: int, state: str = COMMITTED, evidence: str = TRIAL) -> LedgerEntry:
    outcome = Outcome(f"{plan}-1-1", 1, "a01", state, 1, 0, 0, 1, 1, 0, 0.0, 0.0)
    return LedgerEntry("uuid", plan, at_ms, outcome, Prediction(evidence=evidence))


def test_only_a_committed_trial_whose_files_are_live_counts() -> None:
    checks = [ReadCheck("p-1", 5, 10, 8, 8, True), ReadCheck("p-2", 9, 10, 7, 7, True)]
    entries = [entry("p-1", 4), entry("p-2", 8), entry("p-3", 9, evidence="drift")]
    found = trial_of(entries, checks, {"p-1", "p-2", "p-3"})
    assert found is not None and (found.plan, found.check) == ("p-2", checks[1])
    assert trial_of(entries, checks, {"p-3"}) is None  # p-2 was rolled back
    assert trial_of([entry("p-1", 4, FAILED)], checks, {"p-1"}) is None
    unknown = trial_of(entries, (), {"p-1"})
    assert unknown is not None and unknown.check is None
