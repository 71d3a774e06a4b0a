"""Sampled rows of one piece of a table, lent to another of which no row was read.

A piece is a data file, or a row group of one. Its smallest and largest values and its counts of
NULL are known although its rows are not, so rows of the most alike piece are moved to where they
must lie (definitions: Sketch, What-if).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reconciler.core.filetable import UNKNOWN, Array, Bool, ColumnBounds, Float64, Int64
from reconciler.core.values import Kind

ALIKE = 0.9
"""Two ranges that share this much of the wider one hold the same values: none is moved, so that
what is equal in truth stays equal."""

DIGITS = 6
"""Bytes after a common prefix that make a text a number: 48 bits, exact in float64."""

LARGEST = float(2**63 - 1024)
"""The largest float64 that is an int64."""

GOLDEN = 0.6180339887498949
"""Multiples of it, modulo 1, are spread evenly and in no order."""


def nearest(columns: Sequence[ColumnBounds], pieces: Int64, owners: Int64) -> Int64:
    """For each of `pieces` the one of `owners` with the most alike bounds, an index into owners.

    Both are places in the columns' arrays; a piece that is an owner finds itself.
    """
    distance = np.zeros((len(pieces), len(owners)), dtype=np.float32)
    for bounds in columns:
        known = bounds.bounded
        differ = known[pieces][:, None] != known[owners][None, :]
        both = known[pieces][:, None] & known[owners][None, :]
        for side in (bounds.lower, bounds.upper):
            rank = np.unique(side, return_inverse=True)[1].reshape(-1)
            place = (rank / max(rank.max(initial=0), 1)).astype(np.float32)
            apart = np.abs(place[pieces][:, None] - place[owners][None, :])
            distance += np.where(both, apart, 2 * differ)  # without values, it lends none
    distance[pieces[:, None] == owners[None, :]] = -1.0
    return distance.argmin(axis=1)


def lent_nulls(bounds: ColumnBounds, records: Int64, null: Bool, source: Int64, to: Int64) -> Bool:
    """NULL flags of sampled rows, as many of a lent piece's as it counts.

    source, to: per row, the piece that it was read from and the one it stands for; records: rows
    per piece. What was NULL before stays so first, for the sake of the other columns.
    """
    flags = null.copy()
    for piece in np.unique(to[(source != to) & (bounds.nulls[to] != UNKNOWN)]):
        rows = np.flatnonzero(to == piece)
        wanted = int(np.rint(len(rows) * bounds.nulls[piece] / max(records[piece], 1)))
        surplus = int(flags[rows].sum()) - wanted
        others = rows[flags[rows] == (surplus > 0)]
        steps = (np.arange(abs(surplus)) + 0.5) / max(abs(surplus), 1)
        chosen = others[(steps * len(others)).astype(np.int64)]
        flags[chosen] = surplus < 0
    return flags


def moved(bounds: ColumnBounds, values: Array, null: Bool, source: Int64, to: Int64) -> Array:
    """Values of sampled rows, those of lent pieces mapped linearly into that piece's bounds.

    Rows that were NULL where they were read are spread over the bounds. Values stay as they are
    where a bound is missing.
    """
    usable = (source != to) & bounds.bounded[to] & (bounds.bounded[source] | null)
    rows = np.flatnonzero(usable)
    if not len(rows):
        return values
    ends = [
        bounds.lower[source[rows]], bounds.upper[source[rows]],
        bounds.lower[to[rows]], bounds.upper[to[rows]],
    ]  # fmt: skip
    spread = null[rows]
    if bounds.kind is Kind.BYTES:
        changed = _moved_texts(values[rows], ends, spread)
        return _put(values, rows, changed)
    numbers = [end.astype(np.float64) for end in ends]
    changed = _moved_numbers(values[rows].astype(np.float64), numbers, spread)
    if bounds.kind is Kind.INT:
        changed = np.clip(np.rint(changed), -(2.0**63), LARGEST).astype(np.int64)
    changed = np.clip(changed, ends[2], ends[3])  # past what float64 holds exactly
    low, high, to_low, to_high = numbers
    with np.errstate(invalid="ignore", over="ignore"):
        kept = np.isfinite(high - low) & np.isfinite(to_high - to_low)
    return _put(values, rows[kept], changed[kept])


def _put(values: Array, rows: Int64, changed: Array) -> Array:
    out = values.astype(np.promote_types(values.dtype, changed.dtype))
    out[rows] = changed
    return out


def _places(values: Float64, low: Float64, high: Float64, spread: Bool) -> Float64:
    width = np.where(high > low, high - low, 1.0)
    place = np.clip((values - low) / width, 0.0, 1.0)
    return np.where(spread, (np.arange(len(values)) + 0.5) * GOLDEN % 1.0, place)


def _alike(ends: Sequence[Float64]) -> Bool:
    low, high, to_low, to_high = ends
    shared = np.minimum(high, to_high) - np.maximum(low, to_low)
    alike: Bool = shared >= ALIKE * np.maximum(high - low, to_high - to_low)
    return alike


def _moved_numbers(values: Float64, ends: Sequence[Float64], spread: Bool) -> Float64:
    low, high, to_low, to_high = ends
    with np.errstate(
        invalid="ignore", over="ignore"
    ):  # infinite widths: left as they are by the caller
        place = _places(values, low, high, spread)
        there = to_low + place * (to_high - to_low)
        return np.where(_alike(ends) & ~spread, np.clip(values, to_low, to_high), there)


def _moved_texts(values: Array, ends: Sequence[Array], spread: Bool) -> Array:
    """As numbers after what each piece's bounds have in common; the ends themselves are exact."""
    low, high, to_low, to_high = ends
    own, other = _common(low, high), _common(to_low, to_high)
    first, last = _digits(to_low, other), _digits(to_high, other)
    place = _places(_digits(values, own), _digits(low, own), _digits(high, own), spread)
    made = _text(to_low, other, np.rint(first + place * (last - first)))
    made = np.where(place <= 0.0, to_low, np.where(place >= 1.0, to_high, made))
    made = np.where(made < to_low, to_low, np.where(made > to_high, to_high, made))
    both = np.minimum(np.minimum(own, other), _common(low, to_low))
    same = _alike([_digits(end, both) for end in ends]) & ~spread
    inside = np.where(values < to_low, to_low, np.where(values > to_high, to_high, values))
    return np.where(same, inside, made)


