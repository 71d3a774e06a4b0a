"""Rows sorted by which predicates they satisfy (Ding et al., "Automated Multidimensional Data
Layouts in Amazon Redshift"; compared with in PTO, section 4.3.3).

A layout to compare with only: Iceberg has no sort order over predicates, so it cannot be declared.
"""

from __future__ import annotations

import numpy as np

from reconciler.advisor.pto.column_use import matched_rows
from reconciler.advisor.pto.methods.base import Choice
from reconciler.advisor.pto.space import CandidateLayout, Space, best
from reconciler.plan.grouping import arrivals
from reconciler.table.filetable import Int64

TOP = 12
"""Predicates in the sort key, the most selective first."""


def mddl(space: Space, seed: int) -> Choice:
    """Return the best sizes and partitioning for rows in the order of the predicates."""
    number = len(space.orderings)
    space.row_orders[number] = predicate_order(space)
    chosen = [
        CandidateLayout(spec, number, sizes)
        for spec in range(len(space.partitionings))
        for sizes in space.sizes_of(spec)
    ]
    return Choice(best(space.label(chosen)).candidate, len(chosen))


def predicate_order(space: Space) -> Int64:
    """Return the pool's rows ordered by one bit per predicate, the most selective first."""
    found = []
    for demand in space.demands:
        kept = np.flatnonzero(demand.weight > 0.0)
        if not demand.prunable or not len(kept):
            continue
        part = demand.take(kept)
        hit = matched_rows(space.pool, part)
        share = hit.mean(axis=1)
        for query in np.argsort(share, kind="stable")[:TOP]:
            found.append((float(share[query]), hit[query]))
    found.sort(key=lambda item: item[0])
    code = np.zeros(len(space.pool), dtype=np.int64)
    for _, mine in found[:TOP]:
        code = code * 2 + mine
    return np.lexsort((arrivals(space.pool.files)[space.pool.file], -code)).astype(np.int64)
