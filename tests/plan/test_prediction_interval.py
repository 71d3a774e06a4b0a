"""How many files a table will have: an interval around what each rewrite is predicted to write."""

from __future__ import annotations

from reconciler.plan.prediction import Prediction
from reconciler.plan.prediction_interval import Interval, files_after


def rewrite(read: int, written: int, groups: int, *, by_size: bool) -> Prediction:
    milli = 1000 if by_size else 900
    return Prediction(files_in=read, files_out=written, groups=groups, written_milli=milli)


def test_nothing_rewritten_is_exact():
    assert files_after(7, []) == Interval(7, 7, 7, "exact")


def test_each_group_may_end_in_a_file_more_or_less():
    assert files_after(30, [rewrite(20, 6, 2, by_size=False)]) == Interval(14.0, 16.0, 18.0)


def test_of_many_files_a_tenth_may_be_off_and_more_where_only_the_size_is_known():
    known, unknown = (rewrite(400, 100, 1, by_size=size) for size in (False, True))
    assert files_after(500, [known]) == Interval(190.0, 200.0, 210.0)
    assert files_after(500, [unknown]) == Interval(175.0, 200.0, 210.0)


def test_a_rewrite_leaves_at_least_one_file():
    both = [rewrite(9, 1, 1, by_size=size) for size in (False, True)]
    assert files_after(20, both) == Interval(4.0, 4.0, 6.0)
