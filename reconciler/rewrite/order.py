"""The order of rows by the values of key columns: as Spark sorts, ties in order of arrival.

NULLs come first when ascending and last when descending, NaN is greater than every number, zeros
of both signs are equal, texts and bytes are compared as unsigned bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.rewrite import arrow
from reconciler.rewrite import curve as curves
from reconciler.rewrite.columns import Column
from reconciler.rewrite.task import Key, Order

SAMPLE_ROWS = 200_000
"""Rows that a curve is fitted to."""
DIGIT_BITS = 16
"""NumPy sorts numbers of so many bits by counting them, several times as fast as wider ones."""
EXACT_DIGITS = 18
"""Decimal digits that a 64-bit integer always holds."""

Int64 = npt.NDArray[np.int64]


def permutation(
    order: Order, values: Sequence[pa.ChunkedArray], rows: int, first: Sequence[Int64] = ()
) -> Int64:
    """Return the numbers of the rows in the order in which they are written.

    values: of the order's keys, in order of arrival. first: numbers that come before the keys.
    """
    if order.curve:
        scores = np.stack([
            _score(own, key) for own, key in zip(values, order.keys, strict=True)
        ])  # fmt: skip
        return stable_order([*first, along(scores)], rows)
    parts = [
        part
        for own, key in zip(values, order.keys, strict=True)
        for part in sort_parts(own, descending=key.descending)
    ]
    return stable_order([*first, *parts], rows)


def along(scores: curves.Scores) -> Int64:
    """Return the place of each row along the curve. scores: float64[columns, rows]."""
    rows = scores.shape[1]
    chosen = np.linspace(0, rows - 1, min(rows, SAMPLE_ROWS)).astype(np.int64)
    return curves.fit_curve(scores[:, chosen]).position(scores)


def sort_parts(values: pa.ChunkedArray, *, descending: bool) -> list[Int64]:
    """Return integers by which rows sort like the values, the most significant first."""
    classes, numbers = _numbers(values)
    if descending:
        numbers = ~numbers
        classes = None if classes is None else -classes
    return [numbers] if classes is None else [classes, numbers]


def _score(values: pa.ChunkedArray, key: Key) -> curves.Scores:
    """Return a float per row that never reverses the order; NULL and NaN are its ends."""
    classes, numbers = _numbers(values)
    found = numbers.astype(np.float64)
    if pa.types.is_floating(values.type):
        found = floats_of(arrow.one_piece(values))
    if classes is not None:
        found = np.where(classes < 0, -math.inf, np.where(classes > 0, math.inf, found))
    return -found if key.descending else found


def floats_of(values: pa.Array) -> curves.Scores:
    """Return floats of either width, NULL as zero."""
    return np.asarray(values.fill_null(0.0).to_numpy(zero_copy_only=False), dtype=np.float64)


def _numbers(values: pa.ChunkedArray) -> tuple[Int64 | None, Int64]:
    """Return a class per row (-1 NULL, 0 a value, 1 NaN; None if all are values), and an integer
    that sorts like the value."""
    whole = arrow.one_piece(values)
    nulls = whole.is_null().to_numpy(zero_copy_only=False) if whole.null_count else None
    if pa.types.is_floating(whole.type):
        return _of_floats(whole, nulls)
    numbers = numbers_of(whole)
    if nulls is None:
        return None, numbers
    numbers = np.where(nulls, 0, numbers)
    return -nulls.astype(np.int64), numbers


def _of_floats(whole: pa.Array, nulls: Any) -> tuple[Int64 | None, Int64]:
    floats = whole.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float64)
    nan = np.isnan(floats)
    floats = np.where(nan, 0.0, floats) + 0.0  # a negative zero becomes a positive one
    bits = floats.view(np.int64)
    numbers = np.where(bits < 0, np.iinfo(np.int64).min - bits - 1, bits)
    if nulls is None and not nan.any():
        return None, numbers
    classes = nan.astype(np.int64)
    return classes if nulls is None else classes - nulls.astype(np.int64), numbers


def numbers_of(whole: pa.Array) -> Int64:
    """Return integers that sort like the values: those of the column's domain, if they are whole
    numbers there (`table.values`), else ranks. Of NULL, any."""
    kind = whole.type
    if pa.types.is_dictionary(kind):
        ranks = _ranks(whole.dictionary)
        at = whole.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return ranks[at] if len(ranks) else np.zeros(len(whole), dtype=np.int64)
    if pa.types.is_boolean(kind):
        return np.asarray(whole.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.int64)
    if pa.types.is_decimal(kind) and kind.precision <= EXACT_DIGITS:
        return _unscaled(whole)
    if pa.types.is_date32(kind):
        whole = whole.view(pa.int32())
    elif pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        whole = whole.view(pa.int64())
    if pa.types.is_integer(whole.type):
        return np.asarray(whole.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
    return _ranks(whole)


def _ranks(whole: pa.Array) -> Int64:
    ranks = pc.rank(whole, sort_keys="ascending", tiebreaker="dense")
    return np.asarray(ranks.to_numpy(zero_copy_only=False), dtype=np.int64)


def _unscaled(whole: pa.Array) -> Int64:
    """Return the unscaled values of decimals of at most 18 digits: the low half of their bytes."""
    data = whole.buffers()[1]
    if data is None:
        return np.zeros(len(whole), dtype=np.int64)
    halves = np.frombuffer(data, dtype="<i8")
    return halves[2 * whole.offset : 2 * (whole.offset + len(whole)) : 2].astype(np.int64)


def stable_order(parts: Sequence[Int64], rows: int) -> Int64:
    """Return the stable order by integers, the most significant first."""
    found: Int64 | None = None
    for part in reversed(parts):
        for digit in _digits(part):
            if found is None:
                found = np.argsort(digit, kind="stable")
            else:
                found = found[np.argsort(digit[found], kind="stable")]
    return np.arange(rows, dtype=np.int64) if found is None else found


def _digits(part: Int64) -> list[npt.NDArray[np.uint16]]:
    """Return the digits of integers in base 2^16, the least significant first, without leading
    zeros; [] if all are equal."""
    if not len(part):
        return []
    low, high = int(part.min()), int(part.max())
    shifted, spread, digits = part.view(np.uint64) - np.uint64(low % (1 << 64)), high - low, []
    while spread:
        digits.append((shifted & np.uint64((1 << DIGIT_BITS) - 1)).astype(np.uint16))
        shifted, spread = shifted >> np.uint64(DIGIT_BITS), spread >> DIGIT_BITS
    return digits


def columns_with(ids: Iterable[int], ways: Any) -> tuple[Column, ...]:
    """Return the top-level columns that hold columns of these ids, each once."""
    tops = [ways[field_id][0] for field_id in ids]
    return tuple({top.field_id: top for top in tops}.values())


def values_of(ids: Iterable[int], ways: Any, table: pa.Table) -> list[pa.ChunkedArray]:
    """Return the values of columns of these ids, in a table that has them or what holds them."""
    found = []
    for field_id in ids:
        top, *inside = ways[field_id]
        values = table.column(table.schema.names.index(top.name))
        for column in inside:
            values = arrow.child_of(values, column.name)
        found.append(values)
    return found
