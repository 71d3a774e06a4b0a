"""Tests which of many literals match which of many intervals, with one small comparison per cell.

The literals of a slot are sorted once and every bound is placed among them by binary search; after
that each cell of the q x n result is one comparison of small integers, whatever the column's type.
Zone maps are intervals; a row or a partition value is an interval of one point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reconciler.queries.predicate import Literal
from reconciler.queries.predicate_batch import CHUNK_CELLS, SlotLiterals, Test
from reconciler.table.filetable import Array, Bool, Int64
from reconciler.table.scales import Scale


@dataclass(frozen=True, slots=True)
class Intervals:
    """The value ranges of one column in n files or row groups. Arrays have shape [n]."""

    lower: Array
    """Lower end, included, in the column's domain; meaningless where `has_lower` is False."""
    upper: Array
    """Upper end, included, in the column's domain; meaningless where `has_upper` is False."""
    has_lower: Bool
    """Whether the lower end is known."""
    has_upper: Bool
    """Whether the upper end is known."""
    valueless: Bool
    """Whether there is no comparable value, only NULL or NaN."""
    null_only: Bool
    """Whether there are only NULLs."""


def points(values: Array, null: Bool) -> Intervals:
    """Return single values as intervals; NaN is a value without an order."""
    nan = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), dtype=np.bool_)
    known = ~(null | nan)
    return Intervals(values, values, known, known, ~known, null)


def may_hold(op: str, literals: SlotLiterals, over: Intervals, in_limit: int | None = None) -> Test:
    """Return the test whether an interval may hold a value v for which `v op literal` is true.

    Exact for points. in_limit: IN lists longer than this are not evaluated (Iceberg's 200).
    """
    if op == "in":
        return _in_test(literals, over, in_limit)
    if op == "not in":
        return _negated(_in_test(_without_nul(literals), _single_valued(over), None), over)
    assert not isinstance(literals, tuple)
    values, nul = scalar_literals(literals)
    if op == "starts":
        return _starts_test(values, over)
    if op == "not starts":
        return _negated(_all_start_test(values, over), over, nul)
    if op == "!=":
        return _negated(_band_of("=", values, _single_valued(over)), over, nul)
    if op == "<" and nul.any():
        # v < 'a\0' holds for 'a', but numpy cannot distinguish 'a' from 'a\0': test v < 'a\1'
        # instead.
        values = np.where(nul, np.char.add(values, b"\x01"), values)
    return _band_of(op, values, over)


def scalar_literals(literals: Array) -> tuple[Array, Bool]:
    """Return the literals as a plain array, and which of them end in NUL (only object arrays show
    it)."""
    if literals.dtype != object:
        return literals, np.zeros(len(literals), dtype=np.bool_)
    items = literals.tolist()
    return np.array(items, dtype=np.bytes_), np.array([item.endswith(b"\0") for item in items])


def prefix_successors(prefixes: Array) -> tuple[Array, Bool]:
    """Return, per prefix, the least byte string above everything that starts with it, and if one
    exists.

    The last byte below 0xFF is incremented and the rest cut off; '' and 0xFF... have none.
    """
    width = prefixes.dtype.itemsize
    raw = np.ascontiguousarray(prefixes).view(np.uint8).reshape(len(prefixes), width).copy()
    column = np.arange(width)
    inside = column[None, :] < np.char.str_len(prefixes)[:, None]
    can_grow = inside & (raw != 0xFF)
    exists = can_grow.any(axis=1)
    last = np.where(exists, width - 1 - np.argmax(can_grow[:, ::-1], axis=1), 0)
    rows = np.flatnonzero(exists)
    raw[rows, last[rows]] += 1
    raw[column[None, :] > last[:, None]] = 0
    return raw.reshape(-1).view(prefixes.dtype), exists


@dataclass(frozen=True, slots=True)
class Band:
    """A comparison of literals and intervals by places: it may hold if first <= rank < last."""

    rank: Array
    """int64[queries], number of literals that are smaller than the query's."""
    first: Array | None
    """int64[n], the least rank that the interval meets; None where its lower end is no matter."""
    last: Array | None
    """int64[n], the rank after the greatest; None where its upper end is no matter."""
    size: int
    """Number of literals; `first` is one more for an interval that meets none."""

    @property
    def test(self) -> Test:
        return _band(self.rank, self.first, self.last, self.size)


def _band_of(op: str, values: Array, over: Intervals) -> Test:
    return band_of(op, values, over).test


def band_of(op: str, values: Array, over: Intervals, scale: Scale | None = None) -> Band:
    """Return a comparison with the literals, whose operation is =, <, <=, > or >=. scale: of the
    intervals' ends, if it is known."""
    ordered = np.sort(values)
    rank, size = np.searchsorted(ordered, values), len(ordered)
    first = last = None
    if op in ("<", "<=", "="):
        side = "right" if op == "<" else "left"
        lower, at = (over.lower, None) if scale is None else (scale.distinct, scale.low)
        first = _placed(ordered, lower, over.has_lower, side, missing=0, at=at)
        first[over.valueless] = size + 1
    if op in (">", ">=", "="):
        side = "left" if op == ">" else "right"
        upper, at = (over.upper, None) if scale is None else (scale.distinct, scale.high)
        last = _placed(ordered, upper, over.has_upper, side, missing=size, at=at)
        last[over.valueless] = 0
    return Band(rank.reshape(-1), first, last, size)


