"""Layouts to compare with: a human expert's (PTO, Algorithm 4) and the default one."""

from __future__ import annotations

from reconciler.advisor.pto.methods.base import Choice
from reconciler.advisor.pto.sizes import MIB, expert_sizes
from reconciler.advisor.pto.space import UNSORTED, CandidateLayout, Space, best
from reconciler.advisor.simulate.layout import Sizes

DEFAULT_SIZES = Sizes(512 * MIB, 128 * MIB)
"""Iceberg's own: write.target-file-size-bytes, write.parquet.row-group-size-bytes."""


def expert(space: Space, seed: int) -> Choice:
    """Return the best of the paper's sort schemes under each partitioning, with the sizes of
    Algorithm 4; bin-packing if there is no scheme."""
    chosen = [
        CandidateLayout(number, ordering, expert_sizes(space.live_bytes, item.partitions,
                                                 space.bytes_per_row))
        for number, item in enumerate(space.partitionings)
        for ordering in space.schemes_of(number)
    ]  # fmt: skip
    return Choice(best(space.label(chosen)).candidate, len(chosen))


def default_layout(space: Space, seed: int) -> Choice:
    """Return the present partitioning without a sort, in Iceberg's sizes."""
    return Choice(CandidateLayout(0, UNSORTED, DEFAULT_SIZES), 0)
