"""The table before and after what waits on a branch is published.

Nothing is simulated: the files exist, and main will get exactly these.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from reconciler.advisor.advice import Advice, ObjectiveJudgement
from reconciler.advisor.measure.totals import Totals, shape_effects
from reconciler.advisor.situation import Situation
from reconciler.plan.prediction_interval import Interval


def once_published(now: Situation, advice: Advice, then: Situation, after: Advice) -> Advice:
    """Return the advice on the present table with the table after the publication beside it.

    then, after: the situation and the advice of that table.
    """
    added = ~np.isin(then.table.path.astype(str), now.table.path.astype(str))
    return replace(
        advice,
        shapes=shape_effects(now, _both(now, then)),
        read_after=Interval.exactly(after.read_now),
        cost_after=Interval.exactly(after.cost_now),
        files_after=Interval.exactly(after.files_now),
        storage_after=advice.storage_now + int(then.table.bytes[added].sum()),
        amplification_after=Interval.exactly(after.amplification_now),
        objectives=tuple(map(_reached, advice.objectives, after.objectives)),
    )


def _both(now: Situation, then: Situation) -> Totals:
    before, after = now.expected.savings.readings, then.expected.savings.readings
    return Totals(
        tuple(reading.bytes for reading in before),
        tuple(reading.bytes for reading in after),
        tuple(reading.files for reading in before),
        tuple(reading.files for reading in after),
        tuple(reading.cost for reading in before),
        tuple(reading.cost for reading in after),
    )


def _reached(before: ObjectiveJudgement, after: ObjectiveJudgement) -> ObjectiveJudgement:
    return replace(after, now=before.now)