def _placed(
    ordered: Array, bound: Array, has: Bool, side: str, missing: int, at: Int64 | None = None
) -> Array:
    """Return how many of the ordered literals are below the bound (side left) or up to it (side
    right). at: which of `bound` each is, if they are not one for one."""
    place = np.searchsorted(ordered, bound, side=side)  # type: ignore[call-overload]
    place = place if at is None else place[at]
    place[~has] = missing
    return place


def _band(rank: Array, first: Array | None, last: Array | None, size: int) -> Test:
    places = _small(rank.reshape(-1), size)
    low = None if first is None else _small(first, size)
    high = None if last is None else _small(last, size)

    def test(chunk: slice) -> Bool:
        mine = places[chunk, None]
        within = None if low is None else mine >= low
        if high is None:
            assert within is not None
            return within
        below: Bool = mine < high
        return below if within is None else np.logical_and(within, below, out=below)

    return test


def _small(places: Array, size: int) -> npt.NDArray[np.int32]:
    """Return the positions in the narrowest integers that hold them: memory bandwidth dominates the
    time."""
    return places.astype(np.int16 if size < 32_000 else np.int32)


def _starts_test(prefixes: Array, over: Intervals) -> Test:
    """Prefix p is the range [p, successor of p): upper >= p and lower < successor."""
    reaches = _band_of(">=", prefixes, over)
    successors, exists = prefix_successors(prefixes)
    distinct, rank = np.unique(successors, return_inverse=True)
    rank = np.where(exists, rank.reshape(-1), len(distinct))
    first = _placed(distinct, over.lower, over.has_lower, "right", missing=0)
    first[over.valueless] = len(distinct) + 1
    begins = _band(rank, first, None, len(distinct))
    return lambda chunk: reaches(chunk) & begins(chunk)


def _all_start_test(prefixes: Array, over: Intervals) -> Test:
    """Test that both bounds start with the prefix: the same two conditions with the ends
    exchanged."""
    bounded = over.has_lower & over.has_upper
    swapped = Intervals(over.upper, over.lower, bounded, bounded, ~bounded, over.null_only)
    return _starts_test(prefixes, swapped)


def _single_valued(over: Intervals) -> Intervals:
    """Return the intervals that are known to hold one value only; the others become empty."""
    single = over.has_lower & over.has_upper & (over.lower == over.upper)
    return Intervals(over.lower, over.lower, single, single, ~single, over.null_only)


def _negated(everything: Test, over: Intervals, nul: Bool | None = None) -> Test:
    """Test for another value: not everything equals the literal, and not everything is NULL."""
    some = ~over.null_only
    unsure = None if nul is None or not nul.any() else nul

    def test(chunk: slice) -> Bool:
        other = ~everything(chunk)
        if unsure is not None:
            other |= unsure[chunk, None]
        return other & some

    return test


def _in_test(literals: SlotLiterals, over: Intervals, limit: int | None) -> Test:
    """Test that some member is in the interval: the next member at or after `first` is before
    `last`."""
    members = [m if isinstance(m, tuple) else (m,) for m in literals]
    lengths = np.array([len(m) for m in members], dtype=np.int64)
    flat = [value for m in members for value in m]
    if not flat:
        return lambda _: np.zeros((1, len(over.lower)), dtype=np.bool_)
    distinct, inverse = np.unique(_member_array(flat), return_inverse=True)
    size = len(distinct)
    first = _placed(distinct, over.lower, over.has_lower, "left", missing=0)
    last = _placed(distinct, over.upper, over.has_upper, "right", missing=size)
    last[over.valueless] = 0
    rank = inverse.reshape(-1).astype(np.int32)
    offset = np.concatenate(([0], np.cumsum(lengths)))
    high = last.astype(np.int32)
    too_long = lengths > limit if limit is not None else np.zeros(len(lengths), dtype=np.bool_)

    def test(chunk: slice) -> Bool:
        start, stop, _ = chunk.indices(len(lengths))
        if stop - start > 1 and (stop - start) * size > CHUNK_CELLS:
            middle = (start + stop) // 2
            return np.concatenate((test(slice(start, middle)), test(slice(middle, stop))))
        following = np.full((stop - start, size + 1), size, dtype=np.int32)
        mine = rank[offset[start] : offset[stop]]
        following[np.repeat(np.arange(stop - start), lengths[start:stop]), mine] = mine
        following = np.minimum.accumulate(following[:, ::-1], axis=1)[:, ::-1]
        found: Bool = following[:, first] < high
        found[too_long[start:stop]] = ~over.valueless
        return found

    return test


def _member_array(flat: list[Literal]) -> Array:
    if isinstance(flat[0], bytes):
        return np.array(flat, dtype=np.bytes_)
    return np.array(flat, dtype=np.float64 if isinstance(flat[0], float) else np.int64)


def _without_nul(literals: SlotLiterals) -> tuple[tuple[Literal, ...], ...]:
    """Return the members without those that end in NUL, where keeping them would prove too much."""
    return tuple(
        tuple(v for v in m if not (isinstance(v, bytes) and v.endswith(b"\0")))
        for m in (m if isinstance(m, tuple) else (m,) for m in literals)
    )
