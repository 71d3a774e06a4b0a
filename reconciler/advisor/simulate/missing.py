"""NULL, value, NaN: which of them the files and row groups of a rewrite may hold.

For the what-if (definitions: What-if). What a slice holds is told by its sampled rows; where these
are too few to tell, by the counts of the files that the rows come from. A rewrite counts what it
writes, so a class that no input holds is in no output either.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reconciler.core.filetable import Bool, ColumnBounds, Float64, Int64
from reconciler.core.values import Kind

NULL, VALUE, NAN = 0, 1, 2
"""In the order of an ascending sort, as Spark's defaults have it; a descending one is reversed."""

CLASSES = (NULL, VALUE, NAN)

TELLING = 5.0
"""Rows of a class expected among a slice's sampled ones: as many and none seen, there is none.
(Evenly mixed, such a slice is missed once in e^5 = 148 times.)"""


@dataclass(frozen=True)
class Missing:
    """What a column's sampled rows are. Arrays have shape [rows] or [3, rows], by class.

    of: the row's own class. share: of the rows of its file that are of a class. possible: its file
    may hold the class. own: the row was sampled of its own file, not lent by another.
    """

    of: npt.NDArray[np.int8]
    share: Float64
    possible: Bool
    own: Bool


def missing(
    column: ColumnBounds, records: Int64, null: Bool, nan: Bool, file: Int64, own: Bool
) -> Missing:
    """null, nan, own: per sampled row; file: its row of the file table; records: rows per file."""
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
    if len(np.unique(file)) < len(records):  # files without a row here are spoken for by the others
        share = np.broadcast_to(share.mean(axis=1, keepdims=True), share.shape)
        possible = np.broadcast_to(possible.any(axis=1, keepdims=True), possible.shape)
    return Missing(of, share[:, file], possible[:, file], own)


@dataclass(frozen=True)
class Held:
    """Per slice, what it may hold. Arrays [3, slices], by class; rows: estimated, none where the
    class is not held and all where no other is."""

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
    """What each slice of the rows in `order` may hold; starts: first rows of the slices.

    chunk: execution group per ordered row. sorted_by: "asc" or "desc" where this column leads the
    sort, "" where the slices are not in its order.
    """
    of, possible = rows.of[order], rows.possible[:, order]
    mine = np.stack([of == wanted for wanted in CLASSES]) & possible
    seen = np.logical_or.reduceat(mine, starts, axis=1)
    if sorted_by:
        may = seen | _between(of, possible, starts, chunk, sorted_by == "desc")
    else:
        told = np.add.reduceat(rows.share[:, order] * rows.own[order], starts, axis=1)
        may = seen | (np.logical_or.reduceat(possible, starts, axis=1) & (told < TELLING))
    counted = np.rint(np.add.reduceat(np.where(mine, weight, 0.0), starts, axis=1))
    others = np.stack([np.delete(may, wanted, axis=0).any(axis=0) for wanted in CLASSES])
    most = np.where(others, np.maximum(records - 1, 0), records)
    number = np.where(others, np.clip(counted, 1, np.maximum(most, 1)), records)
    return Held(may, np.where(may, number, 0).astype(np.int64))


def _between(
    of: npt.NDArray[np.int8], possible: Bool, starts: Int64, chunk: Int64, reverse: bool
) -> Bool:
    """In key order a slice holds what lies between its neighbour rows of the same group; the first
    slice of a group from its least class on, the last up to its greatest."""
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
