"""Candidate orderings of rows (PTO, Algorithm 1): the power set of filtered columns, scored."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, permutations

import numpy as np

from reconciler.advisor.pto.cluster_size import cluster_sizes
from reconciler.advisor.pto.column_use import Usage
from reconciler.advisor.simulate.pool import Pool
from reconciler.plan.ordering import Hilbert, Lexicographic, Ordering
from reconciler.table.filetable import Float64
from reconciler.table.schema import SortColumn

LEAST_FREQUENCY = 0.05
"""Columns in fewer queries are not considered (section 4.1.3)."""

MOST_COLUMNS = 8
"""Of the power set: 255 subsets."""

TOP = 3
"""Schemes that the paper keeps (section 4.1.3)."""

PAIRED = 4
"""Columns of which every single one, every ordered pair and every curve over two to four is a
candidate beside the paper's."""


def shortlisted(usage: Usage, pool: Pool) -> tuple[int, ...]:
    """Return the sampled columns in at least 5 % of the queries, the most frequent first (lines 1
    to 3)."""
    uses = [use for use in usage.uses if use.frequency >= LEAST_FREQUENCY]
    return tuple(use.field_id for use in uses if use.field_id in pool.columns)[:MOST_COLUMNS]


def schemes(usage: Usage, pool: Pool) -> tuple[tuple[int, ...], ...]:
    """Return the TOP subsets with the best mean of normalised cluster size, union of query
    frequencies, and selectivity (lines 7 to 11). () without a frequent column: bin-packing."""
    columns = shortlisted(usage, pool)
    if not columns:
        return ()
    known = cluster_sizes(pool, columns)
    every = list(known)
    frequency = np.array([usage.union_frequency(chosen) for chosen in every])
    selectivity = np.array([usage.mean_selectivity(chosen) for chosen in every])
    size = np.array([known[chosen] for chosen in every])
    score = (_normal(size) + _normal(frequency) + _normal(1.0 - selectivity)) / 3.0
    best = sorted(range(len(every)), key=lambda i: (-score[i], len(every[i]), every[i]))[:TOP]
    return tuple(every[i] for i in best)


def _normal(values: Float64) -> Float64:
    span = float(values.max() - values.min())
    return np.zeros_like(values) if span <= 0.0 else (values - values.min()) / span


def orderings(usage: Usage, pool: Pool, found: Sequence[Sequence[int]]) -> tuple[Ordering, ...]:
    """Return the candidate orderings, the paper's first.

    Each of the paper's schemes is a sort and a Hilbert curve on ranks. The columns of a sort are in
    order of frequency, because the first one prunes most. Beside them are orderings that cost
    little to simulate: a sort by each column, and for the most frequent columns a sort by each
    ordered pair and a curve over each two to four.
    """
    rank = {column: place for place, column in enumerate(shortlisted(usage, pool))}
    made: dict[Ordering, None] = {}
    for scheme in found:
        key = _key(sorted(scheme, key=lambda column: rank[column]))
        made[Lexicographic(key)] = None
        if len(key) > 1:
            made[Hilbert(key)] = None
    few = sorted(rank, key=lambda column: rank[column])[:PAIRED]
    for column in rank:
        made[Lexicographic(_key([column]))] = None
    for pair in permutations(few, 2):
        made[Lexicographic(_key(pair))] = None
    for size in range(2, len(few) + 1):
        for several in combinations(few, size):
            made[Hilbert(_key(several))] = None
    return tuple(made)


def with_third(pair: Ordering, known: Sequence[Ordering]) -> tuple[Ordering, ...]:
    """Return the sorts by a pair of columns and then by a third one that another pair has."""
    pairs = [one.key for one in known if len(one.key) == 2]
    others = dict.fromkeys(column for key in pairs for column in key if column not in pair.key)
    return tuple(Lexicographic((*pair.key, column)) for column in others)


def _key(columns: Sequence[int]) -> tuple[SortColumn, ...]:
    return tuple(SortColumn(column) for column in columns)
