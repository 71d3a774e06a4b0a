"""Scores keep the order of every type; curve boxes hold all their rows; cuts divide evenly."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from reconciler.plan.ordering import Hilbert, order_rows
from reconciler.rewrite import curve as curves
from reconciler.spark import keys
from reconciler.table.schema import SortColumn

SCORES = arrays.arrays(
    np.float64,
    st.tuples(st.integers(2, 3), st.integers(1, 60)),
    elements=st.sampled_from([-np.inf, -2.5, 0.0, 1.0, 2.0, 3.0, 7.5, np.inf])
    | st.floats(-1e6, 1e6),
)


@given(scores=SCORES, edges=st.tuples(st.integers(0, 2**16), st.integers(0, 2**16)))
def test_a_stretch_of_the_curve_lies_in_its_box(
    scores: curves.Scores, edges: tuple[int, int]
) -> None:
    curve = curves.fit_curve(scores)
    start, end = min(edges), max(edges)
    position = curve.position(scores)
    inside = (position >= start) & (position < end)
    sides, exact = curve.box(start, end)
    in_box = np.ones(len(position), dtype=np.bool_)
    for column, (low, high) in zip(scores, sides, strict=True):
        in_box &= np.isinf([low])[0] | (column >= low)
        in_box &= np.isinf([high])[0] | (column < high)
    assert in_box[inside].all()
    assert not exact or (in_box == inside).all()


@given(scores=SCORES, share=st.fractions(0, Fraction(99, 100)))
def test_an_aligned_cut_divides_the_sample_as_the_rough_one_does(
    scores: curves.Scores, share: Fraction
) -> None:
    along = curves.fit_curve(scores).position(scores)
    for (rough,) in keys.slice_cuts([(float(place),) for place in along], [share]):
        cut = keys.aligned(int(rough), along)
        # Of up to 200 rows half of a percent is less than two.
        assert abs(np.count_nonzero(along < cut) - np.count_nonzero(along < rough)) <= 1


def test_half_of_an_even_square_is_found_without_the_curve() -> None:
    scores = np.random.default_rng(7).random((2, 20_000))
    curve = curves.fit_curve(scores)
    along = curve.position(scores)
    ((rough,),) = keys.slice_cuts([(float(place),) for place in along], [Fraction(1, 2)])
    cut = keys.aligned(int(rough), along)
    assert cut == 1 << 15
    for start, end in ((0.0, float(cut)), (float(cut), np.inf)):
        sides, exact = curve.box(start, end)
        assert exact
        assert sum(np.isfinite(side).any() for side in sides) == 1


@given(
    values=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=50),
    shares=st.lists(st.fractions(0, Fraction(99, 100)), max_size=5).map(sorted),
)
def test_cuts_leave_no_slice_of_the_sample_empty(
    values: list[tuple[int, int]], shares: list[Fraction]
) -> None:
    sample = [(float(a), float(b)) for a, b in values]
    cuts = keys.slice_cuts(sample, shares)
    assert len(cuts) <= len(shares)
    numbers = {sum(value >= cut for cut in cuts) for value in sample}
    assert numbers == (set(range(len(cuts) + 1)) if sample else set())


def test_common_prefix_is_of_both_bounds() -> None:
    assert keys.common_prefix(b"Customer#01", b"Customer#99") == b"Customer#"
    assert keys.common_prefix("naé".encode(), "naè".encode()) == b"na\xc3"
    assert keys.common_prefix(b"", b"x") == b""


@pytest.mark.spark
def test_positions_in_spark_are_those_of_the_sample(spark: Any) -> None:
    values = [-np.inf, -2.5, -0.0, 0.0, 1.0, np.nextafter(1.0, 0.0), 2.0, 7.5, np.inf]
    rows = [(a, b) for a in values for b in values]
    scores = np.array(rows, dtype=np.float64).T
    for fitted in (scores, scores[:, ::7], np.zeros((2, 3))):
        curve = curves.fit_curve(fitted)
        frame = spark.createDataFrame([(float(a), float(b)) for a, b in rows], "a double, b double")
        columns = [frame["a"], frame["b"]]
        found = frame.select(keys.curve_position(spark, columns, curve)).collect()
        assert [row[0] for row in found] == curve.position(scores).tolist()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("values", "prefix"),
    [
        (["null", "-5", "0", "7", "9223372036854775807"], b""),
        (["cast(null as double)", "double('-Infinity')", "-1.5d", "-0.0d", "2.5d",
          "double('Infinity')", "double('NaN')"], b""),
        (["cast(null as decimal(30,2))", "-10000000000000000000000.25", "0.01", "3.00"], b""),
        (["date'0001-01-01'", "date'1969-12-31'", "date'1970-01-01'", "date'9999-12-31'"], b""),
        (["timestamp'1900-01-01'", "timestamp'1970-01-01'", "timestamp'2026-01-01'"], b""),
        (["timestamp_ntz'1900-01-01'", "timestamp_ntz'2026-01-01 00:00:01'"], b""),
        (["false", "true"], b""),
        (["cast(null as string)", "''", "'a'", "'ab'", "'b'", "'é'", "'\\uFFFF'"], b""),
        (["'a'", "'key#'", "'key#01'", "'key#10'", "'key#2'", "'key$'", "'z'"], b"key#"),
        (["X''", "X'00'", "X'7F'", "X'80'", "X'FF01'"], b""),
        (["X'C3'", "X'C3A8'", "X'C3A801'", "X'C3A8FF'", "X'C3A9'"], b"\xc3\xa8"),
        (["'na'", "'naè'", "'naé'", "'o'"], b"na\xc3"),
    ],
)  # fmt: skip
def test_scores_never_reverse_the_order(spark: Any, values: list[str], prefix: bytes) -> None:
    rows = " UNION ALL ".join(f"SELECT {i} AS i, {v} AS v" for i, v in enumerate(values))
    frame = spark.sql(rows)
    up = keys.KeyColumn(("v",), frame.schema["v"].dataType, descending=False)
    down = keys.KeyColumn(("v",), frame.schema["v"].dataType, descending=True)
    by_value = frame.orderBy(up.order).select("i", keys.score(up, prefix).alias("s")).collect()
    assert [row.i for row in by_value] == list(range(len(values)))
    assert [row.s for row in by_value] == sorted(row.s for row in by_value)
    by_value = frame.orderBy(down.order).select(keys.score(down, prefix).alias("s")).collect()
    assert [row.s for row in by_value] == sorted(row.s for row in by_value)
    assert len({row.s for row in by_value}) > 1


def test_a_curve_puts_rows_in_the_order_of_the_what_if() -> None:
    """With NULLs, NaN and few values, too: neighbours of the one are neighbours of the other."""
    random = np.random.default_rng(5)
    rows = 20_000
    mostly_null = np.where(random.random(rows) < 0.92, -np.inf, random.integers(0, 5_000, rows))
    few = random.integers(0, 3, rows).astype(np.float64)
    skewed = np.minimum(random.zipf(1.5, rows), 1_000).astype(np.float64)
    some_nan = np.where(random.random(rows) < 0.3, np.inf, random.random(rows))
    ordering = Hilbert((SortColumn(1), SortColumn(2)))
    even = random.random(rows)
    for column in (mostly_null, few, skewed, some_nan):
        scores = np.stack((column, even))
        ranks = [np.unique(score, return_inverse=True)[1].reshape(-1) for score in scores]
        planned = order_rows(ordering, ranks, np.arange(rows))
        written = np.argsort(curves.fit_curve(scores).position(scores), kind="stable")
        assert _read(column, planned) == pytest.approx(_read(column, written), rel=0.1)
        assert _read(even, planned) == pytest.approx(_read(even, written), rel=0.1)


def test_a_curve_along_five_columns_is_as_fine_as_in_the_what_if() -> None:
    """Each column has three bits of the position."""
    random = np.random.default_rng(6)
    scores = np.stack([random.random(20_000) for _ in range(5)])
    ranks = [np.argsort(np.argsort(score)) for score in scores]
    ordering = Hilbert(tuple(SortColumn(n) for n in range(1, 6)))
    planned = order_rows(ordering, ranks, np.arange(20_000))
    written = np.argsort(curves.fit_curve(scores).position(scores), kind="stable")
    for score in scores:
        assert _read(score, planned) == pytest.approx(_read(score, written), rel=0.1)


def _read(column: curves.Scores, order: np.ndarray, files: int = 64) -> float:
    """The mean number of files whose bounds a value of the column lies in."""
    parts = np.array_split(column[order], files)
    held = [part[np.isfinite(part)] for part in parts]
    bounds = [(part.min(), part.max()) for part in held if len(part)]
    asked = column[np.isfinite(column)][:500]
    return float(np.mean([sum(low <= value <= high for low, high in bounds) for value in asked]))
