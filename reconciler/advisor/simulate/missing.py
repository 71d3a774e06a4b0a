"""Estimates which of NULL, value and NaN the files and row groups of a rewrite may hold.

For the what-if (docs/design/definitions.md#what-if). The sampled rows of a slice show what it
holds; if they are too few, the counts of the files that the rows come from decide. A rewrite writes
exact counts, so a class that no input holds is in no output either.
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
    """The classes of a column's sampled rows. Arrays have shape [rows] or [3, rows], by class.

    of: the row's own class. share: share of each class in the row's file. possible: its file may
    hold the class. own: the row was sampled from its own file, not borrowed from another.
    """

    of: npt.NDArray[np.int8]
    share: Float64
    possible: Bool
    own: Bool

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
    floats = column.kind is Kind.FLOAT
    nans = column.nans if floats else np.zeros_like(column.nans)
    rows = np.maximum(records, 1)
    known_null, known_nan = np.maximum(column.nulls, 0), np.maximum(nans, 0)
    seen = np.bincount(of, minlength=3) / max(len(of), 1)
    null_share = np.where(column.nulls < 0, seen[NULL], known_null / rows)
    nan_share = np.where(nans < 0, seen[NAN], known_nan / rows)
    share = np.stack([null_share, np.maximum(1.0 - null_share - nan_share, 0.0), nan_share])
    possible = np.stack([column.nulls != 0, known_null + known_nan < records, nans != 0])
    if len(np.unique(file)) < len(records):  # unsampled files: use the mean
        share = np.broadcast_to(share.mean(axis=1, keepdims=True), share.shape)
        possible = np.broadcast_to(possible.any(axis=1, keepdims=True), possible.shape)
    return Missing(of, share[:, file], possible[:, file], own)


@dataclass(frozen=True)
class Held:
    """The classes that each slice may hold. Arrays [3, slices], by class.

    rows: estimated; 0 if the class is not held, all rows if no other class is.
    """

    may: Bool
    rows: Int64


def held(
    rows: Missing,
    order: Int64,
    weight: Float64,
    starts: Int64,
    records: Int64,
    chunk: Int64,
    sorted_by: str,
) -> Held:
    """Return the classes that each slice of the rows in `order` may hold; starts: first rows of the
    slices.

    chunk: execution group per ordered row. sorted_by: "asc" or "desc" if this column leads the
    sort, "" if the slices are not in its order.
    """
    if rows.only_values:
        none = np.zeros(len(starts), dtype=np.int64)
        return Held(np.stack((none > 0, none == 0, none > 0)), np.stack((none, records, none)))
    of, possible = rows.of[order], rows.possible[:, order]
    mine = np.stack([of == wanted for wanted in CLASSES]) & possible
    seen = np.logical_or.reduceat(mine, starts, axis=1)
    if sorted_by:
        may = seen | _between(of, possible, starts, chunk, sorted_by == "desc")
    else:
        known_share = np.add.reduceat(rows.share[:, order] * rows.own[order], starts, axis=1)
        may = seen | (np.logical_or.reduceat(possible, starts, axis=1) & (known_share < TELLING))
    counted = np.rint(np.add.reduceat(np.where(mine, weight, 0.0), starts, axis=1))
    others = np.stack([np.delete(may, wanted, axis=0).any(axis=0) for wanted in CLASSES])
    most = np.where(others, np.maximum(records - 1, 0), records)
    number = np.where(others, np.clip(counted, 1, np.maximum(most, 1)), records)
    return Held(may, np.where(may, number, 0).astype(np.int64))


def _between(
    of: npt.NDArray[np.int8], possible: Bool, starts: Int64, chunk: Int64, reverse: bool
) -> Bool:
    """Return which classes key order allows per slice.

    A slice holds the classes between its neighbour rows of the same group; the first slice of a
    group starts at its lowest class, the last one ends at its highest.
    """
    place = 2 - of if reverse else of
    ends = np.append(starts[1:], len(of)) - 1
    before, after = np.maximum(starts - 1, 0), np.minimum(ends + 1, len(of) - 1)
    first = (chunk[before] != chunk[starts]) | (starts == 0)
    last = (chunk[after] != chunk[ends]) | (ends == len(of) - 1)
    low = np.where(first, 0, np.minimum(place[before], place[starts]))
    high = np.where(last, 2, np.maximum(place[after], place[ends]))
    edges = np.flatnonzero(np.diff(chunk, prepend=chunk[0] - 1))
    group = np.searchsorted(edges, starts, side="right") - 1
    there = np.logical_or.reduceat(possible, edges, axis=1)[:, group]
    rank = np.array([2 - wanted if reverse else wanted for wanted in CLASSES])[:, None]
    return there & (rank >= low[None, :]) & (rank <= high[None, :])
