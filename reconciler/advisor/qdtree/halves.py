"""Halves of a log, by which a tree of cuts is judged.

A tree is cut at the literals of queries, so that it serves these better than the next ones of the
same kind: the fewer queries there are for a leaf, the more so. Where they are few, each half of
them is read from a tree that was grown for the other half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reconciler.queries.shape import Shape
from reconciler.table.filetable import Bool

MOST_QUERIES = 512
"""Queries up to which a tree is judged so. Of 1,000 queries and 500 leaves the next queries read 1
to 4 % more than those that the tree was grown for."""


@dataclass(frozen=True, slots=True)
class Half:
    """Queries that are read from a tree which was grown for all others."""

    own: tuple[Bool, ...]
    """Per shape, bool[queries]: those that are read from it."""

    def others(self, demands: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the queries that the tree is grown for."""
        return tuple(d.take(~own) for d, own in zip(demands, self.own, strict=True))


def halves(demands: Sequence[Shape], seed: int) -> tuple[Half, ...]:
    """Return the halves, drawn at random; none where the log has many queries.

    A query that was executed more than once is expected with the same literals again. It reads what
    it reads of the tree itself, and is in no half.
    """
    once = [demand.weight <= 1.0 for demand in demands]
    if sum(map(len, demands)) > MOST_QUERIES:
        return ()
    random = np.random.default_rng(seed)
    first = [random.random(len(demand)) < 0.5 for demand in demands]
    both = (
        Half(tuple(mine & single for mine, single in zip(half, once, strict=True)))
        for half in (first, [~one for one in first])
    )
    return tuple(half for half in both if any(own.any() for own in half.own))
