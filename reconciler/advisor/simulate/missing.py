"""Estimates which of NULL, value and NaN the files and row groups of a rewrite may hold.

For the what-if (docs/design/definitions.md#what-if). In come sampled rows with their classes (NULL,
value, NaN) and slices of them; out comes the number of rows of each class in each slice. The
sampled rows of a slice show what it holds. If they are too few, the counts of the files that the
rows come from decide. A rewrite writes exact counts, so a class that no input holds is in no output
either.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from reconciler.table.filetable import Bool, ColumnBounds, Float64, Int64
from reconciler.table.values import Kind

NULL, VALUE, NAN = 0, 1, 2
"""In the order of an ascending sort with Spark's defaults; a descending sort reverses it."""

CLASSES = (NULL, VALUE, NAN)

TELLING = 5.0
"""If this many sampled rows of a class are expected in a slice and none is seen, it holds none.

(A slice that holds the class, evenly mixed, is missed once in e^5 = 148 times.)
"""


@dataclass(frozen=True)
class Missing:
    """Which sampled rows of a column are NULL, a value or NaN: three classes. Arrays have shape
    [rows], or [3, rows] by class."""

    of: npt.NDArray[np.int8]
    """int8[rows]: the row's own class."""
    share: Float64
    """float64[3, rows]: share of each class in the row's file."""
    possible: Bool
    """bool[3, rows]: whether the row's file may hold the class."""
    own: Bool
    """bool[rows]: whether the row was sampled from its own file, not borrowed from another."""

    @cached_property
    def only_values(self) -> bool:
        """Whether every file surely holds values, and neither NULL nor NaN."""
        none = not self.possible[NULL].any() and not self.possible[NAN].any()
        return none and bool(self.possible[VALUE].all()) and bool((self.of == VALUE).all())


def missing(
    column: ColumnBounds, records: Int64, null: Bool, nan: Bool, file: Int64, own: Bool
) -> Missing:
    """Return the classes. null, nan, own: per sampled row; file: row of the file table; records:
    per file."""
    of = np.where(null, NULL, np.where(nan, NAN, VALUE)).astype(np.int8)
    if not column.nulls.any() and (column.kind is not Kind.FLOAT or not column.nans.any()):
        return Missing(of, *_only_values(records, file), own)
    floats = column.kind is Kind.FLOAT
    nans = column.nans if floats else np.zeros_like(column.nans)
    rows = np.maximum(records, 1)
    known_null, known_nan = np.maximum(column.nulls, 0), np.maximum(nans, 0)
    seen = np.bincount(of, minlength=3) / max(len(of), 1)
    null_share = np.where(column.nulls < 0, seen[NULL], known_null / rows)
    nan_share = np.where(nans < 0, seen[NAN], known_nan / rows)
    share = np.stack([null_share, np.maximum(1.0 - null_share - nan_share, 0.0), nan_share])
    possible = np.stack([column.nulls != 0, known_null + known_nan < records, nans != 0])
    if not _all_sampled(records, file):  # unsampled files: use the mean
        share = np.broadcast_to(share.mean(axis=1, keepdims=True), share.shape)
        possible = np.broadcast_to(possible.any(axis=1, keepdims=True), possible.shape)
    return Missing(of, share[:, file], possible[:, file], own)


def _only_values(records: Int64, file: Int64) -> tuple[Float64, Bool]:
    """Return the same shares, and what is possible, where no file has NULL or NaN."""
    filled = records > 0
    some = filled[file] if _all_sampled(records, file) else np.full(len(file), filled.any())
    share = np.broadcast_to(np.array([[0.0], [1.0], [0.0]]), (len(CLASSES), len(file)))
    return share, np.stack([np.zeros_like(some), some, np.zeros_like(some)])


def _all_sampled(records: Int64, file: Int64) -> bool:
    return bool((np.bincount(file, minlength=len(records)) > 0).all())


def counts(rows: Missing, order: Int64, weight: Float64, starts: Int64) -> Float64:
    """Return what slices of the rows in `order` have of each class, float64[4, 3, slices]: rows of
    the table, sampled rows, sampled rows whose file may hold it, and the sampled rows of it that
    the counts of files let expect. starts: first rows of the slices; weight: of each ordered
    row."""
    of, possible = rows.of[order], rows.possible[:, order]
    mine = np.stack([of == wanted for wanted in CLASSES]) & possible
    expected = rows.share[:, order] * rows.own[order]
    each = np.stack([np.where(mine, weight, 0.0), mine, possible, expected])
    return np.add.reduceat(each, starts, axis=-1)


def held(
    found: Float64, records: Int64, allowed: Bool | None = None, barred: Bool | None = None
) -> Int64:
    """Return the estimated rows of each class in the slices, int64[3, slices]: 0 if a slice does
    not hold the class, all rows if it holds no other.

    found: their `counts`; records: their rows of the table; allowed: classes by the order of the
    rows (`between`), None if they are not in the column's order; barred: bool[3, slices], classes
    that no row of the slice can have.
    """
    weight, seen, possible, expected = found
    likely = (possible > 0) & (expected < TELLING) if allowed is None else allowed
    if barred is not None:
        likely = likely & ~barred
    may = (seen > 0) | likely
    others = np.stack([np.delete(may, wanted, axis=0).any(axis=0) for wanted in CLASSES])
    most = np.where(others, np.maximum(records - 1, 0), records)
    number = np.where(others, np.clip(np.rint(weight), 1, np.maximum(most, 1)), records)
    return np.where(may, number, 0).astype(np.int64)


def between(
    rows: Missing, order: Int64, part: Int64, starts: Int64, ends: Int64, *, descending: bool
) -> Bool:
    """Return which classes the order of the key allows in each slice, bool[3, slices].

    A slice holds the classes between its neighbour rows of the same part; the first slice of a part
    starts at its lowest class, the last one ends at its highest. part: of each ordered row.
    """
    of = rows.of[order]
    place, lasts = 2 - of if descending else of, ends - 1
    before, after = np.maximum(starts - 1, 0), np.minimum(ends, len(of) - 1)
    first = (part[before] != part[starts]) | (starts == 0)
    last = (part[after] != part[lasts]) | (lasts == len(of) - 1)
    low = np.where(first, 0, np.minimum(place[before], place[starts]))
    high = np.where(last, 2, np.maximum(place[after], place[lasts]))
    edges = np.flatnonzero(np.diff(part, prepend=part[0] - 1))
    number = np.searchsorted(edges, starts, side="right") - 1
    there = np.logical_or.reduceat(rows.possible[:, order], edges, axis=1)[:, number]
    rank = np.array([2 - wanted if descending else wanted for wanted in CLASSES])[:, None]
    return there & (rank >= low[None, :]) & (rank <= high[None, :])
