"""Sorts whole numbers by their digits of 16 bits, which numpy does in linear time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reconciler.table.filetable import Array, Int64
from reconciler.table.permutations import inverse_permutation

DIGIT_BITS = 16
MOST_BITS = 62
"""Bits of several numbers that become one."""


def order_of(*keys: Int64, last: Int64) -> Int64:
    """Return the order by whole numbers from 0, the most significant first. last: the least
    significant, distinct: it decides between equal ones.

    For 100,000 files and one small key it takes a third of the time of `argsort` of both.
    """
    dense = int(last.max(initial=-1)) < len(last)
    order = inverse_permutation(last) if dense else _by_digits(last, None)
    for key in reversed(_combined(keys)):
        order = _by_digits(key, order)
    return order


def ranks(values: Array) -> Int64:
    """Return the rank of each value from 0 among the distinct ones, int64[values]."""
    if values.dtype.kind != "i" or not len(values):
        return np.unique(values, return_inverse=True)[1].reshape(-1)
    least = int(values.min())
    if int(values.max()) - least >= 1 << MOST_BITS:
        return np.unique(values, return_inverse=True)[1].reshape(-1)
    order = _by_digits(values.astype(np.int64, copy=False) - least, None)
    found = np.empty(len(values), dtype=np.int64)
    found[order] = np.cumsum(np.diff(values[order], prepend=values[order[:1]]) != 0)
    return found


def distinct_ranks(values: Array) -> tuple[Array, Int64]:
    """Return the distinct values, ascending, and the rank of each value among them,
    int64[values]."""
    if values.dtype.kind != "i" or not len(values):
        distinct, rank = np.unique(values, return_inverse=True)
        return distinct, rank.reshape(-1).astype(np.int64)
    rank = ranks(values)
    distinct = np.empty(int(rank.max()) + 1, dtype=values.dtype)
    distinct[rank] = values
    return distinct, rank


def _by_digits(key: Int64, order: Int64 | None) -> Int64:
    """Return the indexes of `order`, those of all by default, sorted by the key; those with an
    equal key stay as they are."""
    for shift in range(0, int(key.max(initial=1)).bit_length(), DIGIT_BITS):
        digit = ((key if order is None else key[order]) >> shift).astype(np.uint16)
        place = np.argsort(digit, kind="stable")
        order = place if order is None else order[place]
    return np.arange(len(key)) if order is None else order


def _combined(keys: Sequence[Int64]) -> list[Int64]:
    """Return the keys, as one number where it has few enough bits: fewer digits are sorted by."""
    bits = [int(key.max(initial=0)).bit_length() for key in keys]
    if len(keys) < 2 or sum(bits) > MOST_BITS:
        return list(keys)
    found = keys[0]
    for key, own in zip(keys[1:], bits[1:], strict=True):
        found = (found << own) | key
    return [found]
