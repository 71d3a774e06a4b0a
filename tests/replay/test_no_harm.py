"""No load makes a table cost more than 1.10 of doing nothing, whoever chooses the queries, as long
as they are as many as expected and lose no more than the known ones (docs/design/no-harm.md)."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.replay.adversary import ONE_FILE, Days, Run, played, worst_on_the_way
from tests.advisor.worlds import DATE, KEY, PART
from tests.examples import examples

LURED = [Days(7, PART), Days(9, None)]


@cache
def _lured() -> Run:
    return played(LURED)


def _kept(run: Run) -> bool:
    """Whether the promise is kept."""
    return worst_on_the_way(run.running.costs()) <= 1.10


def _known(run: Run) -> bool:
    """Whether the ledger does not take the loss for less than it is."""
    costs = run.running.costs()
    excess = (costs.cost - costs.untouched).sum()
    return run.running.debt.outstanding >= excess - 1e-6 * costs.untouched.sum()


@pytest.mark.parametrize(
    "days",
    [
        pytest.param([Days(18, None)], id="nothing but the worst queries"),
        pytest.param(LURED, id="lured for a week"),
        pytest.param([Days(3, PART), Days(3, None)] * 3, id="lured again and again"),
        pytest.param([Days(16, PART, 0.2), Days(12, None, 0.2)], id="few queries"),
        pytest.param([Days(7, DATE), Days(7, None)], id="lured to a second column of arrival"),
        pytest.param([Days(7, PART), Days(3, None, 4.0)], id="four times as many"),
    ],
)
def test_an_adversary_that_sees_the_layout_does_no_more_harm_than_promised(
    days: list[Days],
) -> None:
    """Without the reserve for putting back, the first of these cost 1.91, the second 2.2 of doing
    nothing, and most of the others more than 1.10."""
    found = _lured() if days is LURED else played(days)
    assert _kept(found)
    assert _known(found)


def test_what_breaks_the_promise_is_more_than_was_expected() -> None:
    """Five times as many queries as any day before: no policy that ever leaves the order of arrival
    bounds what they cost."""
    found = played([Days(14, PART), Days(2, None, 5.0)])
    assert not _kept(found)
    assert not found.as_assumed
    costs = found.running.costs()
    over = (costs.read - costs.untouched)[1:] > found.unseen[:-1]
    assert over.nonzero()[0].tolist() == [13], "the first day of the many, before the log shows it"


def test_one_file_in_another_order_is_put_back_by_its_row_groups() -> None:
    """By the files' bounds alone nothing was put back: 1.22 of doing nothing instead of 1.13. The
    promise is not kept here, since the ledger knows no row groups of past files."""
    costs = played(LURED, ONE_FILE).running.costs()
    assert costs.rewritten[:7].any()
    assert costs.rewritten[7:].any()
    assert costs.read[7] > 3.0 * costs.untouched[7]
    assert costs.read[-1] < 2.0 * costs.untouched[-1]


def test_a_layout_that_loses_is_put_back_before_the_promise_is_broken() -> None:
    found = _lured()
    assert found.as_assumed
    costs = found.running.costs()
    assert costs.rewritten[:7].any()
    assert costs.rewritten[7:].any()
    assert costs.read[7] > 1.5 * costs.untouched[7]
    assert costs.read[-1] == pytest.approx(costs.untouched[-1], rel=0.05)


parts = st.builds(
    Days,
    st.integers(1, 5),
    st.sampled_from([PART, KEY, DATE, None, None]),
    st.sampled_from([0.25, 1.0, 2.0, 6.0]),
)


@settings(max_examples=examples(4), deadline=None)
@given(st.lists(parts, min_size=2, max_size=5))
def test_no_load_that_is_as_assumed_breaks_the_promise(days: list[Days]) -> None:
    found = played([*days, Days(2, None)])
    assert _known(found)
    if found.as_assumed and len(found.unseen) >= 4:
        assert _kept(found)
