"""No load makes a table cost more than 1.10 of doing nothing, whoever chooses the queries, but for
what they read beyond all that was expected (docs/design/no-harm.md)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.replay.adversary import (
    IMPORTS,
    ONE_FILE,
    UNATTENDED,
    Days,
    Run,
    played,
    worst_on_the_way,
)
from reconciler.advisor.advice import EARLY_SHARE
from tests.advisor.worlds import DATE, KEY, PART
from tests.examples import examples

LURED = [Days(7, PART), Days(5, None)]
TURNED = 7 * IMPORTS
"""The import from which on they lose."""


def _kept(run: Run, share: float = EARLY_SHARE) -> bool:
    """Whether the promise is kept."""
    return worst_on_the_way(run.running.costs()) <= 1.0 + share


def _bounded(run: Run, share: float = EARLY_SHARE) -> bool:
    """Whether what the table costs too much is at no time more than this share of doing nothing and
    what nobody expected: the theorem without its assumption A1."""
    costs = run.running.costs()
    surprises = np.zeros(len(costs.read))
    surprises[np.flatnonzero(run.decided)] = run.surprises
    allowed = share * np.cumsum(costs.untouched) + np.cumsum(surprises)
    judged = np.array(run.decided)
    return bool((np.cumsum(costs.cost - costs.untouched) <= allowed + 1.0)[judged].all())


def _known(run: Run) -> bool:
    """Whether the ledger does not take the loss for less than it is."""
    costs = run.running.costs()
    excess = (costs.cost - costs.untouched).sum()
    return run.running.debt.outstanding >= excess - 1e-6 * costs.untouched.sum()


@pytest.mark.parametrize(
    ("days", "assumed"),
    [
        pytest.param([Days(12, None)], True, id="nothing but the worst queries"),
        pytest.param([Days(3, PART), Days(3, None)] * 2, True, id="lured again and again"),
        pytest.param([Days(8, PART, 0.2), Days(6, None, 0.2)], True, id="few queries"),
        pytest.param([Days(7, DATE), Days(5, None)], True, id="lured to a second column"),
        pytest.param([Days(7, PART), Days(2, None, 5.0)], True, id="five times as many"),
        pytest.param([Days(7, PART), Days(2, None, 10.0)], False, id="ten times as many"),
    ],
)
def test_an_adversary_that_sees_the_layout_does_no_more_harm_than_promised(
    days: list[Days], assumed: bool
) -> None:
    """assumed: whether A1 holds; a room that expects too little would call it broken.

    Without the reserve for putting back, the first of these cost 1.91 of doing nothing, and most
    of the others more than 1.10. Without decisions on imports, five times as many cost 1.16."""
    found = played(days)
    assert found.as_assumed is assumed
    assert _kept(found)
    assert _bounded(found)
    assert _known(found)


def test_files_are_put_back_though_the_sample_shows_no_saving() -> None:
    """Two files whose sorted rows have a gap between them: widened by a row, their ends overlap.
    Before, they stayed, and the load cost 1.12 of doing nothing after 36 days, and more later."""
    found = played([Days(20, PART, 0.2), Days(16, None, 0.2)], seed=8000)
    assert found.as_assumed
    assert _kept(found)
    assert _bounded(found)


def test_what_breaks_the_promise_is_more_than_was_expected() -> None:
    """One import brings twelve times the queries of the busiest day before: no policy that ever
    leaves the order of arrival bounds what they cost. The next decision ends it."""
    found = played([Days(14, PART), Days(2, None, 50.0)])
    assert not _kept(found)
    assert not found.as_assumed
    assert _bounded(found)
    costs = found.running.costs()
    over = np.flatnonzero(costs.cost > 1.10 * costs.untouched)
    assert over[over >= 14 * IMPORTS].tolist() == [14 * IMPORTS], "the first import of the many"


def test_one_file_in_another_order_is_put_back_by_its_row_groups() -> None:
    """By the files' bounds alone nothing was put back: 1.22 of doing nothing instead of 1.13. The
    promise is not kept here, since the ledger knows no row groups of past files."""
    costs = played(LURED, ONE_FILE).running.costs()
    assert costs.rewritten[:TURNED].any()
    assert costs.rewritten[TURNED:].any()
    assert costs.read[TURNED] > 3.0 * costs.untouched[TURNED]
    assert costs.read[-1] < 2.0 * costs.untouched[-1]


def test_a_layout_that_loses_is_put_back_before_the_promise_is_broken() -> None:
    found = played(LURED)
    assert found.as_assumed
    costs = found.running.costs()
    assert costs.rewritten[:TURNED].any()
    assert costs.rewritten[TURNED:].any()
    assert costs.read[TURNED] > 1.5 * costs.untouched[TURNED]
    assert costs.read[-1] == pytest.approx(costs.untouched[-1], rel=0.05)


parts = st.builds(
    Days,
    st.integers(1, 5),
    st.sampled_from([PART, KEY, DATE, None, None]),
    st.sampled_from([0.25, 1.0, 2.0, 6.0]),
)


@settings(max_examples=examples(3), deadline=None)
@given(st.lists(parts, min_size=2, max_size=5), st.sampled_from([EARLY_SHARE, 0.05, 0.02]))
def test_no_load_costs_more_than_the_promise_and_what_nobody_expected(
    days: list[Days], share: float
) -> None:
    found = played([*days, Days(2, None)], replace(UNATTENDED, early_share=share))
    assert _known(found)
    assert _bounded(found, share)
    if found.as_assumed and len(found.unseen) >= 4 * IMPORTS:
        assert _kept(found, share)
