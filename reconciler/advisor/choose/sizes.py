"""Chooses the sizes of the files and row groups that a rewrite writes, by its what-if.

A sorted file of one row group is read whole by every query that opens it; of many row groups most
are skipped, but each costs a look at its bounds and a request per column. A large file saves
openings, and a small one is skipped by its bounds in the manifest. Sizes are tried only where
neither the policy nor the table names one. They are powers of two, so that two decisions about
nearly the same files choose the same size.

Row groups come first: what they cannot skip is left for the size of files to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from reconciler.advisor.judge.candidate import Candidate, planned_layout, weigh, what_if
from reconciler.advisor.qdtree.building import FoundTree, finer
from reconciler.advisor.qdtree.inner import PARTS
from reconciler.advisor.simulate.layout import Layout, Outcome
from reconciler.advisor.simulate.pool import Pool
from reconciler.advisor.situation import Situation
from reconciler.format import iec
from reconciler.plan.ordering import by_tree
from reconciler.table.cut_tree import Tree
from reconciler.table.filetable import Float64
from reconciler.table.operations import Encoding

SMALLEST = 64 << 10
"""The least stored size of row groups that is tried."""
MOST_PER_FILE = 32
SAMPLED_ROWS = 100
"""Sampled rows that a row group, or a file, needs for its what-if to rank layouts as the whole rows
do."""
CLEARLY = 0.9
"""Another size is chosen if it leaves at most this share of the reading that the table's own size
leaves."""
NEARLY = 1.05
"""Multiple of the least reading, up to which files of nearly the table's own size are
preferred."""
NEARLY_IN_GROUPS = 1.02
"""Multiple of the least reading up to which larger row groups are preferred."""
FILES = 8 << 20, 512 << 20
"""The least and the greatest size of files that is tried."""

ROUNDED = 1.5
"""How much smaller than its target a file may be where the number of files is rounded."""


class Simulated(NamedTuple):
    """A rewrite with the simulation that it was weighed by."""

    candidate: Candidate
    """The rewrite."""
    layout: Layout
    """The layout that was simulated for it."""
    outcome: Outcome
    """What queries would read of that layout."""


def sized(
    situation: Situation,
    simulated: Simulated,
    pool: Pool,
    *,
    files: bool = True,
    refused: Callable[[Candidate], bool] = lambda made: False,
) -> Simulated:
    """Return the rewrite in the sizes that its queries read least of.

    files: whether the size of files may be another one. refused: whether a rewrite does not pass;
    what other queries than the expected ones may read counts there too.
    """
    found, settings = simulated, situation.settings
    if settings.row_group_auto:
        found = _least(situation, found, _in_row_groups(situation, found, pool), NEARLY_IN_GROUPS)
    if settings.target_auto and files:
        found = _least(situation, found, _in_files(situation, found, pool), NEARLY)
    found = _in_ranges(situation, found, pool)
    if found is not simulated and refused(found.candidate) and not refused(simulated.candidate):
        return simulated
    return found


def in_parts(
    situation: Situation, simulated: Simulated, pool: Pool, found: FoundTree | None
) -> Simulated:
    """Return the rewrite by a tree with several row groups a file, where that reads less: parts of
    a leaf's rows in the order of the leaf's own column, or leaves of further cuts.

    found: the tree, None where the rewrite is by a key.
    """
    if found is None:
        return simulated
    tree, size = _parted(situation, found, simulated.layout)
    made = _in_parts(situation, simulated, tree.tree, pool, size)
    if made is None or left_to_read(situation, made.candidate) >= left_to_read(
        situation, simulated.candidate
    ):
        return simulated
    return made


def _parted(situation: Situation, found: FoundTree, layout: Layout) -> tuple[FoundTree, int]:
    """Return the tree with leaves of a quarter or an eighth of a file, where its queries read
    clearly less of these, and about the bytes of a row group then.

    Where the policy names the least rows of a leaf, or the size of row groups, none is smaller.
    """
    settings, target = situation.settings, layout.target_bytes
    least = SMALLEST if settings.row_group_auto else layout.row_group_bytes
    tree, size = found, target // PARTS
    for parts in () if settings.trees.least_rows else (PARTS, 2 * PARTS):
        made = finer(tree, found.grown.least / parts) if target // parts >= least else None
        if made is None:
            break
        tree, size = made, target // parts
    return tree, size


def _in_parts(
    situation: Situation, simulated: Simulated, tree: Tree, pool: Pool, size: int
) -> Simulated | None:
    """Return the rewrite by a tree of the same first cuts in row groups of about this size; None
    where it would be the same, or the size of row groups is given and larger."""
    candidate, layout, _ = simulated
    further, power = candidate.ordering.tree != tree, 1 << (size.bit_length() - 1)
    smaller = situation.settings.row_group_auto and SMALLEST <= power < layout.row_group_bytes
    if not smaller and (not further or layout.row_group_bytes > size):
        return None
    if further:
        layout = planned_layout(situation, candidate.rows, by_tree(tree), layout.target_bytes)
    if smaller:
        layout = replace(layout, row_group_bytes=power)
    made = _simulated(situation, candidate, layout, pool)
    if made is None or not smaller:
        return made
    return made._replace(candidate=replace(made.candidate, row_group_configured=power))


def in_words(made: Candidate) -> str:
    """Return ` in files of about 64 MiB and row groups of about 2 MiB`; "" for the table's own."""
    sizes = []
    if made.target_configured:
        sizes.append(f"files of about {iec(made.target_configured)}")
    if made.row_group_configured:
        sizes.append(f"row groups of about {iec(made.row_group_bytes)}")
    return f" in {' and '.join(sizes)}" if sizes else ""


