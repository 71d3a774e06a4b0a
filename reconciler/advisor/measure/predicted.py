"""What a plan predicts: the chosen actions with their numbers, and the table after all of them.

The decisions have chosen before; nothing here is chosen or rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from reconciler.advisor.advice import Advice, ObjectiveJudgement, Rejected, ScoredAction
from reconciler.advisor.choose import sizes, slices
from reconciler.advisor.choose.binpack import small_files_mask
from reconciler.advisor.choose.blocks import set_block_column
from reconciler.advisor.choose.properties import set_properties, set_sort_order
from reconciler.advisor.choose.upkeep import Upkeep
from reconciler.advisor.deletes.minor import Minor
from reconciler.advisor.deletes.writes import Writes
from reconciler.advisor.judge.candidate import Candidate
from reconciler.advisor.judge.engine import why_by_spark
from reconciler.advisor.measure.totals import (
    amplification,
    amplification_after,
    amplification_label,
    judge_objectives,
    saved_by_density,
    saved_by_opening,
    shape_effects,
    totals,
    window_bytes,
)
from reconciler.advisor.migration.moves import added_specs, judged, switches
from reconciler.advisor.situation import Situation
from reconciler.advisor.verdict import Chosen, Verdict, action_of
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.rewrite import Rewrite
from reconciler.plan.ordering import Ordering
from reconciler.plan.prediction import (
    BY_ARRIVAL,
    DELETE_FILES,
    Prediction,
    millis,
    total,
    whole,
)
from reconciler.plan.prediction_interval import Interval, files_after
from reconciler.queries.rewrite_cost import Rows
from reconciler.table.filetable import Int64
from reconciler.table.times import HOUR_MS


def advice_of(
    situation: Situation, verdict: Verdict, rejections: Sequence[Rejected], writes: Writes,
    upkeep: Upkeep,
) -> Advice:  # fmt: skip
    """Return the verdict with its numbers. rejections: those of all decisions."""
    candidates = [item.candidate for item in verdict.chosen]
    effects: list[Candidate | Minor] = [*candidates, *verdict.minors]
    sums = totals(situation, effects)
    scored = (*_scored(situation, verdict.chosen), *_maintained(situation, verdict.minors))
    predicted = [item.predicted for item in scored]
    first = _metadata(situation, verdict, writes)
    files = files_after(len(situation.table), predicted)
    read_now, cost_now = (window_bytes(situation, s) for s in (sums.bytes_now, sums.cost_now))
    amplification_now = amplification(situation, sums.bytes_now)
    around = partial(_around, situation, bool(effects))
    later = amplification_after(situation, sums.bytes_after, candidates)
    amplified = around(amplification_now, later)
    cost = sum(effect.cost for effect in effects)
    work = total(predicted)
    return Advice(
        actions=(*first, *scored, *_switched(situation), *upkeep.actions),
        rejected=tuple(rejections),
        shapes=shape_effects(situation, sums),
        read_now=read_now,
        read_after=around(read_now, window_bytes(situation, sums.bytes_after)),
        cost_now=cost_now,
        cost_after=around(cost_now, window_bytes(situation, sums.cost_after)),
        files_now=len(situation.table),
        files_after=files,
        storage_now=situation.table.total_bytes,
        storage_after=situation.table.total_bytes + work.bytes_out,
        amplification_now=amplification_now,
        amplification_after=amplified,
        amplification_label=amplification_label(situation),
        objectives=_objectives(situation, verdict, amplification_now, amplified, int(files.mid)),
        payback_hours=_payback(situation, cost, sum(effect.saving for effect in effects)),
        cost=cost,
        cpu_seconds=work.cpu_seconds,
        seconds=work.seconds(situation.settings.throughput),
        yearly_read=situation.expected.yearly,
        wanted_sketches=np.zeros(0, dtype=np.int64),
        outlook=situation.expected.outlook,
        upkeep_due_ms=upkeep.due_ms,
    )


def _objectives(
    situation: Situation, verdict: Verdict, now: float, after: Interval, files: int
) -> tuple[ObjectiveJudgement, ...]:
    """Return how the objectives stand. now, after: amplification. files: number afterwards."""
    asked = situation.settings.objectives.max_small_file_percent is not None
    small = _small_percent(situation, files) if asked else None
    return (
        *judge_objectives(situation, now, after, small, files),
        *judged(situation, _moved(verdict)),
    )


def _small_percent(situation: Situation, files_after: int) -> tuple[float, float]:
    """Return the percentage of files that are small and mergeable, now and after the actions."""
    small = small_files_mask(situation)
    left = small & ~situation.spent.taken
    now = 100.0 * float(small.sum()) / max(len(small), 1)
    return now, 100.0 * float(left.sum()) / max(files_after, 1)


def _around(situation: Situation, changed: bool, now: float, after: float) -> Interval:
    """Return the interval around `after`: the unchanged part is certain, the rest has the
    calibrated width.
    """
    if not changed:
        return Interval.exactly(now)
    return situation.settings.calibration.around(after)


def _metadata(situation: Situation, verdict: Verdict, writes: Writes) -> tuple[ScoredAction, ...]:
    settings = situation.settings
    if situation.facts.refused:
        return ()
    properties = set_properties(settings)
    blocks = set_block_column(situation, [item.candidate.ordering for item in verdict.chosen])
    declared = properties + set_sort_order(settings) + blocks + added_specs(situation)
    return (*_declared(situation, declared), *_explained(situation, writes.actions))


def _switched(situation: Situation) -> tuple[ScoredAction, ...]:
    """Return what ends the plan: writers change once its files have moved."""
    return _declared(situation, switches(situation))


def _declared(situation: Situation, actions: Sequence[Action]) -> tuple[ScoredAction, ...]:
    return _explained(situation, [(action, "declared by the policy") for action in actions])


def _explained(
    situation: Situation, pairs: Sequence[tuple[Action, str]]
) -> tuple[ScoredAction, ...]:
    return tuple(ScoredAction(a, _in_words(situation, a, why)) for a, why in pairs)


def _moved(verdict: Verdict) -> Int64:
    """Return the files that the plan moves to another spec."""
    rows = [item.candidate.rows for item in verdict.chosen if item.moved]
    return np.concatenate([np.zeros(0, dtype=np.int64), *rows])


def _in_words(situation: Situation, action: Action, reason: str) -> Prediction:
    """Return the part of a prediction that every kind of action has."""
    label = action.label(situation.table.schema, situation.table.specs)
    return Prediction(label=label, reason=reason, kind=action.kind)


def _scored(situation: Situation, chosen: Sequence[Chosen]) -> tuple[ScoredAction, ...]:
    """Return the actions by net saving per cost.

    Times depend on the place in the plan: the first action of a kind of work also warms up the JVM.
    """
    pairs = sorted(
        ((action_of(situation, item), item) for item in chosen),
        key=lambda pair: (-pair[1].candidate.net_per_cost, pair[0].kind, pair[0].inputs),
    )
    model, begun = situation.settings.throughput, set[str]()
    scored = []
    for action, item in pairs:
        predicted, kind = _predicted(situation, action, item), action.work
        assert kind is not None
        text = situation.text_row_bytes(column.field_id for column in action.ordering.key)
        count, columns = predicted.rows or 0, len(situation.table.schema.fields)
        rows = None if text is None else Rows(count, text * count, columns)
        work = (kind, predicted.rewrite_bytes, len(action.inputs), kind not in begun, rows)
        begun.add(kind)
        cpu, time = model.cpu_seconds(*work), model.seconds(*work)
        if rows is not None:
            predicted = replace(predicted, text_bytes=whole(rows.text), columns=rows.columns)
        predicted = replace(predicted, cpu_millis=millis(cpu), millis=millis(time))
        scored.append(ScoredAction(action, predicted))
    return tuple(scored)


def _maintained(situation: Situation, minors: Sequence[Minor]) -> tuple[ScoredAction, ...]:
    """Return the maintenance of delete files, conversions first as they are executed."""
    model, begun = situation.settings.throughput, set[str]()
    scored = []
    for made in minors:
        action = made.action(situation.given.deletes)
        cpu, time, work = 0.0, 0.0, made.kind.work
        if made.bytes_in:
            assert work is not None  # what reads files is timed
            facts = (work, made.bytes_in, len(action.inputs), work not in begun)
            begun.add(work)
            cpu, time = model.cpu_seconds(*facts), model.seconds(*facts)
        sums = totals(situation, [made])
        words = _in_words(situation, action, made.why)
        part = f", one of {made.slices} slices" if made.slices > 1 else ""
        predicted = replace(
            words,
            label=f"{words.label}{part}",
            files_in=len(action.inputs),
            files_out=made.files_out,
            groups=1,
            bytes_in=made.bytes_in,
            bytes_out=made.bytes_out,
            rows=made.positions,
            cpu_millis=millis(cpu),
            millis=millis(time),
            read_now=whole(window_bytes(situation, sums.bytes_now)),
            read_after=whole(window_bytes(situation, sums.bytes_after)),
            saving=whole(made.saving),
            saving_low=whole(made.saving),
            cost=whole(made.cost),
            estimate="bound" if situation.expected.demands else "none",
            evidence=made.evidence,
            unit=DELETE_FILES,
        )
        scored.append(ScoredAction(action, predicted))
    return tuple(scored)


def _predicted(situation: Situation, action: Rewrite, item: Chosen) -> Prediction:
    """Return the prediction without its times."""
    table, made = situation.table, item.candidate
    rows = made.rows
    sums = totals(situation, [made])
    words = _in_words(situation, action, item.reason)
    how = sizes.in_words(made) + slices.in_words(made.sliced, table.schema)
    why = f" ({item.reason})" if item.shows_reason else ""
    # Sizes of what was declared follow from the queries, too.
    follows = situation.trusted and item.evidence in ("workload", "drift")
    return replace(
        words,
        label=f"{words.label}{how}{why}",
        target_bytes=made.target_configured or None,
        layout=action.layout(),
        files_in=len(rows),
        files_out=made.files_out,
        groups=made.groups,
        bytes_in=int(table.bytes[rows].sum()),
        bytes_out=int(table.live_bytes[rows].sum() * made.written_share),
        written_milli=whole(made.written_share * 1000),
        rows=int((table.records[rows] - table.position_deleted[rows]).sum()),
        read_now=whole(window_bytes(situation, sums.bytes_now)),
        read_after=whole(window_bytes(situation, sums.bytes_after)),
        saving=whole(made.saving),
        saving_low=whole(made.saving_low),
        saving_opening=whole(saved_by_opening(situation, made)),
        saving_denser=whole(saved_by_density(situation, made)),
        cost=whole(made.cost),
        estimate=made.label if situation.expected.demands else "none",
        evidence=item.evidence,
        basis=situation.expected.basis if follows else None,
        lead=lead_of(made.ordering),
        by_spark=why_by_spark(situation, rows) or None,
    )


def lead_of(ordering: Ordering) -> int | None:
    """Return `Prediction.lead` of rows in this ordering."""
    if not ordering.key and ordering.tree is None:
        return BY_ARRIVAL
    return None if ordering.lead is None else ordering.lead.field_id


def _payback(situation: Situation, cost: float, saving: float) -> float | None:
    """Return the hours until the savings at the workload's rates equal the cost; None where that is
    not known. The paper's window comes once more at no stated time."""
    if cost <= 0.0 or saving <= 0.0 or situation.settings.literal:
        return None
    return cost / (saving / situation.settings.horizon_ms) / HOUR_MS
