"""Conditions between two columns of one row, such as `l_commitdate < l_receiptdate`: what trees of
cuts take for a column of truth values (Yang et al., "Qd-tree", section 6.1: advanced cuts).

Its order is that of every column: NULL, where either side is NULL, then 0 for false, then 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reconciler.table.filetable import Bool, Int64

LESS, EQUALS = "less", "equals"
TYPES = ("int", "long", "date", "timestamp", "timestamptz")
"""Types of which two columns can be a pair, both of the same: engines compare these alike, and
each value is one whole number. Floats have NaN, texts have collations."""
TRUTHS = np.array([0, 1], dtype=np.int64)
"""The values of the column of truth values."""
_TRANSFORM = re.compile(rf"({LESS}|{EQUALS})\[(\d{{1,10}})\]")


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """A condition between two columns of one row."""

    left: int
    """Field id of the first column."""
    test: str
    """LESS or EQUALS."""
    right: int
    """Field id of the second column."""

    @property
    def transform(self) -> str:
        """Return how a predicate names it, as a function of the first column."""
        return f"{self.test}[{self.right}]"

    @property
    def fields(self) -> tuple[int, int]:
        return self.left, self.right

    @property
    def sign(self) -> str:
        """Return the test in SQL."""
        return "<" if self.test == LESS else "="

    @property
    def opposite(self) -> str:
        """Return the test in SQL that is true where this one is false."""
        return ">=" if self.test == LESS else "<>"

    def places(self, left: Int64, right: Int64, null: Bool) -> Int64:
        """Return the place of each row in the order of truth values, -1 for NULL, int64[rows].

        left, right: numbers that are ordered and equal as the values of both columns are; of a row
        with NULL in either, any.
        """
        true = left < right if self.test == LESS else left == right
        return np.where(null, -1, np.asarray(true, dtype=np.int64)).astype(np.int64)


def pair_of(field_id: int, transform: str) -> Pair | None:
    """Return the pair that a predicate names by a function of its first column, None for another
    function."""
    found = _TRANSFORM.fullmatch(transform)
    return None if found is None else Pair(field_id, found[1], int(found[2]))


def pair_number(field_id: int) -> int:
    """Return the place in its tree's pairs of a pair that is cut like a column: -1 is the first."""
    return -1 - field_id


def sound(pair: Pair) -> bool:
    """Whether it is a condition between two columns."""
    return pair.test in (LESS, EQUALS) and min(pair.fields) > 0 and pair.left != pair.right


Places = tuple[Int64, npt.NDArray[np.int64]]
"""The place of each row in a column's distinct values, -1 for NULL, and these values."""


def ranked(pair: Pair, left: Places, right: Places) -> Int64:
    """Return the places of rows that are known by places in both columns."""
    null = (left[0] < 0) | (right[0] < 0)
    first, second = (values[np.maximum(places, 0)] for places, values in (left, right))
    return pair.places(first, second, null)
