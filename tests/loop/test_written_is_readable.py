"""Whatever is decided, its plan is read back as it was written: no step refuses its own plan."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from reconciler.advisor.advice import (
    Advice,
    ObjectiveJudgement,
    Rejected,
    ScoredAction,
    Settings,
    ShapeEffect,
)
from reconciler.advisor.deletes.mode import ModeChoice
from reconciler.api.builtin import builtin_policy
from reconciler.loop.advised import Advised
from reconciler.loop.evidence import evidence_document
from reconciler.loop.history import History
from reconciler.loop.ports import RecordedQueries
from reconciler.plan.plan import Basis, freeze, plan_from_document, stored_form
from reconciler.plan.prediction import Prediction
from reconciler.plan.prediction_interval import Interval
from reconciler.plan.sentence import sentence
from reconciler.queries.coverage import Coverage
from reconciler.queries.machine_speed import Speed
from reconciler.queries.rates import Outlook, Score
from reconciler.queries.shape import Workload
from tests.cli.observations import lineitem
from tests.examples import examples
from tests.plan.test_plan import actions, table

NOW = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
WHOLE = st.integers(-1, 2**63 - 1)
TIMES = st.integers(0, 4_000_000_000_000)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
sentences = st.lists(texts, min_size=1, max_size=4).map(lambda parts: sentence(*parts))
intervals = st.builds(Interval, st.floats(), st.floats(), st.floats(), texts)
objectives = st.builds(
    ObjectiveJudgement,
    name=st.sampled_from(
        ["maxFileCount", "maxScanAmplification", "maxSmallFilePercent", "maxDeletedRowsPercent"]
    ),
    limit=st.floats(0, 1e9),
    state=st.sampled_from(["met", "failing", "probably", "unreachable", "unknown"]),
    message=texts,
)
shapes = st.builds(ShapeEffect, shape_id=texts)
rejected = st.builds(
    Rejected, what=sentences, why=sentences, reason=texts, files=WHOLE, bytes=WHOLE,
    inputs=st.just(()),
)  # fmt: skip
speeds = st.builds(Speed, actions=WHOLE, runs=WHOLE)
modes = st.builds(
    ModeChoice, costs=st.just(()), gain=st.none() | intervals, even=st.none() | intervals,
    upgraded=st.none() | intervals, speed=speeds, engine=texts,
)  # fmt: skip
predictions = st.builds(
    Prediction,
    **{
        name: st.none() | (WHOLE if kind.startswith("int") else texts)
        for name, kind in ((item.name, str(item.type)) for item in dataclasses.fields(Prediction))
        if name != "foreign"
    },
).map(
    lambda found: (
        found
        if found.files_in is None
        else replace(found, files_out=1, groups=1, bytes_in=1, cpu_millis=1, millis=1)
    )
)
"""A rewrite has all of its numbers."""
advices = st.builds(
    Advice,
    actions=st.lists(st.builds(ScoredAction, actions, predictions), max_size=2).map(tuple),
    rejected=st.lists(rejected, max_size=2).map(tuple),
    shapes=st.lists(shapes, max_size=2).map(tuple),
    objectives=st.lists(objectives, max_size=4).map(tuple),
    modes=st.lists(modes, max_size=1).map(tuple),
    notes=st.lists(texts, max_size=2).map(tuple),
    read_after=intervals, cost_after=intervals, files_after=intervals,
    amplification_after=intervals, amplification_label=texts,
    files_now=WHOLE, storage_now=WHOLE, storage_after=WHOLE,
    wanted_sketches=st.just(np.zeros(0, dtype=np.int64)),
    wanted_footers=st.just(np.zeros(0, dtype=np.int64)),
    outlook=st.builds(
        Outlook, st.sampled_from(["regime", "decay"]), TIMES, TIMES, changes=st.integers(0, 400),
        present_share=st.floats(0, 1),
        scores=st.lists(
            st.builds(Score, st.sampled_from(["regime", "decay"]), *[st.floats(0, 1)] * 4),
            max_size=2,
        ).map(tuple),
    ),
)  # fmt: skip
EQUALITY_DELETES_STAY = ObjectiveJudgement(
    "maxDeletedRowsPercent", 5.0, 7.0, 7.0, "unknown", "equality deletes cannot be counted", True
)


def evidence_of(advice: Advice, workload: Workload, share: float) -> dict[str, Any]:
    seen = lineitem(3, 1)
    evidence = RecordedQueries(workload, Coverage(share, "bytes"), workload)
    found = Advised(seen, evidence, History(), Settings(), advice, None)
    return evidence_document(
        found, builtin_policy(seen.identifier, seen.catalog), cores=2, not_acted_on=()
    )


@settings(
    max_examples=examples(200), deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@example(EQUALITY_DELETES_STAY, None, 1.0)
@given(objectives, advices, st.floats(0, 1))
def test_every_plan_is_read_back_as_it_was_written(
    judged: ObjectiveJudgement, advice: Advice | None, share: float
) -> None:
    chosen = advice if advice is not None else NOTHING
    chosen = replace(chosen, objectives=(judged, *chosen.objectives))
    plan = freeze(
        Basis("rec", ("db", "t"), "u", "h", "p", 7),
        created=NOW, time_to_live=dt.timedelta(days=7),
        actions=[(item.action, item.predicted) for item in chosen.actions], files=table(["a"]),
        evidence=evidence_of(chosen, Workload((), 0, 0), share),
    )  # fmt: skip
    again = plan_from_document(json.loads(stored_form(plan)))
    assert again.document() == json.loads(json.dumps(plan.document()))


NOTHING = Advice(
    actions=(), rejected=(), shapes=(), read_now=0.0, read_after=Interval(0, 0, 0), cost_now=0.0,
    cost_after=Interval(0, 0, 0), files_now=1, files_after=Interval(1, 1, 1), storage_now=1,
    storage_after=1, amplification_now=1.0, amplification_after=Interval(1, 1, 1),
    amplification_label="exact", objectives=(), payback_hours=None, cost=0.0, cpu_seconds=0.0,
    seconds=0.0, yearly_read=0.0, wanted_sketches=np.zeros(0, dtype=np.int64),
)  # fmt: skip
