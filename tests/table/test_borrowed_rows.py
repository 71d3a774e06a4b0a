"""Borrowed rows lie where the statistics of the piece that they represent say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.table.borrowed_rows import borrowed_nulls, moved, nearest
from reconciler.table.filetable import UNKNOWN, ColumnBounds
from reconciler.table.values import Kind

KINDS = {"int64": Kind.INT, "float64": Kind.FLOAT}


def bounds_of(lower, upper, nulls=None, known=None):
    """A zone map over pieces; None in `lower` is a piece without bounds."""
    lower, upper = np.array(lower), np.array(upper)
    count = len(lower)
    known = np.ones(count, dtype=bool) if known is None else np.array(known)
    unknown = np.full(count, UNKNOWN, dtype=np.int64)
    counts = unknown if nulls is None else np.array(nulls, dtype=np.int64)
    kind = KINDS.get(str(lower.dtype), Kind.BYTES)
    return ColumnBounds(
        1, kind, lower, upper, known, known, counts, unknown, unknown, unknown, ~known
    )


integers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False)
texts = st.binary(max_size=12).map(lambda text: text.rstrip(b"\0"))


@st.composite
def two_pieces(draw, values):
    """(bounds of two pieces, values of the first, NULL flags)."""
    ranges = [sorted(draw(st.tuples(values, values))) for _ in range(2)]
    lower, upper = zip(*ranges, strict=True)
    rows = draw(st.lists(values, min_size=1, max_size=20))
    inside = [min(max(row, lower[0]), upper[0]) for row in rows]
    flags = draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    return list(lower), list(upper), inside, np.array(flags)


def finite(low, high):
    return np.isfinite(high / 2 - low / 2) and high / 2 > low / 2


@given(st.one_of(two_pieces(integers), two_pieces(floats), two_pieces(texts)))
def test_moved_rows_lie_within_the_bounds_of_the_piece_and_keep_their_order(drawn):
    lower, upper, rows, null = drawn
    dtype = {int: np.int64, float: np.float64, bytes: np.bytes_}[type(rows[0])]
    bounds = bounds_of(np.array(lower, dtype), np.array(upper, dtype))
    values = np.array(rows, dtype)
    source, to = np.zeros(len(rows), np.int64), np.ones(len(rows), np.int64)
    found = moved(bounds, values, null, source, to)
    low, high = bounds.lower[1], bounds.upper[1]
    assert ((found >= low) & (found <= high)).all()
    if lower[0] == upper[0] or (bounds.kind is Kind.FLOAT and not finite(lower[0], upper[0])):
        return  # no position is known: rows are spread
    ranks = np.unique(found[~null], return_inverse=True)[1].reshape(-1)
    by_value = np.argsort(values[~null], kind="stable")
    assert (np.diff(ranks[by_value]) >= 0).all()


def test_a_piece_keeps_its_own_rows():
    bounds = bounds_of([0, 100], [10, 200])
    values = np.array([3, 7, 150])
    where = np.array([0, 0, 1])
    found = moved(bounds, values, np.zeros(3, bool), where, where)
    assert found.tolist() == [3, 7, 150]


def test_numbers_are_mapped_linearly_and_texts_after_what_they_have_in_common():
    values = np.array([0, 5, 10])
    source, to, null = np.zeros(3, np.int64), np.ones(3, np.int64), np.zeros(3, bool)
    bounds = bounds_of([0, 100], [10, 200])
    assert moved(bounds, values, null, source, to).tolist() == [100, 150, 200]
    texts = np.array([b"day-01", b"day-05", b"day-09"])
    bounds = bounds_of([b"day-01", b"night-1"], [b"day-09", b"night-9"])
    there = moved(bounds, texts, null, source, to)
    assert there.tolist() == [b"night-1", b"night-5", b"night-9"]


def test_ranges_that_nearly_coincide_leave_values_as_they_are():
    values = np.array([0, 500, 995, 1_000])
    source, to, null = np.zeros(4, np.int64), np.ones(4, np.int64), np.zeros(4, bool)
    found = moved(bounds_of([0, 2], [1_000, 998]), values, null, source, to)
    assert found.tolist() == [2, 500, 995, 998]


def test_rows_that_were_null_are_spread_over_the_bounds():
    null = np.ones(8, bool)
    source, to = np.zeros(8, np.int64), np.ones(8, np.int64)
    bounds = bounds_of([0, 100], [0, 180], known=[False, True])
    found = moved(bounds, np.zeros(8, np.int64), null, source, to)
    assert sorted(value // 10 for value in found) == [10, 11, 12, 13, 14, 15, 16, 17]


def test_values_stay_where_a_bound_is_missing():
    values, null = np.array([1, 2]), np.zeros(2, bool)
    source, to = np.zeros(2, np.int64), np.ones(2, np.int64)
    for known in ([True, False], [False, True]):
        bounds = bounds_of([0, 100], [10, 200], known=known)
        assert moved(bounds, values, null, source, to).tolist() == [1, 2]


@given(st.one_of(two_pieces(integers), two_pieces(floats), two_pieces(texts)))
def test_rows_lent_to_a_piece_of_the_same_bounds_are_the_same(drawn):
    lower, upper, rows, null = drawn
    dtype = {int: np.int64, float: np.float64, bytes: np.bytes_}[type(rows[0])]
    bounds = bounds_of(np.array([lower[0]] * 2, dtype), np.array([upper[0]] * 2, dtype))
    values, where = np.array(rows, dtype), np.zeros(len(rows), np.int64)
    found = moved(bounds, values, null, where, where + 1)
    if dtype is not np.float64 or np.isfinite(upper[0] / 2 - lower[0] / 2):
        assert found[~null].tolist() == values[~null].tolist()


def test_large_integers_are_moved_exactly():
    low = 2**60
    bounds = bounds_of([low, low + 100], [low + 50, low + 200])
    values = low + np.arange(0, 51, 10)
    found = moved(bounds, values, np.zeros(6, bool), np.zeros(6, np.int64), np.ones(6, np.int64))
    assert (found - low).tolist() == [100, 120, 140, 160, 180, 200]


def test_texts_that_differ_late_differ_afterwards():
    names = np.array([f"user-{number:06d}".encode() for number in range(0, 99_900, 100)])
    bounds = bounds_of([b"admin", b"guest"], [b"user-099900", b"user-999999"])
    count = len(names)
    where = np.zeros(count, np.int64)
    found = moved(bounds, names, np.zeros(count, bool), where, where + 1)
    assert len(set(found.tolist())) == count
    assert found.dtype.itemsize == len("user-099900")


@pytest.mark.parametrize(
    ("lower", "upper"),
    [([7, 0], [7, 1_000]), ([7.0, 0.0], [np.inf, 1_000.0]), ([b"x", b"a"], [b"x", b"z"])],
)
def test_a_piece_without_a_known_position_is_spread_over_the_bounds(lower, upper):
    bounds = bounds_of(lower, upper)
    values = np.full(16, bounds.lower[0])
    where = np.zeros(16, np.int64)
    found = moved(bounds, values, np.zeros(16, bool), where, where + 1)
    assert len(set(found.tolist())) == 16


def test_rows_that_are_not_a_number_in_a_piece_without_bounds_are_spread():
    bounds = bounds_of([0.0, 5.0], [0.0, 6.0], known=[False, True])
    where = np.zeros(8, np.int64)
    found = moved(bounds, np.full(8, np.nan), np.zeros(8, bool), where, where + 1)
    assert ((found >= 5.0) & (found <= 6.0)).all()


@pytest.mark.parametrize("share", [0.03, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("rows", [1, 2, 16])
def test_few_rows_of_many_pieces_hold_together_as_many_nulls_as_are_counted(share, rows):
    pieces = 1_000
    nulls = [0] + [int(share * 500)] * pieces
    bounds = bounds_of([0] * (pieces + 1), [9] * (pieces + 1), nulls=nulls)
    to = np.repeat(np.arange(1, pieces + 1), rows)
    records = np.full(pieces + 1, 500)
    null = np.zeros(len(to), bool)
    for flags in (null, ~null):
        found = borrowed_nulls(bounds, records, flags, np.zeros_like(to), to)
        assert found.mean() == pytest.approx(share, abs=0.002)


def test_a_piece_without_bounds_has_no_value_to_lend():
    bounds = bounds_of([0, 0], [0, 0], nulls=[100, 0], known=[False, False])
    null = np.ones(4, bool)
    where = np.zeros(4, np.int64)
    assert borrowed_nulls(bounds, np.array([100, 100]), null, where, where + 1).all()


def test_more_nulls_than_rows_are_all_rows():
    bounds = bounds_of([0, 0], [9, 9], nulls=[0, 300])
    for flags in (np.ones(4, bool), np.zeros(4, bool)):
        where = np.zeros(4, np.int64)
        assert borrowed_nulls(bounds, np.array([100, 100]), flags, where, where + 1).all()


@pytest.mark.parametrize(("nulls", "expected"), [(0, 0), (25, 2), (100, 8), (UNKNOWN, 4)])
def test_as_many_rows_are_null_as_the_piece_counts(nulls, expected):
    null = np.array([True, False] * 4 + [True])
    source = np.zeros(9, np.int64)
    to = np.array([1] * 8 + [0])
    bounds = bounds_of([0, 0], [9, 9], nulls=[50, nulls])
    found = borrowed_nulls(bounds, np.array([100, 100]), null, source, to)
    assert found[:8].sum() == expected
    assert found[8]
    if expected < 4:
        assert not (found & ~null).any()
    else:
        assert not (null & ~found).any()


def test_the_nearest_piece_has_the_most_alike_bounds_and_an_owner_is_its_own():
    first = bounds_of([0, 10, 20, 30, 20], [9, 19, 29, 39, 29])
    second = bounds_of([b"a", b"a", b"c", b"a", b"a"], [b"b", b"b", b"d", b"b", b"b"])
    owners = np.array([0, 2, 4])
    assert nearest([first, second], np.arange(5), owners).tolist() == [0, 0, 1, 2, 2]


def test_a_piece_without_values_is_nearest_to_one_without_values():
    bounds = bounds_of([0, 0, 50, 0], [0, 0, 60, 0], known=[False, True, True, False])
    assert nearest([bounds], np.arange(4), np.array([0, 2])).tolist() == [0, 1, 1, 0]
