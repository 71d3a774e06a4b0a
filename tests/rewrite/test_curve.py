"""The curve that rows are written along is the one that the what-if simulates."""

from __future__ import annotations

import numpy as np
import pytest

from reconciler.plan.ordering import Hilbert, order_rows
from reconciler.rewrite import curve as curves
from reconciler.table.schema import SortColumn


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
