"""Feature vectors of layouts (PTO, section 3.3.1), and the candidates that train models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reconciler.advisor.pto.cluster_size import distinct_count
from reconciler.advisor.pto.space import CandidateLayout, Space
from reconciler.table.filetable import Float64

LABELS = 12
"""Layouts that the paper labels: 4 partitionings with 3 sort schemes each."""

SORT, CURVE = 1.0, 2.0
"""Kinds of sort schemes; 0 without one."""


def features(space: Space, candidates: Sequence[CandidateLayout]) -> Float64:
    """Return float64[candidates, features]: partition column, TFS, RGS and sort scheme."""
    types = sorted({field.type for field in space.pool.files.schema.fields})
    specs = [
        _of_columns(space, [field.source_id for field in item.spec.fields], types)
        for item in space.partitionings
    ]
    sorts = [
        np.concatenate((
            [0.0 if not ordering.key else SORT if ordering.lead else CURVE],
            _of_columns(space, [column.field_id for column in ordering.key], types),
        ))
        for ordering in space.orderings
    ]  # fmt: skip
    return np.stack([
        np.concatenate((
            specs[c.spec], [c.sizes.target_bytes, c.sizes.row_group_bytes], sorts[c.ordering],
        ))
        for c in candidates
    ])  # fmt: skip


def _of_columns(space: Space, columns: Sequence[int], types: Sequence[str]) -> Float64:
    """Return cardinality, cluster size, union of queries, mean, least, greatest and median
    selectivity, and one-hot types pooled by their mean; zeros without a column."""
    width = 7 + len(types)
    known = [column for column in columns if column in space.pool.columns]
    if not known:
        return np.zeros(width)
    usage, rows = space.usage, float(space.pool.weight.sum())
    mine = np.array([bool(set(known) & found) for found in usage.filters], dtype=bool)
    chosen = usage.selectivity[mine] if mine.any() else np.ones(1)
    codes = np.zeros(len(space.thin), dtype=np.int64)
    for column in known:
        ranks = space.thin.columns[column].ranks + 1
        codes = codes * (int(ranks.max(initial=0)) + 1) + ranks
    pooled = np.zeros(len(types))
    for column in known:
        pooled[types.index(space.pool.files.schema.by_id[column].type)] += 1.0 / len(known)
    return np.concatenate((
        [rows, distinct_count(codes, round(rows)), float(usage.weight[mine].sum()),
         float(chosen.mean()), float(chosen.min()), float(chosen.max()), float(np.median(chosen))],
        pooled,
    ))  # fmt: skip


def training(space: Space, seed: int) -> tuple[CandidateLayout, ...]:
    """Return the candidates that are labelled for training: each partitioning with each of the
    paper's sort schemes, and random sizes (12 for 4 x 3). Where guard rails leave fewer
    partitionings, random candidates fill up to as many."""
    random = np.random.default_rng(seed)
    paired = [
        CandidateLayout(spec, ordering, sizes[int(random.integers(len(sizes)))])
        for spec, sizes in enumerate(map(space.sizes_of, range(len(space.partitionings))))
        for ordering in space.schemes_of(spec)
    ]
    every = space.candidates
    drawn = (every[int(number)] for number in random.permutation(len(every)))
    further = [candidate for candidate in drawn if candidate not in paired]
    return (*paired, *further[: max(LABELS - len(paired), 0)])
