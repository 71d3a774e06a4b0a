"""Estimates the rows of an unsampled row group by rescaling sampled rows of the most similar one.

Called by the what-if and the sketches for data files and row groups ("pieces"). The smallest and
largest values and the null counts of a piece are known although its rows are not, so rows of the
piece with the most similar bounds are moved into these bounds (docs/design/definitions.md#sketch).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reconciler.table.filetable import UNKNOWN, Array, Bool, ColumnBounds, Float64, Int64
from reconciler.table.scales import scale_of
from reconciler.table.values import Kind

ALIKE = 0.9
"""Two ranges that share this much of the wider one count as the same: values are not moved, so that
equal values stay equal."""

MOST_STEPS = float(2**64 - 2048)
"""The largest float64 that is a uint64."""

GOLDEN = 0.6180339887498949
"""Multiples of it, modulo 1, are spread evenly and follow no pattern."""

Ends = tuple[Array, Array, Array, Array]
"""Per row: bounds of the piece that it was read from, then of the one that it represents."""


def nearest(columns: Sequence[ColumnBounds], pieces: Int64, owners: Int64) -> Int64:
    """Return, for each of `pieces`, the one of `owners` with the most similar bounds, an index into
    owners.

    Both are positions in the columns' arrays; a piece that is an owner finds itself.
    """
    distance = np.zeros((len(pieces), len(owners)), dtype=np.float32)
    for bounds in columns:
        known = bounds.bounded
        differ = known[pieces][:, None] != known[owners][None, :]
        both = known[pieces][:, None] & known[owners][None, :]
        for rank in scale_of(bounds).ranks:
            most = max(rank.max(initial=0), 1)
            mine, theirs = ((rank[some] / most).astype(np.float32) for some in (pieces, owners))
            apart = np.abs(mine[:, None] - theirs[None, :])
            distance += np.where(both, apart, 2 * differ)  # a piece without values provides none
    distance[pieces[:, None] == owners[None, :]] = -1.0
    return distance.argmin(axis=1)


def borrowed_nulls(
    bounds: ColumnBounds, records: Int64, null: Bool, source: Int64, to: Int64
) -> Bool:
    """Return NULL flags, adjusted so that the borrowed rows have as many NULLs as the footers
    count.

    source, to: per row, the piece that it was read from and the one it represents; records: rows
    per piece. Rows that were NULL stay NULL first, to keep correlations with other columns. A row
    that is no longer NULL needs a value: `moved` gives it one if the piece it represents has
    bounds.
    """
    flags, carried = null.copy(), 0.0
    for piece in np.unique(to[(source != to) & (bounds.nulls[to] != UNKNOWN)]):
        rows = np.flatnonzero(to == piece)
        share = min(float(bounds.nulls[piece]) / max(float(records[piece]), 1.0), 1.0)
        due = len(rows) * share + carried  # carry the rounding error to the next piece
        wanted = int(np.clip(np.rint(due), 0, len(rows)))
        carried = due - wanted
        surplus = int(flags[rows].sum()) - wanted
        if surplus > 0 and not bounds.bounded[piece]:
            continue
        others = rows[flags[rows] == (surplus > 0)]
        steps = (np.arange(abs(surplus)) + 0.5) / max(abs(surplus), 1)
        chosen = others[(steps * len(others)).astype(np.int64)]
        flags[chosen] = surplus < 0
    return flags


def moved(bounds: ColumnBounds, values: Array, null: Bool, source: Int64, to: Int64) -> Array:
    """Return the values of sampled rows; borrowed ones are mapped linearly into their new piece's
    bounds.

    If the piece that was read gives no position (its rows are NULL, it has only one value, its
    range is infinite), rows are spread over the bounds. Values do not change if the piece they
    represent has no bounds, or infinite ones.
    """
    bounded = bounds.bounded[source]
    unknown = null | (np.isnan(values) & ~bounded) if bounds.kind is Kind.FLOAT else null
    rows = np.flatnonzero((source != to) & bounds.bounded[to] & (bounded | unknown))
    if not len(rows):
        return values
    ends = (
        bounds.lower[source[rows]], bounds.upper[source[rows]],
        bounds.lower[to[rows]], bounds.upper[to[rows]],
    )  # fmt: skip
    spread = unknown[rows] | ~bounded[rows]
    changed = _MOVED[bounds.kind](values[rows], ends, spread)
    out = values.astype(np.promote_types(values.dtype, changed.dtype))
    out[rows] = changed
    return out


def _anywhere(count: int) -> Float64:
    return np.mod((np.arange(count, dtype=np.float64) + 0.5) * GOLDEN, 1.0)


def _moved_integers(values: Array, ends: Ends, spread: Bool) -> Array:
    """Map in exact int64: float64 holds only positions and distances."""
    low, high, to_low, to_high = ends
    width, to_width = _apart(low, high), _apart(to_low, to_high)
    shared = _apart(np.maximum(low, to_low), np.minimum(high, to_high))
    spread = spread | ((width == 0) & (to_width > 0))
    alike = (shared >= ALIKE * np.maximum(width, to_width)) & ~spread
    place = np.clip(_apart(low, values) / np.maximum(width, 1.0), 0.0, 1.0)
    place = np.where(spread, _anywhere(len(values)), place)
    steps = np.minimum(np.rint(place * to_width), MOST_STEPS).astype(np.uint64)
    steps = np.minimum(steps, to_high.view(np.uint64) - to_low.view(np.uint64))
    there = (to_low.view(np.uint64) + steps).view(np.int64)
    return np.where(alike, np.clip(values, to_low, to_high), there)


def _apart(low: Int64, high: Int64) -> Float64:
    """Return high - low without overflow; -1 if high is below low."""
    distance: Float64 = (high.view(np.uint64) - low.view(np.uint64)).astype(np.float64)
    distance[high < low] = -1.0
    return distance


def _moved_floats(values: Array, ends: Ends, spread: Bool) -> Array:
    low, high, to_low, to_high = (end / 2.0 for end in ends)  # halves: a width may overflow
    with np.errstate(invalid="ignore", over="ignore"):
        width, to_width = high - low, to_high - to_low
        shared = np.minimum(high, to_high) - np.maximum(low, to_low)
        spread = spread | ~np.isfinite(width) | ((width == 0) & (to_width > 0))
        alike = (shared >= ALIKE * np.maximum(width, to_width)) & ~spread
        place = np.clip((values / 2.0 - low) / np.where(width > 0.0, width, 1.0), 0.0, 1.0)
        place = np.where(spread, _anywhere(len(values)), place)
        there = np.where(alike, values, ends[2] + 2.0 * (place * to_width))
    there = np.where(np.isfinite(to_width), there, values)
    return np.clip(there, ends[2], ends[3])


def _moved_texts(values: Array, ends: Ends, spread: Bool) -> Array:
    """Map as whole numbers with as many bytes as the longest text: exact, so that texts that differ
    only after a long common prefix still differ."""
    width = max(array.dtype.itemsize for array in (values, *ends))
    numbers = [_numbers(array, width) for array in (values, *ends)]
    places = _anywhere(len(values))
    made = [
        _between(value, four, float(place), bool(unknown))
        for place, unknown, value, *four in zip(places, spread, *numbers, strict=True)
    ]
    return np.array([number.to_bytes(width, "big") for number in made], dtype=f"S{width}")


def _numbers(texts: Array, width: int) -> list[int]:
    known = {text: int.from_bytes(text.ljust(width, b"\0"), "big") for text in set(texts.tolist())}
    return [known[text] for text in texts.tolist()]


def _between(value: int, ends: Sequence[int], anywhere: float, spread: bool) -> int:
    low, high, to_low, to_high = ends
    width, to_width = high - low, to_high - to_low
    if spread or (width == 0 and to_width > 0):
        return to_low + (int(anywhere * (1 << 53)) * to_width >> 53)
    if min(high, to_high) - max(low, to_low) >= ALIKE * max(width, to_width):
        return min(max(value, to_low), to_high)
    return to_low + min(max(value - low, 0), width) * to_width // max(width, 1)


_MOVED = {Kind.INT: _moved_integers, Kind.FLOAT: _moved_floats, Kind.BYTES: _moved_texts}
