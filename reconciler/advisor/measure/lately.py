"""Measures what the last queries lost against the untouched table (docs/design/no-harm.md, rule 2).

No forecast is asked: it may go on expecting queries that gain while queries come that lose.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reconciler.advisor.measure.untouched import query_groups
from reconciler.advisor.situation import Situation
from reconciler.queries.demanded import demands
from reconciler.queries.read_cost import read_shape
from reconciler.queries.shape import Shape, workload_of
from reconciler.table.filetable import Int64


def lost_lately(situation: Situation) -> float:
    """Return what the queries of the last bucket of the log read more of the present files than of
    the untouched table, in bytes of reading."""
    untouched, view = situation.expected.untouched, situation.facts.view
    if untouched is None:
        return 0.0
    wanted = last_queries(situation)
    found = query_groups(view, wanted, [read_shape(view, one) for one in wanted], untouched)
    return sum(asked.weight * asked.loss for asked in found if asked.guard is None)


def read_lately(situation: Situation, last: Sequence[Shape], rows: Int64) -> bool:
    """Whether the last queries read any of the files at `rows`. last: of `last_queries`."""
    part = situation.part(rows)
    return any(float(one.weight @ read_shape(part, one).cost) > 0.0 for one in last)


def last_queries(situation: Situation) -> tuple[Shape, ...]:
    """Return the queries of the last bucket as they were executed."""
    workload, settings = situation.given.workload, situation.settings
    first = workload.until_ms - int(situation.expected.outlook.bucket_ms)
    last = workload_of(shape.since(first) for shape in workload.shapes)
    if last.empty:
        return ()
    executed = np.concatenate([shape.weight for shape in last.shapes])
    return demands(last, situation.table.schema, settings.horizon_ms, executed)
