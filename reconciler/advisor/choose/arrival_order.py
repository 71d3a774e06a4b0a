"""Returns the rewrites that give files the order of arrival again (docs/design/no-harm.md).

An order that served the last queries may be wrong for the next ones. A reserve bounds what that can
cost. Before it is used up, the files that we wrote are sorted by the column in whose order rows
arrive. No query then reads much more of them than of a table that nobody rewrote.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from reconciler.advisor.choose.declared import declared_what_if
from reconciler.advisor.choose.recluster import allowed
from reconciler.advisor.choose.slices import slices
from reconciler.advisor.judge.candidate import Candidate
from reconciler.advisor.measure.lately import last_queries, read_lately
from reconciler.advisor.situation import Situation
from reconciler.plan.ordering import Lexicographic
from reconciler.table.schema import SortColumn

WHY = "queries read more than before it was rewritten, and no more loss is admitted"


def back_to_arrival_order(situation: Situation) -> Iterator[Candidate]:
    """Yield the rewrites of the files that are not in the order in which rows arrive, where the
    expected queries then read less, or the last ones read any of them.

    No saving is asked of the last ones. A sample widens the ends of what is written by a row, and
    takes files for overlapping between whose rows there is a gap. That queries lose against the
    untouched table is known by then, and that they lose no more once files are put back is
    assumption A3.
    """
    untouched = situation.expected.untouched
    if untouched is None or not untouched.natural:
        return
    lead = untouched.natural[0]
    free = allowed(situation) & untouched.displaced
    last = last_queries(situation)
    for _, _, rows in situation.facts.groups:
        for part in slices(situation, rows[free[rows]], [lead]):
            if not len(part):
                continue
            made = declared_what_if(situation, np.sort(part), Lexicographic((SortColumn(lead),)))
            if made.saving > 0.0 or read_lately(situation, last, made.rows):
                yield made