def _least(
    situation: Situation, simulated: Simulated, others: Iterable[Simulated], nearly: float
) -> Simulated:
    """Return the first that leaves nearly the least to read if the least is clearly less, else the
    rewrite as it was."""
    found = [(one, left_to_read(situation, one.candidate)) for one in others]
    least = min((left for _, left in found), default=0.0)
    if not found or least > CLEARLY * left_to_read(situation, simulated.candidate):
        return simulated
    return next(one for one, left in found if left <= nearly * least)


def _in_row_groups(situation: Situation, simulated: Simulated, pool: Pool) -> Iterator[Simulated]:
    candidate, layout, _ = simulated
    for size in row_group_sizes(situation, candidate, pool):
        other = replace(layout, row_group_bytes=size)
        made = _simulated(situation, candidate, other, pool)
        if made is not None:
            yield made._replace(candidate=replace(made.candidate, row_group_configured=size))


def _in_files(situation: Situation, simulated: Simulated, pool: Pool) -> Iterator[Simulated]:
    candidate, layout, _ = simulated
    rows, configured = candidate.rows, candidate.row_group_configured
    written = situation.table.live_bytes[rows] * candidate.written_share
    most = min(max(len(rows), candidate.files_out), len(pool) / SAMPLED_ROWS)
    tried = {_files_of(layout, written)}
    for size in file_sizes(situation, candidate):
        other = planned_layout(situation, rows, candidate.ordering, size)
        other = replace(other, row_group_bytes=layout.row_group_bytes)
        count = _files_of(other, written)
        if count in tried or count > most:
            continue
        tried.add(count)
        made = _simulated(situation, candidate, other, pool)
        if made is not None:
            found = replace(made.candidate, target_configured=size, row_group_configured=configured)
            yield made._replace(candidate=found)


def _in_ranges(situation: Situation, simulated: Simulated, pool: Pool) -> Simulated:
    """Return the rewrite of a slice with its number of files rounded to a multiple of the ranges of
    its key. A later slice can then merge the same range of every run.

    The rewrite stays as it is if files had to become much smaller for that, and queries would read
    more of them.
    """
    candidate, layout, _ = simulated
    lead, sliced = candidate.ordering.lead, situation.spent.sliced
    follows = lead is None or lead.field_id == sliced.along
    ranges = int(np.ceil(sliced.whole * candidate.written_share))  # slices of all that is written
    if ranges < 2 or follows or candidate.groups > 1:
        return simulated
    count = candidate.files_out
    wanted = ranges * _nearest(count / ranges)
    if wanted == count:
        return simulated
    written = situation.table.live_bytes[candidate.rows].sum() * candidate.written_share
    size = max(1, round(float(written) / wanted))
    other = planned_layout(situation, candidate.rows, candidate.ordering, size)
    other = replace(other, row_group_bytes=layout.row_group_bytes)
    made = _simulated(situation, candidate, other, pool)
    if made is None:
        return simulated
    most = NEARLY * left_to_read(situation, candidate)
    if wanted > ROUNDED * count and left_to_read(situation, made.candidate) > most:
        return simulated
    configured = candidate.row_group_configured
    found = replace(made.candidate, target_configured=size, row_group_configured=configured)
    return made._replace(candidate=found)


def _nearest(times: float) -> int:
    """Return the whole number, at least 1, that is the nearest as a ratio."""
    below = max(int(times), 1)
    return below if times * times <= below * (below + 1) else below + 1


def _files_of(layout: Layout, written: Float64) -> int:
    """Return the number of files that inputs of these bytes become."""
    return int(layout.files_of(np.bincount(layout.groups, weights=written)).sum())


def _simulated(
    situation: Situation, candidate: Candidate, layout: Layout, pool: Pool
) -> Simulated | None:
    outcome = what_if(situation, candidate.rows, layout, pool)
    if outcome is None:
        return None
    made = weigh(situation, candidate.rows, layout, candidate.before, outcome)
    return Simulated(made, layout, outcome)


def row_group_sizes(situation: Situation, candidate: Candidate, pool: Pool) -> Iterator[int]:
    """Yield the sizes of row groups to try, the largest first. Without footers it is not known what
    a row takes in small ones."""
    size = float(sum(files.bytes.sum() for files in candidate.written))
    files = sum(len(written) for written in candidate.written)
    if situation.given.row_groups is None or not size:
        return
    stored = 1 << (situation.settings.row_group_bytes.bit_length() - 1)
    while stored > SMALLEST:
        stored //= 2
        sampled = len(pool) * stored / size
        if 1.5 <= size / files / stored <= MOST_PER_FILE and sampled >= SAMPLED_ROWS:
            yield stored


def file_sizes(situation: Situation, candidate: Candidate) -> Sequence[int]:
    """Return the sizes of files to try, those next to the table's own size first.

    None holds too many of the chosen row groups. Where a writer replaces whole files to change
    rows, none is larger than the table's own.
    """
    own, (least, most) = situation.settings.target_bytes, FILES
    if candidate.row_group_configured:
        most = min(most, MOST_PER_FILE * candidate.row_group_bytes)
    if any(one.encoding is Encoding.COPY_ON_WRITE for one in situation.given.operations.every):
        most = min(most, own)
    powers = [1 << power for power in range(least.bit_length() - 1, most.bit_length())]
    return sorted(powers, key=lambda size: (abs(np.log2(size / own)), -size))


def left_to_read(situation: Situation, candidate: Candidate) -> float:
    """Return what the expected queries read of its files after it, openings included."""
    return float(
        sum(
            demand.executions @ reading.cost
            for demand, reading in zip(situation.expected.demands, candidate.after, strict=True)
        )
    )
