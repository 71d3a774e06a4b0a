"""The estimates of cluster sizes that PTO describes beside fixed sampling, to compare them with it.

Each takes the cluster of each sampled row in random order and the rows of the table, and returns
the average distinct size of clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from reconciler.advisor.pto.cluster_size import (
    MOST_RATE,
    Codes,
    clusters,
    distinct_count,
    fixed_sampling,
    rows_of,
)
from reconciler.advisor.simulate.pool import Pool
from reconciler.table.filetable import Int64

FIRST_RATE = 1e-5
"""Sampling rate at which Algorithm 2 starts: Figure 2 of the paper begins with 0.001 %."""
SINGLETONS = 0.95
"""Algorithm 2 stops below this share of clusters with one sampled row."""


def good_turing(codes: Codes, table_rows: int) -> float:
    """Algorithm 2: samples of ten times the rate until fewer than 95 % of clusters are singletons.

    delta is limited to [0, 1]; the paper's |T| / D^2 exceeds 1 for few clusters.
    """
    rate = FIRST_RATE
    while True:
        size = min(len(codes), max(2, round(rate * table_rows)))
        _, counts = np.unique(codes[:size], return_counts=True)
        clusters, singles = len(counts), int((counts == 1).sum())
        last = size >= len(codes) or rate * 10.0 > MOST_RATE
        if singles / clusters < SINGLETONS or last:
            return _scaled(counts, size, table_rows)
        rate *= 10.0


def _scaled(counts: Int64, size: int, table_rows: int) -> float:
    """Lines 7 to 12 of Algorithm 2."""
    clusters, singles = len(counts), int((counts == 1).sum())
    average = float(np.unique(counts).mean())
    grown = table_rows / size
    scale_up = min(clusters / (clusters - singles), grown) if clusters > singles else grown
    distinct = min(scale_up * singles + clusters - singles, float(table_rows))
    delta = min(table_rows / distinct**2, 1.0)
    return average * (delta * grown + (1.0 - delta) * distinct / clusters)


ESTIMATORS: Mapping[str, Callable[[Codes, int], float]] = {
    "good-turing": good_turing,
    "distinct-count": distinct_count,
    "fixed-sampling": fixed_sampling,
}


def sizes(pool: Pool, columns: Sequence[int], name: str) -> dict[tuple[int, ...], float]:
    """Return the cluster size of each subset of the columns by the named estimate. Distinct counts
    take every sampled row, the others at most MOST_RATE of the table's."""
    rows, estimate = rows_of(pool), ESTIMATORS[name]
    few = min(len(pool), max(2, int(MOST_RATE * rows)))
    sampled = len(pool) if estimate is distinct_count else few
    return {chosen: estimate(codes, rows) for chosen, codes in clusters(pool, columns, sampled)}
