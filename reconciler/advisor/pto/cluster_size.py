"""Estimates the average distinct size of sort clusters (PTO, section 3.2.4).

A sort cluster holds the rows of one combination of values of the sort columns. Large clusters let
row groups be skipped whole. The average is over the distinct sizes, because a long tail of small
clusters would otherwise decide it. Algorithm 1 uses the values after min-max normalisation, so that
only their order and spacing matter. Of the paper's estimates, fixed sampling keeps these best
(bench/RESULTS.md, "Recommendations").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from reconciler.advisor.simulate.pool import Pool
from reconciler.table.filetable import Int64

MOST_RATE = 0.01
"""Largest sampling rate. Subsets of many values would otherwise run to the whole table."""

Codes = npt.NDArray[np.int64]
"""The cluster of each sampled row, in random order."""


def distinct_count(codes: Codes, table_rows: int) -> float:
    """The table's rows per cluster (section 4.3.2, APPROX DISTINCT), with the number of clusters
    estimated from the sample by Anne Chao's bias-corrected formula."""
    clusters, once, twice = _repetitions(codes)
    distinct = clusters + once * max(once - 1, 0) / (2.0 * (twice + 1))
    return table_rows / min(max(distinct, 1.0), float(table_rows))


def _repetitions(codes: Codes) -> tuple[int, int, int]:
    """Return the number of clusters, and of those with one and with two rows. `np.unique`, which
    also counts the larger ones, takes three times as long."""
    ordered = np.sort(codes)
    # A cluster begins where the code changes; the end counts as a beginning.
    begins = np.ones(len(codes) + 1, dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:-1])
    once = begins[:-1] & begins[1:]
    twice = begins[:-2] & ~begins[1:-1] & begins[2:]
    clusters, ones, twos = map(np.count_nonzero, (begins[:-1], once, twice))
    return int(clusters), int(ones), int(twos)


def fixed_sampling(codes: Codes, table_rows: int) -> float:
    """The average of the sampled sizes, scaled by the sampling rate (section 4.3.2)."""
    size = min(len(codes), max(2, round(MOST_RATE * table_rows)))
    _, counts = np.unique(codes[:size], return_counts=True)
    return float(np.unique(counts).mean()) * table_rows / size


def subsets(columns: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the power set without the empty set, smaller subsets first."""
    return tuple(
        chosen for size in range(1, len(columns) + 1) for chosen in combinations(columns, size)
    )


def cluster_sizes(pool: Pool, columns: Sequence[int]) -> dict[tuple[int, ...], float]:
    """Return the average distinct cluster size per subset of the columns, in table rows."""
    rows = rows_of(pool)
    sampled = min(len(pool), max(2, int(MOST_RATE * rows)))
    every = clusters(pool, columns, sampled)
    found = {chosen: fixed_sampling(codes, rows) for chosen, codes in every}
    return {chosen: found[chosen] for chosen in subsets(columns)}


def rows_of(pool: Pool) -> int:
    return round(float(pool.weight.sum()))


def clusters(
    pool: Pool, columns: Sequence[int], sampled: int
) -> Iterator[tuple[tuple[int, ...], Codes]]:
    """Yield each subset of the columns with the clusters of that many rows of the pool."""
    shuffled = np.random.default_rng(0).permutation(len(pool))[:sampled]
    hashed = {
        column: _hashed(pool.columns[column].ranks[shuffled], number)
        for number, column in enumerate(columns)
    }
    yield from _summed(tuple(columns), hashed)


def _summed(
    columns: tuple[int, ...],
    hashed: Mapping[int, Codes],
    chosen: tuple[int, ...] = (),
    codes: Codes | int = 0,
) -> Iterator[tuple[tuple[int, ...], Codes]]:
    """Yield each subset with its rows' clusters; at most one array a column is held at a time."""
    for number, column in enumerate(columns, start=1):
        both, own = (*chosen, column), codes + hashed[column]
        yield both, own
        yield from _summed(columns[number:], hashed, both, own)


def _hashed(ranks: Int64, column: int) -> Codes:
    """Return 64 random bits per value (SplitMix64), so that sums of them tell combinations apart:
    two of a million combinations are equal by chance once in 40 million cases."""
    mixed = (ranks + 2).astype(np.uint64) + np.uint64(column + 1) * np.uint64(1 << 40)
    with np.errstate(over="ignore"):
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return mixed.view(np.int64)
