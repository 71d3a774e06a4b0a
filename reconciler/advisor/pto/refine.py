"""Better sizes for the best few layouts of the grid: between its sizes, and smaller ones.

The grid (PTO, section 3.2.5) has row groups of a tenth of a file and more: of about 100 KiB in a
table of a few MiB, where a fifth of that may be best, and neighbours differ by up to a half. What
files and row groups cost ends the search for smaller ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from reconciler.advisor.pto.sizes import (
    LEAST_GROUP_ROWS,
    MOST_FILE,
    SMALLEST_FILE,
    declared_row_group,
)
from reconciler.advisor.pto.space import (
    SURE_ROWS,
    TIE,
    WORKERS,
    CandidateLayout,
    Label,
    Space,
    rows_asked,
    sampled_enough,
)
from reconciler.advisor.simulate.grid import SizedRows
from reconciler.advisor.simulate.layout import Sizes

LEADERS, PER_SPEC = 4, 2
"""Partitionings with their orderings that are refined: the cheapest, and those of each
partitioning, whose orderings may all cost about the same."""

MOST_ABOVE = 2.0
"""Multiple of the least cost above which other sizes make no layout the best one."""

COARSE, FINE = (0.35, 0.5, 0.71, 1.41), (0.84, 0.92, 1.09, 1.19)
"""Multiples of the row-group size that a step tries."""

OF_FILE = (0.5, 0.75, 1.5, 2.0)
"""Multiples of the file size that a step tries."""

STEPS = 5
"""Coarse steps at most."""


def refined(space: Space, labels: Sequence[Label]) -> tuple[Label, ...]:
    """Return the labels of further sizes. labels: of the grid."""
    with ThreadPoolExecutor(WORKERS) as executor:
        found = executor.map(lambda leader: _refined(space, leader), _leaders(space, labels))
        return tuple(label for mine in found for label in mine)


def steady(space: Space, label: Label) -> Label:
    """Return the same files by a size that they fill: the number of files is rounded, and a size in
    the middle of two numbers makes one more if the rows take a little more than predicted."""
    candidate = label.candidate
    if space.partitionings[candidate.spec].partitions > 1 or not label.rewrite_bytes:
        return label
    size = label.bytes_written / max(round(label.files), 1)
    target = min(max(declared_row_group(round(size)), SMALLEST_FILE), MOST_FILE)
    sizes = Sizes(target, min(candidate.sizes.row_group_bytes, target))
    (made,) = space.label([replace(candidate, sizes=sizes)])
    return made if made.total <= (1.0 + TIE) * label.total else label


def _leaders(space: Space, labels: Sequence[Label]) -> list[Label]:
    """Return the best label of each partitioning with an ordering that is refined, none if no
    candidate has enough sampled rows."""

    def one_column(label: Label) -> bool:
        """It may cost no more than several in other sizes."""
        return len(space.ordering(label.candidate.ordering).key) == 1

    kinds: dict[tuple[int, int], Label] = {}
    for label in sorted(sampled_enough(labels, rows_asked(labels)), key=_cost):
        kinds.setdefault((label.candidate.spec, label.candidate.ordering), label)
    leaders: list[Label] = []
    for place, label in enumerate(kinds.values()):
        beside = sum(label.candidate.spec == leader.candidate.spec for leader in leaders)
        near = label.total <= MOST_ABOVE * (leaders[0].total if leaders else label.total)
        alone = one_column(label) and not any(map(one_column, leaders))
        if near and (place < LEADERS or beside < PER_SPEC or alone):
            leaders.append(label)
    return leaders


def _cost(label: Label) -> tuple[float, CandidateLayout]:
    return label.total, label.candidate


def _refined(space: Space, leader: Label) -> list[Label]:
    """Return the labels of sizes around the leader's, in steps towards the best of them, without
    those of which too few rows are sampled."""
    rows = space.arrangement(leader.candidate.spec, leader.candidate.ordering)
    sure = min(float(SURE_ROWS), leader.sampled_rows)
    known, best = {leader.candidate: leader}, leader

    def step(multiples: tuple[float, ...]) -> Label:
        most = min(MOST_FILE, space.most_file(best.candidate.spec))
        sizes = _around(rows, best.candidate.sizes, multiples, most)
        mine = [replace(best.candidate, sizes=size) for size in sizes]
        fresh = [candidate for candidate in mine if candidate not in known]
        if fresh:
            known.update((x.candidate, x) for x in space.labelled(rows, fresh))
        return min(judged(), key=_cost)

    def judged() -> list[Label]:
        return [label for label in known.values() if label.sampled_rows >= sure]

    for _ in range(STEPS):
        before, best = best, step(COARSE)
        if best is before:
            break
    step(FINE)
    return [label for label in judged() if label is not leader]


def _around(
    rows: SizedRows, sizes: Sizes, multiples: tuple[float, ...], most: float
) -> list[Sizes]:
    """Return sizes with other row groups in the same files, and other files of the same ones. most:
    bytes of the largest file."""
    least = LEAST_GROUP_ROWS * rows.bytes_per_row(LEAST_GROUP_ROWS * rows.known[0].per_row)
    file, group = sizes.target_bytes, sizes.row_group_bytes
    groups = (int(max(group * multiple, least)) for multiple in multiples)
    files = (int(file * multiple) for multiple in OF_FILE)
    return [Sizes(file, g) for g in groups if g <= file] + [
        Sizes(f, group) for f in files if max(SMALLEST_FILE, group) <= f <= most
    ]
