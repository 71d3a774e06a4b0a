"""Chooses the size of the row groups that a rewrite writes, by its what-if.

A sorted file of one row group is read whole by every query that opens it; of many row groups most
are skipped, but each costs a look at its bounds and a request per column. Sizes are tried only
where neither the policy nor the table names one. They are powers of two, so that two decisions
about nearly the same files choose the same size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from reconciler.advisor.judge import Candidate, weigh, what_if
from reconciler.advisor.simulate.layout import Layout, Outcome
from reconciler.advisor.simulate.pool import Pool
from reconciler.advisor.situation import Situation
from reconciler.table.row_group_bytes import (
    PAGE_GAP,
    PAGE_ROWS,
    plain_row_bytes,
    rows_of_row_group,
)

SMALLEST = 64 << 10
MOST_PER_FILE = 32
SAMPLED_ROWS = 100
"""Sampled rows that a row group needs for its what-if to rank layouts as the whole rows do."""
CLEARLY = 0.9
"""Reading that another size has to leave, of what the table's own size leaves, to be chosen."""
NEARLY = 1.05
"""Reading, of the least, up to which larger row groups are preferred."""

Played = tuple[Candidate, Layout, Outcome]


@dataclass(frozen=True, slots=True)
class Size:
    """configured: for the writer; stored: bytes of the row groups that it gives."""

    configured: int
    stored: int


def sized(situation: Situation, played: Played, pool: Pool) -> Played:
    """Return the rewrite with the row groups that its queries read least of."""
    candidate, layout, _ = played
    if not situation.settings.row_group_auto:
        return played
    found = []
    for size in sizes(situation, candidate, pool):
        other = replace(layout, row_group_bytes=size.stored)
        outcome = what_if(situation, candidate.rows, other, pool)
        if outcome is None:
            continue
        made = weigh(situation, candidate.rows, other, candidate.before, outcome)
        found.append((replace(made, row_group_configured=size.configured), other, outcome))
    least = min((_left(situation, one[0]) for one in found), default=0.0)
    if not found or least > CLEARLY * _left(situation, candidate):
        return played
    return next(one for one in found if _left(situation, one[0]) <= NEARLY * least)


def sizes(situation: Situation, candidate: Candidate, pool: Pool) -> Iterator[Size]:
    """Yield the sizes to try, the largest first.

    Sizes between one page and several are left out: which of the two the writer makes is uncertain.
    """
    groups = situation.given.row_groups
    rows = float(sum(files.records.sum() for files in candidate.written))
    size = float(sum(files.bytes.sum() for files in candidate.written))
    files = sum(len(written) for written in candidate.written)
    if groups is None or not rows or not size:
        return
    plain = plain_row_bytes(groups, situation.table.schema)
    stored_row = size / rows
    configured = 1 << (situation.settings.row_group_bytes.bit_length() - 1)
    while configured > SMALLEST and plain:
        configured //= 2
        if PAGE_GAP[0] < configured / (plain * PAGE_ROWS) < PAGE_GAP[1]:
            continue
        held = rows_of_row_group(configured, stored_row, max(plain, stored_row))
        per_file = rows / files / max(held, 1.0)
        sampled = len(pool) * held / rows
        if 1.5 <= per_file <= MOST_PER_FILE and sampled >= SAMPLED_ROWS:
            yield Size(configured, max(1, round(held * stored_row)))


def _left(situation: Situation, candidate: Candidate) -> float:
    """Return what the expected queries read of its files after it, openings included."""
    return float(
        sum(
            demand.executions @ reading.cost
            for demand, reading in zip(situation.demands, candidate.after, strict=True)
        )
    )
