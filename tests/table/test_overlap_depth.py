"""Overlap depth equals a brute-force count, and says what it cannot judge."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.table.overlap_depth import rank_columns
from reconciler.table.schema import Field, Schema
from tests.examples import examples
from tests.said import Said
from tests.table.tables import File, column_depth, single_column, table_of

RANGE = st.tuples(st.integers(0, 12), st.integers(0, 6)).map(lambda p: (p[0], p[0] + p[1]))


def brute_force(bounds: list[tuple[int, int]], rows: list[int]) -> tuple[float, int]:
    """Every elementary interval against every file."""
    cuts = sorted({b for pair in bounds for b in pair})
    intervals = [(p, p) for p in cuts if (p, p) in bounds] + list(pairwise(cuts))

    def covers(low: int, high: int, a: int, b: int) -> bool:
        if low == high:
            return (a, b) == (low, high)
        return low < a < high if a == b else low <= a and b <= high

    depth = {i: sum(covers(*f, *i) for f in bounds) for i in intervals}
    total = 0.0
    for file, weight in zip(bounds, rows, strict=True):
        mine = [i for i in intervals if covers(*file, *i)]
        length = sum(b - a for a, b in mine)
        share = {i: (i[1] - i[0]) / length if length else 1.0 for i in mine}
        total += weight * sum(share[i] * depth[i] for i in mine)
    return total / sum(rows), max(depth.values())


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(RANGE, min_size=1, max_size=10), st.data())
def test_depth_equals_brute_force(bounds: list[tuple[int, int]], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(1, 9), min_size=len(bounds), max_size=len(bounds)))
    depth = column_depth(single_column(bounds).columns[1], np.array(rows))
    mean, deepest = brute_force(bounds, rows)
    assert depth.mean == pytest.approx(mean)
    assert depth.maximum == deepest


@pytest.mark.parametrize(
    ("bounds", "mean", "maximum"),
    [
        ([(0, 5), (5, 9), (9, 12)], 1.0, 1),
        ([(0, 9)] * 4, 4.0, 4),
        ([(3, 3)] * 5, 5.0, 5),
        ([(0, 2), (5, 7)], 1.0, 1),
        ([(0, 10), (5, 5)], 1.5, 2),
        ([(0, 100), (99, 199)], 1.01, 2),
    ],
    ids=[
        "touching ends",
        "all the same",
        "one value",
        "a gap between",
        "a value inside",
        "a slight overlap",
    ],
)
def test_depth_of(bounds: list[tuple[int, int]], mean: float, maximum: int) -> None:
    depth = column_depth(single_column(bounds).columns[1], np.full(len(bounds), 10))
    assert (depth.mean, depth.maximum) == (pytest.approx(mean), maximum)


def columns(table: Any) -> dict[str, Any]:
    return {line.name: line for line in rank_columns(table)}


def test_columns_are_ranked_best_clustered_first_and_unjudged_last(said: Said) -> None:
    files = [File(((i, i % 2), (i + 1, 1 + i % 2))) for i in range(10)]
    table = table_of(files, ("long", "long"))
    table = replace(
        table,
        schema=Schema(0, (*table.schema.fields, Field(7, "tags.element", "int", False, True))),
    )
    lines = rank_columns(table)
    assert [line.name for line in lines] == ["k1", "k2", "p", "tags.element"]
    assert lines[0].mean == 1.0 and lines[0].bounds == "all files"
    assert lines[1].share == pytest.approx(lines[1].mean / 10)
    assert [line.judged for line in lines] == [True, True, False, False]
    for line in lines[2:]:
        said(line.bounds)


def test_files_that_hold_only_null_need_no_bounds() -> None:
    files = [File(((1,), (5,))), File(((None,), (None,))), File(((3,), (None,)))]
    line = columns(table_of(files, ("long",)))["k1"]
    assert (line.bounded, line.files, line.judged) == (3, 3, True)
    only_null = columns(table_of([File(((None,),))], ("long",)))["k1"]
    assert only_null.reason == "only NULL"


def test_files_without_bounds_are_counted(said: Said) -> None:
    table = single_column([(0, 5), (5, 9), (2, 3)])
    column = table.columns[1]
    column = replace(column, has_lower=np.array([True, True, False]))
    line = columns(replace(table, columns={1: column}))["k1"]
    assert (line.bounded, line.files, line.mean) == (2, 3, 1.0)
    said(line.bounds)


def test_truncated_bounds_are_judged_where_prefixes_differ_and_not_where_they_are_one(
    said: Said,
) -> None:
    sorted_files = [File(tuple((b"%04d-suffix%02d" % (i, j),) for j in range(5))) for i in range(9)]
    line = columns(table_of(sorted_files, ("string",)))["k1"]
    assert not line.judged
    said(line.reason)
    spread = [
        File(tuple((b"%04d-suffix%02d" % (i * 3 + j, j),) for j in range(4))) for i in range(9)
    ]
    line = columns(table_of(spread, ("string",)))["k1"]
    assert line.mean == 1.0
    said(line.bounds)


def test_an_empty_table_has_nothing_to_judge() -> None:
    assert not any(line.judged for line in rank_columns(table_of([], ("long", "string"))))


def test_infinite_and_nan_bounds_give_numbers() -> None:
    inf, nan = float("inf"), float("nan")
    files = [File(((-inf,), (inf,))), File(((0.0,), (1.0,))), File(((2.0,), (nan,)))]
    table = table_of(files, ("double",))
    column = replace(table.columns[1], upper=np.array([inf, 1.0, nan]))
    line = columns(replace(table, columns={1: column}))["k1"]
    assert (line.bounded, line.files) == (2, 3)
    assert 1.0 <= line.mean <= 2.0 and line.maximum == 2
