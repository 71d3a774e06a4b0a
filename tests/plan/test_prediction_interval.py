"""How many files a table will have: an interval around what each rewrite is foretold to write."""

from __future__ import annotations

from reconciler.plan.prediction_interval import FilesTold, Interval, files_after


def test_nothing_rewritten_is_exact():
    assert files_after(7, []) == Interval(7, 7, 7, "exact")


def test_each_group_may_end_in_a_file_more_or_less():
    assert files_after(30, [FilesTold(20, 6, 2, False)]) == Interval(14.0, 16.0, 18.0)


def test_of_many_files_a_tenth_may_be_off_and_more_where_only_the_size_is_known():
    assert files_after(500, [FilesTold(400, 100, 1, False)]) == Interval(190.0, 200.0, 210.0)
    assert files_after(500, [FilesTold(400, 100, 1, True)]) == Interval(175.0, 200.0, 210.0)


def test_a_rewrite_leaves_at_least_one_file():
    told = [FilesTold(9, 1, 1, False), FilesTold(9, 1, 1, True)]
    assert files_after(20, told) == Interval(4.0, 4.0, 6.0)
