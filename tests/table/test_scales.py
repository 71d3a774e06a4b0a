"""A scale says of every bound where it is among all of them, and what is asked by it is asked of
each bound alone."""

from __future__ import annotations

import numpy as np
import pytest

from reconciler.queries.literal_ranges import Intervals, band_of
from reconciler.table.filetable import Array, ColumnBounds
from reconciler.table.scales import known_scale, scale_of
from reconciler.table.values import Kind

COUNT = 500


def bounds(kind: Kind, seed: int) -> ColumnBounds:
    """Bounds of which many are equal, and some are not known."""
    random = np.random.default_rng(seed)
    drawn: Array = random.integers(0, 60, (2, COUNT))
    if kind is Kind.FLOAT:
        drawn = drawn / 4.0
    elif kind is Kind.BYTES:
        drawn = np.char.mod("%03d", drawn).astype(np.bytes_)
    low, high = np.sort(drawn, axis=0)
    lower, upper = random.random((2, COUNT)) < 0.9
    none = np.zeros(COUNT, dtype=np.int64)
    return ColumnBounds(1, kind, low, high, lower, upper, none, none, none, none, none > 0)


@pytest.mark.parametrize("kind", Kind)
def test_places_and_ranks_are_those_of_sorted_bounds(kind: Kind) -> None:
    column = bounds(kind, 1)
    assert known_scale(column) is None
    scale = scale_of(column)
    assert known_scale(column) is scale
    assert (
        np.sort(np.unique(np.concatenate((column.lower, column.upper)))) == scale.distinct
    ).all()
    for place, rank, own in zip(
        (scale.low, scale.high), scale.ranks, (column.lower, column.upper), strict=True
    ):
        assert (scale.distinct[place] == own).all()
        assert (rank == np.unique(own, return_inverse=True)[1]).all()


@pytest.mark.parametrize("op", ["=", "<", "<=", ">", ">="])
def test_literals_are_placed_alike_with_and_without_a_scale(op: str) -> None:
    column, literals = bounds(Kind.INT, 2), np.random.default_rng(3).integers(-5, 65, 40)
    valueless = np.arange(COUNT) % 7 == 0
    over = Intervals(
        column.lower, column.upper, column.has_lower, column.has_upper, valueless, valueless
    )
    every = slice(None)
    plain = band_of(op, literals, over).test(every)
    assert (plain == band_of(op, literals, over, scale_of(column)).test(every)).all()
    assert not plain.all()
    assert plain.any()
