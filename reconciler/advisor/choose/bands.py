"""Offers bands of one column, each sorted by another one, beside a curve over both.

A Hilbert curve over two columns cuts both alike: of 310 files, about 18 hold a value of either. Of
four bands of the first column, four files hold a value of the second. So bands serve tables of
which most queries ask for one column. They are a tree of cuts at quantiles. No cut is a literal of
a query: the next queries read what these read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from reconciler.advisor.advice import QD_TREE
from reconciler.advisor.judge.candidate import Candidate
from reconciler.advisor.judge.engine import why_by_spark
from reconciler.advisor.simulate.pool import Pool
from reconciler.advisor.situation import Situation
from reconciler.plan.ordering import CutTree, Ordering, by_tree
from reconciler.table.block_ids import owned_column
from reconciler.table.cut_tree import Cut, made
from reconciler.table.filetable import Float64, Int64
from reconciler.table.uuid_order import UUID

Judge = Callable[[Ordering], Sequence[Candidate]]
"""Returns the rewrite by an ordering, nothing if nothing is known of it."""

FIRST, MOST = 8, 32
"""Bands that are tried first in either direction, and the most that are tried."""
NEAR = 0.9
"""Share of what the better direction saves in the first number of bands, from which on other
numbers are tried in a direction."""
LEAST_FILES = 2
"""Files of a band, on average: one file has no neighbour that it could be sorted beside."""


def banded(
    situation: Situation, ranked: Sequence[Candidate], pool: Pool, judge: Judge
) -> list[Candidate]:
    """Return bands of the best pair of columns among these keys, judged, in both directions.

    None where trees alone are asked for, or where Spark writes, which ends files by size.
    """
    best = next((one for one in ranked if len(one.ordering.key) == 2), None)
    if best is None or situation.settings.mode == QD_TREE or why_by_spark(situation, best.rows):
        return []
    pair = [column.field_id for column in best.ordering.key]
    most = min(best.files_out // LEAST_FILES, MOST)
    if most < 2 or not all(_bounded(situation, field) for field in pair):
        return []
    first = min(FIRST, 1 << (most.bit_length() - 1))
    starts = [(own, one) for own in permutations(pair) for one in _tried(pool, own, first, judge)]
    found = [one for _, one in starts]
    most_saved = max((one.net for one in found), default=0.0)
    for own, start in starts:
        if start.net >= NEAR * most_saved:
            found += _climbed(pool, own, first, most, judge, start)
    return list({one.ordering: one for one in found}.values())


def _climbed(
    pool: Pool, pair: Sequence[int], first: int, most: int, judge: Judge, start: Candidate
) -> list[Candidate]:
    """Return the rewrites in half as many bands as `first` as long as that saves more, else in
    twice as many."""
    fewer = [first >> power for power in range(1, first.bit_length() - 1)]
    more = [first << power for power in range(1, MOST.bit_length()) if first << power <= most]
    found = _uphill(pool, pair, fewer, judge, start)
    if all(one.net <= start.net for one in found):
        found += _uphill(pool, pair, more, judge, start)
    return found


def _uphill(
    pool: Pool, pair: Sequence[int], counts: Sequence[int], judge: Judge, start: Candidate
) -> list[Candidate]:
    """Return the rewrites in these numbers of bands, up to the first that saves no more."""
    found, last = list[Candidate](), start
    for count in counts:
        tried = _tried(pool, pair, count, judge)
        found += tried
        if not tried or tried[0].net <= last.net:
            break
        last = tried[0]
    return found


def _tried(pool: Pool, pair: Sequence[int], count: int, judge: Judge) -> Sequence[Candidate]:
    along, sorted_by = pair
    ordering = in_bands(pool, along, sorted_by, count)
    return judge(ordering) if ordering is not None else ()


def _bounded(situation: Situation, field: int) -> bool:
    """Whether files show ranges of the column that all readers order alike. The ids of a tree's
    leaves do not count: rows would be cut by another tree."""
    if field in situation.facts.unbounded or situation.table.schema.by_id[field].type == UUID:
        return False
    owned = owned_column(situation.settings.metadata)
    return field != owned


def in_bands(pool: Pool, along: int, sorted_by: int, count: int) -> CutTree | None:
    """Return the order by bands of about equal rows of a column, each sorted by another one; None
    where the sample shows no two of them. NULL is in the first band, NaN in the last.

    A value that fills several bands makes them one.
    """
    column = pool.columns[along]
    ranks = _quantiles(column.sort_ranks, pool.weight, count)
    ranks = ranks[(ranks > 0) & (ranks < len(column.distinct))]
    if not len(ranks):
        return None
    cuts = [Cut(along, column.distinct[rank].item()) for rank in ranks.tolist()]
    return by_tree(made(_balanced(cuts), [sorted_by] * (len(cuts) + 1)))


def _quantiles(ranks: Int64, weight: Float64, count: int) -> Int64:
    """Return the distinct ranks at which parts of equal weight begin, without the first."""
    order = np.argsort(ranks, kind="stable")
    below = np.cumsum(weight[order]) - weight[order]
    at = np.searchsorted(below, float(weight.sum()) * np.arange(1, count) / count)
    return np.unique(ranks[order][np.minimum(at, len(order) - 1)])


def _balanced(cuts: Sequence[Cut]) -> Any:
    """Return the nodes of these cuts, as `cut_tree.made` takes them."""
    if not cuts:
        return None
    middle = len(cuts) // 2
    return cuts[middle], _balanced(cuts[:middle]), _balanced(cuts[middle + 1 :])