def _matrix(texts: Array, width: int) -> Array:
    """uint8[n, width], filled with zeros."""
    padded = np.ascontiguousarray(texts.astype(f"S{width}"))
    return padded.view(np.uint8).reshape(len(texts), width)


def _common(left: Array, right: Array) -> Int64:
    """Length of the common prefix, row by row."""
    width = max(left.dtype.itemsize, right.dtype.itemsize, 1)
    same = _matrix(left, width) == _matrix(right, width)
    return np.where(same.all(axis=1), width, same.argmin(axis=1)).astype(np.int64)


def _digits(texts: Array, after: Int64) -> Float64:
    """The DIGITS bytes from `after` on as a number, row by row."""
    width = texts.dtype.itemsize + 2 * DIGITS + int(after.max(initial=0))
    chosen = np.take_along_axis(_matrix(texts, width), after[:, None] + np.arange(DIGITS), axis=1)
    return chosen.astype(np.float64) @ 256.0 ** np.arange(DIGITS - 1, -1, -1)


def _text(like: Array, after: Int64, digits: Float64) -> Array:
    """The first `after` bytes of `like`, then the number's bytes."""
    width = int(after.max(initial=0)) + DIGITS
    out = _matrix(like, max(width, like.dtype.itemsize))[:, :width].copy()
    out[np.arange(width)[None, :] >= after[:, None]] = 0
    parts = (digits.astype(np.int64)[:, None] >> (8 * np.arange(DIGITS - 1, -1, -1))) & 255
    np.put_along_axis(out, after[:, None] + np.arange(DIGITS), parts.astype(np.uint8), axis=1)
    return np.ascontiguousarray(out).view(f"S{width}").reshape(-1)
